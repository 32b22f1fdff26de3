"""Branch and bound over boxes of policies: best bound first, cut where the draws' own policies disagree most.

What is searched is one sample, on which tables are judged and polished; what cannot be searched is refused.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..errors import InputError
from ..objectives import Boxes, Objective, losses_on, objective_of
from ..posteriors import Draws, Posterior, WeightedDraws
from ..risks import Risk
from ..solvers import SampleAverage, solve
from .relaxation import Bounded, bounded
from .tree import NONE, Tree, tightened

# Boxes of one batch; how many waiting boxes are worth one more batch in a round, or another round beside the
# one that is worked on; and batches of a round for each worker at most.
BATCH, MANY, MOST_BATCHES = 64, 1024, 4

# How much a cut gains, as a share of what was lost to the average: what is believed before any was made, and how many
# cuts that belief is worth; a gain far above is an accident of the order of cuts.
USUAL_GAIN, BELIEVED, LARGEST_GAIN = 0.3, 3.0, 3.0

# The width of a box below which nothing is cut.
NARROW = 1e-9

# No cut is nearer to the edge of its box than this share of the width, and this share more of what is unexplained.
EDGE, UNEXPLAINED_EDGE = 0.01, 0.2

# Values of open boxes that are kept for their children; beyond, those begin at the root's.
VALUE_BYTES, LARGEST_SHORT = 2**31, 6e4

# A table that is better by this share of the risk or more is looked at; less is rounding.
BETTER = 1e-10


class IncumbentTable(NamedTuple):
    """The best policy so far: its table and its risk on the draws."""

    table: Float[np.ndarray, "S A"]
    risk: float


class Moment(NamedTuple):
    """The state of a search at one time."""

    seconds: float
    nodes: int
    bound: float
    risk: float


class Leaf(NamedTuple):
    """What is kept of an open box: what was lost to the average in its state, and values to begin at."""

    lost: float
    values: Float[np.ndarray, "S R"] | None


class Round(NamedTuple):
    """Boxes that are being bounded.

    Attributes:
        parents: the nodes they were cut from.
        leaves: what was kept of these.
        low, high: the boxes, two for each parent.
        parts: what is found, batch by batch.
    """

    parents: list[int]
    leaves: list[Leaf]
    low: Float[np.ndarray, "N S A"]
    high: Float[np.ndarray, "N S A"]
    parts: Iterable[Bounded]


class SearchedSample:
    """One sample to be searched: the objective in units of its own, and how tables are judged and polished on it.

    Attributes:
        own, objective: as given, and in units.
        risk: monotone.
        deterministic: whether only deterministic policies count.
        boxes: relaxations at the draws.
        start: a table to begin at; deterministic if only such are looked for.
    """

    def __init__(self, objective: Objective, risk: Risk, draws: WeightedDraws, deterministic: bool, start: Any):
        self.risk, self.draws, self.deterministic = risk, draws, deterministic
        self.own = objective
        self.objective, self.unit = objective.in_units(draws.thetas)
        self.boxes = boxes_of(self.objective, draws.thetas)
        self.belief = Draws(draws.thetas, draws.probabilities)
        self.start = self._first(start)

    def judge(self, tables: Float[np.ndarray, "K S A"]) -> Float[np.ndarray, " K"]:
        """Risks of tables on the draws, in units."""
        losses = losses_on(self.objective, tables, self.draws.thetas)
        return np.array([float(self.risk(row, self.draws.probabilities).value) for row in losses])

    def polish(self, table: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S A"]:
        """A table near this one that is at least as good."""
        if self.deterministic:
            return self._exchanged(table)
        return self._solved(solver=SampleAverage(starts=1), start=self.own.from_point(table))

    def _solved(self, **parts: Any) -> Float[np.ndarray, "S A"]:
        found = solve(self.own, self.belief, risk=self.risk, progress=False, certify=False, **parts)
        return self.own.point_from(found.policy)

    def _first(self, start: Any) -> Float[np.ndarray, "S A"]:
        table = self._solved() if start is None else self.own.point_from(getattr(start, "policy", start))
        return self._exchanged(np.eye(table.shape[1])[table.argmax(axis=1)]) if self.deterministic else table

    def _exchanged(self, table: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S A"]:
        """The best deterministic table that exchanging one action at a time leads to."""
        value, (states, actions) = self.judge(table[None])[0], table.shape
        while True:
            near = np.broadcast_to(table, (states * actions, states, actions)).copy()
            where = np.arange(states * actions)
            near[where, where // actions] = np.eye(actions)[where % actions]
            risks = self.judge(near)
            best = int(risks.argmin())
            if not risks[best] < value:
                return table
            table, value = near[best], risks[best]


class BranchAndBound:
    """A search that can be carried on; all that it has proved is in its tree."""

    def __init__(
        self,
        case: SearchedSample,
        tree: Tree | None = None,
        executor: Callable[..., Iterable[Any]] = map,
        workers: int = 1,
    ):
        """Begin, or go on from a tree.

        Args:
            case: of which something is to be proved.
            tree: of an earlier search for the same.
            executor: how batches of boxes are mapped.
            workers: how many batches are worked on at once.
        """
        self.case, self.executor, self.workers = case, executor, workers
        self.incumbent = IncumbentTable(case.start, float(case.judge(case.start[None])[0]))
        shape, draws = case.start.shape, len(case.draws)
        self.gains = np.full((2, shape[0]), BELIEVED * USUAL_GAIN)
        self.cuts = np.full((2, shape[0]), BELIEVED)
        self.open: dict[int, Leaf] = {}
        self.most_values = max(1, VALUE_BYTES // (2 * draws * shape[0]))
        self.queue: list[tuple[float, int]] = []
        self.begun: list[Round] = []
        # Of the boxes that are not cut again, the least bound.
        self.closed = np.inf
        low, high = np.zeros((1, *shape)), np.ones((1, *shape))
        nothing = np.zeros((1, shape[0], draws), np.float16)
        root = self._found(Round([], [], low, high, self._bounded(low, high, nothing)))
        self.root_values, self.root_bound = root.values[0], float(root.told[0])
        self.tree = Tree(shape, case.deterministic) if tree is None else tree
        if tree is None:
            self._consider(root)
            self._enter([NONE], root, low, high)
        else:
            for node in tree.leaves():
                self._queue(node, Leaf(0.0, None))
        self.history = [Moment(0.0, len(self.tree), self.bound, self.incumbent.risk)]

    @property
    def bound(self) -> float:
        """Below the risk of every policy, or of every deterministic one."""
        first = self.queue[0][0] if self.queue else np.inf
        begun = min((self.tree.bound[node] for it in self.begun for node in it.parents), default=np.inf)
        return min(first, begun, self.closed, self.incumbent.risk)

    @property
    def gap(self) -> float:
        """What another policy could gain at most."""
        return self.incumbent.risk - self.bound

    def rounds(self, enough: float) -> Iterator[Moment]:
        """Cut the boxes of least bound until the gap is at most `enough` or nothing is left to cut."""
        clock = time.perf_counter()
        while self.gap > enough:
            # Where many wait, workers have the next round before this one is entered, which is the work of one.
            while len(self.begun) < (2 if len(self.queue) >= MANY else 1) and (parents := self._chosen(enough)):
                self.begun.append(self._cut(parents))
            if not self.begun:
                return
            self._entered(self.begun[0])
            self.begun.pop(0)
            self.history.append(Moment(time.perf_counter() - clock, len(self.tree), self.bound, self.incumbent.risk))
            yield self.history[-1]

    def _chosen(self, enough: float) -> list[int]:
        """The nodes of least bound; those that are good enough are closed."""
        chosen: list[int] = []
        # Where many wait, some more at once: workers that are done sooner go on, and who is cut a little early is cut.
        calls = min(max(len(self.queue) // MANY, self.workers), MOST_BATCHES * self.workers)
        while self.queue and len(chosen) < calls * BATCH // 2:
            bound, node = heapq.heappop(self.queue)
            if bound >= self.incumbent.risk - enough:
                self.closed = min(self.closed, bound)
                self.open.pop(node)
            else:
                chosen.append(node)
        return chosen

    def _cut(self, parents: list[int]) -> Round:
        """Both children of each parent, whose bounds are begun."""
        tree, leaves = self.tree, [self.open.pop(node) for node in parents]
        low, high = (end.repeat(2, axis=0) for end in tree.boxes(parents))
        left = 2 * np.arange(len(parents))
        state, action, at = (np.array(column) for column in zip(*(tree.cut_of(node) for node in parents), strict=True))
        high[left, state, action] = 0.0 if tree.deterministic else at
        low[left + 1, state, action] = 1.0 if tree.deterministic else at
        low, high = tightened(low, high)
        values = np.stack([self.root_values if leaf.values is None else leaf.values for leaf in leaves])
        return Round(parents, leaves, low, high, self._bounded(low, high, values.repeat(2, axis=0)))

    def _entered(self, done: Round) -> None:
        """The children of a round, in the tree in place of their parents."""
        found = self._found(done)
        self._consider(found)
        self._learn(done.parents, [leaf.lost for leaf in done.leaves], np.asarray(found.bound))
        self._enter(done.parents, found, done.low, done.high)

    def _learn(self, parents: list[int], lost: list[float], bound: Float[np.ndarray, " N"]) -> None:
        """What the cuts of each state gained, on either side."""
        before, losses = np.array([self.tree.bound[node] for node in parents]), np.array(lost)
        told = losses > 0.0
        state = np.array([self.tree.state[node] for node in parents])[told]
        for side in range(2):
            gain = np.maximum(bound[side::2] - before, 0.0)[told] / losses[told]
            np.add.at(self.gains[side], state, np.minimum(gain, LARGEST_GAIN))
            np.add.at(self.cuts[side], state, 1.0)

    def _enter(self, parents: list[int], found: Bounded, low: np.ndarray, high: np.ndarray) -> None:
        """Both boxes of each parent, or the root, in the tree, with where they would be cut, and in the queue."""
        rows, above = np.arange(len(low)), np.repeat(parents, 2)[: len(low)].tolist()
        # A child's box lies in its parent's, whatever rounding says of their bounds.
        inherited = [-np.inf if node == NONE else self.tree.bound[node] for node in above]
        bound = np.maximum(found.bound, inherited).tolist()
        apart = np.where(high - low >= NARROW, found.disagreement, -1.0)
        hope = np.sqrt(np.prod(self.gains / self.cuts, axis=0))
        state = np.where(apart.max(axis=2) > 0.0, found.lost * hope, -1.0).argmax(axis=1)
        action = apart[rows, state].argmax(axis=1)
        there = (rows, state, action)
        edge = (EDGE + UNEXPLAINED_EDGE * found.unexplained) * (high[there] - low[there])
        at = np.clip(found.at[there], low[there] + edge, high[there] - edge)
        at = np.where(apart[there] > 0.0, at, np.nan).tolist()
        lost, tolls = found.lost[rows, state].tolist(), found.tolls.tolist()
        places = zip(above, bound, state.tolist(), action.tolist(), at, tolls, strict=True)
        for row, place in enumerate(places):
            node = self.tree.add(*place)
            values = np.array(found.values[row]) if len(self.open) < self.most_values else None
            self._queue(node, Leaf(lost[row], values))

    def _queue(self, node: int, leaf: Leaf) -> None:
        """A leaf that can be cut waits for its turn; any other is closed at its bound."""
        if np.isnan(self.tree.at[node]):
            self.closed = min(self.closed, self.tree.bound[node])
        else:
            self.open[node] = leaf
            heapq.heappush(self.queue, (self.tree.bound[node], node))

    def _bounded(self, low: np.ndarray, high: np.ndarray, values: np.ndarray) -> Iterable[Bounded]:
        """Return bounds of any number of boxes, in batches."""
        case = self.case

        def work(rows: np.ndarray) -> Bounded:
            arrays = (part[rows] for part in (low, high, values))
            found = bounded(case.boxes, case.risk, case.draws.probabilities, case.deterministic, *arrays)
            # A quarter of the digits will do where a search begins, and there are many of them.
            short = np.clip(found.values, -LARGEST_SHORT, LARGEST_SHORT).astype(np.float16)
            return found._replace(values=short)

        return self.executor(work, batches(len(low)))

    @staticmethod
    def _found(done: Round) -> Bounded:
        """Return all batches of a round."""
        return Bounded(*(np.concatenate(column) for column in zip(*done.parts, strict=True)))

    def _consider(self, found: Bounded) -> None:
        """The best of the boxes' tables may be the new incumbent."""
        best = int(found.risk.argmin())
        if not found.risk[best] < self.incumbent.risk - BETTER * abs(self.incumbent.risk):
            return
        table = np.asarray(found.table[best])
        tables = [table, self.case.polish(table)]
        risks = self.case.judge(np.stack(tables))
        best = int(risks.argmin())
        if risks[best] < self.incumbent.risk:
            self.incumbent = IncumbentTable(tables[best], float(risks[best]))


