"""Visits and values of a policy in an event family for a few draws at a time, by sweeps, as exact as is asked for."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ..planning import EPSILON, Moves

# Sweeps in the better of two directions, after which both are tried again; and all of such a round.
SAME_WAY = 6
ROUND = SAME_WAY + 2

# Sweeps are leapt over where that leaves this share or less of what is missing; where it does not, the wait doubles.
WORTH_A_LEAP = 0.8


def numba_sweeps() -> Any:
    """The sweeps; imported when they are first needed, because Numba is only for large models."""
    from . import sweeps

    return sweeps


def visits_of(
    moves: Moves, policy: Float[np.ndarray, "S A"], start: Float[np.ndarray, "S N"], left_out: float
) -> Float[np.ndarray, "S N"]:
    """How often a policy meets each state, `M^T mu = start`; at most this share of all visits is left out.

    States that no mass comes to are exactly 0, and cost nothing.
    """
    sweeps = numba_sweeps()
    states = len(start)
    visits, mass = np.zeros((states, moves.draws)), _in_large_pages(states, moves.draws)
    mass[:] = start
    blocks = -(-states // sweeps.BLOCK)
    hot = np.bincount(np.flatnonzero(start.any(axis=1)) // sweeps.BLOCK, minlength=blocks) > 0
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


def beyond(
    moves: Moves, policy: Float[np.ndarray, "S A"], visits: Float[np.ndarray, "S N"], left_out: float
) -> Float[np.ndarray, "S N"]:
    """How often states are met after one step of any action, each as often as the others, from where a policy goes.

    These are the states whose values tell what actions that the policy does not take are worth.
    """
    onward = _in_large_pages(*visits.shape)
    numba_sweeps().passed(*moves.kernels, np.ones(policy.shape), moves.discount, visits, onward)
    actions = policy.shape[1]
    return visits_of(moves, policy, (1.0 - moves.discount) / actions * onward, left_out / actions)


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
    """`M V = paid` at the states of `order`, which the policy leads out of by no more than what was left out of visits.

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
