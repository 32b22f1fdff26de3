"""The end of a descent: Newton's method on the kink and the face of the tables at which the descent has arrived.

Linearised losses find vertices and kinks in a few steps. Where the optimum is curved they see no bend, and close in on
it slowly: what is left to gain falls below every tolerance while the policy is still some digits away. Let J densities
W_j tie at the optimum, with multipliers lambda, and F entries of the table be free. Then

    sum_j lambda_j <W_j, dC/dpi> = nu_s  on free entries,    <W_j, C> = t,    sum lambda = 1,    rows sum to 1,

is as many equations as unknowns, which Newton's method solves to rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..objectives import Objective, slopes_on
from ..parameter_sets import RowSet
from ..posteriors import WeightedDraws
from ..risks import Risk
from .descent import ROUNDING
from .linear_model import Linearised, TrustRegion, improve, supporting
from .prox_linear import linearised
from .sample import Sample

# Entries this close to their least value may be there; within this radius the densities that tie are looked for.
NEAR, RADIUS = 1e-6, 1e-4

# Densities closer than this share of their largest entry are one, of a risk without a kink there.
ALIKE = 1e-2

# An entry at its least value stays there if leaving it costs more than this share of the steepest slope.
COSTLY = 1e-6

# Difference for second derivatives; Newton steps; most models of one of them; how far it may lead.
DIFFERENCE, STEPS, MOST_MODELS, FARTHEST = 1e-6, 6, 10_000, 1e-2


class Polished(NamedTuple):
    """A table, its objective, and what any change of it gains at most, to first order."""

    table: Float[np.ndarray, "S A"]
    value: float
    gap: float


class PointLosses(NamedTuple):
    """The losses of tables on a fixed sample, under a risk."""

    objective: Objective
    risk: Risk
    draws: WeightedDraws

    def near(self, table: Float[np.ndarray, "S A"]) -> Linearised:
        """Losses and slopes at a table."""
        losses, slopes = slopes_at(self.objective, table[None], self.draws.thetas)
        sample = Sample(table[None], self.draws, self.risk, np.ones(1, bool))
        return linearised(sample, table, losses[0], slopes[0])


def slopes_at(
    objective: Objective, points: Float[np.ndarray, "K ..."], thetas: Float[np.ndarray, "R ..."]
) -> tuple[Float[np.ndarray, "K R"], Float[np.ndarray, "K R ..."]]:
    """Losses of each point at each draw, and their derivatives by the point."""
    shape = (len(points), len(thetas))
    losses, slopes, _ = slopes_on(objective, points, thetas, *np.divmod(np.arange(shape[0] * shape[1]), shape[1]))
    return losses.reshape(shape), slopes.reshape(*shape, *points.shape[1:])


def polish(losses: PointLosses, table: Float[np.ndarray, "S A"], rows: RowSet) -> Polished | None:
    """The optimum next to a table at which a descent has ended; None where Newton's method finds nothing better."""
    if np.isfinite(rows.ratio):
        return None
    here = losses.near(table)
    before = _judged(here, rows)
    kink = supporting(here, TrustRegion(table, rows, RADIUS))
    if kink is None:
        return None
    kept, shares = different(*kink, np.zeros(len(kink[1]), int))
    densities = kink[0][kept]
    free = free_entries(table, np.tensordot(shares @ densities, here.slopes, axes=1), rows.floor)
    moved = table
    for _ in range(table.size):
        moved = _newton(losses, here, densities, shares, free, rows.floor)
        if moved is None or np.abs(moved - table).max() > FARTHEST:
            return None
        outside = free & (moved < rows.floor)
        if not outside.any():
            break
        free = free & ~outside
    after = _judged(losses.near(moved), rows)
    size = float(np.abs(here.losses).max())
    better = after.gap < before.gap and after.value <= before.value + ROUNDING * size
    return after if better else None


def _judged(model: Linearised, rows: RowSet) -> Polished:
    value = float(model.density(model.losses) @ model.losses)
    return Polished(model.table, value, improve(model, TrustRegion(model.table, rows)).most)


