"""Solve a problem into a folder, and go on from the folder."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from ..files import write_whole
from ..problems import Case, parse, read_problem
from . import folder as places
from .checkpoint import Saved, read_checkpoint, restored, save_checkpoint
from .drivers import drivers_of, unknowns
from .policy_files import csv_text, deterministic_text, policy_text
from .record import Record, is_solved, record_of, write_record
from .reporting import can_report, write_report_of

if TYPE_CHECKING:
    from ..solvers import Solution
else:
    Solution = Any  # importing it would import JAX, which refusing bad input does not need

# The table of posterior draws has a column for each unknown, up to this many.
MOST_UNKNOWNS = 200


@dataclass(frozen=True)
class Run:
    """A problem that was solved into a folder.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     problem = pr.write_example(folder)[0]
    ...     pr.solve_problem(problem, f"{folder}/run", report=False, changes={"solver.iterations": 3}).solved
    False

    Attributes:
        folder: where the files are.
        case: the problem.
        solution: what `pr.solve` gave.
        record: everything that is reported of it.
        files: the files written.
    """

    folder: Path
    case: Case
    solution: Solution
    record: Record
    files: tuple[Path, ...]

    @property
    def solved(self) -> bool:
        """Whether the solver says that it is done; a policy was written in any case."""
        return is_solved(self.solution)


def solve_problem(
    problem: str | Path | Case,
    out: str | Path,
    *,
    force: bool = False,
    trust: bool = False,
    report: bool = True,
    progress: bool | None = None,
    changes: dict[str, Any] | None = None,
) -> Run:
    """Solve a problem file and write policy, solution, weights, checkpoint and the report's record to a folder.

    The numbers are those of `pr.solve(**read_problem(path).arguments())`, to the bit.

    Args:
        problem: path of a problem file, or what `read_problem` gave.
        out: the folder; one that holds another run is refused.
        force: replace another run.
        trust: import the code that the file's `family` names.
        report: also plan as rivals would, and write `report.html` (extra `report`).
        progress: as in `solve`.
        changes: keys to set over what the file says.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     problem = pr.write_example(folder)[0]
    ...     run = pr.solve_problem(problem, f"{folder}/run", report=False, changes={"solver.iterations": 3})
    ...     sorted(path.suffix for path in run.files), run.solution.iterations
    (['.csv', '.csv', '.csv', '.json', '.safetensors', '.safetensors'], 3)
    """
    case = problem if isinstance(problem, Case) else read_problem(problem, trust=trust, changes=changes)
    places.require_free(Path(out), force)
    arguments = case.arguments()
    target = places.prepare(Path(out), force)
    return _carry_out(case, arguments, target, 0, report, progress)


def continue_run(
    folder: str | Path,
    *,
    data: Any = None,
    again: bool = False,
    iterations: int | None = None,
    tolerance: float | None = None,
    out: str | Path | None = None,
    force: bool = False,
    trust: bool = False,
    report: bool = True,
    progress: bool | None = None,
) -> Run:
    """Go on with a run: more iterations, or the next episode under what has been observed since.

    Without `data` the bits are those of one longer run. With it the posterior is updated, and the solver starts
    anew from the policy there is, on draws of its own.

    Args:
        folder: of the run; everything needed is in its checkpoint.
        data: a log of what was observed since: a path, a frame, or a list of them. One that the run has counted
            before, by its path or by its rows, is refused.
        again: count it all the same.
        iterations: how many more at most; as many as before when left out.
        tolerance: another one; that of the run when left out.
        out: another folder to write to; the run's own when left out.
        force: replace another run in `out`.
        trust: import the code that the problem's `family` names.
        report: also plan as rivals would, and write `report.html` (extra `report`).
        progress: as in `solve`.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     problem = pr.write_example(folder)[0]
    ...     run = pr.solve_problem(problem, f"{folder}/run", report=False, changes={"solver.iterations": 3})
    ...     pr.continue_run(f"{folder}/run", iterations=2, report=False).solution.iterations
    5
    """
    source = places.require_run(Path(folder))
    saved = read_checkpoint(source, trust)
    changes = {k: v for k, v in (("iterations", iterations), ("tolerance", tolerance)) if v is not None}
    case, episode = saved.case, saved.episode
    if data is not None:
        several = data if isinstance(data, list | tuple) else [data]
        case, episode = case.with_log(several, again), episode + 1
    arguments = case.arguments()
    arguments["seed"] = episode_seed(arguments["seed"], episode)
    before = restored(saved, saved.case.solver(), source)
    case = _changed(case, changes)
    arguments["solver"] = case.solver()
    target = Path(folder) if out is None else places.prepare(Path(out), force)
    if data is None:
        return _carry_out(case, arguments, target, episode, report, progress, resume=before)
    return _carry_out(case, arguments, target, episode, report, progress, start=before.parameters)


def episode_seed(seed: Any, episode: int) -> Any:
    """The seed of an episode: the file's own at first, then keys that follow from it."""
    if episode == 0:
        return seed
    import jax

    from ..arrays import as_key

    return jax.random.fold_in(as_key(seed), episode)


