"""Published methods of safe policy improvement, written from their papers. Each makes a policy of a log.

- SPIBB and Lower-SPIBB: Laroche, Trichelair and Tachet des Combes (2019), "Safe Policy Improvement with Baseline
  Bootstrapping", there named Pi_b-SPIBB and Pi_<=b-SPIBB.
- Approx-Soft-SPIBB: Nadjahi, Laroche and Tachet des Combes (2019), "Safe Policy Improvement with Soft Baseline
  Bootstrapping".
- Adv-Approx-Soft-SPIBB and Lower-Approx-Soft-SPIBB: Scholl, Dietrich, Otte and Udluft (2022), "Safe Policy Improvement
  Approaches on Discrete Markov Decision Processes".
- DUIPI: Schneegass, Udluft and Martinetz (2010), "Uncertainty Propagation for Efficient Exploration in Reinforcement
  Learning", with the diagonal of the covariance, a Dirichlet prior and the choice of actions of Scholl et al.
- RaMDP: Petrik, Ghavamzadeh and Chow (2016), "Safe Policy Improvement by Minimizing Robust Baseline Regret".

They know the rewards and the behaviour. A pair that the log never tries has a zero row, which ends the process: with
rewards of at least 0, nothing is worth less. This is the convention of the published comparisons. RaMDP gives such a
pair the least reward for ever, and DUIPI never picks it. Where no action of a state was tried, the plug-in plan, RaMDP
and DUIPI pick the first action; the others follow the behaviour. SPIBB's threshold is that of the published
comparisons, too: a pair is free if it has more rows, where the paper says as many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float

from .spi_worlds import ROUNDS, STILL, Log, World, greedy, iterated, planned

#: What makes a policy `[S, A]` of a log and of what is known of its world.
Method: TypeAlias = Callable[[Log, World], np.ndarray]


class Estimate(NamedTuple):
    """The world as the log shows it.

    Attributes:
        rows: `[S, A]`, how often each pair was tried.
        table: `[S, A, S]` frequencies; zero for a pair never tried.
        gains: `[S, A]` mean rewards of the frequencies.
    """

    rows: Float[np.ndarray, "S A"]
    table: Float[np.ndarray, "S A S"]
    gains: Float[np.ndarray, "S A"]

    @classmethod
    def of(cls, log: Log, world: World) -> Estimate:
        """The estimate from a log."""
        counts = log.counts(*world.shape)
        rows = counts.sum(axis=2)
        table = counts / np.maximum(rows, 1.0)[..., None]
        return cls(rows, table, table @ world.rewards)


def plug_in(log: Log, world: World) -> Float[np.ndarray, "S A"]:
    """The plan that takes observed frequencies for the truth.

    >>> from .spi_worlds import logged, wet_chicken
    >>> world = wet_chicken()
    >>> plug_in(logged(world, 500, np.random.default_rng(0)), world).shape
    (25, 5)
    """
    estimate = Estimate.of(log, world)
    return planned(estimate.table, estimate.gains, world.discount)


def spibb(log: Log, world: World, rows: int | float) -> Float[np.ndarray, "S A"]:
    """The best policy in the estimate that keeps the behaviour's probability of every pair with few rows.

    >>> from .spi_worlds import logged, wet_chicken
    >>> world = wet_chicken()
    >>> policy = spibb(logged(world, 500, np.random.default_rng(0)), world, rows=np.inf)
    >>> bool(np.allclose(policy, world.behaviour))
    True

    Args:
        log: of the behaviour.
        world: what is known of it.
        rows: a pair is free if it has more.
    """
    return _bounded(log, world, rows, _as_behaviour)


def lower_spibb(log: Log, world: World, rows: int | float) -> Float[np.ndarray, "S A"]:
    """The best policy in the estimate that does nothing with few rows more often than the behaviour.

    Args:
        log: of the behaviour.
        world: what is known of it.
        rows: a pair is free if it has more.
    """
    return _bounded(log, world, rows, _at_most_behaviour)


def _bounded(
    log: Log, world: World, rows: int | float, improve: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
) -> np.ndarray:
    estimate = Estimate.of(log, world)
    free = estimate.rows > rows
    behaviour = world.behaviour
    return iterated(
        estimate.table, estimate.gains, world.discount, behaviour, lambda values, _: improve(values, free, behaviour)
    )


def _as_behaviour(
    values: Float[np.ndarray, "S A"], free: Bool[np.ndarray, "S A"], behaviour: Float[np.ndarray, "S A"]
) -> np.ndarray:
    """The behaviour, but what it does with free actions goes to the best of them."""
    held = np.where(free, 0.0, behaviour)
    left = np.where(free, behaviour, 0.0).sum(axis=1, keepdims=True)
    return held + left * np.where(free, greedy(np.where(free, values, -np.inf)), 0.0)


def _at_most_behaviour(
    values: Float[np.ndarray, "S A"], free: Bool[np.ndarray, "S A"], behaviour: Float[np.ndarray, "S A"]
) -> np.ndarray:
    """Probability goes to the best actions first, as much as each may have."""
    room = np.where(free, 1.0, behaviour)
    order = np.argsort(-values, axis=1, kind="stable")
    filled = np.minimum(np.cumsum(np.take_along_axis(room, order, axis=1), axis=1), 1.0)
    # What the behaviour sums to is 1 but for rounding.
    filled[:, -1] = 1.0
    policy = np.zeros_like(behaviour)
    np.put_along_axis(policy, order, np.diff(filled, axis=1, prepend=0.0), axis=1)
    return policy


def errors(rows: Float[np.ndarray, "S A"], chance: float = 1.0) -> Float[np.ndarray, "S A"]:
    """Hoeffding's bound of the error of each pair, in units of the largest value; infinite without rows.

    >>> errors(np.array([[0.0, 8.0]])).round(3)
    array([[  inf, 0.589]])

    Args:
        rows: how often each pair was tried.
        chance: that one of the bounds fails.
    """
    with np.errstate(divide="ignore"):
        return np.sqrt(2.0 * np.log(2.0 * rows.size / chance) / rows)


def approx_soft_spibb(log: Log, world: World, budget: float) -> Float[np.ndarray, "S A"]:
    """Policy iteration with steps that move little probability where the errors are large.

    Args:
        log: of the behaviour.
        world: what is known of it.
        budget: in each state, most that `sum over actions of |policy - behaviour| error` may be.
    """
    return _soft(log, world, budget)


def adv_approx_soft_spibb(log: Log, world: World, budget: float) -> Float[np.ndarray, "S A"]:
    """The same, and no step loses value by the returns that the behaviour had in the log.

    Args:
        log: of the behaviour.
        world: what is known of it.
        budget: in each state, most that `sum over actions of |policy - behaviour| error` may be.
    """
    return _soft(log, world, budget, returns=mean_returns(log, world))


def lower_approx_soft_spibb(log: Log, world: World, budget: float) -> Float[np.ndarray, "S A"]:
    """The same, where only what is done more often than by the behaviour counts.

    Args:
        log: of the behaviour.
        world: what is known of it.
        budget: in each state, most that `sum over actions of max(policy - behaviour, 0) error` may be.
    """
    return _soft(log, world, budget, only_more=True)


def _soft(
    log: Log, world: World, budget: float, only_more: bool = False, returns: np.ndarray | None = None
) -> np.ndarray:
    estimate = Estimate.of(log, world)
    error = errors(estimate.rows)

    def improve(values: np.ndarray, before: np.ndarray) -> np.ndarray:
        found = moved(values, error, world.behaviour, budget, only_more, returns)
        # The search is greedy: without this, two policies could follow one another for ever.
        better = (found * values).sum(axis=1) >= (before * values).sum(axis=1)
        return np.where(better[:, None], found, before)

    return iterated(estimate.table, estimate.gains, world.discount, world.behaviour, improve)


def moved(
    values: Float[np.ndarray, "S A"],
    error: Float[np.ndarray, "S A"],
    behaviour: Float[np.ndarray, "S A"],
    budget: float,
    only_more: bool = False,
    returns: Float[np.ndarray, "S A"] | None = None,
) -> Float[np.ndarray, "S A"]:
    """The behaviour with probability moved from its worst actions to those that gain most for their error.

    Args:
        values: what each action is worth.
        error: of these.
        behaviour: probabilities to begin with.
        budget: most that the changes times their errors may sum to, in each state.
        only_more: whether only the actions that gain probability count.
        returns: what each action is worth by another estimate, by which no step may lose either.
    """
    states = np.arange(len(values))
    policy, left = behaviour.copy(), np.full(len(values), float(budget))
    earned = np.zeros(len(values))
    sides = 1.0 if only_more else 2.0
    for loser in np.argsort(values, axis=1, kind="stable").T:
        losing = error[states, loser]
        mass = policy[states, loser]
        if not only_more:
            mass = np.minimum(mass, left / (2.0 * losing))
        rates = (values - values[states, loser][:, None]) / error
        for winner in np.argsort(-rates, axis=1, kind="stable").T:
            winning = error[states, winner]
            step = np.minimum(mass, left / (sides * winning))
            if returns is not None:
                gain = returns[states, winner] - returns[states, loser]
                step = np.where(gain < 0.0, np.minimum(step, earned / np.where(gain < 0.0, -gain, 1.0)), step)
                earned = earned + np.where(rates[states, winner] > 0.0, gain * step, 0.0)
            step = np.where(rates[states, winner] > 0.0, step, 0.0)
            policy[states, loser] -= step
            policy[states, winner] += step
            mass = mass - step
            price = winning if only_more else winning + losing
            left = np.maximum(left - step * np.where(step > 0.0, price, 0.0), 0.0)
    return policy


def mean_returns(log: Log, world: World) -> Float[np.ndarray, "S A"]:
    """What followed each pair in the log on average, discounted, up to the end of its trajectory; 0 without rows."""
    gains = world.rewards[log.rows[:, 2]]
    last = np.append(log.trajectory[1:] != log.trajectory[:-1], True)
    returns, ahead = np.empty(len(gains)), 0.0
    for row in range(len(gains) - 1, -1, -1):
        ahead = gains[row] + (0.0 if last[row] else world.discount * ahead)
        returns[row] = ahead
    place = np.ravel_multi_index((log.rows[:, 0], log.rows[:, 1]), world.shape)
    size = world.behaviour.size
    total, rows = np.bincount(place, returns, size), np.bincount(place, minlength=size)
    return (total / np.maximum(rows, 1)).reshape(world.shape)


def duipi(log: Log, world: World, weight: float, prior: float = 0.1) -> Float[np.ndarray, "S A"]:
    """The policy of the best value less a multiple of its standard deviation, which is propagated beside it.

    Variances of different pairs count as independent. A move to any state has the prior's pseudo-count, also to a
    state never visited and from a terminal one. Steps towards the action that looks best become shorter, so that equals
    are mixed.

    Args:
        log: of the behaviour.
        world: what is known of it.
        weight: how many standard deviations count.
        prior: pseudo-count of each next state.
    """
    counts = log.counts(*world.shape)
    tried = counts.sum(axis=2) > 0
    counts = counts + prior
    total = counts.sum(axis=2, keepdims=True)
    table = counts / total
    spread = table * (1.0 - table) / (total + 1.0)
    squares = (world.discount * table) ** 2

    states = np.arange(len(counts))
    policy, values, variances = world.uniform(), np.zeros(world.shape), np.zeros(world.shape)
    for number in range(1, ROUNDS + 1):
        before = values
        ahead = world.rewards + world.discount * (policy * values).sum(axis=1)
        known = (policy**2 * variances).sum(axis=1)
        values, variances = table @ ahead, squares @ known + spread @ ahead**2
        best = np.where(tried, values - weight * np.sqrt(variances), -np.inf).argmax(axis=1)
        had = policy[states, best]
        has = np.minimum(had + 1.0 / number, 1.0)
        policy = policy * np.where(had < 1.0, (1.0 - has) / np.where(had < 1.0, 1.0 - had, 1.0), 0.0)[:, None]
        policy[states, best] = has
        if np.linalg.norm(values - before) <= STILL:
            break
    return policy


def ramdp(log: Log, world: World, penalty: float) -> Float[np.ndarray, "S A"]:
    """The plan of the estimate, with rewards lessened by `penalty / sqrt(rows)`.

    Args:
        log: of the behaviour.
        world: what is known of it.
        penalty: what one row's uncertainty costs.
    """
    estimate = Estimate.of(log, world)
    least = world.rewards.min() / (1.0 - world.discount)
    lessened = estimate.gains - penalty / np.sqrt(np.maximum(estimate.rows, 1.0))
    return planned(estimate.table, np.where(estimate.rows > 0, lessened, least), world.discount)


#: By benchmark, the methods with the numbers that the published comparisons found best for it.
METHODS: Mapping[str, Mapping[str, Method]] = {
    "wet-chicken": {
        "plug-in plan": plug_in,
        "SPIBB, 7 rows": partial(spibb, rows=7),
        "Lower-SPIBB, 7 rows": partial(lower_spibb, rows=7),
        "Approx-Soft-SPIBB, 1": partial(approx_soft_spibb, budget=1.0),
        "Adv-Approx-Soft-SPIBB, 1": partial(adv_approx_soft_spibb, budget=1.0),
        "Lower-Approx-Soft-SPIBB, 0.5": partial(lower_approx_soft_spibb, budget=0.5),
        "DUIPI, 0.5": partial(duipi, weight=0.5),
        "RaMDP, 2": partial(ramdp, penalty=2.0),
    },
    "random-mdps": {
        "plug-in plan": plug_in,
        "SPIBB, 10 rows": partial(spibb, rows=10),
        "Lower-SPIBB, 10 rows": partial(lower_spibb, rows=10),
        "Approx-Soft-SPIBB, 1": partial(approx_soft_spibb, budget=1.0),
        "Adv-Approx-Soft-SPIBB, 1": partial(adv_approx_soft_spibb, budget=1.0),
        "Lower-Approx-Soft-SPIBB, 1": partial(lower_approx_soft_spibb, budget=1.0),
        "DUIPI, 0.1": partial(duipi, weight=0.1),
        "RaMDP, 0.05": partial(ramdp, penalty=0.05),
    },
}
