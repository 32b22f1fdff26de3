"""One table of known models, with closed forms where there are any; the dense reference answers for the others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

import prudent as pr


class KnownModel(NamedTuple):
    """A model, a policy, and what is known of them without a linear system.

    Attributes:
        P: next-state probabilities `[S, A, S]`.
        cost: `[S, A]`.
        start: distribution of the first state `[S]`.
        discount: in [0, 1).
        policy: `[S, A]`, for which the closed forms hold.
        values: closed form of the policy's values `[S]`, if there is one.
        visits: closed form of the policy's discounted visits `[S]`, if there is one.
        optimum: closed form of the optimal values `[S]`, if there is one.
    """

    P: np.ndarray
    cost: np.ndarray
    start: np.ndarray
    discount: float
    policy: np.ndarray
    values: np.ndarray | None = None
    visits: np.ndarray | None = None
    optimum: np.ndarray | None = None

    def successor_lists(self) -> tuple[np.ndarray, np.ndarray]:
        """Return successors and their probabilities, both `[S, A, B]`, with B the longest list of a pair.

        Shorter lists are filled up with the pair's first successor, at probability 0.
        """
        reached = self.P > 0.0
        order = np.argsort(~reached, axis=2, kind="stable")[:, :, : int(reached.sum(axis=2).max())]
        listed = np.take_along_axis(reached, order, axis=2)
        successor = np.where(listed, order, order[:, :, :1]).astype(np.int32)
        return successor, np.take_along_axis(self.P, order, axis=2)

    def mdp(self, dense: bool = False) -> pr.MDP:
        """Return the library's model, along successor lists or dense."""
        if dense:
            return pr.MDP(pr.Kernel.dense(self.P), self.cost, self.start, self.discount)
        support = pr.Support.lists([[np.flatnonzero(row).tolist() for row in rows] for rows in self.P])
        return pr.MDP(pr.Kernel(support, self.successor_lists()[1]), self.cost, self.start, self.discount)


def one_state(discount: float) -> KnownModel:
    """One state: the policy's mean cost in every step."""
    cost, policy = np.array([[1.0, 3.0]]), np.array([[0.25, 0.75]])
    left = 1.0 / (1.0 - discount)
    return KnownModel(
        np.ones((1, 2, 1)),
        cost,
        np.ones(1),
        discount,
        policy,
        values=np.array([2.5 * left]),
        visits=np.array([left]),
        optimum=np.array([left]),
    )


def two_states(up: tuple[float, float], down: tuple[float, float], discount: float) -> KnownModel:
    """Two states that are left with chances that depend on the action.

    Under the policy they are left with chances `p` and `q`; `m = (q, p)/(p + q)` is the stationary distribution and
    `w = 1 - p - q` the other eigenvalue. From state 0, `visits = m/(1 - discount) + (start - m)/(1 - discount w)`, and
    `values = m.c/(1 - discount) + (c - m.c)/(1 - discount w)`.
    """
    P = np.array([[[1.0 - u, u] for u in up], [[d, 1.0 - d] for d in down]])
    policy, cost, start = np.array([[0.3, 0.7], [0.6, 0.4]]), np.array([[1.0, 0.2], [-0.5, 2.0]]), np.array([1.0, 0.0])
    p, q = policy[0] @ up, policy[1] @ down
    stationary, other, paid = np.array([q, p]) / (p + q), 1.0 - p - q, (policy * cost).sum(axis=1)
    level = stationary @ paid
    return KnownModel(
        P,
        cost,
        start,
        discount,
        policy,
        values=level / (1.0 - discount) + (paid - level) / (1.0 - discount * other),
        visits=stationary / (1.0 - discount) + (start - stationary) / (1.0 - discount * other),
    )


