"""The optimisers, their certificates and their result."""

from .brpg import BRPG
from .certificates import Certificate, certify, least_losses
from .draws import Job, JobDraws, fresh_draws
from .drivers import Driver
from .jobs import Parts, solve, solve_grid, solve_many
from .natural import NaturalGradient
from .optimiser import Optimiser, digest_of
from .outputs import BestHeldOut, LastIterate, RandomIterate
from .prox_linear import ProxLinear
from .quasi_newton import LBFGS
from .sample_average import SampleAverage
from .solution import Checkpoint, History, Solution, Status
from .states import named_leaves
