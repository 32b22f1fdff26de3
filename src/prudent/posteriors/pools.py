"""Ways in which state-action pairs may be alike: what the rows of a transition table learn from one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse
from scipy.special import xlogy

from ..kernels import Support

# Up to this many entries a pool of moves knows every displacement there is; beyond, the commonest that were seen.
MOST_ENTRIES = 4_000_000


# Grids that are tried on the counts.
MOST_GRIDS = 5

# How many observations, of the pairs nearby, what the action does elsewhere counts for.
NEARBY_EXPECTED = 3.0


@dataclass(frozen=True, eq=False)
class Pool:
    """One law that pairs share, and the row it makes of each pair, to be normalised.

    Of the J things that can happen under the law, most lead to one entry of the table; several may lead to one at
    the border of the states. So an entry's base is one of the J weights, or a sum of some of them.

    Attributes:
        first: `[J]` what is expected before anything is seen; of each law it sums to what that counts for.
        law: `[J]` the law that each belongs to.
        sums: `[H, J]` zeros and ones: the sums that entries at a border need; the last row is empty.
        index: `[P, B]` which weight, or from J on which sum, each entry of the table has.
    """

    first: Float[np.ndarray, " J"]
    law: Int[np.ndarray, " J"]
    sums: sparse.csr_matrix
    index: Int[np.ndarray, "P B"]

    @property
    def size(self) -> int:
        """How many weights and sums there are."""
        return len(self.first) + len(self.sums.indptr) - 1

    def base(self, law: Float[np.ndarray, " J"]) -> Float[np.ndarray, "P B"]:
        """The rows that one law makes, not normalised."""
        return np.concatenate([law, self.sums @ law])[self.index]

    def happened(self, law: Float[np.ndarray, " J"], place: np.ndarray, shared: np.ndarray) -> Float[np.ndarray, " J"]:
        """Observations of entries, as what happened; where several things lead to one, as likely as the law says."""
        made = self.base(law).ravel()[place]
        ratio = np.where(made > 0, shared / np.where(made > 0, made, 1.0), 0.0)
        weight = np.bincount(self.index.ravel()[place], ratio, self.size)
        return law * (weight[: len(law)] + self.sums.T @ weight[len(law) :])


def pools_of(support: Support, counts: Float[np.ndarray, "P B"], grid: Sequence[int]) -> tuple[Pool, ...]:
    """The pools of a table: by moves of the action, by moves of any action, by where an action leads, by state.

    Moves of the action are learned from all states, and from states with near numbers.

    A move that would leave the grid ends at its border, or does not take place: the data decide which.

    Args:
        support: successors along which the table runs.
        counts: how often each was seen.
        grid: along how many axes the states are numbered, and how many there are along each.
    """
    entries = _Entries.of(support)
    seen = entries.seen(counts)
    arrivals = np.bincount(seen.target, seen.weight, support.states) + 1.0 / support.states
    arrivals /= arrivals.sum()
    moves = _Moves.of(support, entries, grid, seen)
    state, action = np.divmod(np.arange(support.states * support.actions), support.actions)
    return (
        moves.pool("border", action),
        moves.pool("none", action),
        moves.pool("border", _nearby(state, action, support), nearby=True),
        moves.pool("border", np.zeros_like(action)),  # of any action
        _gathered(entries, entries.action * support.states + entries.target, arrivals),  # where the action leads
        _gathered(entries, entries.state * support.states + entries.target, arrivals),  # what other actions do
    )


def move_pools(support: Support, counts: Float[np.ndarray, "P B"], grid: Sequence[int]) -> tuple[Pool, ...]:
    """The first two pools, of such moves only as were seen: enough to tell how well a grid suits the counts."""
    entries = _Entries.of(support)
    moves = _Moves.of(support, entries, grid, entries.seen(counts), every=False)
    action = np.arange(support.states * support.actions) % support.actions
    return tuple(moves.pool(edge, action) for edge in ("border", "none"))


def grids_of(support: Support, counts: Float[np.ndarray, "P B"]) -> list[tuple[int, ...]]:
    """Grids of one or two axes along which the states may be numbered: those with the least entropy of moves."""
    seen = _Entries.of(support).seen(counts)
    rows = [size for size in range(2, support.states // 2 + 1) if support.states % size == 0]
    grids = [(support.states,), *((size, support.states // size) for size in rows)]
    order = np.argsort([_entropy(seen, grid) for grid in grids], kind="stable")
    return [grids[k] for k in sorted(order[:MOST_GRIDS])]


def _entropy(seen: _Seen, grid: Sequence[int]) -> float:
    """Entropy of the moves that were seen, action by action, times their number."""
    place = np.stack(np.unravel_index(np.arange(int(np.prod(grid))), grid), axis=1)
    move = place[seen.target] - place[seen.state]
    _, number = np.unique(np.column_stack([seen.action, move]), axis=0, return_inverse=True)
    joint, single = np.bincount(number.ravel(), seen.count), np.bincount(seen.action, seen.count)
    return float(xlogy(single, single).sum() - xlogy(joint, joint).sum())


def _commonest(code: Int[np.ndarray, " E"], weight: Float[np.ndarray, " E"], most: int) -> Int[np.ndarray, " D"]:
    """Different codes in order, those with the most weight where they are too many."""
    codes, number = np.unique(code, return_inverse=True)
    order = np.argsort(-np.bincount(number, weight), kind="stable")
    return np.sort(codes[order[:most]])


def _nearby(state: Int[np.ndarray, " P"], action: Int[np.ndarray, " P"], support: Support) -> Int[np.ndarray, " P"]:
    """Pairs of one action in a block of states with near numbers have one label."""
    return state // max(2, round(support.states**0.5)) * support.actions + action


def _gathered(entries: _Entries, label: Int[np.ndarray, " E"], arrivals: Float[np.ndarray, " S"]) -> Pool:
    """A pool in which every entry of the table is one thing that can happen."""
    labels, place = np.unique(label, return_inverse=True)
    nothing = sparse.csr_matrix((1, len(labels)), dtype=np.float32)
    law, target = np.divmod(labels, len(arrivals))
    return Pool(arrivals[target], law, nothing, entries.table(place, padding=len(labels)))


@dataclass(frozen=True, eq=False)
class _Seen:
    """Transitions that were seen, each with its count; `weight` makes no more of one than of another."""

    state: np.ndarray
    action: np.ndarray
    target: np.ndarray
    count: np.ndarray

    @property
    def weight(self) -> np.ndarray:
        return np.minimum(self.count, 1.0)

    def among(self, which: np.ndarray) -> _Seen:
        """Some of them."""
        return _Seen(self.state[which], self.action[which], self.target[which], self.count[which])


@dataclass(frozen=True, eq=False)
class _Entries:
    """The entries of a table that may have probability, in order: from, by, to, and where each is in `[P B]`."""

    state: np.ndarray
    action: np.ndarray
    target: np.ndarray
    place: np.ndarray
    states: int
    actions: int
    size: int

    @staticmethod
    def of(support: Support) -> _Entries:
        place = np.flatnonzero(support.allowed().ravel())
        pair = place // support.successors
        target = support.index().reshape(-1)[place].astype(np.int64)
        states, actions, width = support.shape
        return _Entries(pair // actions, pair % actions, target, place, states, actions, states * actions * width)

    def seen(self, count: np.ndarray) -> _Seen:
        """The entries with a count, with that count."""
        count = count.ravel()[self.place]
        some = count > 0
        return _Seen(self.state[some], self.action[some], self.target[some], count[some])

    def table(self, values: np.ndarray, padding: int) -> Int[np.ndarray, "P B"]:
        """A number for each entry, laid out along the support."""
        table = np.full(self.size, padding, dtype=np.int32)
        table[self.place] = values
        return table.reshape(self.states * self.actions, -1)

    def find(self, pair: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which (pair, target) are entries, and which entry each of these is."""
        code = (self.state * self.actions + self.action) * self.states + self.target
        order = np.argsort(code)
        wanted = pair * self.states + target
        spot = np.minimum(np.searchsorted(code[order], wanted), len(code) - 1)
        return code[order][spot] == wanted, order[spot]


