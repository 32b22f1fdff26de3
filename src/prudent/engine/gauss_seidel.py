"""Modified policy iteration on a few large models at once, by sweeps through the states in order; with bounds."""

from __future__ import annotations

import bisect
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from .models import ModelBatch

EPSILON = float(np.finfo(np.float64).eps)

# Sweeps of each model's own policy between two improvements, of one model, for which they are cheaper, and improvements
# between two looks at the bounds.
FOLLOWED, FOLLOWED_ALONE, IMPROVED = 4, 16, 4

# The share of an error that states beyond those that are swept may add.
BEYOND = 1 / 64

# Sweeps are given up after so many times what the discount alone would need.
PATIENCE = 3.0

# Policies are followed as long as the bounds close in to this share of their distance.
LEAST_GAIN = 0.95


class Swept(NamedTuple):
    """Plans of N models by sweeps.

    Attributes:
        action: `[S, N]` greedy for the values.
        values: `[S, N]`.
        low, high: `[N]` between which the least expected cost from the start lies.
        improvements: how many were made.
    """

    action: Int[np.ndarray, "S N"]
    values: Float[np.ndarray, "S N"]
    low: Float[np.ndarray, " N"]
    high: Float[np.ndarray, " N"]
    improvements: int


def most_sweeps(discount: float, accuracy: float) -> int:
    """Return how many sweeps are made at most: the discount shrinks every error."""
    rate = np.log(max(discount, 1e-3))
    return int(PATIENCE * np.log(accuracy) / rate) + 20


def differing(table: Float[np.ndarray, "S A N"]) -> Float[np.ndarray, "S a n"]:
    """Return costs of N models as `[S, A or 1, N or 1]`: where actions or models cost alike they are kept once."""
    table = table[:, :1] if np.all(table == table[:, :1]) else table
    table = table[:, :, :1] if np.all(table == table[:, :, :1]) else table
    return np.ascontiguousarray(table)


def plan_by_sweeps(
    models: ModelBatch,
    cost: Float[np.ndarray, "S A n"],
    depth: Int[np.ndarray, " S"],
    error: float,
    guess: Float[np.ndarray, "S k"] | None = None,
    share: float = 0.0,
) -> Swept:
    """Plan for N models at once by modified policy iteration, until the least cost from the start is known to `error`.

    Or to within a share of the values' spread, or until what is open is mostly rounding.

    Any values v prove a bound, for `d = min_a c + discount P v - v`: at time t a policy is at a state of depth t or
    less, so that it costs at least `start v + sum_t discount^t min_(depth <= t) d`, and the greedy policy at most the
    same with max. So states far from the start need not be exact, and no plan need be finished: states are left alone
    from the depth on at which what their residuals add is small, which is nearer to the start after every round.
    Where all depths are 0, the values of all states are off by no more than those bounds are from one another.
    """
    from . import plan_loops as loops  # Numba is slow to import

    (states, actions, outcomes), count, discount = models.successor.shape, models.size, models.discount
    rest, start = 1.0 - discount, models.start
    costs = differing(cost)
    middle = (costs.min() + costs.max()) / 2.0 / rest
    values = np.array(np.broadcast_to(middle if guess is None else guess, (states, count)), order="C")
    action = np.zeros((states, count), np.int32)
    rows = states if count == 1 else 0
    # Unsigned: Numba would otherwise look for negative indices.
    chain = np.empty((rows, outcomes), np.uint32), np.empty((rows, outcomes)), np.empty(rows)
    # One event after the other: NumPy sums along a short axis far more slowly.
    whole = sum(models.probability[:, event] for event in range(outcomes))
    off, dearest = float(np.abs(whole - 1.0).max()) + EPSILON * outcomes, float(np.abs(costs).max())
    table = np.broadcast_to(costs, (states, actions, count))
    kernels = tuple(map(np.ascontiguousarray, (models.successor, models.row, models.probability)))
    everywhere = np.flatnonzero(depth >= 0).astype(np.int32)
    low, high = np.full((2, int(depth.max()) + 1, count), np.inf)

    def sweep(order: np.ndarray, aim: tuple[int, ...], forward: bool = True) -> None:
        loops.sweep(*kernels, table, discount, values, action, order, aim, forward, depth, low, high, chain)

    def look_at(order: np.ndarray, near: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        low[:near], high[:near] = np.inf, -np.inf
        sweep(order, loops.LOOK)
        # Of the sums that a residual is made of, of a start's average, and of rows that do not sum to 1 exactly.
        # Not by BLAS: its threads would wait busily for more, beside sweeps.
        largest, here = max(values.max(), -values.min()) + dearest, np.einsum("s,sn->n", start, values)
        loss = (2.0 * EPSILON * (outcomes + 8) + off) * largest / rest
        loss += EPSILON * states**0.5 * np.abs(here) + 4.0 * EPSILON * largest
        weight = _powers(discount, len(low))[:, None]
        below = here + (weight * np.minimum.accumulate(low, axis=0)).sum(axis=0) - loss
        return below, here + (weight * np.maximum.accumulate(high, axis=0)).sum(axis=0) + loss, loss

    look_at(everywhere, len(low))
    best, improved, most, settled = np.inf, 0, most_sweeps(discount, EPSILON), True
    while True:
        near = _near(discount, low, high, BEYOND * error)
        order = np.flatnonzero((depth >= 0) & (depth < near)).astype(np.int32)
        for k in range(IMPROVED):
            sweep(order, loops.IMPROVE, k % 2 == 0)
            # Where following policies led astray, improvements alone cannot.
            for turn in range((FOLLOWED_ALONE if rows else FOLLOWED) if settled else 0):
                if len(order) == rows:
                    loops.along(*chain, values.reshape(-1), (k + turn) % 2 == 1)
                else:
                    sweep(order, loops.FOLLOW, (k + turn) % 2 == 1)
        improved += IMPROVED
        for look, to in ((order, near), (everywhere, len(low))):
            # States beyond lead to some that have changed: they are looked at before it ends.
            below, above, loss = look_at(look, to)
            width = float((above - below).max())
            done = width <= max(error + 2.0 * share * np.ptp(values), 4.0 * loss.max()) or improved > most
            if not done:
                break
            if len(look) == len(everywhere):
                return Swept(action, values, below, above, improved)
        settled = width < LEAST_GAIN * best
        best = min(best, width)


def _near(discount: float, low: np.ndarray, high: np.ndarray, error: float) -> int:
    """Return the least depth from which on the residuals `[T, N]` add at most `error`; no less than 1."""

    def added(depth: int) -> float:
        most, least = np.maximum(high[depth:], 0.0), np.minimum(low[depth:], 0.0)
        wide = np.maximum.accumulate(most, axis=0) - np.minimum.accumulate(least, axis=0)
        return float((_powers(discount, len(low))[depth:, None] * wide).sum(axis=0).max(initial=0.0))

    return bisect.bisect_left(range(len(low)), True, lo=1, key=lambda depth: added(depth) <= error)


def _powers(discount: float, count: int) -> np.ndarray:
    """Return `discount^t`, the last for all times from then on."""
    power = discount ** np.arange(float(count))
    return np.append(power[:-1], power[-1] / (1.0 - discount))
