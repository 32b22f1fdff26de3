"""The objective on a posterior sample, and the estimators of its gradient."""

from .adjoint import Adjoint
from .estimator import GradientEstimator
from .objective import (
    Objective,
    Problem,
    arrange,
    assess,
    equal_shares,
    is_direct,
    losses_of,
    losses_on,
    model_bytes,
    objective,
)
from .tables import Sample, Slopes, alone, assessed, model_slopes, pulled_back, slopes_of
from .variational import Variational
from .zeroth_order import ZerothOrder, directions

__all__ = [
    "Adjoint",
    "GradientEstimator",
    "Objective",
    "Problem",
    "Sample",
    "Slopes",
    "Variational",
    "ZerothOrder",
    "alone",
    "arrange",
    "assess",
    "assessed",
    "directions",
    "equal_shares",
    "is_direct",
    "losses_of",
    "losses_on",
    "model_bytes",
    "model_slopes",
    "objective",
    "pulled_back",
    "slopes_of",
]
