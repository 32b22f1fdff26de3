"""Losses of a policy in the models of an event family, and their derivatives averaged over draws.

Draws are worked on eight at a time, which is what a line of the cache holds, each eight by a thread of its own. With
the visits mu of a policy, a loss's derivative by them, `z_pi`, and the values V that solve `M V = z_pi`,

    d sum_n w_n C_n / d pi(a | s) = sum_n w_n mu_n(s) (z_n(s, a) + discount (P_n V_n)(s, a)),

of which only the sum over the draws is ever kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..arrays import in_float64
from ..engine import ModelBatch, ModelPlans, add_slopes, beyond, depths_of, plan, values_of, visits_of
from ..losses import Loss, as_loss, is_linear
from .families import AbstractEventFamily

# Draws that are worked on together: each number of them is compiled for itself, so that some are filled up.
TOGETHER = (1, 4, 8)

# Visits that are kept until the draws with a weight are known; beyond, they are found again.
KEPT_BYTES = 2**30

# Accuracy of the plan whose values the others begin at.
ROUGH = 1e-3


class Engine(NamedTuple):
    """An event family under a loss."""

    family: AbstractEventFamily
    loss: Loss
    left_out: float

    def models(self, thetas: Float[np.ndarray, "N ..."]) -> ModelBatch:
        """Return the models of a few draws."""
        models = self.family.models(thetas)
        return models._replace(probability=np.ascontiguousarray(models.probability))

    def visits(self, models: ModelBatch, policy: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S N"]:
        """Return how often the policy visits each state."""
        return visits_of(models, policy, models.start[:, None], self.left_out)

    def losses(self, policy: Float[np.ndarray, "S A"], thetas: Float[np.ndarray, "R ..."]) -> Float[np.ndarray, " R"]:
        """Return the policy's loss at every draw."""

        def work(rows: np.ndarray) -> np.ndarray:
            models = self.models(thetas[rows])
            return self._judge(policy, models, self.visits(models, policy))

        return np.concatenate(list(_mapped(work, _groups(len(thetas)))))[: len(thetas)]

    def derived(
        self,
        policy: Float[np.ndarray, "S A"],
        thetas: Float[np.ndarray, "R ..."],
        weigh: Callable[[Float[np.ndarray, " R"]], Float[np.ndarray, " R"]],
    ) -> tuple[Float[np.ndarray, " R"], Float[np.ndarray, "S A"], Float[np.ndarray, " S"]]:
        """Return losses, and derivative and visits of their average by weights; a weight of 0 is no work.

        Args:
            policy: the table.
            thetas: draws.
            weigh: losses to weights.
        """
        kept = 8 * len(policy) * len(thetas) <= KEPT_BYTES
        groups, most = _groups(len(thetas)), TOGETHER[-1]

        def first(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
            models = self.models(thetas[rows])
            visits = self.visits(models, policy)
            return self._judge(policy, models, visits), visits if kept else None

        parts = list(_mapped(first, groups))
        losses = np.concatenate([part[0] for part in parts])[: len(thetas)]
        shares = weigh(losses)
        tail = np.flatnonzero(shares)

        def second(places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            rows = tail[places]
            models = self.models(thetas[rows])
            # A draw that fills a group up is its last one again.
            weights = shares[rows] * (np.diff(places, prepend=-1) > 0)
            if kept:
                columns = [parts[row // most][1][:, row % most] for row in rows]  # pyright: ignore[reportOptionalSubscript]
                visits = np.stack(columns, axis=1)
            else:
                visits = self.visits(models, policy)
            return self._slope(models, policy, visits, weights), visits @ weights

        slope, visits = np.zeros(policy.shape), np.zeros(len(policy))
        for part, met in _mapped(second, _groups(len(tail))):
            slope += part
            visits += met
        return losses, slope, visits

    def _slope(
        self, models: ModelBatch, policy: np.ndarray, visits: np.ndarray, shares: np.ndarray
    ) -> Float[np.ndarray, "S A"]:
        """Return the derivative of the weighted losses by the policy."""
        tables = self._tables(models)
        if tables is None:
            tables = as_loss(self.loss).value_and_gradient(visits[:, None] * policy[:, :, None], models)[1]
        paid = np.ascontiguousarray(np.broadcast_to(np.einsum("sa,san->sn", policy, tables), visits.shape))
        slope = np.einsum("sn,san->sa", visits * shares, np.broadcast_to(tables, (*policy.shape, models.size)))
        met = visits.any(axis=1)
        order = np.flatnonzero(met).astype(np.int32)
        often, costs = visits[order], paid[order]
        level = (often * costs).sum(axis=0) / often.sum(axis=0) / (1.0 - models.discount)
        error = self.left_out * float(np.abs(costs).max(initial=0.0)) / (1.0 - models.discount)
        # An action that the policy does not take may lead to where the policy never goes.
        read = met if met.all() else met | beyond(models, policy, visits, self.left_out).any(axis=1)
        values = values_of(models, policy, paid, np.flatnonzero(read).astype(np.int32), level, error)
        add_slopes(models, visits, values, shares, order, slope)
        return slope

    def _judge(self, policy: np.ndarray, models: ModelBatch, visits: np.ndarray) -> Float[np.ndarray, " N"]:
        """Return the loss of each model."""
        tables = self._tables(models)
        if tables is None:
            return as_loss(self.loss).value(visits[:, None] * policy[:, :, None], models)
        return (visits * np.einsum("sa,san->sn", policy, tables)).sum(axis=0)

    def _tables(self, models: ModelBatch) -> Float[np.ndarray, "S A n"] | None:
        """Return the cost tables of a linear loss; actions or models that cost alike may be kept once."""
        return as_loss(self.loss).cost_tables(models) if is_linear(self.loss) else None

    def plans(self, thetas: Float[np.ndarray, "R ..."], error: float) -> Iterator[ModelPlans]:
        """Yield plans of draws for a linear loss, eight at a time, each begun at roughly the values of one draw.

        Args:
            thetas: draws.
            error: of the least loss, as a share of what the spread of the costs could make of it.
        """
        one = self.models(thetas[len(thetas) // 2][None])
        depth = depths_of(one)
        groups, guess = _groups(len(thetas)), None
        if len(groups) > 1:
            guess = self._plan(one, max(ROUGH, error), depth, None).values
        for number, plans in enumerate(
            _mapped(lambda rows: self._plan(self.models(thetas[rows]), error, depth, guess), groups)
        ):
            count = len(thetas) - number * TOGETHER[-1]
            yield ModelPlans(*(part[..., :count] for part in plans))

    def _plan(self, models: ModelBatch, error: float, depth: np.ndarray, guess: np.ndarray | None) -> ModelPlans:
        costs = self._tables(models)
        assert costs is not None
        # Costs that are all alike are planned for at once: every policy is right.
        spread = float(np.ptp(costs)) or float(np.abs(costs).max())
        return plan(models, costs, error * spread / (1.0 - models.discount), guess, depth)


def _groups(count: int) -> list[np.ndarray]:
    """Return numbers of draws that are worked on together, the last of them filled up with the last draw."""
    most, groups = TOGETHER[-1], []
    for begin in range(0, count, most):
        size = next(size for size in TOGETHER if size >= min(most, count - begin))
        groups.append(np.minimum(np.arange(begin, begin + size), count - 1))
    return groups


def _mapped(work: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
    """Yield results in order, from as many threads as there are processors; few results wait."""
    workers = min(len(items), os.cpu_count() or 1)
    if workers <= 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(in_float64(work), items)