def cycle(states: int, discount: float) -> KnownModel:
    """A deterministic cycle; action 0 moves on, action 1 moves back, and the policy always moves on.

    From state 0, `visits(s) = discount^s / (1 - discount^S)`; `values(s)` sums one round of costs from `s`.
    """
    P = np.zeros((states, 2, states))
    here = np.arange(states)
    P[here, 0, (here + 1) % states] = 1.0
    P[here, 1, (here - 1) % states] = 1.0
    cost = np.stack([np.sin(1.0 + here), np.cos(here)], axis=1)
    powers, whole = discount**here, 1.0 - discount**states
    rounds = cost[(here[:, None] + here) % states, 0]
    return KnownModel(
        P,
        cost,
        np.eye(states)[0],
        discount,
        np.broadcast_to([1.0, 0.0], (states, 2)),
        values=rounds @ powers / whole,
        visits=powers / whole,
    )


def ladder(states: int, step: float, discount: float) -> KnownModel:
    """One action climbs a step with chance `step` and else stays; the last state absorbs and is free.

    With `r = discount step / (1 - discount (1 - step))`, `visits(s) = r^s / (1 - discount (1 - step))` from state 0 and
    `values(s) = (1 - r^(S - 1 - s)) / (1 - discount)`, at cost 1.
    """
    P = np.zeros((states, 1, states))
    here = np.arange(states - 1)
    P[here, 0, here], P[here, 0, here + 1] = 1.0 - step, step
    P[-1, 0, -1] = 1.0
    cost = np.ones((states, 1))
    cost[-1] = 0.0
    stay = 1.0 - discount * (1.0 - step)
    r, all_states = discount * step / stay, np.arange(states)
    visits = r**all_states / stay
    visits[-1] = r ** (states - 1) / (1.0 - discount)
    values = (1.0 - r ** (states - 1 - all_states)) / (1.0 - discount)
    return KnownModel(
        P, cost, np.eye(states)[0], discount, np.ones((states, 1)), values=values, visits=visits, optimum=values
    )


def self_loops(discount: float) -> KnownModel:
    """Three states that are never left; one is not reached from the start."""
    cost = np.array([[1.0, 2.0], [-1.0, 0.5], [1e3, 1e-3]])
    policy, start = np.array([[0.5, 0.5], [0.1, 0.9], [0.0, 1.0]]), np.array([0.25, 0.75, 0.0])
    left = 1.0 / (1.0 - discount)
    return KnownModel(
        np.repeat(np.eye(3)[:, None], 2, axis=1),
        cost,
        start,
        discount,
        policy,
        values=(policy * cost).sum(axis=1) * left,
        visits=start * left,
        optimum=cost.min(axis=1) * left,
    )


def queue(states: int, discount: float, arrival: float = 0.3) -> KnownModel:
    """A queue of at most S - 1 customers, who cost 1 a step each; action 1 serves fast, and the policy always does.

    The values solve a difference equation: `v(s) = (s + shift)/(1 - discount) + A x^s + B y^s`, with `x` and `y` the
    roots of `discount (arrival z^2 + service) = (1 - discount (1 - arrival - service)) z`; `A` and `B` follow from
    `v(-1) = v(0)` and `v(S) = v(S - 1)`, since a move out of the queue's range is none.
    """
    services = (0.2, 0.5)
    P = np.zeros((states, 2, states))
    here = np.arange(states)
    for action, service in enumerate(services):
        P[here, action, np.minimum(here + 1, states - 1)] += arrival
        P[here, action, np.maximum(here - 1, 0)] += service
        P[here, action, here] += 1.0 - arrival - service
    service = services[1]
    x, y = np.roots([discount * arrival, discount * (1.0 - arrival - service) - 1.0, discount * service])
    shift = discount * (arrival - service) / (1.0 - discount)
    # Differences of the powers at the two ends of the queue.
    low, high = [1.0 - 1.0 / z for z in (x, y)], [z**states - z ** (states - 1) for z in (x, y)]
    slope = 1.0 / (1.0 - discount)
    A = -slope * (high[1] - low[1]) / (low[0] * high[1] - low[1] * high[0])
    B = -slope * (low[0] - high[0]) / (low[0] * high[1] - low[1] * high[0])
    return KnownModel(
        P,
        np.repeat(here[:, None].astype(float), 2, axis=1),
        np.full(states, 1.0 / states),
        discount,
        np.broadcast_to([0.0, 1.0], (states, 2)),
        values=slope * (here + shift) + A * x**here + B * y**here,
    )


