"""Estimators of the gradient of a risk of losses."""

from .adjoint import Adjoint
from .estimator import GradientEstimator, RiskOfLosses, arranged, assess, equal_shares, losses_of, risk_of_losses
from .variational import Variational
from .zeroth_order import ZerothOrder, directions
