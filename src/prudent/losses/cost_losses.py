"""Losses made of costs: linear ones, such as the expected cost and visits; by scenarios; and under a constraint."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
from jaxtyping import Float

from ..arrays import (
    Array,
    as_float,
    in_float64,
    is_concrete,
    require_distribution,
    require_finite,
    require_number,
)
from ..engine import Factors, ModelBatch, choose_method, losses_of_targets
from ..errors import InputError
from ..models import MDP
from ..records import AbstractVar, field
from .base import ConvexLoss, Dual, Scalar, batch_of, split_models, support_of

PER = "it is the number of periods that a total is stated for, such as 52 weeks"


class LinearLoss(ConvexLoss):
    """`F = <lambda, table>`: a table of what one visit of each pair counts, or its average over `per` periods.

    A loss of your own that is linear in the occupancy is planned for exactly, and bounds come of that; as a plain
    function it is convex, and planned for more slowly. The table may depend on the model's probabilities.

    >>> import numpy as np, prudent as pr
    >>> class Arrivals(pr.LinearLoss):  # in the second state, counted where they come from
    ...     per: float = 52.0
    ...
    ...     def table(self, mdp):
    ...         return mdp.kernel.probability[..., 1]
    >>> mdp = pr.MDP(pr.Kernel.dense(np.full((2, 1, 2), 0.5)), cost=[[0.0], [0.0]], start=0, discount=0.9)
    >>> round(float(Arrivals()(pr.occupancy(mdp, [[1.0], [1.0]]), mdp)), 6)
    26.0

    Attributes:
        per: periods that the average over discounted time is stated for; None for the discounted total.
    """

    per: AbstractVar[Any]

    @abc.abstractmethod
    def table(self, mdp: MDP) -> Float[Array, "S A"]:
        """What one visit of each pair counts; traceable by JAX."""

    @property
    def is_linear(self) -> bool:
        """True."""
        return True

    @in_float64
    def __call__(self, occupancy: Float[Array, "S A"], mdp: MDP) -> Scalar:
        return (occupancy * self.linear(mdp)).sum()

    def value_and_gradient(
        self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch
    ) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "S A N"]]:
        """Return `<lambda, table>` and the table of each model; a read-only view where all models share the table."""
        cost = np.broadcast_to(self.cost_tables(models), occupancy.shape)
        return np.einsum("san,san->n", occupancy, cost), cost

    def cost_tables(self, models: ModelBatch) -> Float[np.ndarray, "S A N"]:
        """Return the tables, by the discount where an average over time is asked for."""
        tables = self.tables(models)
        return tables if self.per is None else self.per * (1.0 - models.discount) * tables

    @in_float64
    def tables(self, models: ModelBatch) -> Float[np.ndarray, "S A N"]:
        """Return what one visit of each pair counts in each model; the last axis has length 1 if all models agree."""
        return np.stack([np.asarray(self.table(mdp)) for mdp in split_models(models)], axis=-1)

    def linear(self, mdp: MDP) -> Float[Array, "S A"]:
        """The table, by the discount where an average over time is asked for."""
        table = self.table(mdp)
        return table if self.per is None else self.per * (1.0 - mdp.discount) * table

    def image(self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch) -> tuple[()]:
        """Nothing: the loss is linear."""
        return ()

    def begin(self, models: ModelBatch) -> Dual:
        """The empty point."""
        return Dual((), None)

    def ascend(self, dual: Dual, image: tuple[()], models: ModelBatch) -> Dual:
        """The point itself."""
        return dual

    def cost_of(self, point: tuple[()], models: ModelBatch) -> Float[np.ndarray, "S A N"]:
        """The tables."""
        return self.cost_tables(models)


class ExpectedCost(LinearLoss):
    """Expected discounted cost, `F = <lambda, c>`.

    >>> import numpy as np, prudent as pr
    >>> mdp = pr.MDP(pr.Kernel.dense([[[1.0]]]), cost=[[2.0]], start=0, discount=0.5)
    >>> float(pr.ExpectedCost()(pr.occupancy(mdp, [[1.0]]), mdp))
    4.0
    """

    per: None = field(static=True, init=False, repr=False, default=None)

    def table(self, mdp: MDP) -> Float[Array, "S A"]:
        """The model's cost."""
        return mdp.cost

    def tables(self, models: ModelBatch) -> Float[np.ndarray, "S A N"]:
        """Return the models' costs."""
        return models.cost


