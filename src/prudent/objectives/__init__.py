"""Losses at draws of theta, and what else can be done with them: the seam between models and everything after."""

from ..engine import BoxPlans, cheapest_rows
from .base import (
    Averaged,
    Averages,
    Losses,
    ModelSlopes,
    Objective,
    Planned,
    Plans,
    Size,
    Table,
    Unit,
    Weigh,
    Weighted,
    Weights,
    objective_of,
)
from .boxes import Boxes, DeviationBounds
from .chunks import chunk_size, losses_of_pairs, losses_on, mean_visits, point_at, replicates_on, slopes_on
from .evidence import FEW, Evidence, OtherPrior, Soundness, ThinPair, word_for
from .function import FunctionObjective
from .relative import RelativeObjective, relative_objective, weigh_together
