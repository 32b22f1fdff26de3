"""Solve a problem into a folder, and go on from the folder."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..files import write_whole
from ..problems import Case, parse, read_problem
from ..report import SolutionRecord, footing_record, problem_fields, solution_record
from ..solvers import Solution, solve
from . import folder as places
from .checkpoint import episode_seed, read_checkpoint, restored, save_checkpoint
from .deterministic import best_deterministic
from .judging import Evaluator, rival_records
from .naming import driver_records, moves_of, unknowns
from .reporting import can_report, write_page

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
    record: SolutionRecord
    files: tuple[Path, ...]

    @property
    def solved(self) -> bool:
        """Whether the solver says that it is done; a policy was written in any case."""
        return self.record.solved


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
    before = restored(saved, source)
    case = _changed(case, changes)
    arguments = case.arguments()
    arguments["seed"] = episode_seed(arguments["seed"], episode)
    target = Path(folder) if out is None else places.prepare(Path(out), force)
    if data is None:
        return _carry_out(case, arguments, target, episode, report, progress, resume=before)
    return _carry_out(case, arguments, target, episode, report, progress, start=before.parameters)


def _changed(case: Case, solver: dict[str, Any]) -> Case:
    """The case with other settings of the solver, checked."""
    content = case.facts.file.model_dump(mode="json", exclude_unset=True)
    content["solver"] = content.get("solver", {}) | solver
    file = parse(content, "the options")
    return dataclasses.replace(case, facts=dataclasses.replace(case.facts, file=file))


def _carry_out(
    case: Case,
    arguments: dict[str, Any],
    target: Path,
    episode: int,
    report: bool,
    progress: bool | None,
    **more: Any,
) -> Run:
    solution = solve(**arguments, progress=progress, **more)
    if not np.all(np.isfinite(solution.losses)):
        raise InputError(
            f"the loss of the policy is not a finite number at every posterior draw ({solution.status.value}); "
            "check the costs"
        )
    evaluator = Evaluator(**arguments, draws=solution.evaluation.draws)
    footing = None if solution.footing is None else footing_record(solution.footing, case.states, case.actions)
    # The solver's own numbers: computed in another batch, the last digit may differ.
    known = {"known": solution.evaluation, "status": solution.status.name, "footing": footing}
    answer = evaluator.record("this policy", solution.policy, **known)
    rivals = rival_records(evaluator, case, arguments, answer, solution.iterations) if report else []
    record = solution_record(
        solution,
        answer,
        **problem_fields(case, solution, answer, settings_of(case.facts.file.solver, arguments["solver"])),
        episode=episode,
        drivers=driver_records(solution, moves_of(case)),
        deterministic=best_deterministic(evaluator, [answer, *rivals]),
        rivals=tuple(rivals),
    )
    return Run(target, case, solution, record, _write(target, case, solution, record, report))


def settings_of(section: Any, solver: Any) -> dict[str, Any]:
    """The solver's settings of a file, with the numbers that were in force where it names none."""
    given = section.model_dump(mode="json")
    usual: dict[str, Any] = {name: getattr(solver, name, None) for name, value in given.items() if value is None}
    return given | {name: np.asarray(value).item() for name, value in usual.items() if np.ndim(value) == 0}


def _write(target: Path, case: Case, solution: Solution, record: SolutionRecord, report: bool) -> tuple[Path, ...]:
    """Write the files, the checkpoint first: from it alone a run can go on, whatever happens to the others."""
    written = [save_checkpoint(target / places.CHECKPOINT, case, solution, record.episode)]
    written += places.write_record(target, record)
    if report and can_report():
        written.append(write_page(record, target / places.REPORT))
    for name, text in (
        (places.POLICY, places.policy_text(np.asarray(record.probabilities), case.states, case.actions)),
        (
            places.DETERMINISTIC,
            places.deterministic_text(np.asarray(record.plans[1].probabilities), case.states, case.actions),
        ),
        (places.WEIGHTS, weights_text(case, solution)),
    ):
        written.append(write_whole(target / name, text))
    places.remove_stale(target, {path.name for path in written})
    return tuple(written)


def weights_text(case: Case, solution: Solution) -> str:
    """The posterior draws the risk was taken on: number, probability, xi*, loss, and the unknowns unless too many."""
    thetas = np.asarray(solution.thetas)
    named = unknowns(case, thetas.shape[1:]) if thetas[0].size <= 50 * MOST_UNKNOWNS else {}
    named = named if len(named) <= MOST_UNKNOWNS else {}
    flat = thetas.reshape(len(thetas), -1)[:, list(named.values())]
    judged = [np.asarray(column) for column in (solution.probabilities, solution.weights, solution.losses)]
    rows = ([str(k), *(repr(float(v)) for v in row)] for k, row in enumerate(np.column_stack([*judged, flat])))
    return places.csv_text(("draw", "probability", "weight", "loss", *named), rows)
