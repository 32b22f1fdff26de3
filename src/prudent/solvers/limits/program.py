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
from scipy import sparse

from ...programs import CutProgram, Optimum
from .problem import LimitLosses, LimitQuestion, Variables

# A minimum is good enough if the planes leave this share of the predicted decrease open; most planes of one loss.
ACCURACY, MOST_PLANES = 0.1, 40

# Where a step leaves a limit broken, its price is raised so many times, each time by this factor, up to this many units
# of the objective for one of the limit.
RAISES, DEARER, DEAREST = 3, 8.0, 1e7


class Plane(NamedTuple):
    """`offset + <slope, d>`, below one of the linearised risks; 0 is its value at x."""

    group: int
    slope: Float[np.ndarray, " N"]
    offset: float
    weights: Float[np.ndarray, " R"]


class ModelMinimum(NamedTuple):
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


def merit(question: LimitQuestion, values: Float[np.ndarray, " G"], prices: Float[np.ndarray, " L"]) -> float:
    """What is descended: the objective, and the price of each breach."""
    return float(values[0] + prices @ question.breach(values))


def step_from(
    question: LimitQuestion, variables: Variables, x: np.ndarray, here: LimitLosses, prices: np.ndarray, radius: float
) -> ModelMinimum:
    """The least of the model within a radius; prices are raised where they leave a limit broken that need not be."""
    return minimum_near(question, variables, x, here, prices, radius, ACCURACY)[0]


def minimum_near(
    question: LimitQuestion,
    variables: Variables,
    x: np.ndarray,
    here: LimitLosses,
    prices: np.ndarray,
    radius: float,
    accuracy: float,
) -> tuple[ModelMinimum, Float[np.ndarray, " G"]]:
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

    def __init__(self, question: LimitQuestion, variables: Variables, x: np.ndarray, here: LimitLosses, radius: float):
        self.question, self.here, self.x = question, here, x
        self.low, self.high = variables.bounds(x, radius)
        self.equations, self.ratios = variables.equations(), variables.ratios(x)
        self.planes = [self._plane(g, np.zeros(len(x))) for g in range(len(here.values))]
        self.program: CutProgram | None = None
        self.known = 0

    def values(self, change: np.ndarray) -> np.ndarray:
        """Risks of the linearised losses."""
        moved = self.here.losses + self.here.slopes @ change
        return np.array([self.question.value(g, moved[g]) for g in range(len(moved))])

    def _plane(self, g: int, change: np.ndarray) -> Plane:
        losses, slopes = self.here.losses[g], self.here.slopes[g]
        weights = self.question.weights(g, losses + slopes @ change)
        # Around the value at x, so that the level of the losses cancels before it can round.
        return Plane(g, weights @ slopes, float(weights @ (losses - self.here.values[g])), weights)

    def minimum(self, prices: np.ndarray, accuracy: float) -> ModelMinimum:
        """By cutting planes."""
        question, now = self.question, merit(self.question, self.here.values, prices)
        size, limits = len(self.x), question.limits
        best, least = np.zeros(size), 0.0
        bent = [risk.coherent for risk in question.risks]
        while True:
            answer = self._solve(prices)
            if answer is None:
                # As it may at the edge of rounding: then nothing is known of what is left to gain.
                return ModelMinimum(best, -least, np.inf, prices, np.full(limits, np.nan), [])
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
                return ModelMinimum(best, -least, max(-bound, -least), prices, multipliers, tied)
            self.planes += [self._plane(g, change) for g in new]

    def _below(self, g: int, change: np.ndarray) -> float:
        """The largest of a loss's planes."""
        return self.here.values[g] + max(p.offset + float(p.slope @ change) for p in self.planes if p.group == g)

    def _solve(self, prices: np.ndarray) -> Optimum | None:
        """Minimise `t + w s` with `plane_0(d) <= t` and `plane_j(d) <= aim_j - value_j + s_j`, everything in units."""
        units, limits = self.question.units, self.question.limits
        cost = np.concatenate([np.zeros(len(self.x) + self._extra), [1.0], prices * units[1:] / units[0]])
        program = self.program = self._begun(cost) if self.program is None else self.program
        program.reprice(cost)
        new = self.planes[self.known :]
        if new:
            groups = np.array([plane.group for plane in new])
            slack = np.zeros((len(new), 1 + limits))
            slack[np.arange(len(new)), groups] = -1.0
            slopes = np.stack([plane.slope / units[plane.group] for plane in new])
            room = np.concatenate([[0.0], self.question.aims - self.here.values[1:]])
            most = np.array([(room[plane.group] - plane.offset) / units[plane.group] for plane in new])
            program.add(np.concatenate([slopes, np.zeros((len(new), self._extra)), slack], axis=1), most)
            self.known = len(self.planes)
        return program.solve()

    @property
    def _extra(self) -> int:
        """Variables of rows in a ratio."""
        return 0 if self.ratios is None else self.ratios[1].shape[1]

    def _begun(self, cost: np.ndarray) -> CutProgram:
        """Changes within reach, no plane yet."""
        extra, limits, equal = self._extra, self.question.limits, self.equations
        program = CutProgram(
            cost,
            np.concatenate([self.low, np.zeros(extra), [-np.inf], np.zeros(limits)]),
            np.concatenate([self.high, np.ones(extra), np.full(1 + limits, np.inf)]),
            None if equal is None else sparse.hstack([equal, sparse.csr_matrix((equal.shape[0], extra + 1 + limits))]),
        )
        if self.ratios is not None:
            changes, leasts, most = self.ratios
            nothing = sparse.csr_matrix((changes.shape[0], 1 + limits))
            program.add(sparse.hstack([changes, leasts, nothing]).toarray(), most)
        return program

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
        room = np.concatenate([[0.0], question.aims - self.here.values[1:]])
        level = sum(s * (p.offset - room[p.group]) for p, s in zip(self.planes, shares, strict=True))
        slope = sum(s * p.slope for p, s in zip(self.planes, shares, strict=True))
        return shares, float(level) + self._lowest(np.asarray(slope), answer)

    def _lowest(self, slope: np.ndarray, answer: Optimum) -> float:
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
