"""Riccati equations: the best policy of a known system, whatever it may remember, for many systems at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Bool, Float

from ..arrays import Array
from .moments import LOST, ClosedLoop
from .systems import LinearSystem

# Doublings of a Riccati equation, and the change of its solution, as a share of it, at which they end.
DOUBLINGS, SETTLED = 40, 1e-15

# A Riccati equation holds if what is left of it is at most this share of its largest term.
SOLVED = 1e-7


class Regulator(NamedTuple):
    """The best policy of one system.

    Attributes:
        point: `[m, 1 + n]` bias and gain; of a finite horizon, those of the first step.
        least: the expected cost of that policy, which no policy is below, whatever it remembers.
        solved: whether the equation was solved; where it was not there is no least cost to be had.
    """

    point: Float[Array, "m x"]
    least: Float[Array, ""]
    solved: Bool[Array, ""]


def regulate(system: LinearSystem, cost: Float[Array, "y y"], horizon: int | None = None) -> Regulator:
    """The least of `sum_t gamma^t E[y_t' cost y_t]` with `y = (1, s, a)`, over all policies; traced.

    The cost need not be convex: a symmetric solution P of the Riccati equation with positive `R + gamma H' P H` and a
    stable closed loop gives the least cost by completing the square, of all policies whose moments are finite.
    """
    gamma = jnp.asarray(system.discount)
    moved, driven = system.augmented()
    size = len(moved)
    of_states, cross, of_actions = cost[:size, :size], cost[:size, size:], cost[size:, size:]
    noise = jnp.zeros(moved.shape).at[1:, 1:].set(system.state_noise())
    # What the noise of the actions costs by itself, whatever the policy.
    own = (of_actions * system.action_noise).sum()

    def improved(value: Array) -> tuple[Array, Array, Array]:
        """One step of the Riccati recursion: the new value, the policy, and the curvature in the action."""
        curved = of_actions + gamma * driven.T @ value @ driven
        slope = cross.T + gamma * driven.T @ value @ moved
        point = -jnp.linalg.solve(curved, slope)
        new = of_states + gamma * moved.T @ value @ moved + slope.T @ point
        return (new + new.T) / 2.0, point, curved

    if horizon is not None:

        def back(state: tuple, _: Any) -> tuple[tuple, None]:
            value, constant, _ = state
            new, point, _ = improved(value)
            return (new, gamma * (constant + (value * noise).sum()) + own, point), None

        first = (jnp.zeros_like(moved), jnp.zeros_like(gamma), jnp.zeros(driven.T.shape))
        (value, constant, point), _ = lax.scan(back, first, None, length=horizon + 1)
        least = (value * system.start_moments()).sum() + constant
        return Regulator(point, least, jnp.isfinite(least))
    value = _doubled(jnp.sqrt(gamma) * moved, jnp.sqrt(gamma) * driven, of_states, cross, of_actions)
    new, point, curved = improved(value)
    _, stable = ClosedLoop.of(system, point).state_moments()
    residue = jnp.abs(new - value).max() <= SOLVED * (1.0 + jnp.abs(value).max())
    convex = jnp.linalg.eigvalsh((curved + curved.T) / 2.0)[0] > 0
    least = (new * system.start_moments()).sum() + (gamma * (new * noise).sum() + own) / (1.0 - gamma)
    return Regulator(point, least, residue & stable & convex & jnp.isfinite(least))


def _doubled(moved: Array, driven: Array, of_states: Array, cross: Array, of_actions: Array) -> Array:
    """The stabilising solution of a Riccati equation by structure-preserving doubling."""
    eye = jnp.eye(len(moved))
    inverse = jnp.linalg.inv(of_actions)
    loop = moved - driven @ inverse @ cross.T
    reach = driven @ inverse @ driven.T
    value = of_states - cross @ inverse @ cross.T

    def going(state: tuple) -> Array:
        _, _, _, change, count = state
        return (change > SETTLED) & (count < DOUBLINGS)

    def double(state: tuple) -> tuple:
        loop, reach, value, _, count = state
        middle = jnp.linalg.solve(eye + reach @ value, jnp.concatenate([loop, reach], axis=1))
        here, there = middle[:, : len(loop)], middle[:, len(loop) :]
        more = loop.T @ value @ here
        wider = reach + loop @ there @ loop.T
        new = value + (more + more.T) / 2.0
        change = jnp.abs(more).max() / (jnp.abs(new).max() + jnp.finfo(new.dtype).tiny)
        change = jnp.where(jnp.isfinite(change) & (jnp.abs(new).max() < LOST), change, 0.0)
        return loop @ here, (wider + wider.T) / 2.0, new, change, count + 1

    *_, value, _, _ = lax.while_loop(going, double, (loop, reach, value, jnp.ones(()), 0))
    return value
