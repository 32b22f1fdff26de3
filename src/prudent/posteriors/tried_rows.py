"""A belief that trusts tried rows alone: each pair learns from its own rows, and the rest is left to the worst case.

The law of a pair that was tried n times is

    (1 - u) Dirichlet(counts of the successors seen),    u ~ Beta(c, n),

whose share u stands for what its rows have not shown. It is the Dirichlet process of concentration c whose base measure
is not known (Walley's imprecise Dirichlet model). A pair never tried has u = 1. Where u leads is not believed but
assumed at its worst: for each draw and policy, to the dearest state that the log visits.

The concentration has a posterior given the log. By Ewens's sampling formula, k distinct successors in n rows have the
likelihood

    c^k Gamma(c) / Gamma(c + n),

for all tried pairs together. A priori the chance `c / (1 + c)` that the second row of a pair shows another successor
than the first is uniform.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import special

from ..arrays import as_float, require_finite, require_kind, require_number
from ..errors import InputError, hinted
from ..kernels import Support
from ..records import field
from ..transitions import Log, Transitions, merge, transitions_of
from .base import Posterior, require_counts

# Logarithms of concentrations that are looked at. A priori a share of 2e-9 is above them, and less is below.
LEAST, MOST = -40.0, 20.0

# Points of the grid of concentrations; how often it is narrowed, to where the density is not below e^-40 of its peak.
POINTS, NARROWED, DEPTH = 1001, 4, 40.0


@hinted
class TriedRows(Posterior):
    """Each pair learns from its own rows alone; a share of its law that they have not shown is left to the worst case.

    Theta is `[S, A, B + 1]`: the probabilities of the successors that the log has shown, along `support`, and behind
    them the unseen share. It goes with a `TriedFamily`, in which that share leads to the dearest state that the log
    visits. A belief without rows takes every state for visited.

    >>> import prudent as pr
    >>> log = pr.Transitions.from_records([(0, 0, 0), (0, 0, 1), (0, 0, 1), (1, 0, 0)], states=2, actions=2)
    >>> belief = pr.TriedRows.of(log, concentration=1.0)
    >>> belief.mean()[0, 0].tolist()  # 1 and 2 of 3 rows, and the unseen share 1 / (1 + 3)
    [0.25, 0.5, 0.25]
    >>> belief.mean()[0, 1].tolist()  # never tried
    [0.0, 0.0, 1.0]

    Attributes:
        support: the successors that the log has shown of each pair, none of a pair that was never tried.
        counts: `[S, A, B]` how often each was seen.
        concentration: c, where it is known; it has a posterior given the counts where it is None.
    """

    support: Support
    counts: Float[np.ndarray, "S A B"]
    concentration: float | None = field(static=True)

    def __init__(self, support: Support, counts: Any, concentration: float | None = None):
        require_kind("support", support, Support, "the support of TriedRows.of(log)")
        self.support = support
        self.counts = np.asarray(as_float(counts, "counts"))
        if self.counts.shape != support.shape:
            raise InputError(f"counts need the support's shape {support.shape}, got {self.counts.shape}")
        require_finite("counts", self.counts)
        require_counts("counts", self.counts)
        stray = np.argwhere((self.counts > 0) != support.allowed())
        if stray.size:
            s, a, b = (int(i) for i in stray[0])
            raise InputError(
                f"the support of TriedRows lists what was seen and nothing else; entry {b} of state {s}, action {a} "
                f"has the count {self.counts[s, a, b]:g}; make the belief by TriedRows.of(log)"
            )
        known = None if concentration is None else float(require_number("concentration", concentration, "(0, inf)"))
        self.concentration = known

    @staticmethod
    def of(log: Transitions | Log, concentration: float | None = None) -> TriedRows:
        """Return the belief that a log makes.

        Args:
            log: the transitions; names of a `Log` become those of the support.
            concentration: c, if it is not to be learned from the log.
        """
        labels = None
        if isinstance(log, Log):
            labels = log.support().labels
            log = log.transitions
        require_kind("log", log, Transitions, "a log of Transitions, such as Transitions.from_records(...)")
        log = merge(log)
        seen = np.asarray(log.count) > 0
        state, action, following, count = (
            np.asarray(column)[seen] for column in (log.state, log.action, log.next_state, log.count)
        )
        pair = state.astype(np.int64) * log.actions + action
        # Rows of a pair are together, in the order of their successors.
        starts = np.flatnonzero(np.diff(pair, prepend=-1))
        slot = np.arange(len(pair)) - np.repeat(starts, np.diff(np.append(starts, len(pair))))
        shape = (log.states, log.actions, int(slot.max(initial=0)) + 1)
        # Places that are not listed hold the state itself, which is no farther than any other.
        successor = np.broadcast_to(np.arange(log.states, dtype=np.int32)[:, None, None], shape).copy()
        listed, counts = np.zeros(shape, dtype=bool), np.zeros(shape)
        successor[state, action, slot] = following
        listed[state, action, slot] = True
        counts[state, action, slot] = count
        support = Support(successor, None if listed.all() else listed, *shape, observed=True, labels=labels)
        return TriedRows(support, counts, concentration)

    def update(self, log: Transitions | Log) -> TriedRows:
        """Return the belief with the rows of a log added; logs in any order and split give the same belief."""
        ours = self.support
        theirs = cast(Transitions, transitions_of(log, ours))
        require_kind("log", theirs, Transitions, "a log of Transitions, such as Transitions.from_records(...)")
        if (theirs.states, theirs.actions) != ours.shape[:2]:
            raise InputError(
                f"the log is for {theirs.states} states and {theirs.actions} actions, the belief for {ours.states} and "
                f"{ours.actions}"
            )
        state, action, slot = np.nonzero(self.counts)
        own = Transitions(
            state, action, ours.index()[state, action, slot], self.counts[state, action, slot], *ours.shape[:2]
        )
        made = TriedRows.of(merge(own, theirs), self.concentration)
        if ours.labels is None:
            return made
        return TriedRows(made.support.named(ours.labels.states, ours.labels.actions), made.counts, self.concentration)

    def rows(self) -> Float[np.ndarray, "S A"]:
        """Return how often each pair was tried."""
        return self.counts.sum(axis=2)

    def visited(self) -> Bool[np.ndarray, " S"]:
        """Return the states that the log visits, as a step's first state or as its next; all where it has no rows."""
        return self.support.visited()

    def concentrations(self) -> tuple[Float[np.ndarray, " G"], Float[np.ndarray, " G"]]:
        """Return values of c and their probabilities: its posterior given the log, on a grid.

        >>> import prudent as pr
        >>> log = pr.Transitions.from_records([(0, 0, 0)] * 50, states=1, actions=1)  # one successor
        >>> values, chance = pr.TriedRows.of(log).concentrations()
        >>> round(float(values @ chance), 1)
        0.2
        """
        if self.concentration is not None:
            return np.array([self.concentration]), np.ones(1)
        rows = self.rows()
        tried = rows[rows > 0]
        rows, times = np.unique(tried, return_counts=True)
        more = int((self.counts > 0).sum()) - len(tried)
        logarithm = np.linspace(LEAST, MOST, POINTS)
        for _ in range(NARROWED):
            height = log_density(logarithm, more, rows, times)
            kept = np.flatnonzero(height >= height.max() - DEPTH)
            ends = logarithm[[max(kept[0] - 1, 0), min(kept[-1] + 1, POINTS - 1)]]
            logarithm = np.linspace(ends[0], ends[1], POINTS)
        height = log_density(logarithm, more, rows, times)
        chance = np.exp(height - height.max())
        return np.exp(logarithm), chance / chance.sum()

    def mean(self) -> Float[np.ndarray, "S A C"]:
        """Return the posterior mean of theta."""
        values, chance = self.concentrations()
        rows = self.rows()
        different, place = np.unique(rows, return_inverse=True)
        unseen = (chance * (values / (values + different[:, None]))).sum(axis=1)[place].reshape(rows.shape)
        return self._with_unseen(np.where(rows > 0, unseen, 1.0))

    def maximum_likelihood(self) -> Float[np.ndarray, "S A C"]:
        """Return observed frequencies: nothing is unseen of a pair that was tried, everything of any other."""
        return self._with_unseen(np.where(self.rows() > 0, 0.0, 1.0))

    def _with_unseen(self, unseen: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S A C"]:
        rows = self.rows()
        known = (1.0 - unseen)[..., None] * self.counts / np.where(rows > 0, rows, 1.0)[..., None]
        return np.concatenate([known, unseen[..., None]], axis=2)

    def draw(self, generator: np.random.Generator, n: int) -> Float[np.ndarray, "N S A C"]:
        """Return `n` draws of theta: one concentration each, and gammas for what was seen and for what was not."""
        values, chance = self.concentrations()
        concentration = values[generator.choice(len(values), size=n, p=chance)]
        states, actions, width = self.support.shape
        # Models last in memory, as the engine takes them; what was never seen stays 0.
        theta = np.zeros((states, actions, width + 1, n))
        tried, (state, action, slot) = np.nonzero(self.rows()), np.nonzero(self.counts)
        seen = generator.standard_gamma(self.counts[state, action, slot], size=(n, len(state)))
        unseen = generator.standard_gamma(np.broadcast_to(concentration[:, None], (n, len(tried[0]))))
        if len(state):
            pair = (state * actions + action).astype(np.int64)
            first = np.flatnonzero(np.diff(pair, prepend=-1))
            total = np.add.reduceat(seen, first, axis=1) + unseen
            theta[state, action, slot] = (seen / _along(total, first, len(pair))).T
            theta[*tried, width] = (unseen / total).T
        theta[:, :, width][self.rows() == 0] = 1.0
        return np.moveaxis(theta, -1, 0)


def _along(values: Float[np.ndarray, "N P"], first: Int[np.ndarray, " P"], length: int) -> Float[np.ndarray, "N K"]:
    """Return the value of each pair at each of its successors."""
    return np.repeat(values, np.diff(np.append(first, length)), axis=1)


def log_density(
    logarithm: Float[np.ndarray, " G"], more: int, rows: Float[np.ndarray, " D"], times: Int[np.ndarray, " D"]
) -> Float[np.ndarray, " G"]:
    """Return the logarithm of the posterior density of log c, up to a constant.

    Args:
        logarithm: values of log c.
        more: distinct successors less tried pairs, summed over the pairs.
        rows: different numbers of rows of tried pairs.
        times: how many pairs have each.
    """
    concentration = np.exp(logarithm)
    # c^k Gamma(c) = c^(k - 1) Gamma(c + 1), which does not cancel where c is small.
    ratio = special.gammaln(concentration + 1.0)[:, None] - special.gammaln(concentration[:, None] + rows)
    return (more + 1) * logarithm - 2.0 * np.log1p(concentration) + ratio @ times
