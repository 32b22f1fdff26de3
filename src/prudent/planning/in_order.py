"""Modified policy iteration on a few large models at once, by sweeps through the states in order; with bounds."""

from __future__ import annotations

import bisect
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

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


class Moves(NamedTuple):
    """The kernels of N draws: successors and classes for all of them, probabilities of events for each."""

    index: Int[np.ndarray, "S A E"]  # pyright: ignore[reportIncompatibleMethodOverride]
    classes: Int[np.ndarray, "S A"]
    events: Float[np.ndarray, "C E N"]
    discount: float

    @property
    def kernels(self) -> tuple[Any, ...]:
        """The arguments that all sweeps begin with."""
        return self.index, self.classes, self.events, self.lanes

    @property
    def lanes(self) -> tuple[int, ...]:
        """A tuple of length N."""
        return (0,) * self.draws

    @property
    def draws(self) -> int:
        """N."""
        return self.events.shape[2]

    def sweeps(self, accuracy: float) -> int:
        """How many sweeps are made at most: the discount shrinks every error."""
        rate = np.log(max(self.discount, 1e-3))
        return int(PATIENCE * np.log(accuracy) / rate) + 20


class DrawPlans(NamedTuple):
    """Plans of N draws.

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


def differing(table: Float[np.ndarray, "S A N"]) -> Float[np.ndarray, "S a n"]:
    """Costs of N draws as `[S, A or 1, N or 1]`: where actions or draws cost alike they are kept once."""
    table = table[:, :1] if np.all(table == table[:, :1]) else table
    table = table[:, :, :1] if np.all(table == table[:, :, :1]) else table
    return np.ascontiguousarray(table)


def plan_draws(
    moves: Moves,
    costs: Float[np.ndarray, "S a n"],
    start: Float[np.ndarray, " S"],
    depth: Int[np.ndarray, " S"],
    error: float,
    first: Float[np.ndarray, "S K"] | None = None,
    share: float = 0.0,
) -> DrawPlans:
    """Modified policy iteration on N draws at once, until the least cost from the start is known to within `error`.

    Or to within a share of the values' spread, or until what is open is mostly rounding.

    Any values v prove a bound, for `d = min_a c + discount P v - v`: at time t a policy is at a state of depth t or
    less, so that it costs at least `start v + sum_t discount^t min_(depth <= t) d`, and the greedy policy at most the
    same with max. So states far from the start need not be exact, and no plan need be finished: states are left alone
    from the depth on at which what their residuals add is small, which is nearer to the start after every round.
    Where all depths are 0, the values of all states are off by no more than those bounds are from one another.
    """
    from . import improvement_sweeps as sweeps

    (states, _, outcomes), rest = moves.index.shape, 1.0 - moves.discount
    middle = (costs.min() + costs.max()) / 2.0 / rest
    values = np.full((states, moves.draws), middle) if first is None else np.repeat(first[:, :1], moves.draws, 1)
    action = np.zeros((states, moves.draws), np.int32)
    rows = states if moves.draws == 1 else 0
    # Unsigned: Numba would otherwise look for negative indices.
    chain = np.empty((rows, outcomes), np.uint32), np.empty((rows, outcomes)), np.empty(rows)
    # One event after the other: NumPy sums along a short axis far more slowly.
    whole = sum(moves.events[:, event] for event in range(outcomes))
    off, dearest = float(np.abs(whole - 1.0).max()) + EPSILON * outcomes, float(np.abs(costs).max())
    table = np.broadcast_to(costs, action.shape[:1] + moves.index.shape[1:2] + action.shape[1:])
    everywhere = np.flatnonzero(depth >= 0).astype(np.int32)
    low, high = np.full((2, int(depth.max()) + 1, moves.draws), np.inf)

    def swept(order: np.ndarray, aim: tuple[int, ...], forward: bool = True) -> None:
        given = (moves.index, moves.classes, moves.events, table, moves.discount, values, action, order)
        sweeps.sweep(*given, aim, forward, depth, low, high, chain)

    def looked_at(order: np.ndarray, near: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        low[:near], high[:near] = np.inf, -np.inf
        swept(order, sweeps.LOOK)
        # Of the sums that a residual is made of, of a start's average, and of rows that do not sum to 1 exactly.
        # Not by BLAS: its threads would wait busily for more, beside sweeps.
        largest, here = max(values.max(), -values.min()) + dearest, np.einsum("s,sn->n", start, values)
        loss = (2.0 * EPSILON * (outcomes + 8) + off) * largest / rest
        loss += EPSILON * states**0.5 * np.abs(here) + 4.0 * EPSILON * largest
        weight = _powers(moves.discount, len(low))[:, None]
        below = here + (weight * np.minimum.accumulate(low, axis=0)).sum(axis=0) - loss
        return below, here + (weight * np.maximum.accumulate(high, axis=0)).sum(axis=0) + loss, loss

    looked_at(everywhere, len(low))
    best, improved, most, settled = np.inf, 0, moves.sweeps(EPSILON), True
    while True:
        near = _near(moves.discount, low, high, BEYOND * error)
        order = np.flatnonzero((depth >= 0) & (depth < near)).astype(np.int32)
        for k in range(IMPROVED):
            swept(order, sweeps.IMPROVE, k % 2 == 0)
            # Where following policies led astray, improvements alone cannot.
            for turn in range((FOLLOWED_ALONE if rows else FOLLOWED) if settled else 0):
                if len(order) == rows:
                    sweeps.along(*chain, values.reshape(-1), (k + turn) % 2 == 1)
                else:
                    swept(order, sweeps.FOLLOW, (k + turn) % 2 == 1)
        improved += IMPROVED
        for look, to in ((order, near), (everywhere, len(low))):
            # States beyond lead to some that have changed: they are looked at before it ends.
            below, above, loss = looked_at(look, to)
            width = float((above - below).max())
            done = width <= max(error + 2.0 * share * np.ptp(values), 4.0 * loss.max()) or improved > most
            if not done:
                break
            if len(look) == len(everywhere):
                return DrawPlans(action, values, below, above, improved)
        settled = width < LEAST_GAIN * best
        best = min(best, width)


def _near(discount: float, low: np.ndarray, high: np.ndarray, error: float) -> int:
    """The least depth from which on the residuals `[T, N]` add at most `error` to what is open; no less than 1."""

    def added(depth: int) -> float:
        most, least = np.maximum(high[depth:], 0.0), np.minimum(low[depth:], 0.0)
        wide = np.maximum.accumulate(most, axis=0) - np.minimum.accumulate(least, axis=0)
        return float((_powers(discount, len(low))[depth:, None] * wide).sum(axis=0).max(initial=0.0))

    return bisect.bisect_left(range(len(low)), True, lo=1, key=lambda depth: added(depth) <= error)


def _powers(discount: float, count: int) -> np.ndarray:
    """`discount^t`, the last for all times from then on."""
    power = discount ** np.arange(float(count))
    return np.append(power[:-1], power[-1] / (1.0 - discount))
