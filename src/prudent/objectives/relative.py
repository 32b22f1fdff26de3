"""Losses relative to a policy: `C(alpha, theta) - C(pi_0, theta)`, for any kind of model.

Each draw of theta has a constant of its own, the loss of the reference policy there. Derivatives are those of the loss;
the risk differs, because it looks at draws where the choice of the policy matters. With the reference "best" the
constant is the least loss of each draw, so that the difference is the regret.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from ..engine import BoxPlans
from ..errors import InputError
from ..parameter_sets import ParameterSet
from ..posteriors import Posterior, WeightedDraws, equally_weighted
from ..records import changed, field
from ..risks import Risk
from ..seeds import Seed
from .base import (
    Averaged,
    Averages,
    Objective,
    Planned,
    Plans,
    Size,
    Table,
    Unit,
    Weigh,
    Weighted,
    Weights,
)
from .boxes import Boxes, DeviationBounds
from .chunks import losses_on, point_at
from .evidence import Evidence

BEST = "best"

# Draws whose constants are remembered: those of a search, of its held-out draws and of the report.
REMEMBERED = 4


class Constants:
    """The constant of each draw, found once for each array of draws."""

    def __init__(self, objective: Objective, reference: Float[np.ndarray, ...] | None):
        self.objective, self.reference = objective, reference
        self._known: list[tuple[np.ndarray, np.ndarray]] = []

    def at(self, thetas: Float[np.ndarray, "R ..."]) -> Float[np.ndarray, " R"]:
        """Return the reference's loss at each draw."""
        for draws, found in self._known:
            if draws is thetas:
                return found
        found = self._find(thetas)
        self._known = [(thetas, found), *self._known[: REMEMBERED - 1]]
        return found

    def _find(self, thetas: Float[np.ndarray, "R ..."]) -> Float[np.ndarray, " R"]:
        if self.reference is not None:
            return losses_on(self.objective, self.reference[None], thetas)[0]
        plans = self.objective.plans()
        if plans is None:
            raise InputError(f'relative_to="best" needs the least loss of each draw: {self.objective.no_bound()}')
        draws = equally_weighted(thetas)
        point = point_at(self.objective, self.objective.initial())
        least, reason = plans.least(draws, point)
        if least is None or len(least) < len(thetas):
            raise InputError(
                'relative_to="best" needs the least loss of each draw, which this problem has for few draws only'
                + (f": {reason}" if reason else "; give a policy instead")
            )
        return least

    def __reduce__(self) -> Any:
        return Constants, (self.objective, self.reference)


