"""Bayesian Risk Policy Gradient (Algorithm 1 of the paper): settings and the compiled loop."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Float, Int, UInt32

from ..arrays import Array, as_float, as_whole, is_concrete, require_kind, require_size
from ..errors import InputError
from ..gradients import GradientEstimator, Problem
from .draws import Chance
from .outputs import Kept, LastIterate, Output, start, where

GOING, CONVERGED, NON_FINITE = 0, 1, 2


class BRPG(eqx.Module):
    """Settings of the paper's algorithm; the defaults are those of its experiments.

    >>> import optax, prudent as pr
    >>> pr.BRPG(samples=30, iterations=100, step=optax.adam(0.1)).samples
    30

    Args:
        samples: r, fresh posterior draws an iteration.
        iterations: T, iterations of this call (a resumed run adds them to those already made).
        step: length `1 / eta` of a plain gradient step, or any optax transformation.
        tolerance: stop when the norm of the projected gradient, on the iteration's sample, is at most
            this; 0 never stops early.
        output: `LastIterate()`, `RandomIterate()` (the algorithm as stated) or `BestHeldOut()`.
        evaluation: fresh posterior draws on which the answer's risk is reported.
        keep_iterates: whether the solution holds the parameters of every iteration, `Solution.iterates`.
    """

    samples: int = eqx.field(static=True, converter=as_whole, default=30)
    iterations: int = eqx.field(static=True, converter=as_whole, default=100)
    step: float | optax.GradientTransformation = eqx.field(static=True, default=1.0)
    tolerance: Float[Array, ""] = eqx.field(converter=as_float, default=0.0)
    output: Output = LastIterate()
    evaluation: int = eqx.field(static=True, converter=as_whole, default=1000)
    keep_iterates: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        require_kind("output", self.output, Output, "LastIterate(), RandomIterate() or BestHeldOut()")
        for name, least in (("samples", 1), ("iterations", 0), ("evaluation", 1)):
            require_size(f"BRPG {name}", getattr(self, name), least)
        if not isinstance(self.step, optax.GradientTransformation) and not (
            isinstance(self.step, int | float) and self.step is not True and 0 < self.step < float("inf")
        ):
            raise InputError(f"BRPG step must be a length > 0 or an optax transformation, got {self.step!r}")
        if is_concrete(self.tolerance) and not (self.tolerance.shape == () and self.tolerance >= 0):
            raise InputError(f"BRPG tolerance must be one number >= 0, got {self.tolerance}")

    def for_loop(self) -> BRPG:
        """The settings the compiled loop depends on: how long it runs is not one of them."""
        return dataclasses.replace(self, iterations=0, evaluation=1)

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """The optax transformation behind `step`."""
        return self.step if isinstance(self.step, optax.GradientTransformation) else optax.sgd(self.step)


class State(eqx.Module):
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


@eqx.filter_jit
def begin(settings: BRPG, parameters: Any, groups: int) -> State:
    """The state before the first iteration."""
    optimiser = jax.vmap(settings.optimiser.init)(parameters)
    zeros = jnp.zeros(groups, jnp.int32)
    return State(parameters, parameters, optimiser, start(parameters, groups), zeros, zeros)


def norm(tree: Any) -> Float[Array, " G"]:
    """Euclidean norm of each of G parameter sets."""
    squares = [(leaf**2).reshape(leaf.shape[0], -1).sum(axis=1) for leaf in jax.tree.leaves(tree)]
    return jnp.sqrt(sum(squares[1:], squares[0]))


def iterate(
    problem: Problem,
    gradient: GradientEstimator,
    settings: BRPG,
    state: State,
    thetas: Array,
    keys: UInt32[Array, "G 2"],
) -> tuple[State, Float[Array, "3 G"]]:
    """One iteration of Algorithm 1 for G runs on their arranged draws: state and history entries."""
    within = problem.policy.within
    result, slope = gradient(problem, state.parameters, thetas, keys)
    change, optimiser = jax.vmap(settings.optimiser.update)(slope, state.optimiser, state.parameters)
    moved = jax.vmap(within.project)(optax.apply_updates(state.parameters, change))
    # The gradient mapping of a unit step: the gradient itself wherever W does not bind.
    nearest = jax.vmap(within.project)(jax.tree.map(jnp.subtract, state.parameters, slope))
    stationarity = norm(jax.tree.map(jnp.subtract, state.parameters, nearest))
    length = norm(jax.tree.map(jnp.subtract, moved, state.parameters))
    sound = jnp.isfinite(result.value) & jnp.isfinite(stationarity) & jnp.isfinite(length)
    # A tolerance of 0 never stops a run: one sample's gradient can vanish where the objective's does not.
    still = (stationarity <= settings.tolerance) & (settings.tolerance > 0.0)
    done = jnp.where(sound, jnp.where(still, CONVERGED, GOING), NON_FINITE)
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


@eqx.filter_jit
def run_block(
    problem: Problem,
    gradient: GradientEstimator,
    settings: BRPG,
    state: State,
    thetas: Float[Array, "T ..."],
    chance: Chance,
    held_out: Array,
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
        if settings.keep_iterates:
            iterates = jax.tree.map(lambda rows, row: rows.at[position].set(row), iterates, state.parameters)
        kept = settings.output.observe(
            state.kept, state.parameters, first + position, chance.uniforms[position], problem, held_out
        )
        kept = where(state.finished == GOING, kept, state.kept)
        state, entries = iterate(problem, gradient, settings, state, thetas[position], chance.keys[position])
        state = eqx.tree_at(lambda s: s.kept, state, kept)
        return position + 1, state, trace.at[position].set(entries), iterates

    length, groups = chance.uniforms.shape
    trace, iterates = jnp.full((length, 3, groups), jnp.nan), None
    if settings.keep_iterates:
        iterates = jax.tree.map(lambda leaf: jnp.full((length, *leaf.shape), jnp.nan), state.parameters)
    position, state, trace, iterates = lax.while_loop(unfinished, body, (span[0], state, trace, iterates))
    return state, position, trace, iterates
