"""Bounds of many boxes at once, and where each box had best be cut.

Within a box each draw may have a table of its own: the risk of the least losses is below that of every one table. How
far below is told by what one table costs the others. With a draw's values v, their qualities `Q = c + discount P v`
and its visits m, any table pi of the box loses `<start, v> + sum_s m_pi(s) (<pi(s), Q(s)> - v(s))`. If v is the draw's
own best, no term is negative, and a table that avoids a state pays for it elsewhere: there are numbers n(s), no fewer
than the fewest visits, such that it pays at least `sum_s n(s) (<pi(s), Q(s)> - v(s))` in all (`DeviationBounds`). So

    rho(C(pi)) >= sum_r w_r least_r + sum_s min_{row in box} <row, sum_r w_r n_r(s) (Q_r(s) - v_r(s))>

for all weights w of the risk's envelope. The second term is what sharing a table costs at least.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..objectives import Boxes, BoxPlans, cheapest_rows
from ..risks import Risk

# Rounding of the risk of a few thousand least losses, as a share of the largest.
ROUNDING = 1e-13

# States of a box with tolls.
TOLLS = 2

EPSILON = float(np.finfo(np.float64).eps)

# How often the weights of the risk are moved to where sharing hurts.
MOVES = 2

# How much the width of a box counts, beside the draws' disagreement, for what first derivatives leave unexplained.
WIDTH = 0.1


class Bounded(NamedTuple):
    """What is known of N boxes.

    Attributes:
        bound: below the risk of every policy in the box, rounding taken off.
        told: below that of policies that are told theta, too.
        table: the draws' own best tables, averaged by the risk's weights and by how often they meet a state; made
            deterministic where only such tables count.
        risk: of that table.
        lost: by state, how much of `risk - bound` is lost there by following the table; these sum to no less.
        unexplained: the share of `risk - bound` that first derivatives do not account for.
        at: by action, the average at which a state would be cut.
        disagreement: by action, how far the draws' rows are from it.
        values: from which the relaxation of a child begins.
        tolls: the states at which sharing a table was counted.
    """

    bound: Float[np.ndarray, " N"]
    told: Float[np.ndarray, " N"]
    table: Float[np.ndarray, "N S A"]
    risk: Float[np.ndarray, " N"]
    lost: Float[np.ndarray, "N S"]
    unexplained: Float[np.ndarray, " N"]
    at: Float[np.ndarray, "N S A"]
    disagreement: Float[np.ndarray, "N S A"]
    values: Float[np.ndarray, "N S R"]
    tolls: Int[np.ndarray, "N K"]


class Weighed(NamedTuple):
    """The risk of each box's least losses, rounding taken off, the weights `p xi*` behind it, and their table."""

    bound: Float[np.ndarray, " N"]
    weights: Float[np.ndarray, "N R"]
    table: Float[np.ndarray, "N S A"]


class Judged(NamedTuple):
    """What boxes' least losses weigh, and the table of each: its losses, their weights `p xi*`, and its visits."""

    own: Weighed
    losses: Float[np.ndarray, "N R"]
    worst: Float[np.ndarray, "N R"]
    visits: Float[np.ndarray, "N S R"]

    @property
    def weights(self) -> Float[np.ndarray, "N R"]:
        """Those of both: the draws that make the bound and those that make the table's risk need not be the same."""
        return self.own.weights + self.worst

    @property
    def counted(self) -> Bool[np.ndarray, "N R"]:
        """The draws whose tolls count; those of others would only draw the weights away from where the bound is."""
        return self.weights > 0.0


