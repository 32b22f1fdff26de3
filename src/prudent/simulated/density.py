"""The density of a transition through noise that enters it linearly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..arrays import Array, in_float64
from ..errors import InputError

# A next state may be off what any noise reaches by this share of its size, as from a log in single precision.
REACHED = 1e-5

# Noise enters linearly if a step differs from a straight line by at most this share of what the noise moves.
STRAIGHT = 1e-6


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
