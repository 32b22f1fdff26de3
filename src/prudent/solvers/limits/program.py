"""The step: linearised losses, the risks kept, the limits as constraints that may be broken at a price.

With `g_k = dC_k/dx` and `h_jk = dD_jk/dx`, the model at x is

    min  rho_0(C + <g, d>) + sum_j w_j max(0, rho_j(D_j + <h_j, d>) - aim_j)

over changes d within a trust region: an exact penalty, convex in d. Any density of a risk's envelope bounds it from
below by a plane, so the risks' own densities are all that has to be known of them; the planes make a linear program,
and its multipliers of a limit's planes sum to the limit's multiplier.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import sparse
from scipy.optimize import linprog

from .problem import Losses, Question, Variables

# A minimum is good enough if the planes leave this share of the predicted decrease open; most planes of one loss.
ACCURACY, MOST_PLANES = 0.1, 40

# Where a step leaves a limit broken, its price is raised so many times, each time by this factor, up to this many units
# of the objective for one of the limit.
RAISES, DEARER, DEAREST = 3, 8.0, 1e7

TOLERANCES = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


class Plane(NamedTuple):
    """`offset + <slope, d>`, below one of the linearised risks; 0 is its value at x."""

    group: int
    slope: Float[np.ndarray, " N"]
    offset: float
    weights: Float[np.ndarray, " R"]


class Step(NamedTuple):
    """A minimum of the model.

    Attributes:
        change: of x.
        decrease: of the model there.
        most: what its decrease exceeds nowhere within the radius.
        prices: `[L]` what a breach of each limit costs in it.
        multipliers: `[L]` of the limits.
        planes: that tie there, with the share of each; a limit's sum to its multiplier.
    """

    change: Float[np.ndarray, " N"]
    decrease: float
    most: float
    prices: Float[np.ndarray, " L"]
    multipliers: Float[np.ndarray, " L"]
    planes: list[tuple[Plane, float]]


def merit(question: Question, values: Float[np.ndarray, " G"], prices: Float[np.ndarray, " L"]) -> float:
    """What is descended: the objective, and the price of each breach."""
    return float(values[0] + prices @ question.breach(values))


def step_from(
    question: Question, variables: Variables, x: np.ndarray, here: Losses, prices: np.ndarray, radius: float
) -> Step:
    """The least of the model within a radius; prices are raised where they leave a limit broken that need not be."""
    return minimum_near(question, variables, x, here, prices, radius, ACCURACY)[0]


def minimum_near(
    question: Question,
    variables: Variables,
    x: np.ndarray,
    here: Losses,
    prices: np.ndarray,
    radius: float,
    accuracy: float,
) -> tuple[Step, Float[np.ndarray, " G"]]:
    """The step, and the risks that the model has there; accurate to a share of the predicted decrease."""
    model = _Model(question, variables, x, here, radius)
    step = model.minimum(prices, accuracy)
    for _ in range(RAISES):
        after = question.breach(model.values(step.change))
        broken = after > 1e-9 * question.units[1:]
        if not broken.any():
            break
        dearest = DEAREST * question.units[0] / question.units[1:]
        dearer = np.where(broken, np.minimum(DEARER * step.prices, np.maximum(dearest, step.prices)), step.prices)
        if np.all(dearer <= step.prices):
            break
        again = model.minimum(dearer, accuracy)
        still = question.breach(model.values(again.change))
        if not np.any(still[broken] < 0.99 * after[broken]):
            # No step within reach keeps it better: the price is not what holds it back.
            break
        step = again
    return step, model.values(step.change)


class _Model:
    """Linearised losses near x, with the planes found so far."""

    def __init__(self, question: Question, variables: Variables, x: np.ndarray, here: Losses, radius: float):
        self.question, self.here, self.x = question, here, x
        self.low, self.high = variables.bounds(x, radius)
        self.equations, self.ratios = variables.equations(), variables.ratios(x)
        self.planes = [self._plane(g, np.zeros(len(x))) for g in range(len(here.values))]

    def values(self, change: np.ndarray) -> np.ndarray:
        """Risks of the linearised losses."""
        moved = self.here.losses + self.here.slopes @ change
        return np.array([self.question.value(g, moved[g]) for g in range(len(moved))])

    def _plane(self, g: int, change: np.ndarray) -> Plane:
        losses, slopes = self.here.losses[g], self.here.slopes[g]
        weights = self.question.weights(g, losses + slopes @ change)
        # Around the value at x, so that the level of the losses cancels before it can round.
        return Plane(g, weights @ slopes, float(weights @ (losses - self.here.values[g])), weights)

    def minimum(self, prices: np.ndarray, accuracy: float) -> Step:
        """By cutting planes."""
        question, now = self.question, merit(self.question, self.here.values, prices)
        size, limits = len(self.x), question.limits
        best, least = np.zeros(size), 0.0
        bent = [risk.coherent for risk in question.risks]
        while True:
            answer = self._program(prices)
            if answer.status != 0:
                # As it may at the edge of rounding: then nothing is known of what is left to gain.
                return Step(best, -least, np.inf, prices, np.full(limits, np.nan), [])
            change = np.clip(answer.x[:size], self.low, self.high)
            values = self.values(change)
            fall = values[0] - self.here.values[0]
            gain = fall + prices @ (question.breach(values) - question.breach(self.here.values))
            if gain < least:
                best, least = change, gain
            shares, bound = self._bound(answer, prices)
            bound = min(bound + self.here.values[0] - now, 0.0)
            close = least - bound <= -accuracy * bound or -bound <= 1e-13 * (abs(now) + question.units[0])
            counts = np.bincount([plane.group for plane in self.planes], minlength=limits + 1)
            new = [
                g
                for g in range(limits + 1)
                if bent[g]
                and counts[g] < MOST_PLANES
                and values[g] - self._below(g, change) > 1e-13 * question.units[g]
            ]
            if close or not new:
                tied = [(plane, share) for plane, share in zip(self.planes, shares, strict=True) if share > 0]
                multipliers = np.array([sum(s for p, s in tied if p.group == j + 1) for j in range(limits)])
                return Step(best, -least, max(-bound, -least), prices, multipliers, tied)
            self.planes += [self._plane(g, change) for g in new]

    def _below(self, g: int, change: np.ndarray) -> float:
        """The largest of a loss's planes."""
        return self.here.values[g] + max(p.offset + float(p.slope @ change) for p in self.planes if p.group == g)

    def _program(self, prices: np.ndarray) -> Any:
        """Minimise `t + w s` with `plane_0(d) <= t` and `plane_j(d) <= aim_j - value_j + s_j`, everything in units."""
        question, size, limits = self.question, len(self.x), self.question.limits
        units, count = question.units, len(self.planes)
        groups = np.array([plane.group for plane in self.planes])
        extra = 0 if self.ratios is None else self.ratios[1].shape[1]
        slack = np.zeros((count, 1 + limits))
        slack[np.arange(count), groups] = -1.0
        slopes = np.stack([plane.slope / units[plane.group] for plane in self.planes])
        cuts: Any = sparse.csr_matrix(np.concatenate([slopes, np.zeros((count, extra)), slack], axis=1))
        room = np.concatenate([[0.0], question.aims - self.here.values[1:]])
        right = np.array([(room[plane.group] - plane.offset) / units[plane.group] for plane in self.planes])
        if self.ratios is not None:
            changes, leasts, most = self.ratios
            nothing = sparse.csr_matrix((changes.shape[0], 1 + limits))
            cuts = sparse.vstack([cuts, sparse.hstack([changes, leasts, nothing])]).tocsr()
            right = np.concatenate([right, most])
        low = np.concatenate([self.low, np.zeros(extra), [-np.inf], np.zeros(limits)])
        high = np.concatenate([self.high, np.ones(extra), np.full(1 + limits, np.inf)])
        equal = self.equations
        return linprog(
            np.concatenate([np.zeros(size + extra), [1.0], prices * units[1:] / units[0]]),
            A_ub=cuts,
            b_ub=right,
            A_eq=None
            if equal is None
            else sparse.hstack([equal, sparse.csr_matrix((equal.shape[0], extra + 1 + limits))]).tocsr(),
            b_eq=None if equal is None else np.zeros(equal.shape[0]),
            bounds=np.stack([low, high], axis=1),
            method="highs",
            options=TOLERANCES,
        )

    def _bound(self, answer: Any, prices: np.ndarray) -> tuple[np.ndarray, float]:
        """The shares of the planes, and what they prove of the model's change of merit from the objective's value on.

        The program's multipliers are made exact first: the objective's sum to 1, a limit's to no more than its price.
        """
        question, units = self.question, self.question.units
        groups = np.array([plane.group for plane in self.planes])
        raw = np.maximum(-np.asarray(answer.ineqlin.marginals)[: len(groups)], 0.0) * units[0] / units[groups]
        total = np.bincount(groups, raw, minlength=question.limits + 1)
        if not total[0] > 0:
            raw[0], total[0] = 1.0, 1.0
        most = np.concatenate([[1.0], prices])
        factor = np.where(total > most, most / np.where(total > 0, total, 1.0), 1.0)
        factor[0] = 1.0 / total[0]
        shares = raw * factor[groups]
        room = np.concatenate([[0.0], question.aims - self.here.values[1:]])
        level = sum(s * (p.offset - room[p.group]) for p, s in zip(self.planes, shares, strict=True))
        slope = sum(s * p.slope for p, s in zip(self.planes, shares, strict=True))
        return shares, float(level) + self._lowest(np.asarray(slope), answer)

    def _lowest(self, slope: np.ndarray, answer: Any) -> float:
        """The least of a linear function of the change within reach."""
        if self.ratios is not None:
            return float(slope @ answer.x[: len(slope)])
        if self.equations is None:
            return float(np.minimum(slope * self.low, slope * self.high).sum())
        # Rows that keep their sum: what is taken from the dearest entries goes to the cheapest.
        rows = self.equations.shape[0]
        slope, low, high = (part.reshape(rows, -1) for part in (slope, self.low, self.high))
        order = np.argsort(slope, axis=1, kind="stable")
        room = np.take_along_axis(high - low, order, axis=1)
        mass = -low.sum(axis=1, keepdims=True)
        before = np.concatenate([np.zeros((rows, 1)), np.cumsum(room, axis=1)[:, :-1]], axis=1)
        filled = np.clip(mass - before, 0.0, room)
        return float((slope * low).sum() + (np.take_along_axis(slope, order, axis=1) * filled).sum())
