"""Costs that are not known exactly, beside a belief about transition probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import special

from ..arrays import Array, as_float, is_concrete, require_finite, require_kind
from ..errors import InputError
from ..kernels import Support
from ..records import field
from ..transitions import Log, Transitions
from .base import AbstractTable, Invertible, as_labels, in_blocks, updated

_as_groups = as_labels("group of costs")


class WithCosts(Invertible):
    """Transition probabilities and noisy costs, learned from one log; theta is `[S, A, B + C]`.

    The first B entries of a pair are its probabilities, the others its costs: one for the pair, or one for each
    successor. A cost is `cost + spread * t`, with t of Student's distribution: the posterior of a mean of n noisy costs
    whose variance is not known has `spread = sqrt(variance / n)`. All costs of a group share that variance, so that
    their errors are large together. Costs and probabilities are independent given the log. The family that reads such
    a theta is a `TabularFamily` with `cost=None`.

    >>> import numpy as np, prudent as pr
    >>> support = pr.Support.dense(2, 1)
    >>> table = pr.Dirichlet.symmetric(support)
    >>> belief = pr.WithCosts(table, cost=[[1.0], [0.0]], spread=[[0.2], [0.0]], degrees=[12])
    >>> family = pr.TabularFamily(support, cost=None, start=0, discount=0.9)
    >>> family.at(belief.mean()).cost.tolist()
    [[1.0], [0.0]]
    >>> bool(np.std(belief.sample(0, 1000)[:, 0, 0, 2]) > 0.2)
    True

    Args:
        posterior: of the transition table, such as a `Dirichlet` or a `Pooled`.
        cost: `[S, A]` of each pair, or `[S, A, B]` of each transition.
        spread: of the same shape, >= 0; 0 where a cost is known.
        degrees: `[G]` degrees of freedom of each group, above 2 so that the variance of a cost is finite.
        group: of the same shape as the cost, below G; all 0 when left out.
    """

    posterior: AbstractTable
    cost: Float[Array, "S A C"]
    spread: Float[Array, "S A C"]
    degrees: Float[Array, " G"]
    group: Int[Array, "S A C"] = field(converter=_as_groups)

    def __init__(self, posterior: AbstractTable, cost: Any, spread: Any, degrees: Any, group: Any = None):
        require_kind("posterior", posterior, AbstractTable, "a posterior of a table, such as Dirichlet or Pooled")
        self.posterior = posterior
        self.cost, self.spread = (_by_pair(as_float(each, name)) for each, name in ((cost, "cost"), (spread, "spread")))
        self.degrees = as_float(degrees, "degrees")
        self.group = np.zeros(np.shape(self.cost), np.int32) if group is None else _by_pair(_as_groups(group))
        if is_concrete(self.cost):
            self._check()

    def _check(self) -> None:
        states, actions, successors = self.posterior.support.shape
        if self.cost.shape not in ((states, actions, 1), (states, actions, successors)):
            raise InputError(
                f"cost must have shape {(states, actions)} (state, action) or {self.posterior.support.shape} (a cost "
                f"for each transition along the support), got {self.cost.shape}"
            )
        for name, array in (("spread", self.spread), ("group", self.group)):
            if array.shape != self.cost.shape:
                raise InputError(f"{name} must have the cost's shape {self.cost.shape}, got {array.shape}")
        require_finite("cost", np.asarray(self.cost))
        require_finite("spread", np.asarray(self.spread))
        if np.any(self.spread < 0):
            raise InputError(f"spread must be >= 0, got {self.spread.min()}")
        if self.degrees.ndim != 1 or not np.all(np.asarray(self.degrees) > 2.0):
            raise InputError(f"degrees must be a list of numbers above 2, one for each group, got {self.degrees}")
        if np.any(self.group >= len(self.degrees)):
            raise InputError(f"group {self.group.max()} has no degrees; there are {len(self.degrees)}, from 0")

    @property
    def support(self) -> Support:
        """Where each pair can lead."""
        return self.posterior.support

    @property
    def counts(self) -> Float[Array, "S A B"]:
        """Observed counts of transitions."""
        return self.posterior.counts  # pyright: ignore[reportAttributeAccessIssue]

    def update(self, log: Transitions | Log) -> WithCosts:
        """Learn the transitions of a log; what is believed of costs stays, since such a log has none."""
        learned = updated(self.posterior, log, "use a Dirichlet or a Pooled")
        return WithCosts(learned, self.cost, self.spread, self.degrees, self.group)

    def mean(self) -> Float[np.ndarray, "S A E"]:
        """Posterior mean of theta."""
        return np.concatenate([self.posterior.mean(), self.cost], axis=-1)  # pyright: ignore[reportAttributeAccessIssue]

    def maximum_likelihood(self, unseen: Any = None) -> Float[np.ndarray, "S A E"]:
        """Observed frequencies, and mean costs; `unseen` is a theta whose rows stand in for pairs without data."""
        rows = None if unseen is None else np.asarray(as_float(unseen, "unseen"))[..., : self.support.successors]
        frequencies = self.posterior.maximum_likelihood(rows)  # pyright: ignore[reportAttributeAccessIssue]
        return np.concatenate([frequencies, self.cost], axis=-1)

    def draw(self, generator: np.random.Generator, n: int) -> Float[np.ndarray, "N S A E"]:
        """`n` tables with their costs."""
        tables = self.posterior.draw(generator, n)
        chi_square = 2.0 * generator.standard_gamma(0.5 * self._finite_degrees(), size=(n, len(self.degrees)))
        return self._joined(tables, chi_square, generator.standard_normal((n, int(self._noisy().sum()))))

    @property
    def uniform_dimension(self) -> int:
        """Those of the table, one for each group, and one for each cost that is not known."""
        return self.posterior.uniform_dimension + len(self.degrees) + int(self._noisy().sum())

    def from_uniform(self, uniforms: Float[np.ndarray, "N K"]) -> Float[np.ndarray, "N S A E"]:
        """The table's draws, then variances and costs by inverse CDFs."""
        first = self.posterior.uniform_dimension
        last = first + len(self.degrees)
        chi_square = 2.0 * special.gammaincinv(0.5 * self._finite_degrees(), uniforms[:, first:last])
        tables = self.posterior.from_uniform(uniforms[:, :first])
        return self._joined(tables, chi_square, special.ndtri(uniforms[:, last:]))

    def _noisy(self) -> np.ndarray:
        return np.asarray(self.spread) > 0

    def _finite_degrees(self) -> np.ndarray:
        """Without end, degrees are a variance that is known; the limit is met at any large number."""
        return np.minimum(np.asarray(self.degrees), 1e12)

    def _joined(
        self, tables: np.ndarray, chi_square: Float[np.ndarray, "N G"], normal: Float[np.ndarray, "N F"]
    ) -> Float[np.ndarray, "N S A E"]:
        noisy, cost, n = self._noisy(), np.asarray(self.cost), len(tables)
        spread, group = (np.asarray(each)[noisy] for each in (self.spread, self.group))

        def make(first: int, last: int) -> np.ndarray:
            costs = np.repeat(cost[None], last - first, axis=0)
            scale = np.sqrt(self._finite_degrees() / chi_square[first:last])[:, group]
            costs[:, noisy] += spread * scale * normal[first:last]
            return np.concatenate([tables[first:last], costs], axis=-1)

        some = np.concatenate([self.support.allowed(), noisy | (cost != 0)], axis=-1)
        return in_blocks(some, n, make)


def _by_pair(array: Any) -> Any:
    """Costs of pairs as one of each pair's entries."""
    return array[..., None] if np.ndim(array) == 2 else array
