"""Estimators of the gradient of a risk of losses."""

from .estimator import Adjoint, GradientEstimator, RiskOfLosses, SampledRisk
from .variational import Variational
from .zeroth_order import ZerothOrder, directions
