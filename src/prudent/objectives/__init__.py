"""Losses at draws of theta, and what else can be done with them: the seam between models and everything after."""

from .base import Losses, Objective, Planned, Plans, Size, Table, Unit, objective_of
from .chunks import ModelSlopes, chunk_size, losses_on, mean_visits, point_at, slopes_on
from .function import FunctionObjective
from .tabular import TabularObjective
from .tabular_checks import check_models
from .tabular_plans import TabularPlans, linear_cost

__all__ = [
    "FunctionObjective",
    "Losses",
    "ModelSlopes",
    "Objective",
    "Planned",
    "Plans",
    "Size",
    "Table",
    "TabularObjective",
    "TabularPlans",
    "Unit",
    "check_models",
    "chunk_size",
    "linear_cost",
    "losses_on",
    "mean_visits",
    "objective_of",
    "point_at",
    "slopes_on",
]