def bounded(
    boxes: Boxes,
    risk: Risk,
    probabilities: Float[np.ndarray, " R"],
    deterministic: bool,
    low: Float[np.ndarray, "N S A"],
    high: Float[np.ndarray, "N S A"],
    values: Float[np.ndarray, "N S R"],
) -> Bounded:
    """Return bounds of N boxes, begun at values of the boxes they were cut from."""
    found = boxes.relaxed(low, high, values)
    judged = judge_boxes(boxes, risk, probabilities, deterministic, high, found)
    state = np.argsort(-_sharing_costs(judged.weights, found, low, high), axis=1)[:, :TOLLS]
    tolls = boxes.tolls(low, high, found.values, state, judged.counted)
    charged = np.zeros((*state.shape, len(probabilities))) if tolls is None else tolls.visits
    return _cut(risk, probabilities, low, high, found, judged, state, charged)


def judge_boxes(
    boxes: Boxes,
    risk: Risk,
    probabilities: Float[np.ndarray, " R"],
    deterministic: bool,
    high: Float[np.ndarray, "N S A"],
    found: BoxPlans,
) -> Judged:
    """Weigh the least losses of boxes, and those of the table that the weights make."""
    own = weighed(risk, probabilities, deterministic, high, found)
    losses, visits = boxes.followed(own.table)
    return Judged(own, losses, _weights(risk, probabilities, losses), visits)


def _sharing_costs(
    weights: Float[np.ndarray, "N R"],
    found: BoxPlans,
    low: Float[np.ndarray, "N S A"],
    high: Float[np.ndarray, "N S A"],
) -> Float[np.ndarray, "N S"]:
    """Return what sharing a row would cost at each state, if no table went round it."""
    often = weights[:, None] * found.visits
    price = _average(often, found.quality) - (often * found.values).sum(axis=2)[:, :, None]
    return (cheapest_rows(price, low, high) * price).sum(axis=2)


def _average(weights: Float[np.ndarray, "N K R"], rows: Float[np.ndarray, "N K A R"]) -> Float[np.ndarray, "N K A"]:
    """Return the weighted sum over the draws, `sum_r weights rows`."""
    return (rows @ weights[..., None])[..., 0]


def _weights(
    risk: Risk, probabilities: Float[np.ndarray, " R"], losses: Float[np.ndarray, "N R"]
) -> Float[np.ndarray, "N R"]:
    """Return `p xi*` of each box's losses."""
    return probabilities * risk.densities(losses, np.broadcast_to(probabilities, losses.shape))


def risk_of_least(
    risk: Risk, probabilities: Float[np.ndarray, " R"], least: Float[np.ndarray, "N R"]
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "N R"]]:
    """Return the risk of each box's least losses, rounding taken off, and the weights `p xi*` behind it.

    Risks are monotone, so it is below the risk of any one policy of the box.
    """
    weights = _weights(risk, probabilities, least)
    bound = (weights * least).sum(axis=1) - ROUNDING * np.abs(least).max(axis=1)
    # A loss without a finite derivative somewhere has no tangent there, and proves nothing.
    return np.where(np.isnan(bound), -np.inf, bound), weights


def weighed(
    risk: Risk,
    probabilities: Float[np.ndarray, " R"],
    deterministic: bool,
    high: Float[np.ndarray, "N S A"],
    found: BoxPlans,
) -> Weighed:
    """Return the bounds, and the tables that their weights make."""
    bound, weights = risk_of_least(risk, probabilities, found.least)
    often = weights[:, None] * found.visits
    table = _rows(often, found.rows)
    if deterministic:
        table = np.eye(table.shape[2])[np.where(high > 0.5, table, -1.0).argmax(axis=2)]
    return Weighed(bound, weights, table)


