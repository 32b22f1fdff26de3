"""Walks on a grid."""

from collections.abc import Callable

import numpy as np

STEPS = ((0, -1), (1, 0), (0, 1), (-1, 0))  # left, down, right, up


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
