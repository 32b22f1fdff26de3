"""Stage 13: planners to compare with."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_matrix, identity
from scipy.sparse.linalg import spsolve

from .arrays import Array, in_float64, require_kind
from .errors import InputError
from .kernels import pull
from .models import MDP
from .policies import TabularPolicy

# Policy iteration ends after a handful; this many mean that rounding keeps it going.
MOST_IMPROVEMENTS = 1000


class Plan(eqx.Module):
    """An optimal policy of a known model.

    >>> import prudent as pr
    >>> mdp = pr.MDP(pr.Kernel.dense([[[1.0], [1.0]]]), cost=[[2.0, 1.0]], start=0, discount=0.5)
    >>> pr.plan(mdp).values.tolist()
    [2.0]

    Attributes:
        policy: deterministic.
        values: `[S]` optimal expected discounted cost from each state.
        residual: largest violation of the Bellman equation; the values are off by at most
            `residual / (1 - discount)`.
        iterations: policy improvements made.
    """

    policy: TabularPolicy
    values: Float[Array, " S"]
    residual: float
    iterations: int


@in_float64
def plan(mdp: MDP) -> Plan:
    """Exact planning for expected discounted cost, by policy iteration on successor lists.

    Args:
        mdp: the known model.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake()
    >>> truth = lake.at((0.3, 0.02))
    >>> round(float(truth.start @ pr.plan(truth).values), 2)
    32.56
    """
    require_kind("mdp", mdp, MDP, "an MDP, such as family.at(theta)")
    cost, discount = np.asarray(mdp.cost), float(mdp.discount)
    states, actions, successors = mdp.kernel.support.shape
    index, probability = mdp.kernel.support.index(), np.asarray(mdp.kernel.probability)
    rows = np.arange(states)
    action = cost.argmin(axis=1)
    for iteration in range(MOST_IMPROVEMENTS):
        chain = csr_matrix(
            (probability[rows, action].ravel(), (np.repeat(rows, successors), index[rows, action].ravel())),
            shape=(states, states),
        )
        matrix: Any = (identity(states, format="csr") - discount * chain).tocsc()
        values = np.reshape(np.asarray(spsolve(matrix, cost[rows, action])), states)
        quality = cost + discount * np.asarray(pull(mdp.kernel, values))
        better = quality.argmin(axis=1)
        # Only a real gain changes an action: ties decided by rounding could cycle for ever.
        gain = quality[rows, action] - quality[rows, better]
        change = gain > 1e-12 * (1.0 + np.abs(values))
        if not change.any():
            residual = float(np.abs(quality.min(axis=1) - values).max())
            return Plan(TabularPolicy.deterministic(action, actions), values, residual, iteration)
        action = np.where(change, better, action)
    raise InputError(f"policy iteration did not settle in {MOST_IMPROVEMENTS} improvements; check the costs for ties")
