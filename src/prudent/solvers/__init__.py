"""The optimisers, their certificates and their result."""

from .brpg import BRPG
from .certificates import Certificate
from .driver import solve, solve_many
from .drivers import Driver
from .footing import Footing, OtherPrior, Soundness, ThinPair
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
    "Footing",
    "History",
    "LastIterate",
    "NaturalGradient",
    "Optimiser",
    "OtherPrior",
    "ProxLinear",
    "RandomIterate",
    "SampleAverage",
    "Solution",
    "Soundness",
    "Status",
    "ThinPair",
    "solve",
    "solve_many",
]
