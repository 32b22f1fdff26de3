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

from ..arrays import Array, in_float64, to_numpy
from ..deferred import jax, jitted
from ..engine import Factors, Krylov, Method, ModelBatch
from ..errors import InputError
from ..kernels import Kernel, Support
from ..losses import Loss
from ..models import MDP, AbstractFamily
from ..planning import DrawPlans, Moves, differing, plan_draws
from ..records import field
from .families import AbstractEventFamily
from .visits_and_values import beyond, numba_sweeps, values_of, visits_of

# Draws that are worked on together: each number of them is compiled for itself, so that some are filled up.
TOGETHER = (1, 4, 8)

# Visits that are kept until the draws with a weight are known; beyond, they are found again.
KEPT_BYTES = 2**30

# Accuracy of the plan whose values the others begin at.
ROUGH = 1e-3

# From here on an event family is solved by sweeps; up to here its models are small as tables.
LARGEST_TABLES = 4000


class Sweeps(Method):
    """Sweeps over the states of an event family, in the place of a linear solver: nothing of a kernel is stored.

    Chosen by itself for event families with more than 4,000 states. Where derivatives of single draws are asked for, it
    falls back on `Krylov`.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake()
    >>> policy = pr.plan(lake.at((0.3, 0.02))).policy
    >>> sweeps = pr.Exact(pr.Sweeps.of(lake.support))
    >>> close = pr.loss_at(policy, lake, (0.3, 0.02), occupancy=sweeps)  # doctest: +SKIP
    >>> bool(abs(pr.loss_at(policy, lake, (0.3, 0.02)) - close) < 1e-7)  # doctest: +SKIP
    True

    Args:
        krylov: what derivatives of single draws are found by.
        left_out: share of the discounted visits that may be left out.
    """

    krylov: Krylov
    left_out: float = field(static=True, default=1e-10)

    def __check_init__(self) -> None:
        if not 0.0 < self.left_out < 1.0:
            raise InputError(f"Sweeps left_out must be in (0, 1), got {self.left_out}")

    @staticmethod
    def of(support: Support, left_out: float = 1e-10) -> Sweeps:
        """For one support."""
        return Sweeps(Krylov.of(support), left_out)

    @staticmethod
    def suits(support: Support) -> bool:
        """Whether models of this size are better worked on by sweeps, and can be."""
        return support.states > LARGEST_TABLES

    def fits(self, successor: Any) -> bool:
        """Return whether the fallback fits."""
        return self.krylov.fits(successor)

    def model_bytes(self) -> int:
        """Return the memory of one model in the fallback."""
        return self.krylov.model_bytes()

    def factor(self, models: ModelBatch, policy: Float[np.ndarray, "S A N"]) -> Factors:
        """Return the chain of the fallback."""
        return self.krylov.factor(models, policy)


