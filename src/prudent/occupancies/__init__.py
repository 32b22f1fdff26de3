"""The discounted occupancy measure of a policy, exact or truncated."""

from .elimination import XlaElimination
from .krylov import LinearSolver, XlaKrylov
from .measure import measure, traced_solver
from .methods import Exact, Horizon, Truncated, occupancy
