"""Visits, values and plans of an event family for a few draws at a time, by sweeps, each with a bound of its error."""

from __future__ import annotations

import bisect
import contextlib
import mmap
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

EPSILON = float(np.finfo(np.float64).eps)

# Sweeps in the better of two directions, after which both are tried again; and all of such a round.
SAME_WAY = 6
ROUND = SAME_WAY + 2

# Sweeps of each draw's own policy between two improvements, and improvements between two looks at the bounds.
FOLLOWED, IMPROVED = 4, 4

# The share of an error that states beyond those that are swept may add.
BEYOND = 1 / 64

# Sweeps are leapt over where that leaves this share or less of what is missing; where it does not, the wait doubles.
WORTH_A_LEAP = 0.8

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
    visits, mass = np.zeros((states, moves.draws)), _in_large_pages(states, moves.draws)
    mass[:] = start[:, None]
    blocks = -(-states // sweeps.BLOCK)
    hot = np.bincount(np.flatnonzero(start) // sweeps.BLOCK, minlength=blocks) > 0
    # What is left where mass is too little to be sent on is at most half of what may be left out.
    least = 0.5 * left_out / states
    count = moves.sweeps(left_out)

    def sweep(forward: bool) -> float:
        sweeps.push(*moves.kernels, policy, moves.discount, visits, mass, hot, forward, least)
        return float(sweeps.missing(moves.lanes, mass, np.flatnonzero(hot)).max())

    # Sweeps that have gone the same way for a while leave a shape of their own.
    before, wait, look, leapt = None, 1, ROUND + 1, False
    for done, left in enumerate(_either_way(sweep), start=1):
        if left <= 0.5 * left_out or done == count:
            break
        if before is not None:
            better = _leap(moves, policy, visits - before, visits, mass)
            hot |= better
            leapt, wait = leapt or better, 1 if better else 2 * wait
            look, before = done + wait * ROUND, None
        # A leap is work for every state: where most are not met, sweeps pass them over and are cheaper.
        if done + 1 == look and 2 * hot.sum() < len(hot):
            look += ROUND
        elif done + 1 == look:
            before = visits.copy()
    # After a leap, mass may be below 0, and so may visits by no more than what is left out.
    return np.maximum(visits, 0.0) if leapt else visits


def _leap(
    moves: Moves,
    policy: Float[np.ndarray, "S A"],
    step: Float[np.ndarray, "S N"],
    visits: Float[np.ndarray, "S N"],
    mass: Float[np.ndarray, "S N"],
) -> bool:
    """Go on along the last sweep's `step` as far as leaves least mass, for the draws where that is worth it.

    Sweeps soon change visits in one proportion, which the discount alone takes hundreds of them to bring in.
    """
    after = _in_large_pages(*step.shape)
    numba_sweeps().passed(*moves.kernels, policy, moves.discount, step, after)
    away = step - after
    square = (away * away).sum(axis=0)
    far = (mass * away).sum(axis=0) / np.where(square > 0.0, square, np.inf)
    left = mass - far * away
    good = np.abs(left).sum(axis=0) < WORTH_A_LEAP * np.abs(mass).sum(axis=0)
    visits[:, good] += (far * step)[:, good]
    mass[:, good] = left[:, good]
    return bool(good.any())


def _in_large_pages(states: int, draws: int) -> Float[np.ndarray, "S N"]:
    """Zeros; where successors are anywhere in them, finding their pages takes longer than reading them."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros((states, draws))
    pages = mmap.mmap(-1, 8 * states * draws, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without them
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, count=states * draws).reshape(states, draws)


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
    values = _in_large_pages(*paid.shape)
    values[:] = guess
    rest = 1.0 - moves.discount
    size = max(float(np.abs(paid).max(initial=0.0)) / rest, float(np.abs(guess).max(initial=0.0)))
    target = max(rest * error, 8.0 * EPSILON * size)
    count = moves.sweeps(min(0.5, target / max(size, 1e-300)))

    def sweep(forward: bool) -> float:
        return sweeps.pull(*moves.kernels, policy, moves.discount, paid, values, order, forward)

    wait, look, copies = 1, ROUND + 1, []
    for done, change in enumerate(_either_way(sweep), start=1):
        if change <= target or done == count:
            break
        if done == look:
            wait = 1 if _extrapolated(values, order, copies) else 2 * wait
            look, copies = done + wait * ROUND, []
        if done + 2 >= look:
            copies.append(values[order])
    return values


def _extrapolated(
    values: Float[np.ndarray, "S N"], order: Int[np.ndarray, " K"], copies: list[Float[np.ndarray, "K N"]]
) -> bool:
    """Where the last two sweeps changed values in one proportion, add what all further ones would (Aitken)."""
    first, second = copies
    now = values[order]
    before, step = second - first, now - second
    square = (before * before).sum(axis=0)
    rate = np.clip((before * step).sum(axis=0) / np.where(square > 0.0, square, 1.0), 0.0, 1.0 - EPSILON)
    off = np.abs(step - rate * before).sum(axis=0)
    # The next change would be the step at this rate; after going on it is at most what is off, added up. On the whole:
    # in many states there are always a few that change in a proportion of their own.
    good = off < WORTH_A_LEAP * (1.0 - rate) * rate * np.abs(step).sum(axis=0)
    values[order] = now + np.where(good, rate / (1.0 - rate), 0.0) * step
    return bool(good.any())


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
) -> DrawPlans:
    """Modified policy iteration on N draws at once, until the least cost from the start is known to within `error`.

    Any values v prove a bound, for `d = min_a c + discount P v - v`: at time t a policy is at a state of depth t or
    less, so that it costs at least `start v + sum_t discount^t min_(depth <= t) d`, and the greedy policy at most the
    same with max. So states far from the start need not be exact, and no plan need be finished: states are left alone
    from the depth on at which what their residuals add is small, which is nearer to the start after every round.
    """
    sweeps, rest = numba_sweeps(), 1.0 - moves.discount
    middle = (costs.min() + costs.max()) / 2.0 / rest
    values = np.full((len(start), moves.draws), middle) if first is None else np.repeat(first[:, :1], moves.draws, 1)
    action = np.zeros((len(start), moves.draws), np.int16)
    arguments = (*moves.kernels, costs, moves.discount, values)
    everywhere = np.flatnonzero(depth >= 0).astype(np.int32)

    def looked_at(order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        low = np.full((int(depth.max()) + 1, moves.draws), np.inf)
        high = -low
        sweeps.residuals(*arguments, depth, order, low, high)
        return low, high

    low, high = looked_at(everywhere)
    best, tries, settled = np.inf, moves.sweeps(EPSILON), True
    while True:
        near = _near(moves.discount, low, high, BEYOND * error)
        order = np.flatnonzero((depth >= 0) & (depth < near)).astype(np.int32)
        for k in range(IMPROVED):
            sweeps.improve(*arguments, action, order, k % 2 == 0)
            # Where following policies led astray, improvements alone cannot.
            for sweep in range(FOLLOWED if settled else 0):
                sweeps.follow(*arguments, action, order, (k + sweep) % 2 == 1)
        tries -= IMPROVED
        low[:near], high[:near] = (part[:near] for part in looked_at(order))
        below, above = _bounds(moves, costs, values, start, low, high)
        if float((above - below).max()) <= error or tries < 0:
            # States beyond lead to some that have changed.
            low, high = looked_at(everywhere)
            below, above = _bounds(moves, costs, values, start, low, high)
        width = float((above - below).max())
        if width <= error or tries < 0:
            sweeps.improve(*arguments, action, everywhere, True)
            return DrawPlans(action, values, below, above)
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


def _bounds(
    moves: Moves, costs: np.ndarray, values: np.ndarray, start: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of the least cost from the start by the residuals at each depth, rounding taken off."""
    discount = moves.discount
    low, high = np.minimum.accumulate(low, axis=0), np.maximum.accumulate(high, axis=0)
    weight = _powers(discount, len(low))[:, None]
    here = start @ values
    # Of the sums that a residual is made of, of a start's average, and of rows that do not sum to 1 exactly.
    largest = np.abs(values).max() + np.abs(costs).max()
    off = np.abs(moves.events.sum(axis=1) - 1.0).max() + EPSILON * moves.events.shape[1]
    loss = (2.0 * EPSILON * (moves.events.shape[1] + 8) + off) * largest / (1.0 - discount)
    loss += EPSILON * len(start) ** 0.5 * np.abs(here) + 4.0 * EPSILON * largest
    return here + (weight * low).sum(axis=0) - loss, here + (weight * high).sum(axis=0) + loss
