"""Two machines that wear, and are rarely broken at one blow; one of them can be mended at a time."""

import numpy as np

from .environment import KnownEnvironment

LEVELS = 4
WEAR, SHOCK, MENDED = 0.2, 0.02, 0.9
RUNNING = np.array([0.0, 1.0, 2.0, 12.0])
MENDING = 4.0


def machines() -> KnownEnvironment:
    """States are the wear of the first and of the second machine; actions: run both, mend one of them."""
    level = np.arange(LEVELS)
    run, mend = np.zeros((2, LEVELS, LEVELS))
    run[level, level] += 1.0 - WEAR - SHOCK
    run[level, np.minimum(level + 1, LEVELS - 1)] += WEAR
    run[:, -1] += SHOCK
    mend[:, 0] = MENDED
    mend[level, level] += 1.0 - MENDED
    pairs = ((run, run), (mend, run), (run, mend))
    table = np.stack([np.kron(first, second) for first, second in pairs], axis=1)
    cost = (RUNNING[:, None] + RUNNING).reshape(-1, 1) + np.array([0.0, MENDING, MENDING])

    def possible(wear: tuple[int, int], action: int, after: tuple[int, int]) -> bool:
        """A machine that runs stays as it is, wears a level or breaks; one that is mended is new or stays as it is."""
        return all(
            now in ((was, 0) if action == machine + 1 else (was, was + 1, LEVELS - 1))
            for machine, (was, now) in enumerate(zip(wear, after, strict=True))
        )

    return KnownEnvironment(table, cost, 0, "machines", discount=0.95, grid=(LEVELS, LEVELS), possible=possible)
