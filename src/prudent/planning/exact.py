"""The best policy of a known model for expected discounted cost, and the least costs of a finite horizon."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from .. import engine
from ..arrays import Array, require_kind, require_number
from ..engine import EPSILON, ModelBatch, action_futures, level_of
from ..kernels import Support
from ..losses import batch_of
from ..models import MDP
from ..policies import TabularPolicy
from ..records import Record

# Sweeps of the robust start: it need not be exact, it is where a search begins.
ROBUST_SWEEPS = 200


class Plan(Record):
    """An optimal policy of a known model.

    >>> import prudent as pr
    >>> mdp = pr.MDP(pr.Kernel.dense([[[1.0], [1.0]]]), cost=[[2.0, 1.0]], start=0, discount=0.5)
    >>> pr.plan(mdp).values.tolist()
    [2.0]

    Attributes:
        policy: deterministic, greedy for the values; of actions that tie within rounding, the first.
        values: `[S]` optimal expected discounted cost from each state.
        residual: largest violation of the Bellman equation, rounding counted in; the values are off by at most
            `residual / (1 - discount)`.
        iterations: policy improvements made.
    """

    policy: TabularPolicy
    values: Float[Array, " S"]
    residual: float
    iterations: int


def plan(mdp: MDP, tolerance: float | None = None) -> Plan:
    """Plan exactly for expected discounted cost, `V = min_a c + discount P V`.

    Policy iteration with a direct solve for small models, exact to rounding; modified policy iteration by
    sweeps for large ones, which ends when its certificate says so. The policy is that of `a c + b`, too,
    for any `a > 0` and b, as far as the digits of the costs tell.

    Args:
        mdp: the known model.
        tolerance: largest error of any state's value, > 0, in the unit of the costs. Left out, it is 1e-10 times the
            spread of the values, `max V - min V`, whatever the unit. Rounding may leave more for a tolerance far below
            the values or a discount near 1; the plan's `residual` says what was reached.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake()
    >>> truth = lake.at((0.3, 0.02))
    >>> round(float(truth.start @ pr.plan(truth).values), 2)
    32.56
    """
    require_kind("mdp", mdp, MDP, "an MDP, such as family.at(theta)")
    tolerance = require_tolerance(tolerance, "the largest error of the values")
    return plan_of(engine.plan(batch_of(mdp), tolerance=tolerance), float(mdp.discount), mdp.kernel.support)


def plan_of(found: engine.ModelPlans, discount: float, support: Support) -> Plan:
    """Return the plan of the first model of a batch."""
    policy = TabularPolicy.deterministic(found.action[:, 0], support.actions).named(support.labels)
    residual = float(found.error[0]) * (1.0 - discount)
    return Plan(policy, found.values[:, 0], residual, int(found.improvements[0]))


def require_tolerance(tolerance: float | None, meaning: str) -> float | None:
    """Return a tolerance that can be met, or None where it is left to the planner."""
    if tolerance is None:
        return None
    return float(require_number(f"tolerance, {meaning},", tolerance, "(0, inf)"))


def least_costs(
    models: ModelBatch, cost: Float[np.ndarray, "S A n"], horizon: int | None = None
) -> Float[np.ndarray, " N"]:
    """Return a number at most the least expected discounted cost of any policy, and within rounding of it, by model.

    With a horizon, costs at `t = 0..horizon` count, and policies may change with time.
    """
    if horizon is None:
        return engine.plan(models, cost).low
    # Values of the best policy that may change with time, stage by stage from the last, and their rounding.
    values, error = np.zeros((len(cost), models.size)), np.zeros(models.size)
    terms, discount = models.probability.shape[1] + 4, models.discount
    for _ in range(horizon + 1):
        later = np.abs(values).max(axis=0)
        values = (cost + discount * action_futures(models, values)).min(axis=1)
        error = discount * error + EPSILON * terms * np.maximum(later, np.abs(values).max(axis=0))
    from_start = np.einsum("s,sn->n", models.start, values)
    return from_start - error - len(cost) * EPSILON * np.abs(values).max(axis=0)


def robust_actions(models: ModelBatch, cost: Float[np.ndarray, "S A n"]) -> Int[np.ndarray, " S"]:
    """Return the best actions if each pair may follow the worst of the models: `V = min_a max_n c + discount P V`."""
    cost = cost - level_of(cost.max(axis=2))
    values, quality = np.zeros((len(cost), 1)), cost.max(axis=2)
    for _ in range(ROBUST_SWEEPS):
        ahead = action_futures(models, np.broadcast_to(values, (len(cost), models.size)))
        quality = (cost + models.discount * ahead).max(axis=2)
        values = quality.min(axis=1, keepdims=True)
    return quality.argmin(axis=1)
