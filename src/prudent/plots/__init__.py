"""Records to figures; nothing is computed here that a record does not hold."""

from .canvas import finish as finish
from .canvas import pyplot as pyplot
from .distributions import loss_distributions as loss_distributions
from .frontier import frontier_figure as frontier_figure
