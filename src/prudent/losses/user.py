"""Losses of users' functions `(occupancy, mdp) -> number`, compiled and differentiated by JAX, many models at once.

A function is compiled once for each size of a batch, so that a batch is split into blocks of a few sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Float

from ..arrays import Array, filled_blocks, in_float64
from ..engine import ModelBatch
from ..errors import InputError
from ..kernels import Kernel, Support
from ..models import MDP
from .base import support_of

try:
    from ..autodiff import jax, jitted
except InputError as error:
    raise InputError(
        "a loss that is a function without a gradient is differentiated by JAX, which is not installed; pip install "
        "'prudent[jax]', or give the derivative: pr.UserLoss(function, gradient=...)"
    ) from error


def evaluate(loss: Any, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch) -> Float[np.ndarray, " N"]:
    """Return the loss of each model of a batch."""
    return np.concatenate([part[0] for part in _blockwise(_values, loss, occupancy, models)])


def differentiate(
    loss: Any, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "S A N"]]:
    """Return the loss of each model of a batch, and its derivative by the occupancy."""
    values, gradients = zip(*_blockwise(_values_and_gradients, loss, occupancy, models), strict=True)
    return np.concatenate(values), np.concatenate(gradients, axis=2)


def _blockwise(
    function: Callable[..., Any], loss: Any, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch
) -> Iterator[list[np.ndarray]]:
    """Yield what a compiled function finds of each block of models, models last."""
    support = support_of(models)
    for block, few in filled_blocks(models.size):
        chosen = models.select(block)
        found = function(loss, support, occupancy[:, :, block], *chosen[1:5], np.asarray(chosen.discount))
        yield [part[..., :few] for part in found]


@in_float64
def shape_of(loss: Any, occupancy: np.ndarray, mdp: MDP) -> Any:
    """Return the shape and the type of what a loss gives, of which nothing is computed."""
    return jax.eval_shape(loss, occupancy, mdp)


@jitted
def _values(loss: Any, support: Support, occupancy: Array, *models: Array) -> tuple[Array]:
    return (_each(loss, support, occupancy, *models),)


@jitted
def _values_and_gradients(loss: Any, support: Support, occupancy: Array, *models: Array) -> tuple[Array, Array]:
    values, pull_back = jax.vjp(lambda at: _each(loss, support, at, *models), occupancy)
    return values, pull_back(jax.numpy.ones_like(values))[0]


def _each(
    loss: Any,
    support: Support,
    occupancy: Float[Array, "S A N"],
    row: Array,
    probability: Float[Array, "C B N"],
    cost: Float[Array, "S A N"],
    start: Float[Array, " S"],
    discount: Array,
) -> Float[Array, " N"]:
    def one(occupancy: Array, probability: Array, cost: Array) -> Array:
        # A loss that does not ask for the kernel has none made.
        return loss(occupancy, MDP(Kernel(support, probability[row]), cost, start, discount))

    shared = cost.shape[2] == 1 != occupancy.shape[2]
    return jax.vmap(one, in_axes=(-1, -1, None if shared else -1))(
        occupancy, probability, cost[:, :, 0] if shared else cost
    )
