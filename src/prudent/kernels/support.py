"""Where a state-action pair can lead: the part of a kernel that is fixed while its numbers change."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from ..arrays import Array, as_float, require_indices, require_size
from ..errors import InputError
from ..records import Record, field
from ..tables import Labels


class Support(Record):
    """The successors a kernel may give probability to, `successor[s, a, b]`; dense is `B = S`.

    Build one with `Support.lists` or `Support.dense`; share it between kernels, posteriors and
    families, so that its checks and its index tables are made once.

    >>> import prudent as pr
    >>> ring = pr.Support.lists([[[0, 1]], [[1, 2]], [[2, 0]]], states=3)
    >>> ring.states, ring.actions, ring.successors
    (3, 1, 2)

    Attributes:
        successor: `[S, A, B]` next states; None for a dense support, where entry b is state b.
        listed: `[S, A, B]` False where a shorter list was padded; None when nothing was padded.
        states, actions, successors: the sizes S, A and B.
        observed: the lists are what a log has shown, and more may be possible; else they are known.
        labels: names of states and actions, which families, beliefs and policies along the support have from it; None
            where they go by their numbers.
    """

    successor: Int[Array, "S A B"] | None
    listed: Bool[Array, "S A B"] | None
    states: int = field(static=True)
    actions: int = field(static=True)
    successors: int = field(static=True)
    observed: bool = field(static=True, default=False)
    labels: Labels | None = field(static=True, default=None)

    @staticmethod
    def dense(states: int, actions: int) -> Support:
        """Every state can follow every pair."""
        if not all(isinstance(size, int | np.integer) and size >= 1 for size in (states, actions)):
            raise InputError(f"an MDP needs at least one state and one action, got {states!r} and {actions!r}")
        return Support(None, None, states, actions, states)

    @staticmethod
    def lists(successor: Sequence | np.ndarray, states: int | None = None, observed: bool = False) -> Support:
        """From `successor[s][a]`, the list of next states; lists may differ in length.

        Args:
            successor: an `[S, A, B]` array, or nested lists of whole numbers.
            states: the number of states, checked against the outer length when given.
            observed: the lists are only what a log has shown; `solution.evidence` then asks what else may be possible.
        """
        array, listed = _pad(successor)
        size = array.shape[0] if states is None else states
        if array.shape[0] != size:
            raise InputError(f"successor lists cover {array.shape[0]} states but states={size}; give one row a state")
        index = require_indices("successor", array, size)
        return Support(index, listed, *index.shape, observed=bool(observed))

    @staticmethod
    def where(allowed: Callable[[Any, int, Any], Any], states: int | Sequence[int], actions: int) -> Support:
        """The successors that a rule of one's own allows, `allowed(state, action, next_state)`.

        >>> import prudent as pr
        >>> down = pr.Support.where(lambda s, a, t: t <= s, states=3, actions=1)  # never up
        >>> down.allowed().sum(axis=2).tolist()
        [[1], [2], [3]]
        >>> near = pr.Support.where(lambda s, a, t: abs(s[0] - t[0]) + abs(s[1] - t[1]) <= 1, states=(4, 12), actions=4)
        >>> near.shape
        (48, 4, 5)

        Args:
            allowed: called for every `(state, action, next_state)`; true where the state can follow the pair.
            states: how many there are; or the sizes of a grid that they are numbered along, row by row. The rule is
                then given their coordinates, `(row, column)`, in the place of their numbers.
            actions: how many there are.
        """
        whole = isinstance(states, int | np.integer)
        sizes = tuple(require_size("a size of the grid", size) for size in ([states] if whole else states))
        actions = require_size("actions", actions)
        places = range(*sizes) if whole else list(np.ndindex(*sizes))
        lists = [[[k for k, t in enumerate(places) if allowed(s, a, t)] for a in range(actions)] for s in places]
        if all(len(entries) == len(places) for row in lists for entries in row):
            return Support.dense(len(places), actions)
        return Support.lists(lists)

    def named(self, states: Sequence[str] | int, actions: Sequence[str] | int) -> Support:
        """The same successors with names for states and actions, or how many there are where they have none.

        >>> import prudent as pr
        >>> support = pr.Support.dense(2, 1).named(["new", "worn"], ["run"])
        >>> pr.TabularFamily(support, cost=[[0.0], [1.0]], start="worn", discount=0.9).start.tolist()
        [0.0, 1.0]
        """
        labels = Labels.of(states, actions)
        if labels.shape != self.shape[:2]:
            raise InputError(
                f"there are {labels.shape[0]} names of states and {labels.shape[1]} of actions, "
                f"the support has {self.states} and {self.actions}"
            )
        return dataclasses.replace(self, labels=labels)

    @property
    def names(self) -> Labels:
        """The labels, numbers where there are none."""
        return Labels(self.states, self.actions) if self.labels is None else self.labels

    @property
    def is_dense(self) -> bool:
        return self.successor is None

    @property
    def shape(self) -> tuple[int, int, int]:
        """`(S, A, B)`."""
        return self.states, self.actions, self.successors

    def index(self) -> np.ndarray:
        """`[S, A, B]` next states as an array, also for a dense support."""
        if self.successor is None:
            return np.broadcast_to(np.arange(self.states, dtype=np.int32), self.shape)
        return np.asarray(self.successor)

    def allowed(self) -> np.ndarray:
        """`[S, A, B]` True where probability may be put."""
        return np.ones(self.shape, dtype=bool) if self.listed is None else np.asarray(self.listed)

    def visited(self) -> np.ndarray:
        """`[S]` whether a state has a listed successor or is one; of lists that are all empty, every state.

        Where the lists are what a log has shown, these are the states that the log visits.

        >>> import prudent as pr
        >>> log = pr.Transitions.from_records([(0, 0, 1)], states=3, actions=1)
        >>> pr.TriedRows.of(log).support.visited().tolist()
        [True, True, False]
        """
        allowed = self.allowed()
        found = np.array(allowed.any(axis=(1, 2)), dtype=bool, ndmin=1)
        found[self.index()[allowed]] = True
        return found if found.any() else np.ones(self.states, dtype=bool)

    def reachable(self, start: Any, possible: Any = None) -> np.ndarray:
        """`[S]` whether some policy comes to a state.

        >>> import prudent as pr
        >>> pr.Support.lists([[[1]], [[1]], [[0]]]).reachable([1.0, 0.0, 0.0]).tolist()
        [True, True, False]

        Args:
            start: `[S]` distribution of the first state.
            possible: `[S, A, B]` which entries lead on; all that are allowed when left out.
        """
        if self.is_dense and possible is None:
            return np.ones(self.states, dtype=bool)
        along = self.allowed() if possible is None else np.asarray(possible)
        source = np.broadcast_to(np.arange(self.states)[:, None, None], self.shape)[along]
        return reached(source, self.index()[along], np.flatnonzero(start), self.states)


def reached(source: Int[np.ndarray, " E"], target: Int[np.ndarray, " E"], first: Any, states: int) -> np.ndarray:
    """`[S]` whether a state can be come to from one of the first, along edges; by breadth-first search."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import breadth_first_order

    # One more node leads to every first state.
    source = np.concatenate([np.ravel(source), np.full(len(first), states)])
    target = np.concatenate([np.ravel(target), first])
    graph = csr_matrix((np.ones(len(source), np.int8), (source, target)), shape=(states + 1, states + 1))
    graph.data[:] = 1  # parallel edges were summed, and may have come to 0 in eight bits
    mask = np.zeros(states + 1, dtype=bool)
    mask[breadth_first_order(graph, states, return_predecessors=False)] = True
    return mask[:states]


