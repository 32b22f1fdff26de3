"""A slippery walk along a cliff, 4 x 12: who falls pays dearly and is carried back to the start."""

import numpy as np

from .environment import KnownEnvironment
from .grids import on_foot, slippery

GRID = (4, 12)
START, GOAL = 36, 47


def cliff() -> KnownEnvironment:
    """A step costs 1, a fall 100; the ten cells between start and goal are the cliff."""
    table, one_step = slippery(GRID, side=0.1), on_foot(GRID)
    fallen = np.arange(START + 1, GOAL)
    table[fallen] = np.eye(len(table))[START]
    table[GOAL] = np.eye(len(table))[GOAL]
    cost = np.ones(table.shape[:2])
    cost[fallen], cost[GOAL] = 100.0, 0.0

    def possible(cell: tuple[int, int], action: int, landing: tuple[int, int]) -> bool:
        """Who has fallen is at the start next; others walk."""
        number = int(np.ravel_multi_index(cell, GRID))
        return landing == divmod(START, GRID[1]) if number in fallen else one_step(cell, action, landing)

    return KnownEnvironment(table, cost, START, "cliff", discount=0.97, terminal=(GOAL,), grid=GRID, possible=possible)
