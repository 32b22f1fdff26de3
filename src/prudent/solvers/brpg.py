"""Bayesian Risk Policy Gradient (Algorithm 1 of the paper): settings and the loop over all runs of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..arrays import Array, as_number, as_whole, require_kind, to_numpy
from ..errors import InputError, hinted
from ..evaluation import USUAL_DRAWS
from ..gradients import GradientEstimator, SampledRisk
from ..objectives import Objective
from ..parameter_sets import ParameterSet, project_all, projected
from ..records import Record, changed, field, same_structure, tree_leaves, tree_map
from ..risks import Risk
from ..settings import check_settings, number, whole
from .draws import JobDraws, stacked
from .limits import LimitsAsked
from .optimiser import EVALUATION, Optimiser, Outcome, Watch
from .outputs import Kept, LastIterate, Output, start, where
from .progress import Progress, Shown
from .solution import Solution, Status, checkpoint_of
from .states import Arrays, filled, foreign

GOING, VANISHED, NON_FINITE = 0, 1, 2

# A batch of runs: in cache for the direct solver (beyond it each model takes twice as long), else in memory.
BATCH_BYTES = {True: 10 * 2**20, False: 256 * 2**20}

# Iterations whose sampled objectives are averaged for the in-sample one: each has few draws.
NEWEST = 10


@hinted
class BRPG(Optimiser):
    """Settings of the paper's algorithm; the defaults are those of its experiments.

    >>> import optax, prudent as pr
    >>> pr.BRPG(samples=30, iterations=100, step=optax.adam(0.1)).samples
    30

    Args:
        samples: r, fresh posterior draws an iteration; a posterior of no more atoms is used whole.
        iterations: T, iterations of this call (a resumed run adds them to those already made).
        step: length `1 / eta` of a plain gradient step, or any optax transformation.
        tolerance: stop when the norm of the projected gradient, on the iteration's sample, is at most this; 0 never
            stops early. A small gradient by the logits does not tell a good policy from a saturated one: the
            certificate's stationarity does.
        output: `LastIterate()`, `RandomIterate()` (the algorithm as stated) or `BestHeldOut()`.
        evaluation: fresh posterior draws on which the answer's risk is reported; when left out, 1000, or as many as
            put a hundred into the risk's tail where that is cheap.
        keep_iterates: whether the solution holds the parameters of every iteration, `Solution.iterates`.
    """

    samples: int = field(static=True, converter=as_whole, default=30, metadata=whole(1, "posterior draws an iteration"))
    iterations: int = field(static=True, converter=as_whole, default=100, metadata=whole(0, "iterations at most"))
    step: Any = field(static=True, default=1.0, metadata=number("(0, inf)", "length of a gradient step", checked=False))
    tolerance: Float[Array, ""] = field(
        converter=as_number,
        default=0.0,
        metadata=number("[0, inf)", "converged when the gradient's norm is at most this; 0 never stops early"),
    )
    output: Output = LastIterate()
    evaluation: int | None = field(static=True, converter=as_whole, default=None, metadata=whole(1, EVALUATION))
    keep_iterates: bool = field(static=True, default=False)

    def __check_init__(self) -> None:
        require_kind("output", self.output, Output, "LastIterate(), RandomIterate() or BestHeldOut()")
        check_settings(self)
        if isinstance(self.step, int | float):
            if self.step is True or not 0 < self.step < float("inf"):
                raise InputError(f"BRPG step must be a length > 0 or an optax transformation, got {self.step!r}")
        else:
            from .optax_steps import require_transformation  # imports JAX

            require_transformation(self.step)

    def check(self, objective: Objective, gradient: GradientEstimator, theta: np.ndarray) -> None:
        """Every objective and every estimator will do."""
        del objective, gradient, theta

    def sizes(self) -> set[int]:
        """An iteration's draws and those of the report."""
        return {self.samples, self.evaluation or USUAL_DRAWS}

    def state_from(self, arrays: Arrays, objective: Objective, theta: np.ndarray, limits: int = 0) -> State:
        """The loop's state."""
        initial = to_numpy(projected(objective.within, objective.initial()))
        fresh = self.first_state(tree_map(lambda leaf: np.asarray(leaf)[None], initial), 1)
        state = filled(tree_map(lambda leaf: np.asarray(leaf)[0], fresh), arrays)
        if not (0 <= state.steps < 2**30 and GOING <= state.finished <= NON_FINITE):
            raise foreign()
        return state

    def jobs_at_once(self, objective: Objective) -> int:
        """As many as fit the cache or memory."""
        size = objective.size()
        return max(1, BATCH_BYTES[size.cached] // (self.samples * size.bytes))

    def optimise(
        self,
        objective: Objective,
        gradient: GradientEstimator,
        draws: JobDraws,
        progress: Shown,
        watch: Watch | None = None,
        limits: LimitsAsked | None = None,
    ) -> list[Outcome]:
        """Algorithm 1 for all runs side by side."""
        runs = len(draws.jobs)
        risk = stacked([job.risk for job in draws.jobs])
        beginning = self.first_state(stacked([job.start for job in draws.jobs]), runs)
        before = [job.before for job in draws.jobs if job.before is not None]
        if not before:
            state, histories, start = beginning, [np.empty((0, 3))] * runs, 0
            going = np.ones(runs, dtype=bool)
        else:
            state, histories, start = _restore(before, self, beginning)
            going = state.finished == GOING
        held_out = _set_aside(draws, self.output.held_out(), objective, risk)
        loop = Loop(objective, risk, gradient, self, draws.shares(self.samples), held_out)

        def reached(state: State, traces: list[np.ndarray]) -> None:
            if watch is not None:
                watch(lambda: _so_far(state, np.concatenate([histories[0], *(rows[None, :, 0] for rows in traces)])))

        state, trace, iterates = _iterate(loop, draws, state, start, progress, watch and reached)
        chosen = self.output.choose(state.kept, state.parameters, held_out)
        sound = (state.finished != NON_FINITE) & np.isfinite(chosen.score)
        parameters = where(sound, chosen.parameters, state.sound)
        found = []
        for g in range(runs):
            # A run that stopped early made one evaluation more than it took steps.
            made = (int(state.steps[g]) - start + int(state.finished[g] != GOING)) * int(going[g])
            history = np.concatenate([histories[g], trace[: max(0, made), :, g]])
            passed = tree_map(lambda rows, g=g, made=made: rows[: max(0, made), g], iterates)
            if before and before[g].iterates is not None and passed is not None:
                passed = tree_map(lambda *rows: np.concatenate(rows), before[g].iterates, passed)
            ended = Status.GRADIENT_VANISHED if state.finished[g] == VANISHED else Status.ITERATION_LIMIT
            found.append(
                Outcome(
                    parameters=tree_map(lambda leaf, g=g: leaf[g], parameters),
                    status=ended if sound[g] else Status.NON_FINITE,
                    history=history,
                    iterations=int(state.steps[g]),
                    models=len(history) * draws.samples(self.samples),
                    in_sample=float(history[-NEWEST:, 0].mean()) if len(history) else float("nan"),
                    state=tree_map(lambda leaf, g=g: leaf[g], state),
                    iterates=passed,
                )
            )
        return found

    def first_state(self, parameters: Any, groups: int) -> State:
        """Return the state of G runs before the first iteration."""
        zeros = np.zeros(groups, np.int32)
        if isinstance(self.step, int | float):
            optimiser = None
        else:
            from .optax_steps import first_state

            optimiser = first_state(self.step, parameters)
        return State(parameters, parameters, optimiser, start(parameters, groups), zeros, zeros)

    def changes(self, slope: Any, state: State) -> tuple[Any, Any]:
        """Return what the optimiser adds to the parameters of G runs, and its next state."""
        if isinstance(self.step, int | float):
            return tree_map(lambda leaf: -self.step * leaf, slope), None
        from .optax_steps import update

        return update(self.step, slope, state.optimiser, state.parameters)


class State(Record):
    """What the next iteration of G runs needs.

    Attributes:
        parameters: the current iterates `alpha_t`.
        sound: the last iterates whose objective and gradient were finite.
        optimiser: the optimiser's state.
        kept: what the output rule remembers.
        finished: why each run ended, or `GOING`.
        steps: steps each run has taken.
    """

    parameters: Any
    sound: Any
    optimiser: Any
    kept: Kept
    finished: Int[np.ndarray, " G"]
    steps: Int[np.ndarray, " G"]


class Loop(NamedTuple):
    """What stays the same in all iterations of G runs."""

    objective: Objective
    risk: Risk
    gradient: GradientEstimator
    settings: BRPG
    shares: Float[np.ndarray, "G R"]
    held_out: SampledRisk


def one_iteration(
    loop: Loop, state: State, thetas: Float[np.ndarray, "G R ..."], words: np.ndarray
) -> tuple[State, Float[np.ndarray, "3 G"]]:
    """Return the state after one iteration of Algorithm 1 for G runs on their draws, and its line of the history."""
    sampled, within = SampledRisk(loop.objective, loop.risk, thetas, loop.shares), loop.objective.within
    result, slope = loop.gradient(sampled, state.parameters, words)
    change, optimiser = loop.settings.changes(slope, state)
    moved = project_all(within, tree_map(np.add, state.parameters, change))
    stationarity, length = _mapping_norm(within, state.parameters, slope), _norm(_less(moved, state.parameters))
    sound = np.isfinite(result.value) & np.isfinite(stationarity) & np.isfinite(length)
    # A tolerance of 0 never stops a run: one sample's gradient can vanish where the objective's does not.
    still = (stationarity <= loop.settings.tolerance) & (loop.settings.tolerance > 0.0)
    done = np.where(sound, np.where(still, VANISHED, GOING), NON_FINITE)
    before, going = state.finished == GOING, (state.finished == GOING) & (done == GOING)
    following = State(
        parameters=where(going, moved, state.parameters),
        sound=where(before & sound, state.parameters, state.sound),
        optimiser=where(going, optimiser, state.optimiser),
        kept=state.kept,
        finished=np.where(before, done, state.finished).astype(np.int32),
        steps=(state.steps + going).astype(np.int32),
    )
    return following, np.stack([result.value, stationarity, length])


def _mapping_norm(within: ParameterSet, parameters: Any, slope: Any) -> Float[np.ndarray, " G"]:
    """Return the norm of the gradient mapping of a unit step: the gradient itself wherever W does not bind."""
    if within.free:
        return _norm(slope)
    return _norm(_less(parameters, project_all(within, _less(parameters, slope))))


def _less(one: Any, other: Any) -> Any:
    return tree_map(np.subtract, one, other)


def _norm(tree: Any) -> Float[np.ndarray, " G"]:
    """Return the Euclidean norm of each of G parameter sets."""
    return np.sqrt(np.sum([(leaf**2).reshape(len(leaf), -1).sum(axis=1) for leaf in tree_leaves(tree)], axis=0))


def _set_aside(draws: JobDraws, count: int, objective: Objective, risk: Risk) -> SampledRisk:
    if not count:
        nothing = np.zeros((len(draws.jobs), 0))
        return SampledRisk(objective, risk, nothing, nothing)
    several = draws.held_out(count)
    thetas, shares = (np.stack([getattr(each, name) for each in several]) for name in ("thetas", "probabilities"))
    return SampledRisk(objective, risk, thetas, shares)


def _iterate(
    loop: Loop,
    draws: JobDraws,
    state: State,
    start: int,
    progress: Shown,
    reached: Callable[[State, list[np.ndarray]], None] | None,
) -> tuple[State, Float[np.ndarray, "T 3 G"], Any]:
    """Run so many more; the final state, the history, and the iterates `[T, G, ...]` if the settings keep them."""
    settings, end = loop.settings, start + loop.settings.iterations
    length = int(np.prod(draws.sizes(settings.samples)))
    traces: list[np.ndarray] = []
    iterates: list[Any] = []
    thetas, chance = draws.block(settings.samples, start - start % length, start, end)
    with Progress(progress, start, end, watched=reached is not None, sure=True) as bar:
        shown = start
        for iteration in range(start, end):
            if not np.any(state.finished == GOING):
                break
            place = iteration % length
            if place == 0 and iteration > start:
                thetas, chance = draws.block(settings.samples, iteration, iteration, end)
            if settings.keep_iterates:
                iterates.append(state.parameters)
            kept = settings.output.observe(
                state.kept, state.parameters, iteration, chance.uniforms[place], loop.held_out
            )
            state = changed(state, kept=where(state.finished == GOING, kept, state.kept))
            state, entries = one_iteration(loop, state, thetas[place], chance.words[place])
            traces.append(entries)
            if iteration + 1 in (shown + bar.stride, end) or np.all(state.finished != GOING):
                shown = iteration + 1
                bar.advance(shown, np.stack(traces))
                if reached is not None:
                    reached(state, traces)
    together = tree_map(lambda *rows: np.stack(rows), *iterates) if iterates else None
    if settings.keep_iterates and not iterates:
        together = tree_map(lambda leaf: leaf[None][:0], state.parameters)
    return state, np.array(traces).reshape(-1, 3, len(draws.jobs)), together


def _so_far(state: State, history: np.ndarray) -> Outcome:
    """The first run between two iterations, at its last sound iterate, whatever its output rule would choose."""
    return Outcome(
        parameters=tree_map(lambda leaf: leaf[0], state.sound),
        status=Status.ITERATION_LIMIT,
        history=history,
        iterations=int(state.steps[0]),
        models=0,
        in_sample=float("nan"),
        state=tree_map(lambda leaf: leaf[0], state),
    )


def _restore(before: Sequence[Solution], settings: BRPG, beginning: State) -> tuple[State, list[np.ndarray], int]:
    """The batch's state from its solutions; a run whose gradient had vanished goes on only at a lower tolerance."""
    checkpoints = [checkpoint_of(solution) for solution in before]
    state: State = stacked([checkpoint.state for checkpoint in checkpoints])
    same = same_structure(beginning, state) and all(
        np.shape(ours) == np.shape(theirs)
        for ours, theirs in zip(tree_leaves(beginning), tree_leaves(state), strict=True)
    )
    if not same:
        raise InputError(
            "resume needs the model, policy and optimiser of the first call; its checkpoint holds other ones"
        )
    last = np.array([solution.history.gradient_norm[-1] if len(solution.history) else np.inf for solution in before])
    revived = (state.finished == VANISHED) & (last > np.asarray(settings.tolerance))
    steps = state.steps
    going = (state.finished == GOING) | revived
    if np.unique(steps[going]).size > 1:
        raise InputError("these runs stopped at different iterations; resume each with solve() on its own")
    histories = [
        np.stack([np.asarray(column) for column in tree_leaves(solution.history)], axis=1)[
            : steps[g] if going[g] else None
        ]
        for g, solution in enumerate(before)
    ]
    state = changed(state, finished=np.where(going, GOING, state.finished).astype(np.int32))
    return state, histories, int(steps[going][0]) if going.any() else 0