class CostDifference(LinearLoss):
    """Expected discounted cost less that of another policy in the same model, `F = <lambda, c> - C(other, P)`.

    Its risk looks at models in which the choice matters, where that of the cost looks at models that are bad whatever
    one does. Below 0 the policy is better than the other one. Of a `TriedFamily` unseen shares lead to one state under
    both policies, the one for which the difference is largest; that rows may lead to several is not looked at, and the
    truth may be worse. It is for exact occupancies: of a truncated one too much is taken off.

    >>> import numpy as np, prudent as pr
    >>> from prudent.losses import CostDifference
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> uniform = np.full((4, 4), 0.25)
    >>> loss = CostDifference(uniform)
    >>> abs(round(float(pr.loss_at(uniform, lake, (0.3, 0.1), loss=loss)), 6))
    0.0
    >>> best = pr.plan(lake.at((0.3, 0.1))).policy
    >>> bool(pr.loss_at(best, lake, (0.3, 0.1), loss=loss) < 0.0)
    True

    Args:
        policy: the other one, a `TabularPolicy` or an array `[S, A]`, such as today's practice.
    """

    policy: Float[Array, "S A"]
    per: None = field(static=True, init=False, repr=False, default=None)

    def __init__(self, policy: Any):
        table = getattr(policy, "probabilities", None)
        self.policy = np.asarray(as_float(policy if table is None else table, "policy"))
        if self.policy.ndim != 2:
            raise InputError(f"a policy is indexed [state, action], got shape {self.policy.shape}")
        require_distribution("policy", self.policy, ("state",))
        self.per = None

    def table(self, mdp: MDP) -> Float[Array, "S A"]:
        """The model's cost, less the other policy's, spread over all time."""
        return self.tables(batch_of(mdp))[:, :, 0]

    def tables(self, models: ModelBatch) -> Float[np.ndarray, "S A N"]:
        """Return the models' costs, less the other policy's in each, spread over all time.

        What the other policy costs in models with unseen shares is `beside`.
        """
        if models.unseen is not None:
            return models.cost
        other = models.start @ self._factors(models).policy_values(models.cost)
        return models.cost - (1.0 - models.discount) * other

    def beside(self, models: ModelBatch) -> Float[np.ndarray, "S N"] | None:
        """Return the cost of the other policy if unseen shares lead to each state."""
        return None if models.unseen is None else losses_of_targets(self._factors(models), models.cost)

    def _factors(self, models: ModelBatch) -> Factors:
        if self.policy.shape != models.cost.shape[:2]:
            raise InputError(f"the policy has shape {self.policy.shape}, the model needs {models.cost.shape[:2]}")
        return choose_method(support_of(models)).factor(models, np.asarray(self.policy)[:, :, None])


def _pairs(model: Any, loss: Any) -> tuple[int, ...]:
    """Numbers of states and actions of a model that has these."""
    if not hasattr(model, "cost"):
        raise InputError(
            f"{type(loss).__name__} counts states and actions by number, which a {type(model).__name__} has not; write "
            "a function loss(occupancy, model) of what its occupancy holds"
        )
    return model.cost.shape


def _per(per: Any) -> Any:
    return None if per is None else require_number("per", per, "(0, inf)", PER)


