"""What is believed of theta after the data, `mu_N` in the paper."""

from .base import AbstractTable, Invertible, Posterior, WeightedDraws, equally_weighted
from .beta import Beta
from .box import WithinBox
from .costs import WithCosts
from .dirichlet import Dirichlet
from .draws import Draws, Point
from .grid import Grid
from .mcmc import MCMC, MCMCStatus
from .outcomes import OutcomeLaws
from .pooled import Pooled
from .sobol import Sobol, draw_sets

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
