"""Descent of several points on one sample: trust-region steps on the exact penalty, all points side by side.

It ends with Newton's method on its kinks, on the limits that bind and on the free entries. Let J densities W tie at the
optimum, each of one of the losses, with multipliers lambda: those of the objective sum to 1, those of a limit to its
multiplier mu. Then, along the directions in which x is free,

    sum_j lambda_j <W_j, dL_j/dx> = 0,    <W_j, C> = t,    <W_j, D> = aim,    sum of the objective's lambda = 1,

is as many equations as unknowns, which Newton's method solves to rounding.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..descent import BEYOND, NOISE, PATIENCE, SUFFICIENT
from ..polish import DIFFERENCE, FARTHEST, RADIUS, STEPS, different, tied_step
from .problem import LimitLosses, LimitQuestion, Variables, losses_at
from .program import ModelMinimum, merit, step_from

# A step this good makes the region wider, and by how much; a bad one makes it narrower.
GOOD, WIDER, NARROWER = 0.7, 2.0, 0.3

# What a breach costs at first, in units of the objective for a unit of the limit.
FIRST_PRICE = 2.0

# The region below which rounding is all there is.
NARROWEST = 1e-9

# Models of one Newton step at most.
MOST_MODELS = 40_000


@dataclass(frozen=True)
class LimitIterate:
    """One point on its way.

    Attributes:
        here: the choice and its losses.
        prices: of a breach.
        radius: of the trust region.
        step: the newest one from here.
        gap: what any change of the policy gains in merit at most, to first order.
        done: whether it has converged; None while it moves.
        idle: steps without a notable fall.
        anchor: merit at the last notable fall.
    """

    here: LimitLosses
    prices: Float[np.ndarray, " L"]
    radius: float
    step: ModelMinimum | None = None
    gap: float = np.inf
    done: bool | None = None
    idle: int = 0
    anchor: float = np.inf

    def merit(self, question: LimitQuestion) -> float:
        """At its own prices."""
        return merit(question, self.here.values, self.prices)

    @property
    def multipliers(self) -> Float[np.ndarray, " L"]:
        """Of the newest step."""
        return np.zeros(len(self.prices)) if self.step is None else self.step.multipliers


class Descended(NamedTuple):
    """Where points have got to, how many models it took, and the best point's value, gap and radius in each round."""

    points: list[LimitIterate]
    models: int
    history: list[tuple[float, float, float]]


def started(
    question: LimitQuestion, variables: Variables, x: Float[np.ndarray, "K N"], prices: np.ndarray
) -> list[LimitIterate]:
    """Points whose losses are numbers, evaluated."""
    if not len(x):
        return []
    radius = 1.0 if np.isfinite(variables.widest) else 0.1 * float(1.0 + np.abs(x).max())
    return [LimitIterate(here, prices, radius) for here in losses_at(question, variables, x) if here.finite]


def descend(
    question: LimitQuestion, variables: Variables, points: list[LimitIterate], rounds: int, tolerance: float
) -> Descended:
    """Up to so many rounds, in each of which every point that still moves tries one step."""
    history: list[tuple[float, float, float]] = []
    models = 0
    for _ in range(rounds):
        points = [_proposed(question, variables, point, tolerance) for point in points]
        best = min(points, key=lambda point: point.merit(question))
        history.append((float(best.here.values[0]), best.gap, best.radius))
        steps = {k: point.step for k, point in enumerate(points) if point.done is None and point.step is not None}
        if not steps:
            break
        moved = np.stack([variables.moved(points[k].here.x, step.change) for k, step in steps.items()])
        models += len(steps) * len(question.draws) * len(question.objectives)
        for (k, step), there in zip(steps.items(), losses_at(question, variables, moved), strict=True):
            points[k] = _judged(question, variables, points[k], step, there, tolerance)
        points = _merged(question, points, tolerance)
    return Descended(points, models, history)


def spread_of(question: LimitQuestion, here: LimitLosses) -> float:
    """What tolerances are relative to: how much the losses differ over draws and policies, in units."""
    return max(float(np.ptp(here.losses[0])), question.units[0])


