"""Walks on a grid: Gymnasium's slippery lakes without Gymnasium, a cliff, a taxi."""

from collections.abc import Callable

import numpy as np

from .environment import KnownEnvironment

STEPS = ((0, -1), (1, 0), (0, 1), (-1, 0))  # left, down, right, up
SMALL = ("SFFF", "FHFH", "FFFH", "HFFG")
LARGE = ("SFFFFFFF", "FFFFFFFF", "FFFHFFFF", "FFFFFHFF", "FFFHFFFF", "FHHFFFHF", "FHFFHFHF", "FFFHFFFG")


def slippery(grid: tuple[int, int], side: float) -> np.ndarray:
    """`[S, 4, S]` of moving left, down, right or up, and to each side of that with probability `side`."""
    rows, columns = grid
    place = np.arange(rows * columns)
    landing = [
        np.clip(place // columns + down, 0, rows - 1) * columns + np.clip(place % columns + right, 0, columns - 1)
        for down, right in STEPS
    ]
    table = np.zeros((len(place), 4, len(place)))
    for action in range(4):
        for turn, chance in ((0, 1.0 - 2.0 * side), (1, side), (-1, side)):
            table[place, action, landing[(action + turn) % 4]] += chance
    return table


def on_foot(grid: tuple[int, int]) -> Callable[[tuple[int, int], int, tuple[int, int]], bool]:
    """Whether one step can lead from a cell to another: as meant or to a side of that, never back; a wall stops it."""
    last = np.array(grid) - 1

    def possible(cell: tuple[int, int], action: int, landing: tuple[int, int]) -> bool:
        steps = [STEPS[(action + turn) % 4] for turn in (-1, 0, 1)]
        return any(tuple(np.clip(np.add(cell, step), 0, last)) == landing for step in steps)

    return possible


def lake_4x4() -> KnownEnvironment:
    """A third each as intended and to either side; holes and the goal end the walk, the goal pays 1."""
    return _lake(SMALL)


def lake_8x8() -> KnownEnvironment:
    """Its larger map."""
    return _lake(LARGE)


def _lake(tiles: tuple[str, ...]) -> KnownEnvironment:
    grid = len(tiles), len(tiles[0])
    tile = np.array([list(row) for row in tiles]).ravel()
    ends = (tile == "H") | (tile == "G")
    table = slippery(grid, side=1.0 / 3.0)
    table[ends] = np.eye(len(tile))[ends][:, None]
    cost = np.where((tile == "G") & ~ends[:, None, None], -1.0, 0.0) * np.ones_like(table)
    return KnownEnvironment(
        table,
        cost,
        0,
        f"lake {grid[0]}x{grid[1]}",
        discount=0.99,
        terminal=tuple(np.flatnonzero(ends).tolist()),
        grid=grid,
        possible=on_foot(grid),
    )


def cliff() -> KnownEnvironment:
    """A step costs 1, a fall 100 and the way back; the ten cells between start and goal are the cliff."""
    grid, begin, goal = (4, 12), 36, 47
    table, one_step = slippery(grid, side=0.1), on_foot(grid)
    fallen = np.arange(begin + 1, goal)
    table[fallen] = np.eye(len(table))[begin]
    table[goal] = np.eye(len(table))[goal]
    cost = np.ones(table.shape[:2])
    cost[fallen], cost[goal] = 100.0, 0.0

    def possible(cell: tuple[int, int], action: int, landing: tuple[int, int]) -> bool:
        """Who has fallen is at the start next; others walk."""
        number = int(np.ravel_multi_index(cell, grid))
        return landing == divmod(begin, grid[1]) if number in fallen else one_step(cell, action, landing)

    return KnownEnvironment(table, cost, begin, "cliff", discount=0.97, terminal=(goal,), grid=grid, possible=possible)


def taxi() -> KnownEnvironment:
    """A small slippery taxi: fetch the passenger at one corner, bring him to the other.

    States are (cell, where the passenger is, where to); a needless stop costs 5, a step 1.
    """
    side, aboard, pick, drop = 4, 2, 4, 5
    cells, shape = side * side, (side * side, 3, 2)
    stands = (0, cells - 1)
    states = int(np.prod(shape))
    drive = slippery((side, side), side=0.05)
    table, cost, ends = np.zeros((states, 6, states)), np.ones((states, 6)), []
    for cell, where, to in np.ndindex(*shape):
        state = int(np.ravel_multi_index((cell, where, to), shape))
        if where == to:
            ends.append(state)
            continue
        for landing in range(cells):
            table[state, :4, np.ravel_multi_index((landing, where, to), shape)] = drive[cell, :, landing]
        at_stand = where < aboard and cell == stands[where]
        arrived = where == aboard and cell == stands[to]
        for action, done, after in ((pick, at_stand, aboard), (drop, arrived, to)):
            table[state, action, np.ravel_multi_index((cell, after, to), shape) if done else state] = 1.0
            cost[state, action] = 1.0 if done else 5.0
    table[ends], cost[ends] = np.eye(states)[ends][:, None], 0.0
    start = np.zeros(shape)
    for corner in range(side):
        start[corner * (side + 1), 0, 1] = start[corner * (side + 1), 1, 0] = 0.5 / side
    drives = on_foot((side, side))

    def possible(now: tuple[int, int, int], action: int, after: tuple[int, int, int]) -> bool:
        """Driving moves the taxi alone; a stop moves the passenger alone, on board or to where he is going."""
        (cell, where, to), (landing, place, goal) = now, after
        if goal != to:
            return False
        if action < pick:
            return place == where and drives(divmod(cell, side), action, divmod(landing, side))
        return landing == cell and place in (where, aboard if action == pick else to)

    return KnownEnvironment(
        table, cost, start.ravel(), "taxi", discount=0.97, terminal=tuple(ends), grid=shape, possible=possible
    )
