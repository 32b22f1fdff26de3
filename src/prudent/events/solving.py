"""Visits, values and plans of an event family for a few draws at a time, by sweeps, each with a bound of its error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

EPSILON = float(np.finfo(np.float64).eps)

# Sweeps in the better of two directions, after which both are tried again.
SAME_WAY = 6

# Sweeps of each draw's own policy between two improvements, and improvements between two looks at the bounds.
FOLLOWED, IMPROVED = 6, 4

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
        return self.index, self.classes, self.events

    @property
    def draws(self) -> int:
        """N."""
        return self.events.shape[2]

    def sweeps(self, accuracy: float) -> int:
        """How many sweeps are made at most: the discount shrinks every error."""
        rate = np.log(max(self.discount, 1e-3))
        return int(PATIENCE * np.log(accuracy) / rate) + 20


def numba_sweeps() -> Any:
    """The sweeps; imported when they are first needed, because Numba is only for large models."""
    from . import sweeps

    return sweeps


def visits_of(
    moves: Moves, policy: Float[np.ndarray, "S A"], start: Float[np.ndarray, " S"], left_out: float
) -> Float[np.ndarray, "S N"]:
    """How often a policy meets each state, `M^T mu = start`; at most this share of all visits is left out.

    States that no mass comes to are exactly 0, and cost nothing.
    """
    sweeps = numba_sweeps()
    states = len(start)
    visits = np.zeros((states, moves.draws))
    mass = np.repeat(start[:, None], moves.draws, axis=1)
    blocks = -(-states // sweeps.BLOCK)
    hot = np.bincount(np.flatnonzero(start) // sweeps.BLOCK, minlength=blocks) > 0
    # What is left where mass is too little to be sent on is at most half of what may be left out.
    least = 0.5 * left_out / states
    count = moves.sweeps(left_out)

    def sweep(forward: bool) -> float:
        sweeps.push(*moves.kernels, policy, moves.discount, visits, mass, hot, forward, least)
        # Mass is neither made nor lost, so that visits tell what is left; where little is, rounding would.
        return float(mass.sum(axis=0).max())

    for left in _either_way(sweep):
        count -= 1
        if left <= left_out or not hot.any() or count == 0:
            break
    return visits


def values_of(
    moves: Moves,
    policy: Float[np.ndarray, "S A"],
    paid: Float[np.ndarray, "S N"],
    order: Int[np.ndarray, " K"],
    guess: Float[np.ndarray, " N"],
    error: float,
) -> Float[np.ndarray, "S N"]:
    """`M V = paid` at the states of `order`, which no policy leads out of but by what was left out of its visits.

    Values are off by at most `error`, or by rounding. The others stay at the guess.
    """
    sweeps = numba_sweeps()
    values = np.repeat(guess[None], len(paid), axis=0)
    rest = 1.0 - moves.discount
    size = max(float(np.abs(paid).max(initial=0.0)) / rest, float(np.abs(guess).max(initial=0.0)))
    target = max(rest * error, 8.0 * EPSILON * size)
    count = moves.sweeps(min(0.5, target / max(size, 1e-300)))

    def sweep(forward: bool) -> float:
        low, high = sweeps.pull(*moves.kernels, policy, moves.discount, paid, values, order, forward)
        return max(abs(low), abs(high))

    for change in _either_way(sweep):
        count -= 1
        if change <= target or count == 0:
            break
    return values


def _either_way(sweep: Callable[[bool], float]) -> Iterator[float]:
    """Sweeps that go through the states in the order that gets further: both are tried, the better one goes on."""
    now = sweep(True)
    yield now
    while True:
        gains = []
        for forward in (True, False):
            before, now = now, sweep(forward)
            gains.append(now / before if before > 0 else 0.0)
            yield now
        for _ in range(SAME_WAY):
            now = sweep(gains[0] <= gains[1])
            yield now


class DrawPlans(NamedTuple):
    """Plans of N draws.

    Attributes:
        action: `[S, N]` greedy for the values.
        values: `[S, N]`.
        low, high: `[N]` between which the least expected cost from the start lies.
    """

    action: Int[np.ndarray, "S N"]
    values: Float[np.ndarray, "S N"]
    low: Float[np.ndarray, " N"]
    high: Float[np.ndarray, " N"]


class Costs(NamedTuple):
    """Costs of N draws, `[S, A or 1, N or 1]`: where actions or draws cost alike they are kept once."""

    table: Float[np.ndarray, "S A N"]

    @staticmethod
    def of(table: Float[np.ndarray, "S A N"]) -> Costs:
        """What differs of a table `[S, A, N]`."""
        if table.shape[1] > 1 and np.all(table == table[:, :1]):
            table = table[:, :1]
        if table.shape[2] > 1 and np.all(table == table[:, :, :1]):
            table = table[:, :, :1]
        return Costs(np.ascontiguousarray(table))


def plan_draws(
    moves: Moves,
    costs: Costs,
    start: Float[np.ndarray, " S"],
    depth: Int[np.ndarray, " S"],
    error: float,
    first: Float[np.ndarray, "S K"] | None = None,
) -> DrawPlans:
    """Modified policy iteration on N draws at once, until the least cost from the start is known to within `error`.

    Any values v prove a bound, for `d = min_a c + discount P v - v`: at time t a policy is at a state of depth t or
    less, so that it costs at least `start v + sum_t discount^t min_(depth <= t) d`, and the greedy policy at most the
    same with max. So states far from the start need not be exact, and no plan need be finished.
    """
    sweeps = numba_sweeps()
    states, rest = len(start), 1.0 - moves.discount
    values = np.zeros((states, moves.draws)) if first is None else np.repeat(first[:, :1], moves.draws, axis=1)
    action = np.zeros((states, moves.draws), np.int16)
    arguments = (*moves.kernels, costs.table, moves.discount, values)
    best, tries, settled = np.inf, moves.sweeps(EPSILON), True
    while True:
        for k in range(IMPROVED):
            sweeps.improve(*arguments, action, k % 2 == 0)
            # Where following policies led astray, improvements alone cannot.
            for sweep in range(FOLLOWED if settled else 0):
                sweeps.follow(*arguments, action, sweep % 2 == 1)
        tries -= IMPROVED
        low, high, middle = _bounds(moves, costs, values, start, depth)
        width = float((high - low).max())
        if width <= error or tries < 0:
            sweeps.improve(*arguments, action, True)
            return DrawPlans(action, values, low, high)
        settled = width < LEAST_GAIN * best
        best = min(best, width)
        if settled:
            # The constant part of the error, the slowest to die out.
            values += middle / rest


def _bounds(
    moves: Moves, costs: Costs, values: np.ndarray, start: np.ndarray, depth: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bounds of the least cost from the start, rounding taken off, and the middle of the residuals."""
    sweeps = numba_sweeps()
    deepest, discount = int(depth.max()), moves.discount
    low = np.full((deepest + 1, moves.draws), np.inf)
    high = -low
    sweeps.residuals(*moves.kernels, costs.table, discount, values, depth, low, high)
    low, high = np.minimum.accumulate(low, axis=0), np.maximum.accumulate(high, axis=0)
    power = discount ** np.arange(deepest + 1.0)
    weight = np.append(power[:-1], power[-1] / (1.0 - discount))[:, None]
    here = start @ values
    # Of the sums that a residual is made of, of a start's average, and of rows that do not sum to 1 exactly.
    largest = np.abs(values).max() + np.abs(costs.table).max()
    off = np.abs(moves.events.sum(axis=1) - 1.0).max() + EPSILON * moves.events.shape[1]
    loss = (2.0 * EPSILON * (moves.events.shape[1] + 8) + off) * largest / (1.0 - discount)
    loss += EPSILON * len(start) ** 0.5 * np.abs(here) + 4.0 * EPSILON * largest
    return here + (weight * low).sum(axis=0) - loss, here + (weight * high).sum(axis=0) + loss, (low[-1] + high[-1]) / 2
