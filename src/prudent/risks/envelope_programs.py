"""The convex programs behind an `Envelope`: written by cvxpy once, solved for many losses."""

from __future__ import annotations

import abc
import enum
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float

from ..arrays import require_number
from ..conformance import explained
from ..errors import InputError
from ..records import Record, field

# Compiled programs that are kept, least recently used first to go.
KEPT_PROGRAMS = 64


class EnvelopeStatus(enum.Enum):
    """How the search for an envelope's worst density ended; the value says what to do.

    >>> import prudent as pr
    >>> pr.EnvelopeStatus.OPTIMAL.ok, pr.EnvelopeStatus.INFEASIBLE.ok
    (True, False)
    """

    OPTIMAL = "the worst density was found to the solver's tolerance"
    INACCURATE = "the solver stopped short of its tolerance; look at gap and residual, or loosen the tolerance"
    INFEASIBLE = "no density satisfies the constraints; relax them"
    UNBOUNDED = "the constraints do not bound the density; use impose=True or give norm_bound"
    NOT_A_DENSITY = "the constraints allow more than densities; add xi >= 0 and probabilities @ xi == 1, or impose=True"
    NOT_CONVERGED = "the solver has not converged; give more iterations or use Clarabel()"
    FAILED = "the solver failed; check the losses for NaN and the constraints for extreme numbers"

    @property
    def ok(self) -> bool:
        """Whether the density is as exact as was asked for."""
        return self is EnvelopeStatus.OPTIMAL

    @property
    def usable(self) -> bool:
        """Whether there is a density at all."""
        return self in (EnvelopeStatus.OPTIMAL, EnvelopeStatus.INACCURATE)


class EnvelopeSolution(NamedTuple):
    """The worst density of an envelope at one sample, and how well it was found.

    >>> import prudent as pr
    >>> solution = pr.Envelope(lambda xi, p: [xi <= 2.0]).solve([1.0, 2.0, 3.0, 6.0])
    >>> solution.status.ok, round(solution.value, 4), solution.weights.round(4).tolist()
    (True, 4.5, [0.0, 0.0, 2.0, 2.0])

    Attributes:
        value: the worst mean, `sum p xi C`; NaN when there is no solution.
        weights: the density xi, cleaned: not negative, of mass 1.
        gap: dual less primal value, in units of the losses: the worst mean is no larger than `value + gap`.
        residual: the largest violation of a constraint, of mass 1 or of `xi >= 0`, before cleaning.
        status: how the solver ended.
        iterations: how many it made.
    """

    value: float
    weights: Float[np.ndarray, " R"]
    gap: float
    residual: float
    status: EnvelopeStatus
    iterations: int


class EnvelopeSolver(Record):
    """What finds the worst density of an envelope: `Clarabel()`, or a subclass of your own."""

    # Whether it finds a worst xi that is no density, where the user's constraints allow one.
    leaves_densities: ClassVar[bool] = True

    @abc.abstractmethod
    def worst(self, program: Program, losses: Float[np.ndarray, " R"]) -> EnvelopeSolution:
        """The density that maximises `sum p xi losses`, at losses of range 1."""


class Clarabel(EnvelopeSolver):
    """An interior-point solver: accurate, some milliseconds a solve at 30 draws.

    Args:
        tolerance: of the duality gap and of feasibility.

    >>> import prudent as pr
    >>> envelope = pr.Envelope(lambda xi, p: [xi <= 2.0], solver=pr.Clarabel(tolerance=1e-6))
    >>> envelope.solve([1.0, 2.0, 3.0, 6.0]).gap < 1e-5
    True
    """

    tolerance: float = field(static=True, default=1e-9)

    def __check_init__(self) -> None:
        require_number("Clarabel tolerance", self.tolerance, "(0, 1)")

    def worst(self, program: Program, losses: Float[np.ndarray, " R"]) -> EnvelopeSolution:
        """By one program."""
        return program.largest(program.probabilities * losses, self.tolerance, imposed=program.densities.impose)


def load_cvxpy() -> Any:
    """cvxpy, or an error that says how to install it."""
    try:
        import cvxpy
    except ImportError:
        raise InputError('an Envelope needs cvxpy, which is not installed: pip install "prudent[convex]"') from None
    return cvxpy


class SetOfDensities(NamedTuple):
    """All that defines an envelope's programs but the weights of the draws; hashable."""

    constraints: Callable[[Any, np.ndarray], Sequence[Any]]
    norm_bound: float | None
    order: float
    impose: bool
    solver: EnvelopeSolver


