"""The two benchmarks of safe policy improvement: discrete Wet Chicken and Random MDPs, and logs of them.

Wet Chicken in the discrete form of Scholl, Dietrich, Otte and Udluft (2022), "Safe Policy Improvement Approaches on
Discrete Markov Decision Processes"; Random MDPs as Laroche, Trichelair and Tachet des Combes (2019), "Safe Policy
Improvement with Baseline Bootstrapping", make them. Rewards are collected, so that a higher value is better.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from prudent import InputError

DISCOUNT = 0.95

# A value changes by less than this when policy iteration ends; rounds, where ties would keep it going.
STILL, ROUNDS = 1e-9, 5000


class World(NamedTuple):
    """A world with a policy of today. A method may look at everything but the table and what is worked out from it.

    >>> world = wet_chicken(share=0.1)
    >>> round(world.value(world.behaviour), 2), round(world.value(world.best()), 2)
    (29.75, 43.08)

    Attributes:
        name: as it is printed.
        table: `[S, A, S]` transition probabilities; the rows of a terminal state are zero.
        rewards: `[S]`, of the state that a step leads to.
        behaviour: `[S, A]` probabilities of the policy that makes the log.
        start: the first state.
        discount: in [0, 1).
        horizon: most steps of an episode of a log; None where a log is one trajectory.
    """

    name: str
    table: Float[np.ndarray, "S A S"]
    rewards: Float[np.ndarray, " S"]
    behaviour: Float[np.ndarray, "S A"]
    start: int
    discount: float
    horizon: int | None

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of states and actions."""
        states, actions = self.behaviour.shape
        return states, actions

    def ends(self) -> Bool[np.ndarray, " S"]:
        """Return which states are terminal, which a method may know."""
        return (self.table.sum(axis=2) == 0.0).all(axis=1)

    def uniform(self) -> Float[np.ndarray, "S A"]:
        """The policy of random actions."""
        return np.full(self.shape, 1.0 / self.shape[1])

    def best(self) -> Float[np.ndarray, "S A"]:
        """The optimal policy."""
        return planned(self.table, self.table @ self.rewards, self.discount)

    def value(self, policy: Float[np.ndarray, "S A"]) -> float:
        """Expected discounted reward from the start."""
        values = action_values(self.table, self.table @ self.rewards, self.discount, policy)
        return float(policy[self.start] @ values[self.start])


class Log(NamedTuple):
    """What is recorded of a policy.

    Attributes:
        rows: `[N, 3]` state, action and next state of each step, in the order of time.
        trajectory: `[N]` number of the trajectory that the row belongs to.
    """

    rows: Int[np.ndarray, "N 3"]
    trajectory: Int[np.ndarray, " N"]

    def counts(self, states: int, actions: int) -> Float[np.ndarray, "S A S"]:
        """How often each move was seen."""
        place = np.ravel_multi_index(tuple(self.rows.T), (states, actions, states))
        seen = np.bincount(place, minlength=states * actions * states)
        return seen.reshape(states, actions, states).astype(float)


def action_values(
    table: Float[np.ndarray, "S A S"],
    gains: Float[np.ndarray, "S A"],
    discount: float,
    policy: Float[np.ndarray, "S A"],
) -> Float[np.ndarray, "S A"]:
    """What each action is worth if the policy is followed from then on; a zero row ends the process."""
    moves = np.einsum("sa,sat->st", policy, table)
    values = np.linalg.solve(np.eye(len(table)) - discount * moves, (policy * gains).sum(axis=1))
    return gains + discount * (table @ values)


