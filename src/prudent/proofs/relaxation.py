"""Bounds of many boxes at once, and where each box had best be cut."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Float

from ..arrays import Array
from ..objectives import Boxes
from ..risks import Risk

# Rounding of the risk of a few thousand least losses, as a share of the largest.
ROUNDING = 1e-13

# Boxes that are worked on together: so few that their models stay in the processor's cache.
BLOCK = 8


class Bounded(NamedTuple):
    """What is known of N boxes.

    Attributes:
        bound: below the risk of every policy in the box, rounding taken off.
        table: the draws' own best tables, averaged by the risk's weights and by how often they meet a state; made
            deterministic where only such tables count.
        risk: of that table.
        lost: by state, how much of `risk - bound` is lost there by following the table; these sum to no less.
        at: by action, the average at which a state would be cut.
        disagreement: by action, how far the draws' rows are from it.
        values: from which the relaxation of a child begins.
    """

    bound: Float[Array, " N"]
    table: Float[Array, "N S A"]
    risk: Float[Array, " N"]
    lost: Float[Array, "N S"]
    at: Float[Array, "N S A"]
    disagreement: Float[Array, "N S A"]
    values: Float[Array, "N R S"]


def risk_of_least(
    risk: Risk, probabilities: Float[Array, " R"], least: Float[Array, "N R"]
) -> tuple[Float[Array, " N"], Float[Array, "N R"]]:
    """The risk of each box's least losses, rounding taken off, and the weights `p xi*` behind it; traced."""
    weights = probabilities * jax.vmap(lambda losses: risk.density(losses, probabilities))(least)
    bound = (weights * least).sum(axis=1) - ROUNDING * jnp.abs(least).max(axis=1)
    # A loss without a finite derivative somewhere has no tangent there, and proves nothing.
    return jnp.where(jnp.isnan(bound), -jnp.inf, bound), weights


@eqx.filter_jit
def bounded(
    boxes: Boxes,
    risk: Risk,
    probabilities: Float[Array, " R"],
    deterministic: bool,
    low: Float[Array, "N S A"],
    high: Float[Array, "N S A"],
    values: Float[Array, "N R S"],
) -> Bounded:
    """`rho(min_box C)` of N boxes, a multiple of `BLOCK`.

    Risks are monotone, so the risk of the least losses is below that of any one policy of the box. What a table pi
    loses to a draw's own best one is, by the performance difference, `sum_s mu_pi(s) <pi(s) - own(s), Q_own(s)>`.
    """

    def block(parts: tuple[Array, Array, Array]) -> Bounded:
        low, high, values = parts
        found = boxes.relaxed(low, high, values.astype(low.dtype))
        bound, weights = risk_of_least(risk, probabilities, found.least)
        own = weights[:, :, None] * found.visits
        table = _rows(own, found.rows)
        if deterministic:
            table = jax.nn.one_hot(
                jnp.argmax(jnp.where(high > 0.5, table, -1.0), axis=2), table.shape[2], dtype=low.dtype
            )
        losses, visits = boxes.followed(table)
        worst = probabilities * jax.vmap(lambda row: risk.density(row, probabilities))(losses)
        common = worst[:, :, None] * visits
        # The draws that make the bound and those that make the table's risk need not be the same: both have a say.
        at, either = _rows(own + common, found.rows), own + common
        lost = (either * ((at[:, None] - found.rows) * found.quality).sum(axis=3)).sum(axis=1)
        disagreement = (either[..., None] * jnp.abs(at[:, None] - found.rows)).sum(axis=1)
        return Bounded(bound, table, (worst * losses).sum(axis=1), lost, at, disagreement, found.values)

    count = low.shape[0]
    parts = jax.tree.map(lambda part: part.reshape(count // BLOCK, BLOCK, *part.shape[1:]), (low, high, values))
    return jax.tree.map(lambda part: part.reshape(count, *part.shape[2:]), lax.map(block, parts))


def _rows(weights: Float[Array, "N R S"], rows: Float[Array, "N R S A"]) -> Float[Array, "N S A"]:
    """Rows averaged over the draws; of a state that none meets, evenly."""
    met = weights.sum(axis=1)
    weights = jnp.where((met > 0)[:, None], weights, 1.0)
    return (weights[..., None] * rows).sum(axis=1) / weights.sum(axis=1)[..., None]