def _allowed(question: LimitQuestion, point: LimitIterate, tolerance: float, beyond: bool = False) -> float:
    """What may be left to gain; a point goes on to what is `beyond` the tolerance on atoms."""
    share = tolerance * (BEYOND if beyond and question.draws.exact else 1.0)
    return share * spread_of(question, point.here) + NOISE * float(np.abs(point.here.losses[0]).max())


def _proposed(question: LimitQuestion, variables: Variables, point: LimitIterate, tolerance: float) -> LimitIterate:
    """The next step of a point; done where nothing is left to gain."""
    if point.done is not None:
        return point
    step = step_from(question, variables, point.here, point.prices, point.radius)
    # The model is convex: over all policies it gains at most as many times more as they are wider.
    wide = variables.widest if np.isfinite(variables.widest) else max(1.0, point.radius)
    gap = step.most * max(1.0, wide / point.radius)
    now = dataclasses.replace(point, step=step, prices=step.prices, gap=gap)
    now = dataclasses.replace(now, anchor=min(now.anchor, now.merit(question)))
    if gap <= _allowed(question, now, tolerance, beyond=True):
        return dataclasses.replace(now, done=True)
    if step.decrease <= 0.0 or point.radius <= NARROWEST or point.idle >= PATIENCE:
        return dataclasses.replace(now, done=gap <= _allowed(question, now, tolerance))
    return now


def _judged(
    question: LimitQuestion,
    variables: Variables,
    point: LimitIterate,
    step: ModelMinimum,
    there: LimitLosses,
    tolerance: float,
) -> LimitIterate:
    """The point after a trial."""
    reached = float(np.abs(there.x - point.here.x).max())
    after = merit(question, there.values, point.prices) if there.finite else np.inf
    fell = point.merit(question) - after
    if not fell >= SUFFICIENT * step.decrease:
        return dataclasses.replace(point, radius=NARROWER * min(point.radius, reached), idle=point.idle + 1)
    good = fell > GOOD * step.decrease
    radius = min(WIDER * max(point.radius, reached), variables.widest) if good else max(point.radius * 0.5, reached)
    notable = after < point.anchor - 0.1 * _allowed(question, point, tolerance, beyond=True)
    idle, anchor = 0 if notable else point.idle + 1, min(point.anchor, after)
    return dataclasses.replace(point, here=there, radius=radius, idle=idle, anchor=anchor)


def _merged(question: LimitQuestion, points: list[LimitIterate], tolerance: float) -> list[LimitIterate]:
    """Points without those that have come to a better one."""
    top = np.max([point.prices for point in points], axis=0)
    kept: list[tuple[float, LimitIterate]] = []
    for mine, point in sorted(((merit(question, p.here.values, top), p) for p in points), key=lambda pair: pair[0]):
        near = 0.1 * _allowed(question, point, tolerance)
        same = (
            abs(mine - other) <= near and np.abs(point.here.x - better.here.x).max() <= 1e-3 for other, better in kept
        )
        kept += [] if any(same) else [(mine, point)]
    return [point for _, point in kept]


class Tied(NamedTuple):
    """Densities that tie, the loss that each is of, and its multiplier."""

    weights: Float[np.ndarray, "J R"]
    group: Int[np.ndarray, " J"]
    shares: Float[np.ndarray, " J"]


