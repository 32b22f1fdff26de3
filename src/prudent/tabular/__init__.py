"""Finite models at the seam: the loss is a function of the occupancy that a table of action probabilities has."""

from .checks import check_models
from .objective import TabularObjective, TriedCaveats
from .plans import TabularPlans, linear_cost
