"""Losses and derivatives of objectives that JAX traces, compiled for batches of pairs of a point and a draw."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from ..arrays import Array, in_float64
from ..autodiff import jax, jitted, jnp, raveled
from ..conformance import explained
from ..errors import InputError
from ..records import tree_map
from .base import Losses, ModelSlopes, Objective


@jitted
def losses(objective: Objective, points: Float[Array, "N ..."], thetas: Array) -> Losses:
    """Return the loss of each pair."""
    return objective.losses(points, thetas)


@jitted
def replicates(objective: Objective, points: Float[Array, "N ..."], thetas: Array) -> Float[Array, "N B"]:
    """Return the losses of each pair by batches of chance."""
    return objective.replicates(points, thetas)


@jitted
def slopes(objective: Objective, points: Float[Array, "N ..."], thetas: Array) -> ModelSlopes:
    """Return the loss of each pair with its derivative by the point."""

    def total(points: Array) -> tuple[Array, Losses]:
        found = objective.losses(points, thetas)
        # Each model has a point of its own, so the gradient of the sum holds every model's.
        return found.losses.sum(), found

    slopes, (losses, visits) = jax.grad(total, has_aux=True)(points)
    return ModelSlopes(losses, slopes, losses[:, None][:, :0] if visits is None else visits)


def function_losses(function: Any, start: Any, points: Float[Array, "N D"], thetas: Array) -> Float[Array, " N"]:
    """Return what a user's function of parameters, shaped like the start, and theta gives for each pair; traced."""
    unravel = raveled(start)[1]
    return jax.vmap(lambda point, theta: function(unravel(point), theta))(points, thetas)


@in_float64
def value_and_slope(function: Any, parameters: Any, theta: np.ndarray, where: str) -> tuple[Any, Any]:
    """Return a user's function at one theta with its derivative; refuse one that does not give one real number."""
    with explained(lambda error: f"the function could not be evaluated {where}: {error}", ()):
        shape = jax.eval_shape(function, parameters, theta)
    if getattr(shape, "shape", None) != () or not jnp.issubdtype(shape.dtype, jnp.floating):
        raise InputError(f"the function must return one real number, got {shape}; sum or average it")
    return jax.value_and_grad(lambda alpha: function(alpha, jnp.asarray(theta)))(tree_map(jnp.asarray, parameters))
