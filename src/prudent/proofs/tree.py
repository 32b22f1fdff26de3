"""The boxes of a branch and bound as one binary tree: what covers all policies, and the file format of a proof.

The root is the box of all tables. A node that is split cuts one probability, `pi(action | state)`, at a number: its
left child has `pi <= at`, its right child `pi >= at`; of deterministic policies `pi = 0` and `pi = 1`. So the leaves
cover all policies by construction, whatever the numbers are, and nothing but the cuts has to be kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..errors import InputError

NONE = -1


def tightened(
    low: Float[np.ndarray, "N S A"], high: Float[np.ndarray, "N S A"]
) -> tuple[Float[np.ndarray, "N S A"], Float[np.ndarray, "N S A"]]:
    """The same boxes with bounds that some row reaches, because rows sum to 1.

    So a cut between the bounds leaves policies on both sides. Cut elsewhere, a box could hold no policy, and what is
    filled up in it would be no distribution.
    """
    above, below = 1.0 - (low.sum(axis=-1, keepdims=True) - low), 1.0 - (high.sum(axis=-1, keepdims=True) - high)
    return np.maximum(low, below), np.minimum(high, above)


class Cuts(NamedTuple):
    """A tree as arrays over its N nodes; a child comes after its parent.

    Attributes:
        child: the left child, the right one comes next; -1 of a leaf.
        state, action, at: where a node was, or a leaf would be, cut.
        bound: below every policy of the node's box.
        tolls: the states with tolls that its bound was found with.
    """

    child: Int[np.ndarray, " N"]
    state: Int[np.ndarray, " N"]
    action: Int[np.ndarray, " N"]
    at: Float[np.ndarray, " N"]
    bound: Float[np.ndarray, " N"]
    tolls: Int[np.ndarray, "N K"]


class Tree:
    """A tree that grows; a node holds its cut and its bound, never a model."""

    def __init__(self, shape: tuple[int, int], deterministic: bool, cuts: Cuts | None = None):
        self.shape, self.deterministic = shape, deterministic
        # As in `Cuts`.
        self.columns: list[list] = [[] for _ in Cuts._fields] if cuts is None else [part.tolist() for part in cuts]
        self.child, self.state, self.action, self.at, self.bound, self.tolls = self.columns
        self.parent = [NONE] * len(self)
        for node, child in enumerate(self.child):
            if child != NONE:
                if not node < child < len(self) - 1:
                    raise InputError(
                        f"node {node} of the proof names child {child}, which is not after it; it is damaged"
                    )
                self.parent[child] = self.parent[child + 1] = node

    def __len__(self) -> int:
        return len(self.bound)

    def add(self, parent: int, bound: float, state: int, action: int, at: float, tolls: list[int]) -> int:
        """A new leaf, where it would be cut, and the states with tolls.

        The two children of a parent are added one after the other.
        """
        node = len(self)
        if parent != NONE and self.child[parent] == NONE:
            self.child[parent] = node
        self.parent.append(parent)
        for column, value in zip(self.columns, (NONE, state, action, at, bound, tolls), strict=True):
            column.append(value)
        return node

    def cut_of(self, node: int) -> tuple[int, int, float]:
        """State, action and number at which a node is, or would be, cut."""
        return self.state[node], self.action[node], self.at[node]

    def without(self, bound: float) -> Tree:
        """The same tree without what lies below nodes of this bound, which need not be cut to show it."""
        kept, pairs = Tree(self.shape, self.deterministic), [(0, NONE)]
        for node, parent in pairs:
            place = kept.add(parent, self.bound[node], *self.cut_of(node), self.tolls[node])
            if (child := self.child[node]) != NONE and self.bound[node] < bound:
                pairs += [(child, place), (child + 1, place)]
        return kept

    def leaves(self) -> list[int]:
        """All nodes without children."""
        return [node for node, child in enumerate(self.child) if child == NONE]

    def boxes(
        self, nodes: Iterable[int] | Int[np.ndarray, " N"]
    ) -> tuple[Float[np.ndarray, "N S A"], Float[np.ndarray, "N S A"]]:
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
        kinds = (np.int32, np.int32, np.int32, float, float, np.int32)
        return Cuts(*(np.array(column, kind) for column, kind in zip(self.columns, kinds, strict=True)))