def _changed(case: Case, solver: dict[str, Any]) -> Case:
    """The case with other settings of the solver, checked."""
    content = case.facts.file.model_dump(mode="json", exclude_unset=True)
    content["solver"] = content.get("solver", {}) | solver
    file = parse(content, "the options")
    return dataclasses.replace(case, facts=dataclasses.replace(case.facts, file=file))


def _solve(arguments: dict[str, Any], **more: Any) -> Solution:
    from ..solvers import solve

    return solve(**arguments, **more)


def _carry_out(
    case: Case,
    arguments: dict[str, Any],
    target: Path,
    episode: int,
    report: bool,
    progress: bool | None,
    **more: Any,
) -> Run:
    from .deterministic import best_deterministic
    from .judging import Court, tail_level_of

    solution = _solve(arguments, progress=progress, **more)
    if not np.all(np.isfinite(solution.losses)):
        raise InputError(
            f"the loss of the policy is not a finite number at every posterior draw ({solution.status.value}); "
            "check the costs"
        )
    tail_level = tail_level_of(arguments["risk"])
    court = Court(arguments, len(solution.losses), tail_level, solution)
    ours = court.view("this policy", solution.policy, solution.losses, status=solution.status.name)
    # The solver's own numbers: computed in another batch, the last digit may differ.
    same = {name: getattr(solution, name) for name in ("risk", "risk_standard_error")}
    ours = dataclasses.replace(ours, weights=np.asarray(solution.weights), **same)
    rivals = court.rivals(case, ours, solution.iterations) if report else []
    views = [ours, best_deterministic(court, [ours, *rivals]), *rivals]
    settings = settings_of(case.facts.file.solver, arguments["solver"])
    record = record_of(case, solution, views, drivers_of(case, solution, ours), tail_level, episode, settings)
    return Run(target, case, solution, record, _write(target, case, solution, record, episode, report))


def settings_of(section: Any, solver: Any) -> dict[str, Any]:
    """The solver's settings of a file, with the numbers that were in force where it names none."""
    given = section.model_dump(mode="json")
    usual: dict[str, Any] = {name: getattr(solver, name, None) for name, value in given.items() if value is None}
    return given | {name: np.asarray(value).item() for name, value in usual.items() if np.ndim(value) == 0}


def _write(
    target: Path, case: Case, solution: Solution, record: Record, episode: int, report: bool
) -> tuple[Path, ...]:
    """Write the files, the checkpoint first: from it alone a run can go on, whatever happens to the others."""
    probabilities = np.asarray(solution.policy.probabilities)
    certain = record.views[1].probabilities
    texts: dict[str, Callable[[], str]] = {
        places.POLICY: lambda: policy_text(probabilities, case.states, case.actions),
        places.DETERMINISTIC: lambda: deterministic_text(certain, case.states, case.actions),
        places.WEIGHTS: lambda: weights_text(case, solution, record.views[0].draw_probabilities),
        places.SOLUTION: lambda: json.dumps(record.summary, indent=2, allow_nan=False) + "\n",
    }
    written = [save_checkpoint(target / places.CHECKPOINT, case, solution, episode)]
    written.append(write_record(target / places.RECORD, record))
    if report and can_report():
        written.append(write_report_of(record, target / places.REPORT))
    written += [write_whole(target / name, text()) for name, text in texts.items()]
    places.remove_stale(target, {path.name for path in written})
    return tuple(written)


def weights_text(case: Case, solution: Solution, probabilities: np.ndarray) -> str:
    """The posterior draws the risk was taken on: number, probability, xi*, loss, and the unknowns unless too many."""
    thetas = np.asarray(solution.thetas)
    named = unknowns(case, thetas.shape[1:]) if thetas[0].size <= 50 * MOST_UNKNOWNS else {}
    named = named if len(named) <= MOST_UNKNOWNS else {}
    flat = thetas.reshape(len(thetas), -1)[:, list(named.values())]
    columns = np.column_stack([probabilities, np.asarray(solution.weights), np.asarray(solution.losses), flat])
    rows = ([str(k), *(repr(float(value)) for value in row)] for k, row in enumerate(columns))
    return csv_text(("draw", "probability", "weight", "loss", *named), rows)


def saved_policy(folder: str | Path, trust: bool = False) -> Saved:
    """What a run's folder holds."""
    return read_checkpoint(places.require_run(Path(folder)), trust)
