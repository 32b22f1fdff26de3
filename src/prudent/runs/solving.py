"""Solve a problem into a folder, and go on from the folder."""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..files import commit, locked, read_manifest, settle
from ..phases import phase, status_line
from ..problems import AbstractCase, fit_of, read_problem
from ..report import (
    FitRecord,
    PolicyRecord,
    SolutionRecord,
    evidence_record,
    fit_record,
    linear_fields,
    problem_fields,
    proof_record,
    solution_record,
    table_fields,
)
from ..solvers import Shown, Solution, replace_policy, shown_on, solve
from . import folder as places
from .checkpoint import CheckpointWriter, Saved, checkpoint_file, checkpoint_from, episode_seed, not_written, restored
from .deciding import decision_of
from .deterministic import best_deterministic
from .judging import Evaluator, limit_records, rival_records
from .reporting import add_to_run, can_report, page_file


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
    case: AbstractCase
    solution: Solution
    record: SolutionRecord
    files: tuple[Path, ...]

    @property
    def solved(self) -> bool:
        """Whether the solver converged and the log carries the policy; a policy was written in any case."""
        return self.record.solved and self.record.carried


def solve_problem(
    problem: str | Path | AbstractCase,
    out: str | Path,
    *,
    force: bool = False,
    wait: bool = False,
    trust: bool = False,
    report: bool = True,
    progress: Shown = None,
    changes: dict[str, Any] | None = None,
) -> Run:
    """Solve a problem file and write policy, solution, weights, checkpoint and the report's record to a folder.

    The numbers are those of `pr.solve(**read_problem(path).arguments())`, to the bit. After the first iteration, and
    every few seconds from then on, the folder holds what `continue_run` needs to go on.

    Args:
        problem: path of a problem file, or what `read_problem` gave.
        out: the folder; one that holds another run is refused.
        force: replace another run.
        wait: until no other process changes the folder; refused otherwise if one does.
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
    with status_line(shown_on(progress)):
        phase("reading")
        case = problem if isinstance(problem, AbstractCase) else read_problem(problem, trust=trust, changes=changes)
        return _solved(case, Path(out), force, wait, report, progress)


def _solved(case: AbstractCase, out: Path, force: bool, wait: bool, report: bool, progress: Shown) -> Run:
    places.require_free(out, force)
    arguments = case.arguments()
    target = places.prepare(out, force)
    with locked(target, wait):
        places.require_free(target, force)
        settle(target, places.FILES)
        table = case.table()
        fit = fit_record(fit_of(table)) if report and table is not None else None
        return _carry_out(RunPlan(case, arguments, target, fit=fit), report, progress)


def continue_run(
    folder: str | Path,
    *,
    data: Any = None,
    again: bool = False,
    only_new: bool = False,
    iterations: int | None = None,
    tolerance: float | None = None,
    out: str | Path | None = None,
    force: bool = False,
    wait: bool = False,
    trust: bool = False,
    report: bool = True,
    progress: Shown = None,
) -> Run:
    """Go on with a run: more iterations, or the next episode under what has been observed since.

    Without `data` the bits are those of one longer run. With it the posterior is updated, and the solver starts
    again from the policy there is, on draws of its own. A run that was interrupted goes on where it was, to the end
    that it had set out for; other data have to wait for that.

    Args:
        folder: of the run; everything needed is in its checkpoint.
        data: a log of what was observed since: a path, a frame, or a list of them. One that the run has counted
            before, by its path or by its rows, is refused, and so is one that begins with rows the run has counted.
        again: count it all the same.
        only_new: of a log that begins with rows the run has counted, such as a longer export, count those behind them.
        iterations: how many more at most; as many as before, or what is left of a run that was interrupted, when left
            out. With 0 the files are written again from the checkpoint.
        tolerance: another one; that of the run when left out.
        out: another folder to write to; the run's own when left out.
        force: replace another run in `out`.
        wait: until no other process changes the folder; refused otherwise if one does.
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
    folder, target = Path(folder), Path(folder if out is None else out)
    places.require_run(folder)
    if target != folder:
        places.prepare(target, force)
    with locked(target, wait), status_line(shown_on(progress)):
        phase("reading")
        if target != folder:
            places.require_free(target, force)
        settle(target, places.FILES)
        several = None if data is None else list(data) if isinstance(data, list | tuple) else [data]
        saved, source = _saved(folder, trust)
        count = {"again": again, "only_new": only_new}
        plan = _plan(saved, source, target, several, count, {"iterations": iterations, "tolerance": tolerance})
        return _carry_out(plan, report, progress)


