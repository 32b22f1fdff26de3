"""Losses `F(lambda, P)`, convex functions of the occupancy (costs: lower is better)."""

from typing import TYPE_CHECKING

import lazy_loader

from .base import ConvexLoss, Dual, Loss, as_convex, check_loss_at, loss_batch, require_scalar
from .conformance import check_loss
from .cost_losses import ConstrainedCost, ExpectedCost
from .divergences import (
    ChiSquare,
    Divergence,
    Hellinger,
    JensenShannon,
    KullbackLeibler,
    ReverseKullbackLeibler,
    TotalVariation,
)
from .kinds import CostTable, LinearLoss, ScenarioCost, Visits
from .targets import Imitation, NegativeEntropy, QuadraticDistance

if TYPE_CHECKING:
    from .ascent import Numerical

__getattr__, _, _ = lazy_loader.attach(__name__, submod_attrs={"ascent": ["Numerical"]})
