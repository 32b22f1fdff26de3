"""The step: linearised losses, the risks kept, the limits as constraints that may be broken at a price.

With `g_k = dC_k/dx` and `h_jk = dD_jk/dx`, the model at x is

    min  rho_0(C + <g, d>) + sum_j w_j max(0, rho_j(D_j + <h_j, d>) - aim_j)

over changes d within a trust region: an exact penalty, convex in d. Any density of a risk's envelope bounds it from
below by a plane, so the risks' own densities are all that has to be known of them; the planes make a linear program,
and its multipliers of a limit's planes sum to the limit's multiplier.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ...programs import CutProgram, Optimum
from ..linear_model import TrustRegion
from .problem import BoxReach, LimitLosses, LimitQuestion, Variables

# A minimum is good enough if the planes leave this share of the predicted decrease open; most planes of one loss.
ACCURACY, MOST_PLANES = 0.1, 40

# Where a step leaves a limit broken, its price is raised so many times, each time by this factor, up to this many units
# of the objective for one of the limit.
RAISES, DEARER, DEAREST = 3, 8.0, 1e7

# For a price a limit is moved so far, in units of its loss: on a sample, across the many small kinks of its risk.
NEAR, NEAR_ON_SAMPLES = 1e-4, 1e-3

# In units of the objective for one of the limit, what is smaller is the program's rounding.
NOTHING = 1e-4

# How far a policy may move with the limit, and what its planes leave open.
PRICED_RADIUS, PRICED_ACCURACY = 0.05, 1e-5

# What these differences are off by, as a share: the multipliers of a point that was polished are closer.
ROUGH = 0.01


class Plane(NamedTuple):
    """`offset + <slope, d>`, below the linearised risk of a group; 0 is its value at x."""

    group: int
    slope: Float[np.ndarray, " N"]
    offset: float
    weights: Float[np.ndarray, " R"]


class ModelMinimum(NamedTuple):
    """A minimum of the model.

    Attributes:
        change: of x.
        values: the risks of the linearised losses there.
        decrease: of the model there.
        most: what its decrease exceeds nowhere within the radius.
        prices: `[L]` what a breach of each limit costs in it.
        multipliers: `[L]` of the limits.
        planes: that tie there, with the share of each; a limit's sum to its multiplier.
    """

    change: Float[np.ndarray, " N"]
    values: Float[np.ndarray, " G"]
    decrease: float
    most: float
    prices: Float[np.ndarray, " L"]
    multipliers: Float[np.ndarray, " L"]
    planes: list[tuple[Plane, float]]


def merit(question: LimitQuestion, values: Float[np.ndarray, " G"], prices: Float[np.ndarray, " L"]) -> float:
    """What is descended: the objective, and the price of each breach."""
    return float(values[0] + prices @ question.breach(values))


def step_from(
    question: LimitQuestion,
    variables: Variables,
    here: LimitLosses,
    prices: np.ndarray,
    radius: float,
    accuracy: float = ACCURACY,
) -> ModelMinimum:
    """The least of the model within a radius; prices are raised where they leave a limit broken that need not be."""
    model = _Model(question, here, variables.reach(here.x, radius))
    step = model.minimum(prices, accuracy)
    for _ in range(RAISES):
        after = question.breach(step.values)
        broken = after > 1e-9 * question.units[1:]
        dearest = DEAREST * question.units[0] / question.units[1:]
        dearer = np.where(broken, np.minimum(DEARER * step.prices, np.maximum(dearest, step.prices)), step.prices)
        if np.all(dearer <= step.prices):
            break
        again = model.minimum(dearer, accuracy)
        still = question.breach(again.values)
        if not np.any(still[broken] < 0.99 * after[broken]):
            # No step within reach keeps it better: the price is not what holds it back.
            break
        step = again
    return step


class _Model:
    """Linearised losses near x, with the planes found so far."""

    def __init__(self, question: LimitQuestion, here: LimitLosses, reach: TrustRegion | BoxReach):
        self.question, self.here, self.reach = question, here, reach
        self.planes = [self._plane(g, np.zeros(len(here.x))) for g in range(len(here.values))]
        # What is left of each limit; of the objective, nothing.
        self.room = np.concatenate([[0.0], question.aims - here.values[1:]])
        self.program: CutProgram | None = None
        self.known = 0

    def _plane(self, g: int, change: np.ndarray) -> Plane:
        losses, slopes = self.here.losses[g], self.here.slopes[g]
        weights = self.question.weights(g, losses + slopes @ change)
        # Around the value at x, so that the level of the losses cancels before it can round.
        return Plane(g, weights @ slopes, float(weights @ (losses - self.here.values[g])), weights)

    def minimum(self, prices: np.ndarray, accuracy: float) -> ModelMinimum:
        """By cutting planes."""
        question, here, limits = self.question, self.here, self.question.limits
        now, breach = merit(question, here.values, prices), question.breach(here.values)
        best, there, least = np.zeros(len(here.x)), here.values, 0.0
        while True:
            answer = self._solve(prices)
            if answer is None:
                # As it may at the edge of rounding: then nothing is known of what is left to gain.
                return ModelMinimum(best, there, -least, np.inf, prices, np.full(limits, np.nan), [])
            change = np.clip(answer.x[: len(here.x)], *self.reach.bounds())
            values = question.risks_of(here.losses + here.slopes @ change)
            gain = values[0] - here.values[0] + prices @ (question.breach(values) - breach)
            if gain < least:
                best, there, least = change, values, gain
            shares, bound = self._bound(answer, prices)
            bound = min(bound + here.values[0] - now, 0.0)
            close = least - bound <= -accuracy * bound or -bound <= 1e-13 * (abs(now) + question.units[0])
            new = [] if close else [g for g in range(limits + 1) if self._lacking(g, change, values[g])]
            if not new:
                tied = [(plane, share) for plane, share in zip(self.planes, shares, strict=True) if share > 0]
                multipliers = np.array([sum(s for p, s in tied if p.group == j + 1) for j in range(limits)])
                return ModelMinimum(best, there, -least, max(-bound, -least), prices, multipliers, tied)
            self.planes += [self._plane(g, change) for g in new]

    def _lacking(self, g: int, change: np.ndarray, value: float) -> bool:
        """Whether a risk's planes are below it at a change, and there may be more of them."""
        own = [plane.offset + float(plane.slope @ change) for plane in self.planes if plane.group == g]
        below = self.here.values[g] + max(own)
        bent = self.question.risks[g].coherent
        return bent and len(own) < MOST_PLANES and value - below > 1e-13 * self.question.units[g]

    def _solve(self, prices: np.ndarray) -> Optimum | None:
        """Minimise `t + w s` with `plane_0(d) <= t` and `plane_j(d) <= aim_j - value_j + s_j`, everything in units."""
        units, limits, extra = self.question.units, self.question.limits, self.reach.extra
        cost = np.concatenate([[1.0], prices * units[1:] / units[0]])
        if self.program is None:
            self.program = self.reach.program(cost, np.concatenate([[-np.inf], np.zeros(limits)]))
        self.program.reprice(np.concatenate([np.zeros(len(self.here.x) + extra), cost]))
        for plane in self.planes[self.known :]:
            unit = units[plane.group]
            row = np.concatenate([plane.slope / unit, np.zeros(extra), -np.eye(1 + limits)[plane.group]])
            self.program.add(row[None], np.array([(self.room[plane.group] - plane.offset) / unit]))
        self.known = len(self.planes)
        return self.program.solve()

    def _bound(self, answer: Optimum, prices: np.ndarray) -> tuple[np.ndarray, float]:
        """The shares of the planes, and what they prove of the model's change of merit from the objective's value on.

        The program's multipliers are made exact first: the objective's sum to 1, a limit's to no more than its price.
        """
        question, units = self.question, self.question.units
        groups = np.array([plane.group for plane in self.planes])
        raw = answer.multipliers[-len(groups) :] * units[0] / units[groups]
        total = np.bincount(groups, raw, minlength=question.limits + 1)
        if not total[0] > 0:
            raw[0], total[0] = 1.0, 1.0
        most = np.concatenate([[1.0], prices])
        factor = np.where(total > most, most / np.where(total > 0, total, 1.0), 1.0)
        factor[0] = 1.0 / total[0]
        shares = raw * factor[groups]
        level = sum(s * (p.offset - self.room[p.group]) for p, s in zip(self.planes, shares, strict=True))
        slope = np.asarray(sum(s * p.slope for p, s in zip(self.planes, shares, strict=True)))
        least = self.reach.lowest(slope)[1] if self.reach.closed else float(slope @ answer.x[: len(slope)])
        return shares, float(level) + least


