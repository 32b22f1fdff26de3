"""Gymnasium's slippery lakes, 4 x 4 and 8 x 8, without Gymnasium."""

import numpy as np

from .environment import KnownEnvironment
from .grids import on_foot, slippery

SMALL = ("SFFF", "FHFH", "FFFH", "HFFG")
LARGE = ("SFFFFFFF", "FFFFFFFF", "FFFHFFFF", "FFFFFHFF", "FFFHFFFF", "FHHFFFHF", "FHFFHFHF", "FFFHFFFG")


def lake_4x4() -> KnownEnvironment:
    """A third each as intended and to either side; holes and the goal end the walk, the goal pays 1."""
    return _lake(SMALL)


def lake_8x8() -> KnownEnvironment:
    """The larger map."""
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
