"""Losses and slopes of small models by NumPy: of the user's functions alone anything is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from ..arrays import Array, in_float64
from ..deferred import jax, jitted
from ..losses import ExpectedCost, Loss, loss_batch
from ..models import AbstractFamily, models_at
from ..occupancies import Elimination, vectors
from .base import ModelSlopes

if TYPE_CHECKING:
    from .tabular import TabularObjective


@in_float64  # by thread, and a worker may have threads of its own
def found_on_host(
    objective: TabularObjective, points: Float[np.ndarray, "N S A"], thetas: np.ndarray, sloped: bool
) -> ModelSlopes:
    """N models, each under a table of its own, at arranged draws; slopes are left empty unless asked for."""
    family, loss, (shift, scale) = objective.family, objective.loss, objective.units
    support, discount, solver = family.support, float(family.discount), objective.occupancy.solver_for(family.support)
    assert isinstance(solver, Elimination)
    probability, cost = _models(family, thetas)
    cost = (cost - shift) / scale
    policy = np.ascontiguousarray(np.moveaxis(points, 0, -1))
    factors = vectors.factorised(solver, support, probability, policy, discount)
    start = np.repeat(np.asarray(family.start)[:, None], len(points), axis=1)
    visits = vectors.forward(solver, factors, start)
    occupancies = visits[:, None] * policy
    if isinstance(loss, ExpectedCost):
        losses, slope = (occupancies * cost).sum(axis=(0, 1)), cost
    else:
        given = (loss, family, occupancies, probability, cost)
        losses, slope = _losses_and_slopes(*given) if sloped else (_losses(*given), None)
    if not sloped:
        return ModelSlopes(np.asarray(losses), points[:0], visits.T)
    slope = np.asarray(slope)
    values = vectors.adjoint(solver, factors, (policy * slope).sum(axis=1))
    onward = (probability * (values if support.is_dense else values[support.index()])).sum(axis=2)
    slopes = visits[:, None] * (slope + discount * onward)
    return ModelSlopes(np.asarray(losses), np.ascontiguousarray(np.moveaxis(slopes, -1, 0)), visits.T)


def _models(family: AbstractFamily, thetas: np.ndarray) -> tuple[Float[np.ndarray, "S A B N"], np.ndarray]:
    known = family.tables(np.moveaxis(thetas, -1, 0))
    if known is not None:
        return np.moveaxis(known[0], 0, -1), np.moveaxis(known[1], 0, -1)
    probability, cost = _models_at(family, thetas)
    return np.asarray(probability), np.asarray(cost)


@jitted
def _models_at(family: AbstractFamily, thetas: Array) -> tuple[Array, Array]:
    return models_at(family, thetas, -1)


@jitted
def _losses(
    loss: Loss, family: AbstractFamily, occupancies: Array, probability: Array, cost: Array
) -> Float[Array, " N"]:
    return loss_batch(loss, family, occupancies, probability, cost, -1)


@jitted
def _losses_and_slopes(
    loss: Loss, family: AbstractFamily, occupancies: Array, probability: Array, cost: Array
) -> tuple[Float[Array, " N"], Float[Array, "S A N"]]:
    def total(occupancies: Array) -> tuple[Array, Array]:
        losses = loss_batch(loss, family, occupancies, probability, cost, -1)
        return losses.sum(), losses

    slope, losses = jax.grad(total, has_aux=True)(occupancies)
    return losses, slope
