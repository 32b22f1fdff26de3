"""Finite models: the loss is a function of the occupancy that a table of action probabilities has under a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from ..arrays import Array, in_float64, require_kind
from ..engine import Method, Sweeps, complete
from ..errors import InputError
from ..events import AbstractEventFamily, RescaledEvents
from ..kernels import Support
from ..losses import ConvexLoss, CostDifference, ExpectedCost, Loss, as_convex, as_loss, is_linear
from ..models import AbstractFamily, TabularFamily, TriedFamily
from ..objectives import Averages, Boxes, Evidence, ModelSlopes, Objective, Plans, Size, Table, Unit, mean_visits
from ..occupancies import Exact, Horizon, Truncated
from ..parameter_sets import ParameterSet, RowSet
from ..policies import Parametrisation, Softmax, TabularPolicy, action_probabilities
from ..posteriors import AbstractTable, Posterior, Sobol, TriedRows, WeightedDraws, WithCosts, WithinBox
from ..records import Record, changed
from ..risks import Risk
from ..seeds import Seed
from .boxes import LARGEST_BOXES, ConvexBoxes, LinearBoxes
from .checks import (
    check_large,
    check_models,
    check_policy,
    check_start,
    require_completable,
    require_loss,
    require_same_support,
)
from .evidence import evidence_of
from .plans import EventAverages, EventPlans, TabularPlans

# The share of its discounted time that a policy has to spend in a row for the row to be met.
MET = 1e-4

# From here on an event family is solved by sweeps; up to here its models are small as tables.
LARGEST_TABLES = 4000

# How much of the uniform policy is mixed into a plan that has to be left.
UNIFORM_SHARE = 0.1


class TabularObjective(Objective):
    """`F(lambda^{pi, P_theta}, P_theta)` over tables pi; made by `family.objective(...)`.

    >>> import numpy as np, prudent as pr
    >>> objective = pr.envs.frozen_lake("SF\\nHG").objective(loss=pr.NegativeEntropy())
    >>> objective.points(objective.initial()[None]).shape
    (1, 4, 4)

    Args:
        family: the models.
        loss: `(occupancy, mdp) -> number`, convex in the occupancy; expected discounted cost when left out.
        policy: how parameters become a table; tabular softmax when left out.
        occupancy: `Exact()` when left out, or `Truncated(horizon)`.
    """

    family: AbstractFamily
    loss: Loss
    parametrisation: Parametrisation
    occupancy: Horizon
    # How policies are evaluated: chosen once, from the support.
    method: Method
    # What costs are measured from and in: numbers, so that a change of units compiles nothing again.
    units: tuple[Float[Array, ""], Float[Array, ""]]

    def __init__(
        self,
        family: AbstractFamily,
        loss: Loss | None = None,
        policy: Parametrisation | None = None,
        occupancy: Horizon | None = None,
    ):
        self.family = family
        self.loss = require_loss(ExpectedCost() if loss is None else loss)
        self.parametrisation = Softmax() if policy is None else policy
        require_kind("policy", self.parametrisation, Parametrisation, "a parametrisation such as Softmax()")
        how = Exact() if occupancy is None else occupancy
        require_kind("occupancy", how, Exact | Truncated, "Exact() or Truncated(horizon)")
        events = isinstance(family, AbstractEventFamily)
        if isinstance(how, Exact) and how.solver is None and events and family.support.states > LARGEST_TABLES:
            how = Exact(Sweeps.of(family.support))
        if isinstance(how, Exact) and isinstance(how.solver, Sweeps) and not events:
            raise InputError(f"Sweeps are for event families, and {type(family).__name__} is none")
        if isinstance(family, TriedFamily):
            require_completable(self.loss, how)
        self.occupancy = how
        self.method = self.occupancy.method_for(family.support)
        self.units = (np.asarray(0.0), np.asarray(1.0))

    @property
    def large(self) -> tuple[AbstractEventFamily, Loss, float] | None:
        """What sweeps need to work through models that are never laid out as tables; None where they are."""
        if not isinstance(self.method, Sweeps):
            return None
        family = self._family()
        assert isinstance(family, AbstractEventFamily)
        return family, self.loss, self.method.left_out

    @property
    def within(self) -> ParameterSet:
        """The set the policy's parameters are kept in."""
        return self.parametrisation.within

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of states and actions."""
        return self.family.support.shape[:2]

    def initial(self) -> Any:
        """The policy's own start."""
        return self.parametrisation.initial(*self.shape)

    def point_shape(self, parameters: Any) -> tuple[int, ...]:
        """States and actions."""
        return self.family.support.shape[:2]

    def points(self, parameters: Any) -> Float[np.ndarray, "K S A"]:
        """The tables of K parameter sets."""
        return self.parametrisation.tables(parameters)

    def pull_back(self, parameters: Any, slopes: Float[np.ndarray, "K S A"]) -> Any:
        """As the parametrisation has it."""
        return self.parametrisation.pull_back(parameters, slopes)

    def on_host(
        self, points: Float[np.ndarray, "N S A"], thetas: Float[np.ndarray, "N ..."], sloped: bool
    ) -> ModelSlopes | None:
        """Evaluate N models by the engine."""
        return evaluate_models(self, points, thetas, sloped)

    def less_constant(self, reference: Any) -> Objective | None:
        """For a `TriedFamily`, where unseen shares lead to one state under both policies."""
        if not isinstance(self.family, TriedFamily):
            return None
        if reference is None or not isinstance(self.loss, ExpectedCost):
            raise InputError(
                'relative_to= of a TriedFamily takes a policy and the expected cost; "best" and other losses have no '
                "state in common to which unseen shares lead"
            )
        return changed(self, loss=CostDifference(reference))

    def by_conjugate(self, search: Any) -> Objective | None:
        """With the loss's conjugate ascended; large models are never laid out for it."""
        if self.large is not None:
            return None
        if isinstance(self.family, TriedFamily):
            raise InputError(
                "a loss of a TriedFamily is the largest over the states that unseen shares may lead to, of which the "
                "conjugate of the loss knows nothing; leave gradient= out"
            )
        from ..losses import ByConjugate

        return changed(self, loss=ByConjugate(as_convex(self.loss), search))

    def size(self) -> Size:
        """The kernel, or the matrix that is factorised."""
        states, actions, successors = self.family.support.shape
        if self.large is not None:
            # Theta takes next to nothing; a few vectors over the states and the slopes do.
            return Size(8 * states * (actions + 4), 8 * states, False)
        kernel = 8 * states * actions * successors
        return Size(max(kernel, self.method.model_bytes()), kernel, self.method.in_cache)

    def policy(self, point: Float[np.ndarray, "S A"], parameters: Any = None) -> Any:
        """The table, in the family's names; of a network the network."""
        table = TabularPolicy(point).named(self.family.support.labels)
        return table if parameters is None else self.parametrisation.policy(parameters, table)

    def name_of(self, place: tuple[int, ...], shape: tuple[int, ...]) -> str:
        """As the family calls it."""
        return self.family.name_of(place, shape)

    def point_from(self, policy: Any) -> Float[np.ndarray, "S A"]:
        """A `TabularPolicy` or an array `[S, A]`, checked."""
        return action_probabilities(policy, *self.shape)

    def check_belief(self, belief: Posterior) -> None:
        """A belief about tables must be along the family's support."""
        while isinstance(belief, Sobol | WithinBox | WithCosts):
            belief = belief.posterior
        if isinstance(belief, AbstractTable) and isinstance(self.family, TabularFamily):
            require_same_support(self.family, belief)
        if isinstance(belief, AbstractTable) and isinstance(self.family, TriedFamily):
            raise InputError(
                f"a {type(belief).__name__} belief is about tables, and a TriedFamily about what a log has shown; make "
                "the belief by TriedRows.of(log), or the model by TabularFamily"
            )
        if isinstance(belief, TriedRows):
            if not isinstance(self.family, TriedFamily):
                raise InputError(
                    f"a TriedRows belief is about a TriedFamily, not a {type(self.family).__name__}; make the model by "
                    "TriedFamily(belief.support, cost, start, discount)"
                )
            require_same_support(self.family, belief)

    def check(self, thetas: Float[np.ndarray, "N ..."], parameters: Any = None, differentiable: bool = True) -> None:
        """The models at these draws are MDPs, the policy a table, and the loss a finite number with a derivative."""
        if self.large is not None:
            policy = None if parameters is None else check_policy(self.parametrisation, parameters, self.shape)
            check_large(
                *self.large, thetas, None if policy is None else np.asarray(policy.probabilities), differentiable
            )
            return
        mdp = check_models(self.family, thetas)
        check_start(mdp, self.loss, self.parametrisation, self.occupancy, parameters, differentiable)

    def table(self, theta: np.ndarray) -> Table | None:
        """Points are tables; their rows are free where the parametrisation chooses them one by one."""
        rows = self.parametrisation.rows()
        del theta
        nonlinear = not is_linear(self.loss)
        return Table(RowSet() if rows is None else rows, rows is not None, nonlinear)

    def from_point(self, points: Float[np.ndarray, "*K S A"]) -> Any | None:
        """Where the parametrisation can be told to be a table."""
        return self.parametrisation.from_table(points)

    def random_points(self, random: np.random.Generator, count: int) -> Float[np.ndarray, "K S A"] | None:
        """Rows uniform on the simplex, one table after the other; None where the parametrisation takes no table."""
        states, actions = self.shape
        tables = random.dirichlet(np.ones(actions), size=(count, states))
        return None if self.from_point(tables) is None else tables

    def mixed(self, point: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S A"]:
        """The table with a share of the uniform policy in it."""
        return (1.0 - UNIFORM_SHARE) * point + UNIFORM_SHARE / self.shape[1]

    def plans(self) -> Plans | None:
        """For losses that are known to be convex."""
        if self.no_bound():
            return None
        large = self.large
        return TabularPlans(self._family(), self.loss, self.occupancy) if large is None else EventPlans(*large)

    def averages(self) -> Averages | None:
        """By sweeps, of large event families."""
        large = self.large
        return None if large is None else EventAverages(*large)

    def boxes(self, thetas: Float[np.ndarray, "R ..."]) -> Boxes | None:
        """For losses that are known to be convex, of an occupancy that is exact, where models are factorised."""
        family = self._family()
        if isinstance(family, TriedFamily):
            raise InputError(
                "there are no proofs for a TriedFamily: boxes of policies are not bounded against the dearest state; "
                "solve(...) states a lower bound and a gap in its certificate"
            )
        if self.no_bound() or self.occupancy.horizon is not None or family.support.states > LARGEST_BOXES:
            return None
        kind = LinearBoxes if is_linear(self.loss) else ConvexBoxes
        return kind.of(family.models(thetas), self.loss)

    def no_limits(self) -> str:
        """A loss and a limit may have other dearest states, and their sum has no dearest state of its own."""
        if not isinstance(self.family, TriedFamily):
            return ""
        return (
            "there are no limits for a TriedFamily, in which a loss and a limit may each have a dearest state of its "
            "own; put a price on what is limited, as in ExpectedCost() + price * CostTable(costs)"
        )

    def no_bound(self) -> str:
        """A plain function may not be convex."""
        if isinstance(self.loss, ConvexLoss):
            return ""
        return "the loss is a plain function that may not be convex; as_convex(loss) says that it is"

    def evidence(self, belief: Posterior, risk: Risk, point: np.ndarray, answer: Any, seed: Seed) -> Evidence:
        """By the rows behind a belief about tables; of other beliefs it cannot be said."""
        return evidence_of(self, belief, risk, point, answer, seed)

    def notes(self, belief: Posterior, point: np.ndarray, draws: WeightedDraws) -> Any | None:
        """Return what the loss does not cover, of a `TriedFamily`."""
        del belief, point, draws
        if not isinstance(self.family, TriedFamily):
            return None
        unvisited = float(np.asarray(self.family.start)[~self.family.support.visited()].sum())
        caveats = TriedCaveats(unvisited, isinstance(self.loss, CostDifference))
        return caveats if caveats.rows() else None

    def in_units(self, thetas: Float[np.ndarray, "N ..."]) -> tuple[Objective, Unit]:
        """Expected costs in units of their own spread; another loss as it is.

        `F = <lambda, c>` and the occupancy's mass is known, so costs `(c - shift) / scale` give the losses
        `(F - shift * mass) / scale`, whatever the policy and the model. Minimised in these units, the policy is the
        same for `a c + b`, and a large constant takes no digits away from the differences that matter.
        """
        family = self.family
        if not isinstance(self.loss, ExpectedCost):
            return self, Unit(0.0, 1.0)
        costs = family.models(thetas).cost
        shift, spread = costs.min(), np.ptp(costs)
        scale = spread if spread > 0 else 1.0
        mass = 1.0 / (1.0 - float(family.discount)) - self.truncation
        same = changed(self, units=(np.asarray(shift), np.asarray(scale)))
        return same, Unit(float(shift * mass), float(scale))

    def loss_range(self, thetas: Float[np.ndarray, "N ..."]) -> tuple[float, float]:
        """Of a linear loss whose table is the same at all these draws: its least and largest entry, all the time."""
        if not is_linear(self.loss):
            return -np.inf, np.inf
        tables = as_convex(self.loss).cost_tables(self.family.models(thetas))
        mass = 1.0 / (1.0 - float(self.family.discount)) - self.truncation
        same = len(thetas) > 1 and not np.any(np.ptp(tables, axis=2))
        return (float(tables.min()) * mass, float(tables.max()) * mass) if same else (-np.inf, np.inf)

    def _family(self) -> AbstractFamily:
        """The models with costs in the objective's units."""
        family, (shift, scale) = self.family, self.units
        if shift == 0.0 and scale == 1.0:
            return family
        if isinstance(family, AbstractEventFamily):
            return RescaledEvents(family.support, family.start, family.discount, family.classes, family, shift, scale)
        if isinstance(family, TriedFamily):
            return changed(family, costs=(family.costs - shift) / scale)
        return Rescaled(family.support, family.start, family.discount, family, shift, scale)

    def met(
        self, point: np.ndarray, thetas: Float[np.ndarray, "M ..."], shares: Float[np.ndarray, "K M"]
    ) -> Bool[np.ndarray, "S A"] | None:
        """Of a table theta, the rows in which the policy spends a share of its discounted time that is noticeable."""
        if not (isinstance(self.family, TabularFamily | TriedFamily) and thetas.ndim == 4):
            return None
        occupancies = self.mean_occupancies(point, thetas, shares)
        return np.any(occupancies >= MET * occupancies.sum(axis=(1, 2), keepdims=True), axis=0)

    def mean_occupancies(
        self, point: np.ndarray, thetas: Float[np.ndarray, "M ..."], shares: Float[np.ndarray, "K M"]
    ) -> Float[np.ndarray, "K S A"]:
        """Occupancies averaged over the draws under K sets of weights."""
        return mean_visits(self, point, thetas, shares)[:, :, None] * point

    def parts(self) -> dict[str, Any]:
        """All but the family, which is large, and whose log may have grown."""
        # Of a method the kind: what it was prepared for follows from the family.
        how = type(self.method).__name__ if self.occupancy.horizon is None else self.occupancy
        return {"loss": self.loss, "policy": self.parametrisation, "occupancy": how}

    @property
    def truncation(self) -> float:
        """Mass that a truncated occupancy leaves out."""
        return self.occupancy.error_bound(float(self.family.discount))


class TriedCaveats(Record):
    """What the loss of a policy does not cover, of a model that knows tried rows alone.

    >>> [name for name, _ in TriedCaveats(0.25, True).rows()]
    ['starts', 'difference']

    Attributes:
        share: of the first state's distribution that is in states which the log never visits.
        difference: whether the loss is a difference to another policy.
    """

    share: float
    difference: bool = False

    def rows(self) -> list[tuple[str, str]]:
        """Return the lines of a summary."""
        starts = (
            f"a share {self.share:.4g} of them is in states that the log never visits; what they lead to is assumed to "
            "be a visited state, and their loss is no promise"
        )
        difference = (
            "found for one state in common to which what the log has not shown leads under both policies; it may lead "
            "to several, so that the risk of the difference is no promise"
        )
        return [("starts", starts)] * (self.share > 0.0) + [("difference", difference)] * self.difference


@in_float64  # by thread, and a worker may have threads of its own
def evaluate_models(
    objective: TabularObjective, points: Float[np.ndarray, "N S A"], thetas: Float[np.ndarray, "N ..."], sloped: bool
) -> ModelSlopes:
    """Evaluate N models, each under a table of its own; slopes are left empty unless asked for."""
    family, (shift, scale) = objective.family, objective.units
    models = family.models(thetas)
    if shift != 0.0 or scale != 1.0:
        models = models._replace(cost=(models.cost - shift) / scale)
    factors = objective.method.factor(models, np.moveaxis(points, 0, -1))
    loss = as_loss(objective.loss)
    less: float | np.ndarray = 0.0
    if models.unseen is not None:
        linear = as_convex(loss)
        beside = linear.beside(models)
        factors = complete(factors, linear.cost_tables(models), beside)
        less = 0.0 if beside is None else beside[factors.target, np.arange(models.size)]
    visits = factors.state_visits()
    occupancies = visits[:, None] * factors.policy
    if not sloped:
        return ModelSlopes(loss.value(occupancies, models) - less, points[:0], visits.T)
    losses, slope = loss.value_and_gradient(occupancies, models)
    gradient = factors.policy_gradient(visits, slope)
    return ModelSlopes(losses - less, np.moveaxis(gradient, -1, 0), visits.T)


class Rescaled(AbstractFamily):
    """A family whose costs are `(c - shift) / scale`."""

    support: Support
    start: Float[Array, " S"]
    discount: Float[Array, ""]
    family: AbstractFamily
    shift: Float[Array, ""]
    scale: Float[Array, ""]

    def tables(self, thetas: Float[np.ndarray, "N ..."]) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the tables of the family, with costs in units."""
        found = self.family.tables(thetas)
        return None if found is None else (found[0], (found[1] - self.shift) / self.scale)

    def probability(self, theta: Array) -> Float[Array, "S A B"]:
        """As they are."""
        return self.family.probability(theta)

    def cost(self, theta: Array) -> Float[Array, "S A"]:
        """In units."""
        return (self.family.cost(theta) - self.shift) / self.scale