class CostTable(LinearLoss):
    """Expected discounted cost of a kind of its own, `F = <lambda, table>`, or its average over so many periods.

    With `per`, the total is divided by the discounted time, `1 / (1 - discount)`, and stated for so many periods: an
    average that does not depend on how far the discount looks ahead. A year of weeks is `per=52`.

    >>> import numpy as np, prudent as pr
    >>> mdp = pr.MDP(pr.Kernel.dense([[[1.0]]]), cost=[[2.0]], start=0, discount=0.5)
    >>> occupancy = pr.occupancy(mdp, [[1.0]])
    >>> float(pr.CostTable([[3.0]])(occupancy, mdp)), float(pr.CostTable([[3.0]], per=52)(occupancy, mdp))
    (6.0, 156.0)

    Args:
        costs: `[S, A]`.
        per: periods; None for the discounted total.
    """

    costs: Float[Array, "S A"]
    per: Float[Array, ""] | None

    def __init__(self, costs: Any, per: Any = None):
        self.costs = as_float(costs, "costs")
        if self.costs.ndim != 2:
            raise InputError(f"costs are indexed [state, action], got shape {self.costs.shape}")
        if is_concrete(self.costs):
            require_finite("costs", np.asarray(self.costs))
        self.per = _per(per)

    def table(self, mdp: MDP) -> Float[Array, "S A"]:
        """As it was given, refused for another model."""
        return self._counted(_pairs(mdp, self))

    def tables(self, models: ModelBatch) -> Float[np.ndarray, "S A 1"]:
        """Return the same table for all models."""
        return self._counted(models.cost.shape[:2])[:, :, None]

    def _counted(self, pairs: tuple[int, ...]) -> Any:
        if self.costs.shape != pairs:
            raise InputError(f"costs are of shape {self.costs.shape}, the model has {pairs} pairs")
        return self.costs


class Visits(LinearLoss):
    """Expected discounted visits of some states, or of some actions in them; with `per`, visits in so many periods.

    `per=1` is the share of time spent there, in [0, 1]; `per=52` the visits in 52 periods, on average over time.

    >>> import numpy as np, prudent as pr
    >>> mdp = pr.MDP(pr.Kernel.dense(np.full((2, 1, 2), 0.5)), cost=[[0.0], [0.0]], start=0, discount=0.9)
    >>> occupancy = pr.occupancy(mdp, [[1.0], [1.0]])
    >>> round(float(pr.Visits([1])(occupancy, mdp)), 6), round(float(pr.Visits([1], per=1)(occupancy, mdp)), 6)
    (4.5, 0.45)

    Args:
        states: their numbers.
        actions: numbers of the actions that count; all when left out.
        per: periods; None for discounted visits.
    """

    states: tuple[int, ...] = field(static=True)
    actions: tuple[int, ...] | None = field(static=True)
    per: Float[Array, ""] | None

    def __init__(self, states: Any, actions: Any = None, per: Any = None):
        self.states = _numbers("states", states)
        self.actions = None if actions is None else _numbers("actions", actions)
        self.per = _per(per)

    def table(self, mdp: MDP) -> Float[Array, "S A"]:
        """1 where a visit counts."""
        return self._counted(_pairs(mdp, self))

    def tables(self, models: ModelBatch) -> Float[np.ndarray, "S A 1"]:
        """Return the same table for all models."""
        return self._counted(models.cost.shape[:2])[:, :, None]

    def _counted(self, pairs: tuple[int, ...]) -> Float[np.ndarray, "S A"]:
        counted = np.zeros(pairs)
        for name, numbers, size in (("state", self.states, len(counted)), ("action", self.actions, counted.shape[1])):
            if numbers is not None and max(numbers) >= size:
                raise InputError(f"Visits counts {name} {max(numbers)}, the model has {size}, numbered from 0")
        rows = np.array(self.states)
        counted[rows[:, None], slice(None) if self.actions is None else np.array(self.actions)] = 1.0
        return counted


def _numbers(name: str, given: Any) -> tuple[int, ...]:
    several = [given] if isinstance(given, int | np.integer) else list(given)
    if not several or any(isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0 for n in several):
        raise InputError(f"{name} must be whole numbers >= 0, at least one, got {given!r}")
    return tuple(sorted({int(n) for n in several}))


