"""Tables of transition probabilities, learned from transitions."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import numpy as np
from jax import ShapeDtypeStruct
from jax.core import Tracer
from jaxtyping import Bool, Float, Int
from scipy import special

from ..arrays import Array, as_float, is_concrete, require_distribution, require_indices, require_kind
from ..errors import InputError
from ..kernels import Support
from ..transitions import Log, Transitions, transitions_of
from .base import AbstractTable, block_of, in_blocks, require_counts, require_prior, require_table

# Below this shape a gamma draw may underflow.
SMALLEST_DIRECT_SHAPE = 0.02


def _as_labels(value: Any) -> Any:
    """Field converter: labels as whole numbers; None and placeholders are left as they are."""
    if value is None or isinstance(value, Tracer | ShapeDtypeStruct):
        return value
    return require_indices("tied label", value, np.iinfo(np.int32).max)


class Dirichlet(AbstractTable):
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
    prior: Float[Array, "S A B"] = eqx.field(converter=as_float)
    counts: Float[Array, "S A B"] = eqx.field(converter=as_float)
    tied: Int[Array, "S A"] | None = eqx.field(converter=_as_labels, default=None)

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
        """The parameters of each probability vector that is drawn."""
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

    def draw(self, generator: np.random.Generator, n: int) -> Float[np.ndarray, "N S A B"]:
        """`n` tables `[n, S, A, B]`."""
        allowed, rows = self.support.allowed(), self._rows()

        def make(first: int, last: int) -> np.ndarray:
            return self._table(draw_rows(generator, rows, last - first))

        return in_blocks(allowed, n, block_of(allowed, n), make)

    @property
    def uniform_dimension(self) -> int:
        """For each vector, one less than its successors that have weight."""
        return int(sticks(self._rows()).sum())

    def from_uniform(self, uniforms: Float[np.ndarray, "N K"]) -> Float[np.ndarray, "N S A B"]:
        """Rows by breaking sticks: entry `b` takes a `Beta(w_b, sum_{c > b} w_c)` share of what is left."""
        allowed, weight, n = self.support.allowed(), self._rows(), len(uniforms)

        def make(first: int, last: int) -> np.ndarray:
            return self._table(unbroken(np.broadcast_to(weight, (last - first, *weight.shape)), uniforms[first:last]))

        return in_blocks(allowed, n, block_of(allowed, n), make)


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
    if (log.states, log.actions) != support.shape[:2]:
        raise InputError(
            f"the log is for {log.states} states and {log.actions} actions, "
            f"the posterior for {support.states} and {support.actions}"
        )
    counts = np.array(counts)
    state, action = np.asarray(log.state), np.asarray(log.action)
    if support.is_dense:
        slot = np.asarray(log.next_state)
    else:
        match = (support.index()[state, action] == np.asarray(log.next_state)[:, None]) & (
            support.allowed()[state, action]
        )
        lost = ~match.any(axis=1)
        if lost.any():
            row = int(np.argmax(lost))
            raise InputError(
                f"row {row} of the log goes from state {state[row]} by action {action[row]} to state "
                f"{int(np.asarray(log.next_state)[row])}, which the support does not allow; "
                "add it to the support or correct the log"
            )
        slot = match.argmax(axis=1)
    np.add.at(counts, (state, action, slot), np.asarray(log.count))
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
