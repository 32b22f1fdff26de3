"""Plans of single draws: where a search over tables may begin, and what no table can beat."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from ..arrays import Array, as_float
from ..errors import InputError
from ..kernels import Kernel
from ..losses import ConvexLoss, ExpectedCost, Loss
from ..models import MDP, AbstractFamily, models_at, tables_at
from ..occupancies import Method
from ..planning import LARGEST_DIRECT, ConvexSearch, least_costs, plan, plan_many, robust_actions, searched
from ..posteriors import Posterior, WeightedDraws
from .base import Planned, Plans, Weigh, Weighted, Weights

# So many deterministic policies are all tried.
FEW_POLICIES = 256

# What arithmetic rounds by.
EPSILON = float(np.finfo(float).eps)

# Pairs up to which convex losses are planned for: each plan takes Newton steps of this dimension.
LARGEST_CONVEX = 400

# Accuracy of plans that are starts, a share of the loss's spread, and their steps: they are where a search begins.
ROUGH, ROUGH_STEPS = 1e-2, 200

# Fresh draws of which a bound is made where a plan of each takes long: convex losses and large models.
FEW_DRAWS = 16

# Atoms of which each is planned for by itself where a plan takes long.
MOST_PLANNED_ATOMS = 64

# Kernels of draws that are planned for together behind a bound.
PLANNED_BYTES = 128 * 2**20

# Accuracy of convex plans behind a bound, a share of the loss's spread; a bound holds at any accuracy.
CONVEX_ACCURACY = 1e-4


def linear_cost(loss: Loss, mdp: MDP) -> Any:
    """The cost table of a loss that is linear in the occupancy; None for any other."""
    if isinstance(loss, ExpectedCost):
        return mdp.cost
    if not isinstance(loss, ConvexLoss) or jax.tree.leaves(jax.eval_shape(loss.image, mdp.cost, mdp)):
        return None
    return loss.linear(mdp)


class TabularPlans(Plans):
    """Policy iteration for linear losses, the convex planner for others."""

    family: AbstractFamily
    loss: Loss
    occupancy: Method

    def planned(self, belief: Posterior, draws: WeightedDraws, most: int, weigh: Weights | None = None) -> Planned:
        """Tables of the mean, of the maximum likelihood, against all draws, of single draws; few policies all."""
        del weigh
        family, thetas = self.family, draws.thetas
        centres = [
            model for model in (_model_at(family, theta) for theta in centres_of(belief, draws)) if model is not None
        ]
        states, actions = family.support.shape[:2]
        first = family.at(thetas[0])
        if linear_cost(self.loss, first) is None:
            if states * actions > LARGEST_CONVEX:
                return _ordered([], (states, actions))
            models = [*centres, first][: min(3, most)]
            searches = [ConvexSearch(mdp, self.loss, None, ROUGH) for mdp in models]
            plans = [searched(search, ROUGH_STEPS, time.perf_counter()) for search in searches]
            return _ordered([best.policy.probabilities for best in plans], (states, actions))
        if states > LARGEST_DIRECT:
            plans = [plan(eqx.tree_at(lambda m: m.cost, mdp, linear_cost(self.loss, mdp))) for mdp in centres[:1]]
            return _ordered([best.policy.probabilities for best in plans], (states, actions))
        probability, cost = linear_models(family, self.loss, thetas)
        discount = float(family.discount)
        chosen = [robust_actions(family.support, probability, cost, discount)]
        if centres:
            tables = np.stack([np.asarray(mdp.kernel.probability) for mdp in centres])
            costs = np.stack([np.asarray(linear_cost(self.loss, mdp)) for mdp in centres])
            chosen += list(plan_many(family.support, tables, costs, discount).action)
        plans = plan_many(family.support, probability, cost, discount)
        chosen += list(plans.action)
        if actions**states <= FEW_POLICIES:
            chosen += [np.array(row) for row in itertools.product(range(actions), repeat=states)]
        different = {tuple(int(action) for action in row) for row in chosen}
        return Planned(np.eye(actions)[np.array(sorted(different))], plans.values @ np.asarray(family.start))

    def least(self, draws: WeightedDraws, point: np.ndarray) -> tuple[Float[np.ndarray, " M"] | None, str]:
        """Exact plans of linear losses, less their rounding; certified lower bounds of convex ones."""
        family, thetas = self.family, draws.thetas
        support, discount = family.support, float(family.discount)
        linear = linear_cost(self.loss, family.at(thetas[0])) is not None
        if not linear and self.occupancy.horizon is not None:
            return None, "a truncated occupancy of a loss that is not linear has no planner"
        if not linear or support.states > LARGEST_DIRECT:
            # A few of the draws are a sample as well; a few of the atoms are not.
            if draws.exact and len(draws) > MOST_PLANNED_ATOMS:
                return None, f"each of {len(draws)} atoms would have to be planned for by itself, which takes too long"
            thetas = thetas if draws.exact else thetas[:FEW_DRAWS]
        if not linear:
            return self._least_convex(thetas)
        start, first, horizon = np.asarray(family.start), point.argmax(axis=1), self.occupancy.horizon
        size = max(1, PLANNED_BYTES // (8 * int(np.prod(support.shape))))
        models = (linear_models(family, self.loss, thetas[k : k + size]) for k in range(0, len(thetas), size))
        least = [least_costs(support, *each, start, discount, horizon=horizon, first=first) for each in models]
        return np.concatenate(least), ""

    def weighted(self, others: Sequence[Plans], thetas: Float[np.ndarray, "M ..."]) -> Weigh | None:
        """Plans of weighted sums of cost tables; by the convex planner, at few draws, where one is not linear."""
        plans = [self, *others]
        if not all(isinstance(each, TabularPlans) for each in plans):
            return None
        losses: list[Any] = [each.loss for each in plans]  # pyright: ignore[reportAttributeAccessIssue]
        family, first, horizon = self.family, self.family.at(thetas[0]), self.occupancy.horizon
        if any(linear_cost(loss, first) is None for loss in losses):
            # One model for all losses: in units of their own they have several.
            one = all(each.family is family for each in plans)  # pyright: ignore[reportAttributeAccessIssue]
            few = one and len(thetas) <= MOST_PLANNED_ATOMS and horizon is None
            return partial(_weighed_convex, [family.at(theta) for theta in thetas], losses) if few else None
        models = [linear_models(each.family, each.loss, thetas) for each in plans if isinstance(each, TabularPlans)]
        probability, costs = models[0][0], np.stack([cost for _, cost in models])
        start, discount = np.asarray(family.start), float(family.discount)

        def weigh(weights: Float[np.ndarray, "G M"]) -> Weighted:
            cost = np.einsum("gm,gmsa->msa", weights, costs)
            plan = plan_many(family.support, probability, cost, discount)
            least = plan.values @ start - plan.error - start.size * EPSILON * np.abs(plan.values).max(axis=1)
            if horizon is not None:
                least = least_costs(family.support, probability, cost, start, discount, horizon=horizon)
            return Weighted(np.eye(cost.shape[2])[plan.action], least)

        return weigh

    def _least_convex(self, thetas: np.ndarray) -> tuple[np.ndarray | None, str]:
        lows = np.empty(len(thetas))
        for k, theta in enumerate(thetas):
            search = ConvexSearch(self.family.at(theta), self.loss, None, CONVEX_ACCURACY)
            lows[k] = searched(search, 100, time.perf_counter()).lower_bound
        if not np.all(np.isfinite(lows)):
            return None, "the loss has no finite lower bound at a posterior draw"
        return lows, ""


def _weighed_convex(models: list[MDP], losses: list[Any], weights: Float[np.ndarray, "G M"]) -> Weighted:
    found = []
    for model, row in zip(models, weights.T, strict=True):
        total: Any = sum(float(weight) * loss for weight, loss in zip(row, losses, strict=True))
        found.append(searched(ConvexSearch(model, total, None, CONVEX_ACCURACY), 100, time.perf_counter()))
    tables = np.stack([np.asarray(best.policy.probabilities) for best in found])
    return Weighted(tables, np.array([best.lower_bound for best in found]))


def _ordered(tables: list[Any], shape: tuple[int, int]) -> Planned:
    """Tables in the order in which they are preferred."""
    return Planned(np.stack([np.asarray(table) for table in tables]) if tables else np.empty((0, *shape)), None)


def centres_of(belief: Posterior, draws: WeightedDraws) -> list[np.ndarray]:
    """The posterior mean, of the draws if need be, and the maximum likelihood if the belief knows it."""
    found = []
    for name in ("mean", "maximum_likelihood"):
        try:
            centre = np.asarray(as_float(getattr(belief, name)()))
        except (AttributeError, InputError):
            continue
        if centre.shape == draws.thetas.shape[1:] and np.all(np.isfinite(centre)):
            found.append(centre)
    return found or [np.tensordot(draws.probabilities, draws.thetas, axes=1)]


def _model_at(family: AbstractFamily, theta: np.ndarray) -> MDP | None:
    """The model, or None where the family has none: a mean need not be a possible theta."""
    try:
        return family.at(theta)
    except InputError:
        return None


def linear_models(family: AbstractFamily, loss: Loss, thetas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Kernels `[N, S, A, B]` and the cost tables `[N, S, A]` of a linear loss, at each theta."""
    if isinstance(loss, ExpectedCost):
        return tables_at(family, thetas)
    probability, cost = _linear_models(family, loss, thetas)
    return np.asarray(probability), np.asarray(cost)


@eqx.filter_jit
def _linear_models(family: AbstractFamily, loss: Loss, thetas: Array) -> tuple[Array, Array]:
    probability, cost = models_at(family, thetas, 0)

    def table(probability: Array, cost: Array) -> Array:
        return linear_cost(loss, MDP(Kernel(family.support, probability), cost, family.start, family.discount))

    return probability, jax.vmap(table)(probability, cost)
