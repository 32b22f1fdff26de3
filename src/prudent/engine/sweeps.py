"""Visits and values of a policy in large models, a few at a time, by sweeps, as exact as is asked for."""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ..errors import InputError
from ..records import field
from .base import Factors, Method
from .gauss_seidel import EPSILON, most_sweeps
from .models import ModelBatch

# Sweeps in the better of two directions, after which both are tried again; and all of such a round.
SAME_WAY = 6
ROUND = SAME_WAY + 2

# Sweeps are leapt over where that leaves this share or less of what is missing; where it does not, the wait doubles.
WORTH_A_LEAP = 0.8


class Sweeps(Method):
    """Sweeps over the states, in the place of a linear solver: nothing of a kernel is stored but what models share.

    Chosen by itself for event families with more than 4,000 states.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake()
    >>> policy = pr.plan(lake.at((0.3, 0.02))).policy
    >>> sweeps = pr.Exact(pr.Sweeps.of(lake.support))
    >>> close = pr.loss_at(policy, lake, (0.3, 0.02), occupancy=sweeps)  # doctest: +SKIP
    >>> bool(abs(pr.loss_at(policy, lake, (0.3, 0.02)) - close) < 1e-7)  # doctest: +SKIP
    True

    Args:
        states: of the models.
        left_out: share of the discounted visits that may be left out.
    """

    states: int = field(static=True)
    left_out: float = field(static=True, default=1e-10)

    def __check_init__(self) -> None:
        if not 0.0 < self.left_out < 1.0:
            raise InputError(f"Sweeps left_out must be in (0, 1), got {self.left_out}")

    @staticmethod
    def of(support: Any, left_out: float = 1e-10) -> Sweeps:
        """Return the method for models along a support."""
        return Sweeps(support.states, left_out)

    @property
    def solves_from_anywhere(self) -> bool:
        """Not from any distribution."""
        return False

    def fits(self, successor: Any) -> bool:
        """Return whether the number of states is the same."""
        return len(successor) == self.states

    def model_bytes(self) -> int:
        """Return the size of visits, values and what they are swept from."""
        return 4 * 8 * self.states

    def factor(self, models: ModelBatch, policy: Float[np.ndarray, "S A N"]) -> Factors:
        """Return the models with their policies; one policy for all models is swept for all at once."""
        return SweptFactors(models, np.broadcast_to(policy, (*policy.shape[:2], models.size)), self, policy)


@dataclasses.dataclass(frozen=True)
class SweptFactors(Factors):
    """Models that are swept whenever something is asked of them."""

    models: ModelBatch
    policy: Float[np.ndarray, "S A N"]
    method: Sweeps
    given: Float[np.ndarray, "S A n"]

    def state_visits(self) -> Float[np.ndarray, "S N"]:
        """Return the discounted visits of each state, all but the share that may be left out."""
        start = self.models.start[:, None]
        return self._each(lambda models, policy, _: visits_of(models, policy, start, self.method.left_out), None)

    def solve_values(self, paid: Float[np.ndarray, "S N"]) -> Float[np.ndarray, "S N"]:
        """Return `V` with `V = paid + discount P_pi V`, to the share of the largest value that may be left out."""
        everywhere, rest = np.arange(len(paid), dtype=np.int32), 1.0 - self.models.discount
        error = self.method.left_out * float(np.abs(paid).max(initial=0.0)) / rest

        def solve(models: ModelBatch, policy: np.ndarray, some: Any) -> np.ndarray:
            return values_of(models, policy, some, everywhere, some.mean(axis=0) / rest, error)

        return self._each(solve, paid)

    def _each(self, solve: Callable[[ModelBatch, np.ndarray, Any], np.ndarray], paid: Any) -> np.ndarray:
        """Return what is found for all models at once where one policy is given, else for one after the other."""
        if self.given.shape[2] == 1:
            return solve(self.models, np.ascontiguousarray(self.given[:, :, 0]), paid)
        found = []
        for n in range(self.models.size):
            part = None if paid is None else np.ascontiguousarray(paid[:, [n]])
            found.append(solve(self.models.select(np.array([n])), np.ascontiguousarray(self.given[:, :, n]), part))
        return np.concatenate(found, axis=1)


def kernels_of(models: ModelBatch) -> tuple[Any, ...]:
    """Return the arguments that all sweeps begin with: successors, classes, probabilities, and a tuple of length N."""
    arrays = map(np.ascontiguousarray, (models.successor, models.row, models.probability))
    return (*arrays, (0,) * models.size)


def depths_of(models: ModelBatch) -> Int[np.ndarray, " S"]:
    """Return the fewest steps in which each state can be reached from a start; -1 where it cannot."""
    from .sweep_loops import depths  # Numba is slow to import

    return depths(np.ascontiguousarray(models.successor), models.start)


