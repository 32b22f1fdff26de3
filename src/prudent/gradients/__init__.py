"""Stage 9: the objective on a posterior sample, and the estimators of its gradient."""

from .adjoint import Adjoint
from .estimator import GradientEstimator
from .objective import (
    Objective,
    Problem,
    arrange,
    assess,
    is_direct,
    losses_of,
    losses_on,
    model_bytes,
    objective,
)
from .variational import Variational
from .zeroth_order import ZerothOrder

__all__ = [
    "Adjoint",
    "GradientEstimator",
    "Objective",
    "Problem",
    "Variational",
    "ZerothOrder",
    "arrange",
    "assess",
    "is_direct",
    "losses_of",
    "losses_on",
    "model_bytes",
    "objective",
]