def grid(rows: int, columns: int, discount: float) -> KnownModel:
    """A grid with walls around it: moves up, down, left and right cost 1; the last cell absorbs and is free.

    The optimal value of a cell at distance `k` from the last is `(1 - discount^k)/(1 - discount)`. The policy is
    uniform.
    """
    states = rows * columns
    P, cost = np.zeros((states, 4, states)), np.ones((states, 4))
    row, column = np.divmod(np.arange(states), columns)
    for action, (down, right) in enumerate(((-1, 0), (1, 0), (0, -1), (0, 1))):
        then = np.clip(row + down, 0, rows - 1) * columns + np.clip(column + right, 0, columns - 1)
        P[np.arange(states), action, then] = 1.0
    P[-1], cost[-1] = np.eye(states)[-1], 0.0
    distance = (rows - 1 - row) + (columns - 1 - column)
    return KnownModel(
        P,
        cost,
        np.eye(states)[0],
        discount,
        np.full((states, 4), 0.25),
        optimum=(1.0 - discount**distance) / (1.0 - discount),
    )


def dense_random(seed: int, states: int, actions: int, discount: float) -> KnownModel:
    """Every state follows every pair; no closed form."""
    random = np.random.default_rng(seed)
    return KnownModel(
        random.dirichlet(np.ones(states), size=(states, actions)),
        random.uniform(size=(states, actions)),
        random.dirichlet(np.ones(states)),
        discount,
        random.dirichlet(np.ones(actions), size=states),
    )


def sparse_random(seed: int, states: int, actions: int, successors: int, discount: float) -> KnownModel:
    """An irregular graph: each pair has 1 to B successors anywhere; no closed form."""
    random = np.random.default_rng(seed)
    P = np.zeros((states, actions, states))
    for s, a in np.ndindex(states, actions):
        size = int(random.integers(1, successors + 1))
        P[s, a, random.choice(states, size, replace=False)] = random.dirichlet(np.ones(size))
    model = dense_random(seed + 1, states, actions, discount)
    return model._replace(P=P)


KNOWN = {
    "one state": one_state(0.9),
    "one state, discount 0": one_state(0.0),
    "two states": two_states((0.2, 0.7), (0.9, 0.1), 0.95),
    "two states, always left": two_states((1.0, 1.0), (1.0, 1.0), 0.9),
    "two states, hardly ever left, discount 0.9999": two_states((1e-4, 3e-4), (2e-4, 1e-5), 0.9999),
    "cycle": cycle(7, 0.9),
    "long cycle, discount 0.999": cycle(40, 0.999),
    "one action, absorbing": ladder(6, 0.4, 0.97),
    "long ladder": ladder(60, 0.8, 0.99),
    "self loops, discount 0.9999": self_loops(0.9999),
    "self loops, discount 0": self_loops(0.0),
    "queue": queue(12, 0.95),
    "long queue": queue(90, 0.9),
    "small grid": grid(3, 4, 0.9),
    "grid": grid(7, 6, 0.98),
    "dense": dense_random(0, 8, 3, 0.95),
    "dense, two pairs of states and actions": dense_random(3, 2, 2, 0.5),
    "irregular": sparse_random(1, 40, 3, 4, 0.95),
    "irregular, discount 0.9999": sparse_random(2, 25, 2, 3, 0.9999),
}

each_known_model = pytest.mark.parametrize("model", KNOWN.values(), ids=KNOWN.keys())
