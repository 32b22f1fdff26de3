"""The discounted occupancy measure of a policy, exact or truncated, with its own adjoint."""

from . import vectors
from .banded import Banded
from .elimination import Elimination
from .krylov import Krylov, LinearSolver, bicgstab
from .measure import Exact, Method, Truncated, batch_axis, chains, measure, occupancies_on_host, occupancy
