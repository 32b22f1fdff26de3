"""The end of a descent with limits: Newton's method on its kinks, on the limits that bind and on the free entries.

Let J densities W tie at the optimum, each of one of the losses, with multipliers lambda: those of the objective sum to
1, those of a limit to its multiplier mu. Then, along the directions in which x is free,

    sum_j lambda_j <W_j, dL_j/dx> = 0,    <W_j, C> = t,    <W_j, D> = aim,    sum of the objective's lambda = 1,

is as many equations as unknowns, which Newton's method solves to rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from .problem import LimitLosses, LimitQuestion, Variables, losses_at
from .program import ModelMinimum, merit, step_from

# Within this radius densities that tie are looked for; those closer than this share of their largest entry are one.
RADIUS, ALIKE = 1e-4, 1e-2

# Difference for second derivatives; Newton steps; most models of one of them; how far it may lead.
DIFFERENCE, STEPS, MOST_MODELS, FARTHEST = 1e-6, 6, 40_000, 1e-2


class Tied(NamedTuple):
    """Densities that tie, the loss that each is of, and its multiplier."""

    weights: Float[np.ndarray, "J R"]
    group: Int[np.ndarray, " J"]
    shares: Float[np.ndarray, " J"]


def polished(
    question: LimitQuestion, variables: Variables, x: np.ndarray, here: LimitLosses, prices: np.ndarray
) -> tuple[np.ndarray, LimitLosses, np.ndarray, float] | None:
    """The optimum next to x, its losses, multipliers and what is left to gain; None where nothing better was found."""
    before = step_from(question, variables, x, here, prices, 1.0)
    near = step_from(question, variables, x, here, prices, RADIUS)
    if not near.planes:
        return None
    tied = _different(near)
    slope = sum(share * plane.slope for plane, share in near.planes)
    basis = variables.free(x, np.asarray(slope))
    if basis is None or len(basis) * len(question.draws) * len(question.objectives) * 2 > MOST_MODELS:
        return None
    for _ in range(len(x)):
        moved, shares, there = _newton(question, variables, x, here, tied, basis)
        if moved is None or there is None or np.abs(moved - x).max() > FARTHEST:
            return None
        low, _ = variables.bounds(moved, 1.0)
        outside = low > 1e-12
        if not outside.any():
            break
        # An entry that would fall below its least value is not free.
        basis = basis[~(np.abs(basis) @ outside > 0)]
    else:
        return None
    moved = variables.moved(moved, np.zeros(len(x)))
    there = losses_at(question, variables, moved[None])[0]
    after = step_from(question, variables, moved, there, before.prices, 1.0)
    fell = merit(question, here.values, before.prices) - merit(question, there.values, before.prices)
    rounding = 1e-12 * float(np.abs(here.losses[0]).max())
    broken = question.breach(there.values) / question.units[1:]
    if (
        after.most > before.most + rounding
        or fell < -rounding - 1e-9 * question.units[0]
        or broken.max(initial=0) > 1e-7
    ):
        return None
    multipliers = np.array([shares[tied.group == j + 1].sum() for j in range(question.limits)])
    return moved, there, np.maximum(multipliers, 0.0), after.most


def _different(step: ModelMinimum) -> Tied:
    """The densities that tie, those that are alike as one."""
    order = sorted(step.planes, key=lambda pair: -pair[1])
    weights: list[np.ndarray] = []
    group: list[int] = []
    shares: list[float] = []
    for plane, share in order:
        same = [
            k
            for k in range(len(weights))
            if group[k] == plane.group and np.abs(plane.weights - weights[k]).max() <= ALIKE * weights[k].max()
        ]
        if same:
            shares[same[0]] += share
        else:
            weights.append(plane.weights)
            group.append(plane.group)
            shares.append(share)
    return Tied(np.stack(weights), np.array(group), np.array(shares))


def _newton(
    question: LimitQuestion, variables: Variables, x: np.ndarray, here: LimitLosses, tied: Tied, basis: np.ndarray
) -> tuple[np.ndarray | None, np.ndarray, LimitLosses | None]:
    """The choice that solves the equations, its multipliers and its losses; None without success."""
    shares, length = tied.shares, np.inf
    for _ in range(STEPS):
        change, shares = _step(question, variables, x, here, tied._replace(shares=shares), basis)
        size = float(np.abs(change).max(initial=0.0))
        if not np.isfinite(size) or size > min(max(length, 1e-13), FARTHEST):
            break
        x, length = x + change, size
        here = losses_at(question, variables, x[None])[0]
        if not np.all(np.isfinite(here.losses)):
            return None, shares, None
        if size <= 1e-15:
            break
    return (x, shares, here) if np.isfinite(length) else (None, shares, None)


def _step(
    question: LimitQuestion, variables: Variables, x: np.ndarray, here: LimitLosses, tied: Tied, basis: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A Newton step along the basis, and the new multipliers."""
    count, ties = len(basis), len(tied.group)
    weights = np.array(tied.weights)
    alone = [j for j in range(ties) if (tied.group == tied.group[j]).sum() == 1]
    for j in alone:
        # Without a kink the density is a smooth function of the losses.
        weights[j] = question.weights(int(tied.group[j]), here.losses[tied.group[j]])
    bend = np.zeros((count, count))
    if count:
        around = losses_at(question, variables, x + DIFFERENCE * np.concatenate([basis, -basis]))
        slope = np.zeros((2 * count, count))
        for k, there in enumerate(around):
            for j, g in enumerate(tied.group):
                # And it bends the risk as well.
                own = question.weights(int(g), there.losses[g]) if j in alone else weights[j]
                slope[k] += tied.shares[j] * (own @ there.slopes[g] @ basis.T)
        bend = (slope[:count] - slope[count:]) / (2.0 * DIFFERENCE)
    normals = np.stack([weights[j] @ here.slopes[g] @ basis.T for j, g in enumerate(tied.group)])
    first = tied.group == 0
    heights = np.array([weights[j] @ (here.losses[g] - here.values[g]) for j, g in enumerate(tied.group)])
    # A limit's densities are to reach its aim; the objective's, one level.
    heights = heights + np.where(first, 0.0, np.concatenate([[0.0], here.values[1:] - question.aims])[tied.group])
    scale = 1.0 / question.units[tied.group]
    system = np.zeros((count + ties + 1, count + ties + 1))
    system[:count, :count] = 0.5 * (bend + bend.T) / question.units[0]
    system[:count, count:-1] = (normals * scale[:, None]).T
    system[count:-1, :count] = normals * scale[:, None]
    system[count:-1, -1] = np.where(first, -1.0, 0.0)
    system[-1, count:-1] = np.where(first, -1.0, 0.0)
    right = np.concatenate([np.zeros(count), -heights * scale, [-1.0]])
    found = np.linalg.lstsq(system, right, rcond=1e-14)[0]
    # Multipliers are found in units of the objective for a unit of the limit.
    return found[:count] @ basis, found[count:-1] * question.units[0] * scale
