"""Any coherent risk by its envelope (Definition 3.1 of the paper): a set of densities written in cvxpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from ..arrays import require_number
from ..errors import InputError
from ..records import field, tree_leaves
from .base import Risk, Sample, checked_sample
from .envelope_programs import (
    Clarabel,
    EnvelopeSolution,
    EnvelopeSolver,
    EnvelopeStatus,
    Program,
    SetOfDensities,
    load_cvxpy,
    program_of,
)

# Draws whose sign is checked beforehand, one program each, where the constraints are the whole set. What is found for
# given losses is checked at all draws.
LARGEST_SIGN_CHECK = 64

# How far a set of densities may stray from mass 1 and from xi >= 0, by the solver's accuracy.
SLACK = 1e-5


class Envelope(Risk):
    """The worst mean over a set of densities that you write down: any coherent risk (Theorem 1 of the paper).

    Args:
        constraints: `(xi, probabilities) -> list` of cvxpy constraints, convex under cvxpy's rules; `xi` is the
            `cvxpy.Variable(R)` and `probabilities` a NumPy array `[R]`. Further cvxpy variables may be used.
        norm_bound: B in `(sum p xi^q)^(1/q) <= B`; no bound when left out.
        order: q >= 1 of that norm; `math.inf` bounds every xi.
        impose: add `xi >= 0` and `sum p xi = 1`; otherwise your constraints must imply both. This is checked beforehand
            at up to 64 draws, and of every worst density at all draws: one that is none gives NaN and its status.
        solver: `Clarabel()`, or an `EnvelopeSolver` of your own.

    Inside a solver's loop each assessment is a convex program of some milliseconds; the risks in closed form take
    microseconds. The program is compiled once for a number of draws and their weights.

    It has no standard error: the set may depend on the weights of the draws in any way.

    >>> import prudent as pr
    >>> half = pr.Envelope(lambda xi, p: [xi <= 2.0])  # the same as CVaR(0.5)
    >>> half([1.0, 2.0, 3.0, 6.0]).value.round(4).tolist()
    4.5
    """

    is_program: ClassVar[bool] = True

    constraints: Callable[[Any, np.ndarray], Sequence[Any]] = field(static=True)
    norm_bound: float | None = field(static=True, default=None)
    order: float = field(static=True, default=2.0)
    impose: bool = field(static=True, default=True)
    solver: EnvelopeSolver = field(static=True, default=Clarabel())

    def __check_init__(self) -> None:
        load_cvxpy()
        if not callable(self.constraints):
            raise InputError(f"Envelope needs a function (xi, probabilities) -> constraints, got {self.constraints!r}")
        if not isinstance(self.solver, EnvelopeSolver):
            raise InputError(f"Envelope's solver must be Clarabel() or another EnvelopeSolver, got {self.solver!r}")
        require_number("Envelope order", self.order, "[1, inf]")
        if self.norm_bound is not None:
            fix = "the norm of xi = 1 is 1; leave it out for no bound"
            require_number("Envelope norm_bound", self.norm_bound, "[1, inf)", fix)

    def density(self, losses: Sample, probabilities: Sample) -> Sample:
        """The worst density by a convex program; NaN where the solver fails."""
        solution = _solved(program_of(self._set(), np.asarray(probabilities).tobytes()), np.asarray(losses))
        return solution.weights if solution.status.usable else np.full_like(losses, np.nan)

    def influence(self, losses: Sample, probabilities: Sample) -> Sample:
        """NaN: the weights of the draws may enter the constraints, and how is not known."""
        return np.full_like(losses, np.nan)

    def solve(self, losses: Any, probabilities: Any = None) -> EnvelopeSolution:
        """The worst density with the solver's report.

        Args:
            losses: `[R]` one loss a posterior draw.
            probabilities: `[R]` weights of the draws summing to 1; equal when left out.
        """
        losses, probabilities = checked_sample(losses, probabilities)
        return _solved(program_of(self._set(), probabilities.tobytes()), losses)

    def _set(self) -> SetOfDensities:
        return SetOfDensities(self.constraints, self.norm_bound, float(self.order), self.impose, self.solver)


def _solved(program: Program, losses: np.ndarray) -> EnvelopeSolution:
    """Solve at losses moved and scaled to a range of 1, and undo that."""
    p = program.probabilities
    nothing = np.full(losses.shape, np.nan)
    if not np.all(np.isfinite(losses)):
        return EnvelopeSolution(np.nan, nothing, np.nan, np.nan, EnvelopeStatus.FAILED, 0)
    middle, width = p @ losses, np.ptp(losses[p > 0])
    scale = width if width > 0 else 1.0
    scaled = np.where(p > 0, (losses - middle) / scale, 0.0)
    raw = _checked(program, program.solve(scaled), scaled)
    weights = np.maximum(raw.weights, 0.0)
    if not p @ weights > 0:
        return raw._replace(value=np.nan, weights=nothing, gap=np.nan)
    weights = np.where(p > 0, weights, np.minimum(weights, 1.0)) / (p @ weights)
    return raw._replace(value=float((p * weights) @ losses), weights=weights, gap=float(scale * raw.gap))


def _checked(program: Program, raw: EnvelopeSolution, losses: np.ndarray) -> EnvelopeSolution:
    """With how far the worst xi is from a density; where the user's set is all there is, its worst xi must be one.

    A solver that stays within the densities does not see the rest of the user's set, so look for its worst xi here.
    """
    whole, worst = not program.densities.impose, raw
    if whole and not program.densities.solver.leaves_densities:
        worst = program.extreme(program.probabilities * losses)
    if np.isnan(worst.weights).any():
        return worst
    carried = worst.weights[program.probabilities > 0]
    stray = max(-carried.min(), abs(program.probabilities @ worst.weights - 1.0))
    residual = max(raw.residual, float(stray))
    if whole and stray > SLACK * max(1.0, np.abs(carried).max()):
        return raw._replace(
            weights=np.full_like(raw.weights, np.nan), residual=residual, status=EnvelopeStatus.NOT_A_DENSITY
        )
    return raw._replace(residual=residual)


def check_envelope(risk: Risk, draws: int) -> None:
    """Refuse an envelope inside `risk` (parts of a mixture included) that has no worst density for equal weights.

    The error says which requirement the constraints contradict.
    """
    for part in tree_leaves(risk, is_leaf=lambda node: isinstance(node, Envelope)):
        if isinstance(part, Envelope):
            program = program_of(part._set(), np.full(draws, 1.0 / draws).tobytes())
            if part.impose:
                _check_feasible(program)
            else:
                _check_coherent(program)


def _check_feasible(program: Program) -> None:
    found = program.extreme(0.0, imposed=True).status
    if found.usable:
        return
    if found is not EnvelopeStatus.INFEASIBLE:
        raise InputError(f"the envelope's program could not be solved ({found.value}); rescale its constraints")
    _require_any(program)
    draws = program.probabilities.size
    if program.extreme(0.0, sign=True).status is EnvelopeStatus.INFEASIBLE:
        for k in range(min(draws, LARGEST_SIGN_CHECK)):
            most = program.extreme(np.eye(draws)[k])
            if most.status is EnvelopeStatus.OPTIMAL and most.value < 0:
                raise InputError(
                    f"the envelope's constraints force xi <= {most.value:.4g} < 0 at draw {k}; a density is >= 0"
                )
        raise InputError("no xi >= 0 satisfies the envelope's constraints; a density must not be negative")
    low, high = _mass_range(program, sign=True)
    if low > 1.0 + SLACK or high < 1.0 - SLACK:
        raise InputError(
            f"the envelope's constraints force {_between(low, high)}; the mass sum p xi of a density must be 1: "
            "check the scale of xi (it is a density with regard to p, xi = 1 changes nothing)"
        )
    bound = program.densities.norm_bound
    if bound is not None:
        raise InputError(
            f"norm_bound {bound:g} (order {program.densities.order:g}) is too small for the envelope's constraints: "
            "no density of this norm satisfies them; raise it"
        )
    raise InputError("no density (xi >= 0 of mass 1) satisfies all of the envelope's constraints together; relax them")


def _check_coherent(program: Program) -> None:
    """The constraints alone must imply mass 1 and xi >= 0."""
    _require_any(program)
    low, high = _mass_range(program)
    if low < 1.0 - SLACK or high > 1.0 + SLACK:
        raise InputError(
            f"the envelope is not coherent: its constraints allow {_between(low, high)}, and it must be 1; "
            "add probabilities @ xi == 1, or use impose=True"
        )
    draws = program.probabilities.size
    for k in np.unique(np.linspace(0, draws - 1, min(draws, LARGEST_SIGN_CHECK)).astype(int)):
        least = program.extreme(-np.eye(draws)[k])
        if least.status is EnvelopeStatus.UNBOUNDED or -least.value < -SLACK * draws:
            value = "arbitrarily negative" if least.status is EnvelopeStatus.UNBOUNDED else f"{-least.value:.4g}"
            raise InputError(
                f"the envelope is not coherent: its constraints allow xi = {value} at draw {k}, and a density is >= 0; "
                "add xi >= 0, or use impose=True"
            )


def _require_any(program: Program) -> None:
    if program.extreme(0.0).status is EnvelopeStatus.INFEASIBLE:
        raise InputError("no xi satisfies the envelope's constraints: they contradict each other; drop one of them")


def _mass_range(program: Program, sign: bool = False) -> tuple[float, float]:
    ends = []
    for direction in (-1.0, 1.0):
        end = program.extreme(direction * program.probabilities, sign=sign)
        if end.status is not EnvelopeStatus.UNBOUNDED and np.isnan(end.value):
            raise InputError(f"the envelope's mass could not be found ({end.status.value}); rescale its constraints")
        ends.append(direction * (np.inf if end.status is EnvelopeStatus.UNBOUNDED else end.value))
    return ends[0], ends[1]


def _between(low: float, high: float) -> str:
    if high - low <= SLACK:
        return f"mass {low:.6g}"
    if np.isinf(low) and np.isinf(high):
        return "any mass (it is unbounded)"
    return f"mass from {low:.6g} to {high:.6g}"
