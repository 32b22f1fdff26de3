"""Natural gradient for tabular policies: policy mirror descent with the risk-weighted occupancy as its metric.

The derivative of the objective by the table is `sum_k w_k mu_k(s) Q_k(s, a)` with `w_k = p_k xi*_k`. Divided by the
visits `sum_k w_k mu_k(s)` it is an average advantage, which says what an action is worth whether or not its state is
visited often; the plain gradient hardly moves states that are rarely met.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from ..gradients import Slopes
from ..policies import Direct, Everywhere, Parametrisation, Simplex
from .descent import Climb, Descent, choose, project_all

# How a row's step grows where the slope still points the same way after a step, and shrinks where it has turned; the
# latter for steps that were accepted and for those that were not, and what a rejection costs the other rows.
GROW, TURNED, REJECTED, OTHERS = 2.0, 0.5, 0.25, 0.7
LONGEST = 1e12

# Logits this far below the largest are as good as never; further down, a row could hardly come back.
LOWEST_LOGIT = -50.0

# Slopes are blended with those of rejected trials whose tables differ by less than this: at a kink of the risk the
# gradient jumps, and what points downhill on both sides is a mixture of the two.
NEARBY = 0.05
SHARES = np.linspace(0.0, 1.0, 41)


class NaturalGradient(Descent):
    """Multiplicative steps `pi(a|s) <- pi(a|s) exp(-eta_s A(s, a))` for `Softmax`, projected ones for `Direct`.

    `A` is the advantage averaged over posterior draws with weights `xi*_k mu_k(s)`. Each state has a step length of its
    own, which grows while the slope keeps its direction and shrinks when it turns; a step that does not lower the
    objective on the sample as foreseen is taken back. There is nothing to tune.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> solver = pr.SampleAverage(samples=32, largest=32, starts=1, step=pr.NaturalGradient())
    >>> pr.solve(lake, lake.prior, risk=pr.CVaR(0.5), solver=solver).status.ok
    True
    """

    def remember(self, climb: Climb) -> Any:
        """Step lengths `[K, S]`: the largest change of a logit is 1 at first."""
        size = np.abs(advantage(climb.tables, climb.slope, climb.visits)).max(axis=(1, 2))
        first = 1.0 / np.where(size > 0, size, 1.0)
        return np.repeat(first[:, None], climb.tables.shape[1], axis=1)

    def propose(self, policy: Parametrisation, climb: Climb) -> Any:
        """A step of each row's own length along the advantages."""
        moved = climb.parameters - climb.memory[:, :, None] * advantage(climb.tables, climb.slope, climb.visits)
        if isinstance(policy.within, Everywhere):
            return np.maximum(moved - moved.max(axis=2, keepdims=True), LOWEST_LOGIT)
        return np.asarray(project_all(policy.within, moved))

    def foreseen(self, climb: Climb, moved: np.ndarray, tables: np.ndarray) -> Float[np.ndarray, " K"]:
        """`<slope, change of the table>`."""
        return (climb.slope * (tables - climb.tables)).sum(axis=(1, 2))

    def learn(
        self,
        climb: Climb,
        moved: Float[np.ndarray, "K D"],
        tables: np.ndarray,
        found: Slopes,
        gradient: np.ndarray,
        accept: Bool[np.ndarray, " K"],
    ) -> tuple[Any, np.ndarray, np.ndarray]:
        """Longer steps where the slope still agrees with the move, shorter ones where it has turned."""
        there = advantage(tables, found.slope, found.visits)
        turned = ((tables - climb.tables) * there).sum(axis=2) > 0
        after = np.where(turned, TURNED, GROW)
        without = np.where(turned, REJECTED, OTHERS)
        memory = np.minimum(climb.memory * np.where(accept[:, None], after, without), LONGEST)
        slope, visits = _blended(climb, tables, found)
        return memory, choose(accept, found.slope, slope), choose(accept, found.visits, visits)

    def left(
        self, policy: Parametrisation, tables: np.ndarray, slope: np.ndarray, norm: np.ndarray
    ) -> Float[np.ndarray, " K"]:
        """`<slope, pi> - min_pi' <slope, pi'>`: what the best change of the table gains to first order."""
        if isinstance(policy, Direct):
            assert isinstance(policy.within, Simplex)
            floor = policy.within.floor
            least = floor * slope.sum(axis=2) + (1.0 - floor * slope.shape[2]) * slope.min(axis=2)
        elif isinstance(policy.within, Everywhere):
            least = slope.min(axis=2)
        else:
            return np.asarray(norm)
        return ((slope * tables).sum(axis=2) - least).sum(axis=1)


def advantage(tables: np.ndarray, slope: np.ndarray, visits: np.ndarray) -> Float[np.ndarray, "K S A"]:
    """The average advantage of each action; 0 in states that are never visited."""
    met = visits[:, :, None]
    quality = np.where(met > 0, slope / np.where(met > 0, met, 1.0), 0.0)
    return quality - (tables * quality).sum(axis=2, keepdims=True)


def _blended(climb: Climb, tables: np.ndarray, found: Slopes) -> tuple[np.ndarray, np.ndarray]:
    """The mixture of the slope with that of a nearby trial by which least could be gained."""
    finite = np.isfinite(found.value) & np.isfinite(found.slope).all(axis=(1, 2))
    near = finite & (np.abs(tables - climb.tables).max(axis=(1, 2)) < NEARBY)
    there = np.where(near[:, None, None], found.slope, climb.slope)
    mixtures = climb.slope + SHARES[:, None, None, None] * (there - climb.slope)
    gains = ((mixtures * climb.tables).sum(axis=3) - mixtures.min(axis=3)).sum(axis=2)
    share = np.where(near, SHARES[gains.argmin(axis=0)], 0.0)
    slope = climb.slope + share[:, None, None] * (there - climb.slope)
    visits = climb.visits + share[:, None] * np.where(near[:, None], found.visits - climb.visits, 0.0)
    return slope, visits
