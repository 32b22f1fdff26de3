"""Plans of single draws: where a search over tables may begin, and what no table can beat; sweeps of large models."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from .. import engine
from ..arrays import as_float, in_float64
from ..engine import LARGEST_DIRECT, ModelBatch
from ..errors import InputError
from ..events import AbstractEventFamily, Engine
from ..losses import ConvexLoss, Loss, as_convex, batch_of, is_linear
from ..models import MDP, AbstractFamily
from ..objectives import Averaged, Averages, Planned, Plans, Weigh, Weighted, Weights
from ..occupancies import Horizon
from ..planning import ConvexSearch, least_costs, robust_actions, searched
from ..posteriors import Posterior, WeightedDraws
from .checks import check_model

# So many deterministic policies are all tried.
FEW_POLICIES = 256

# Pairs up to which convex losses are planned for: each plan takes Newton steps of this dimension.
LARGEST_CONVEX = 400

# Accuracy of plans that are starts, a share of the loss's spread, and their steps: they are where a search begins.
ROUGH, ROUGH_STEPS = 1e-2, 200

# Fresh draws of which a bound is made where a plan of each takes long: convex losses and large models.
FEW_DRAWS = 16

# Atoms of which each is planned for by itself where a plan takes long.
MOST_PLANNED_ATOMS = 64

# Draws of a large event family that a bound is made of where they are a sample, and the accuracy of its plans, a share
# of what the spread of costs could make of a loss.
MOST_SWEPT, SWEPT_ACCURACY = 64, 1e-6

# Kernels of draws that are planned for together behind a bound.
PLANNED_BYTES = 128 * 2**20

# Accuracy of convex plans behind a bound, a share of the loss's spread; a bound holds at any accuracy.
CONVEX_ACCURACY = 1e-4


def linear_cost(loss: Any, mdp: MDP) -> np.ndarray | None:
    """Return the cost table of a loss that is linear in the occupancy; None for any other."""
    return loss.cost_tables(batch_of(mdp))[:, :, 0] if is_linear(loss) else None


class TabularPlans(Plans):
    """Policy iteration for linear losses, the convex planner for others."""

    family: AbstractFamily
    loss: Loss
    occupancy: Horizon

    def planned(self, belief: Posterior, draws: WeightedDraws, most: int, weigh: Weights | None = None) -> Planned:
        """Tables of the mean, of the maximum likelihood, against all draws, of single draws; few policies all."""
        family, thetas = self.family, draws.thetas
        centres = [
            model for model in (_model_at(family, theta) for theta in centres_of(belief, draws)) if model is not None
        ]
        states, actions = family.support.shape[:2]
        if not is_linear(self.loss):
            if states * actions > LARGEST_CONVEX:
                return _ordered([], (states, actions))
            models = [*centres, family.at(thetas[0])][: min(3, most)]
            plans = [searched(ConvexSearch(mdp, self.loss, None, ROUGH), ROUGH_STEPS) for mdp in models]
            return _ordered([best.policy.probabilities for best in plans], (states, actions))
        if states > LARGEST_DIRECT:
            plans = [self._plan(batch_of(mdp)) for mdp in centres[:1]]
            return _ordered([np.eye(actions)[best.action[:, 0]] for best in plans], (states, actions))
        models = family.models(thetas)
        chosen = [robust_actions(models, self._tables(models))]
        chosen += [self._plan(batch_of(mdp)).action[:, 0] for mdp in centres]
        plans = self._plan(models)
        chosen += list(plans.action.T)
        if actions**states <= FEW_POLICIES:
            chosen += [np.array(row) for row in itertools.product(range(actions), repeat=states)]
        different = {tuple(int(action) for action in row) for row in chosen}
        least = models.start @ plans.values
        if (beside := self._beside(models)) is not None:
            least = least - beside[engine.largest_visited(models, plans.values), np.arange(models.size)]
        return Planned(np.eye(actions)[np.array(sorted(different))], least)

    def _tables(self, models: ModelBatch) -> Float[np.ndarray, "S A n"]:
        """Return the cost tables of a linear loss."""
        assert isinstance(self.loss, ConvexLoss)
        return self.loss.cost_tables(models)

    def _beside(self, models: ModelBatch) -> Float[np.ndarray, "S n"] | None:
        """Return what the loss has less than its tables, by the state that unseen shares lead to."""
        return as_convex(self.loss).beside(models)

    def _least_costs(self, models: ModelBatch, point: np.ndarray) -> Float[np.ndarray, " n"]:
        """Return a number at most the least loss of each model."""
        cost, beside = self._tables(models), self._beside(models)
        if beside is None:
            return least_costs(models, cost, self.occupancy.horizon)
        # For any one state that unseen shares may lead to it is a bound; a good one for that of a good policy.
        method = self.occupancy.method_for(self.family.support)
        target = engine.complete(method.factor(models, point[:, :, None]), cost, beside).target
        less = beside[target, np.arange(models.size)]
        hidden = len(cost) * engine.EPSILON * np.abs(less) / (1.0 - models.discount)
        return engine.plan(models, cost, target=target).low - less - hidden

    def _plan(self, models: ModelBatch) -> engine.ModelPlans:
        return engine.plan(models, self._tables(models))

    def least(self, draws: WeightedDraws, point: np.ndarray) -> tuple[Float[np.ndarray, " M"] | None, str]:
        """Exact plans of linear losses, less their rounding; certified lower bounds of convex ones."""
        family, thetas = self.family, draws.thetas
        linear, horizon = is_linear(self.loss), self.occupancy.horizon
        if not linear and horizon is not None:
            return None, "a truncated occupancy of a loss that is not linear has no planner"
        if not linear or family.support.states > LARGEST_DIRECT:
            # A few of the draws are a sample as well; a few of the atoms are not.
            if draws.exact and len(draws) > MOST_PLANNED_ATOMS:
                return None, f"each of {len(draws)} atoms would have to be planned for by itself, which takes too long"
            thetas = thetas if draws.exact else thetas[:FEW_DRAWS]
        if not linear:
            return self._least_convex(thetas)
        size = max(1, PLANNED_BYTES // (8 * int(np.prod(family.support.shape))))
        parts = (family.models(thetas[k : k + size]) for k in range(0, len(thetas), size))
        return np.concatenate([self._least_costs(models, point) for models in parts]), ""

    def weighted(self, others: Sequence[Plans], thetas: Float[np.ndarray, "M ..."]) -> Weigh | None:
        """Plans of weighted sums of cost tables; by the convex planner, at few draws, where one is not linear."""
        plans = [self, *others]
        if not all(isinstance(each, TabularPlans) for each in plans):
            return None
        losses: list[Any] = [each.loss for each in plans]  # pyright: ignore[reportAttributeAccessIssue]
        family, horizon = self.family, self.occupancy.horizon
        if not all(map(is_linear, losses)):
            # One model for all losses: in units of their own they have several.
            one = all(each.family is family for each in plans)  # pyright: ignore[reportAttributeAccessIssue]
            few = one and len(thetas) <= MOST_PLANNED_ATOMS and horizon is None
            return partial(_weighed_convex, [family.at(theta) for theta in thetas], losses) if few else None
        each_with_models = [(each, each.family.models(thetas)) for each in plans if isinstance(each, TabularPlans)]
        models, shape = each_with_models[0][1], (*family.support.shape[:2], len(thetas))
        costs = np.stack([np.broadcast_to(each._tables(own), shape) for each, own in each_with_models])

        def weigh(weights: Float[np.ndarray, "G M"]) -> Weighted:
            cost = np.einsum("gm,gsam->sam", weights, costs)
            plans = engine.plan(models, cost)
            least = plans.low if horizon is None else least_costs(models, cost, horizon)
            return Weighted(np.eye(cost.shape[1])[plans.action.T], least)

        return weigh

    def _least_convex(self, thetas: np.ndarray) -> tuple[np.ndarray | None, str]:
        lows = np.empty(len(thetas))
        for k, theta in enumerate(thetas):
            search = ConvexSearch(self.family.at(theta), self.loss, None, CONVEX_ACCURACY)
            lows[k] = searched(search, 100).lower_bound
        if not np.all(np.isfinite(lows)):
            return None, "the loss has no finite lower bound at a posterior draw"
        return lows, ""


class EventAverages(Averages):
    """By sweeps, eight draws at a time."""

    events: Engine

    def __init__(self, family: AbstractEventFamily, loss: Loss, left_out: float):
        self.events = Engine(family, loss, left_out)

    @in_float64
    def losses(self, point: np.ndarray, thetas: Float[np.ndarray, "R ..."]) -> Float[np.ndarray, " R"]:
        """The loss of the policy's visits."""
        return self.events.losses(np.asarray(point), np.asarray(thetas))

    @in_float64
    def slopes(self, point: np.ndarray, thetas: Float[np.ndarray, "R ..."], weigh: Weights) -> Averaged:
        """Visits of all draws; values of those that have a weight."""
        return Averaged(*self.events.derived(np.asarray(point), np.asarray(thetas), weigh))


