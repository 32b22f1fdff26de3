"""Bayesian Risk Policy Gradient (Algorithm 1 of the paper): settings and the compiled loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt32

from ..arrays import Array, as_number, as_whole, in_float64, require_kind, to_numpy
from ..deferred import jax, jitted, jnp, lax
from ..errors import InputError, hinted
from ..evaluation import USUAL_DRAWS
from ..gradients import GradientEstimator, SampledRisk
from ..objectives import Objective
from ..parameter_sets import projected
from ..records import Record, changed, field, same_structure, tree_leaves, tree_map
from ..risks import Risk
from ..settings import check_settings, number, whole
from .draws import JobDraws, Randomness, stacked
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
        if isinstance(self.step, int | float) and self.step is not True and 0 < self.step < float("inf"):
            return
        import optax  # slow to import

        if not isinstance(self.step, optax.GradientTransformation):
            raise InputError(f"BRPG step must be a length > 0 or an optax transformation, got {self.step!r}")

    def check(self, objective: Objective, gradient: GradientEstimator, theta: np.ndarray) -> None:
        """Every objective and every estimator will do."""
        del objective, gradient, theta

    def sizes(self) -> set[int]:
        """An iteration's draws and those of the report."""
        return {self.samples, self.evaluation or USUAL_DRAWS}

    @in_float64
    def state_from(self, arrays: Arrays, objective: Objective, theta: np.ndarray, limits: int = 0) -> State:
        """The loop's state."""
        initial = to_numpy(projected(objective.within, objective.initial()))
        fresh = first_state(self.for_loop(), tree_map(lambda leaf: np.asarray(leaf)[None], initial), 1)
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
        before: Sequence[Solution] | None,
        progress: Shown,
        watch: Watch | None = None,
        limits: LimitsAsked | None = None,
    ) -> list[Outcome]:
        """Algorithm 1 for all runs in one compiled loop."""
        runs = len(draws.jobs)
        risk = stacked([job.risk for job in draws.jobs])
        beginning = first_state(self.for_loop(), stacked([job.start for job in draws.jobs]), runs)
        if before is None:
            state, histories, start = beginning, [np.empty((0, 3))] * runs, 0
            going = np.ones(runs, dtype=bool)
        else:
            state, histories, start = _restore(before, self, beginning)
            going = np.asarray(state.finished) == GOING
        held_out = _set_aside(draws, self.output.held_out(), objective, risk)
        loop = Loop(objective, risk, gradient, self.for_loop(), draws.shares(self.samples), held_out)

        def reached(state: State, traces: list[np.ndarray]) -> None:
            if watch is not None:
                watch(
                    lambda: _so_far(
                        to_numpy(state), np.concatenate([histories[0], *(rows[:, :, 0] for rows in traces)])
                    )
                )

        state, trace, iterates = _iterate(loop, self.iterations, draws, state, start, progress, watch and reached)
        chosen = self.output.choose(state.kept, state.parameters, held_out)
        sound = (np.asarray(state.finished) != NON_FINITE) & np.isfinite(np.asarray(chosen.score))
        parameters = to_numpy(where(sound, chosen.parameters, state.sound))
        found = []
        for g in range(runs):
            # A run that stopped early made one evaluation more than it took steps.
            made = (int(state.steps[g]) - start + int(state.finished[g] != GOING)) * int(going[g])
            history = np.concatenate([histories[g], trace[: max(0, made), :, g]])
            passed = tree_map(lambda rows, g=g, made=made: rows[: max(0, made), g], iterates)
            if before is not None and before[g].iterates is not None and passed is not None:
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

    def for_loop(self) -> BRPG:
        """The settings the compiled loop depends on: how long it runs is not one of them."""
        return dataclasses.replace(self, iterations=0, evaluation=1)

    @property
    def optimiser(self) -> Any:
        """The optax transformation behind `step`."""
        import optax

        return self.step if isinstance(self.step, optax.GradientTransformation) else optax.sgd(self.step)


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
    finished: Int[Array, " G"]
    steps: Int[Array, " G"]


class Loop(NamedTuple):
    """What stays the same in all iterations of G runs; settings are those of `for_loop`."""

    objective: Objective
    risk: Risk
    gradient: GradientEstimator
    settings: BRPG
    shares: Float[Array, "G R"]
    held_out: SampledRisk


@jitted
def first_state(settings: BRPG, parameters: Any, groups: int) -> State:
    """The state before the first iteration."""
    optimiser = jax.vmap(settings.optimiser.init)(parameters)
    zeros = jnp.zeros(groups, jnp.int32)
    return State(parameters, parameters, optimiser, start(parameters, groups), zeros, zeros)


def norm(tree: Any) -> Float[Array, " G"]:
    """Euclidean norm of each of G parameter sets."""
    squares = [(leaf**2).reshape(leaf.shape[0], -1).sum(axis=1) for leaf in tree_leaves(tree)]
    return jnp.sqrt(sum(squares[1:], squares[0]))


