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
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import sparse
from scipy.optimize import linprog

from ..parameter_sets import RowSet

# A minimum is good enough if the planes leave this share of the predicted decrease open.
ACCURACY = 0.1

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


class Reach(NamedTuple):
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


class Planes(NamedTuple):
    """Linear functions of the direction below the model: `offset + <slope, direction>`, 0 being the model's value.

    Attributes:
        slopes, offsets: of each.
        densities: `p xi` of each.
    """

    slopes: list[Float[np.ndarray, " N"]]
    offsets: list[float]
    densities: list[Float[np.ndarray, " R"]]


def along(slope: Float[np.ndarray, "S A"], reach: Reach) -> Improvement:
    """The minimum of a linear model."""
    direction, value = reach.lowest(slope.ravel())
    return Improvement(direction, -value, -value)


def improve(model: Linearised, reach: Reach, enough: float = 0.0) -> Improvement:
    """The tables within reach at which the model is least.

    Args:
        model: the linearised losses and the risk.
        reach: the tables there are.
        enough: the search also ends once no decrease above this is possible.
    """
    return _cut(model, reach, enough)[0]


def supporting(model: Linearised, reach: Reach) -> tuple[Float[np.ndarray, "J R"], Float[np.ndarray, " J"]] | None:
    """Densities that tie where the model is least within reach, and their multipliers; None if the program failed."""
    _, planes, shares = _cut(model, reach, 0.0)
    return None if shares is None else (np.stack(planes.densities[: len(shares)]), shares)


def _cut(model: Linearised, reach: Reach, enough: float) -> tuple[Improvement, Planes, np.ndarray | None]:
    """A minimum by cutting planes, the planes, and the multipliers of the first of them."""
    losses = model.losses
    flat = model.slopes.reshape(len(losses), -1)
    weights = model.density(losses)
    here = float(weights @ losses)
    planes = Planes([weights @ flat], [0.0], [weights])
    best, least = np.zeros_like(reach.table), 0.0
    while True:
        direction, bound, shares = _lowest(planes, reach)
        if direction is None:
            # The program failed, as it may at the edge of rounding: what is known without it stays true.
            known = max(-least, -reach.lowest(planes.slopes[0])[1])
            return Improvement(best, -least, known), planes, None
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


def _lowest(planes: Planes, reach: Reach) -> tuple[np.ndarray | None, float, np.ndarray | None]:
    """The direction at which the largest of the planes is least, a bound of its value there from below, multipliers."""
    if len(planes.slopes) == 1 and reach.closed:
        return *reach.lowest(planes.slopes[0]), np.ones(1)
    # In units of what the first plane alone foresees, whatever the losses are measured in.
    unit = max(-reach.lowest(planes.slopes[0])[1], max(abs(offset) for offset in planes.offsets))
    if not unit > 0:
        return np.zeros_like(reach.table), 0.0, np.eye(len(planes.slopes))[0]
    answer = _program(planes, reach, unit)
    if answer.status != 0:
        return None, -np.inf, None
    moved = np.maximum(reach.table + answer.x[: reach.table.size].reshape(reach.table.shape), 0.0)
    direction = moved / moved.sum(axis=1, keepdims=True) - reach.table
    shares = _shares(answer, len(planes.slopes))
    return direction, min(0.0, _dual_bound(answer, shares, planes, reach, unit)), shares


def _program(planes: Planes, reach: Reach, unit: float) -> Any:
    """Minimise t over directions d with `offset_j + <slope_j, d> <= t`, and `pi + d` a table within reach."""
    table, count = reach.table, len(planes.slopes)
    states, actions = table.shape
    low, high = reach.rows.bounds(table, reach.radius)
    extra = states if np.isfinite(reach.rows.ratio) else 0
    slopes = np.stack(planes.slopes) / unit
    cuts: Any = sparse.csr_matrix(np.concatenate([slopes, np.zeros((count, extra)), -np.ones((count, 1))], axis=1))
    limits = -np.array(planes.offsets) / unit
    if extra:
        cuts, limits = _with_ratio(cuts, limits, table, reach.rows.ratio)
    sums = sparse.kron(sparse.eye(states), np.ones((1, actions)))
    ends = [(low - table).ravel(), np.zeros(extra), [-np.inf]], [(high - table).ravel(), np.ones(extra), [np.inf]]
    return linprog(
        np.concatenate([np.zeros(table.size + extra), [1.0]]),
        A_ub=cuts,
        b_ub=limits,
        A_eq=sparse.hstack([sums, sparse.csr_matrix((states, extra + 1))]).tocsr(),
        b_eq=np.zeros(states),
        bounds=np.stack([np.concatenate(end) for end in ends], axis=1),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )


def _shares(answer: Any, count: int) -> Float[np.ndarray, " J"]:
    """The program's multipliers of the planes, summing to 1; of the first plane alone where it gives none."""
    shares = np.maximum(-np.asarray(answer.ineqlin.marginals)[:count], 0.0)
    return shares / shares.sum() if shares.sum() > 0 else np.eye(count)[0]


def _dual_bound(answer: Any, shares: np.ndarray, planes: Planes, reach: Reach, unit: float) -> float:
    """A lower bound that does not trust the program: the plane that its multipliers mix, minimised in closed form."""
    if not reach.closed:
        return unit * float(answer.fun)
    mixed = np.tensordot(shares, np.stack(planes.slopes), axes=1)
    return float(shares @ planes.offsets) + reach.lowest(mixed)[1]


def _with_ratio(cuts: Any, limits: np.ndarray, table: np.ndarray, ratio: float) -> tuple[Any, np.ndarray]:
    """Rows whose largest entry is at most `ratio` times the least m: `m <= pi + d <= ratio m`."""
    states, actions = table.shape
    entries = sparse.eye(table.size)
    leasts = sparse.kron(sparse.eye(states), np.ones((actions, 1)))
    nothing = sparse.csr_matrix((table.size, 1))
    above = sparse.hstack([-entries, leasts, nothing])
    below = sparse.hstack([entries, -ratio * leasts, nothing])
    return sparse.vstack([cuts, above, below]).tocsr(), np.concatenate([limits, table.ravel(), -table.ravel()])
