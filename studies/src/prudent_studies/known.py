"""Environments with known kernels, to hold beliefs against; to add one, write its function and name it in KNOWN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

import prudent as pr
from prudent.arrays import Array, require_size
from prudent.records import Record, field
from prudent.seeds import Stream, generator


class KnownEnvironment(Record):
    """A finite environment with all of its numbers.

    >>> river = known_environment("river_swim")
    >>> len(river.walk(steps=500, seed=0)), float(river.mdp().discount)
    (500, 0.97)

    Attributes:
        name: as it is printed.
        table: `[S, A, S]` transition probabilities.
        cost: `[S, A]`, or `[S, A, S]` where it differs by the next state.
        start: state number or `[S]` distribution of the first state.
        discount: in [0, 1).
        terminal: states that end an episode; a walk starts over after one.
        grid: rows and columns (or the sizes of more axes) where the states are numbered along a grid; None otherwise.
        possible: what one who works with it would know of where a pair can lead, `possible(state, action,
            next_state)`; a state is its number, or its coordinates where there is a grid. None where only the numbers
            would tell.
    """

    table: Float[Array, "S A S"]
    cost: Float[Array, ...]
    start: Any
    name: str = field(static=True)
    discount: float = field(static=True)
    terminal: tuple[int, ...] = field(static=True, default=())
    grid: tuple[int, ...] | None = field(static=True, default=None)
    possible: Callable[[Any, int, Any], bool] | None = field(static=True, default=None)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of states and actions."""
        states, actions, _ = self.table.shape
        return states, actions

    def mdp(self) -> pr.MDP:
        """The environment as it is."""
        table, cost = np.asarray(self.table), np.asarray(self.cost)
        mean = cost if cost.ndim == 2 else (cost * table).sum(axis=2)
        return pr.MDP(pr.Kernel.dense(table), mean, self.start, self.discount)

    def known_support(self) -> pr.Support:
        """Where each pair may lead for all that one who works with it would know; everywhere if that is nothing.

        Terminal states are known never to be left.

        >>> known_environment("river_swim").known_support().shape
        (8, 2, 3)
        """
        if self.possible is None:
            return pr.Support.dense(*self.shape)
        states, actions = self.shape
        ends, possible = set(self.terminal), self.possible
        if self.grid is not None:
            ends = {tuple(np.unravel_index(end, self.grid)) for end in ends}
        return pr.Support.where(
            lambda s, a, t: s == t if s in ends else possible(s, a, t), self.grid or states, actions
        )

    def walk(self, steps: int, seed: Any) -> pr.Transitions:
        """The log of `steps` steps with random actions; nothing is logged of a terminal state.

        Args:
            steps: rows of the log.
            seed: the same seed, the same log.
        """
        steps = require_size("steps", steps)
        random = generator(seed, Stream.TRIALS)
        states, actions = self.shape
        ends, move = set(self.terminal), np.cumsum(np.asarray(self.table), axis=2)
        first = np.cumsum(np.asarray(self.mdp().start))
        chosen, chances, begins = random.integers(actions, size=steps), random.random(steps), random.random(steps + 1)
        path = np.empty((steps, 3), dtype=int)
        now = _pick(first, begins[-1])
        for step in range(steps):
            now = _pick(first, begins[step]) if now in ends else now
            following = _pick(move[now, chosen[step]], chances[step])
            path[step] = now, chosen[step], following
            now = following
        return pr.Transitions.from_records(path, states, actions)


def _pick(cumulative: np.ndarray, uniform: float) -> int:
    """The entry that a uniform number falls on; never one of probability 0."""
    return int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))


STEPS = ((0, -1), (1, 0), (0, 1), (-1, 0))  # left, down, right, up
SMALL = ("SFFF", "FHFH", "FFFH", "HFFG")
LARGE = ("SFFFFFFF", "FFFFFFFF", "FFFHFFFF", "FFFFFHFF", "FFFHFFFF", "FHHFFFHF", "FHFFHFHF", "FFFHFFFG")