class ScenarioCost(ConvexLoss):
    """A cost that is uncertain beside theta: the risk of its expected discounted total over K scenarios of it.

    `F = rho_k(<lambda, d_k>)`, the paper's random penalty. As `Limit(ScenarioCost(...), at_most=D)` it is the paper's
    risk-averse constraint, with the multiplier found; `ConstrainedCost` is its Lagrangian with one that is given.
    The derivative holds the risk's density fixed (the envelope theorem).

    >>> import numpy as np, prudent as pr
    >>> mdp = pr.MDP(pr.Kernel.dense([[[1.0]]]), cost=[[2.0]], start=0, discount=0.5)
    >>> float(pr.ScenarioCost([[[1.0]], [[3.0]]], risk=pr.CVaR(0.5))(pr.occupancy(mdp, [[1.0]]), mdp))
    6.0

    Args:
        scenarios: `[K, S, A]` the cost in each scenario.
        risk: any risk of the library, or an object with its method `density(losses, probabilities)`.
        probabilities: `[K]` of the scenarios; equal when left out.
    """

    scenarios: Float[Array, "K S A"]
    risk: Any
    probabilities: Float[Array, " K"]

    def __init__(self, scenarios: Any, risk: Any, probabilities: Any = None):
        self.scenarios = as_float(scenarios, "scenarios")
        if self.scenarios.ndim != 3 or self.scenarios.shape[0] == 0:
            raise InputError(f"scenarios are indexed [scenario, state, action], got shape {self.scenarios.shape}")
        if is_concrete(self.scenarios):
            require_finite("scenarios", np.asarray(self.scenarios))
        if not callable(getattr(risk, "density", None)):
            raise InputError(f"risk must have a method density(losses, probabilities), such as CVaR(0.9); got {risk!r}")
        self.risk = risk
        count = self.scenarios.shape[0]
        given = probabilities is not None
        self.probabilities = as_float(probabilities, "probabilities") if given else np.full(count, 1.0 / count)
        if self.probabilities.shape != (count,):
            raise InputError(f"{count} scenarios need as many probabilities, got shape {self.probabilities.shape}")
        if is_concrete(self.probabilities):
            require_finite("probabilities", np.asarray(self.probabilities))
            require_distribution("probabilities", np.asarray(self.probabilities))

    @in_float64
    def __call__(self, occupancy: Float[Array, "S A"], mdp: MDP) -> Scalar:
        totals = self.totals(occupancy, mdp)
        return (self.attained(totals) * totals).sum()

    @in_float64
    def value_and_gradient(
        self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch
    ) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "S A N"]]:
        """Return `rho_k(<lambda, d_k>)` and `sum_k p_k xi_k d_k` of each model."""
        totals = self.image(occupancy, models)
        attained = self.attained(totals.T).T
        return (attained * totals).sum(axis=0), self.cost_of(attained, models)

    def totals(self, occupancy: Float[Array, "S A"], mdp: MDP) -> Float[Array, " K"]:
        """Return each scenario's expected discounted total in one model."""
        self._check_shape(_pairs(mdp, self))
        return (self.scenarios * occupancy).sum(axis=(1, 2))

    def image(self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch) -> Float[np.ndarray, "K N"]:
        """Each scenario's expected discounted total."""
        self._check_shape(models.cost.shape[:2])
        return np.einsum("ksa,san->kn", self.scenarios, occupancy)

    def _check_shape(self, pairs: tuple[int, ...]) -> None:
        if self.scenarios.shape[1:] != pairs:
            raise InputError(
                f"scenarios are of shape {self.scenarios.shape}, the model needs [scenario, state, action] with "
                f"{pairs} states and actions"
            )

    def begin(self, models: ModelBatch) -> Dual:
        """The density 1, which lies in every envelope."""
        return Dual(np.repeat(self.probabilities[:, None], models.size, axis=1), None)

    @in_float64
    def ascend(self, dual: Dual, image: Float[np.ndarray, "K N"], models: ModelBatch) -> Dual:
        """A full conditional-gradient step: f* is the indicator of `p U`, and the density maximises over it."""
        return Dual(self.attained(image.T).T, dual.primal)

    def cost_of(self, point: Float[np.ndarray, "K N"], models: ModelBatch) -> Float[np.ndarray, "S A N"]:
        """`sum_k z_k d_k`."""
        return np.einsum("ksa,kn->san", self.scenarios, point)

    def attained(self, totals: Any) -> Any:
        """Return `p xi*` of each row of totals `[..., K]`, held fixed."""
        if hasattr(self.risk, "densities"):
            return self.probabilities * self.risk.densities(totals, self.probabilities)
        if totals.ndim == 1:
            return self.probabilities * self.risk.density(totals, self.probabilities)
        return np.stack([self.attained(row) for row in totals])


