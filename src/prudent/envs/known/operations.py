"""Epidemic, shop, machines and queue: what operations are planned for."""

import numpy as np

from .environment import KnownEnvironment


def epidemic() -> KnownEnvironment:
    """States are the infected, and the more the faster it spreads; each well one catches it, each ill one recovers."""
    from scipy.stats import binom  # slow to import

    people, recovery, from_outside = 19, 0.35, 0.02
    contagion = (2.2, 1.1, 0.5)  # doing nothing, measures, closing down
    states = people + 1
    table = np.zeros((states, len(contagion), states))
    for ill in range(states):
        well = people - ill
        recovering = binom.pmf(np.arange(ill + 1), ill, recovery)
        for action, rate in enumerate(contagion):
            chance = 0.5 * (1.0 - np.exp(-rate * ill / states) * (1.0 - from_outside))
            # Convolved with recoveries in reverse, the first entry is the fewest that can be ill next.
            table[ill, action] = np.convolve(binom.pmf(np.arange(well + 1), well, chance), recovering[::-1])
    cost = 0.5 * np.arange(states)[:, None] ** 1.5 + np.array([0.0, 4.0, 10.0])
    return KnownEnvironment(table, cost, 2, "epidemic", discount=0.95)


def inventory() -> KnownEnvironment:
    """States are the units in store; what is ordered comes before demand, and what is not met is lost."""
    most, orders = 11, (0, 2, 4, 8)
    demands = {0: 0.30, 1: 0.30, 2: 0.20, 3: 0.10, 4: 0.07, 9: 0.03}  # rarely very large
    states = most + 1
    table, cost = np.zeros((states, len(orders), states)), np.zeros((states, len(orders)))
    for stock in range(states):
        for action, order in enumerate(orders):
            filled = min(stock + order, most)
            for demand, chance in demands.items():
                table[stock, action, max(filled - demand, 0)] += chance
            bought = filled - stock
            cost[stock, action] = 0.5 * stock + bought + 2.0 * (bought > 0) + 20.0 * (stock == 0)

    def possible(stock: int, action: int, after: int) -> bool:
        """No more is left than was there and came; of demand nothing is known."""
        return after <= min(stock + orders[action], most)

    return KnownEnvironment(table, cost, 5, "inventory", discount=0.95, possible=possible)


def machines() -> KnownEnvironment:
    """Two machines that wear, and are rarely broken at one blow; actions: run both, or mend one of them."""
    levels, wears, breaks, mended, mending = 4, 0.2, 0.02, 0.9, 4.0
    running = np.array([0.0, 1.0, 2.0, 12.0])
    level = np.arange(levels)
    run, mend = np.zeros((2, levels, levels))
    run[level, level] += 1.0 - wears - breaks
    run[level, np.minimum(level + 1, levels - 1)] += wears
    run[:, -1] += breaks
    mend[:, 0] = mended
    mend[level, level] += 1.0 - mended
    pairs = ((run, run), (mend, run), (run, mend))
    table = np.stack([np.kron(first, second) for first, second in pairs], axis=1)
    cost = (running[:, None] + running).reshape(-1, 1) + np.array([0.0, mending, mending])

    def possible(wear: tuple[int, int], action: int, after: tuple[int, int]) -> bool:
        """A machine that runs stays as it is, wears a level or breaks; one that is mended is new or stays as it is."""
        return all(
            now in ((was, 0) if action == machine + 1 else (was, was + 1, levels - 1))
            for machine, (was, now) in enumerate(zip(wear, after, strict=True))
        )

    return KnownEnvironment(table, cost, 0, "machines", discount=0.95, grid=(levels, levels), possible=possible)


def queue_with_bursts() -> KnownEnvironment:
    """States are those who wait; one of them is served or not, then others arrive, as many as there is room for."""
    room, speeds, fees = 15, (0.3, 0.6, 0.9), (0.0, 1.0, 3.0)
    arrivals = {0: 0.55, 1: 0.35, 2: 0.08, 8: 0.02}  # rare bursts
    states = room + 1
    table = np.zeros((states, len(speeds), states))
    for waiting in range(states):
        for action, served in enumerate(speeds):
            for left, chance in ((max(waiting - 1, 0), served), (waiting, 1.0 - served)):
                for coming, share in arrivals.items():
                    table[waiting, action, min(left + coming, room)] += chance * share
    waiting = np.arange(states)[:, None]
    cost = waiting + np.array(fees) + 15.0 * (waiting == room)

    def possible(waiting: int, _: int, after: int) -> bool:
        """At most one is served; of arrivals nothing is known."""
        return after >= waiting - 1

    return KnownEnvironment(table, cost, 0, "queue", discount=0.95, possible=possible)


def replacement() -> KnownEnvironment:
    """Running wears it or rarely breaks it; an overhaul mostly takes two levels off; a new one is new."""
    levels = 8
    last = levels - 1
    table = np.zeros((levels, 3, levels))
    for level in range(last):
        for worse, chance in ((level, 0.60), (level + 1, 0.35), (last, 0.05)):
            table[level, 0, worse] += chance
    table[last, 0, last] = 1.0
    for level in range(levels):
        table[level, 1, max(level - 2, 0)] += 0.7
        table[level, 1, level] += 0.3
    table[:, 2, 0] = 1.0
    level = np.arange(levels)[:, None]
    cost = np.array([0.0, 3.0, 9.0]) + 0.6 * level + 20.0 * (level == last)

    def possible(level: int, action: int, after: int) -> bool:
        """Run, it stays as it is, wears a level or breaks; overhauled, it loses up to two; a new one is new."""
        runs, overhauled = after in (level, level + 1, last), level - 2 <= after <= level
        return (runs, overhauled, after == 0)[action]

    return KnownEnvironment(table, cost, 0, "replacement", discount=0.95, possible=possible)
