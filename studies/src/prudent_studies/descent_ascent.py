"""Alternating gradient descent-ascent on the Lagrangian of an envelope (equation 10 of the paper)."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from prudent import EnvelopeSolution, EnvelopeStatus, InputError
from prudent.arrays import require_number, require_size
from prudent.records import field
from prudent.risks import EnvelopeSolver, Program

# Lagrangians that are kept, least recently used first to go.
KEPT_PROGRAMS = 64

# Iterations between two looks at residual and gap.
CHECKED_EVERY = 64


class DescentAscent(EnvelopeSolver):
    """Alternating gradient descent-ascent on the sampled Lagrangian, as the paper proposes for any envelope.

    xi ascends within `xi >= 0` and the norm bound, the multipliers of the mass, of your equalities (free) and of your
    inequalities (>= 0) descend. The Lagrangian is linear in both for affine constraints, where the plain
    iterates circle the saddle point: the multipliers are extrapolated, and the search starts again from the average
    of the iterates whenever that is closer. A norm bound of an order other than 2 and infinity gets a multiplier, too.

    Slower and less accurate than `Clarabel()`; a result short of the tolerance is reported as such.

    Args:
        iterations: at most this many.
        step: of the iteration as a share of the longest one that is safe, in (0, 1].
        tolerance: of residual and gap, in units of the range of the losses.

    >>> import prudent as pr
    >>> from prudent_studies.descent_ascent import DescentAscent
    >>> solution = pr.Envelope(lambda xi, p: [xi <= 2.0], solver=DescentAscent()).solve([1.0, 2.0, 3.0, 6.0])
    >>> solution.status.ok, round(solution.value, 2)
    (True, 4.5)
    """

    leaves_densities: ClassVar[bool] = False

    iterations: int = field(static=True, default=20_000)
    step: float = field(static=True, default=0.9)
    tolerance: float = field(static=True, default=1e-5)

    def __check_init__(self) -> None:
        require_size("DescentAscent iterations", self.iterations)
        require_number("DescentAscent step", self.step, "(0, 1]")
        require_number("DescentAscent tolerance", self.tolerance, "(0, 1)")

    def worst(self, program: Program, losses: Float[np.ndarray, " R"]) -> EnvelopeSolution:
        """The density at the saddle point, at losses of range 1."""
        problem = _lagrangian(program)
        cost = problem.cost(losses)
        z, duals = problem.start()
        step = self.step / problem.operator_norm
        weight = 1.0  # of the primal against the dual step
        origin, best, made = (z, duals), np.inf, 0
        past, total_z, total_duals, count = duals, np.zeros_like(z), np.zeros_like(duals), 0
        found, residual, gap = z, np.inf, np.inf
        while made < self.iterations:
            for _ in range(min(CHECKED_EVERY, self.iterations - made)):
                ahead = 2.0 * duals - past
                z = problem.project(z + step / weight * (cost - problem.pull(z, ahead)))
                past, duals = duals, problem.clip(duals + step * weight * problem.values(z))
                total_z, total_duals, count, made = total_z + z, total_duals + duals, count + 1, made + 1
            candidates = [(z, duals), (total_z / count, total_duals / count)]
            reports = [problem.report(cost, *candidate) for candidate in candidates]
            chosen = int(np.argmin([max(report) for report in reports]))
            found, (residual, gap) = candidates[chosen][0], reports[chosen]
            error = max(residual, gap)
            if error <= self.tolerance:
                break
            if not error <= 1e3:  # curved constraints can ask for a shorter step than their slopes say
                step, weight = 0.5 * step, 1.0
                z, duals = origin = problem.start()
                past, total_z, total_duals, count = duals, np.zeros_like(z), np.zeros_like(duals), 0
                continue
            if error <= 0.3 * best or count >= 0.3 * made:
                moved = [np.linalg.norm(new - old) for new, old in zip(candidates[chosen], origin, strict=True)]
                if min(moved) > 1e-12:
                    weight = np.clip(np.sqrt(weight * moved[1] / moved[0]), 1e-3, 1e3)
                best, origin = error, candidates[chosen]
                z, duals = origin
                past, total_z, total_duals, count = duals, np.zeros_like(z), np.zeros_like(duals), 0
        converged, xi = max(residual, gap) <= self.tolerance, problem.xi(found)
        status = EnvelopeStatus.OPTIMAL if converged else EnvelopeStatus.NOT_CONVERGED
        return EnvelopeSolution(float((program.probabilities * losses) @ xi), xi, gap, residual, status, made)


class Lagrangian:
    """An envelope's constraints as arrays: affine ones as matrices, others by cvxpy's values and gradients.

    The unknowns z are `sqrt(p) xi`, whose Euclidean geometry is that of L2 under the posterior, and then the
    user's own variables. Affine constraints are scaled to rows of length 1.
    """

    def __init__(self, xi: Any, constraints: list[Any], probabilities: np.ndarray, bound: float | None, order: float):
        self.probabilities = probabilities
        self.order, self.bound = order, bound
        others = {each.id: each for constraint in constraints for each in constraint.variables() if each.id != xi.id}
        self._variables = [xi, *others.values()]
        self._sizes = [each.size for each in self._variables]
        floor = 1e-3 / probabilities.size  # draws of weight 0 need some scale
        self._root = np.concatenate(
            [np.sqrt(np.maximum(probabilities, floor)), *(np.ones(size) for size in self._sizes[1:])]
        )
        self._draws = probabilities.size
        for each in others.values():
            _refuse_attributes(each)
        self._lowest = np.concatenate(
            [np.zeros(xi.size), *(np.full(each.size, 0.0 if each.is_nonneg() else -np.inf) for each in others.values())]
        )
        # What mass 1 implies; it keeps curved constraints from blowing up.
        self._highest = np.full(self._root.size, np.inf)
        self._highest[: self._draws] = 1.0 / self._root[: self._draws]
        signed = [_signed(constraint) for constraint in constraints]
        affine = [(expression, equality) for expression, equality in signed if expression.is_affine()]
        self._curved = [expression for expression, _ in signed if not expression.is_affine()]
        self._set(np.zeros(self._root.size))
        rows = [np.concatenate([probabilities, np.zeros(self._root.size - self._draws)])[None]]
        constants, equal = [np.array([-1.0])], [np.array([True])]
        for expression, equality in affine:
            rows.append(self._jacobian(expression))
            constants.append(np.ravel(expression.value, order="F").astype(float))
            equal.append(np.full(expression.size, equality))
        self._matrix = np.concatenate(rows) / self._root
        lengths = np.maximum(np.linalg.norm(self._matrix, axis=1), 1e-12)
        self._matrix /= lengths[:, None]
        self._constant = np.concatenate(constants) / lengths
        self._lengths = lengths
        self._weighted_norm = bound is not None and order not in (2.0, np.inf)
        curves = sum(expression.size for expression in self._curved) + int(self._weighted_norm)
        self._equality = np.concatenate([*equal, np.zeros(curves, bool)])
        self._curve_lengths = np.ones(curves)
        slopes = np.array([self._curves(point)[1] for point in self._probes()])
        lengths = np.linalg.norm(slopes, axis=2).max(axis=0)
        self._curve_lengths = np.where(lengths > 1e-6, lengths, 1.0)
        slopes /= self._curve_lengths[:, None]
        self.operator_norm = max(float(np.linalg.norm(np.concatenate([self._matrix, slope]), 2)) for slope in slopes)

    def _probes(self) -> list[np.ndarray]:
        """Densities far apart, where the slopes of curved constraints are looked up: all mass on one draw or half."""
        order = np.argsort(-self.probabilities)
        probes = []
        for number in (1, (self._draws + 1) // 2):
            z, _ = self.start()
            plain = np.where(np.isin(np.arange(self._draws), order[:number]), 1.0, 0.0)
            z[: self._draws] = plain / (self.probabilities @ plain) * self._root[: self._draws]
            z[self._draws :] = 1.0
            probes.append(z)
        return probes

    def start(self) -> tuple[np.ndarray, np.ndarray]:
        """The density 1, everything else 0."""
        z = np.concatenate([np.ones(self._draws), np.zeros(self._root.size - self._draws)]) * self._root
        return z, np.zeros(self._equality.size)

    def cost(self, losses: np.ndarray) -> np.ndarray:
        """The gradient of `sum p xi losses`."""
        return np.concatenate([self.probabilities * losses, np.zeros(self._root.size - self._draws)]) / self._root

    def xi(self, z: np.ndarray) -> np.ndarray:
        """The density in z."""
        return (z / self._root)[: self._draws]

    def project(self, z: np.ndarray) -> np.ndarray:
        """Onto `xi >= 0`, the norm bound and the signs of the user's own variables."""
        z = np.clip(z, self._lowest, self._highest)
        if self.bound is None or self._weighted_norm:
            return z
        carried = np.flatnonzero(self.probabilities > 0)
        if np.isinf(self.order):
            z[carried] = np.minimum(z[carried], self.bound * self._root[carried])
        else:
            norm = np.sqrt(self.probabilities @ self.xi(z) ** 2)
            z[carried] *= min(1.0, self.bound / max(norm, 1e-300))
        return z

    def clip(self, duals: np.ndarray) -> np.ndarray:
        """Multipliers of inequalities are not negative."""
        return np.where(self._equality, duals, np.maximum(duals, 0.0))

    def values(self, z: np.ndarray) -> np.ndarray:
        """How much each constraint is violated (positive), in its scaled units."""
        return np.concatenate([self._matrix @ z + self._constant, self._curves(z, slopes=False)[0]])

    def pull(self, z: np.ndarray, duals: np.ndarray) -> np.ndarray:
        """The gradient of `sum of multipliers x constraints` by z."""
        affine = self._constant.size
        pulled = duals[:affine] @ self._matrix
        return pulled + duals[affine:] @ self._curves(z)[1] if self._equality.size > affine else pulled

    def report(self, cost: np.ndarray, z: np.ndarray, duals: np.ndarray) -> tuple[float, float]:
        """The residual (of the constraints, and of the slope in the user's own variables) and the duality gap.

        The Lagrangian is concave in z, so it lies below its tangent at z; the tangent's maximum over a set that
        holds the envelope bounds the worst mean from above.
        """
        values = self.values(z)
        broken = np.where(self._equality, np.abs(values), np.maximum(values, 0.0))
        broken *= np.concatenate([self._lengths, self._curve_lengths])
        slope = (cost - self.pull(z, duals)) * self._root
        own, below = slope[self._draws :], self._lowest[self._draws :] == 0
        stray = np.where(below, np.maximum(own, 0.0), np.abs(own))
        p = self.probabilities
        carried = p > 0
        upward = np.maximum(slope[: self._draws][carried], 0.0)
        above = (upward / p[carried]).sum()
        if self.bound is not None:
            above = min(above, self.bound * _dual_norm(upward / p[carried], p[carried], self.order))
        # What is left at z itself: slope of the tangent, and multipliers on constraints that do not bind.
        gap = above - slope[: self._draws] @ self.xi(z) - duals @ values
        return float(max(broken.max(), stray.max(initial=0.0))), float(abs(gap))

    def _curves(self, z: np.ndarray, slopes: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Values and Jacobian of the constraints that are not affine."""
        values, rows = [np.empty(0)], [np.empty((0, self._root.size))]
        if self._curved:
            self._set(z)
            values += [np.ravel(expression.value, order="F").astype(float) for expression in self._curved]
            rows += [self._jacobian(expression) / self._root for expression in self._curved] if slopes else []
        if self._weighted_norm:
            assert self.bound is not None
            xi = np.maximum(self.xi(z), 1e-12)
            norm = (self.probabilities @ xi**self.order) ** (1.0 / self.order)
            values.append(np.array([norm - self.bound]))
            row = np.zeros((1, self._root.size))
            row[0, : self._draws] = self.probabilities * (xi / norm) ** (self.order - 1.0)
            rows.append(row / self._root)
        jacobian = np.concatenate(rows)
        return np.concatenate(values) / self._curve_lengths, jacobian / self._curve_lengths[: len(jacobian), None]

    def _set(self, z: np.ndarray) -> None:
        # Inside the domain of entropies and logarithms, too.
        plain = np.maximum(z / self._root, np.where(self._lowest == 0, 1e-12, -np.inf))
        for variable, value in zip(self._variables, np.split(plain, np.cumsum(self._sizes)[:-1]), strict=True):
            variable.value = value.reshape(variable.shape, order="F")

    def _jacobian(self, expression: Any) -> np.ndarray:
        gradient = expression.grad
        blocks = []
        for variable, size in zip(self._variables, self._sizes, strict=True):
            block = gradient.get(variable, 0.0)
            if block is None:
                raise InputError(f"{expression} has no gradient at {variable.value}; use solver=Clarabel()")
            dense = np.asarray(block.todense() if hasattr(block, "todense") else block, dtype=float)
            blocks.append(
                np.broadcast_to(dense.reshape(-1, expression.size) if dense.ndim else dense, (size, expression.size))
            )
        return np.concatenate(blocks).T


@functools.lru_cache(maxsize=KEPT_PROGRAMS)
def _lagrangian(program: Program) -> Lagrangian:
    densities = program.densities
    return Lagrangian(program.xi, program.own, program.probabilities, densities.norm_bound, densities.order)


def _signed(constraint: Any) -> tuple[Any, bool]:
    """The expression that is <= 0 (False) or = 0 (True)."""
    kind = type(constraint).__name__
    if kind in ("Equality", "Zero"):
        return constraint.expr, True
    if kind in ("Inequality", "NonPos"):
        return constraint.expr, False
    if kind == "NonNeg":
        return -constraint.expr, False
    raise InputError(f"DescentAscent takes equalities and inequalities, not the cone constraint {kind}; use Clarabel()")


def _dual_norm(values: np.ndarray, probabilities: np.ndarray, order: float) -> float:
    """The largest `sum p values xi` over xi whose norm of this order is 1."""
    if order == 1.0:
        return float(values.max(initial=0.0))
    conjugate = 1.0 if np.isinf(order) else order / (order - 1.0)
    top = values.max(initial=0.0)
    return float(top * (probabilities @ (values / top) ** conjugate) ** (1.0 / conjugate)) if top > 0 else 0.0


def _refuse_attributes(variable: Any) -> None:
    """Only the sign of a variable of the user's own is projected onto; any other attribute would be lost."""
    for name, value in variable.attributes.items():
        given = value is not None and value is not False
        if given and name != "nonneg":
            raise InputError(
                f"DescentAscent knows no variables with {name}={value}; write it as a constraint, or use Clarabel()"
            )
