"""Walks on a grid."""

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
