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

from ..row_sets import RowSet

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
    """

    table: Float[np.ndarray, "S A"]
    losses: Float[np.ndarray, " R"]
    slopes: Float[np.ndarray, "R S A"]
    density: Density


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


def improve(
    model: Linearised, rows: RowSet, radius: float = 1.0, accuracy: float = ACCURACY, enough: float = 0.0
) -> Improvement:
    """The tables within `radius` (in each entry) at which the model is least.

    Args:
        model: the linearised losses and the risk.
        rows: the tables there are.
        radius: of the trust region; 1 is no restriction.
        accuracy: share of the predicted decrease that may be left open.
        enough: the search also ends once no decrease above this is possible.
    """
    table, losses = model.table, model.losses
    flat = model.slopes.reshape(len(losses), -1)
    weights = model.density(losses)
    here = float(weights @ losses)
    planes, offsets = [weights @ flat], [0.0]
    best, least = np.zeros_like(table), 0.0
    while True:
        direction, bound = _lowest(planes, offsets, table, rows, radius)
        if direction is None:
            # The program failed, as it may at the edge of rounding: what is known without it stays true.
            return Improvement(best, -least, max(-least, -_one_plane(planes[0], table, rows, radius)[1]))
        moved = losses + flat @ direction.ravel()
        weights = model.density(moved)
        # Around the values at the table, so that the level of the losses cancels before it can round.
        value = float(weights @ (moved - here))
        if value < least:
            best, least = direction, value
        close = least - bound <= -accuracy * bound or -bound <= enough
        if close or len(planes) == MOST_PLANES:
            return Improvement(best, -least, max(-bound, -least))
        planes.append(weights @ flat)
        offsets.append(float(weights @ (losses - here)))


def _lowest(
    planes: list[np.ndarray], offsets: list[float], table: np.ndarray, rows: RowSet, radius: float
) -> tuple[np.ndarray | None, float]:
    """The direction at which the largest of the planes is least, and its value there."""
    closed = np.isinf(rows.ratio) or radius >= 1.0
    if len(planes) == 1 and closed:
        return _one_plane(planes[0], table, rows, radius)
    return _by_program(planes, offsets, table, rows, radius)


def _one_plane(plane: np.ndarray, table: np.ndarray, rows: RowSet, radius: float) -> tuple[np.ndarray, float]:
    slope = plane.reshape(table.shape)
    if np.isinf(rows.ratio) or radius >= 1.0:
        direction = rows.near_vertex(table, slope, radius) - table
    else:
        direction = rows.vertex(slope) - table
    return direction, min(0.0, float((slope * direction).sum()))


def _by_program(
    planes: list[np.ndarray], offsets: list[float], table: np.ndarray, rows: RowSet, radius: float
) -> tuple[np.ndarray | None, float]:
    """Minimise t over directions d with `offset_j + <plane_j, d> <= t`, and `pi + d` a table near pi."""
    states, actions = table.shape
    count = table.size
    # In units of what the first plane alone foresees, whatever the losses are measured in.
    unit = max(-_one_plane(planes[0], table, rows, radius)[1], max(abs(offset) for offset in offsets))
    if not unit > 0:
        return np.zeros_like(table), 0.0
    low, high = rows.bounds(table, radius)
    extra = states if np.isfinite(rows.ratio) else 0
    cuts = sparse.csr_matrix(
        np.concatenate([np.stack(planes) / unit, np.zeros((len(planes), extra)), -np.ones((len(planes), 1))], axis=1)
    )
    limits = -np.array(offsets) / unit
    if extra:
        cuts, limits = _with_ratio(cuts, limits, table, rows.ratio)
    sums = sparse.hstack(
        [sparse.kron(sparse.eye(states), np.ones((1, actions))), sparse.csr_matrix((states, extra + 1))]
    )
    ends = [(low - table).ravel(), np.zeros(extra), [-np.inf]], [(high - table).ravel(), np.ones(extra), [np.inf]]
    answer = linprog(
        np.concatenate([np.zeros(count + extra), [1.0]]),
        A_ub=cuts,
        b_ub=limits,
        A_eq=sums.tocsr(),
        b_eq=np.zeros(states),
        bounds=np.stack([np.concatenate(end) for end in ends], axis=1),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if answer.status != 0:
        return None, -np.inf
    direction = _on_rows(answer.x[:count].reshape(table.shape), table)
    return direction, min(0.0, unit * _dual_bound(answer, planes, offsets, unit, table, rows, radius))


def _dual_bound(
    answer: Any,
    planes: list[np.ndarray],
    offsets: list[float],
    unit: float,
    table: np.ndarray,
    rows: RowSet,
    radius: float,
) -> float:
    """A lower bound that does not trust the program: the plane that its multipliers mix, minimised in closed form."""
    if np.isfinite(rows.ratio) and radius < 1.0:
        return float(answer.fun)
    shares = np.maximum(-np.asarray(answer.ineqlin.marginals)[: len(planes)], 0.0)
    if not shares.sum() > 0:
        return _one_plane(planes[0], table, rows, radius)[1] / unit
    shares = shares / shares.sum()
    mixed = np.tensordot(shares, np.stack(planes), axes=1)
    return (float(shares @ offsets) + _one_plane(mixed, table, rows, radius)[1]) / unit


def _with_ratio(cuts: Any, limits: np.ndarray, table: np.ndarray, ratio: float) -> tuple[Any, np.ndarray]:
    """Rows whose largest entry is at most `ratio` times the least m: `m <= pi + d <= ratio m`."""
    states, actions = table.shape
    entries = sparse.eye(table.size)
    leasts = sparse.kron(sparse.eye(states), np.ones((actions, 1)))
    nothing = sparse.csr_matrix((table.size, 1))
    above = sparse.hstack([-entries, leasts, nothing])
    below = sparse.hstack([entries, -ratio * leasts, nothing])
    return sparse.vstack([cuts, above, below]).tocsr(), np.concatenate([limits, table.ravel(), -table.ravel()])


def _on_rows(direction: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The direction without the program's rounding: the table it leads to is one."""
    moved = np.maximum(table + direction, 0.0)
    return moved / moved.sum(axis=1, keepdims=True) - table
