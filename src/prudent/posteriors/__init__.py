"""What is believed of theta after the data, `mu_N` in the paper."""

from .base import AbstractTable, Invertible, Posterior, WeightedDraws, equally_weighted
from .beta import Beta
from .box import WithinBox
from .dirichlet import Dirichlet
from .grid import Grid
from .mcmc import MCMC, MCMCStatus
from .outcome_laws import OutcomeLaws
from .points import Draws, Point
from .pooled import Pooled
from .sobol import Sobol, draw_sets
from .uncertain_costs import WithCosts

__all__ = [
    "MCMC",
    "AbstractTable",
    "Beta",
    "Dirichlet",
    "Draws",
    "Grid",
    "Invertible",
    "MCMCStatus",
    "OutcomeLaws",
    "Point",
    "Pooled",
    "Posterior",
    "Sobol",
    "WeightedDraws",
    "WithCosts",
    "WithinBox",
    "draw_sets",
    "equally_weighted",
]