def batches(count: int) -> list[Int[np.ndarray, " N"]]:
    """Return the rows of each batch."""
    return [np.arange(first, min(first + BATCH, count)) for first in range(0, count, BATCH)]


def check_measure(risk: Risk) -> None:
    """Refuse a risk of which nothing can be proved."""
    if not risk.monotone:
        raise InputError("prove needs a monotone risk: smaller losses must not be riskier; CVaR and the mean are")
    if risk.is_program:
        raise InputError("prove bounds thousands of boxes, each a convex program under an Envelope; use CVaR or a mean")


def check_provable(model: Any, belief: Posterior, risk: Risk, loss: Any = None) -> None:
    """Refuse what `prove` would, before the work that comes before it."""
    check_measure(risk)
    boxes_of(objective_of(model, loss, None, None), np.asarray(belief.sample(0, 1)))


def boxes_of(objective: Objective, thetas: Float[np.ndarray, "R ..."]) -> Boxes:
    """The relaxations at these draws; refused where the objective has none."""
    boxes = objective.boxes(thetas)
    if boxes is None:
        raise InputError(
            "prove needs tables of at most 48 states with an exact occupancy and a loss that is known to be convex; "
            + (objective.no_bound() or "this model is larger, or its occupancy is truncated")
        )
    return boxes
