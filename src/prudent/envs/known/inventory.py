"""A shop with twelve levels of stock, and a demand that is rarely very large."""

import numpy as np

from .environment import KnownEnvironment

MOST = 11
ORDERS = (0, 2, 4, 8)
DEMAND = {0: 0.30, 1: 0.30, 2: 0.20, 3: 0.10, 4: 0.07, 9: 0.03}


def inventory() -> KnownEnvironment:
    """States are the units in store; what is ordered comes before demand, and what is not met is lost."""
    states = MOST + 1
    table, cost = np.zeros((states, len(ORDERS), states)), np.zeros((states, len(ORDERS)))
    for stock in range(states):
        for action, order in enumerate(ORDERS):
            filled = min(stock + order, MOST)
            for demand, chance in DEMAND.items():
                table[stock, action, max(filled - demand, 0)] += chance
            bought = filled - stock
            cost[stock, action] = 0.5 * stock + bought + 2.0 * (bought > 0) + 20.0 * (stock == 0)

    def possible(stock: int, action: int, after: int) -> bool:
        """No more is left than was there and came; of demand nothing is known."""
        return after <= min(stock + ORDERS[action], MOST)

    return KnownEnvironment(table, cost, 5, "inventory", discount=0.95, possible=possible)
