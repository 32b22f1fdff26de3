"""The discounted occupancy measure of a policy, exact or truncated."""

from .elimination import XlaElimination
from .krylov import LinearSolver, XlaKrylov, bicgstab
from .measure import chains, occupancies_on_host, traced_solver
from .methods import Exact, Horizon, Truncated, occupancy