@dataclass(frozen=True)
class RunPlan:
    """What is to be solved into which folder.

    Attributes:
        case: the problem.
        arguments: of `solve`.
        target: the folder.
        episode: how often more was observed.
        start: parameters to begin at.
        resume: what to go on from.
        fit: how well the model fits the log; of a log that was read, for a checkpoint has no rows to test.
    """

    case: AbstractCase
    arguments: dict[str, Any]
    target: Path
    episode: int = 0
    start: Any = None
    resume: Solution | None = None
    fit: FitRecord | None = None

    def state(self, solution: Solution, left: int | None = None) -> bytes:
        """The file to go on from a solution, of which so many iterations are left where it was interrupted."""
        return checkpoint_file(self.case, solution, self.episode, self.start, left, self.fit)


def _saved(folder: Path, trust: bool) -> tuple[Saved, Path]:
    """The state to go on from: where the run was interrupted, or its end."""
    found = places.read_states(folder)
    for name in (places.UNFINISHED, places.CHECKPOINT):
        if name in found:
            return checkpoint_from(found[name], folder / name, trust), folder / name
    raise InputError(f"{folder}: holds no checkpoint to go on from; solve again")


def _plan(
    saved: Saved, source: Path, target: Path, data: list[Any] | None, count: dict[str, bool], settings: dict[str, Any]
) -> RunPlan:
    case, episode, before = saved.case, saved.episode, restored(saved, source)
    if data is not None and saved.left is not None:
        if not _counted_last(case, data):
            raise InputError(
                f"{source.parent}: was interrupted at iteration {before.iterations}; finish it before --data, with "
                f"prudent continue {source.parent}, and --iterations 0 to take it as it is"
            )
        data = None
    if data is not None:
        case, episode = case.with_log(data, **count), episode + 1
    case = case.with_solver({name: value for name, value in settings.items() if value is not None})
    arguments = case.arguments()
    arguments["seed"] = episode_seed(arguments["seed"], episode)
    if data is not None:
        return RunPlan(case, arguments, target, episode, start=before.parameters)
    if saved.left is not None and settings["iterations"] is None:
        arguments["solver"] = dataclasses.replace(arguments["solver"], iterations=saved.left)
    return RunPlan(case, arguments, target, episode, saved.start, before, saved.fit)


def _counted_last(case: AbstractCase, data: list[Any]) -> bool:
    """Whether these logs are the last that were counted."""
    again = case.facts.with_log(data, again=True).counted[-len(data) :]
    return [each.digest for each in again] == [each.digest for each in case.facts.counted[-len(data) :]]


def _carry_out(plan: RunPlan, report: bool, progress: Shown) -> Run:
    iterations = plan.arguments["solver"].iterations
    keeper = CheckpointWriter(plan.target, plan.state, iterations, plan.resume)
    table = plan.case.table()
    asked = None if table is None else table.facts.file.certificate
    if asked is None or not asked.prove:
        solution, record = _found(plan, report, progress, keeper)
        return Run(plan.target, plan.case, solution, record, _write(plan, solution, record, report))
    from ..proofs import check_provable
    from .advising import proved

    check_provable(*(plan.arguments[name] for name in ("model", "belief", "risk", "loss")))
    solution, record = _found(plan, report, progress, keeper)
    phase("proving")
    found, proof = proved(plan.case, plan.arguments, solution, **asked.model_dump(exclude={"prove"}))
    record = record.model_copy(update={"proof": proof_record(found)})
    return Run(plan.target, plan.case, solution, record, _write(plan, solution, record, report, proof))