def prices_beside(
    question: LimitQuestion, variables: Variables, here: LimitLosses, prices: np.ndarray
) -> Float[np.ndarray, "L 2"]:
    """For each limit what one more of it saves and what one less costs, to first order; infinite where none keeps it.

    They differ at a corner of the frontier, where any number between the two is a multiplier, so that a multiplier
    alone does not say what a looser limit saves. Both are differences of the least of the linearised problem, with that
    limit moved and the others as they are.
    """
    wide = 1.0 if np.isfinite(variables.widest) else float(1.0 + np.abs(here.x).max())
    near = (NEAR if question.draws.exact else NEAR_ON_SAMPLES) * question.units[1:]

    def least(moved: np.ndarray) -> float:
        asked = question._replace(aims=question.aims + moved)
        step = step_from(asked, variables, here, prices, PRICED_RADIUS * wide, PRICED_ACCURACY)
        broken = asked.breach(step.values) > 0.1 * near
        return np.inf if broken.any() else merit(asked, step.values, step.prices)

    middle, moves = least(np.zeros(question.limits)), np.diag(near)
    found = [((middle - least(move)) / move[j], (least(-move) - middle) / move[j]) for j, move in enumerate(moves)]
    prices = np.nan_to_num(np.array(found), nan=np.inf, posinf=np.inf, neginf=0.0)
    prices = np.where(prices * question.units[1:, None] > NOTHING * question.units[0], prices, 0.0)
    # The least is convex in the limits; rounding can cross the two.
    return np.sort(prices, axis=1)


def within_prices(multipliers: Float[np.ndarray, " L"], prices: Float[np.ndarray, "L 2"]) -> Float[np.ndarray, " L"]:
    """Multipliers as they are, unless the newest step ended on one side of a corner and has none of it."""
    return np.clip(multipliers, (1.0 - ROUGH) * prices[:, 0], (1.0 + ROUGH) * prices[:, 1])
