"""The least cost of each model over the policies of a box, many boxes at once: what branch and bound is made of.

A box holds the policies with `low <= pi(a | s) <= high`. Within it, minimising an expected cost is a Markov decision
process whose action at a state is any row of the box, solved by policy iteration whose greedy row fills the cheapest
actions up to their bounds. With the operator `T v = min_{row in box} <row, c + discount P v>`, any v proves a bound,

    min_pi <start, v^pi>  >=  <start, v> + min_s (T v - v)(s) / (1 - discount)        if min_s (T v - v) <= 0,

because T is monotone and contracts; policy iteration only makes it tight. Rounding is taken off it.

Axis letters: M boxes, N models, S states, A actions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from .gauss_seidel import EPSILON
from .layout import elimination_order
from .models import ModelBatch

# Policy improvements in a box at most; its bound holds after any number of them.
MOST_IMPROVEMENTS = 12

# Residual of the values, as a share of the largest value there could be, below which no improvement is made.
RESIDUAL = 1e-8

# Steps towards a projection's multiplier at most.
PROJECTION_STEPS = 60


class BoxModels(NamedTuple):
    """N models of one batch, prepared for plans in boxes.

    Attributes:
        successor, row, probability, start, discount: as of a `ModelBatch`.
        column: `[S, A, B]` where each successor is within the band of its state.
        place: `[S]` where a state stands in the order of elimination.
        reach: `[S]` one past the last position that the row or column there touches.
    """

    successor: Int[np.ndarray, "S A B"]
    row: Int[np.ndarray, "S A"]
    probability: Float[np.ndarray, "C B N"]
    start: Float[np.ndarray, " S"]
    discount: float
    column: Int[np.ndarray, "S A B"]
    place: Int[np.ndarray, " S"]
    reach: Int[np.ndarray, " S"]

    @staticmethod
    def of(models: ModelBatch) -> BoxModels:
        """Return a batch with the order in which its states are eliminated."""
        order = elimination_order(models.successor)
        successor, row, probability = map(np.ascontiguousarray, (models.successor, models.row, models.probability))
        column = order.place[successor] - order.place[:, None, None] + np.int32(order.band)
        start = np.ascontiguousarray(models.start, dtype=float)
        return BoxModels(successor, row, probability, start, models.discount, column, *order)

    def bound(
        self, values: Float[np.ndarray, "M S N"], residual: Float[np.ndarray, "M N"], size: Float[np.ndarray, ...]
    ) -> Float[np.ndarray, "M N"]:
        """Return what values and their residual prove, rounding taken off; costs are at most of this size."""
        hidden = self.hidden(np.abs(values).max(axis=1) + size)
        return np.einsum("s,msn->mn", self.start, values) + (np.minimum(residual, 0.0) - hidden) / (1.0 - self.discount)

    def hidden(self, size: np.ndarray) -> np.ndarray:
        """Return what rounding may hide in the residual of values and costs of a size together.

        Of the sums behind the residual, of rows that do not sum to 1 exactly, and of the product with the start.
        """
        states, actions, successors = self.successor.shape
        return EPSILON * (4 * (successors + actions + 8) + states) * size


class BoxPlans(NamedTuple):
    """The least costs of N models over M boxes, each model with a policy of its own.

    Attributes:
        least: numbers at most the least cost of each model in each box.
        values: of each state, from which the next plan begins, and which prove the bound.
        rows: each model's own best policy.
        quality: what an action costs a model from each state on.
        visits: how often each model's policy visits a state.
    """

    least: Float[np.ndarray, "M N"]
    values: Float[np.ndarray, "M S N"]
    rows: Float[np.ndarray, "M S A N"]
    quality: Float[np.ndarray, "M S A N"]
    visits: Float[np.ndarray, "M S N"]


def plan_in_boxes(
    models: BoxModels,
    low: Float[np.ndarray, "M S A"],
    high: Float[np.ndarray, "M S A"],
    cost: Float[np.ndarray, "m S A N"],
    guess: Float[np.ndarray, "M S N"],
    improvements: int = MOST_IMPROVEMENTS,
) -> BoxPlans:
    """Return the least costs of every model over every box, until each box's policy iteration has settled.

    Args:
        models: N models, prepared.
        low: bounds of the policies of M boxes.
        high: likewise.
        cost: of each box, or `[1, S, A, N]` for all boxes.
        guess: values that are nearly right.
        improvements: at most so many. With none, the guess proves what it does, and visits are 0.
    """
    from . import box_loops  # Numba is slow to import

    low, high, cost = (np.ascontiguousarray(part, dtype=float) for part in (low, high, cost))
    values = np.array(guess, dtype=float, order="C")
    quality, rows = (np.empty((len(low), *cost.shape[1:])) for _ in range(2))
    residual, visits = np.empty((len(low), cost.shape[3])), np.zeros(values.shape)
    largest = np.abs(cost).max(axis=(1, 2))
    tolerance = RESIDUAL * largest.max(axis=1) / (1.0 - models.discount)
    box_loops.relax(models, cost, low, high, tolerance, improvements, values, quality, rows, residual, visits)
    return BoxPlans(models.bound(values, residual, largest), values, rows, quality, visits)


def visits_of_rows(models: BoxModels, rows: Float[np.ndarray, "M S A N"]) -> Float[np.ndarray, "M S N"]:
    """Return how often M policies, each with rows of its own for each model, visit each state."""
    from . import box_loops

    visits = np.empty((*rows.shape[:2], rows.shape[3]))
    box_loops.follow(models, np.ascontiguousarray(rows), visits)
    return visits


def bound_deviation_costs(
    models: BoxModels,
    cost: Float[np.ndarray, "S A N"],
    low: Float[np.ndarray, "M S A"],
    high: Float[np.ndarray, "M S A"],
    values: Float[np.ndarray, "M S N"],
    state: Int[np.ndarray, "M K"],
    counted: Bool[np.ndarray, "M N"],
    slack: Float[np.ndarray, "M N"],
    tolerance: float,
    paid: Float[np.ndarray, "M V S N"] | None,
) -> tuple[Float[np.ndarray, "M K N"], Float[np.ndarray, "M V S N"], Float[np.ndarray, "M V N"]]:
    """Return what rows at K states cost above the values at most, and what policies of M boxes pay at least for it.

    With a toll for rows at each of a set of the K states, and none at the others of these, policies of the box pay in
    all at least what the values `paid` of that set prove with their residual, for each of the `V = 2^K - 1` sets.

    Args:
        models: N models, prepared.
        cost: of each pair.
        low: bounds of the policies of M boxes.
        high: likewise.
        values: that prove the least costs of the boxes.
        state: K states of each box.
        counted: the models of each box that matter; of others all is 0.
        slack: what rounding may hide above the values.
        tolerance: residual at which no improvement is made.
        paid: the values of each set, taken as they are; found when left out.
    """
    from . import box_loops

    most, sets = MOST_IMPROVEMENTS if paid is None else 0, 2 ** state.shape[1] - 1
    paid = np.zeros((len(low), sets, *values.shape[1:])) if paid is None else np.array(paid, dtype=float)
    toll, residual = np.zeros((*state.shape, values.shape[2])), np.zeros((len(low), sets, values.shape[2]))
    given = (low, high, values, np.asarray(state, dtype=np.int64), np.asarray(counted), slack, tolerance, most)
    box_loops.bound_deviation_costs(models, cost, *given, toll, paid, residual)
    return toll, paid, residual


def nearest_rows(
    rows: Float[np.ndarray, "M S A N"], low: Float[np.ndarray, "M S A"], high: Float[np.ndarray, "M S A"]
) -> Float[np.ndarray, "M S A N"]:
    """Return the nearest rows between the bounds that sum to 1."""
    from . import box_loops

    found = np.empty(rows.shape)
    given = (np.ascontiguousarray(part, dtype=float) for part in (rows, low, high))
    box_loops.project(*given, PROJECTION_STEPS, found)
    return found


def cheapest_rows(
    cost: Float[np.ndarray, "M S A"], low: Float[np.ndarray, "M S A"], high: Float[np.ndarray, "M S A"]
) -> Float[np.ndarray, "M S A"]:
    """Return the rows of least cost between the bounds.

    The cheapest actions are filled up first; of equal ones, the first.
    """
    room = high - low
    before = cost[..., None, :] < cost[..., :, None]
    before |= np.tri(cost.shape[-1], k=-1, dtype=bool) & (cost[..., None, :] == cost[..., :, None])
    cheaper = (before * room[..., None, :]).sum(axis=-1)
    left = 1.0 - low.sum(axis=-1, keepdims=True) - cheaper
    return low + np.clip(left, 0.0, room)