class RelativeObjective(Objective):
    """The losses of another objective, each draw's less those of a reference policy there.

    >>> import numpy as np, prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> uniform = np.full((4, 4), 0.25)
    >>> objective = pr.relative_objective(lake.objective(), uniform)
    >>> float(pr.loss_at(uniform, objective, (0.3, 0.1)))
    0.0

    Args:
        inner: the losses.
        constants: of each draw.
        name: what the reference is called in messages.
    """

    inner: Objective
    constants: Constants = field(static=True)
    name: str = field(static=True, default="a policy")

    # The constants are taken off in `chunks`, once for an array of draws.

    def offsets(self, thetas: Float[np.ndarray, "R ..."]) -> Float[np.ndarray, " R"] | None:
        """Return what is taken off the losses of each draw."""
        return self.constants.at(thetas)

    def averages(self) -> Averages | None:
        """Return the averages of large models, less the constants."""
        own = self.inner.averages()
        return None if own is None else RelativeAverages(own, self.constants)

    def plans(self) -> Plans | None:
        """Return the planners of single draws, their least losses less the constants."""
        own = self.inner.plans()
        return None if own is None else RelativePlans(own, self.constants)

    def boxes(self, thetas: Float[np.ndarray, "R ..."]) -> Boxes | None:
        """Return the relaxations over boxes of tables, less the constants."""
        own = self.inner.boxes(thetas)
        return None if own is None else RelativeBoxes(own, self.constants.at(thetas))

    def in_units(self, thetas: Float[np.ndarray, "N ..."]) -> tuple[Objective, Unit]:
        """Return the same difference in the inner objective's units, which have no level."""
        inner, unit = self.inner.in_units(thetas)
        if inner is self.inner:
            return self, Unit(0.0, unit.scale)
        constants = Constants(self.constants.objective.in_units(thetas)[0], self.constants.reference)
        return changed(self, inner=inner, constants=constants), Unit(0.0, unit.scale)

    def by_conjugate(self, search: Any) -> Objective | None:
        """Return the difference with derivatives by the loss's conjugate; the constants are found as before."""
        found = self.inner.by_conjugate(search)
        return None if found is None else changed(self, inner=found)

    def holding(self, policy: Any) -> Objective:
        """Return the difference for the class of policies that this one is of."""
        return changed(self, inner=self.inner.holding(policy))

    def loss_range(self, thetas: Float[np.ndarray, "N ..."]) -> tuple[float, float]:
        """Return numbers that no difference is below or above."""
        low, high = self.inner.loss_range(thetas)
        return low - high, high - low

    def evidence(self, belief: Posterior, risk: Risk, point: np.ndarray, answer: Any, seed: Seed) -> Evidence:
        """Return what the policy's own loss stands on."""
        losses = np.asarray(answer.losses) + self.constants.at(answer.draws.thetas)
        found = risk(losses, answer.draws.probabilities)
        own = changed(answer, losses=losses, risk=float(found.value), weights=np.asarray(found.weights))
        return self.inner.evidence(belief, risk, point, own, seed)

    def parts(self) -> dict[str, Any]:
        """Return the parts of the inner objective and the reference."""
        reference = self.constants.reference
        return {**self.inner.parts(), "relative_to": BEST if reference is None else reference}

    # The rest is the inner objective's.

    @property
    def within(self) -> ParameterSet:
        """Return the set that parameters are kept in."""
        return self.inner.within

    @property
    def by_chance(self) -> bool:
        """Return whether losses are means over chance."""
        return self.inner.by_chance

    @property
    def truncation(self) -> float:
        """Return the mass of the occupancy that may be left out."""
        return self.inner.truncation

    def initial(self) -> Any:
        """Return parameters to start from."""
        return self.inner.initial()

    def size(self) -> Size:
        """Return what one model takes."""
        return self.inner.size()

    def policy(self, point: Float[np.ndarray, ...], parameters: Any = None) -> Any:
        """Return the policy of a point."""
        return self.inner.policy(point, parameters)

    def point_from(self, policy: Any) -> Float[np.ndarray, ...]:
        """Return the point of a user's policy."""
        return self.inner.point_from(policy)

    def check(self, thetas: Float[np.ndarray, "N ..."], parameters: Any = None, differentiable: bool = True) -> None:
        """Refuse models and losses that the inner objective refuses, and constants that are not finite."""
        self.inner.check(thetas, parameters, differentiable)
        found = self.constants.at(thetas)
        if not np.all(np.isfinite(found)):
            raise InputError(
                f"the loss of {self.name} is {found[~np.isfinite(found)][0]} at a posterior draw; relative_to= needs a "
                "policy whose losses are finite"
            )

    def losses(self, points: Any, thetas: Any) -> Any:
        """Return the inner losses, from which `chunks` takes the constants; traced."""
        return self.inner.losses(points, thetas)

    def replicates(self, points: Any, thetas: Any) -> Any:
        """Return the differences on chance of their own, the same for both policies; traced."""
        reference = self.constants.reference
        assert reference is not None  # there are no plans of a model by chance
        others = np.broadcast_to(reference, (len(thetas), *reference.shape))
        return self.inner.replicates(points, thetas) - self.constants.objective.replicates(others, thetas)

    def on_host(self, points: Any, thetas: Any, sloped: bool) -> Any:
        """Return the inner losses, from which `chunks` takes the constants."""
        return self.inner.on_host(points, thetas, sloped)

    def point_shape(self, parameters: Any) -> tuple[int, ...]:
        """Return the shape of a point."""
        return self.inner.point_shape(parameters)

    def points(self, parameters: Any) -> Float[np.ndarray, "K ..."]:
        """Return the points of K parameter sets."""
        return self.inner.points(parameters)

    def pull_back(self, parameters: Any, slopes: Float[np.ndarray, "K ..."]) -> Any:
        """Return gradients by the parameters."""
        return self.inner.pull_back(parameters, slopes)

    def check_belief(self, belief: Posterior) -> None:
        """Refuse a belief about another model."""
        self.inner.check_belief(belief)

    def table(self, theta: np.ndarray) -> Table | None:
        """Return what tables there are."""
        return self.inner.table(theta)

    def from_point(self, points: Float[np.ndarray, "*K ..."]) -> Any | None:
        """Return parameters of points."""
        return self.inner.from_point(points)

    def random_points(self, random: np.random.Generator, count: int) -> Float[np.ndarray, "K ..."] | None:
        """Return points by chance."""
        return self.inner.random_points(random, count)

    def mixed(self, point: Float[np.ndarray, ...]) -> Float[np.ndarray, ...]:
        """Return a point off the edge of the set of points."""
        return self.inner.mixed(point)

    def metric(self) -> int:
        """Return how many numbers the metric of a natural step takes."""
        return self.inner.metric()

    def natural(self, slopes: Any, visits: Any) -> Any:
        """Return derivatives as directions in parameters."""
        return self.inner.natural(slopes, visits)

    def finite_point(self, point: np.ndarray, thetas: Float[np.ndarray, "N ..."]) -> Float[np.ndarray, ...] | None:
        """Return a point whose losses are finite at all draws."""
        return self.inner.finite_point(point, thetas)

    def met(
        self, point: np.ndarray, thetas: Float[np.ndarray, "M ..."], shares: Float[np.ndarray, "K M"]
    ) -> Bool[np.ndarray, ...] | None:
        """Return which parts of theta matter to the policy; those of the reference matter as well."""
        found = self.inner.met(point, thetas, shares)
        reference = self.constants.reference
        if found is None or reference is None:
            return None
        others = self.inner.met(reference, thetas, shares)
        return None if others is None else found | others

    def name_of(self, place: tuple[int, ...], shape: tuple[int, ...]) -> str:
        """Return what an entry of theta is called."""
        return self.inner.name_of(place, shape)

    def infinite(self) -> str:
        """Return what an infinite loss means."""
        return self.inner.infinite()

    def notes(self, belief: Posterior, point: np.ndarray, draws: WeightedDraws) -> Any | None:
        """Return what else the model says of a policy."""
        return self.inner.notes(belief, point, draws)

    def no_bound(self) -> str:
        """Return why there is no lower bound."""
        return self.inner.no_bound()