def _found(plan: RunPlan, report: bool, progress: Shown, keeper: CheckpointWriter) -> tuple[Solution, SolutionRecord]:
    """The solution and all that is said of it; nothing is written but what is kept on the way."""
    case, arguments = plan.case, plan.arguments
    solution = solve(**arguments, progress=progress, start=plan.start, resume=plan.resume, keep=keeper)
    if not np.all(np.isfinite(solution.losses)):
        raise InputError(case.why_infinite(solution))
    evaluator, table = Evaluator(**arguments, draws=solution.evaluation.draws), case.table()
    if report:
        phase("rivals")
    made = case.rivals(arguments, solution.iterations) if report else {}
    answer, certain, rivals, infinite = _judge_plans(case, evaluator, solution, made)
    if not solution.limits:
        others = [policy for policy, _ in made.values()]
        chosen = replace_policy(solution, [*others, *([] if certain is None else [certain.probabilities])])
        if chosen is not solution:
            solution = chosen
            answer, certain, rivals, infinite = _judge_plans(case, evaluator, solution, made)
    fields = problem_fields(case, solution, arguments["solver"]) | {"episode": plan.episode, "rivals": tuple(rivals)}
    if table is None:
        fields |= linear_fields(case, solution, made.get("certainty equivalence", (None,))[0], infinite)
    else:
        assert certain is not None
        beside = [certain, *rivals]
        fields |= table_fields(table, solution, answer) | {"deterministic": certain, "fit": plan.fit}
        fields["limits"] = limit_records(table, arguments, solution, beside)
        fields["decision"] = decision_of(
            evaluator,
            answer,
            beside,
            case.states,
            case.actions,
            ordered=table.facts.ordered and table.facts.file.layout.grid is None,
            ends=table.terminal,
            walls=~table.reachable,
            starts=table.start,
        )
    return solution, solution_record(solution, answer, name=case.driver_name, **fields)


def _judge_plans(
    case: AbstractCase, evaluator: Evaluator, solution: Solution, made: dict[str, Any]
) -> tuple[PolicyRecord, PolicyRecord | None, list[PolicyRecord], list[str]]:
    """Judge the answer, the best deterministic policy and the rivals, and name the rivals that cannot be judged."""
    table, evidence = case.table(), None
    if table is not None and solution.evidence is not None:
        evidence = evidence_record(solution.evidence, case.states, case.actions)
    # The solver's own numbers: computed in another batch, the last digit may differ.
    known = {"known": solution.evaluation, "status": solution.status.name, "evidence": evidence}
    answer = evaluator.record("this policy", solution.policy, **known)
    rivals, infinite = rival_records(evaluator, made, answer)
    certain = None if table is None else best_deterministic(evaluator, [answer, *rivals])
    return answer, certain, rivals, infinite


def _write(
    plan: RunPlan, solution: Solution, record: SolutionRecord, report: bool, proof: bytes | None = None
) -> tuple[Path, ...]:
    """Write the files, what matters most first and all of them at once, then the page, which can be made again."""
    target, shape = plan.target, np.shape(solution.thetas)[1:]
    contents = {
        places.CHECKPOINT: plan.state(solution),
        **places.policy_files(record),
        **places.record_files(record),
        places.WEIGHTS: places.weights_text(solution, plan.case.unknowns(shape)).encode(),
        **({} if proof is None else {places.PROOF: proof}),
    }
    # A proof is of its own question, whatever becomes of the policy.
    kept = () if plan.resume is None and plan.start is None else (places.PROOF,)
    try:
        commit(target, contents, places.FILES, keep=kept)
    except OSError as error:
        raise _keep_least(plan, solution, contents, error) from error
    written = list(contents)
    if report and can_report():
        phase("page")
        try:
            add_to_run(target, {places.REPORT: page_file(record)})
        except OSError as error:
            raise InputError(
                f"{target}: holds {', '.join(written)}, but not {places.REPORT}, which could not be written "
                f"({error.strerror}); make room, then prudent report {target}"
            ) from error
        written.append(places.REPORT)
    return tuple(target / name for name in written)


def _keep_least(plan: RunPlan, solution: Solution, contents: dict[str, bytes], error: OSError) -> InputError:
    """Where all files could not be written: a policy, if there was none, and what is needed to write the rest."""
    before = read_manifest(plan.target)
    if before is None or places.CHECKPOINT not in before.files:
        least = {places.UNFINISHED: plan.state(solution, 0), places.POLICY: contents[places.POLICY]}
        with contextlib.suppress(OSError):
            commit(plan.target, least, places.FILES, keep=places.FILES, note={"iterations": solution.iterations})
    return not_written(plan.target, error, list(contents))
