"""What the successors of a batch of models say before any number is known: orders, bands and neighbours.

Axis letters: S states, A actions, B successors of a pair, W neighbours of a state.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int


class Order(NamedTuple):
    """An order in which states can be eliminated.

    Attributes:
        place: `[S]` the position of each state.
        reach: `[S]` one past the last position that rows and columns up to each position touch.
    """

    place: Int[np.ndarray, " S"]
    reach: Int[np.ndarray, " S"]

    @property
    def band(self) -> int:
        """Return how far from the diagonal an entry can be."""
        return int((self.reach - 1 - np.arange(len(self.reach))).max())

    @property
    def work(self) -> int:
        """Return the number of multiplications of an elimination, up to a constant."""
        return int(((self.reach - np.arange(len(self.reach))) ** 2).sum())

    def covers(self, successor: Int[np.ndarray, "S A B"]) -> bool:
        """Return whether no successor is farther from its state than the order reaches."""
        if len(self.place) != len(successor):
            return False
        here, there = np.broadcast_arrays(self.place[:, None, None], self.place[successor])
        return bool(np.all(np.maximum(here, there) < self.reach[np.minimum(here, there)]))


def is_dense(successor: Int[np.ndarray, "S A B"]) -> bool:
    """Return whether entry b of every pair is state b."""
    states, _, successors = successor.shape
    if states != successors:
        return False
    one_row = successor.strides[:2] == (0, 0)
    rows = successor[:1, :1] if one_row else successor
    return bool(np.all(rows == np.arange(states)))


def elimination_order(successor: Int[np.ndarray, "S A B"]) -> Order:
    """Return the given order, or that of reverse Cuthill and McKee where it saves a third of the work."""
    states = len(successor)
    given = np.arange(states)
    if is_dense(successor):
        return Order(given.astype(np.int32), np.full(states, states, np.int32))
    rows = np.repeat(given, successor[0].size)
    columns = successor.reshape(-1)
    as_given = _order(given, rows, columns)
    if states <= 2 or as_given.band <= 1:
        return as_given
    from scipy.sparse import coo_matrix  # slow to import, both
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    pattern = coo_matrix((np.ones(rows.size), (rows, columns)), shape=(states, states)).tocsr()
    narrow = _order(reverse_cuthill_mckee((pattern + pattern.T).tocsr(), symmetric_mode=True), rows, columns)
    # A new order moves every entry once, so the saving must pay for the moves.
    return narrow if as_given.work > 1.3 * narrow.work else as_given


def _order(order: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> Order:
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    ends = np.arange(1, len(order) + 1, dtype=np.int32)
    first, last = np.minimum(place[rows], place[columns]), np.maximum(place[rows], place[columns])
    np.maximum.at(ends, first, last + 1)
    return Order(place, np.maximum.accumulate(ends))


class Neighbours(NamedTuple):
    """The states that one step of any policy can lead to, each once.

    Attributes:
        state: `[S, W]` the neighbours of each state; shorter lists repeat the first.
        slot: `[S, A, B]` where each successor is among them.
    """

    state: Int[np.ndarray, "S W"]
    slot: Int[np.ndarray, "S A B"]


def merged_neighbours(successor: Int[np.ndarray, "S A B"]) -> Neighbours:
    """Return the distinct successors of each state."""
    states = len(successor)
    flat = successor.reshape(states, -1)
    by_state = np.argsort(flat, axis=1, kind="stable")
    ordered = np.take_along_axis(flat, by_state, axis=1)
    fresh: Bool[np.ndarray, "S K"] = np.ones(ordered.shape, dtype=bool)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    rank = (np.cumsum(fresh, axis=1) - 1).astype(np.int32)
    index = np.repeat(ordered[:, :1], int(rank[:, -1].max()) + 1, axis=1).astype(np.int32)
    np.put_along_axis(index, rank, ordered, axis=1)
    slot = np.empty(flat.shape, np.int32)
    np.put_along_axis(slot, by_state, rank, axis=1)
    return Neighbours(index, slot.reshape(successor.shape))
