"""River swim: a sure small gain at the near bank, a large one at the far end of a swim that may fail."""

import numpy as np

from .environment import KnownEnvironment

STATES = 8
ADVANCE, HOLD, BACK = 0.35, 0.55, 0.10
NEAR = 0.1


def river_swim() -> KnownEnvironment:
    """Action 0 drifts back, for sure; action 1 swims on."""
    place = np.arange(STATES)
    on, back = np.minimum(place + 1, STATES - 1), np.maximum(place - 1, 0)
    table = np.zeros((STATES, 2, STATES))
    table[place, 0, back] = 1.0
    for landing, chance in ((on, ADVANCE), (place, HOLD), (back, BACK)):
        table[place, 1, landing] += chance
    cost = np.ones((STATES, 2))
    cost[0, 0], cost[-1, 1] = 1.0 - NEAR, 0.0

    def possible(place: int, action: int, after: int) -> bool:
        """One place at most, and no drifting upstream."""
        return abs(after - place) <= 1 and (action == 1 or after <= place)

    return KnownEnvironment(table, cost, 1, "river swim", discount=0.97, possible=possible)
