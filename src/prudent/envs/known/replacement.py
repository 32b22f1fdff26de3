"""A machine of eight levels of wear that can be run, overhauled or replaced."""

import numpy as np

from .environment import KnownEnvironment

LEVELS = 8


def replacement() -> KnownEnvironment:
    """Running wears it or rarely breaks it; an overhaul mostly takes two levels off; a new one is new."""
    last = LEVELS - 1
    table = np.zeros((LEVELS, 3, LEVELS))
    for level in range(last):
        for worse, chance in ((level, 0.60), (level + 1, 0.35), (last, 0.05)):
            table[level, 0, worse] += chance
    table[last, 0, last] = 1.0
    for level in range(LEVELS):
        table[level, 1, max(level - 2, 0)] += 0.7
        table[level, 1, level] += 0.3
    table[:, 2, 0] = 1.0
    level = np.arange(LEVELS)[:, None]
    cost = np.array([0.0, 3.0, 9.0]) + 0.6 * level + 20.0 * (level == last)

    def possible(level: int, action: int, after: int) -> bool:
        """Run, it stays as it is, wears a level or breaks; overhauled, it loses up to two; a new one is new."""
        runs, overhauled = after in (level, level + 1, last), level - 2 <= after <= level
        return (runs, overhauled, after == 0)[action]

    return KnownEnvironment(table, cost, 0, "replacement", discount=0.95, possible=possible)
