"""The optimisers, their certificates and their result."""

from .brpg import BRPG
from .certificates import Certificate
from .driver import solve, solve_many
from .drivers import Driver
from .natural import NaturalGradient
from .optimiser import Optimiser
from .outputs import BestHeldOut, LastIterate, RandomIterate
from .prox_linear import ProxLinear
from .quasi_newton import LBFGS
from .sample_average import SampleAverage
from .solution import Checkpoint, History, Solution, Status

__all__ = [
    "BRPG",
    "LBFGS",
    "BestHeldOut",
    "Certificate",
    "Checkpoint",
    "Driver",
    "History",
    "LastIterate",
    "NaturalGradient",
    "Optimiser",
    "ProxLinear",
    "RandomIterate",
    "SampleAverage",
    "Solution",
    "Status",
    "solve",
    "solve_many",
]
