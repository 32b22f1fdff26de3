"""Judge any policy under a problem, and runs against one another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..problems import Case, read_problem
from ..report.data import Difference
from .checkpoint import Saved
from .footing import standing_of
from .policy_files import read_policy
from .solving import episode_seed, saved_policy
from .view import View


def evaluate_problem(
    policy: Any, problem: str | Path | Case, *, samples: int | None = None, trust: bool = False
) -> View:
    """Judge any policy on the draws that `solve_problem` reports on: those of the problem's seed.

    Args:
        policy: a CSV, TSV, Parquet or JSON-lines file with `state`, `action` and `probability` (without the last,
            each action is certain), or an array `[S, A]`.
        problem: path of a problem file, or what `read_problem` gave.
        samples: how many draws; those of the file's `solver.evaluation` when left out.
        trust: import the code that the file's `family` names.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     problem = pr.write_example(folder)[0]
    ...     view = pr.evaluate_problem([[1, 0, 0], [1, 0, 0], [0, 0, 1], [0, 0, 1]], problem, samples=200)
    >>> bool(view.risk > view.mean)
    True
    """
    case = problem if isinstance(problem, Case) else read_problem(problem, trust=trust)
    table = policy
    if isinstance(policy, str | Path):
        table = read_policy(policy, case.facts.states, case.facts.actions)
    name = str(policy) if isinstance(policy, str | Path) else "policy"
    court = _court(case, 0, samples)
    view = court.view(name, table, occupancy=False)
    return replace(view, standing=standing_of(case, court.footing(view)))


def _court(case: Case, episode: int, samples: int | None) -> Any:
    from .judging import Court, tail_level_of

    arguments = case.arguments()
    arguments["seed"] = episode_seed(arguments["seed"], episode)
    draws = samples or case.facts.file.solver.evaluation
    return Court(arguments, draws, tail_level_of(arguments["risk"]))


@dataclass(frozen=True)
class Comparison:
    """A run's policy beside that of the first run, on the same draws of the first run's posterior.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     problem = pr.write_example(folder)[0]
    ...     run = pr.solve_problem(problem, f"{folder}/run", report=False, changes={"solver.iterations": 3})
    ...     pr.compare_runs([run.folder])[0].risk_difference.value
    0.0

    Attributes:
        folder: of the run.
        saved: what it holds.
        view: its policy under the first run's problem.
        risk_difference: its risk minus the first run's, draw by draw.
        mean_difference: the mean of its losses minus that of the first run's, draw by draw.
        same_problem: whether it was solved for the same question.
    """

    folder: Path
    saved: Saved
    view: View
    risk_difference: Difference
    mean_difference: Difference
    same_problem: bool


def compare_runs(folders: Any, *, samples: int | None = None, trust: bool = False) -> list[Comparison]:
    """The policies of several runs under the problem of the first, on the same fresh draws.

    Args:
        folders: of runs with the same states and actions.
        samples: how many draws; those of the first run when left out.
        trust: import the code that a run's `family` names.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     problem = pr.write_example(folder)[0]
    ...     for level in (0.0, 0.9):
    ...         changes = {"risk.level": level, "solver.iterations": 3}
    ...         run = pr.solve_problem(problem, f"{folder}/{level}", report=False, changes=changes)
    ...     [row.same_problem for row in pr.compare_runs([f"{folder}/0.0", f"{folder}/0.9"])]
    [True, False]
    """
    saved = [saved_policy(folder, trust) for folder in folders]
    if not saved:
        raise InputError("compare needs the folder of at least one run")
    first = saved[0]
    for folder, other in zip(folders, saved, strict=True):
        if (other.case.states, other.case.actions) != (first.case.states, first.case.actions):
            raise InputError(f"{folder}: has other states or actions than {folders[0]}; compare runs of one problem")
    from ..risks import Expectation

    court = _court(first.case, first.episode, samples)
    views = [court.view(str(folder), each.policy, occupancy=False) for folder, each in zip(folders, saved, strict=True)]
    rows = []
    for folder, each, view in zip(folders, saved, views, strict=True):
        same = each.record["problem"] == first.record["problem"]
        both = view.losses, views[0].losses
        apart = court.difference(*both), court.difference(*both, risk=Expectation())
        rows.append(Comparison(Path(folder), each, view, *apart, same))
    return rows
