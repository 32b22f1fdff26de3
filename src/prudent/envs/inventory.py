"""Inventory: how much to order when the distribution of demand is unknown."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from ..arrays import Array, as_float, namespace_of, require_distribution, require_kind, require_number, require_size
from ..errors import InputError
from ..kernels import Support
from ..models import AbstractFamily
from ..posteriors import Dirichlet
from ..records import field
from ..seeds import Stream, generator
from ..transitions import Transitions
from .coins import amounts
from .unknown_tables import TabularProblem


class Inventory(AbstractFamily):
    """Stock reviewed every period: theta is the distribution of demand on `0..D`.

    State k is a stock of `k - D` after the last demand: below zero it tells how much of it was not met. Action a
    orders a units, which come before the next demand; what does not fit into the store is not ordered. Unmet
    demand is lost, or with a backlog it is owed and served first. A period costs so much for placing an order, for
    each unit ordered, held over and short. Build one with `inventory`.

    All pairs have the same demand, which the prior knows: its rows are tied. Theta is one distribution `[D + 1]`,
    or a table `[S, A, D + 1]` of them, which is what a `Dirichlet` draws.

    Attributes:
        costs: `[S, A, D + 1]` cost of a period with each demand.
        prior: the uniform distribution over all distributions of demand.
        truth: `[D + 1]` the distribution data come from when nothing else is said.
        most_demand: D.
    """

    support: Support
    start: Float[Array, " S"]
    discount: Float[Array, ""]
    costs: Float[Array, "S A B"]
    prior: Dirichlet
    truth: Float[Array, " B"]
    most_demand: int = field(static=True)

    def probability(self, theta: Array) -> Float[Array, "S A B"]:
        """Along the successors, from no demand to the most."""
        shape = np.shape(theta)
        if shape not in ((self.most_demand + 1,), self.support.shape):
            raise InputError(
                f"theta of an inventory is a distribution of demand, shape {(self.most_demand + 1,)}, or a table of "
                f"them, shape {self.support.shape}; got shape {shape}"
            )
        return namespace_of(theta).broadcast_to(theta, self.support.shape)

    def cost(self, theta: Array) -> Float[Array, "S A"]:
        """Mean cost of a period."""
        return (self.costs * self.probability(theta)).sum(axis=2)

    def tables(self, thetas: Float[np.ndarray, "N ..."]) -> tuple[np.ndarray, np.ndarray]:
        """Return kernels and costs of N thetas."""
        self.probability(thetas[0])
        rows = thetas if thetas.ndim == 4 else thetas[:, None, None]
        probability = np.broadcast_to(rows, (len(thetas), *self.support.shape))
        return probability, (np.asarray(self.costs) * probability).sum(axis=3)

    def trials(self, n: int, truth: Any = None, seed: Any = 0) -> Transitions:
        """The log of `n` demands, as transitions from a full store without an order.

        >>> import prudent as pr
        >>> shop = pr.envs.inventory()
        >>> belief = shop.prior.update(shop.trials(n=5, seed=0))
        >>> belief.mean()[0, 0].round(1).tolist() == belief.mean()[3, 2].round(1).tolist()
        True
        """
        n = require_size("n, the number of demands,", n)
        truth = check_demand(self.truth if truth is None else truth, self.most_demand)
        counts = generator(seed, Stream.TRIALS).multinomial(n, truth)
        demand = np.flatnonzero(counts)
        full, none = np.full(len(demand), self.support.states - 1), np.zeros(len(demand), dtype=int)
        return Transitions(full, none, full - demand, counts[demand], self.support.states, self.support.actions)

    def tabular(self, truth: Any = None, weight: float = 1.0) -> TabularProblem:
        """The same problem for someone who does not know that demand is the same for all pairs.

        >>> import prudent as pr
        >>> problem = pr.envs.inventory().tabular()
        >>> len(problem.transitions(n=5)) == 5 * problem.truth[..., 0].size
        True
        """
        truth = check_demand(self.truth if truth is None else truth, self.most_demand)
        return TabularProblem.of(self.at(truth), self.costs, weight)


def inventory(
    capacity: int = 6,
    most_demand: int = 4,
    *,
    most_ordered: int | None = None,
    backlog: bool = False,
    setup: float = 2.0,
    unit: float = 1.0,
    holding: float = 1.0,
    shortage: float = 10.0,
    discount: float = 0.9,
    truth: Any = (0.4, 0.3, 0.15, 0.1, 0.05),
) -> Inventory:
    """An inventory that starts empty.

    Args:
        capacity: most units in store.
        most_demand: D, the most that can be asked for in a period.
        most_ordered: in one period; the capacity when left out.
        backlog: unmet demand is owed, and at least what is owed is ordered; otherwise it is lost.
        setup: cost of placing an order.
        unit: cost of a unit ordered.
        holding: cost of a unit left over after demand.
        shortage: cost of a unit of demand that is not met.
        discount: in [0, 1).
        truth: `[D + 1]` distribution of demand that data come from; the default is for D = 4.

    >>> import prudent as pr
    >>> shop = pr.envs.inventory(capacity=2, most_demand=1, truth=[0.5, 0.5])
    >>> shop.costs[1].tolist()  # nothing in store; 0, 1 or 2 ordered; demand 0 or 1
    [[0.0, 10.0], [4.0, 3.0], [6.0, 5.0]]
    """
    capacity = require_size("capacity", capacity)
    most_demand = require_size("most_demand", most_demand)
    most_ordered = capacity if most_ordered is None else require_size("most_ordered", most_ordered)
    require_kind("backlog", backlog, bool, "True or False")
    setup, unit, holding, shortage = amounts(setup=setup, unit=unit, holding=holding, shortage=shortage)
    stock = np.arange(-most_demand, capacity + 1)[:, None]
    order, demand = np.arange(most_ordered + 1), np.arange(most_demand + 1)
    kept = stock if backlog else np.maximum(stock, 0)
    ordered = np.clip(order, np.maximum(-kept, 0), capacity - kept)
    left = (kept + ordered)[..., None] - demand
    costs = (
        (setup * (ordered > 0) + unit * ordered)[..., None]
        + holding * np.maximum(left, 0)
        + shortage * np.maximum(-left, 0)
    )
    support = Support.lists(left + most_demand)
    return Inventory(
        support=support,
        start=np.eye(support.states)[most_demand],
        discount=require_number("discount", discount, "[0, 1)"),
        costs=costs,
        prior=Dirichlet.symmetric(support, 1.0, tied=np.zeros(support.shape[:2], dtype=int)),
        truth=check_demand(truth, most_demand),
        most_demand=most_demand,
    )


def check_demand(truth: Any, most_demand: int) -> Float[np.ndarray, " B"]:
    """A distribution on `0..most_demand`."""
    array = np.asarray(as_float(truth, "truth"))
    if array.shape != (most_demand + 1,):
        raise InputError(
            f"truth must give the probability of each demand from 0 to {most_demand}, {most_demand + 1} numbers; "
            f"got shape {array.shape}"
        )
    require_distribution("truth", array)
    return array
