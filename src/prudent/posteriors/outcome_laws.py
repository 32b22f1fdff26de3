"""Tables of transition probabilities whose rows share a few laws of random outcomes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..arrays import Array, as_float, require_indices, require_kind
from ..errors import InputError
from ..kernels import Support
from ..records import field
from ..transitions import Log, Transitions
from .base import require_counts, require_prior
from .conjugate import DirichletRows, sum_counts


class _Tree(NamedTuple):
    """Laws as products of branches, which are independent Dirichlet rows.

    Attributes:
        prior, counts: `[M, C]` of the branches of each node, 0 on padding.
        path: `[L, B, D]` the branches that lead to an outcome, in the flattened table; `M C` for none, `M C + 1` where
            a law has no such outcome.
    """

    prior: Float[np.ndarray, "M C"]
    counts: Float[np.ndarray, "M C"]
    path: Int[np.ndarray, "L B D"]

    def laws(self, shares: Float[np.ndarray, "N M C"]) -> Float[np.ndarray, "N L B"]:
        """The laws that shares of the branches make."""
        ends = np.broadcast_to([1.0, 0.0], (len(shares), 2))
        return np.concatenate([shares.reshape(len(shares), -1), ends], axis=1)[:, self.path].prod(axis=-1)


class OutcomeLaws(DirichletRows):
    """Pairs whose next state is a known function of a random outcome, with laws that pairs share.

    One law of demand for all stocks and orders, say: entry b of a pair's successor list is where outcome b leads, and
    several outcomes may lead to the same state. Theta is the table `[S, A, B]`, the chance of each outcome, the same in
    all pairs of a law. Laws are `Dirichlet(prior)` before the data. A transition tells that the outcome was one of
    those that lead there, a set A, which multiplies the likelihood by `P(A)`. As long as any two sets that were seen
    are nested or apart, as for a stock that runs out (demand was at least what there was), the posterior is exact: with
    the sets as a tree, the shares of the branches of each node are independent and Dirichlet, and a set adds its
    count to every branch on the way to it. Other sets are refused.

    >>> import prudent as pr
    >>> stock = pr.Support.lists([[[0, 0, 0]], [[1, 0, 0]], [[2, 1, 0]]])  # demand 0, 1 or 2; what is short is lost
    >>> belief = pr.OutcomeLaws(stock, law=[[0], [0], [0]])
    >>> log = pr.Transitions.from_records([(2, 0, 1), (1, 0, 0), (1, 0, 0)], states=3, actions=1)
    >>> belief.update(log).mean()[2, 0].round(3).tolist()  # demand 1 once, at least 1 twice
    [0.167, 0.556, 0.278]

    Args:
        support: entry b of a list is where outcome b leads.
        law: `[S, A]` labels of the pairs' laws, whole numbers from 0.
        prior: `[L, B]` pseudo-counts of outcomes, or one number for all; 1 is uniform.
        counts: `[S, A, B]` observed transitions, each in the first entry that leads to its state.
        seen: `[L, B]` outcomes that were seen as such.
        names: for messages, by law the names of its outcomes.
    """

    support: Support
    law: Int[Array, "S A"]
    prior: Float[Array, "L B"]
    counts: Float[Array, "S A B"]
    seen: Float[Array, "L B"]
    names: tuple[tuple[str, ...], ...] | None = field(static=True)
    tree: _Tree = field(repr=False)

    def __init__(
        self, support: Support, law: Any, prior: Any = 1.0, counts: Any = None, seen: Any = None, names: Any = None
    ):
        require_kind("support", support, Support, "a Support, such as Support.lists(...)")
        self.support, self.names = support, names
        self.law = require_indices("law", law, int(np.prod(support.shape[:2])))
        if self.law.shape != support.shape[:2]:
            raise InputError(f"law needs a label for each pair, shape {support.shape[:2]}, got {self.law.shape}")
        own = self._outcomes()
        given = as_float(prior, "prior")
        self.prior = given * own if given.ndim == 0 else given
        self.counts = as_float(np.zeros(support.shape) if counts is None else counts, "counts")
        self.seen = as_float(np.zeros(own.shape) if seen is None else seen, "seen")
        for name, table, shape in (
            ("prior", self.prior, own.shape),
            ("counts", self.counts, support.shape),
            ("seen", self.seen, own.shape),
        ):
            if table.shape != shape:
                raise InputError(f"{name} of outcomes must have shape {shape}, got {table.shape}")
        require_prior("prior of outcomes", self.prior)
        require_counts("counts of outcomes", self.counts)
        require_counts("outcomes seen", self.seen)
        if np.any((self.prior > 0) != own) or np.any(self.seen[~own] > 0):
            raise InputError("prior of outcomes must be > 0 for the outcomes of a law, and 0 (as seen) for others")
        self.tree = self._grown(own)

    def _outcomes(self) -> Bool[np.ndarray, "L B"]:
        """Which outcomes a law has; refuses pairs of one law with several numbers of them."""
        allowed = self.support.allowed()
        own = np.zeros((int(self.law.max()) + 1, self.support.successors), dtype=bool)
        own[self.law] = allowed
        unlike = np.argwhere(np.any(own[self.law] != allowed, axis=2))
        if unlike.size:
            s, a = (int(i) for i in unlike[0])
            raise InputError(
                f"state {s}, action {a} lists other outcomes than another pair of its law; list all of them"
            )
        if not own.any(axis=1).all():
            raise InputError(f"no pair has law {int(np.argmin(own.any(axis=1)))}; number laws from 0 without gaps")
        return own

    def _grown(self, own: np.ndarray) -> _Tree:
        """The branches of all laws."""
        index = self.support.index()
        evidence: list[dict[frozenset[int], float]] = [{} for _ in own]
        for s, a, b in np.argwhere(np.asarray(self.counts) > 0).tolist():
            together = (index[s, a] == index[s, a, b]) & self.support.allowed()[s, a]
            known, found = evidence[self.law[s, a]], frozenset(np.flatnonzero(together).tolist())
            known[found] = known.get(found, 0.0) + float(self.counts[s, a, b])
        for law, b in np.argwhere(np.asarray(self.seen) > 0).tolist():
            one = frozenset([b])
            evidence[law][one] = evidence[law].get(one, 0.0) + float(self.seen[law, b])
        branches: list[tuple[np.ndarray, np.ndarray]] = []
        paths: list[list[list[tuple[int, int]]]] = []
        for law, known in enumerate(evidence):
            whole = frozenset(np.flatnonzero(own[law]).tolist())
            nodes = sorted(
                {whole, *(each for each in known if len(each) > 1)}, key=lambda each: (-len(each), min(each))
            )
            self._refuse_crossing(nodes, law)
            path: dict[frozenset[int], list[tuple[int, int]]] = {whole: []}
            for node in nodes:
                inside = [each for each in nodes if each < node]
                largest = [each for each in inside if not any(each < other for other in inside)]
                rest = node.difference(*largest)
                children = sorted([*largest, *(frozenset([b]) for b in rest)], key=min)
                for place, child in enumerate(children):
                    path[child] = [*path[node], (len(branches), place)]
                weights = [float(np.asarray(self.prior)[law, sorted(child)].sum()) for child in children]
                counts = [sum(n for each, n in known.items() if each <= child) for child in children]
                branches.append((np.array(weights), np.array(counts, dtype=float)))
            paths.append([path.get(frozenset([b]), []) for b in range(own.shape[1])])
        width = max(len(weights) for weights, _ in branches)
        prior, counts = np.zeros((2, len(branches), width))
        for k, (weights, numbers) in enumerate(branches):
            prior[k, : len(weights)], counts[k, : len(numbers)] = weights, numbers
        depth = max(1, *(len(path) for law in paths for path in law))
        places = np.full((*own.shape, depth), prior.size)
        places[~own] = prior.size + 1
        for law, b in np.argwhere(own).tolist():
            for step, (node, place) in enumerate(paths[law][b]):
                places[law, b, step] = node * width + place
        return _Tree(prior, counts, places)

    def _refuse_crossing(self, nodes: list[frozenset[int]], law: int) -> None:
        for k, one in enumerate(nodes):
            for other in nodes[:k]:
                if one & other and not one <= other:
                    told = " and elsewhere one of ".join(self._named(each, law) for each in (other, one))
                    raise InputError(
                        f"the log tells only that the outcome was one of {told}: such sets must be nested or apart for "
                        "the belief to be exact; tell apart more next states, or count outcomes that were seen as such"
                    )

    def _named(self, outcomes: frozenset[int], law: int) -> str:
        names = [str(b) if self.names is None else self.names[law][b] for b in sorted(outcomes)]
        return "(" + ", ".join(names[:6]) + (", ..." if len(names) > 6 else "") + ")"

    def update(self, log: Transitions | Log) -> OutcomeLaws:
        """Add the transitions of a log; updates in any order and split give the same posterior."""
        counts = sum_counts(self.support, self.counts, log)
        return OutcomeLaws(self.support, self.law, self.prior, counts, self.seen, self.names)

    def rows(self) -> Float[np.ndarray, "S A"]:
        """How often something was seen of each pair's law, in whatever pair."""
        by_law = np.asarray(self.seen).sum(axis=1)
        np.add.at(by_law, np.asarray(self.law), np.asarray(self.counts).sum(axis=2))
        return by_law[np.asarray(self.law)]

    def shown(self) -> Bool[np.ndarray, "L B"]:
        """Outcomes that were seen as such, all of a set that was seen and holds none of these, all of a law unseen."""
        own, counts = np.asarray(self.prior) > 0, self.tree.counts.ravel()
        shown = np.zeros(own.shape, dtype=bool)
        for law, path in enumerate(self.tree.path):
            branches = [k for k in np.unique(path) if k < counts.size and counts[k] > 0]
            for members in sorted(((path == k).any(axis=1) for k in branches), key=np.sum):
                if not shown[law, members].any():
                    shown[law] |= members
        return np.where(shown.any(axis=1, keepdims=True), shown, own)

    def _rows(self) -> Float[np.ndarray, "M C"]:
        """Of the branches of each node."""
        return self.tree.prior + self.tree.counts

    def _table(self, rows: Float[np.ndarray, "N M C"]) -> Float[np.ndarray, "N S A B"]:
        """The laws that shares of the branches make, each in all of its pairs."""
        return self.tree.laws(rows)[:, np.asarray(self.law)]

    def mean(self) -> Float[np.ndarray, "S A B"]:
        """Posterior mean of the table: the product of the branches' means."""
        return self._made(self._rows())

    def _made(self, weights: Float[np.ndarray, "M C"]) -> Float[np.ndarray, "S A B"]:
        shares = weights / weights.sum(axis=1, keepdims=True)
        return self._table(shares[None])[0]

    def maximum_likelihood(self, unseen: Any = None) -> Float[np.ndarray, "S A B"]:
        """The laws that make the log most likely; on ordered outcomes cut off from above, that of Kaplan and Meier.

        Args:
            unseen: a table such as `posterior.mean()`: where the log tells nothing of how a set splits, the posterior
                mean of the split is taken; without it that is refused.
        """
        counts = self.tree.counts
        silent = counts.sum(axis=1) == 0
        # A node of one branch has nothing to tell.
        if unseen is None and np.any(silent & ((self.tree.prior > 0).sum(axis=1) > 1)):
            raise InputError(
                "the log does not tell the laws of all outcomes: maximum likelihood needs data; use mean(), or "
                "maximum_likelihood(unseen=posterior.mean())"
            )
        return self._made(np.where(silent[:, None], self._rows(), counts))
