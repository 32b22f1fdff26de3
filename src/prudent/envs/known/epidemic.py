"""An epidemic among nineteen: how many are infected decides how fast it spreads."""

import numpy as np
from scipy.stats import binom

from .environment import KnownEnvironment

PEOPLE = 19
CONTAGION = (2.2, 1.1, 0.5)  # doing nothing, measures, closing down
RECOVERY = 0.35
FROM_OUTSIDE = 0.02


def epidemic() -> KnownEnvironment:
    """States are the infected; each healthy one catches it, each infected one recovers, by chance."""
    states = PEOPLE + 1
    table = np.zeros((states, len(CONTAGION), states))
    for ill in range(states):
        well = PEOPLE - ill
        recovering = binom.pmf(np.arange(ill + 1), ill, RECOVERY)
        for action, rate in enumerate(CONTAGION):
            chance = 0.5 * (1.0 - np.exp(-rate * ill / states) * (1.0 - FROM_OUTSIDE))
            # Convolved with recoveries in reverse, the first entry is the fewest that can be ill next.
            table[ill, action] = np.convolve(binom.pmf(np.arange(well + 1), well, chance), recovering[::-1])
    cost = 0.5 * np.arange(states)[:, None] ** 1.5 + np.array([0.0, 4.0, 10.0])
    return KnownEnvironment(table, cost, 2, "epidemic", discount=0.95)