def one_iteration(
    loop: Loop, state: State, thetas: Array, keys: UInt32[Array, "G 2"]
) -> tuple[State, Float[Array, "3 G"]]:
    """One iteration of Algorithm 1 for G runs on their arranged draws: state and history entries."""
    from optax import apply_updates

    settings, within = loop.settings, loop.objective.within
    sampled = SampledRisk(loop.objective, loop.risk, thetas, loop.shares)
    result, slope = loop.gradient(sampled, state.parameters, keys)
    change, optimiser = jax.vmap(settings.optimiser.update)(slope, state.optimiser, state.parameters)
    moved = jax.vmap(within.project)(apply_updates(state.parameters, change))
    # The gradient mapping of a unit step: the gradient itself wherever W does not bind.
    nearest = jax.vmap(within.project)(tree_map(jnp.subtract, state.parameters, slope))
    stationarity = norm(tree_map(jnp.subtract, state.parameters, nearest))
    length = norm(tree_map(jnp.subtract, moved, state.parameters))
    sound = jnp.isfinite(result.value) & jnp.isfinite(stationarity) & jnp.isfinite(length)
    # A tolerance of 0 never stops a run: one sample's gradient can vanish where the objective's does not.
    still = (stationarity <= settings.tolerance) & (settings.tolerance > 0.0)
    done = jnp.where(sound, jnp.where(still, VANISHED, GOING), NON_FINITE)
    going = (state.finished == GOING) & (done == GOING)
    return (
        State(
            parameters=where(going, moved, state.parameters),
            sound=where((state.finished == GOING) & sound, state.parameters, state.sound),
            optimiser=where(going, optimiser, state.optimiser),
            kept=state.kept,
            finished=jnp.where(state.finished == GOING, done, state.finished).astype(jnp.int32),
            steps=state.steps + going,
        ),
        jnp.stack([result.value, stationarity, length]),
    )


@jitted
def run_block(
    loop: Loop,
    state: State,
    thetas: Float[Array, "T ..."],
    chance: Randomness,
    first: Int[Array, ""],
    span: Int[Array, 2],
) -> tuple[State, Array, Float[Array, "T 3 G"], Any]:
    """Iterations `span[0]..span[1]-1` of a block whose first is iteration `first` of the run.

    Also their history, and the iterates `[T, G, ...]` if the settings keep them, else None.

    The bounds are arguments, not shapes: one compiled loop serves every number of iterations, which is
    why a resumed run repeats the bits of an uninterrupted one.
    """

    def unfinished(carry: tuple) -> Array:
        position, state, *_ = carry
        return (position < span[1]) & jnp.any(state.finished == GOING)

    def body(carry: tuple) -> tuple:
        position, state, trace, iterates = carry
        if loop.settings.keep_iterates:
            iterates = tree_map(lambda rows, row: rows.at[position].set(row), iterates, state.parameters)
        now, uniform = first + position, chance.uniforms[position]
        kept = loop.settings.output.observe(state.kept, state.parameters, now, uniform, loop.held_out)
        kept = where(state.finished == GOING, kept, state.kept)
        state, entries = one_iteration(loop, state, thetas[position], chance.keys[position])
        state = changed(state, kept=kept)
        return position + 1, state, trace.at[position].set(entries), iterates

    length, groups = chance.uniforms.shape
    trace, iterates = jnp.full((length, 3, groups), jnp.nan), None
    if loop.settings.keep_iterates:
        iterates = tree_map(lambda leaf: jnp.full((length, *leaf.shape), jnp.nan), state.parameters)
    position, state, trace, iterates = lax.while_loop(unfinished, body, (span[0], state, trace, iterates))
    return state, position, trace, iterates


def _set_aside(draws: JobDraws, count: int, objective: Objective, risk: Risk) -> SampledRisk:
    if not count:
        nothing = np.zeros((len(draws.jobs), 0))
        return SampledRisk(objective, risk, nothing, nothing)
    several = draws.held_out(count)
    thetas, shares = (np.stack([getattr(each, name) for each in several]) for name in ("thetas", "probabilities"))
    return SampledRisk.on(objective, risk, thetas, shares)


def _iterate(
    loop: Loop,
    iterations: int,
    draws: JobDraws,
    state: State,
    start: int,
    progress: Shown,
    reached: Callable[[State, list[np.ndarray]], None] | None,
) -> tuple[State, np.ndarray, Any]:
    """Run so many more; the final state, the history `[T, 3, G]` and the iterates `[T, G, ...]`."""
    samples, keep, arrange = loop.settings.samples, loop.settings.keep_iterates, loop.objective.arrange
    end = start + iterations
    length = int(np.prod(draws.sizes(samples)))
    traces = [np.empty((0, 3, len(draws.jobs)))]
    iterates = [tree_map(lambda leaf: np.asarray(leaf)[None][:0], state.parameters)]
    iteration = start
    with Progress(progress, start, end, watched=reached is not None, sure=True) as bar:
        while iteration < end and np.any(np.asarray(state.finished) == GOING):
            first = iteration - iteration % length
            last = min(first + length, end)
            thetas, chance = draws.block(samples, first, iteration, last)
            thetas = np.stack([arrange(drawn.reshape(-1, *drawn.shape[2:])) for drawn in thetas])
            while iteration < last and np.any(np.asarray(state.finished) == GOING):
                span = np.array([iteration - first, min(last, iteration + bar.stride) - first], np.int32)
                state, position, trace, passed = run_block(loop, state, thetas, chance, np.array(first, np.int32), span)
                made = slice(iteration - first, int(position))
                traces.append(np.asarray(trace)[made])
                if keep:
                    iterates.append(tree_map(lambda rows, made=made: np.asarray(rows)[made], passed))
                iteration = first + int(position)
                bar.advance(iteration, traces[-1])
                if reached is not None:
                    reached(state, traces)
    together = tree_map(lambda *rows: np.concatenate(rows), *iterates) if keep else None
    return to_numpy(state), np.concatenate(traces), together


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
    steps = np.asarray(state.steps)
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
