"""A queue that is served slowly or fast, with rare bursts of arrivals."""

import numpy as np

from .environment import KnownEnvironment

ROOM = 15
SERVED = (0.3, 0.6, 0.9)
FEE = (0.0, 1.0, 3.0)
ARRIVALS = {0: 0.55, 1: 0.35, 2: 0.08, 8: 0.02}


def queue_with_bursts() -> KnownEnvironment:
    """States are those who wait; one of them is served or not, then others arrive, as many as there is room for."""
    states = ROOM + 1
    table = np.zeros((states, len(SERVED), states))
    for waiting in range(states):
        for action, served in enumerate(SERVED):
            for left, chance in ((max(waiting - 1, 0), served), (waiting, 1.0 - served)):
                for coming, share in ARRIVALS.items():
                    table[waiting, action, min(left + coming, ROOM)] += chance * share
    waiting = np.arange(states)[:, None]
    cost = waiting + np.array(FEE) + 15.0 * (waiting == ROOM)

    def possible(waiting: int, _: int, after: int) -> bool:
        """At most one is served; of arrivals nothing is known."""
        return after >= waiting - 1

    return KnownEnvironment(table, cost, 0, "queue", discount=0.95, possible=possible)
