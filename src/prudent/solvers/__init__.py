"""Stage 10: the optimisation loop and its result."""

from .brpg import BRPG
from .driver import solve, solve_many
from .outputs import BestHeldOut, LastIterate, RandomIterate
from .solution import Checkpoint, History, Solution, Status

__all__ = [
    "BRPG",
    "BestHeldOut",
    "Checkpoint",
    "History",
    "LastIterate",
    "RandomIterate",
    "Solution",
    "Status",
    "solve",
    "solve_many",
]