class RelativePlans(Plans):
    """Plans of single draws, their least losses less the constants."""

    inner: Plans
    constants: Constants = field(static=True)

    def planned(self, belief: Posterior, draws: WeightedDraws, most: int, weigh: Weights | None = None) -> Planned:
        """Return the same points; draws are weighed by their differences."""
        offsets = self.constants.at(draws.thetas)
        own = None if weigh is None else lambda losses: weigh(losses - offsets)
        found = self.inner.planned(belief, draws, most, own)
        return found._replace(least=None if found.least is None else found.least - offsets[: len(found.least)])

    def least(self, draws: WeightedDraws, point: np.ndarray) -> tuple[Float[np.ndarray, " M"] | None, str]:
        """Return numbers at most the least difference at the first M draws."""
        found, reason = self.inner.least(draws, point)
        return (None if found is None else found - self.constants.at(draws.thetas)[: len(found)]), reason

    def weighted(self, others: Sequence[Plans], thetas: Float[np.ndarray, "M ..."]) -> Weigh | None:
        """Return plans for weighted sums of losses, each less its own constants."""
        return weigh_together([self, *others], thetas)


def weigh_together(plans: Sequence[Plans], thetas: Float[np.ndarray, "M ..."]) -> Weigh | None:
    """Return plans for weighted sums of losses, some of which are relative to a policy."""
    inner = [each.inner if isinstance(each, RelativePlans) else each for each in plans]
    offsets = np.stack(
        [each.constants.at(thetas) if isinstance(each, RelativePlans) else np.zeros(len(thetas)) for each in plans]
    )
    weigh = inner[0].weighted(inner[1:], thetas)
    if weigh is None:
        return None

    def relative(weights: Float[np.ndarray, "G M"]) -> Weighted:
        found = weigh(weights)
        return found._replace(least=found.least - (weights * offsets).sum(axis=0))

    return relative