def shared(
    risk: Risk,
    probabilities: Float[np.ndarray, " R"],
    low: Float[np.ndarray, "N S A"],
    high: Float[np.ndarray, "N S A"],
    found: BoxPlans,
    state: Int[np.ndarray, "N K"],
    visits: Float[np.ndarray, "N K R"],
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "N K"], Float[np.ndarray, "N R"]]:
    """Return the bound of tables that all draws share, what sharing costs by state, and the weights behind both.

    What was `found` is least losses, and the values and qualities that prove them. `DeviationBounds` says what `visits`
    are.
    """
    least = found.least
    there = (np.arange(len(state))[:, None], state)
    low, high = low[there], high[there]
    costs = visits[:, :, None] * (found.quality[there] - found.values[there][:, :, None])

    def priced(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        price = (costs @ weights[:, None, :, None])[..., 0]
        rows = cheapest_rows(price, low, high)
        by_state = (rows * price).sum(axis=2)
        losses = least + (rows[..., None] * costs).sum(axis=(1, 2))
        return (weights * least).sum(axis=1) + by_state.sum(axis=1), by_state, losses

    weights = best_weights = _weights(risk, probabilities, least)
    best, by_state, losses = priced(weights)
    for _ in range(MOVES):
        # Halfway stays in the envelope, which is convex.
        weights = 0.5 * (weights + _weights(risk, probabilities, losses))
        bound, other, losses = priced(weights)
        better = (bound > best)[:, None]
        by_state, best_weights = np.where(better, other, by_state), np.where(better, weights, best_weights)
        best = np.maximum(best, bound)
    # What rounding may hide in the sums over states, actions and draws.
    largest = np.abs(least).max(axis=1) + np.abs(costs).max(axis=(2, 3)).sum(axis=1)
    best -= 8 * EPSILON * sum(costs.shape[1:]) * largest
    return np.where(np.isnan(best), -np.inf, best), by_state, best_weights


def _cut(
    risk: Risk,
    probabilities: Float[np.ndarray, " R"],
    low: Float[np.ndarray, "N S A"],
    high: Float[np.ndarray, "N S A"],
    found: BoxPlans,
    judged: Judged,
    state: Int[np.ndarray, "N K"],
    charged: Float[np.ndarray, "N K R"],
) -> Bounded:
    """Find where following one table costs most, by state and action.

    What a table pi loses to a draw's own best one is, by the performance difference, `sum_s mu_pi(s) <pi(s) - own(s),
    Q_own(s)>` if the loss is linear. Where a convex one bends, or its tangents are not tight, that is too little; what
    is missing is laid to the states by disagreement and width.
    """
    own, losses, worst, visits = judged
    either = own.weights[:, None] * found.visits + worst[:, None] * visits
    at = _rows(either, found.rows)
    disagreement = _average(either, np.abs(at[..., None] - found.rows))
    followed = (worst * losses).sum(axis=1)
    sharing, known, _ = shared(risk, probabilities, low, high, found, state, charged)
    bound = np.maximum(own.bound, sharing)
    there = (np.arange(len(state))[:, None], state)
    lost = np.maximum((either * ((at[..., None] - found.rows) * found.quality).sum(axis=2)).sum(axis=2), 0.0)
    lost[there] -= known
    lost = np.maximum(lost, 0.0)
    gap = np.maximum(followed - bound, 0.0)
    missing = np.maximum(gap - lost.sum(axis=1), 0.0)
    unexplained = np.where(gap > 0.0, missing / np.where(gap > 0.0, gap, 1.0), 0.0)
    disagreement += WIDTH * unexplained[:, None, None] * either.sum(axis=2)[..., None] * (high - low)
    share = disagreement.sum(axis=2)
    total = share.sum(axis=1, keepdims=True)
    lost += missing[:, None] * share / np.where(total > 0.0, total, 1.0)
    return Bounded(bound, own.bound, own.table, followed, lost, unexplained, at, disagreement, found.values, state)


def _rows(weights: Float[np.ndarray, "N S R"], rows: Float[np.ndarray, "N S A R"]) -> Float[np.ndarray, "N S A"]:
    """Return rows averaged over the draws; of a state that none visits, evenly."""
    weights = np.where(weights.sum(axis=2, keepdims=True) > 0, weights, 1.0)
    return _average(weights, rows) / weights.sum(axis=2)[..., None]