class Engine(NamedTuple):
    """An event family under a loss."""

    family: AbstractEventFamily
    loss: Loss
    left_out: float

    def moves(self, thetas: Float[np.ndarray, "N ..."]) -> Moves:
        """The kernels of a few draws."""
        events = np.ascontiguousarray(np.moveaxis(to_numpy(_events(self.family, thetas)), 0, -1))
        classes = np.ascontiguousarray(self.family.class_table(len(events)), dtype=np.int32)
        index = np.ascontiguousarray(self.family.support.successor, dtype=np.int32)
        return Moves(index, classes, events, float(self.family.discount))

    def visits(self, moves: Moves, policy: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S N"]:
        """How often the policy meets each state."""
        return visits_of(moves, policy, np.asarray(self.family.start)[:, None], self.left_out)

    def losses(self, policy: Float[np.ndarray, "S A"], thetas: Float[np.ndarray, "R ..."]) -> Float[np.ndarray, " R"]:
        """The policy's loss at every draw."""

        def work(rows: np.ndarray) -> np.ndarray:
            return self._judged(policy, thetas[rows], self.visits(self.moves(thetas[rows]), policy))

        return np.concatenate(list(_mapped(work, _groups(len(thetas)))))[: len(thetas)]

    def derived(
        self,
        policy: Float[np.ndarray, "S A"],
        thetas: Float[np.ndarray, "R ..."],
        weigh: Callable[[Float[np.ndarray, " R"]], Float[np.ndarray, " R"]],
    ) -> tuple[Float[np.ndarray, " R"], Float[np.ndarray, "S A"], Float[np.ndarray, " S"]]:
        """Losses, and derivative and visits of their average under what `weigh` makes of them; 0 weight is no work.

        Args:
            policy: the table.
            thetas: draws.
            weigh: losses to weights.
        """
        kept = 8 * len(policy) * len(thetas) <= KEPT_BYTES
        groups, most = _groups(len(thetas)), TOGETHER[-1]

        def first(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
            visits = self.visits(self.moves(thetas[rows]), policy)
            return self._judged(policy, thetas[rows], visits), visits if kept else None

        parts = list(_mapped(first, groups))
        losses = np.concatenate([part[0] for part in parts])[: len(thetas)]
        shares = weigh(losses)
        tail = np.flatnonzero(shares)

        def second(places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            rows = tail[places]
            moves = self.moves(thetas[rows])
            # A draw that fills a group up is its last one again.
            weights = shares[rows] * (np.diff(places, prepend=-1) > 0)
            if kept:
                columns = [parts[row // most][1][:, row % most] for row in rows]  # pyright: ignore[reportOptionalSubscript]
                visits = np.stack(columns, axis=1)
            else:
                visits = self.visits(moves, policy)
            return self._slope(moves, policy, thetas[rows], visits, weights), visits @ weights

        slope, visits = np.zeros(policy.shape), np.zeros(len(policy))
        for part, met in _mapped(second, _groups(len(tail))):
            slope += part
            visits += met
        return losses, slope, visits

    def _slope(
        self, moves: Moves, policy: np.ndarray, thetas: np.ndarray, visits: np.ndarray, shares: np.ndarray
    ) -> Float[np.ndarray, "S A"]:
        paid, slope = (np.array(part) for part in _derivative(self.family, self.loss, thetas, policy, visits, shares))
        met = visits.any(axis=1)
        order = np.flatnonzero(met).astype(np.int32)
        often, costs = visits[order], paid[order]
        level = (often * costs).sum(axis=0) / often.sum(axis=0) / (1.0 - moves.discount)
        error = self.left_out * float(np.abs(costs).max(initial=0.0)) / (1.0 - moves.discount)
        # An action that the policy does not take may lead to where the policy never goes.
        read = met if met.all() else met | beyond(moves, policy, visits, self.left_out).any(axis=1)
        values = values_of(moves, policy, paid, np.flatnonzero(read).astype(np.int32), level, error)
        numba_sweeps().slopes(*moves.kernels, moves.discount, visits, values, shares, order, slope)
        return slope

    def _judged(self, policy: np.ndarray, thetas: np.ndarray, visits: np.ndarray) -> Float[np.ndarray, " N"]:
        return np.asarray(_losses(self.family, self.loss, thetas, policy, visits))

    def plans(self, thetas: Float[np.ndarray, "R ..."], error: float) -> Iterator[DrawPlans]:
        """Plans of draws for a linear loss, eight at a time, each begun at roughly the values of one draw.

        Args:
            thetas: draws.
            error: of the least loss, as a share of what the spread of the costs could make of it.
        """
        depth = numba_sweeps().depths(self.moves(thetas[:1]).index, np.asarray(self.family.start))
        groups, first = _groups(len(thetas)), None
        if len(groups) > 1:
            first = self._planned(thetas[len(thetas) // 2][None], max(ROUGH, error), depth, None).values
        for number, plans in enumerate(_mapped(lambda rows: self._planned(thetas[rows], error, depth, first), groups)):
            count = len(thetas) - number * TOGETHER[-1]
            few = {name: getattr(plans, name)[..., :count] for name in ("action", "values", "low", "high")}
            yield plans._replace(**few)

    def _planned(self, thetas: np.ndarray, error: float, depth: np.ndarray, first: np.ndarray | None) -> DrawPlans:
        moves = self.moves(thetas)
        costs = differing(np.moveaxis(np.asarray(_cost_tables(self.family, self.loss, thetas)), 0, -1))
        # Costs that are all alike are planned for at once: every policy is right.
        spread = float(np.ptp(costs)) or float(np.abs(costs).max())
        allowed = error * spread / (1.0 - moves.discount)
        return plan_draws(moves, costs, np.asarray(self.family.start), depth, allowed, first)


def _groups(count: int) -> list[np.ndarray]:
    """Numbers of draws that are worked on together, the last of them filled up with the last draw."""
    most, groups = TOGETHER[-1], []
    for begin in range(0, count, most):
        size = next(size for size in TOGETHER if size >= min(most, count - begin))
        groups.append(np.minimum(np.arange(begin, begin + size), count - 1))
    return groups


def _mapped(work: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
    """In order, on as many threads as there are processors; at most as many results wait as are worked on."""
    workers = min(len(items), os.cpu_count() or 1)
    if workers <= 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(in_float64(work), items)


def model_at(family: AbstractFamily, theta: Array) -> MDP:
    """The model at theta inside compiled code, unchecked."""
    # A loss that does not ask for the kernel has none made.
    return MDP(Kernel(family.support, family.probability(theta)), family.cost(theta), family.start, family.discount)


@jitted
def _events(family: AbstractEventFamily, thetas: Array) -> Float[Array, "N C E"]:
    return jax.vmap(family.events)(thetas)


def _every(family: AbstractEventFamily, loss: Loss, thetas: Array, policy: Array, visits: Array) -> Array:
    def one(theta: Array, visits: Array) -> Array:
        return loss(visits[:, None] * policy, model_at(family, theta))

    return jax.vmap(one, in_axes=(0, -1))(thetas, visits)


_losses = jitted(_every)


@jitted
def _derivative(
    family: AbstractEventFamily, loss: Loss, thetas: Array, policy: Array, visits: Array, shares: Array
) -> tuple[Array, Array]:
    """`z_pi [S, N]`, and `sum_n w_n mu_n z_n [S, A]`."""
    _, back = jax.vjp(lambda *at: _every(family, loss, thetas, *at), policy, visits)
    return back(jax.numpy.ones_like(shares))[1], back(shares)[0]


@jitted
def _cost_tables(family: AbstractEventFamily, loss: Any, thetas: Array) -> Float[Array, "N S A"]:
    return jax.vmap(lambda theta: loss.linear(model_at(family, theta)))(thetas)
