"""Event families at the seam: losses, averages, plans and checks of models that are never laid out as tables."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from ..arrays import in_float64, require_finite, to_numpy
from ..errors import InputError
from ..events import AbstractEventFamily, Engine, check_events, model_at
from ..losses import ConvexLoss, ExpectedCost, Loss, require_scalar
from ..models import AbstractFamily
from ..posteriors import Posterior, WeightedDraws
from .base import Averaged, Averages, Planned, Plans, Weights
from .tabular_plans import MOST_PLANNED_ATOMS, centres_of

# Draws that a bound is made of where they are a sample.
MOST_PLANNED = 64

# Accuracy of plans, a share of what the spread of costs could make of a loss.
ACCURACY = 1e-6


def is_linear(loss: Loss, family: AbstractFamily, theta: np.ndarray) -> bool:
    """Whether a loss is known to be linear in the occupancy; found from shapes alone, whatever the size."""
    if not isinstance(loss, ConvexLoss):
        return False
    if isinstance(loss, ExpectedCost):
        return True

    def image(theta: Any) -> Any:
        mdp = model_at(family, theta)
        return loss.image(mdp.cost, mdp)

    return not jax.tree.leaves(jax.eval_shape(image, theta))


class EventAverages(Averages):
    """By sweeps, eight draws at a time."""

    family: AbstractEventFamily
    loss: Loss
    left_out: float

    @property
    def engine(self) -> Engine:
        """What does the work."""
        return Engine(self.family, self.loss, self.left_out)

    @in_float64
    def losses(self, point: np.ndarray, thetas: Float[np.ndarray, "R ..."]) -> Float[np.ndarray, " R"]:
        """The loss of the policy's visits."""
        return self.engine.losses(np.asarray(point), np.asarray(thetas))

    @in_float64
    def slopes(
        self,
        point: np.ndarray,
        thetas: Float[np.ndarray, "R ..."],
        weigh: Weights,
    ) -> Averaged:
        """Visits of all draws; values of those that have a weight."""
        return Averaged(*self.engine.derived(np.asarray(point), np.asarray(thetas), weigh))


class EventPlans(Plans):
    """Modified policy iteration on eight draws at a time, for losses that are linear."""

    family: AbstractEventFamily
    loss: Loss
    left_out: float

    @property
    def engine(self) -> Engine:
        """What does the work."""
        return Engine(self.family, self.loss, self.left_out)

    @in_float64
    def planned(self, belief: Posterior, draws: WeightedDraws, most: int, weigh: Weights | None = None) -> Planned:
        """Tables of centres of the belief, the first where the risk has its weights; of draws as many as are wanted.

        What is best on average where it matters is nearly best for the risk: what a search from elsewhere takes long to
        come to.
        """
        states, actions, _ = self.family.support.shape
        if not is_linear(self.loss, self.family, draws.thetas[0]):
            return Planned(np.empty((0, states, actions)), None)
        centres, least = centres_of(belief, draws), None
        if weigh is not None:
            least = self._lows(draws.thetas)
            centres.insert(0, np.tensordot(weigh(least), draws.thetas, axes=1))
        wanted = np.stack([*(theta for theta in centres if self._possible(theta)), *draws.thetas])[:most]
        tables = []
        for plan in self.engine.plans(wanted, ACCURACY):
            tables += [np.eye(actions)[plan.action[:, n]] for n in range(plan.action.shape[1])]
        different = [table for k, table in enumerate(tables) if not any(np.array_equal(table, t) for t in tables[:k])]
        return Planned(np.stack(different) if different else np.empty((0, states, actions)), least)

    def _possible(self, theta: np.ndarray) -> bool:
        """A mean need not be a possible theta."""
        try:
            check_model(self.family, theta[None])
        except InputError:
            return False
        return True

    @in_float64
    def least(self, draws: WeightedDraws, point: np.ndarray) -> tuple[Float[np.ndarray, " M"] | None, str]:
        """Bounds from the residual of plans that need not be finished."""
        del point
        thetas = draws.thetas
        if not is_linear(self.loss, self.family, thetas[0]):
            return None, "single draws of a large model are planned for where the loss is linear in the occupancy only"
        if draws.exact and len(draws) > MOST_PLANNED_ATOMS:
            return None, f"each of {len(draws)} atoms would have to be planned for by itself, which takes too long"
        thetas = thetas if draws.exact else thetas[:MOST_PLANNED]
        return self._lows(thetas), ""

    def _lows(self, thetas: Float[np.ndarray, "M ..."]) -> Float[np.ndarray, " M"]:
        return np.concatenate([plan.low for plan in self.engine.plans(np.asarray(thetas), ACCURACY)])


def check_model(family: AbstractEventFamily, thetas: Float[np.ndarray, "N ..."]) -> None:
    """Refuse a family whose events are none at one of these draws, or whose costs are not finite at the first."""
    require_finite("a posterior draw of theta", thetas)
    try:
        events = [np.asarray(family.events(theta)) for theta in thetas]
        cost = np.asarray(family.cost(thetas[0]))
    except InputError as error:
        raise InputError(f"at the posterior draw theta = {_short(thetas[0])}: {error}") from None
    except Exception as error:
        raise InputError(
            f"the family's functions fail on a posterior draw of shape {thetas.shape[1:]}: {error}; the belief must "
            "be about this family's theta"
        ) from error
    for theta, table in zip(thetas, events, strict=True):
        check_events(table, f"at the posterior draw theta = {_short(theta)}")
    require_finite(f"at the posterior draw theta = {_short(thetas[0])}: cost", cost)


@in_float64
def check_large(
    family: AbstractEventFamily,
    loss: Loss,
    left_out: float,
    thetas: Float[np.ndarray, "N ..."],
    policy: Float[np.ndarray, "S A"] | None,
    differentiable: bool,
) -> None:
    """Refuse models that are none, and a loss that is no finite number, with its derivative, at a first policy."""
    check_model(family, thetas)
    states, actions, _ = family.support.shape
    first = to_numpy(jax.eval_shape(lambda theta: model_at(family, theta), thetas[0]))
    require_scalar(loss, np.ones((states, actions)), first)
    if policy is None:
        return
    found = Engine(family, loss, left_out).derived(np.asarray(policy), thetas[:1], np.ones_like)
    if not np.isfinite(found.losses[0]):
        raise InputError(
            f"the loss is {found.losses[0]} at the starting policy; keep its logarithms and ratios off zero"
        )
    if differentiable and not np.all(np.isfinite(found.slope)):
        s, a = (int(i) for i in np.argwhere(~np.isfinite(found.slope))[0])
        raise InputError(
            f"the gradient of the loss is {found.slope[s, a]} at the starting policy (state {s}, action {a}); keep its "
            "logarithms and roots off zero"
        )


@eqx.filter_jit
def compiled_costs(family: AbstractFamily, thetas: Any) -> Any:
    """Cost tables `[N, S, A]`, without a kernel."""
    return jax.vmap(family.cost)(thetas)


def _short(theta: np.ndarray) -> str:
    return " ".join(np.array2string(np.asarray(theta), threshold=6, precision=4).split())