def _stepped(cells: Any, step: tuple[int, int], grid: tuple[int, int]) -> np.ndarray:
    """Rows and columns after a step; off the grid is staying put."""
    return np.clip(np.add(cells, step), 0, np.array(grid) - 1)


def slippery(grid: tuple[int, int], side: float) -> np.ndarray:
    """`[S, 4, S]` of moving left, down, right or up, and to each side of that with probability `side`."""
    place = np.arange(int(np.prod(grid)))
    cells = np.stack(np.divmod(place, grid[1]), axis=1)
    landing = np.stack([_stepped(cells, step, grid) @ np.array([grid[1], 1]) for step in STEPS], axis=1)
    table = np.zeros((len(place), 4, len(place)))
    for action in range(4):
        for turn, chance in ((0, 1.0 - 2.0 * side), (1, side), (-1, side)):
            table[place, action, landing[:, (action + turn) % 4]] += chance
    return table


def on_foot(grid: tuple[int, int]) -> Callable[[tuple[int, int], int, tuple[int, int]], bool]:
    """Whether one step can lead from a cell to another: as meant or to a side of that, never back; a wall stops it."""

    def possible(cell: tuple[int, int], action: int, landing: tuple[int, int]) -> bool:
        steps = [STEPS[(action + turn) % 4] for turn in (-1, 0, 1)]
        return any(tuple(_stepped(cell, step, grid)) == landing for step in steps)

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


def river_swim() -> KnownEnvironment:
    """Small gains at the near bank, a large one after a swim that may fail: drift back for sure (0), or swim on (1)."""
    states, near = 8, 0.1
    advance, hold, recede = 0.35, 0.55, 0.10
    place = np.arange(states)
    on, back = np.minimum(place + 1, states - 1), np.maximum(place - 1, 0)
    table = np.zeros((states, 2, states))
    table[place, 0, back] = 1.0
    for landing, chance in ((on, advance), (place, hold), (back, recede)):
        table[place, 1, landing] += chance
    cost = np.ones((states, 2))
    cost[0, 0], cost[-1, 1] = 1.0 - near, 0.0

    def possible(place: int, action: int, after: int) -> bool:
        """One place at most, and no drifting upstream."""
        return abs(after - place) <= 1 and (action == 1 or after <= place)

    return KnownEnvironment(table, cost, 1, "river swim", discount=0.97, possible=possible)


def garnet() -> KnownEnvironment:
    """A fixed random environment, to which no rule applies; its diagram, which pair leads where, may be known."""
    states, actions, branches = 15, 3, 3
    random = np.random.default_rng(4)
    cost = 10.0 * random.random((states, 1)) + random.random((states, actions))
    table = np.zeros((states, actions, states))
    for state, action in np.ndindex(states, actions):
        chosen = random.choice(states, branches, replace=False)
        table[state, action, chosen] = random.dirichlet(np.ones(branches))
    arrows = frozenset(zip(*(index.tolist() for index in np.nonzero(table)), strict=True))
    return KnownEnvironment(
        table, cost, 0, "garnet", discount=0.95, possible=lambda state, action, after: (state, action, after) in arrows
    )


#: Environments with known kernels: by name, the function that makes each.
KNOWN: dict[str, Callable[[], KnownEnvironment]] = {
    make.__name__: make
    for make in (
        epidemic,
        inventory,
        lake_4x4,
        lake_8x8,
        cliff,
        machines,
        queue_with_bursts,
        river_swim,
        replacement,
        garnet,
        taxi,
    )
}


def known_environment(name: str) -> KnownEnvironment:
    """One of the environments with a known kernel, by its name.

    >>> known_environment("cliff").shape
    (48, 4)
    """
    if name not in KNOWN:
        raise pr.InputError(f"there is no environment {name!r}; there are {', '.join(KNOWN)}")
    return KNOWN[name]()
