"""The risk of linearised losses, minimised over tables: the prox-linear step and the measure of stationarity.

`rho(C(pi))` is a convex function of smooth ones. With `g_k = dC_k/dpi`, the model `rho(C + <g, pi' - pi>)` keeps the
risk's kinks and linearises the losses alone. It is convex in pi', and its least value over all tables is below
`rho(C(pi))` unless pi is stationary: the predicted decrease is 0 there and nowhere else, at kinks and at vertices too.

The model is minimised by cutting planes. Any density xi of the risk's envelope bounds it from below by a linear
function, so the risk's own `density` is all that has to be known of the risk. One plane is minimised in closed form,
several by a linear program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import sparse

from ..parameter_sets import RowSet
from ..programs import CutProgram, Optimum

# A minimum is good enough if the planes leave this share of the predicted decrease open.
ACCURACY = 0.1

# A decrease below this share of the largest loss or slope is rounding, and no unit for a program.
ROUNDING = 1e-14

# Planes of one model; a step needs a few, a proof of stationarity some more.
MOST_PLANES = 40

Density = Callable[[Float[np.ndarray, " R"]], Float[np.ndarray, " R"]]


class Linearised(NamedTuple):
    """Losses near a table.

    Attributes:
        table: where they are linearised.
        losses: their values there.
        slopes: their derivatives by the table.
        density: `losses -> p xi*`, the risk's weights of linearised losses, summing to 1.
        planes: most of them; 1 for a risk that is not coherent, which other densities do not bound from below.
    """

    table: Float[np.ndarray, "S A"]
    losses: Float[np.ndarray, " R"]
    slopes: Float[np.ndarray, "R S A"]
    density: Density
    planes: int = MOST_PLANES


class Improvement(NamedTuple):
    """A minimum of the model.

    Attributes:
        direction: change of the table, rows summing to 0.
        decrease: of the model there.
        most: a number that the model's decrease exceeds nowhere within the radius.
    """

    direction: Float[np.ndarray, "S A"]
    decrease: float
    most: float


class TrustRegion(NamedTuple):
    """The tables of a set that are within a radius of one of them, in each entry; 1 is no restriction."""

    table: Float[np.ndarray, "S A"]
    rows: RowSet
    radius: float = 1.0

    def lowest(self, plane: Float[np.ndarray, " N"]) -> tuple[Float[np.ndarray, "S A"], float]:
        """The direction along which a linear function falls most, and its fall there, at most 0.

        Rows in a ratio have no closed form within a radius; then over all of them, which falls no less.
        """
        slope = plane.reshape(self.table.shape)
        radius = self.radius if np.isinf(self.rows.ratio) else 1.0
        direction = self.rows.near_vertex(self.table, slope, radius) - self.table
        return direction, min(0.0, float((slope * direction).sum()))

    @property
    def closed(self) -> bool:
        """Whether `lowest` keeps to the radius."""
        return bool(np.isinf(self.rows.ratio)) or self.radius >= 1.0

    def bounds(self) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]:
        """The least and the largest change of each entry."""
        low, high = self.rows.bounds(self.table, self.radius)
        return (low - self.table).ravel(), (high - self.table).ravel()

    @property
    def extra(self) -> int:
        """Variables of rows in a ratio: the least entry of each."""
        return len(self.table) if np.isfinite(self.rows.ratio) else 0

    def program(self, cost: Float[np.ndarray, " V"], low: Float[np.ndarray, " V"]) -> CutProgram:
        """Over the changes within reach, followed by the extra variables and V more of these costs and least values."""
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


class Planes(NamedTuple):
    """Linear functions of the direction below the model: `offset + <slope, direction>`, 0 being the model's value.

    Attributes:
        slopes, offsets: of each.
        densities: `p xi` of each.
    """

    slopes: list[Float[np.ndarray, " N"]]
    offsets: list[float]
    densities: list[Float[np.ndarray, " R"]]


def along(slope: Float[np.ndarray, "S A"], reach: TrustRegion) -> Improvement:
    """The minimum of a linear model."""
    direction, value = reach.lowest(slope.ravel())
    return Improvement(direction, -value, -value)


def improve(model: Linearised, reach: TrustRegion, enough: float = 0.0) -> Improvement:
    """The tables within reach at which the model is least.

    Args:
        model: the linearised losses and the risk.
        reach: the tables there are.
        enough: the search also ends once no decrease above this is possible.
    """
    return _cut(model, reach, enough)[0]


def supporting(
    model: Linearised, reach: TrustRegion
) -> tuple[Float[np.ndarray, "J R"], Float[np.ndarray, " J"]] | None:
    """Densities that tie where the model is least within reach, and their multipliers; None if the program failed."""
    _, planes, shares = _cut(model, reach, 0.0)
    return None if shares is None else (np.stack(planes.densities[: len(shares)]), shares)


def _cut(model: Linearised, reach: TrustRegion, enough: float) -> tuple[Improvement, Planes, np.ndarray | None]:
    """A minimum by cutting planes, the planes, and the multipliers of the first of them."""
    losses = model.losses
    flat = model.slopes.reshape(len(losses), -1)
    weights = model.density(losses)
    here = float(weights @ losses)
    planes = Planes([weights @ flat], [0.0], [weights])
    best, least = np.zeros_like(reach.table), 0.0
    foreseen = -reach.lowest(planes.slopes[0])[1]
    if foreseen <= ROUNDING * max(np.abs(losses).max(), np.abs(flat).max()):
        return Improvement(best, 0.0, foreseen), planes, np.ones(1)
    program = _Program(planes, reach)
    while True:
        direction, bound, shares = program.lowest()
        if direction is None:
            # The program failed, as it may at the edge of rounding: what is known without it stays true.
            return Improvement(best, -least, max(-least, foreseen)), planes, None
        moved = losses + flat @ direction.ravel()
        weights = model.density(moved)
        # Around the values at the table, so that the level of the losses cancels before it can round.
        value = float(weights @ (moved - here))
        if value < least:
            best, least = direction, value
        close = least - bound <= -ACCURACY * bound or -bound <= enough
        if close or len(planes.slopes) == model.planes:
            return Improvement(best, -least, max(-bound, -least)), planes, shares
        planes.slopes.append(weights @ flat)
        planes.offsets.append(float(weights @ (losses - here)))
        planes.densities.append(weights)


class _Program:
    """Minimise t over directions d with `offset_j + <slope_j, d> <= t` for planes that become more, within reach."""

    def __init__(self, planes: Planes, reach: TrustRegion):
        self.planes, self.reach = planes, reach
        self.program: CutProgram | None = None
        self.unit, self.known = 0.0, 0

    def lowest(self) -> tuple[np.ndarray | None, float, np.ndarray | None]:
        """The direction at which the largest plane is least, a bound of its value there from below, multipliers."""
        reach, planes = self.reach, self.planes
        if len(planes.slopes) == 1 and reach.closed:
            return *reach.lowest(planes.slopes[0]), np.ones(1)
        if self.program is None:
            # In units of what the first planes foresee, whatever the losses are measured in.
            self.unit = max(-reach.lowest(planes.slopes[0])[1], *(abs(offset) for offset in planes.offsets))
        answer = self._solve()
        if answer is None:
            return None, -np.inf, None
        moved = np.maximum(reach.table + answer.x[: reach.table.size].reshape(reach.table.shape), 0.0)
        direction = moved / moved.sum(axis=1, keepdims=True) - reach.table
        shares = answer.multipliers[-len(planes.slopes) :]
        shares = shares / shares.sum() if shares.sum() > 0 else np.eye(len(planes.slopes))[0]
        return direction, min(0.0, self._dual_bound(answer, shares)), shares

    def _solve(self) -> Optimum | None:
        if self.program is None:
            self.program = self.reach.program(np.ones(1), np.full(1, -np.inf))
        slopes = np.stack(self.planes.slopes[self.known :]) / self.unit
        extra = np.zeros((len(slopes), self.reach.extra))
        rows = np.concatenate([slopes, extra, -np.ones((len(slopes), 1))], axis=1)
        self.program.add(rows, -np.array(self.planes.offsets[self.known :]) / self.unit)
        self.known = len(self.planes.slopes)
        return self.program.solve()

    def _dual_bound(self, answer: Optimum, shares: Float[np.ndarray, " J"]) -> float:
        """A lower bound that does not trust the program: the least of the plane its multipliers mix, in closed form."""
        if not self.reach.closed:
            return self.unit * answer.value
        mixed = np.tensordot(shares, np.stack(self.planes.slopes), axes=1)
        return float(shares @ self.planes.offsets) + self.reach.lowest(mixed)[1]


def _ratios(
    table: Float[np.ndarray, "S A"], ratio: float, more: int
) -> tuple[Float[np.ndarray, "J N"], Float[np.ndarray, " J"]]:
    """Rows whose largest entry is at most `ratio` times the least m: `m <= pi + d <= ratio m`."""
    entries, leasts = np.eye(table.size), np.kron(np.eye(len(table)), np.ones((table.shape[1], 1)))
    nothing = np.zeros((table.size, more))
    rows = np.block([[-entries, leasts, nothing], [entries, -ratio * leasts, nothing]])
    return rows, np.concatenate([table.ravel(), -table.ravel()])
