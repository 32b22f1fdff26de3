"""The tail of a weighted sample: mass above a loss, and moments of the excess over it."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Float

from ..arrays import Array

# Up to this many losses, comparing all pairs is faster than sorting them.
LARGEST_PAIRWISE = 64


def mass_above_and_level(losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> tuple[Array, Array]:
    """For each loss the probability of strictly larger ones, and of equal ones (itself included)."""
    if losses.shape[0] <= LARGEST_PAIRWISE:
        above = jnp.where(losses[None, :] > losses[:, None], probabilities[None, :], 0.0).sum(axis=1)
        level = jnp.where(losses[None, :] == losses[:, None], probabilities[None, :], 0.0).sum(axis=1)
        return above, level
    order = jnp.argsort(losses)
    ordered = losses[order]
    # Summed from the worst loss on, so that small tails keep their digits.
    cumulative = jnp.concatenate([jnp.zeros(1), jnp.cumsum(probabilities[order][::-1])])[::-1]
    above = cumulative[jnp.searchsorted(ordered, losses, side="right")]
    return above, cumulative[jnp.searchsorted(ordered, losses, side="left")] - above


def excess_moments(losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> tuple[Array, Array]:
    """`E (C - c)^+` and `E ((C - c)^+)^2` at each loss c, as sums of non-negative terms: nothing cancels."""
    if losses.shape[0] <= LARGEST_PAIRWISE:
        excess = jnp.maximum(losses[None, :] - losses[:, None], 0.0)
        return (probabilities * excess).sum(axis=1), (probabilities * excess**2).sum(axis=1)
    order = jnp.argsort(-losses)
    descending = losses[order]
    gap = descending[:-1] - descending[1:]
    # d/dc E (C - c)^+ = -P(C > c), and d/dc E ((C - c)^+)^2 = -2 E (C - c)^+, linear between two losses.
    first = jnp.concatenate([jnp.zeros(1), jnp.cumsum(jnp.cumsum(probabilities[order])[:-1] * gap)])
    second = jnp.concatenate([jnp.zeros(1), jnp.cumsum((first[:-1] + first[1:]) * gap)])
    rank = jnp.argsort(order)
    return first[rank], second[rank]


def largest(losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, ""]:
    """The largest loss of positive weight."""
    return jnp.max(jnp.where(probabilities > 0, losses, -jnp.inf))


def normalised(losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> tuple[Array, Array]:
    """The losses moved and scaled so that those of positive weight fill [-1, 0], and the range they had.

    Draws of weight 0 are cut off at 0, so that no power or exponential of theirs can overflow.
    """
    top = largest(losses, probabilities)
    width = top - jnp.min(jnp.where(probabilities > 0, losses, jnp.inf))
    return jnp.clip((losses - top) / jnp.where(width > 0, width, 1.0), -1.0, 0.0), width


def quantile(losses: Float[Array, " R"], probabilities: Float[Array, " R"], above: Array, tail: Array) -> Array:
    """The smallest loss of the worst `tail` share; of a tail that is whole up to rounding, the next loss below it.

    Any number between the two neighbours of a whole tail is a quantile. This one makes the error larger, not smaller,
    and never 0 for a tail of one draw.
    """
    inside = above <= tail * (1.0 + 1e-9)
    return jnp.min(jnp.where(inside & (probabilities > 0), losses, jnp.inf))
