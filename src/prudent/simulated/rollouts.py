"""Walks of particles through a simulated model, the discounted sums along them, and the density of a single step.

Particles walk side by side. Derivatives go backwards through the walk: its steps are cut into about as many segments as
a segment has steps, of which only the first states are kept, and everything else is computed again on the way back. So
memory grows with the root of the horizon, and not with the size of a network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..arrays import Array, in_float64
from ..autodiff import jax, jnp, lax
from ..errors import InputError
from ..records import tree_map

# A next state may be off what any noise reaches by this share of its size, as from a log in single precision.
REACHED = 1e-5

# Noise enters linearly if a step differs from a straight line by at most this share of what the noise moves.
STRAIGHT = 1e-6

Feature = Callable[[Any, Any], Any]
"""`(state [n], action [m]) -> number` or array, traceable."""


class Chance(NamedTuple):
    """Standard normal numbers that particles meet: the same for all draws of theta and all policies.

    Attributes:
        start: of the first states.
        step: of every transition.
        action: of every action.
    """

    start: Float[Array, "P v"]
    step: Float[Array, "T P w"]
    action: Float[Array, "T P m"]


class Walk(NamedTuple):
    """How particles move.

    Attributes:
        start: `noise [v] -> state [n]`.
        step: `(state, action, noise [w]) -> state`.
        act: `(states [P, n], noise [P, m]) -> actions [P, m]`.
        discount: gamma.
    """

    start: Callable[[Array], Array]
    step: Callable[[Array, Array, Array], Array]
    act: Callable[[Array, Array], Array]
    discount: Float[Array, ""]


def segment(length: int) -> int:
    """Steps of a segment: about the root of their number."""
    return max(1, math.isqrt(length))


def scan(body: Callable[[Any, Any], tuple[Any, None]], first: Any, inputs: Any, length: int) -> Any:
    """`lax.scan` that keeps the states between segments alone, and inside a segment those between steps."""
    steps = segment(length)
    whole = length // steps

    def along(carry: Any, inputs: Any) -> tuple[Any, None]:
        return lax.scan(jax.checkpoint(body, prevent_cse=False), carry, inputs)

    cut = tree_map(lambda part: part[: whole * steps].reshape(whole, steps, *part.shape[1:]), inputs)
    rest = tree_map(lambda part: part[whole * steps : length], inputs)
    carry, _ = lax.scan(jax.checkpoint(along, prevent_cse=False), first, cut)
    return along(carry, rest)[0] if length > whole * steps else carry


def discounted_sums(
    walk: Walk, functions: Sequence[Feature], chance: Chance, horizon: int
) -> list[Float[Array, "P ..."]]:
    """`sum_{t = 0}^{horizon} gamma^t f(s_t, a_t)` of each particle, for several f."""

    def measured(states: Array, noise: Array) -> tuple[Array, list[Array]]:
        actions = walk.act(states, noise)
        return actions, [jnp.asarray(jax.vmap(function)(states, actions), float) for function in functions]

    def body(carry: tuple, noises: tuple[Array, Array]) -> tuple[tuple, None]:
        states, weight, sums = carry
        moved, pushed = noises
        actions, values = measured(states, pushed)
        sums = [total + weight * value for total, value in zip(sums, values, strict=True)]
        return (jax.vmap(walk.step)(states, actions, moved), weight * walk.discount, sums), None

    states = jax.vmap(walk.start)(chance.start)
    shapes = jax.eval_shape(measured, states, chance.action[0])[1]
    sums = [jnp.zeros(shape.shape, shape.dtype) for shape in shapes]
    carry = (states, jnp.ones((), states.dtype), sums)
    if horizon:
        carry = scan(body, carry, (chance.step[:horizon], chance.action[:horizon]), horizon)
    states, weight, sums = carry
    values = measured(states, chance.action[horizon])[1]
    return [total + weight * value for total, value in zip(sums, values, strict=True)]


def log_density(step: Callable[[Array], Any], noise: int, after: Float[Array, " n"]) -> Float[Array, ""]:
    """`log p(s')` of `s' = f + G w`, `w ~ N(0, I)`; -inf off what the noise reaches.

    Where there are fewer noises than states, as where a position follows from a velocity, it is the density within the
    plane that they reach.
    """
    nothing = jnp.zeros(noise)
    centre, matrix = jnp.asarray(step(nothing)), jax.jacfwd(lambda w: jnp.asarray(step(w)))(nothing)
    off = after - centre
    if noise >= len(after):
        root = jnp.linalg.cholesky(matrix @ matrix.T)
        scaled = jax.scipy.linalg.solve_triangular(root, off, lower=True)
        level = jnp.log(jnp.diagonal(root)).sum()
        return -0.5 * scaled @ scaled - level - 0.5 * len(after) * jnp.log(2.0 * jnp.pi)
    square = matrix.T @ matrix
    scaled = jnp.linalg.solve(square, matrix.T @ off)
    left = jnp.abs(off - matrix @ scaled).max()
    value = -0.5 * scaled @ scaled - 0.5 * jnp.linalg.slogdet(square)[1] - 0.5 * noise * jnp.log(2.0 * jnp.pi)
    return jnp.where(left <= REACHED * (1.0 + jnp.abs(after).max()), value, -jnp.inf)


@in_float64
def check_noise(step: Callable[..., Any], noise: int, theta: Any, states: Any, actions: Any) -> None:
    """Refuse a step that is not a straight line in its noise at some of these states and actions."""
    draws = np.random.default_rng(0).normal(size=noise)

    def bend(state: Array, action: Array) -> tuple[Array, Array]:
        at = lambda w: jnp.asarray(step(jnp.asarray(theta), state, action, w))  # noqa: E731
        nothing = jnp.zeros(noise)
        moved = jax.jvp(at, (nothing,), (jnp.asarray(draws),))[1]
        return jnp.abs(at(jnp.asarray(draws)) - at(nothing) - moved).max(), jnp.abs(moved).max()

    off, moved = (np.asarray(part) for part in jax.vmap(bend)(jnp.asarray(states), jnp.asarray(actions)))
    bad = ~(off <= STRAIGHT * moved + 1e-12) | ~(moved > 0)
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"the density of a step is found from its noise only where that enters linearly, and at row {row} of the "
            f"log it {'moves nothing' if not moved[row] > 0 else 'does not'}; give density=(theta, state, action, next "
            "state) -> log-density"
        )