class ConstrainedCost(ConvexLoss):
    """The Lagrangian of a risk-averse constraint, `F = <lambda, c> + l (rho_k(<lambda, d_k>) - D)`.

    The penalty d is uncertain, K scenarios of it; rho is the risk of its expected discounted total, a `ScenarioCost`.
    `solve(..., subject_to=[Limit(ScenarioCost(...), at_most=D)])` finds the multiplier l that is given here. The
    derivative holds the risk's density fixed (the envelope theorem); where two densities attain the risk it is
    one of the subgradients.

    >>> import numpy as np, prudent as pr
    >>> mdp = pr.MDP(pr.Kernel.dense([[[1.0]]]), cost=[[2.0]], start=0, discount=0.5)
    >>> loss = pr.ConstrainedCost([[[1.0]], [[3.0]]], multiplier=10.0, limit=5.0, risk=pr.CVaR(0.5))
    >>> float(loss(pr.occupancy(mdp, [[1.0]]), mdp))  # 4 + 10 (6 - 5)
    14.0

    Args:
        scenarios: `[K, S, A]` the penalty of each scenario.
        multiplier: l, >= 0.
        limit: D.
        risk: any risk of the library, or an object with its method `density(losses, probabilities)`.
        probabilities: `[K]` of the scenarios; equal when left out.
    """

    penalty: ScenarioCost
    multiplier: Float[Array, ""]
    limit: Float[Array, ""]

    def __init__(self, scenarios: Any, multiplier: Any, limit: Any, risk: Any, probabilities: Any = None):
        self.penalty = ScenarioCost(scenarios, risk, probabilities)
        self.multiplier = require_number("multiplier", multiplier, "[0, inf)", "a negative one would reward the breach")
        self.limit = require_number("limit", limit, "(-inf, inf)")

    @in_float64
    def __call__(self, occupancy: Float[Array, "S A"], mdp: MDP) -> Scalar:
        return (occupancy * mdp.cost).sum() + self.multiplier * (self.penalty(occupancy, mdp) - self.limit)

    def value_and_gradient(
        self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch
    ) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "S A N"]]:
        """Return the Lagrangian and `c + l sum_k p_k xi_k d_k` of each model."""
        penalty, slope = self.penalty.value_and_gradient(occupancy, models)
        paid = (occupancy * models.cost).sum(axis=(0, 1))
        return paid + self.multiplier * (penalty - self.limit), models.cost + self.multiplier * slope

    def image(self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch) -> Float[np.ndarray, "K N"]:
        """Each scenario's expected discounted total."""
        return self.penalty.image(occupancy, models)

    def begin(self, models: ModelBatch) -> Dual:
        """The density 1, which lies in every envelope."""
        return self.penalty.begin(models)

    def ascend(self, dual: Dual, image: Float[np.ndarray, "K N"], models: ModelBatch) -> Dual:
        """A full conditional-gradient step, of the penalty alone: its z is multiplied where the tables are made."""
        return self.penalty.ascend(dual, image, models)

    def cost_of(self, point: Float[np.ndarray, "K N"], models: ModelBatch) -> Float[np.ndarray, "S A N"]:
        """`c + l sum_k z_k d_k`."""
        return models.cost + self.multiplier * self.penalty.cost_of(point, models)
