"""What is believed of theta after the data, `mu_N` in the paper."""

from .base import AbstractTable, Invertible, Posterior, WeightedDraws, equally_weighted
from .conjugate import Beta, Dirichlet
from .grid import Grid
from .outcome_laws import OutcomeLaws
from .points import MCMC, Draws, MCMCStatus, Point
from .pooled import Pooled
from .tried_rows import TriedRows
from .uncertain_costs import WithCosts
from .wrapped import Sobol, WithinBox, draw_sets
