"""Losses and slopes of tables by the engine; of the user's functions alone anything is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from ..arrays import in_float64
from ..engine import complete
from ..losses import as_convex, as_loss
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
    if shift != 0.0 or scale != 1.0:
        models = models._replace(cost=(models.cost - shift) / scale)
    factors = objective.method.factor(models, np.moveaxis(points, 0, -1))
    loss = as_loss(objective.loss)
    less: float | np.ndarray = 0.0
    if models.unseen is not None:
        linear = as_convex(loss)
        beside = linear.beside(models)
        factors = complete(factors, linear.cost_tables(models), beside)
        less = 0.0 if beside is None else beside[factors.target, np.arange(models.size)]
    visits = factors.state_visits()
    occupancies = visits[:, None] * factors.policy
    if not sloped:
        return ModelSlopes(loss.value(occupancies, models) - less, points[:0], visits.T)
    losses, slope = loss.value_and_gradient(occupancies, models)
    gradient = factors.policy_gradient(visits, slope)
    return ModelSlopes(losses - less, np.moveaxis(gradient, -1, 0), visits.T)