@dataclass(frozen=True, eq=False)
class _Moves:
    """Displacements on a grid of states.

    Attributes:
        entries: of the table.
        landing: by edge, `[S, D]` where each displacement leads.
        first: `[D]` how expected each is, of all actions together.
        by_action: `[A, D]` how expected each is of an action.
    """

    entries: _Entries
    landing: dict[str, np.ndarray]
    first: np.ndarray
    by_action: np.ndarray

    @staticmethod
    def of(support: Support, entries: _Entries, grid: Sequence[int], seen: _Seen, every: bool = True) -> _Moves:
        sizes = np.array(grid)
        place = np.stack(np.unravel_index(np.arange(support.states), grid), axis=1)
        spans = 2 * sizes - 1
        code = np.asarray(np.ravel_multi_index(tuple((place[seen.target] - place[seen.state] + sizes - 1).T), spans))
        pairs = support.states * support.actions
        every = every and pairs * float(np.prod(spans.astype(float))) <= MOST_ENTRIES
        known = np.arange(np.prod(spans)) if every else _commonest(code, seen.weight, max(1, MOST_ENTRIES // pairs))
        if len(known) == 0:
            # Nothing was seen: to stay is the one move that is possible from everywhere.
            known = np.asarray(np.ravel_multi_index(tuple(sizes[:, None] - 1), spans))
        among = np.isin(code, known)
        code, seen = code[among], seen.among(among)
        step = np.stack(np.unravel_index(known, spans), axis=1) - sizes + 1
        number = np.searchsorted(known, code)
        first = np.bincount(number, seen.weight, len(known)) + 1.0 / len(known)
        first /= first.sum()
        by_action = np.tile(first, (support.actions, 1))
        np.add.at(by_action, (seen.action, number), seen.count)
        by_action /= by_action.sum(axis=1, keepdims=True)
        reached = place[:, None] + step
        inside = np.clip(reached, 0, sizes - 1)
        border = np.ravel_multi_index(tuple(np.moveaxis(inside, 2, 0)), grid)
        outside = np.any(inside != reached, axis=2)
        landing = {"border": border, "none": np.where(outside, np.arange(support.states)[:, None], border)}
        return _Moves(entries, landing, first, by_action)

    def pool(self, edge: str, label: Int[np.ndarray, " P"], nearby: bool = False) -> Pool:
        """Pairs with the same label share how far they lead."""
        states, steps = self.landing[edge].shape
        actions = self.entries.actions
        pair = np.repeat(np.arange(states * actions), steps)
        step = np.tile(np.arange(steps), states * actions)
        possible, entry = self.entries.find(pair, self.landing[edge][pair // actions, step])
        labels, place = np.unique(label, return_inverse=True)
        key = place[pair] * steps + step
        # What all pairs do is expected of some of them, what the action does of those nearby; of all, nothing is.
        first = np.tile(self.first, len(labels)) if len(labels) > 1 else np.full(steps, 1.0 / steps)
        if nearby:
            first = NEARBY_EXPECTED * self.by_action[labels % actions].ravel()
        law = np.repeat(np.arange(len(labels)), steps)
        return self._joined(first, law, entry[possible], key[possible])

    def _joined(self, first: np.ndarray, law: np.ndarray, entry: np.ndarray, key: np.ndarray) -> Pool:
        """A pool where the keys given lead to the entries given."""
        several = np.bincount(entry, minlength=len(self.entries.place))
        number = np.full(len(several), -1)
        number[several > 1] = np.arange((several > 1).sum())
        many = number[entry] >= 0
        size = int((several > 1).sum()) + 1
        sums = sparse.csr_matrix(
            (np.ones(many.sum(), np.float32), (number[entry[many]], key[many])), shape=(size, len(first))
        )
        values = np.full(len(several), len(first) + size - 1)
        values[entry[~many]] = key[~many]
        values[several > 1] = len(first) + number[several > 1]
        return Pool(first, law, sums, self.entries.table(values, padding=len(first) + size - 1))
