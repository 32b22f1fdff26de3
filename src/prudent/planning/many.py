"""Planning many known models of one family at once, for expected discounted cost.

All models share a support, so policy iteration runs on the whole batch: one stacked direct solve evaluates every
policy that still changes. NumPy does this; nothing is compiled, and the batch may have any size.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..arrays import in_float64
from ..kernels import Kernel, Support
from ..models import MDP
from .exact import EPSILON, LARGEST_DIRECT, level_of, onward, planned, policy_iteration, rounding

# Matrices of a batch of direct solves.
SOLVE_BYTES = 32 * 2**20

# Sweeps of the robust start: it need not be exact, it is where a search begins.
ROBUST_SWEEPS = 200


class BatchPlan(NamedTuple):
    """Optimal policies of M models: actions, values, and how far each model's values may be off."""

    action: Int[np.ndarray, "M S"]
    values: Float[np.ndarray, "M S"]
    error: Float[np.ndarray, " M"]


def plan_many(
    support: Support,
    probability: Float[np.ndarray, "M S A B"],
    cost: Float[np.ndarray, "M S A"],
    discount: float,
    first: Int[np.ndarray, " S"] | None = None,
) -> BatchPlan:
    """An optimal policy of each model; `first` is a guess that saves improvements where it is nearly right."""
    models, states = cost.shape[:2]
    if states > LARGEST_DIRECT:
        return _one_by_one(support, probability, cost, discount)
    parts, size = [], max(1, SOLVE_BYTES // (8 * states * states))
    for begin in range(0, models, size):
        batch = slice(begin, begin + size)
        parts.append(_planned_together(support, probability[batch], cost[batch], discount, first))
    return BatchPlan(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _planned_together(
    support: Support, probability: np.ndarray, cost: np.ndarray, discount: float, first: np.ndarray | None
) -> BatchPlan:
    level = level_of(cost)
    found = policy_iteration(support, probability, cost - level[:, None, None], discount, first)
    residual = np.abs(found.quality.min(axis=2) - found.values).max(axis=1)
    error = residual + rounding(probability, found.values, level, discount)
    return BatchPlan(found.action, found.values + level[:, None] / (1.0 - discount), error / (1.0 - discount))


@in_float64
def _one_by_one(support: Support, probability: np.ndarray, cost: np.ndarray, discount: float) -> BatchPlan:
    plans = []
    for table, costs in zip(probability, cost, strict=True):
        start = np.full(len(costs), 1.0 / len(costs))
        action, values, residual, _ = planned(MDP(Kernel(support, table), costs, start, discount), None)
        plans.append((action, values, residual / (1.0 - discount)))
    return BatchPlan(*(np.stack(column) for column in zip(*plans, strict=True)))


def least_costs(
    support: Support,
    probability: Float[np.ndarray, "M S A B"],
    cost: Float[np.ndarray, "M S A"],
    start: Float[np.ndarray, " S"],
    discount: float,
    *,
    horizon: int | None = None,
    first: Int[np.ndarray, " S"] | None = None,
) -> Float[np.ndarray, " M"]:
    """A number at most the least expected discounted cost of any policy, and within rounding of it, for each model.

    With a horizon, costs at `t = 0..horizon` count, and policies may change with time.
    """
    if horizon is None:
        plans = plan_many(support, probability, cost, discount, first)
        return costs_below(plans.values, plans.error, start)
    # Values of the best policy that may change with time, stage by stage from the last, and their rounding.
    values, error = np.zeros(cost.shape[:2]), np.zeros(len(cost))
    for _ in range(horizon + 1):
        later = np.abs(values).max(axis=1)
        values = (cost + discount * onward(support, probability, values)).min(axis=2)
        error = discount * error + EPSILON * (probability.shape[3] + 4) * np.maximum(later, np.abs(values).max(axis=1))
    return costs_below(values, error, start)


def costs_below(
    values: Float[np.ndarray, "M S"], error: Float[np.ndarray, " M"], start: Float[np.ndarray, " S"]
) -> Float[np.ndarray, " M"]:
    """Costs from a start, with rounding or a large model's tolerance taken off, so that a bound stays one."""
    return values @ start - error - start.size * EPSILON * np.abs(values).max(axis=1)


def robust_actions(
    support: Support, probability: Float[np.ndarray, "M S A B"], cost: Float[np.ndarray, "M S A"], discount: float
) -> Int[np.ndarray, " S"]:
    """The best actions if every pair, each time, may follow the worst of these models: `V = min_a max_m c + P V`."""
    values, cost = np.zeros(cost.shape[1]), cost - level_of(cost.max(axis=0))
    quality = cost.max(axis=0)
    for _ in range(ROBUST_SWEEPS):
        everyone = np.broadcast_to(values, cost.shape[:2])
        quality = (cost + discount * onward(support, probability, everyone)).max(axis=0)
        values = quality.min(axis=1)
    return quality.argmin(axis=1)
