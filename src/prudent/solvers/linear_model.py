"""The risks of linearised losses, least within a trust region: the prox-linear step and the measure of stationarity.

`rho(C(x))` is a convex function of smooth ones. With `g_k = dC_k/dx`, the model `rho(C + <g, d>)` keeps the kinks of
the risk and linearises the losses alone. It is convex in the change d, and its least value is below `rho(C(x))` unless
x is stationary: the predicted decrease is 0 there and nowhere else, at kinks and at vertices too. Limits are in the
model as an exact penalty, with `h_jk = dD_jk/dx`:

    min_d  rho_0(C + <g, d>) + sum_j price_j max(0, rho_j(D_j + <h_j, d>) - aim_j).

The model is minimised by cutting planes. Any density xi of a risk's envelope bounds it from below by a linear function,
so the risks' own densities are all that has to be known of them. One plane is minimised in closed form, several by a
linear program, in which the multipliers of a limit's planes sum to the limit's multiplier.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import sparse

from ..parameter_sets import RowSet
from ..programs import CutProgram, Optimum
from .question import Question

# A minimum is good enough if the planes leave this share of the predicted decrease open.
ACCURACY = 0.1

# A decrease below this share of the largest loss or slope is rounding, and no unit for a program.
ROUNDING = 1e-14

# Planes of one loss; a step needs a few, a proof of stationarity some more.
MOST_PLANES = 40

# A plane that rises by less than this share of a unit above those that are known is none.
RISE = 1e-13

# Where a step leaves a limit broken, its price is raised so many times, each time by this factor, up to this many units
# of the objective for one of the limit. A limit that is broken by less than this share of its unit is kept.
RAISES, DEARER, DEAREST, KEPT = 3, 8.0, 1e7, 1e-9


class TrustRegion(NamedTuple):
    """The tables of a set that are within a radius of one of them, in each entry; 1 is no restriction."""

    table: Float[np.ndarray, "S A"]
    rows: RowSet
    radius: float = 1.0

    def lowest(self, plane: Float[np.ndarray, " N"]) -> tuple[Float[np.ndarray, " N"], float]:
        """Return the change along which a linear function falls most, and its fall there, at most 0.

        Rows in a ratio have no closed form within a radius; then over all of them, which falls no less.
        """
        slope = plane.reshape(self.table.shape)
        radius = self.radius if np.isinf(self.rows.ratio) else 1.0
        change = self.rows.near_vertex(self.table, slope, radius) - self.table
        return change.ravel(), min(0.0, float((slope * change).sum()))

    @property
    def closed(self) -> bool:
        """Whether `lowest` keeps to the radius."""
        return bool(np.isinf(self.rows.ratio)) or self.radius >= 1.0

    def bounds(self) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]:
        """Return the least and the largest change of each entry."""
        low, high = self.rows.bounds(self.table, self.radius)
        return (low - self.table).ravel(), (high - self.table).ravel()

    def repair(self, change: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
        """Return a change that a program found, with rows that are probabilities to the last digit."""
        moved = np.maximum(self.table + change.reshape(self.table.shape), 0.0)
        return (moved / moved.sum(axis=1, keepdims=True) - self.table).ravel()

    @property
    def extra(self) -> int:
        """Return the number of further variables, of rows in a ratio: the least entry of each."""
        return len(self.table) if np.isfinite(self.rows.ratio) else 0

    def program(self, cost: Float[np.ndarray, " V"], low: Float[np.ndarray, " V"]) -> CutProgram:
        """Return a program over the changes, followed by the extra variables and V more of these costs and bounds."""
        (lows, highs), table, extra, more = self.bounds(), self.table, self.extra, len(cost)
        each = np.arange(table.size), table.shape[1] * np.arange(len(table) + 1)
        sums = sparse.csr_matrix((np.ones(table.size), *each), shape=(len(table), table.size + extra + more))
        program = CutProgram(
            np.concatenate([np.zeros(table.size + extra), cost]),
            np.concatenate([lows, np.zeros(extra), low]),
            np.concatenate([highs, np.ones(extra), np.full(more, np.inf)]),
            sums,
        )
        if extra:
            program.add(*_ratios(table, self.rows.ratio, more))
        return program


class BoxRegion(NamedTuple):
    """Changes of N parameters, each between its own ends: what `TrustRegion` is to the entries of a table."""

    low: Float[np.ndarray, " N"]
    high: Float[np.ndarray, " N"]
    extra: int = 0
    closed: bool = True

    def bounds(self) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]:
        """Return the least and the largest change of each parameter."""
        return self.low, self.high

    def repair(self, change: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
        """Return a change that a program found, within the ends to the last digit."""
        return np.clip(change, self.low, self.high)

    def lowest(self, plane: Float[np.ndarray, " N"]) -> tuple[Float[np.ndarray, " N"], float]:
        """Return the change along which a linear function falls most, and its fall there."""
        change = np.where(plane > 0, self.low, self.high)
        return change, float((plane * change).sum())

    def program(self, cost: Float[np.ndarray, " V"], low: Float[np.ndarray, " V"]) -> CutProgram:
        """Return a program over the changes, followed by V variables of these costs and least values."""
        cost = np.concatenate([np.zeros(len(self.low)), cost])
        return CutProgram(cost, np.concatenate([self.low, low]), np.concatenate([self.high, np.full(len(low), np.inf)]))


Region = TrustRegion | BoxRegion


class Plane(NamedTuple):
    """`offset + <slope, d>`, below the linearised risk of a loss; 0 is the risk's value at x.

    Attributes:
        g: which loss.
        slope, offset: of the plane.
        weights: `p xi` behind it.
    """

    g: int
    slope: Float[np.ndarray, " N"]
    offset: float
    weights: Float[np.ndarray, " R"]


class Minimum(NamedTuple):
    """Where a model is least.

    Attributes:
        change: of x.
        rises: `[G]` by how much each linearised risk is above its value at x there.
        decrease: of the model there.
        most: no change within reach decreases the model by more.
        prices: `[L]` what a breach of each limit costs in it.
        planes: those that tie there, with their multipliers; a limit's sum to the limit's multiplier. Empty where the
            program failed.
    """

    change: Float[np.ndarray, " N"]
    rises: Float[np.ndarray, " G"]
    decrease: float
    most: float
    prices: Float[np.ndarray, " L"]
    planes: list[tuple[Plane, float]]

    @property
    def multipliers(self) -> Float[np.ndarray, " L"]:
        """Return the multiplier of each limit; NaN where the program failed."""
        if not self.planes:
            return np.full(len(self.prices), np.nan)
        groups, shares = zip(*((plane.g, share) for plane, share in self.planes), strict=True)
        return np.bincount(groups, shares, minlength=1 + len(self.prices))[1:]


class LinearModel:
    """Linearised losses near a point x, with the planes that are known of their risks.

    Args:
        question: risks, draws and aims.
        losses: `[G, R]` at x.
        slopes: of each loss, `[R, N]` derivatives by x.
        region: the changes within reach.
    """

    def __init__(
        self,
        question: Question,
        losses: Float[np.ndarray, "G R"],
        slopes: tuple[Float[np.ndarray, "R N"], ...],
        region: Region,
    ):
        self.question, self.losses, self.slopes, self.region = question, losses, slopes, region
        weights = [question.density(g, each) for g, each in enumerate(losses)]
        self.values = np.array([float(own @ each) for own, each in zip(weights, losses, strict=True)])
        # How far each risk may rise; of the objective nothing is asked.
        self.room = np.concatenate([[0.0], question.aims - self.values[1:]])
        self.breach = np.maximum(-self.room[1:], 0.0)
        self.planes = [Plane(g, own @ slopes[g], 0.0, own) for g, own in enumerate(weights)]
        self.program: CutProgram | None = None
        self.units, self.known = question.units, 0

    def minimise(self, prices: Float[np.ndarray, " L"], enough: float = 0.0, accuracy: float = ACCURACY) -> Minimum:
        """Return the least of the model at these prices, by cutting planes.

        The search also ends once no decrease above `enough` is possible, or the planes leave no more than a share
        `accuracy` of the decrease open.
        """
        question, losses = self.question, self.losses
        count, lead = len(self.planes[0].slope), self.planes[0]
        best, rises, least = np.zeros(count), np.zeros(len(losses)), 0.0
        foreseen = np.inf
        if not question.limits:
            foreseen = -self.region.lowest(lead.slope)[1]
            if foreseen <= ROUNDING * max(np.abs(losses).max(), np.abs(self.slopes[0]).max(initial=0.0)):
                return Minimum(best, rises, 0.0, foreseen, prices, [(lead, 1.0)])
        else:
            enough = max(enough, RISE * (abs(float(question.merit(self.values, prices))) + self.units[0]))
        while True:
            answer = self._lowest(prices)
            if answer is None:
                # The program failed, as it may at the edge of rounding: what is known without it stays true.
                return Minimum(best, rises, -least, max(-least, foreseen), prices, [])
            change, bound, shares = answer
            moved = [each + slopes @ change for each, slopes in zip(losses, self.slopes, strict=True)]
            weights = [question.density(g, each) for g, each in enumerate(moved)]
            # Around the values at x, so that the level of the losses cancels before it can round.
            found = np.array([own @ (each - here) for own, each, here in zip(weights, moved, self.values, strict=True)])
            gain = float(found[0] + prices @ (np.maximum(found[1:] - self.room[1:], 0.0) - self.breach))
            if gain < least:
                best, rises, least = change, found, gain
            close = least - bound <= -accuracy * bound or -bound <= enough
            new = [] if close else [g for g in range(len(losses)) if self._rises(g, change, found[g])]
            if not new:
                tied = [(plane, float(share)) for plane, share in zip(self.planes, shares, strict=False) if share > 0]
                return Minimum(best, rises, -least, max(-bound, -least), prices, tied)
            for g in new:
                offset = float(weights[g] @ (losses[g] - self.values[g]))
                self.planes.append(Plane(g, weights[g] @ self.slopes[g], offset, weights[g]))

    def minimise_feasibly(self, prices: Float[np.ndarray, " L"], accuracy: float = ACCURACY) -> Minimum:
        """Return the least of the model, at prices that are raised where they leave a limit broken that need not be."""
        step = self.minimise(prices, accuracy=accuracy)
        for _ in range(RAISES if self.question.limits else 0):
            after = self._broken(step)
            dearer = raise_prices(self.question, after > KEPT * self.units[1:], step.prices)
            if np.all(dearer <= step.prices):
                break
            again = self.minimise(dearer, accuracy=accuracy)
            if not np.any(self._broken(again)[after > 0] < 0.99 * after[after > 0]):
                # No step within reach keeps it better: the price is not what holds it back.
                break
            step = again
        return step

    def _broken(self, step: Minimum) -> Float[np.ndarray, " L"]:
        return np.maximum(step.rises[1:] - self.room[1:], 0.0)

    def _rises(self, g: int, change: np.ndarray, rise: float) -> bool:
        """Whether a risk's planes are below it at a change, and there may be more of them."""
        own = [plane.offset + float(plane.slope @ change) for plane in self.planes if plane.g == g]
        # A risk that is not coherent is not above the planes of other densities.
        known = not self.question.risks[g].coherent or len(own) >= MOST_PLANES
        return not known and bool(rise - max(own) > RISE * self.units[g])

    def _lowest(self, prices: np.ndarray) -> tuple[np.ndarray, float, np.ndarray] | None:
        """Return where the largest plane of each loss is least, a bound of the model's rise, and the multipliers."""
        region, planes = self.region, self.planes
        if len(planes) == 1 and region.closed:
            return *region.lowest(planes[0].slope), np.ones(1)
        if self.program is None and not self.question.limits:
            # In units of what the first planes foresee, whatever the losses are measured in.
            foreseen = max(-region.lowest(planes[0].slope)[1], *(abs(plane.offset) for plane in planes))
            self.units = np.array([foreseen])
        answer = self._solve(prices)
        if answer is None:
            return None
        shares = self._multipliers(answer, prices)
        level = sum(share * (p.offset - self.room[p.g]) for p, share in zip(planes, shares, strict=True))
        slope = np.sum([share * p.slope for p, share in zip(planes, shares, strict=True)], axis=0)
        change = region.repair(answer.x[: len(slope)])
        # A lower bound that does not trust the program: the least of the plane its multipliers mix, in closed form.
        if region.closed:
            bound = float(level) + region.lowest(slope)[1]
        elif self.question.limits:
            bound = float(level) + float(slope @ answer.x[: len(slope)])
        else:
            bound = float(self.units[0]) * answer.value
        return change, min(0.0, bound - float(prices @ self.breach)), shares

    def _solve(self, prices: np.ndarray) -> Optimum | None:
        """Minimise `t + price s` with `plane_0(d) <= t` and `plane_j(d) <= room_j + s_j`, everything in units."""
        units, limits, extra = self.units, self.question.limits, self.region.extra
        cost = np.concatenate([[1.0], prices * units[1:] / units[0]])
        if self.program is None:
            self.program = self.region.program(cost, np.concatenate([[-np.inf], np.zeros(limits)]))
        if limits:
            self.program.reprice(np.concatenate([np.zeros(len(self.planes[0].slope) + extra), cost]))
        new = self.planes[self.known :]
        if new:
            rows = np.zeros((len(new), len(self.planes[0].slope) + extra + 1 + limits))
            for row, plane in zip(rows, new, strict=True):
                row[: len(plane.slope)] = plane.slope / units[plane.g]
                row[len(plane.slope) + extra + plane.g] = -1.0
            self.program.add(rows, np.array([(self.room[p.g] - p.offset) / units[p.g] for p in new]))
        self.known = len(self.planes)
        return self.program.solve()

    def _multipliers(self, answer: Optimum, prices: np.ndarray) -> Float[np.ndarray, " J"]:
        """Return the planes' multipliers, made exact: the objective's sum to 1, a limit's to its price at most."""
        groups = np.array([plane.g for plane in self.planes])
        raw = answer.multipliers[-len(groups) :] * self.units[0] / self.units[groups]
        total = np.bincount(groups, raw, minlength=len(self.losses))
        if not total[0] > 0:
            raw[0], total[0] = 1.0, 1.0
        most = np.concatenate([[1.0], prices])
        factor = np.where(total > most, most / np.where(total > 0, total, 1.0), 1.0)
        factor[0] = 1.0 / total[0]
        return raw * factor[groups]


def raise_prices(
    question: Question, broken: np.ndarray, prices: Float[np.ndarray, "*K L"]
) -> Float[np.ndarray, "*K L"]:
    """Return higher prices of the limits that are broken, up to the dearest there are."""
    dearest = DEAREST * question.units[0] / np.where(question.units[1:] > 0, question.units[1:], 1.0)
    return np.where(broken, np.minimum(DEARER * prices, np.maximum(dearest, prices)), prices)


def _ratios(
    table: Float[np.ndarray, "S A"], ratio: float, more: int
) -> tuple[Float[np.ndarray, "J N"], Float[np.ndarray, " J"]]:
    """Return rows whose largest entry is at most `ratio` times the least m: `m <= pi + d <= ratio m`."""
    entries, leasts = np.eye(table.size), np.kron(np.eye(len(table)), np.ones((table.shape[1], 1)))
    nothing = np.zeros((table.size, more))
    rows = np.block([[-entries, leasts, nothing], [entries, -ratio * leasts, nothing]])
    return rows, np.concatenate([table.ravel(), -table.ravel()])
