"""The end of a descent: Newton's method on the kinks, the limits and the face of the set at which it has arrived.

Linearised losses find vertices and kinks in a few steps. Where the optimum is curved they see no bend, and close in on
it slowly: what is left to gain falls below every tolerance while the policy is still some digits away. Let J densities
W tie at the optimum, each of one of the losses, with multipliers lambda: those of the objective sum to 1, those of a
limit to its multiplier. Then, along the directions in which x is free,

    sum_j lambda_j <W_j, dL_j/dx> = 0,    <W_j, C> = t,    <W_j, D> = aim,    sum of the objective's lambda = 1,

is as many equations as unknowns, which Newton's method solves to rounding.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..arrays import to_numpy
from ..objectives import slopes_on
from .descent import ROUNDING
from .linear_model import LinearModel, Minimum
from .question import Question, assess_rows
from .space import Space, flat, unflat

# Entries this close to their least value may be there; within this radius the densities that tie are looked for.
NEAR, RADIUS = 1e-6, 1e-4

# Densities closer than this share of their largest entry are one, of a risk without a kink there.
ALIKE = 1e-2

# An entry at its least value stays there if leaving it costs more than this share of the steepest slope.
COSTLY = 1e-6

# Difference for second derivatives; Newton steps; most models of a difference one way; how far it may lead.
DIFFERENCE, STEPS, MOST_MODELS, FARTHEST = 1e-6, 6, 20_000, 1e-2

# A limit that is broken by less than this share of its unit is kept.
KEPT = 1e-7


class Polished(NamedTuple):
    """An optimum: parameters with an axis of length 1, the risks there, the multipliers of the limits."""

    parameters: Any
    values: Float[np.ndarray, " G"]
    multipliers: Float[np.ndarray, " L"]


class _Choice(NamedTuple):
    """A choice x with its losses, their derivatives by x, and their risks."""

    x: Float[np.ndarray, " N"]
    losses: Float[np.ndarray, "G R"]
    slopes: tuple[Float[np.ndarray, "R N"], ...]
    values: Float[np.ndarray, " G"]


class _Around(NamedTuple):
    """The choices near the one that a descent has arrived at.

    Attributes:
        space, question: of the descent.
        like: parameters that have the shape of all others, with an axis of length 1.
    """

    space: Space
    question: Question
    like: Any

    def parameters(self, x: Float[np.ndarray, "K N"]) -> Any:
        """Return the parameters of choices; of tables, what the policy class makes of them."""
        if self.space.table is None:
            return unflat(x, self.like)
        return to_numpy(self.space.objective.from_point(self.points(x)))

    def points(self, x: Float[np.ndarray, "K N"]) -> Float[np.ndarray, "K ..."]:
        """Return the points of choices."""
        if self.space.table is None:
            return np.asarray(self.space.objective.points(unflat(x, self.like)))
        return x.reshape(len(x), *self.space.shape(self.like))

    def at(self, x: Float[np.ndarray, "K N"]) -> list[_Choice]:
        """Return losses, derivatives and risks of choices."""
        points, question = self.points(x), self.question
        count, draws = len(x), len(question.draws)
        which, order = np.divmod(np.arange(count * draws), draws)
        parts = [slopes_on(each, points, question.draws.thetas, which, order) for each in question.objectives]
        losses = np.stack([part.losses.reshape(count, draws) for part in parts], axis=1)
        rows = [part.slopes.reshape(count, draws, *points.shape[1:]) for part in parts]
        like = unflat(x, self.like) if self.space.table is None else None
        shares = question.draws.probabilities
        values = np.stack([assess_rows(risk, losses[:, g], shares)[0] for g, risk in enumerate(question.risks)], axis=1)
        return [
            _Choice(x[k], losses[k], tuple(self.space.by_choice(like, k, row[k]) for row in rows), values[k])
            for k in range(count)
        ]

    def model(self, here: _Choice, radius: float) -> LinearModel:
        """Return the linearised merit near a choice."""
        table = self.points(here.x[None])[0]
        parameters = unflat(here.x[None], self.like) if self.space.table is None else None
        region = self.space.region(parameters, table, 0, radius)
        return LinearModel(self.question, here.losses, here.slopes, region)

    def repair(self, x: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
        """Return a choice that is in the set to the last digit."""
        if self.space.table is None:
            return flat(self.space.move(unflat(x[None], self.like), x[None], np.zeros((1, len(x)))))[0]
        floor, shape = self.space.table.rows.floor, self.space.shape(self.like)
        over = np.maximum(x.reshape(shape), floor) - floor
        return (floor + (1.0 - shape[1] * floor) * over / over.sum(axis=1, keepdims=True)).ravel()

    def free_directions(self, x: np.ndarray, slope: np.ndarray) -> Float[np.ndarray, "F N"] | None:
        """Return directions along which x can move both ways at an optimum with this slope; None if not known."""
        if self.space.table is None:
            return np.eye(len(x))
        rows = self.space.table.rows
        if np.isfinite(rows.ratio):
            return None
        table = x.reshape(self.space.shape(self.like))
        free = free_entries(table, slope.reshape(table.shape), rows.floor)
        first = np.eye(table.shape[1], dtype=bool)[np.where(free, table, -1.0).argmax(axis=1)]
        return row_basis(free, first).reshape(-1, len(x))


class _Tied(NamedTuple):
    """Densities that tie, the loss that each is of, and its multiplier."""

    weights: Float[np.ndarray, "J R"]
    group: Int[np.ndarray, " J"]
    shares: Float[np.ndarray, " J"]


def polish(space: Space, question: Question, parameters: Any, prices: Float[np.ndarray, " L"]) -> Polished | None:
    """Return the optimum next to where a descent has ended; None where Newton's method finds nothing better.

    Args:
        space: of the descent.
        question: of the descent.
        parameters: where it has ended, with an axis of length 1.
        prices: of a breach there.
    """
    around = _Around(space, question, parameters)
    x = flat(parameters) if space.table is None else np.asarray(space.objective.points(parameters)).reshape(1, -1)
    here = around.at(x)[0]
    before = around.model(here, 1.0).minimise(prices)
    near = around.model(here, RADIUS).minimise(before.prices)
    found = _solve_face(around, here, near) if near.planes else None
    if found is None:
        return None
    x, tied = found
    there = around.at(around.repair(x)[None])[0]
    after = around.model(there, 1.0).minimise(before.prices)
    fell = float(question.merit(here.values, prices) - question.merit(there.values, prices))
    rounding = ROUNDING * float(np.abs(here.losses[0]).max())
    worse = after.most > before.most + rounding or fell < -rounding - 1e-9 * question.units[0]
    if worse or np.any(question.breach(there.values) > KEPT * question.units[1:]):
        return None
    multipliers = np.array([tied.shares[tied.group == j + 1].sum() for j in range(question.limits)])
    return Polished(around.parameters(there.x[None]), there.values, np.maximum(multipliers, 0.0))


def _solve_face(around: _Around, here: _Choice, near: Minimum) -> tuple[Float[np.ndarray, " N"], _Tied] | None:
    """Return the choice that solves the equations of the densities that tie, on the face that it is on."""
    planes, shares = zip(*near.planes, strict=True)
    weights, group = np.stack([plane.weights for plane in planes]), np.array([plane.g for plane in planes])
    kept, total = keep_different(weights, np.array(shares), group)
    tied = _Tied(weights[kept], group[kept], total)
    basis = around.free_directions(here.x, np.sum([share * plane.slope for plane, share in near.planes], axis=0))
    if basis is None or len(basis) * here.losses.size > MOST_MODELS:
        return None
    for _ in range(len(here.x)):
        found = _newton(around, here, tied, basis)
        if found is None or np.abs(found[0] - here.x).max() > FARTHEST:
            return None
        x, shares = found
        parameters = unflat(x[None], around.like) if around.space.table is None else None
        region = around.space.region(parameters, around.points(x[None])[0], 0, 1.0)
        outside = region.bounds()[0] > 1e-12
        if not outside.any():
            return x, tied._replace(shares=shares)
        # An entry that would fall below its least value is not free.
        basis = basis[~(np.abs(basis) @ outside > 0)]
    return None


def keep_different(
    densities: Float[np.ndarray, "J R"], shares: Float[np.ndarray, " J"], group: Int[np.ndarray, " J"]
) -> tuple[list[int], Float[np.ndarray, " kept"]]:
    """Return which densities are kept, and their multipliers; those of a group that are alike are one."""
    kept: list[int] = []
    total = np.zeros(len(shares))
    for j in np.argsort(-shares, kind="stable"):
        same = [
            k
            for k in kept
            if group[j] == group[k] and np.abs(densities[j] - densities[k]).max() <= ALIKE * densities[k].max()
        ]
        total[same[0] if same else j] += shares[j]
        kept += [] if same or shares[j] <= 0 else [int(j)]
    return kept, total[kept]


def free_entries(table: np.ndarray, slope: np.ndarray, floor: float) -> Bool[np.ndarray, "S A"]:
    """Return entries that are not held at their least value: away from it, or with nothing to lose by leaving it."""
    away = table > floor + NEAR
    level = np.where(away, slope, -np.inf).max(axis=1, keepdims=True)
    return away | (slope - level <= COSTLY * np.abs(slope).max())


def row_basis(free: Bool[np.ndarray, "S A"], first: Bool[np.ndarray, "S A"]) -> Float[np.ndarray, "F S A"]:
    """Return directions from one entry of each row to each other one that is free."""
    moving = np.argwhere(free & ~first)
    basis = np.zeros((len(moving), *free.shape))
    basis[np.arange(len(moving)), moving[:, 0], moving[:, 1]] = 1.0
    return basis - basis.sum(axis=2, keepdims=True) * first


def _newton(
    around: _Around, here: _Choice, tied: _Tied, basis: Float[np.ndarray, "F N"]
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " J"]] | None:
    """Return the choice that solves the equations, and its multipliers; None without success."""
    length = np.inf
    for _ in range(STEPS):
        change, shares = _newton_step(around, here, tied, basis)
        size = float(np.abs(change).max(initial=0.0))
        if not np.isfinite(size) or size > min(max(length, 1e-13), FARTHEST):
            break
        length, tied = size, tied._replace(shares=shares)
        here = around.at((here.x + change)[None])[0]
        if not np.all(np.isfinite(here.losses)):
            return None
        if size <= 1e-15:
            break
    return (here.x, tied.shares) if np.isfinite(length) else None


def _newton_step(
    around: _Around, here: _Choice, tied: _Tied, basis: Float[np.ndarray, "F N"]
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " J"]]:
    """Return a Newton step along the basis, and the new multipliers."""
    question, count, group = around.question, len(basis), tied.group
    alone = np.bincount(group)[group] == 1

    def weights_at(there: _Choice, j: int) -> np.ndarray:
        # Without a kink the density is a smooth function of the losses, and bends the risk as well.
        return question.density(int(group[j]), there.losses[group[j]]) if alone[j] else tied.weights[j]

    slope = np.zeros((2 * count, count))
    for k, there in enumerate(around.at(here.x + DIFFERENCE * np.concatenate([basis, -basis])) if count else []):
        for j, g in enumerate(group):
            slope[k] += tied.shares[j] * (weights_at(there, j) @ there.slopes[g] @ basis.T)
    bend = (slope[:count] - slope[count:]) / (2.0 * DIFFERENCE)
    weights = [weights_at(here, j) for j in range(len(group))]
    normals = np.stack([weights[j] @ here.slopes[g] @ basis.T for j, g in enumerate(group)])
    heights = np.array([weights[j] @ (here.losses[g] - here.values[g]) for j, g in enumerate(group)])
    # A limit's densities are to reach its aim; the objective's, one level.
    heights = heights + np.concatenate([[0.0], here.values[1:] - question.aims])[group]
    units = np.where(question.units > 0, question.units, 1.0)
    scale = 1.0 / units[group]
    system = np.zeros((count + len(group) + 1, count + len(group) + 1))
    normals = normals * scale[:, None]
    system[:count, :count] = 0.5 * (bend + bend.T) / units[0]
    system[:count, count:-1], system[count:-1, :count] = normals.T, normals
    system[count:-1, -1] = system[-1, count:-1] = np.where(group == 0, -1.0, 0.0)
    right = np.concatenate([np.zeros(count), -heights * scale, [-1.0]])
    found = np.linalg.lstsq(system, right, rcond=1e-14)[0]
    # Multipliers are found in units of the objective for a unit of the limit.
    return found[:count] @ basis, found[count:-1] * units[0] * scale
