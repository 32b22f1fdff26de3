"""Losses `F(lambda, P)`, convex functions of the occupancy (costs: lower is better)."""

from typing import TYPE_CHECKING

import lazy_loader

from .base import (
    ConvexLoss,
    Dual,
    Loss,
    Scaled,
    Sum,
    UserLoss,
    as_convex,
    as_loss,
    batch_of,
    check_loss_at,
    is_linear,
    require_finite_loss,
    require_scalar,
    split_models,
)
from .conformance import check_loss
from .cost_losses import ConstrainedCost, CostDifference, CostTable, ExpectedCost, LinearLoss, ScenarioCost, Visits
from .targets import (
    ChiSquare,
    Divergence,
    Hellinger,
    Imitation,
    JensenShannon,
    KullbackLeibler,
    NegativeEntropy,
    QuadraticDistance,
    ReverseKullbackLeibler,
    TotalVariation,
)

if TYPE_CHECKING:
    from .ascent import ByConjugate, Numerical

__getattr__, _, _ = lazy_loader.attach(__name__, submod_attrs={"ascent": ["ByConjugate", "Numerical"]})