def finished(question: LimitQuestion, variables: Variables, point: LimitIterate) -> LimitIterate:
    """The optimum next to a point that has converged, by Newton's method where that is better."""
    if point.step is None:
        return point
    here, x = point.here, point.here.x
    before = step_from(question, variables, here, point.prices, 1.0)
    near = step_from(question, variables, here, point.prices, RADIUS)
    if not near.planes:
        return point
    planes, shares = zip(*near.planes, strict=True)
    weights, group = np.stack([plane.weights for plane in planes]), np.array([plane.group for plane in planes])
    kept, total = different(weights, np.array(shares), group)
    tied = Tied(weights[kept], group[kept], total)
    basis = variables.free(x, np.asarray(sum(share * plane.slope for plane, share in near.planes)))
    if basis is None or len(basis) * len(question.draws) * len(question.objectives) * 2 > MOST_MODELS:
        return point
    for _ in range(len(x)):
        moved = _newton(question, variables, here, tied, basis)
        if moved is None or np.abs(moved[0] - x).max() > FARTHEST:
            return point
        outside = variables.reach(moved[0], 1.0).bounds()[0] > 1e-12
        if not outside.any():
            break
        # An entry that would fall below its least value is not free.
        basis = basis[~(np.abs(basis) @ outside > 0)]
    else:
        return point
    there = losses_at(question, variables, variables.moved(moved[0], np.zeros(len(x)))[None])[0]
    after = step_from(question, variables, there, before.prices, 1.0)
    fell = merit(question, here.values, before.prices) - merit(question, there.values, before.prices)
    rounding = 1e-12 * float(np.abs(here.losses[0]).max())
    broken = question.breach(there.values) / question.units[1:]
    worse = after.most > before.most + rounding or fell < -rounding - 1e-9 * question.units[0]
    if worse or broken.max(initial=0) > 1e-7:
        return point
    multipliers = np.array([moved[1][tied.group == j + 1].sum() for j in range(question.limits)])
    step = point.step._replace(multipliers=np.maximum(multipliers, 0.0))
    return dataclasses.replace(point, here=there, gap=min(after.most, point.gap), step=step)


def _newton(
    question: LimitQuestion, variables: Variables, here: LimitLosses, tied: Tied, basis: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """The choice that solves the equations, and its multipliers; None without success."""
    shares, length = tied.shares, np.inf
    for _ in range(STEPS):
        change, shares = _newton_step(question, variables, here, tied._replace(shares=shares), basis)
        size = float(np.abs(change).max(initial=0.0))
        if not np.isfinite(size) or size > min(max(length, 1e-13), FARTHEST):
            break
        length = size
        here = losses_at(question, variables, (here.x + change)[None])[0]
        if not np.all(np.isfinite(here.losses)):
            return None
        if size <= 1e-15:
            break
    return (here.x, shares) if np.isfinite(length) else None


def _newton_step(
    question: LimitQuestion, variables: Variables, here: LimitLosses, tied: Tied, basis: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A Newton step along the basis, and the new multipliers."""
    count, group = len(basis), tied.group
    alone = np.bincount(group)[group] == 1

    def weights_at(there: LimitLosses, j: int) -> np.ndarray:
        # Without a kink the density is a smooth function of the losses, and bends the risk as well.
        return question.weights(int(group[j]), there.losses[group[j]]) if alone[j] else tied.weights[j]

    slope = np.zeros((2 * count, count))
    around = losses_at(question, variables, here.x + DIFFERENCE * np.concatenate([basis, -basis])) if count else []
    for k, there in enumerate(around):
        for j, g in enumerate(group):
            slope[k] += tied.shares[j] * (weights_at(there, j) @ there.slopes[g] @ basis.T)
    bend = (slope[:count] - slope[count:]) / (2.0 * DIFFERENCE)
    weights = [weights_at(here, j) for j in range(len(group))]
    normals = np.stack([weights[j] @ here.slopes[g] @ basis.T for j, g in enumerate(group)])
    heights = np.array([weights[j] @ (here.losses[g] - here.values[g]) for j, g in enumerate(group)])
    # A limit's densities are to reach its aim; the objective's, one level.
    heights = heights + np.concatenate([[0.0], here.values[1:] - question.aims])[group]
    unit, scale = question.units[0], 1.0 / question.units[group]
    along, shares = tied_step(
        0.5 * (bend + bend.T) / unit, normals * scale[:, None], heights * scale, np.asarray(group == 0)
    )
    # Multipliers are found in units of the objective for a unit of the limit.
    return along @ basis, shares * unit * scale