class RelativeAverages(Averages):
    """Losses and averaged derivatives of large models, less the constants."""

    inner: Averages
    constants: Constants = field(static=True)

    def losses(self, point: np.ndarray, thetas: Float[np.ndarray, "R ..."]) -> Float[np.ndarray, " R"]:
        """Return the difference at every draw."""
        return self.inner.losses(point, thetas) - self.constants.at(thetas)

    def slopes(self, point: np.ndarray, thetas: Float[np.ndarray, "R ..."], weigh: Weights) -> Averaged:
        """Return the differences, with the derivative under the weights that they have."""
        offsets = self.constants.at(thetas)
        found = self.inner.slopes(point, thetas, lambda losses: weigh(losses - offsets))
        return found._replace(losses=found.losses - offsets)


class RelativeBoxes(Boxes):
    """Least losses over boxes of tables, less the constants.

    They are the least losses of models whose costs are `(1 - discount)` times the constant lower. So values, and what
    actions cost from a state on, are lower by the constant.
    """

    inner: Boxes
    offsets: Float[np.ndarray, " R"] = field(static=True)

    def relaxed(self, low: np.ndarray, high: np.ndarray, values: np.ndarray) -> BoxPlans:
        """Return the least differences in N boxes."""
        found = self.inner.relaxed(low, high, values + self.offsets)
        lower = {name: getattr(found, name) - self.offsets for name in ("least", "values", "quality")}
        return found._replace(**lower)

    def followed(self, tables: Float[np.ndarray, "N S A"]) -> tuple[np.ndarray, np.ndarray]:
        """Return differences and visits of N tables at every draw."""
        losses, visits = self.inner.followed(tables)
        return losses - self.offsets, visits

    def tolls(
        self,
        low: np.ndarray,
        high: np.ndarray,
        values: np.ndarray,
        state: Int[np.ndarray, "N K"],
        counted: Bool[np.ndarray, "N R"],
        paid: np.ndarray | None = None,
    ) -> DeviationBounds | None:
        """Return the inner tolls, which a constant does not change."""
        return self.inner.tolls(low, high, values + self.offsets, state, counted, paid)

    def listed(self) -> dict[str, np.ndarray] | None:
        """Return the models with costs that hold the constants: all visits together are `1 / (1 - discount)`."""
        found = self.inner.listed()
        if found is None:
            return None
        level = (1.0 - float(found["discount"])) * self.offsets
        return found | {"cost": found["cost"] - level[:, None, None]}

    def proved(self, low: np.ndarray, high: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what values prove of the differences, and what an action costs with them."""
        least, quality = self.inner.proved(low, high, values + self.offsets)
        return least - self.offsets, quality - self.offsets


def relative_objective(objective: Objective, reference: Any) -> Objective:
    """Return the objective whose losses are those of a policy less those of a reference, draw by draw.

    Args:
        objective: the losses.
        reference: a policy (a table, a `TabularPolicy`, a gain, whatever `evaluate` takes), or "best" for the least
            loss of each draw: the difference is then the regret.

    >>> import numpy as np, prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> regret = pr.relative_objective(lake.objective(), "best")
    >>> bool(pr.loss_at(np.full((4, 4), 0.25), regret, (0.3, 0.1)) > 0)
    True
    """
    if isinstance(objective, RelativeObjective):
        raise InputError("the objective is relative to a policy already")
    if isinstance(reference, str) and reference == BEST:
        found = objective.less_constant(None)
        if found is not None:
            return found
        return RelativeObjective(objective, Constants(objective, None), "the best policy of each draw")
    if isinstance(reference, str):
        raise InputError(f'relative_to must be a policy or "best", got {reference!r}')
    own = objective.holding(reference)
    point = own.point_from(reference)
    found = objective.less_constant(point)
    return RelativeObjective(objective, Constants(own, point), "the reference policy") if found is None else found
