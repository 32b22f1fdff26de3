"""Ascents on conjugates, which only the gradient estimator `Variational` and `check_loss` make.

For a conjugate in closed form, one step up on `z y - phi*(z)`, elementwise. The solution of each of these
one-dimensional concave problems is the root of `y - phi*'(z)`, a decreasing function. Occupancies reach from 1e-8 to
10, so Newton's step can be off by many powers of ten; a second step, Newton's on `log y - log phi*'(z)`, and a range of
lengths of both make up for that. And a user's own loss as a `ConvexLoss`: its conjugate is never written down, only
ascended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from ..arrays import Array
from ..deferred import jax, jnp, lax
from ..engine import ModelBatch
from ..models import MDP
from ..records import field
from .base import ConvexLoss, Dual, UserLoss, as_loss

LENGTHS = 2.0 ** np.arange(1, -11, -1)
# A step that would leave the domain stops just short of its end.
NEAREST = 0.995

# The larger the proximal term against the curvature, the faster z settles and the more digits it loses.
STIFFNESS = 100.0
STEPS_A_ROUND = 4
# Length 0 is where the step starts from; the others are measured against it.
LENGTHS_AND_NONE = np.concatenate([[0.0], 2.0 ** np.arange(0, -11, -1)])
# One step takes away at most this part of an occupancy, and none falls below this part of the largest.
BOUNDARY = 0.95
LEAST = 1e-20
AT_ZERO = 1e-14


def newton_step(
    point: Array, image: Array, conjugate: Callable[[Array], Array], domain: tuple[float, float]
) -> jax.Array:
    """The best of a dozen lengths of two Newton steps, for each element; the point itself where none is better.

    Args:
        point: z, inside the domain.
        image: y, of the same shape.
        conjugate: phi*, elementwise, strictly convex.
        domain: the open interval on which phi* is finite.
    """

    def slope(z: Array) -> Array:
        return jax.jvp(conjugate, (z,), (jnp.ones_like(z),))[1]

    def value(z: Array) -> Array:
        return z * image - conjugate(z)

    first, second = jax.jvp(slope, (point,), (jnp.ones_like(point),))
    gap = image - first
    plain = gap / second
    positive = (image > 0) & (first > 0)
    ratio = jnp.where(positive, image, 1.0) / jnp.where(positive, first, 1.0)
    steps = jnp.stack([plain, jnp.where(positive, jnp.log(ratio) * first / second, plain)])

    lower, upper = domain
    steps = jnp.clip(steps, NEAREST * (lower - point), NEAREST * (upper - point))
    lengths = LENGTHS.reshape(-1, *(1,) * steps.ndim)
    candidates = (point + lengths * steps).reshape(-1, *point.shape)

    # Higher, and nearer the root: close to it, values agree to the last digit while gaps still differ.
    inside = (candidates > lower) & (candidates < upper)
    safe = jnp.where(inside, candidates, point)
    gaps = jnp.abs(image - slope(safe))
    now = value(point)
    slack = 1e-14 * (jnp.abs(now) + jnp.abs(point * image))
    better = inside & (value(safe) >= now - slack) & (gaps < jnp.abs(gap))
    best = jnp.argmin(jnp.where(better, gaps, jnp.inf), axis=0)[None]
    chosen = jnp.take_along_axis(candidates, best, axis=0)[0]
    return jnp.where(jnp.any(better, axis=0), chosen, point)


class Numerical(ConvexLoss):
    """Any convex function of the occupancy, with the ascent on its conjugate done numerically.

    The method of multipliers: with `y = lambda`, a diagonal `E > 0` and w the maximiser behind `F*(z)`,

        w <- argmin_{w > 0} F(w) - <z, w - y> + 1/2 <w - y, E (w - y)>,    z <- z + E (y - w).

    It ends at `w = y`, `z = dF/dlambda`, whatever E is; here E is a hundred times the row sums of the
    Hessian. The minimum is approached by a few damped Newton steps with the full Hessian, so memory grows with
    the square of the number of state-action pairs.

    >>> import jax.numpy as jnp, prudent as pr
    >>> mdp = pr.MDP(pr.Kernel.dense([[[1.0]]]), cost=[[2.0]], start=0, discount=0.5)
    >>> loss = pr.Numerical(lambda occupancy, mdp: jnp.exp(occupancy * mdp.cost).sum())
    >>> float(loss(pr.occupancy(mdp, [[1.0]]), mdp).round(3))
    54.598

    Args:
        function: `(occupancy [S, A], mdp) -> scalar`, traceable by JAX and convex in the occupancy; or a `UserLoss`.
    """

    function: UserLoss = field(converter=as_loss)

    def __call__(self, occupancy: Float[Array, "S A"], mdp: MDP) -> Any:
        return self.function(occupancy, mdp)

    def value(self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch) -> Float[np.ndarray, " N"]:
        """Return the loss of each model of a batch."""
        return self.function.value(occupancy, models)

    def value_and_gradient(
        self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch
    ) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "S A N"]]:
        """Return the loss of each model of a batch and its derivative by the occupancy."""
        return self.function.value_and_gradient(occupancy, models)

    def image(self, occupancy: Float[Array, "S A"], mdp: MDP) -> Float[Array, "S A"]:
        """The occupancy itself."""
        return jnp.asarray(occupancy)

    def begin(self, mdp: MDP) -> Dual:
        """The slope at the uniform occupancy, which is inside the domain of any loss."""
        uniform = jnp.full(mdp.cost.shape, 1.0 / mdp.cost.size) / (1.0 - mdp.discount)
        return Dual(jax.grad(self.function)(uniform, mdp), uniform)

    def ascend(self, dual: Dual, image: Float[Array, "S A"], mdp: MDP) -> Dual:
        """One round of the method of multipliers."""
        shape = image.shape

        def function(w: Array) -> Array:
            return self.function(w.reshape(shape), mdp)

        y, z, w = image.ravel(), dual.point.ravel(), dual.primal.ravel()
        stiffness = _stiffness(function, w)

        def augmented(w: Array) -> Array:
            away = w - y
            return function(w) - z @ away + 0.5 * (stiffness * away) @ away

        w = lax.fori_loop(0, STEPS_A_ROUND, lambda _, w: _newton(augmented, stiffness, w), w)
        # Where w is held at zero the slope left over is the multiplier of w > 0, and part of dF/dlambda.
        multiplier = jnp.where(w < AT_ZERO * w.max(), jnp.maximum(jax.grad(augmented)(w), 0.0), 0.0)
        return Dual((z + stiffness * (y - w) + multiplier).reshape(shape), w.reshape(shape))


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
