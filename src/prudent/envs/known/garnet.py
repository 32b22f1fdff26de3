"""States without any order: each pair leads to three states chosen blindly."""

import numpy as np

from .environment import KnownEnvironment

STATES, ACTIONS, BRANCHES = 15, 3, 3


def garnet() -> KnownEnvironment:
    """A fixed random environment, to which no rule applies; its diagram, which pair leads where, may be known."""
    random = np.random.default_rng(4)
    cost = 10.0 * random.random((STATES, 1)) + random.random((STATES, ACTIONS))
    table = np.zeros((STATES, ACTIONS, STATES))
    for state, action in np.ndindex(STATES, ACTIONS):
        chosen = random.choice(STATES, BRANCHES, replace=False)
        table[state, action, chosen] = random.dirichlet(np.ones(BRANCHES))
    arrows = frozenset(zip(*(index.tolist() for index in np.nonzero(table)), strict=True))
    return KnownEnvironment(
        table, cost, 0, "garnet", discount=0.95, possible=lambda state, action, after: (state, action, after) in arrows
    )
