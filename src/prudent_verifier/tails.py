"""The risk of a proof, a mixture of means of tails: as it is claimed, of losses, and the weights of its envelope."""

from __future__ import annotations

from typing import Any

import numpy as np

from .reading import Refused

# Tails of a risk.
MOST_PARTS = 100

# Of what is wrong, as much as can be read.
LONGEST_WORDS = 200


def tails_of(claims: dict[str, Any]) -> list[tuple[float, float]]:
    """The risk as a mixture of means of tails: weights and levels, level 0 being the mean."""
    parts = claims.get("risk_parts")
    if not isinstance(parts, list) or not 0 < len(parts) <= MOST_PARTS:
        raise Refused("the file does not say the risk as a mixture of CVaR, which is all that is known here")
    found = []
    for part in parts:
        try:
            weight, level = (float(number) for number in part)
        except (TypeError, ValueError, OverflowError):
            weight, level = -1.0, -1.0
        if not (0.0 <= weight <= 1.0 and 0.0 <= level < 1.0):
            raise Refused(f"{repr(part)[:LONGEST_WORDS]} is no weight and level of a tail")
        found.append((weight, level))
    if abs(sum(weight for weight, _ in found) - 1.0) > 1e-9:
        raise Refused("the weights of the tails do not sum to 1")
    return found


def measure(losses: np.ndarray, share: np.ndarray, parts: list[tuple[float, float]]) -> np.ndarray:
    """`[N]` the risk of each row of losses `[N, R]`."""
    order = np.argsort(-losses, axis=-1, kind="stable")
    shares, worst = share[order], np.take_along_axis(losses, order, axis=-1)
    before = np.cumsum(shares, axis=-1) - shares
    total = np.zeros(len(losses))
    for weight, level in parts:
        taken = np.clip((1.0 - level) - before, 0.0, shares)
        total += weight * (taken * worst).sum(axis=-1) / (1.0 - level)
    return total


def weigh(weights: np.ndarray, share: np.ndarray, parts: list[tuple[float, float]]) -> np.ndarray:
    """`[N]` whether weights `[N, R]` are of the risk's envelope: no event weighs more than the risk of its indicator.

    The events that could are those of the largest densities.
    """
    density = np.where(weights > 0.0, weights / share, 0.0)
    order = np.argsort(-density, axis=-1)
    total = np.cumsum(np.take_along_axis(weights, order, axis=-1), axis=-1)
    event = np.cumsum(share[order], axis=-1)
    most = sum(weight * np.minimum(event / (1.0 - level), 1.0) for weight, level in parts)
    inside = np.all((weights >= 0.0) & (total <= most + 1e-12), axis=-1)
    return inside & (np.abs(weights.sum(axis=-1) - 1.0) <= 1e-12)
