"""The optimisers, their certificates and their result."""

from .brpg import BRPG
from .certificates import Certificate, certify, least_losses
from .draws import Job, JobDraws, fresh_draws
from .drivers import Driver
from .jobs import Parts, default_solver, replace_policy, solve, solve_grid, solve_many
from .limits import (
    Limit,
    LimitAnswer,
    Verdict,
    checked_limits,
    level_shown,
    limit_answer,
    price_words,
    refuse_idle,
)
from .natural import NaturalGradient
from .optimiser import Optimiser, digest_of
from .outputs import BestHeldOut, LastIterate, RandomIterate
from .progress import RunState, Shown, shown_on
from .prox_linear import ProxLinear
from .quasi_newton import LBFGS
from .sample_average import SampleAverage
from .solution import Checkpoint, History, Solution, SolveRequest, Status
from .space import flat, unflat
from .states import named_leaves
