"""The occupancy of a linear system under a gain: its moments by a discounted Lyapunov equation, with its own adjoint.

With `x = (1, s)`, `a = k + K s + e` and closed loop `x' = C x + (0, v)` the moments `X = sum_t gamma^t E[x_t x_t']` are

    X = gamma C X C' + E[x_0 x_0'] + gamma / (1 - gamma) diag(0, V)

where V is the covariance of v. They are finite if `sqrt(gamma) radius(A + B K) < 1`; else the loss is infinite.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import ndtri, roots_hermitenorm

from ..arrays import Array, in_float64
from ..autodiff import jax, jnp, lax
from ..records import Record, field, tree_map
from .occupancy import LinearOccupancy
from .systems import LinearSystem

# Powers of the closed loop below the first add less than rounding; beyond the second it is unstable; and so often is a
# power squared before it is said to be neither, a radius of 1 up to 1e-12.
GONE, LOST, DOUBLINGS = 1e-10, 1e60, 40

# Points of a rule along one axis, and the most of a rule in all; beyond, points are spread evenly at random.
AXIS_POINTS, RULE_POINTS, SPREAD_POINTS = 9, 1024, 512

# Part of its own size that is added to a covariance before its root is taken, which a singular one has no slope of.
JITTER = 1e-12


def _doubled(power: Array, total: Array) -> tuple[Array, Array]:
    """`sum_t F^t Q F'^t` and the size of the last power of F."""

    def going(state: tuple) -> Array:
        _, _, size, count = state
        return (size > GONE) & (size < LOST) & (count < DOUBLINGS)

    def double(state: tuple) -> tuple:
        power, total, _, count = state
        total = total + power @ total @ power.T
        power = power @ power
        return power, total, jnp.abs(power).max(), count + 1

    _, total, size, _ = lax.while_loop(going, double, (power, total, jnp.abs(power).max(), 0))
    return total, size


def lyapunov(matrix: Float[Array, "x x"], inflow: Float[Array, "x x"]) -> tuple[Float[Array, "x x"], Bool[Array, ""]]:
    """The solution of `X = F X F' + Q`, and whether F is stable; Q itself and no slope by F where it is not.

    By doubling: `X_{2t} = X_t + F^t X_t F'^t`. The adjoint is a second equation, `Y = F' Y F + dX`: the derivatives
    are Y by Q and `Y F X' + Y' F X` by F.

    >>> import numpy as np
    >>> solution, stable = in_float64(lyapunov)(np.array([[0.5]]), np.array([[3.0]]))
    >>> round(float(solution[0, 0]), 4), bool(stable)
    (4.0, True)
    """
    return _differentiable(matrix, inflow)


def _solved(matrix: Array, inflow: Array) -> tuple[Array, Array]:
    total, size = _doubled(matrix, inflow)
    stable = size <= GONE
    return jnp.where(stable, total, inflow), stable


def _forward(matrix: Array, inflow: Array) -> tuple[Any, tuple[Array, Array, Array]]:
    solution, stable = _solved(matrix, inflow)
    return (solution, stable), (jnp.where(stable, matrix, 0.0), solution, stable)


def _backward(kept: tuple[Array, Array, Array], cotangents: tuple[Array, Any]) -> tuple[Array, Array]:
    matrix, solution, _ = kept
    adjoint, _ = _doubled(matrix.T, cotangents[0])
    return adjoint @ matrix @ solution.T + adjoint.T @ matrix @ solution, adjoint


_differentiable = jax.custom_vjp(_solved)
_differentiable.defvjp(_forward, _backward)


class ClosedLoop(Record):
    """A system under a gain.

    Attributes:
        loop: `[1 + n, 1 + n]` C, the dynamics of `x = (1, s)`.
        noise: `[1 + n, 1 + n]` what chance adds to `E[x x']` in a step.
        start: `[1 + n, 1 + n]` of the first x.
        point: `[m, 1 + n]` the gain with its bias in front.
        action_noise: `[m, m]`.
        discount: gamma.
        horizon: the last step that counts; None for all.
    """

    loop: Float[Array, "x x"]
    noise: Float[Array, "x x"]
    start: Float[Array, "x x"]
    point: Float[Array, "m x"]
    action_noise: Float[Array, "m m"]
    discount: Float[Array, ""]
    horizon: int | None = field(static=True)

    @staticmethod
    def of(system: LinearSystem, point: Float[Array, "m x"], horizon: int | None = None) -> ClosedLoop:
        """The system when actions are `point (1, s)`."""
        moved, driven = system.augmented()
        return ClosedLoop(
            moved + driven @ point,
            system.noise_moments(),
            system.start_moments(),
            point,
            jnp.asarray(system.action_noise),
            jnp.asarray(system.discount),
            horizon,
        )

    def state_moments(self) -> tuple[Float[Array, "x x"], Bool[Array, ""]]:
        """`sum_t gamma^t E[x_t x_t']`, and whether it is finite."""
        gamma = self.discount
        if self.horizon is None:
            inflow = self.start + gamma / (1.0 - gamma) * self.noise
            return lyapunov(jnp.sqrt(gamma) * self.loop, inflow)

        def step(carry: tuple, _: None) -> tuple[tuple, None]:
            now, weight, total = carry
            return (self.loop @ now @ self.loop.T + self.noise, weight * gamma, total + weight * now), None

        first = (self.start, jnp.ones_like(gamma), jnp.zeros_like(self.start))
        (_, _, total), _ = lax.scan(step, first, None, length=self.horizon + 1)
        finite = jnp.all(jnp.isfinite(total))
        return jnp.where(finite, total, self.start), finite

    def occupancy(self) -> tuple[LinearOccupancy, Bool[Array, ""]]:
        """Moments of `(s, a)`, and whether they are finite."""
        states, finite = self.state_moments()
        rows = jnp.concatenate([jnp.eye(len(self.loop)), self.point], axis=0)
        m = len(self.action_noise)
        whole = (rows @ states @ rows.T).at[-m:, -m:].add(states[0, 0] * self.action_noise)
        return LinearOccupancy(whole[0, 0], whole[0, 1:], whole[1:, 1:], self), finite


@in_float64
def expectation(loop: ClosedLoop, function: Callable[[Array, Array], Any], steps: int) -> Any:
    """Return `sum_t gamma^t E[f(s_t, a_t)]`, as `LinearOccupancy.expect` has it."""
    means, roots, weights = _gaussians(loop, steps)
    n, m = len(loop.loop) - 1, len(loop.action_noise)
    points, shares = _rule(n + m)
    root = _root(loop.action_noise)

    def at(mean: Array, state_root: Array, point: Array) -> Any:
        state = mean + state_root @ point[:n]
        return function(state, loop.point[:, 0] + loop.point[:, 1:] @ state + root @ point[n:])

    def step(mean: Array, state_root: Array) -> Any:
        values = jax.vmap(partial(at, mean, state_root))(jnp.asarray(points))
        return tree_map(lambda value: jnp.tensordot(jnp.asarray(shares), value, axes=1), values)

    each = jax.vmap(step)(means, roots)
    return tree_map(lambda value: jnp.tensordot(weights, value, axes=1), each)


def _gaussians(loop: ClosedLoop, steps: int) -> tuple[Array, Array, Array]:
    """Means `[T, n]`, roots of covariances `[T, n, n]` and masses `[T]` of the first states; the last has the rest."""
    count = steps if loop.horizon is None else min(steps, loop.horizon + 1)

    def step(now: Array, _: None) -> tuple[Array, tuple[Array, Array]]:
        mean = now[1:, 0]
        return loop.loop @ now @ loop.loop.T + loop.noise, (mean, now[1:, 1:] - mean[:, None] * mean)

    _, (means, covariances) = lax.scan(step, loop.start, None, length=count)
    gamma = jnp.asarray(loop.discount)
    weights = gamma ** jnp.arange(count)
    end = 0.0 if loop.horizon is None else gamma ** (loop.horizon + 1)
    rest = (weights[-1] - end) / (1.0 - gamma)
    return means, jax.vmap(_root)(covariances), weights.at[-1].set(rest)


def _root(covariance: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """A lower-triangular root of a covariance matrix; a singular one is lifted by a hair, and 0 has the root 0."""
    size = jnp.trace(covariance)
    sound = size > 0
    lifted = jnp.where(sound, covariance + JITTER * size * jnp.eye(len(covariance)), jnp.eye(len(covariance)))
    return jnp.where(sound, jnp.linalg.cholesky(lifted), 0.0)


def _rule(dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights whose sums are means under a standard Gaussian."""
    along = int(np.floor(RULE_POINTS ** (1.0 / dimension) + 1e-9))
    if along < 3:
        from scipy.stats import qmc  # slow to import

        uniform = qmc.Sobol(dimension, rng=np.random.default_rng(0)).random(SPREAD_POINTS // 2)
        points = ndtri(np.clip(uniform, 1e-12, 1 - 1e-12))
        # Each with its mirror image, so that odd moments vanish.
        return np.concatenate([points, -points]), np.full(SPREAD_POINTS, 1.0 / SPREAD_POINTS)
    nodes, weights = roots_hermitenorm(min(along, AXIS_POINTS))
    grids = np.meshgrid(*[nodes] * dimension, indexing="ij")
    shares = np.meshgrid(*[weights / weights.sum()] * dimension, indexing="ij")
    return np.stack([grid.ravel() for grid in grids], axis=1), np.prod([share.ravel() for share in shares], axis=0)
