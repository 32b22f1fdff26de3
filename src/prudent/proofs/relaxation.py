"""Bounds of many boxes at once, and where each box had best be cut."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from ..arrays import Array
from ..objectives import Boxes, Relaxed
from ..risks import Risk

# Rounding of the risk of a few thousand least losses, as a share of the largest.
ROUNDING = 1e-13

# How much the width of a box counts, beside the draws' disagreement, for what first derivatives leave unexplained.
WIDTH = 0.1


class Bounded(NamedTuple):
    """What is known of N boxes.

    Attributes:
        bound: below the risk of every policy in the box, rounding taken off.
        table: the draws' own best tables, averaged by the risk's weights and by how often they meet a state; made
            deterministic where only such tables count.
        risk: of that table.
        lost: by state, how much of `risk - bound` is lost there by following the table; these sum to no less.
        unexplained: the share of `risk - bound` that first derivatives do not account for.
        at: by action, the average at which a state would be cut.
        disagreement: by action, how far the draws' rows are from it.
        values: from which the relaxation of a child begins.
    """

    bound: Float[Array, " N"]
    table: Float[Array, "N S A"]
    risk: Float[Array, " N"]
    lost: Float[Array, "N S"]
    unexplained: Float[Array, " N"]
    at: Float[Array, "N S A"]
    disagreement: Float[Array, "N S A"]
    values: Float[Array, "N S R"]


class Weighed(NamedTuple):
    """The risk of each box's least losses, rounding taken off, the weights `p xi*` behind it, and their table."""

    bound: Float[Array, " N"]
    weights: Float[Array, "N R"]
    table: Float[Array, "N S A"]


def bounded(
    boxes: Boxes,
    risk: Risk,
    probabilities: Float[Array, " R"],
    deterministic: bool,
    low: Float[Array, "N S A"],
    high: Float[Array, "N S A"],
    values: Float[Array, "N S R"],
) -> Bounded:
    """`rho(min_box C)` of N boxes, begun at values of the boxes they were cut from."""
    found = boxes.relaxed(low, high, values.astype(low.dtype))
    own = weighed(risk, probabilities, deterministic, high, found)
    return _cut(risk, probabilities, low, high, found, own, *boxes.followed(own.table))


def risk_of_least(
    risk: Risk, probabilities: Float[Array, " R"], least: Float[Array, "N R"]
) -> tuple[Float[Array, " N"], Float[Array, "N R"]]:
    """The risk of each box's least losses, rounding taken off, and the weights `p xi*` behind it; traced.

    Risks are monotone, so it is below the risk of any one policy of the box.
    """
    weights = probabilities * jax.vmap(lambda losses: risk.density(losses, probabilities))(least)
    bound = (weights * least).sum(axis=1) - ROUNDING * jnp.abs(least).max(axis=1)
    # A loss without a finite derivative somewhere has no tangent there, and proves nothing.
    return jnp.where(jnp.isnan(bound), -jnp.inf, bound), weights


@eqx.filter_jit
def weighed(
    risk: Risk, probabilities: Float[Array, " R"], deterministic: bool, high: Float[Array, "N S A"], found: Relaxed
) -> Weighed:
    """The bounds, and the tables that their weights make."""
    bound, weights = risk_of_least(risk, probabilities, found.least)
    table = _rows(weights[:, None] * found.visits, found.rows)
    if deterministic:
        best = jnp.argmax(jnp.where(high > 0.5, table, -1.0), axis=2)
        table = jax.nn.one_hot(best, table.shape[2], dtype=table.dtype)
    return Weighed(bound, weights, table)


@eqx.filter_jit
def _cut(
    risk: Risk,
    probabilities: Float[Array, " R"],
    low: Float[Array, "N S A"],
    high: Float[Array, "N S A"],
    found: Relaxed,
    own: Weighed,
    losses: Float[Array, "N R"],
    visits: Float[Array, "N S R"],
) -> Bounded:
    """Where following one table costs most, by state and action.

    What a table pi loses to a draw's own best one is, by the performance difference, `sum_s mu_pi(s) <pi(s) - own(s),
    Q_own(s)>` if the loss is linear. Where a convex one bends, or its tangents are not tight, that is too little; what
    is missing is laid to the states by disagreement and width.
    """
    worst = probabilities * jax.vmap(lambda row: risk.density(row, probabilities))(losses)
    # The draws that make the bound and those that make the table's risk need not be the same: both have a say.
    either = own.weights[:, None] * found.visits + worst[:, None] * visits
    at = _rows(either, found.rows)
    apart = at[..., None] - found.rows
    lost = jnp.maximum((either * (apart * found.quality).sum(axis=2)).sum(axis=2), 0.0)
    disagreement = (either[:, :, None] * jnp.abs(apart)).sum(axis=3)
    followed = (worst * losses).sum(axis=1)
    gap = jnp.maximum(followed - own.bound, 0.0)
    missing = jnp.maximum(gap - lost.sum(axis=1), 0.0)
    unexplained = jnp.where(gap > 0.0, missing / jnp.where(gap > 0.0, gap, 1.0), 0.0)
    disagreement += WIDTH * unexplained[:, None, None] * either.sum(axis=2)[..., None] * (high - low)
    share = disagreement.sum(axis=2)
    total = share.sum(axis=1, keepdims=True)
    lost += missing[:, None] * share / jnp.where(total > 0.0, total, 1.0)
    return Bounded(own.bound, own.table, followed, lost, unexplained, at, disagreement, found.values)


def _rows(weights: Float[Array, "N S R"], rows: Float[Array, "N S A R"]) -> Float[Array, "N S A"]:
    """Rows averaged over the draws; of a state that none meets, evenly."""
    weights = jnp.where(weights.sum(axis=2, keepdims=True) > 0, weights, 1.0)
    return (weights[:, :, None] * rows).sum(axis=3) / weights.sum(axis=2)[..., None]