def greedy(values: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S A"]:
    """The policy of the best action of each state, the first of equals."""
    return np.eye(values.shape[1])[values.argmax(axis=1)]


def iterated(
    table: Float[np.ndarray, "S A S"],
    gains: Float[np.ndarray, "S A"],
    discount: float,
    policy: Float[np.ndarray, "S A"],
    improve: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> Float[np.ndarray, "S A"]:
    """Policy iteration from a policy, until the values stand still.

    Args:
        table: `[S, A, S]` transition probabilities.
        gains: `[S, A]` expected rewards.
        discount: in [0, 1).
        policy: `[S, A]` to begin with.
        improve: the next policy, given the action values of the last one and the last one.
    """
    before = np.full(gains.shape, np.inf)
    for _ in range(ROUNDS):
        values = action_values(table, gains, discount, policy)
        policy = improve(values, policy)
        if np.abs(values - before).max() <= STILL:
            break
        before = values
    return policy


def planned(
    table: Float[np.ndarray, "S A S"], gains: Float[np.ndarray, "S A"], discount: float
) -> Float[np.ndarray, "S A"]:
    """The optimal policy of a table by policy iteration."""
    uniform = np.full(gains.shape, 1.0 / gains.shape[1])
    return iterated(table, gains, discount, uniform, lambda values, _: greedy(values))


def wet_chicken(share: float = 0.1) -> World:
    """A canoe above a waterfall: the nearer to it, the higher the reward; who falls starts over.

    States are `5 x + y`, of which `x` counts towards the waterfall and `y` towards the fast side of the river. Actions
    drift, hold back by one or by two, and go left or right. The fast side has a strong current, the slow side strong
    turbulence, uniform on an interval and rounded, so that probabilities are lengths of intervals.

    >>> wet_chicken(share=0.5).table.shape
    (25, 5, 25)

    Args:
        share: of uniform actions in the behaviour, which otherwise tries to stay in the middle.
    """
    if not 0.0 <= share <= 1.0:
        raise InputError(f"share must be from 0 to 1, got {share!r}")
    length = width = 5
    x, y = np.divmod(np.arange(length * width), width)
    effects = np.array([(0, 0), (-1, 0), (-2, 0), (0, -1), (0, 1)])
    current = 3.0 * y / width
    turbulence = 3.5 - current

    # Chances of the seven roundings of the new x: below 0, 0 to 4, over the waterfall.
    edges = np.array([-np.inf, *(np.arange(length + 1) - 0.5), np.inf])
    middle = x[:, None] + effects[:, 0] + current[:, None]
    reached = (edges - middle[..., None] + turbulence[:, None, None]) / (2.0 * turbulence[:, None, None])
    chances = np.diff(np.clip(reached, 0.0, 1.0), axis=2)

    table = np.zeros((length * width, len(effects), length * width))
    state, action = np.indices(table.shape[:2])
    side = np.clip(y[:, None] + effects[:, 1], 0, width - 1)
    for place in range(length):
        table[state, action, width * place + side] += chances[..., place + 1]
    table[state, action, side] += chances[..., 0]
    table[..., 0] += chances[..., -1]

    drift, neutral, maximum, left, right = range(len(effects))
    habit = np.select([x > 2, y < 2, y > 2, x == 2, x == 1], [maximum, right, left, maximum, neutral], drift)
    behaviour = (1.0 - share) * np.eye(len(effects))[habit] + share / len(effects)
    return World(f"Wet Chicken, share {share:g}", table, x.astype(float), behaviour, 0, DISCOUNT, None)


def random_mdp(quality: float, random: np.random.Generator, states: int = 50, actions: int = 4) -> World:
    """A random world whose goal is far, and a behaviour of a given quality.

    Each pair leads to four random states, with the gaps between three sorted uniform numbers as probabilities. The
    goal pays 1 and ends an episode. It is the state that is worth least to aim for, of those whose optimal value is
    above that of fifty steps. The behaviour begins as the softmax of the optimal action values and is cooled down from
    greedy until it is no better than halfway from `quality` to the optimum. At random states the best
    action then loses a tenth of its probability, in proportion to the others, until the quality is reached.

    >>> world = random_mdp(0.9, np.random.default_rng(0))
    >>> uniform, today, best = map(world.value, (world.uniform(), world.behaviour, world.best()))
    >>> 0.88 < (today - uniform) / (best - uniform) <= 0.9
    True

    Args:
        quality: of the behaviour, 0 that of uniform actions and 1 that of the optimum.
        random: what the numbers are drawn from.
        states: how many.
        actions: how many.
    """
    if not 0.0 < quality < 1.0:
        raise InputError(f"quality must be between 0 and 1, got {quality!r}")
    table = np.zeros((states, actions, states))
    for pair in np.ndindex(states, actions):
        chances = np.diff(np.sort(random.random(3)), prepend=0.0, append=1.0)
        table[pair][random.choice(states, 4, replace=False)] = chances
    worlds = {goal: _aiming(table, goal) for goal in range(1, states)}
    far = {goal: world.value(world.best()) for goal, world in worlds.items()}
    far = {goal: value for goal, value in far.items() if value > DISCOUNT**50}
    if not far:
        return random_mdp(quality, random, states, actions)
    world = worlds[min(far, key=lambda goal: far[goal])]
    return world._replace(
        name=f"Random MDPs, quality {quality:g}", behaviour=_behaviour_of_quality(world, quality, random)
    )


def _aiming(table: np.ndarray, goal: int) -> World:
    """The world of a goal; the behaviour is uniform."""
    table = table.copy()
    table[goal] = 0.0
    states, actions, _ = table.shape
    uniform = np.full((states, actions), 1.0 / actions)
    return World("", table, np.eye(states)[goal], uniform, 0, DISCOUNT, 50)


def _behaviour_of_quality(world: World, quality: float, random: np.random.Generator) -> np.ndarray:
    best, least = world.best(), world.value(world.uniform())
    gap = world.value(best) - least
    worth = action_values(world.table, world.table @ world.rewards, world.discount, best)
    worth -= worth.max(axis=1, keepdims=True)

    sharpness, policy = 2e6, best
    while world.value(policy) > least + 0.5 * (quality + 1.0) * gap:
        sharpness *= 0.9
        policy = np.exp(sharpness * worth)
        policy /= policy.sum(axis=1, keepdims=True)
    while world.value(policy) > least + quality * gap:
        state = random.integers(len(policy))
        policy[state, worth[state].argmax()] *= 0.9
        policy[state] /= policy[state].sum()
    return policy


def simulated(
    world: World,
    policy: Float[np.ndarray, "S A"],
    trajectories: int,
    steps: int,
    random: np.random.Generator,
) -> Log:
    """The log of a policy; a trajectory ends at a terminal state, or after so many steps.

    >>> world = wet_chicken()
    >>> simulated(world, world.behaviour, trajectories=2, steps=30, random=np.random.default_rng(0)).rows.shape
    (60, 3)
    """
    ends = world.ends()
    acts, moves = np.cumsum(policy, axis=1), np.cumsum(world.table, axis=2)
    running = np.arange(trajectories)
    state = np.full(trajectories, world.start)
    rows, owners = [], []
    for _ in range(steps):
        action = _picked(acts[state], random)
        following = _picked(moves[state, action], random)
        rows.append(np.stack([state, action, following], axis=1))
        owners.append(running)
        going = ~ends[following]
        running, state = running[going], following[going]
        if not running.size:
            break
    owner = np.concatenate(owners)
    order = np.argsort(owner, kind="stable")
    return Log(np.concatenate(rows)[order], owner[order])


def _picked(cumulative: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """The entry of each row that a uniform number falls on; never one of probability 0."""
    uniform = random.random((len(cumulative), 1)) * cumulative[:, -1:]
    return (cumulative <= uniform).sum(axis=1)


def logged(world: World, size: int, random: np.random.Generator) -> Log:
    """A log of the behaviour: `size` steps of one trajectory, or `size` episodes where the world has a horizon.

    >>> world = random_mdp(0.5, np.random.default_rng(0))
    >>> log = logged(world, 10, np.random.default_rng(1))
    >>> len(np.unique(log.trajectory)), bool(max(np.bincount(log.trajectory)) <= 50)
    (10, True)
    """
    trajectories, steps = (1, size) if world.horizon is None else (size, world.horizon)
    return simulated(world, world.behaviour, trajectories, steps, random)
