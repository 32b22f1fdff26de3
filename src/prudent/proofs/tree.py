"""The boxes of a branch and bound as one binary tree: what covers all policies, and the file format of a proof.

The root is the box of all tables. A node that is split cuts one probability, `pi(action | state)`, at a number: its
left child has `pi <= at`, its right child `pi >= at`; of deterministic policies `pi = 0` and `pi = 1`. So the leaves
cover all policies by construction, whatever the numbers are, and nothing but the cuts has to be kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..errors import InputError

NONE = -1

# Of how many cuts, one below the other, the boxes of one find visits of their own.
FRESH = 4


def tightened(
    low: Float[np.ndarray, "N S A"], high: Float[np.ndarray, "N S A"]
) -> tuple[Float[np.ndarray, "N S A"], Float[np.ndarray, "N S A"]]:
    """The same boxes with bounds that some row reaches, because rows sum to 1.

    So a cut between the bounds leaves policies on both sides. Cut elsewhere, a box could hold no policy, and what is
    filled up in it would be no distribution.
    """
    above, below = 1.0 - (low.sum(axis=-1, keepdims=True) - low), 1.0 - (high.sum(axis=-1, keepdims=True) - high)
    return np.maximum(low, below), np.minimum(high, above)


def fresh_at(depth: int) -> bool:
    """Whether boxes of this depth find visits of their own; others have those of the next such box above them."""
    return depth % FRESH == 0


class Cuts(NamedTuple):
    """A tree as arrays over its N nodes; a child comes after its parent.

    Attributes:
        child: the left child, the right one comes next; -1 of a leaf.
        state, action, at: where a node was, or a leaf would be, cut.
        bound: below every policy of the node's box.
        visits_node, visits_state: pairs of a node and a state, in the order of nodes: where the least visits of a box
            were found, for its own bound and those below it.
    """

    child: Int[np.ndarray, " N"]
    state: Int[np.ndarray, " N"]
    action: Int[np.ndarray, " N"]
    at: Float[np.ndarray, " N"]
    bound: Float[np.ndarray, " N"]
    visits_node: Int[np.ndarray, " J"]
    visits_state: Int[np.ndarray, " J"]


class Tree:
    """A tree that grows; a node holds its cut and its bound, never a model."""

    def __init__(self, shape: tuple[int, int], deterministic: bool, cuts: Cuts | None = None):
        self.shape, self.deterministic = shape, deterministic
        self.child: list[int] = []
        self.state: list[int] = []
        self.action: list[int] = []
        self.at: list[float] = []
        self.bound: list[float] = []
        self.parent: list[int] = []
        self.depth: list[int] = []
        self.visits: dict[int, tuple[int, ...]] = {}
        if cuts is not None:
            self._read(cuts)

    def __len__(self) -> int:
        return len(self.bound)

    def add(self, parent: int, bound: float, state: int, action: int, at: float, visits: Sequence[int] = ()) -> int:
        """A new leaf, where it would be cut, and the states whose least visits it found, if it looked for any.

        The two children of a parent are added one after the other.
        """
        node = len(self.bound)
        if parent != NONE and self.child[parent] == NONE:
            self.child[parent] = node
        self.child.append(NONE)
        self.parent.append(parent)
        self.depth.append(0 if parent == NONE else self.depth[parent] + 1)
        self.state.append(state)
        self.action.append(action)
        self.at.append(at)
        self.bound.append(bound)
        if visits:
            self.visits[node] = tuple(visits)
        return node

    def cut_of(self, node: int) -> tuple[int, int, float]:
        """State, action and number at which a node is, or would be, cut."""
        return self.state[node], self.action[node], self.at[node]

    def visits_above(self, node: int) -> int:
        """The node whose visits a node has: itself or one above, `NONE` where there is no such node."""
        while node != NONE and node not in self.visits:
            node = self.parent[node]
        return node

    def without(self, bound: float) -> Tree:
        """The same tree without what lies below nodes of this bound, which need not be cut to show it."""
        kept, pairs = Tree(self.shape, self.deterministic), [(0, NONE)]
        for node, parent in pairs:
            place = kept.add(parent, self.bound[node], *self.cut_of(node), self.visits.get(node, ()))
            if (child := self.child[node]) != NONE and self.bound[node] < bound:
                pairs += [(child, place), (child + 1, place)]
        return kept

    def leaves(self) -> list[int]:
        """All nodes without children."""
        return [node for node, child in enumerate(self.child) if child == NONE]

    def boxes(self, nodes: Iterable[int]) -> tuple[Float[np.ndarray, "N S A"], Float[np.ndarray, "N S A"]]:
        """The bounds `low` and `high` of these nodes' tables."""
        nodes = list(nodes)
        low, high = np.zeros((len(nodes), *self.shape)), np.ones((len(nodes), *self.shape))
        for row, node in enumerate(nodes):
            while (parent := self.parent[node]) != NONE:
                place = (row, self.state[parent], self.action[parent])
                # From the leaf to the root: the innermost cut is the tightest, and is met first.
                if node == self.child[parent]:
                    high[place] = min(high[place], 0.0 if self.deterministic else self.at[parent])
                else:
                    low[place] = max(low[place], 1.0 if self.deterministic else self.at[parent])
                node = parent
        return low, high

    def cuts(self) -> Cuts:
        """As arrays."""
        child, state, action = (np.array(column, np.int32) for column in (self.child, self.state, self.action))
        pairs = [(node, place) for node, places in self.visits.items() for place in places]
        visits = np.array(pairs, np.int32).reshape(len(pairs), 2).T
        return Cuts(child, state, action, np.array(self.at), np.array(self.bound), *visits)

    def _read(self, cuts: Cuts) -> None:
        count = len(cuts.bound)
        self.parent = [NONE] * count
        for node, child in enumerate(cuts.child.tolist()):
            if child != NONE:
                if not node < child < count - 1:
                    raise InputError(
                        f"node {node} of the proof names child {child}, which is not after it; it is damaged"
                    )
                self.parent[child] = self.parent[child + 1] = node
        self.child, self.state, self.action = (column.tolist() for column in cuts[:3])
        self.at, self.bound = cuts.at.tolist(), cuts.bound.tolist()
        for node, place in zip(cuts.visits_node.tolist(), cuts.visits_state.tolist(), strict=True):
            self.visits[node] = (*self.visits.get(node, ()), place)
        for parent in self.parent:
            self.depth.append(0 if parent == NONE else self.depth[parent] + 1)
