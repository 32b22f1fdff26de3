"""Records to figures; nothing is computed here that a record does not hold."""

from .figures import finish as finish
from .figures import frontier_figure as frontier_figure
from .figures import limit_frontier_figure as limit_frontier_figure
from .figures import loss_distributions as loss_distributions
from .figures import pyplot as pyplot
