"""Branch and bound over boxes of policies: best bound first, cut where the draws' own policies disagree most."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..arrays import Array, in_float64, to_numpy
from ..objectives import Boxes
from ..risks import Risk
from .relaxation import Bounded, bounded
from .tree import NONE, Tree, fresh_at, tightened

# Boxes of one compiled call.
BATCH = 64

# How much a cut gains, as a share of what was lost to the average: what is believed before any was made, and how many
# cuts that belief is worth; a gain far above is an accident of the order of cuts.
USUAL_GAIN, BELIEVED, LARGEST_GAIN = 0.3, 3.0, 3.0

# The width of a box below which nothing is cut.
NARROW = 1e-9

# No cut is nearer to the edge of its box than this share of the width, and this share more of what is unexplained.
EDGE, UNEXPLAINED_EDGE = 0.01, 0.2

# Values and visits of open boxes that are kept for their children; beyond, those begin at the root's and without.
VALUE_BYTES, LARGEST_SHORT = 2**31, 6e4

# A table that is better by this share of the risk or more is looked at; less is rounding.
BETTER = 1e-10


class Incumbent(NamedTuple):
    """The best policy so far: its table and its risk on the draws."""

    table: Float[np.ndarray, "S A"]
    risk: float


class Moment(NamedTuple):
    """The state of a search at one time."""

    seconds: float
    nodes: int
    bound: float
    risk: float


class Question(NamedTuple):
    """What is to be proved.

    Attributes:
        boxes: relaxations at the draws.
        risk: monotone.
        probabilities: of the draws.
        deterministic: whether only deterministic policies count.
        judge: `[K, S, A]` tables to their risks `[K]`.
        polish: a table to one that is at least as good.
    """

    boxes: Boxes
    risk: Risk
    probabilities: Float[np.ndarray, " R"]
    deterministic: bool
    judge: Callable[[np.ndarray], np.ndarray]
    polish: Callable[[np.ndarray], np.ndarray]


class Leaf(NamedTuple):
    """What is kept of an open box: what was lost to the average in its state, values to begin at, and visits."""

    lost: float
    values: Float[np.ndarray, "S R"] | None
    met: Float[np.ndarray, "S R"] | None


class Search:
    """A search that can be carried on; all that it has proved is in its tree."""

    def __init__(
        self,
        question: Question,
        incumbent: Incumbent,
        tree: Tree | None = None,
        executor: Callable[..., Iterable[Any]] = map,
        workers: int = 1,
    ):
        """Begin, or go on from a tree.

        Args:
            question: what is to be proved.
            incumbent: a policy to begin with; deterministic if only such are looked for.
            tree: of an earlier search for the same question.
            executor: how batches of boxes are mapped.
            workers: how many batches are worked on at once.
        """
        self.question, self.incumbent, self.executor, self.workers = question, incumbent, executor, workers
        shape = incumbent.table.shape
        self.gains = np.full((2, shape[0]), BELIEVED * USUAL_GAIN)
        self.cuts = np.full((2, shape[0]), BELIEVED)
        self.open: dict[int, Leaf] = {}
        self.most_values = max(1, VALUE_BYTES // (4 * len(question.probabilities) * shape[0]))
        self.queue: list[tuple[float, int]] = []
        # Of the boxes that are not cut again, the least bound.
        self.closed = np.inf
        low, high = np.zeros((1, *shape)), np.ones((1, *shape))
        nothing = np.zeros((1, shape[0], len(question.probabilities)), np.float16)
        # Without visits, it is the bound of policies that are told theta, who share nothing.
        told = self._bounded(low, high, nothing, nothing, np.array([False]))
        self.root_values, self.root_bound = told.values[0], float(told.bound[0])
        root = self._bounded(low, high, np.asarray(told.values), nothing, np.array([True]))
        self.tree = Tree(shape, question.deterministic) if tree is None else tree
        if tree is None:
            self._consider(root)
            self._enter(NONE, root, 0, low, high, fresh=True)
        for node in [] if tree is None else tree.leaves():
            self._queue(node, Leaf(0.0, None, None))
        self.history = [Moment(0.0, len(self.tree), self.bound, self.incumbent.risk)]

    @property
    def bound(self) -> float:
        """Below the risk of every policy, or of every deterministic one."""
        return min(self.queue[0][0] if self.queue else np.inf, self.closed, self.incumbent.risk)

    @property
    def gap(self) -> float:
        """What another policy could gain at most."""
        return self.incumbent.risk - self.bound

    def rounds(self, enough: float) -> Iterator[Moment]:
        """Cut the boxes of least bound until the gap is at most `enough` or nothing is left to cut."""
        began = time.perf_counter()
        while self.gap > enough and (parents := self._chosen(enough)):
            self._cut(parents)
            self.history.append(Moment(time.perf_counter() - began, len(self.tree), self.bound, self.incumbent.risk))
            yield self.history[-1]

    def _chosen(self, enough: float) -> list[int]:
        """The nodes of least bound; those that are good enough are closed."""
        chosen: list[int] = []
        while self.queue and len(chosen) < self.workers * BATCH // 2:
            bound, node = heapq.heappop(self.queue)
            if bound >= self.incumbent.risk - enough:
                self.closed = min(self.closed, bound)
                self.open.pop(node)
            else:
                chosen.append(node)
        return chosen

    def _cut(self, parents: list[int]) -> None:
        """Both children of each parent, bounded."""
        tree, leaves = self.tree, [self.open.pop(node) for node in parents]
        low, high = (end.repeat(2, axis=0) for end in tree.boxes(parents))
        left = 2 * np.arange(len(parents))
        state, action, at = (np.array(column) for column in zip(*(tree.cut_of(node) for node in parents), strict=True))
        high[left, state, action] = 0.0 if tree.deterministic else at
        low[left + 1, state, action] = 1.0 if tree.deterministic else at
        low, high = tightened(low, high)
        values = np.stack([self.root_values if leaf.values is None else leaf.values for leaf in leaves])
        met = np.stack([np.zeros_like(self.root_values) if leaf.met is None else leaf.met for leaf in leaves])
        fresh = np.array([fresh_at(tree.depth[node] + 1) for node in parents]).repeat(2)
        found = self._bounded(low, high, values.repeat(2, axis=0), met.repeat(2, axis=0), fresh)
        self._consider(found)
        for row in range(2 * len(parents)):
            parent, lost = parents[row // 2], leaves[row // 2].lost
            if lost > 0.0:
                gain = max(0.0, float(found.bound[row]) - tree.bound[parent]) / lost
                self.gains[row % 2, tree.state[parent]] += min(gain, LARGEST_GAIN)
                self.cuts[row % 2, tree.state[parent]] += 1.0
            self._enter(parent, found, row, low, high, bool(fresh[row]))

    def _enter(
        self, parent: int, found: Bounded, row: int, low: np.ndarray, high: np.ndarray, fresh: bool = False
    ) -> None:
        """A box in the tree, with where it would be cut, and in the queue."""
        # A child's box lies in its parent's, whatever rounding says of their bounds.
        bound = max(float(found.bound[row]), -np.inf if parent == NONE else self.tree.bound[parent])
        apart = np.where(high[row] - low[row] >= NARROW, found.disagreement[row], -1.0)
        lost = found.lost[row]
        promise = np.where(apart.max(axis=1) > 0.0, lost * np.sqrt(np.prod(self.gains / self.cuts, axis=0)), -1.0)
        state = int(promise.argmax())
        action = int(apart[state].argmax())
        least, most = low[row, state, action], high[row, state, action]
        edge = (EDGE + UNEXPLAINED_EDGE * float(found.unexplained[row])) * (most - least)
        at = float(np.clip(found.at[row, state, action], least + edge, most - edge))
        if apart[state, action] <= 0.0:
            at = np.nan
        visits = np.flatnonzero(np.any(found.met[row], axis=1)).tolist() if fresh else []
        node = self.tree.add(parent, bound, state, action, at, visits)
        kept = len(self.open) < self.most_values
        begin = (np.array(found.values[row]), np.array(found.met[row])) if kept else (None, None)
        self._queue(node, Leaf(float(lost[state]), *begin))

    def _queue(self, node: int, leaf: Leaf) -> None:
        """A leaf that can be cut waits for its turn; any other is closed at its bound."""
        if np.isnan(self.tree.at[node]):
            self.closed = min(self.closed, self.tree.bound[node])
        else:
            self.open[node] = leaf
            heapq.heappush(self.queue, (self.tree.bound[node], node))

    def _bounded(
        self, low: np.ndarray, high: np.ndarray, values: np.ndarray, met: np.ndarray, fresh: np.ndarray
    ) -> Bounded:
        """Bounds of any number of boxes, in batches of one shape."""
        question, count = self.question, len(low)

        @in_float64  # by thread, and the executor may have threads of its own
        def work(rows: np.ndarray) -> Bounded:
            arrays = (part[rows] for part in (low, high, values, met, fresh))
            return to_numpy(
                bounded(question.boxes, question.risk, question.probabilities, question.deterministic, *arrays)
            )

        columns = zip(*self.executor(work, batches(count)), strict=True)
        found = Bounded(*(np.concatenate(column)[:count] for column in columns))
        # A quarter of the digits will do where a search begins, and there are many of them.
        return found._replace(values=_shortened(found.values), met=_shortened(found.met))

    def _consider(self, found: Bounded) -> None:
        """The best of the boxes' tables may be the new incumbent."""
        best = int(found.risk.argmin())
        if not found.risk[best] < self.incumbent.risk - BETTER * abs(self.incumbent.risk):
            return
        table = np.asarray(found.table[best])
        tables = [table, self.question.polish(table)]
        risks = self.question.judge(np.stack(tables))
        best = int(risks.argmin())
        if risks[best] < self.incumbent.risk:
            self.incumbent = Incumbent(tables[best], float(risks[best]))


def batches(count: int) -> list[Int[np.ndarray, " N"]]:
    """Rows of one compiled call each; the last is filled up with its last row."""
    return [np.minimum(np.arange(first, first + BATCH), count - 1) for first in range(0, count, BATCH)]


def _shortened(numbers: Array) -> np.ndarray:
    """In a quarter of the digits, towards 0."""
    short = np.clip(numbers, -LARGEST_SHORT, LARGEST_SHORT).astype(np.float16)
    return np.where(np.abs(short) > np.abs(numbers), np.nextafter(short, np.float16(0.0)), short)