def different(
    densities: Float[np.ndarray, "J R"], shares: Float[np.ndarray, " J"], group: Int[np.ndarray, " J"]
) -> tuple[list[int], Float[np.ndarray, " kept"]]:
    """Which of the densities that tie are kept, those of a group that are alike as one, and their multipliers."""
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
    """Entries that are not held at their least value: away from it, or with nothing to lose by leaving it."""
    away = table > floor + NEAR
    level = np.where(away, slope, -np.inf).max(axis=1, keepdims=True)
    return away | (slope - level <= COSTLY * np.abs(slope).max())


def row_basis(free: Bool[np.ndarray, "S A"], first: Bool[np.ndarray, "S A"]) -> Float[np.ndarray, "F S A"]:
    """From one entry of each row to each other one that is free."""
    moving = np.argwhere(free & ~first)
    basis = np.zeros((len(moving), *free.shape))
    basis[np.arange(len(moving)), moving[:, 0], moving[:, 1]] = 1.0
    return basis - basis.sum(axis=2, keepdims=True) * first


def tied_step(
    bend: Float[np.ndarray, "F F"],
    normals: Float[np.ndarray, "J F"],
    heights: Float[np.ndarray, " J"],
    level: Bool[np.ndarray, " J"],
) -> tuple[Float[np.ndarray, " F"], Float[np.ndarray, " J"]]:
    """Newton's step along F directions for J planes that tie, and their multipliers.

    Those of one `level` have the same height after it, and multipliers that sum to 1; the others have height 0.
    """
    count, tied = normals.shape[1], len(normals)
    system = np.zeros((count + tied + 1, count + tied + 1))
    system[:count, :count] = bend
    system[:count, count:-1], system[count:-1, :count] = normals.T, normals
    system[count:-1, -1] = system[-1, count:-1] = np.where(level, -1.0, 0.0)
    found = np.linalg.lstsq(system, np.concatenate([np.zeros(count), -heights, [-1.0]]), rcond=1e-14)[0]
    return found[:count], found[count:-1]


def _newton(
    losses: PointLosses,
    model: Linearised,
    densities: Float[np.ndarray, "J R"],
    shares: Float[np.ndarray, " J"],
    free: Bool[np.ndarray, "S A"],
    floor: float,
) -> Float[np.ndarray, "S A"] | None:
    """The table that solves the equations with these entries free and these densities tied; None without success."""
    # The first free entry of a row is what the others leave of it.
    first = np.eye(free.shape[1], dtype=bool)[free.argmax(axis=1)] & free
    table = np.where(free, np.asarray(model.table), floor)
    table += first * (1.0 - table.sum(axis=1, keepdims=True))
    if (free & ~first).sum() * len(model.losses) > MOST_MODELS:
        return None
    basis, length = row_basis(free, first), np.inf
    for _ in range(STEPS):
        model = losses.near(table)
        step, shares = _step(losses, model, densities, shares, basis)
        if step is None or np.abs(step).max(initial=0.0) > min(length, FARTHEST):
            break
        table, length = table + step, float(np.abs(step).max(initial=0.0))
        if length <= 1e-15:
            break
    return table if np.isfinite(length) else None


def _step(
    losses: PointLosses,
    model: Linearised,
    densities: Float[np.ndarray, "J R"],
    shares: Float[np.ndarray, " J"],
    basis: Float[np.ndarray, "F S A"],
) -> tuple[Float[np.ndarray, "S A"] | None, Float[np.ndarray, " J"]]:
    """A Newton step along the basis, and the new multipliers."""
    count, tied = len(basis), len(densities)
    if count == 0:
        return np.zeros_like(model.table), shares
    moved = model.table + DIFFERENCE * np.concatenate([basis, -basis])
    around, slopes = slopes_at(losses.objective, moved, losses.draws.thetas)
    if tied == 1:
        # Without a kink the density is a smooth function of the losses, and bends the risk as well.
        weights = np.stack([model.density(values) for values in around])
        densities = model.density(model.losses)[None]
    else:
        weights = np.broadcast_to(shares @ densities, around.shape)
    slope = np.einsum("kr,krsa,fsa->kf", weights, slopes, basis)
    bend = (slope[:count] - slope[count:]) / (2.0 * DIFFERENCE)
    normals = np.einsum("jr,rsa,fsa->jf", densities, model.slopes, basis)
    heights = densities @ (model.losses - model.losses.mean())
    along, shares = tied_step(0.5 * (bend + bend.T), normals, heights, np.ones(tied, bool))
    step = np.tensordot(along, basis, axes=1)
    return (step if np.all(np.isfinite(step)) else None), shares