class EventPlans(Plans):
    """Modified policy iteration on eight draws at a time, for losses that are linear."""

    events: Engine

    def __init__(self, family: AbstractEventFamily, loss: Loss, left_out: float):
        self.events = Engine(family, loss, left_out)

    @in_float64
    def planned(self, belief: Posterior, draws: WeightedDraws, most: int, weigh: Weights | None = None) -> Planned:
        """Tables of centres of the belief, the first where the risk has its weights; of draws as many as are wanted.

        What is best on average where it matters is nearly best for the risk: what a search from elsewhere takes long to
        come to.
        """
        family, loss, _ = self.events
        states, actions, _ = family.support.shape
        if not is_linear(loss):
            return Planned(np.empty((0, states, actions)), None)
        centres, least = centres_of(belief, draws), None
        if weigh is not None:
            least = self._lows(draws.thetas)
            centres.insert(0, np.tensordot(weigh(least), draws.thetas, axes=1))
        wanted = np.stack([*(theta for theta in centres if self._possible(theta)), *draws.thetas])[:most]
        tables = []
        for plans in self.events.plans(wanted, SWEPT_ACCURACY):
            tables += [np.eye(actions)[plans.action[:, n]] for n in range(plans.action.shape[1])]
        different = [table for k, table in enumerate(tables) if not any(np.array_equal(table, t) for t in tables[:k])]
        return Planned(np.stack(different) if different else np.empty((0, states, actions)), least)

    def _possible(self, theta: np.ndarray) -> bool:
        """A mean need not be a possible theta."""
        try:
            check_model(self.events.family, theta[None])
        except InputError:
            return False
        return True

    @in_float64
    def least(self, draws: WeightedDraws, point: np.ndarray) -> tuple[Float[np.ndarray, " M"] | None, str]:
        """Bounds from the residual of plans that need not be finished."""
        thetas = draws.thetas
        if not is_linear(self.events.loss):
            return None, "single draws of a large model are planned for where the loss is linear in the occupancy only"
        if draws.exact and len(draws) > MOST_PLANNED_ATOMS:
            return None, f"each of {len(draws)} atoms would have to be planned for by itself, which takes too long"
        thetas = thetas if draws.exact else thetas[:MOST_SWEPT]
        return self._lows(thetas), ""

    def _lows(self, thetas: Float[np.ndarray, "M ..."]) -> Float[np.ndarray, " M"]:
        return np.concatenate([plans.low for plans in self.events.plans(np.asarray(thetas), SWEPT_ACCURACY)])


def _weighed_convex(models: list[MDP], losses: list[Any], weights: Float[np.ndarray, "G M"]) -> Weighted:
    found = []
    for model, row in zip(models, weights.T, strict=True):
        total: Any = sum(float(weight) * loss for weight, loss in zip(row, losses, strict=True))
        found.append(searched(ConvexSearch(model, total, None, CONVEX_ACCURACY), 100))
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
