"""Simulated models at the seam: losses are means over particles that meet common noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from ..arrays import Array, in_float64, require_finite, require_kind
from ..autodiff import jax, jitted, jnp
from ..conformance import explained
from ..errors import InputError
from ..objectives import Losses, Objective, Size, Unit, losses_on
from ..parameter_sets import ParameterSet
from ..records import changed, field, tree_map
from ..seeds import generator
from .family import AbstractSimulated, SimulatedModel
from .policies import Controller, controller_of, held

# Batches of particles that an answer is judged on, and their size as a share of the particles it was fitted on.
BATCHES, BATCH_SHARE = 8, 0.25

# Names of the streams of noise: what losses are fitted on, and what answers are judged on.
FITTED, JUDGED = 1, 2


class SimulatedOccupancy:
    """The discounted occupancy of a simulated model: means over particles of functions of state and action.

    Not normalised: its mass is `sum_t gamma^t`. A convex function of `cost` and of what `expect` gives is a convex loss
    of the occupancy.

    >>> import prudent as pr
    >>> family = pr.SimulatedFamily(lambda theta, s, a, w: theta * s + a + w, lambda theta, s, a: s[0] ** 2,
    ...                             lambda noise: noise, discount=0.5, horizon=20, actions=1, noise=1, start_noise=1)
    >>> loss = lambda occupancy, model: occupancy.cost + 10.0 * occupancy.expect(lambda s, a: a[0] ** 2) ** 2
    >>> policy = pr.LinearGaussianPolicy([[-0.5]])
    >>> bool(pr.loss_at(policy, family, 0.5, loss=loss) > pr.loss_at(policy, family, 0.5))
    True

    Attributes:
        mass: `sum_t gamma^t`.
        cost: the expected discounted cost.
        expect: `f -> sum_t gamma^t E[f(s_t, a_t)]`, for f from state and action to a number or an array.
    """

    def __init__(self, mass: Any, cost: Any, expect: Callable[[Callable[[Any, Any], Any]], Any]):
        self.mass, self.cost, self.expect = mass, cost, expect


SimulatedLoss = Callable[[SimulatedOccupancy, SimulatedModel], Any]
"""`(occupancy, model) -> scalar`, traceable by JAX and convex in the occupancy."""


def expected_cost(occupancy: SimulatedOccupancy, model: SimulatedModel) -> Any:
    """The default."""
    return occupancy.cost


class SimulatedObjective(Objective):
    """`F(lambda, theta)` over the policies of a class; made by `SimulatedFamily.objective(...)`.

    Points are the parameters, flat. Fitted losses are means over `family.particles` walks, and judged ones over twice
    as many others in eight batches, by which the noise of particles is told from that of posterior draws.

    >>> import prudent as pr
    >>> family = pr.SimulatedFamily(lambda theta, s, a, w: theta * s + a + w, lambda theta, s, a: s[0] ** 2,
    ...                             lambda noise: noise, discount=0.9, horizon=20, actions=1, noise=1, start_noise=1)
    >>> family.objective(policy=pr.Network(width=4)).initial().shape
    (33,)

    Args:
        family: the models.
        loss: `(occupancy, model) -> number`, convex in the occupancy; expected discounted cost when left out.
        policy: `LinearGain()` when left out, or a `Network`.
    """

    family: AbstractSimulated
    loss: SimulatedLoss = field(static=True)
    controller: Controller
    fitted: Any
    judged: Any
    unit: Float[Array, ""]

    def __init__(self, family: AbstractSimulated, loss: Any = None, policy: Any = None):
        require_kind("family", family, AbstractSimulated, "a SimulatedFamily")
        self.family, self.loss = family, expected_cost if loss is None else loss
        if not callable(self.loss):
            raise InputError(f"loss must be a function (occupancy, model) -> number, got {loss!r}")
        self.controller = controller_of(policy)
        self.fitted = family.chance(generator(int(family.seed), FITTED), family.particles)
        each = max(1, int(np.ceil(BATCH_SHARE * family.particles)))
        self.judged = family.chance(generator(int(family.seed), JUDGED), BATCHES * each)
        self.unit = np.ones(())

    @property
    def within(self) -> ParameterSet:
        """The set the policy's parameters are kept in."""
        return self.controller.within

    def initial(self) -> Float[np.ndarray, " D"]:
        """The policy's own start."""
        return self.controller.initial(self.family.seen, self.family.actions)

    def from_point(self, points: Float[np.ndarray, "*K D"]) -> Float[np.ndarray, "*K D"]:
        """The points."""
        return points

    def random_points(self, random: np.random.Generator, count: int) -> Float[np.ndarray, "K D"]:
        """Gains or networks by chance."""
        family = self.family
        drawn = [self.controller.initial(family.seen, family.actions, random) for _ in range(count)]
        return np.reshape(drawn, (len(drawn), self.controller.entries(family.seen, family.actions)))

    def _sums(self, point: Array, theta: Array, chance: Any) -> tuple[SimulatedModel, list[Array]]:
        """Discounted sums of the cost, then of all that the loss asks for, of each particle."""
        model, functions, given = self.family.at(theta), [], self.family.shapes()

        def noted(function: Callable[[Any, Any], Any]) -> Any:
            functions.append(function)
            return tree_map(lambda leaf: jnp.zeros(leaf.shape), jax.eval_shape(_floats(function), *given))

        # The loss is run once without numbers, to hear which functions it asks for.
        jax.eval_shape(lambda: self.loss(SimulatedOccupancy(self.family.mass, jnp.zeros(()), noted), model))
        return model, self.family.sums([_floats(f) for f in functions], self.controller, point, theta, chance)

    def _loss(self, model: SimulatedModel, means: list[Array]) -> Array:
        left = iter(means)
        cost = next(left)
        loss = jnp.asarray(self.loss(SimulatedOccupancy(self.family.mass, cost, lambda _: next(left)), model))
        return loss / self.unit

    def _fitted(self, point: Array, theta: Array) -> Array:
        """The loss on the particles that policies are fitted to."""
        model, sums = self._sums(point, theta, self.fitted)
        return self._loss(model, [total.mean(axis=0) for total in sums])

    def in_units(self, thetas: Float[np.ndarray, "N ..."]) -> tuple[Objective, Unit]:
        """Losses in units of what the starting policy loses at a few draws."""
        scale = float(np.mean(np.abs(losses_on(self, self.initial()[None], thetas))))
        if not (np.isfinite(scale) and scale > 0):
            return self, Unit(0.0, 1.0)
        return changed(self, unit=np.asarray(scale)), Unit(0.0, scale)

    def losses(self, points: Float[Array, "N D"], thetas: Array) -> Losses:
        """The loss at every draw."""
        return Losses(jax.vmap(self._fitted)(points, thetas), None)

    @property
    def by_chance(self) -> bool:
        """They are means over particles."""
        return True

    def replicates(self, points: Float[Array, "N D"], thetas: Array) -> Float[Array, "N B"]:
        """Losses on the particles that answers are judged on: of all, then without each of the batches; traced."""

        def one(point: Array, theta: Array) -> Array:
            model, sums = self._sums(point, theta, self.judged)
            batches = [total.reshape(BATCHES, -1, *total.shape[1:]).mean(axis=1) for total in sums]
            whole = [batch.mean(axis=0) for batch in batches]
            without = [
                (total - batch / BATCHES) * (BATCHES / (BATCHES - 1))
                for total, batch in zip(whole, batches, strict=True)
            ]
            others = jax.vmap(lambda *means: self._loss(model, list(means)))(*without)
            return jnp.concatenate([self._loss(model, whole)[None], others])

        return jax.vmap(one)(points, thetas)

    def size(self) -> Size:
        """What is kept of the particles' walks."""
        family = self.family
        work = self.controller.work(family.seen, family.actions)
        return Size(family.bytes(work), 8, False)

    def policy(self, point: Float[np.ndarray, " D"], parameters: Any = None) -> Any:
        """A `LinearGaussianPolicy`, a `NetworkPolicy`, or the function that was given."""
        return self.controller.policy(point, self.family.seen, self.family.actions)

    def holding(self, policy: Any) -> Objective:
        """For the class of policies that this one is of."""
        controller, _ = held(policy, self.family.seen, self.family.actions)
        return changed(self, controller=controller)

    def point_from(self, policy: Any) -> Float[np.ndarray, " D"]:
        """The parameters of a gain or a network of this class."""
        _, point = held(policy, self.family.seen, self.family.actions)
        entries = self.controller.entries(self.family.seen, self.family.actions)
        if len(point) != entries:
            raise InputError(
                f"the policy has {len(point)} parameters, a {type(self.controller).__name__} of this objective "
                f"{entries}"
            )
        return point

    @in_float64
    def check(self, thetas: Float[np.ndarray, "N ..."], parameters: Any = None, differentiable: bool = True) -> None:
        """Parts that fit, and a finite loss with a finite derivative, if one is needed, at the first draw."""
        require_finite("a posterior draw of theta", thetas)
        self.family.check(thetas[0])
        family = self.family
        point = self.initial() if parameters is None else np.asarray(parameters)
        with explained(
            lambda error: (
                f"the loss could not be evaluated: {' '.join(str(error).split())[:300]}; it is called as "
                "loss(occupancy, model), and may use occupancy.cost, occupancy.mass and occupancy.expect(function)"
            )
        ):
            shape = jax.eval_shape(self._fitted, point, thetas[0])
        if shape.shape != () or not jnp.issubdtype(shape.dtype, jnp.floating):
            raise InputError(f"the loss must return one real number, got {shape}; sum or average it")
        if parameters is None:
            return
        if not family.differentiable and differentiable:
            raise InputError(
                f"a {type(family).__name__} has no derivatives; use gradient=ZerothOrder(directions=30, radius=0.1)"
            )
        value, slope = _looked(self, point, thetas[0], differentiable)
        if not np.isfinite(value):
            raise InputError(
                f"the loss is {value} at the starting policy; shorten the horizon, or keep step and cost finite"
            )
        if differentiable and not np.all(np.isfinite(slope)):
            raise InputError(
                "the gradient of the loss is not finite at the starting policy; keep roots off zero, or use "
                "gradient=ZerothOrder()"
            )

    def no_bound(self) -> str:
        """Nothing but walks is known."""
        return "of a model that can only be simulated the least loss at a known theta is not known, nor a bound of it"

    def parts(self) -> dict[str, Any]:
        """Family, loss and policy."""
        return {"family": self.family, "loss": self.loss, "policy": self.controller}


@jitted
def _looked(objective: SimulatedObjective, point: Array, theta: Array, differentiable: bool) -> tuple[Array, Array]:
    value = objective._fitted
    return jax.value_and_grad(value)(point, theta) if differentiable else (value(point, theta), jnp.zeros(()))


def _floats(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Array]:
    """A function of state and action whose value is an array of floats."""
    return lambda state, action: jnp.asarray(function(state, action), float)
