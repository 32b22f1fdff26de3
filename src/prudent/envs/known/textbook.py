"""Environments of the literature: a river to swim, and states without any order."""

import numpy as np

from .environment import KnownEnvironment


def river_swim() -> KnownEnvironment:
    """Small gains at the near bank, a large one after a swim that may fail: drift back for sure (0), or swim on (1)."""
    states, near = 8, 0.1
    advance, hold, recede = 0.35, 0.55, 0.10
    place = np.arange(states)
    on, back = np.minimum(place + 1, states - 1), np.maximum(place - 1, 0)
    table = np.zeros((states, 2, states))
    table[place, 0, back] = 1.0
    for landing, chance in ((on, advance), (place, hold), (back, recede)):
        table[place, 1, landing] += chance
    cost = np.ones((states, 2))
    cost[0, 0], cost[-1, 1] = 1.0 - near, 0.0

    def possible(place: int, action: int, after: int) -> bool:
        """One place at most, and no drifting upstream."""
        return abs(after - place) <= 1 and (action == 1 or after <= place)

    return KnownEnvironment(table, cost, 1, "river swim", discount=0.97, possible=possible)


def garnet() -> KnownEnvironment:
    """A fixed random environment, to which no rule applies; its diagram, which pair leads where, may be known."""
    states, actions, branches = 15, 3, 3
    random = np.random.default_rng(4)
    cost = 10.0 * random.random((states, 1)) + random.random((states, actions))
    table = np.zeros((states, actions, states))
    for state, action in np.ndindex(states, actions):
        chosen = random.choice(states, branches, replace=False)
        table[state, action, chosen] = random.dirichlet(np.ones(branches))
    arrows = frozenset(zip(*(index.tolist() for index in np.nonzero(table)), strict=True))
    return KnownEnvironment(
        table, cost, 0, "garnet", discount=0.95, possible=lambda state, action, after: (state, action, after) in arrows
    )