def add_slopes(
    models: ModelBatch,
    visits: Float[np.ndarray, "S N"],
    values: Float[np.ndarray, "S N"],
    shares: Float[np.ndarray, " N"],
    order: Int[np.ndarray, " K"],
    slope: Float[np.ndarray, "S A"],
) -> None:
    """Add `discount sum_n share_n mu_n(s) (P_n v_n)(s, a)`, an action's future, at the states of `order`."""
    from .sweep_loops import slopes

    slopes(*kernels_of(models), models.discount, visits, values, shares, order, slope)


def visits_of(
    models: ModelBatch, policy: Float[np.ndarray, "S A"], start: Float[np.ndarray, "S N"], left_out: float
) -> Float[np.ndarray, "S N"]:
    """Return how often a policy visits each state, `M^T mu = start`; at most this share of all visits is left out.

    States that no mass comes to are exactly 0, and cost nothing.
    """
    from . import sweep_loops as sweeps  # Numba is slow to import

    states, kernels = len(start), kernels_of(models)
    visits, mass = np.zeros((states, models.size)), _in_large_pages(states, models.size)
    mass[:] = start
    blocks = -(-states // sweeps.BLOCK)
    hot = np.bincount(np.flatnonzero(start.any(axis=1)) // sweeps.BLOCK, minlength=blocks) > 0
    # What is left where mass is too little to be sent on is at most half of what may be left out.
    least = 0.5 * left_out / states
    count = most_sweeps(models.discount, left_out)

    def sweep(forward: bool) -> float:
        sweeps.push(*kernels, policy, models.discount, visits, mass, hot, forward, least)
        return float(sweeps.missing(kernels[3], mass, np.flatnonzero(hot)).max())

    # Sweeps that have gone the same way for a while leave a shape of their own.
    before, wait, look, leapt = None, 1, ROUND + 1, False
    for done, left in enumerate(_either_way(sweep), start=1):
        if left <= 0.5 * left_out or done == count:
            break
        if before is not None:
            better = _leap(models, policy, visits - before, visits, mass)
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
    models: ModelBatch, policy: Float[np.ndarray, "S A"], visits: Float[np.ndarray, "S N"], left_out: float
) -> Float[np.ndarray, "S N"]:
    """Return how often states are visited after one step of any action, each as often, from where a policy goes.

    These are the states whose values tell what actions that the policy does not take are worth.
    """
    from . import sweep_loops as sweeps

    onward = _in_large_pages(*visits.shape)
    sweeps.passed(*kernels_of(models), np.ones(policy.shape), models.discount, visits, onward)
    actions = policy.shape[1]
    return visits_of(models, policy, (1.0 - models.discount) / actions * onward, left_out / actions)


def _leap(
    models: ModelBatch,
    policy: Float[np.ndarray, "S A"],
    step: Float[np.ndarray, "S N"],
    visits: Float[np.ndarray, "S N"],
    mass: Float[np.ndarray, "S N"],
) -> bool:
    """Go on along the last sweep's `step` as far as leaves least mass, for the draws where that is worth it.

    Sweeps soon change visits in one proportion, which the discount alone takes hundreds of them to bring in.
    """
    from . import sweep_loops as sweeps

    after = _in_large_pages(*step.shape)
    sweeps.passed(*kernels_of(models), policy, models.discount, step, after)
    away = step - after
    square = (away * away).sum(axis=0)
    far = (mass * away).sum(axis=0) / np.where(square > 0.0, square, np.inf)
    left = mass - far * away
    good = np.abs(left).sum(axis=0) < WORTH_A_LEAP * np.abs(mass).sum(axis=0)
    visits[:, good] += (far * step)[:, good]
    mass[:, good] = left[:, good]
    return bool(good.any())


def _in_large_pages(states: int, draws: int) -> Float[np.ndarray, "S N"]:
    """Return zeros; where successors are anywhere in them, finding their pages takes longer than reading them."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros((states, draws))
    pages = mmap.mmap(-1, 8 * states * draws, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without them
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, count=states * draws).reshape(states, draws)


def values_of(
    models: ModelBatch,
    policy: Float[np.ndarray, "S A"],
    paid: Float[np.ndarray, "S N"],
    order: Int[np.ndarray, " K"],
    guess: Float[np.ndarray, " N"],
    error: float,
) -> Float[np.ndarray, "S N"]:
    """Solve `M V = paid` at the states of `order`, which the policy hardly leaves.

    Values are off by at most `error`, or by rounding. The others stay at the guess.
    """
    from . import sweep_loops as sweeps

    kernels = kernels_of(models)
    values = _in_large_pages(*paid.shape)
    values[:] = guess
    rest = 1.0 - models.discount
    size = max(float(np.abs(paid).max(initial=0.0)) / rest, float(np.abs(guess).max(initial=0.0)))
    target = max(rest * error, 8.0 * EPSILON * size)
    count = most_sweeps(models.discount, min(0.5, target / max(size, 1e-300)))

    def sweep(forward: bool) -> float:
        return sweeps.pull(*kernels, policy, models.discount, paid, values, order, forward)

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
    """Yield what sweeps leave; both orders of the states are tried, the better one goes on."""
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
