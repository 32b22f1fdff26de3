"""Losses `F(lambda, P)`, convex functions of the occupancy (costs: lower is better)."""

from .base import ConvexLoss, Dual, Loss, as_convex
from .calls import check_loss_at, loss_batch, require_scalar
from .conformance import check_loss
from .costs import ConstrainedCost, ExpectedCost
from .divergences import (
    ChiSquare,
    Divergence,
    Hellinger,
    JensenShannon,
    KullbackLeibler,
    ReverseKullbackLeibler,
    TotalVariation,
)
from .numerical import Numerical
from .targets import Imitation, NegativeEntropy, QuadraticDistance

__all__ = [
    "ChiSquare",
    "ConstrainedCost",
    "ConvexLoss",
    "Divergence",
    "Dual",
    "ExpectedCost",
    "Hellinger",
    "Imitation",
    "JensenShannon",
    "KullbackLeibler",
    "Loss",
    "NegativeEntropy",
    "Numerical",
    "QuadraticDistance",
    "ReverseKullbackLeibler",
    "TotalVariation",
    "as_convex",
    "check_loss",
    "check_loss_at",
    "loss_batch",
    "require_scalar",
]
