"""Losses and slopes of tables by the engine; of the user's functions alone anything is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from ..arrays import Array, in_float64
from ..deferred import jax, jitted
from ..engine import ModelBatch
from ..losses import ExpectedCost, Loss, loss_batch
from ..models import AbstractFamily
from .base import ModelSlopes

if TYPE_CHECKING:
    from .tabular import TabularObjective


@in_float64  # by thread, and a worker may have threads of its own
def evaluate_models(
    objective: TabularObjective, points: Float[np.ndarray, "N S A"], thetas: Float[np.ndarray, "N ..."], sloped: bool
) -> ModelSlopes:
    """Evaluate N models, each under a table of its own; slopes are left empty unless asked for."""
    family, (shift, scale) = objective.family, objective.units
    models = family.models(thetas)
    models = models._replace(cost=(models.cost - shift) / scale)
    factors = objective.method.factor(models, np.moveaxis(points, 0, -1))
    visits = factors.state_visits()
    occupancies = visits[:, None] * factors.policy
    losses, slope = _losses_and_slopes(objective.loss, family, models, occupancies, sloped)
    if slope is None:
        return ModelSlopes(losses, points[:0], visits.T)
    gradient = factors.policy_gradient(visits, slope)
    return ModelSlopes(losses, np.ascontiguousarray(np.moveaxis(gradient, -1, 0)), visits.T)


def _losses_and_slopes(
    loss: Loss, family: AbstractFamily, models: ModelBatch, occupancies: Float[np.ndarray, "S A N"], sloped: bool
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "S A N"] | None]:
    """Return the losses of N occupancies, and their derivatives if asked for."""
    if isinstance(loss, ExpectedCost):
        losses = np.einsum("san,san->n", occupancies, np.broadcast_to(models.cost, occupancies.shape))
        return losses, models.cost if sloped else None
    probability = models.probability[models.row]
    cost = np.broadcast_to(models.cost, occupancies.shape)
    if not sloped:
        return np.asarray(_losses(loss, family, occupancies, probability, cost)), None
    losses, slope = _losses_with_slopes(loss, family, occupancies, probability, cost)
    return np.asarray(losses), np.asarray(slope)


@jitted
def _losses(
    loss: Loss, family: AbstractFamily, occupancies: Array, probability: Array, cost: Array
) -> Float[Array, " N"]:
    return loss_batch(loss, family, occupancies, probability, cost, -1)


@jitted
def _losses_with_slopes(
    loss: Loss, family: AbstractFamily, occupancies: Array, probability: Array, cost: Array
) -> tuple[Float[Array, " N"], Float[Array, "S A N"]]:
    def total(occupancies: Array) -> tuple[Array, Array]:
        losses = loss_batch(loss, family, occupancies, probability, cost, -1)
        return losses.sum(), losses

    slope, losses = jax.grad(total, has_aux=True)(occupancies)
    return losses, slope
