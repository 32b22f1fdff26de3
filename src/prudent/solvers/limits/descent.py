"""Descent of several points on one sample: trust-region steps on the exact penalty, all points side by side."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ..descent import NOISE, PATIENCE, SUFFICIENT
from .polish import polished
from .problem import LimitLosses, LimitQuestion, Variables, losses_at
from .program import ModelMinimum, merit, step_from

# A step this good makes the region wider, and by how much; a bad one makes it narrower.
GOOD, WIDER, NARROWER = 0.7, 2.0, 0.3

# On atoms points go on to this share of the tolerance.
BEYOND = 1e-4

# What a breach costs at first, in units of the objective for a unit of the limit.
FIRST_PRICE = 2.0

# The region below which rounding is all there is.
NARROWEST = 1e-9


@dataclass(frozen=True)
class LimitIterate:
    """One point on its way.

    Attributes:
        x: the choice.
        here: its losses.
        prices: of a breach.
        radius: of the trust region.
        step: the newest one from here.
        gap: what any change of the policy gains in merit at most, to first order.
        done: whether it has converged; None while it moves.
        idle: steps without a notable fall.
        anchor: merit at the last notable fall.
    """

    x: Float[np.ndarray, " N"]
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


@dataclass(frozen=True)
class Descended:
    """Where points have got to, and what it took."""

    points: list[LimitIterate]
    rounds: int
    models: int
    history: list[tuple[float, float, float]]


def started(
    question: LimitQuestion, variables: Variables, x: Float[np.ndarray, "K N"], prices: np.ndarray
) -> list[LimitIterate]:
    """Points whose losses are numbers, evaluated."""
    found = losses_at(question, variables, x)
    radius = 1.0 if np.isfinite(variables.widest) else 0.1 * float(1.0 + np.abs(x).max())
    return [
        LimitIterate(row, here, prices, radius)
        for row, here in zip(x, found, strict=True)
        if np.all(np.isfinite(here.losses)) and np.all(np.isfinite(here.slopes))
    ]


def descend(
    question: LimitQuestion, variables: Variables, points: list[LimitIterate], rounds: int, tolerance: float
) -> Descended:
    """Up to so many rounds, in each of which every point that still moves tries one step."""
    history: list[tuple[float, float, float]] = []
    models = 0
    for _ in range(rounds):
        points = [_proposed(question, variables, point, tolerance) for point in points]
        going = [k for k, point in enumerate(points) if point.done is None]
        best = min(points, key=lambda point: point.merit(question))
        history.append((float(best.here.values[0]), best.gap, best.radius))
        if not going:
            break
        moved = np.stack([variables.moved(points[k].x, _step(points[k]).change) for k in going])
        found = losses_at(question, variables, moved)
        models += len(going) * len(question.draws) * len(question.objectives)
        for k, x, there in zip(going, moved, found, strict=True):
            points[k] = _judged(question, variables, points[k], x, there, tolerance)
        points = _merged(question, points, tolerance)
    return Descended(points, len(history), models, history)


def _step(point: LimitIterate) -> ModelMinimum:
    assert point.step is not None
    return point.step


def spread_of(question: LimitQuestion, here: LimitLosses) -> float:
    """What tolerances are relative to: how much the losses differ over draws and policies, in units."""
    return max(float(np.ptp(here.losses[0])), question.units[0])


def _allowed(question: LimitQuestion, point: LimitIterate, tolerance: float) -> float:
    return tolerance * spread_of(question, point.here) + NOISE * float(np.abs(point.here.losses[0]).max())


def _proposed(question: LimitQuestion, variables: Variables, point: LimitIterate, tolerance: float) -> LimitIterate:
    """The next step of a point; done where nothing is left to gain."""
    if point.done is not None or (point.step is not None and point.idle < 0):
        return point
    step = step_from(question, variables, point.x, point.here, point.prices, point.radius)
    now = dataclasses.replace(point, step=step, prices=step.prices)
    # The model is convex: over all policies it gains at most as many times more as they are wider.
    wide = variables.widest if np.isfinite(variables.widest) else max(1.0, point.radius)
    gap = step.most * max(1.0, wide / point.radius)
    now = dataclasses.replace(now, gap=gap, anchor=min(now.anchor, now.merit(question)))
    share = tolerance * (BEYOND if question.draws.exact else 1.0)
    if gap <= _allowed(question, now, share):
        return dataclasses.replace(now, done=True)
    if step.decrease <= 0.0 or point.radius <= NARROWEST or point.idle >= PATIENCE:
        return dataclasses.replace(now, done=gap <= _allowed(question, now, tolerance))
    return now


def _judged(
    question: LimitQuestion,
    variables: Variables,
    point: LimitIterate,
    x: np.ndarray,
    there: LimitLosses,
    tolerance: float,
) -> LimitIterate:
    """The point after a trial."""
    step = _step(point)
    before, reached = point.merit(question), float(np.abs(x - point.x).max())
    finite = bool(np.all(np.isfinite(there.losses)) and np.all(np.isfinite(there.slopes)))
    after = merit(question, there.values, point.prices) if finite else np.inf
    fell = before - after
    if not (finite and fell >= SUFFICIENT * step.decrease):
        return dataclasses.replace(point, radius=NARROWER * min(point.radius, reached), idle=point.idle + 1)
    good = fell > GOOD * step.decrease
    radius = min(WIDER * max(point.radius, reached), variables.widest) if good else max(point.radius * 0.5, reached)
    notable = after < point.anchor - 0.1 * _allowed(
        question, point, tolerance * (BEYOND if question.draws.exact else 1.0)
    )
    return dataclasses.replace(
        point,
        x=x,
        here=there,
        radius=radius,
        idle=0 if notable else point.idle + 1,
        anchor=min(point.anchor, after),
    )


def _merged(question: LimitQuestion, points: list[LimitIterate], tolerance: float) -> list[LimitIterate]:
    """Points without those that have come to a better one."""
    top = np.max([point.prices for point in points], axis=0)
    order = sorted(points, key=lambda point: merit(question, point.here.values, top))
    kept: list[LimitIterate] = []
    for point in order:
        near = 0.1 * _allowed(question, point, tolerance)
        mine = merit(question, point.here.values, top)
        same = [
            other
            for other in kept
            if abs(mine - merit(question, other.here.values, top)) <= near and np.abs(point.x - other.x).max() <= 1e-3
        ]
        kept += [] if same else [point]
    return kept


def finished(question: LimitQuestion, variables: Variables, point: LimitIterate) -> LimitIterate:
    """The optimum next to a point that has converged, by Newton's method where that is better."""
    if point.step is None:
        return point
    found = polished(question, variables, point.x, point.here, point.prices)
    if found is None:
        return point
    x, here, multipliers, gap = found
    step = point.step._replace(multipliers=multipliers)
    return dataclasses.replace(point, x=x, here=here, gap=min(gap, point.gap), step=step)
