"""One step up on `z y - phi*(z)`, elementwise, for a conjugate in closed form.

The solution of each of these one-dimensional concave problems is the root of `y - phi*'(z)`, a decreasing
function. Occupancies reach from 1e-8 to 10, so Newton's step can be off by many powers of ten; a second step,
Newton's on `log y - log phi*'(z)`, and a range of lengths of both make up for that.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from ..arrays import Array

LENGTHS = 2.0 ** np.arange(1, -11, -1)
# A step that would leave the domain stops just short of its end.
NEAREST = 0.995


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
