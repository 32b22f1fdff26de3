"""Runs of linear systems: solved into a folder, gone on with, compared; the files have the names that all runs have."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..evaluation import Evaluation
from ..files import commit
from ..linear import LinearGaussianPolicy, linear_plan, robust_gain
from ..phases import phase
from ..problems import Counted, LinearCase, parse_linear, risk_name
from ..report import LinearRecord, PolicyRecord, SolutionRecord, message_of, solution_record
from ..risks import Expectation
from ..solvers import Checkpoint, History, Shown, Solution, Status, named_leaves, solve
from ..tables import guarded
from ..vector_log import VectorLog
from . import folder as places
from .checkpoint import episode_seed
from .judging import Evaluator
from .keeping import CheckpointWriter, not_written
from .naming import driver_records
from .reporting import add_to_run, can_report, page_file
from .tensors import kind_of, packed, unpacked

KIND = "prudent linear checkpoint, version 1"
TREES = ("state", "parameters", "history")

# Draws whose closed loops are drawn, steps of a response at most, and the part of its start at which one ends.
DRAWN, STEPS, SETTLED = 400, 120, 0.01


@dataclasses.dataclass(frozen=True)
class LinearPlanned:
    """What is to be solved into which folder; as `Plan` for tables."""

    case: LinearCase
    target: Path
    seed: Any
    solver: Any
    episode: int = 0
    start: Any = None
    resume: Solution | None = None

    def arguments(self) -> dict[str, Any]:
        """Of `solve`."""
        given = self.case.arguments()
        model = given["model"].objective(occupancy=given["occupancy"])
        return {
            "model": model,
            "belief": given["belief"],
            "risk": given["risk"],
            "solver": self.solver,
            "seed": self.seed,
        }

    def state(self, solution: Solution, left: int | None = None) -> bytes:
        """The file to go on from a solution."""
        case = self.case
        arrays: dict[str, np.ndarray] = {} if self.start is None else {"start": np.asarray(self.start)}
        if case.log is not None:
            arrays |= {f"log.{name}": np.asarray(getattr(case.log, name)) for name in ("state", "action", "next_state")}
        assert solution.checkpoint is not None
        trees = (solution.checkpoint.state, solution.parameters, solution.history)
        for name, tree in zip(TREES, trees, strict=True):
            arrays |= {f"{name}{place}": leaf for place, leaf in named_leaves(tree).items()}
        record = {
            "kind": KIND,
            "file": case.file.model_dump(mode="json", exclude_unset=True),
            "source": case.source,
            "states": list(case.states),
            "actions": list(case.actions),
            "counted": [dataclasses.asdict(each) for each in case.counted],
            "key": list(solution.checkpoint.key),
            "episode": self.episode,
            "left": left,
            "problem": case.digest(),
            "iterations": solution.iterations,
        }
        return packed(arrays, record)


def linear_checkpoint(data: bytes, path: Path) -> tuple[LinearPlanned, Solution, int | None]:
    """The problem, the solution to resume from and the iterations left; everything is checked again."""
    arrays, record = unpacked(data, KIND, str(path))
    try:
        file = parse_linear(record["file"], str(path))
        log = None
        if "log.state" in arrays:
            log = VectorLog(*(np.array(arrays[f"log.{name}"]) for name in ("state", "action", "next_state")))
        counted = tuple(Counted(**each) for each in record["counted"])
        case = LinearCase(file, str(record["source"]), log, counted)
        if case.digest() != record["problem"]:
            raise InputError(f"{path}: is for another problem than the one in it; solve again")
        planned = LinearPlanned(case, path.parent, None, case.solver(), int(record["episode"]), arrays.get("start"))
        arguments = planned.arguments()
        objective, theta = arguments["model"], arguments["belief"].sample(0, 1)[0]
        trees = {name: {k.removeprefix(name): v for k, v in arrays.items() if _within(k, name)} for name in TREES}
        state = case.solver().state_from(trees["state"], objective, theta)
        parameters = np.array(trees["parameters"][""])
        if parameters.shape != objective.initial().shape or not np.all(np.isfinite(parameters)):
            raise ValueError("parameters of another shape")
        history = History(**{name.removeprefix("."): column for name, column in trees["history"].items()})
        key = tuple(int(word) for word in record["key"])
        left = None if record["left"] is None else int(record["left"])
        iterations = int(record["iterations"])
    except InputError:
        raise
    except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise InputError(f"{path}: is damaged ({' '.join(str(error).split())[:80]}); solve again") from None
    policy = objective.policy(objective.points(parameters[None])[0])
    return (
        planned,
        Solution(
            status=Status.ITERATION_LIMIT,
            policy=policy,
            evaluation=Evaluation.none(),
            history=history,
            iterations=iterations,
            seconds=0.0,
            parameters=parameters,
            checkpoint=Checkpoint(state, key),
        ),
        left,
    )


def _within(name: str, tree: str) -> bool:
    return name == tree or (name.startswith(tree) and name[len(tree)] in ".[")


def linear_state(folder: Path) -> tuple[LinearPlanned, Solution, int | None] | None:
    """What a run of a linear system goes on from; None where the run is of another kind."""
    found = places.read_states(folder)
    for name in (places.UNFINISHED, places.CHECKPOINT):
        if name in found and kind_of(found[name]) == KIND:
            return linear_checkpoint(found[name], folder / name)
    return None


def linear_plan_of(
    saved: LinearPlanned,
    before: Solution,
    left: int | None,
    target: Path,
    data: list[Any] | None,
    again: bool,
    more: dict[str, Any],
) -> LinearPlanned:
    """What going on with a run comes to: more iterations, or the next episode."""
    case, episode = saved.case, saved.episode
    if data is not None:
        if left is not None:
            raise InputError(
                f"{saved.target}: was interrupted at iteration {before.iterations}; finish it before --data, with "
                f"prudent continue {saved.target}, and --iterations 0 to take it as it is"
            )
        case, episode = case.with_log(data, again), episode + 1
    content = case.file.model_dump(mode="json", exclude_unset=True)
    content["solver"] = content.get("solver", {}) | {name: value for name, value in more.items() if value is not None}
    case = dataclasses.replace(case, file=parse_linear(content, "the options"))
    solver, seed = case.solver(), episode_seed(case.file.seed, episode)
    if data is not None:
        return LinearPlanned(case, target, seed, solver, episode, start=before.parameters)
    if left is not None and more["iterations"] is None:
        solver = dataclasses.replace(solver, iterations=left)
    return LinearPlanned(case, target, seed, solver, episode, saved.start, before)


def carry_out_linear(planned: LinearPlanned, report: bool, progress: Shown) -> tuple[Solution, SolutionRecord, Any]:
    """The solution, its record, and the files that were written."""
    keeper = CheckpointWriter(planned.target, planned.state, planned.solver.iterations, planned.resume)
    arguments = planned.arguments()
    solution = solve(**arguments, progress=progress, start=planned.start, resume=planned.resume, keep=keeper)
    if not np.all(np.isfinite(solution.losses)):
        stability = solution.evaluation.notes
        raise InputError(
            f"the closed loop of the best gain found is unstable at {stability.unstable}, where its cost is infinite, "
            "and so is the risk: more data, a smaller belief.credible or a horizon may give a finite one"
        )
    record = linear_record(planned, solution, arguments, report)
    contents = {
        places.CHECKPOINT: planned.state(solution),
        places.POLICY: gain_text(planned.case, solution.policy).encode(),
        **places.record_files(record),
        places.WEIGHTS: _weights_text(planned.case, solution).encode(),
    }
    try:
        commit(planned.target, contents, places.FILES)
    except OSError as error:
        raise not_written(planned.target, error, list(contents)) from error
    written = list(contents)
    if report and can_report():
        phase("page")
        add_to_run(planned.target, {places.REPORT: page_file(record)})
        written.append(places.REPORT)
    return solution, record, tuple(planned.target / name for name in written)


def linear_record(
    planned: LinearPlanned, solution: Solution, arguments: dict[str, Any], report: bool
) -> SolutionRecord:
    """Everything that is said of a run."""
    case, file = planned.case, planned.case.file
    evaluator = Evaluator(**arguments, draws=solution.evaluation.draws)
    status = solution.status.name
    answer = evaluator.record("this policy", solution.policy, known=solution.evaluation, status=status)
    if report:
        phase("rivals")
    others = rival_gains(case) if report else {}
    rivals, lost = [], []
    for name, policy in others.items():
        try:
            rivals.append(evaluator.record(name, policy, beside=answer, kind="rival", status="PLANNED"))
        except InputError:
            lost.append((name, "unstable at some of these draws, so that its risk is infinite there"))

    def named(row: int, column: int) -> str:
        names = [*case.states, *case.actions]
        if column < len(names):
            return f"{names[column]} → {case.states[row]}"
        return f"noise of {case.states[row]}, {case.states[column - len(names)]}"

    record = solution_record(
        solution,
        answer,
        title=file.title or Path(case.source).stem,
        message=message_of(solution.status),
        asked=(("problem file", case.source), *case.describe()),
        risk_name=risk_name(file.risk),
        loss_name="expected discounted cost",
        known_theta_risk=None,
        drivers=driver_records(solution, named),
        rivals=tuple(rivals),
        log={} if case.log is None else {"transitions": float(len(case.log))},
        solver=file.solver.kind,
        seed=file.seed,
        episode=planned.episode,
        problem={"file": case.source, "digest": case.digest()},
        settings=file.model_dump(mode="json"),
        linear=_linear_part(case, solution, others.get("certainty equivalence"), lost),
    )
    # Of a gain nothing but its gradient tells that it has converged.
    return record.model_copy(update={"solved": status in ("CONVERGED", "GRADIENT_VANISHED")})


def rival_gains(case: LinearCase) -> dict[str, LinearGaussianPolicy]:
    """Other ways to plan, as far as there are any: least squares, the posterior mean, cautious in closed form."""
    family, belief, log = case.family(), case.belief(), case.log
    made: dict[str, LinearGaussianPolicy] = {}
    if log is not None:
        try:
            fitted = log.least_squares()
            noise = [] if case.file.noise.known else [log.residual_covariance()]
            made["certainty equivalence"] = linear_plan(family, np.concatenate([fitted, *noise], axis=1)).policy
        except InputError:
            pass
    try:
        mean = np.asarray(belief.posterior.mean())  # pyright: ignore[reportAttributeAccessIssue]
        made["plan for the posterior mean"] = linear_plan(family, mean).policy
    except InputError:
        pass
    return made | {"cautious gain": robust_gain(family, belief, seed=case.file.seed)}


def _linear_part(
    case: LinearCase, solution: Solution, plug_in: LinearGaussianPolicy | None, lost: list[tuple[str, str]]
) -> LinearRecord:
    """Gain, eigenvalues and responses at the first draws."""
    n, m = len(case.states), len(case.actions)
    thetas = np.asarray(solution.thetas)[:DRAWN]
    matrices, drives = thetas[:, :, :n], thetas[:, :, n : n + m]
    policy = solution.policy
    values = np.linalg.eigvals(matrices + drives @ np.asarray(policy.gain))
    first = np.asarray(case.family().start_mean)
    first = first if np.any(first) else np.sqrt(np.maximum(np.diag(np.asarray(case.family().start_covariance)), 0.0))
    first = first if np.any(first) else np.ones(n)
    walks = _walked(policy, matrices, drives, first)
    low, middle, high = np.quantile(walks, [0.05, 0.5, 0.95], axis=0)
    settled = np.abs(middle).max(axis=1) > SETTLED * np.abs(middle[0]).max()
    steps = min(STEPS, max(10, int(np.flatnonzero(settled)[-1]) + 2))
    others = None if plug_in is None else np.median(_walked(plug_in, matrices, drives, first), axis=0)[:steps]
    notes = solution.evaluation.notes
    return LinearRecord(
        states=case.states,
        actions=case.actions,
        units=tuple(case.unit(name) for name in (*case.states, *case.actions)),
        discount=case.file.discount,
        gain=np.asarray(policy.gain),
        bias=np.asarray(policy.bias),
        plug_in=None if plug_in is None else np.asarray(plug_in.gain),
        plug_in_bias=None if plug_in is None else np.asarray(plug_in.bias),
        said=(*notes.rows(), *lost),
        real=values.real,
        imaginary=values.imag,
        responses=np.stack([low, middle, high])[:, :steps],
        others=others if others is not None and np.all(np.isfinite(others)) else None,
    )


def _walked(policy: Any, matrices: np.ndarray, drives: np.ndarray, first: np.ndarray) -> np.ndarray:
    """`[M, T, n + m]` states and actions without noise."""
    gain, bias = np.asarray(policy.gain), np.asarray(policy.bias)
    states, rows = np.broadcast_to(first, (len(matrices), len(first))), []
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(STEPS):
            actions = states @ gain.T + bias
            rows.append(np.concatenate([states, actions], axis=1))
            states = np.einsum("kij,kj->ki", matrices, states) + np.einsum("kij,kj->ki", drives, actions)
    return np.stack(rows, axis=1)


def gain_text(case: LinearCase, policy: LinearGaussianPolicy) -> str:
    """`action,bias` and a column for each state; the numbers read back to the bit."""
    gain, bias = np.asarray(policy.gain), np.asarray(policy.bias)
    rows = (
        [guarded(name), repr(float(bias[k])), *(repr(float(v)) for v in gain[k])] for k, name in enumerate(case.actions)
    )
    return places.csv_text(("action", "bias", *map(guarded, case.states)), rows)


def _weights_text(case: LinearCase, solution: Solution) -> str:
    """The posterior draws the risk was taken on: number, probability, xi*, loss, and [A B]."""
    names = [f"{name} to {state}" for state in case.states for name in (*case.states, *case.actions)]
    thetas = np.asarray(solution.thetas)[:, :, : len(case.states) + len(case.actions)]
    judged = [np.asarray(column) for column in (solution.probabilities, solution.weights, solution.losses)]
    table = np.column_stack([*judged, thetas.reshape(len(thetas), -1)])
    rows = ([str(k), *(repr(float(v)) for v in row)] for k, row in enumerate(table))
    return places.csv_text(("draw", "probability", "weight", "loss", *map(guarded, names)), rows)


def compared_gains(
    planned: LinearPlanned, seed: Any, folders: list[Path], records: list[SolutionRecord], samples: int | None
) -> list[tuple[PolicyRecord, Any, Any]]:
    """Each run's gain under the first run's problem: as it was judged, and its risk and mean less the first's."""
    arguments = planned.arguments() | {"seed": seed}
    evaluator = Evaluator(**arguments, evaluation=samples or arguments["solver"].evaluation)
    policies = []
    for folder, record in zip(folders, records, strict=True):
        part = record.linear
        if part is None or (part.states, part.actions) != (planned.case.states, planned.case.actions):
            raise InputError(f"{folder}: has other states or actions than {folders[0]}; compare runs of one problem")
        policies.append(evaluator.record(str(folder), LinearGaussianPolicy(part.gain, part.bias)))
    both = [(one.losses, policies[0].losses) for one in policies]
    apart = [(evaluator.difference(*each), evaluator.difference(*each, risk=Expectation())) for each in both]
    return [(one, *each) for one, each in zip(policies, apart, strict=True)]