def _pad(successor: Sequence | np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Nested lists to a rectangle, with a mask of what was really listed (None if all was)."""
    try:
        array = np.asarray(successor)
    except ValueError:
        array = np.empty(0, dtype=object)
    nested = isinstance(successor, list | tuple | np.ndarray) and all(
        isinstance(row, list | tuple | np.ndarray) and all(isinstance(item, list | tuple | np.ndarray) for item in row)
        for row in successor
    )
    if array.dtype == object and not nested:
        raise InputError("successor must be lists indexed [state, action, successor]")
    if array.dtype != object:
        if array.ndim != 3 or 0 in array.shape:
            raise InputError(f"successor must be indexed [state, action, successor], got shape {array.shape}")
        return array, None
    actions = {len(row) for row in successor}
    if len(actions) != 1:
        raise InputError(f"every state needs the same number of actions, got {sorted(actions)}")
    for s, row in enumerate(successor):
        for a, entries in enumerate(row):
            if len(entries) == 0:
                raise InputError(f"state {s}, action {a} lists no successor; a pair must lead somewhere")
    width = max(len(entries) for row in successor for entries in row)
    shape = (len(successor), actions.pop(), width)
    array = np.zeros(shape)
    listed = np.zeros(shape, dtype=bool)
    for s, row in enumerate(successor):
        for a, entries in enumerate(row):
            entries = as_float(entries, f"successor of state {s}, action {a}")
            array[s, a] = entries[0]
            array[s, a, : len(entries)] = entries
            listed[s, a, : len(entries)] = True
    return array, listed
