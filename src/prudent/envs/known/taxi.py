"""A small slippery taxi: fetch the passenger at one corner, bring him to the other."""

import numpy as np

from .environment import KnownEnvironment
from .grids import on_foot, slippery

SIDE = 4
ABOARD = 2
PICK, DROP = 4, 5


def taxi() -> KnownEnvironment:
    """States are (cell, where the passenger is, where to); a needless stop costs 5, a step 1."""
    cells, shape = SIDE * SIDE, (SIDE * SIDE, 3, 2)
    stands = (0, cells - 1)
    states = int(np.prod(shape))
    drive = slippery((SIDE, SIDE), side=0.05)
    table, cost, ends = np.zeros((states, 6, states)), np.ones((states, 6)), []
    for cell, where, to in np.ndindex(*shape):
        state = int(np.ravel_multi_index((cell, where, to), shape))
        if where == to:
            ends.append(state)
            continue
        for landing in range(cells):
            table[state, :4, np.ravel_multi_index((landing, where, to), shape)] = drive[cell, :, landing]
        at_stand = where < ABOARD and cell == stands[where]
        arrived = where == ABOARD and cell == stands[to]
        for action, done, after in ((PICK, at_stand, ABOARD), (DROP, arrived, to)):
            table[state, action, np.ravel_multi_index((cell, after, to), shape) if done else state] = 1.0
            cost[state, action] = 1.0 if done else 5.0
    table[ends], cost[ends] = np.eye(states)[ends][:, None], 0.0
    start = np.zeros(shape)
    for corner in range(SIDE):
        start[corner * (SIDE + 1), 0, 1] = start[corner * (SIDE + 1), 1, 0] = 0.5 / SIDE
    drives = on_foot((SIDE, SIDE))

    def possible(now: tuple[int, int, int], action: int, after: tuple[int, int, int]) -> bool:
        """Driving moves the taxi alone; a stop moves the passenger alone, on board or to where he is going."""
        (cell, where, to), (landing, place, goal) = now, after
        if goal != to:
            return False
        if action < PICK:
            return place == where and drives(divmod(cell, SIDE), action, divmod(landing, SIDE))
        return landing == cell and place in (where, ABOARD if action == PICK else to)

    return KnownEnvironment(
        table, cost, start.ravel(), "taxi", discount=0.97, terminal=tuple(ends), grid=shape, possible=possible
    )
