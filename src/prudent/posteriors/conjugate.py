"""Conjugate posteriors: single probabilities learned from trials, tables of them learned from transitions."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import special

from ..arrays import Array, as_float, is_concrete, require_distribution, require_kind, require_size
from ..errors import InputError
from ..kernels import Support
from ..records import field
from ..transitions import Log, SupportCounts, Transitions, Trials, transitions_of
from .base import AbstractTable, Invertible, as_labels, in_blocks, require_counts, require_prior, require_table


class Beta(Invertible):
    """Independent Beta coordinates: theta[d] is a probability, learned from trials.

    >>> import numpy as np, prudent as pr
    >>> belief = pr.Beta.uniform(2).update(pr.Trials([[2, 3], [0, 5]]))
    >>> belief.mean().round(3).tolist()
    [0.429, 0.143]
    >>> belief.maximum_likelihood().tolist()
    [0.4, 0.0]

    Attributes:
        prior: `[D, 2]` pseudo-counts of (success, failure).
        counts: `[D, 2]` observed counts.
    """

    prior: Float[Array, "D 2"] = field(converter=as_float)
    counts: Float[Array, "D 2"] = field(converter=as_float)

    def __check_init__(self) -> None:
        if not is_concrete(self.prior):
            return
        if self.prior.ndim != 2 or self.prior.shape[1] != 2 or self.prior.shape != self.counts.shape:
            raise InputError(f"Beta prior and counts need shape (D, 2), got {self.prior.shape} and {self.counts.shape}")
        require_counts("Beta counts", self.counts)
        require_prior("Beta prior", self.prior)
        if np.any(self.prior == 0):
            raise InputError("Beta prior must be positive in every entry; 1 is the uniform prior")

    @staticmethod
    def uniform(dimension: int) -> Beta:
        """Beta(1, 1) on each of `dimension` coordinates, nothing observed."""
        dimension = require_size("the dimension of a Beta", dimension)
        return Beta(np.ones((dimension, 2)), np.zeros((dimension, 2)))

    def update(self, log: Trials) -> Beta:
        """Add the counts of a log; updates in any order and split give the same posterior."""
        if not isinstance(log, Trials):
            raise InputError(f"a Beta posterior learns from Trials, got {type(log).__name__}")
        if log.counts.shape != self.counts.shape:
            raise InputError(f"the log has {len(log.counts)} coordinates, the posterior {len(self.counts)}")
        return Beta(self.prior, self.counts + log.counts)

    def mean(self) -> Float[Array, " D"]:
        """Posterior mean of theta."""
        total = self.prior + self.counts
        return total[..., 0] / total.sum(axis=-1)

    def maximum_likelihood(self) -> Float[Array, " D"]:
        """Observed frequencies; needs at least one trial of every coordinate."""
        seen = np.asarray(self.counts).sum(axis=-1)
        if np.any(seen == 0):
            raise InputError(
                f"no trial of coordinate {int(np.argmax(seen == 0))}: maximum likelihood needs data; use mean()"
            )
        return np.asarray(self.counts)[..., 0] / seen

    def draw(self, generator: np.random.Generator, n: int) -> Float[np.ndarray, "N D"]:
        """`n` draws `[n, D]`."""
        total = np.asarray(self.prior + self.counts)
        return generator.beta(total[:, 0], total[:, 1], size=(n, len(total)))

    @property
    def uniform_dimension(self) -> int:
        """`D`."""
        return len(self.prior)

    def from_uniform(self, uniforms: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
        """The quantile of each coordinate at each uniform number."""
        total = np.asarray(self.prior + self.counts)
        return special.betaincinv(total[:, 0], total[:, 1], uniforms)


# Below this shape a gamma draw may underflow.
SMALLEST_DIRECT_SHAPE = 0.02


class DirichletRows(AbstractTable):
    """Tables that are made of independent Dirichlet rows; a concrete one has their parameters, and makes the tables."""

    @abc.abstractmethod
    def _rows(self) -> Float[np.ndarray, "L B"]:
        """The parameters of each probability vector that is drawn."""

    @abc.abstractmethod
    def _table(self, rows: Float[np.ndarray, "N L B"]) -> Float[np.ndarray, "N S A B"]:
        """The tables that the vectors drawn make."""

    def draw(self, generator: np.random.Generator, n: int) -> Float[np.ndarray, "N S A B"]:
        """`n` tables `[n, S, A, B]`."""
        rows = self._rows()
        return in_blocks(
            self.support.allowed(), n, lambda first, last: self._table(draw_rows(generator, rows, last - first))
        )

    @property
    def uniform_dimension(self) -> int:
        """For each vector, one less than its entries that have weight."""
        return int(sticks(self._rows()).sum())

    def from_uniform(self, uniforms: Float[np.ndarray, "N K"]) -> Float[np.ndarray, "N S A B"]:
        """Rows by breaking sticks: entry `b` takes a `Beta(w_b, sum_{c > b} w_c)` share of what is left."""
        rows, n = self._rows(), len(uniforms)
        weight = np.broadcast_to(rows, (n, *rows.shape))
        return in_blocks(
            self.support.allowed(), n, lambda *ends: self._table(unbroken(weight[slice(*ends)], uniforms[slice(*ends)]))
        )


class Dirichlet(DirichletRows):
    """Independent Dirichlet rows over the successors a support allows; theta is the table `[S, A, B]`.

    >>> import prudent as pr
    >>> support = pr.Support.lists([[[0, 1]], [[1, 0]]])
    >>> log = pr.Transitions.from_records([(0, 0, 1), (0, 0, 1)], states=2, actions=1)
    >>> pr.Dirichlet.symmetric(support, 1.0).update(log).mean()[0, 0].tolist()
    [0.25, 0.75]

    Pairs known to behave alike can be tied. They then share one probability vector, slot by slot along their
    successor lists, and learn from one another:

    >>> pr.Dirichlet.symmetric(support, 1.0, tied=[[0], [0]]).update(log).mean()[1, 0].tolist()
    [0.25, 0.75]

    Attributes:
        support: allowed successors; a transition outside it is refused.
        prior: `[S, A, B]` pseudo-counts, 0 on padding; of tied rows it counts once.
        counts: `[S, A, B]` observed counts of each row by itself.
        tied: `[S, A]` labels, whole numbers: rows with one label are tied. None when no rows are.
    """

    support: Support
    prior: Float[Array, "S A B"] = field(converter=as_float)
    counts: Float[Array, "S A B"] = field(converter=as_float)
    tied: Int[Array, "S A"] | None = field(converter=as_labels("tied label"), default=None)

    def __check_init__(self) -> None:
        require_kind("support", self.support, Support, "a Support, such as Support.lists(...)")
        if not is_concrete(self.prior):
            return
        require_table("Dirichlet prior and counts", self.support, self.prior, self.counts)
        require_prior("Dirichlet prior", self.prior)
        require_counts("Dirichlet counts", self.counts)
        empty = np.argwhere(np.asarray(self.prior).sum(axis=-1) == 0)
        if empty.size:
            s, a = (int(i) for i in empty[0])
            raise InputError(
                f"Dirichlet prior is 0 on every successor of state {s}, action {a}; give one a positive weight"
            )
        if self.tied is not None:
            self._check_ties(self.tied.shape)

    def _check_ties(self, shape: tuple[int, ...]) -> None:
        if shape != self.support.shape[:2]:
            raise InputError(f"tied needs a label for each pair, shape {self.support.shape[:2]}, got {shape}")
        first, place = self._labels()
        self._refuse_unlike(self.support.allowed(), first[place], "numbers of successors")
        self._refuse_unlike(np.asarray(self.prior), first[place], "priors")

    def _refuse_unlike(self, table: np.ndarray, first: np.ndarray, what: str) -> None:
        rows = table.reshape(-1, self.support.successors)
        unlike = np.flatnonzero(np.any(rows != rows[first], axis=1))
        if unlike.size:
            row, other = int(unlike[0]), int(first[unlike[0]])
            (s, a), (t, b) = divmod(other, self.support.actions), divmod(row, self.support.actions)
            raise InputError(
                f"state {s}, action {a} and state {t}, action {b} are tied but have different {what}; "
                "make them alike, or give them different labels"
            )

    @staticmethod
    def symmetric(support: Support, weight: float = 1.0, tied: Any = None) -> Dirichlet:
        """The same pseudo-count `weight` on every allowed successor, nothing observed.

        Args:
            support: allowed successors.
            weight: pseudo-count; 1 is the uniform prior.
            tied: `[S, A]` labels of rows that share one probability vector.
        """
        require_kind("support", support, Support, "a Support, such as Support.lists(...)")
        if not (isinstance(weight, int | float | np.number) and 0 < weight < np.inf):
            raise InputError(f"Dirichlet weight must be > 0, got {weight}; 1 is the uniform prior")
        return Dirichlet(support, weight * support.allowed(), np.zeros(support.shape), tied)

    def update(self, log: Transitions | Log) -> Dirichlet:
        """Add the counts of a log; updates in any order and split give the same posterior."""
        counts = sum_counts(self.support, self.counts, log)
        return Dirichlet(self.support, self.prior, counts, self.tied)

    def _labels(self) -> tuple[Int[np.ndarray, " L"], Int[np.ndarray, " P"]]:
        """The first row of each label, and the label each of the `S A` rows has."""
        _, first, place = np.unique(np.asarray(self.tied).ravel(), return_index=True, return_inverse=True)
        return first, place

    def _pooled(self) -> Float[Array, "S A B"]:
        """Observed counts, of tied rows together."""
        if self.tied is None:
            return self.counts
        first, place = self._labels()
        pooled = np.zeros((len(first), self.support.successors))
        np.add.at(pooled, place, np.asarray(self.counts).reshape(-1, self.support.successors))
        return pooled[place].reshape(self.support.shape)

    def _rows(self) -> Float[np.ndarray, "L B"]:
        """Of tied rows, one."""
        rows = np.asarray(self.prior + self._pooled()).reshape(-1, self.support.successors)
        return rows if self.tied is None else rows[self._labels()[0]]

    def _table(self, rows: Float[np.ndarray, "N L B"]) -> Float[np.ndarray, "N S A B"]:
        """The vectors drawn, each where its label is."""
        rows = rows if self.tied is None else rows[:, self._labels()[1]]
        return rows.reshape(len(rows), *self.support.shape)

    def mean(self) -> Float[Array, "S A B"]:
        """Posterior mean of the table."""
        total = self.prior + self._pooled()
        return total / total.sum(axis=-1, keepdims=True)

    def maximum_likelihood(self, unseen: Any = None) -> Float[Array, "S A B"]:
        """Observed frequencies.

        Args:
            unseen: `[S, A, B]` table whose rows stand in for pairs without data, for example
                `posterior.mean()`; without it such pairs are refused.
        """
        return frequencies(np.asarray(self._pooled()), unseen)


def draw_rows(generator: np.random.Generator, total: Float[np.ndarray, "L B"], n: int) -> Float[np.ndarray, "N L B"]:
    """`n` draws of Dirichlet rows with these parameters, 0 where a parameter is."""
    size = (n, *total.shape)
    if total[total > 0].min() >= SMALLEST_DIRECT_SHAPE:
        table = generator.standard_gamma(total, size=size)
    else:
        # Gammas of tiny shape underflow to 0; their logarithms, log Gamma(a + 1) + log(U) / a, do not.
        with np.errstate(divide="ignore"):
            log = np.log(generator.standard_gamma(total + 1.0, size=size)) + np.log(generator.random(size)) / np.where(
                total > 0, total, 1.0
            )
        log = np.where(total > 0, log, -np.inf)
        table = np.exp(log - log.max(axis=-1, keepdims=True))
    table /= table.sum(axis=-1, keepdims=True)
    return table


def sum_counts(support: Support, counts: Any, log: Transitions | Log) -> Float[np.ndarray, "S A B"]:
    """Counts along a support with those of a log added; refuses what the support does not allow."""
    log = transitions_of(log, support)
    if not isinstance(log, Transitions):
        raise InputError(f"a table of probabilities learns from Transitions, got {type(log).__name__}")
    seen, counts = SupportCounts.of(support, log, "posterior"), np.array(counts, order="C")
    # Where a list repeats a successor, its first entry counts.
    first = np.unique(seen.row, return_index=True)[1]
    counts.ravel()[np.asarray(seen.entry)[first]] += seen.count
    return counts


def frequencies(counts: Float[np.ndarray, "S A B"], unseen: Any = None) -> Float[np.ndarray, "S A B"]:
    """Observed frequencies; rows of the table `unseen` stand in for pairs without data, else these are refused."""
    total = counts.sum(axis=-1, keepdims=True)
    empty = np.argwhere(total[..., 0] == 0)
    if empty.size and unseen is None:
        s, a = (int(i) for i in empty[0])
        raise InputError(
            f"{len(empty)} state-action pairs have no data, the first is state {s}, action {a}: maximum "
            "likelihood needs data; use mean(), or maximum_likelihood(unseen=posterior.mean())"
        )
    frequency = counts / np.where(total == 0, 1.0, total)
    if unseen is None:
        return frequency
    unseen = np.asarray(as_float(unseen, "unseen"))
    if unseen.shape != counts.shape:
        raise InputError(f"unseen must be a table of shape {counts.shape}, got {unseen.shape}")
    require_distribution("unseen", unseen, ("state", "action"))
    return np.where(total == 0, unseen, frequency)


def unbroken(weight: Float[np.ndarray, "N L B"], uniforms: Float[np.ndarray, "N K"]) -> Float[np.ndarray, "N L B"]:
    """Dirichlet rows from uniform numbers, one for each stick; the same entries have weight in all of the N."""
    free = sticks(weight[0])
    share = np.zeros(weight.shape)
    rest = _rest(weight)
    share[:, free] = special.betaincinv(weight[:, free], rest[:, free], uniforms)
    # The last entry with weight takes all that is left.
    share[(weight > 0) & (rest == 0)] = 1.0
    left = np.cumprod(1.0 - share, axis=-1)
    share[..., 1:] *= left[..., :-1]
    return share


def _rest(weight: Float[np.ndarray, "... L B"]) -> Float[np.ndarray, "... L B"]:
    """The weight of the entries behind each, exactly 0 where there is none."""
    behind = np.zeros_like(weight)
    behind[..., :-1] = np.cumsum(weight[..., :0:-1], axis=-1)[..., ::-1]
    return behind


def sticks(weight: Float[np.ndarray, "L B"]) -> Bool[np.ndarray, "L B"]:
    """Which entries are free: they have weight and so has an entry behind them."""
    return (weight > 0) & (_rest(weight) > 0)
