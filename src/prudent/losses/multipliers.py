"""The method of multipliers for conjugates of users' functions, compiled and differentiated by JAX."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from ..arrays import Array, filled_blocks
from ..autodiff import jax, jitted, jnp, lax
from ..engine import ModelBatch
from ..kernels import Kernel, Support
from ..models import MDP
from .base import Dual, support_of

# The larger the proximal term against the curvature, the faster z settles and the more digits it loses.
STIFFNESS = 100.0
STEPS_A_ROUND = 4
# Length 0 is where the step starts from; the others are measured against it.
LENGTHS_AND_NONE = np.concatenate([[0.0], 2.0 ** np.arange(0, -11, -1)])
# One step takes away at most this part of an occupancy, and none falls below this part of the largest.
BOUNDARY = 0.95
LEAST = 1e-20
AT_ZERO = 1e-14


def step_of_multipliers(
    loss: Any, dual: Dual, image: Float[np.ndarray, "S A N"], models: ModelBatch
) -> tuple[Float[np.ndarray, "S A N"], Float[np.ndarray, "S A N"]]:
    """Return z and w of each model after one round, as `Numerical` has it."""
    support, parts = support_of(models), []
    for block, few in filled_blocks(models.size):
        chosen = models.select(block)
        cost = np.broadcast_to(chosen.cost, (*chosen.cost.shape[:2], len(block)))
        here = (each[:, :, block] for each in (dual.point, dual.primal, image))
        shared = (chosen.row, chosen.start, np.asarray(chosen.discount))
        found = _rounds(loss, support, shared, *here, chosen.probability, cost)
        parts.append([part[..., :few] for part in found])
    z, w = (np.concatenate(part, axis=2) for part in zip(*parts, strict=True))
    return z, w


@jitted
def _rounds(loss: Any, support: Support, shared: tuple, *each: Array) -> tuple[Array, Array]:
    row, start, discount = shared

    def one(z: Array, w: Array, y: Array, probability: Array, cost: Array) -> tuple[Array, Array]:
        return _round(loss, MDP(Kernel(support, probability[row]), cost, start, discount), z, w, y)

    return jax.vmap(one, in_axes=-1, out_axes=-1)(*each)


def _round(
    loss: Any, mdp: MDP, z: Float[Array, "S A"], w: Float[Array, "S A"], y: Float[Array, "S A"]
) -> tuple[Float[Array, "S A"], Float[Array, "S A"]]:
    shape = y.shape
    z, w, y = z.ravel(), w.ravel(), y.ravel()

    def function(w: Array) -> Array:
        return loss(w.reshape(shape), mdp)

    stiffness = _stiffness(function, w)

    def augmented(w: Array) -> Array:
        away = w - y
        return function(w) - z @ away + 0.5 * (stiffness * away) @ away

    w = lax.fori_loop(0, STEPS_A_ROUND, lambda _, w: _newton(augmented, stiffness, w), w)
    # Where w is held at zero the slope left over is the multiplier of w > 0, and part of dF/dlambda.
    multiplier = jnp.where(w < AT_ZERO * w.max(), jnp.maximum(jax.grad(augmented)(w), 0.0), 0.0)
    return (z + stiffness * (y - w) + multiplier).reshape(shape), w.reshape(shape)


def _finite(values: Array) -> Array:
    return jnp.where(jnp.isfinite(values), values, 0.0)


def _stiffness(function: Any, w: Float[Array, " n"]) -> Float[Array, " n"]:
    """The diagonal E: it dominates the Hessian, and where the function is linear z moves w by a few percent."""
    slope, hessian = _slope_and_hessian(function, w)
    curvature = jnp.abs(hessian).sum(axis=1) + jnp.abs(slope) / jnp.maximum(w, 1e-3 * w.mean())
    return jnp.where(curvature > 0, STIFFNESS * curvature, 1.0)


def _slope_and_hessian(function: Any, w: Float[Array, " n"]) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
    slope, push = jax.linearize(jax.grad(function), w)
    hessian = jax.vmap(push)(jnp.eye(w.size))
    return _finite(slope), _finite(hessian)


def _newton(function: Any, stiffness: Float[Array, " n"], w: Float[Array, " n"]) -> Float[Array, " n"]:
    """A damped Newton step that keeps w positive; w itself where no length of it helps."""
    root = jnp.sqrt(stiffness)
    slope, hessian = _slope_and_hessian(function, w)
    # In these units the proximal part alone is the identity; the damping is for what rounding takes away.
    step = -jnp.linalg.solve(hessian / (root * root[:, None]) + 1e-12 * jnp.eye(w.size), slope / root) / root
    least = jnp.maximum((1.0 - BOUNDARY) * w, LEAST * w.max())
    candidates = jnp.maximum(w + LENGTHS_AND_NONE[:, None] * step, least)
    values, slopes = lax.map(jax.value_and_grad(function), candidates)
    steepness = jnp.abs(slopes / root).max(axis=1)
    # Near the minimum values agree to the last digit and slopes decide; at a kink only values can.
    slack = 1e-14 * jnp.abs(values[0])
    flatter = (values <= values[0] + slack) & (steepness < steepness[0])
    lower = values < values[0] - slack
    by_slope = jnp.argmin(jnp.where(flatter, steepness, jnp.inf))
    by_value = jnp.argmin(jnp.where(lower, values, jnp.inf))
    return candidates[jnp.where(flatter.any(), by_slope, by_value)]