class Program:
    """An envelope at given weights, with the losses as the only parameter."""

    def __init__(self, densities: SetOfDensities, probabilities: np.ndarray):
        cvxpy = load_cvxpy()
        self.densities = densities
        self.probabilities = probabilities
        self._lock = threading.Lock()
        self.xi = cvxpy.Variable(probabilities.size, name="xi")
        self._direction = cvxpy.Parameter(probabilities.size, name="direction")
        self.own = _user_constraints(densities, self.xi, probabilities)
        self._sign = [self.xi >= 0]
        self._mass = [probabilities @ self.xi == 1.0]
        self._norm = _norm_constraint(densities, self.xi, probabilities)
        self._problems: dict[tuple[bool, bool], Any] = {}

    def solve(self, losses: np.ndarray) -> EnvelopeSolution:
        """The density that maximises `sum p xi losses`, at losses of range 1."""
        with self._lock:
            return self.densities.solver.worst(self, losses)

    def extreme(self, direction: Any, imposed: bool = False, sign: bool = False) -> EnvelopeSolution:
        """The largest `direction @ xi` over the user's constraints, with the requirements of a density or without."""
        with self._lock:
            direction = np.broadcast_to(np.asarray(direction, float), self.probabilities.shape)
            return self.largest(direction, 1e-8, imposed, sign)

    def _problem(self, imposed: bool, sign: bool) -> Any:
        cvxpy = load_cvxpy()
        if (imposed, sign) not in self._problems:
            added = self._sign + self._mass + self._norm if imposed else self._sign if sign else []
            # Where the user's constraints are the whole set, the norm bound is one of them.
            bounded = self._norm if not self.densities.impose and not imposed else []
            objective = cvxpy.Maximize(self._direction @ self.xi)
            self._problems[imposed, sign] = cvxpy.Problem(objective, [*self.own, *added, *bounded])
        return self._problems[imposed, sign]

    def largest(
        self, direction: np.ndarray, tolerance: float, imposed: bool = False, sign: bool = False
    ) -> EnvelopeSolution:
        """As `extreme`, by Clarabel and for who holds the lock."""
        cvxpy, problem = load_cvxpy(), self._problem(imposed, sign)
        self._direction.value = direction
        nothing = np.full(self.probabilities.shape, np.nan)
        settings = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), tolerance)
        try:
            data, chain, inverse = problem.get_problem_data(cvxpy.CLARABEL, solver_opts=settings)
            answer = chain.solve_via_data(problem, data, solver_opts=settings)
        except cvxpy.SolverError:
            return EnvelopeSolution(np.nan, nothing, np.nan, np.nan, EnvelopeStatus.FAILED, 0)
        residual, gap = max(float(answer.r_prim), float(answer.r_dual)), abs(answer.obj_val - answer.obj_val_dual)
        stopped = EnvelopeStatus.INACCURATE if max(residual, gap) <= 1e-5 else EnvelopeStatus.FAILED
        status = _STATUSES.get(str(answer.status), stopped)
        if not status.usable:
            return EnvelopeSolution(np.nan, nothing, np.nan, np.nan, status, int(answer.iterations))
        # `Problem.unpack_results` would warn of inaccuracy; the status says so here.
        solution = chain.invert(answer, inverse)
        xi = np.asarray(solution.primal_vars[self.xi.id], dtype=float)
        return EnvelopeSolution(float(direction @ xi), xi, float(gap), residual, status, int(answer.iterations))


_STATUSES = {
    "Solved": EnvelopeStatus.OPTIMAL,
    "AlmostSolved": EnvelopeStatus.INACCURATE,
    "PrimalInfeasible": EnvelopeStatus.INFEASIBLE,
    "AlmostPrimalInfeasible": EnvelopeStatus.INFEASIBLE,
    "DualInfeasible": EnvelopeStatus.UNBOUNDED,
    "AlmostDualInfeasible": EnvelopeStatus.UNBOUNDED,
}


def _user_constraints(densities: SetOfDensities, xi: Any, probabilities: np.ndarray) -> list[Any]:
    cvxpy = load_cvxpy()
    where = f"for {probabilities.size} draws"
    with explained(lambda error: f"the envelope's constraints(xi, probabilities) fail {where}: {error!r}", ()):
        constraints = densities.constraints(xi, probabilities)
    kind = cvxpy.constraints.constraint.Constraint
    if not isinstance(constraints, list | tuple) or not all(isinstance(each, kind) for each in constraints):
        raise InputError(
            f"the envelope's constraints must be a list of cvxpy constraints such as [xi <= 2], got {constraints!r}"
        )
    for each in constraints:
        if not each.is_dcp():
            raise InputError(
                f"the envelope's constraint {each} does not follow cvxpy's rules of convexity: equalities must be "
                "affine in xi, and in `f <= g` f must be convex, g concave"
            )
    return list(constraints)


def _norm_constraint(densities: SetOfDensities, xi: Any, probabilities: np.ndarray) -> list[Any]:
    cvxpy = load_cvxpy()
    if densities.norm_bound is None:
        return []
    if np.isinf(densities.order):
        return [xi[np.flatnonzero(probabilities > 0)] <= densities.norm_bound]
    weighted = cvxpy.multiply(probabilities ** (1.0 / densities.order), xi)
    return [cvxpy.pnorm(weighted, densities.order) <= densities.norm_bound]


@functools.lru_cache(maxsize=KEPT_PROGRAMS)
def program_of(densities: SetOfDensities, probabilities: bytes) -> Program:
    """The program of a set of densities at these weights (the bytes of a float64 array)."""
    return Program(densities, np.frombuffer(probabilities).copy())
