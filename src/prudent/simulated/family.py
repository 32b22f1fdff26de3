"""Models that can only be simulated: their steps as functions of theta, state, action and noise."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from ..arrays import Array, as_float, as_whole, in_float64, require_number, require_size
from ..autodiff import jax, jitted, jnp, lax
from ..conformance import explained
from ..errors import InputError
from ..linear import covariance, require_log, root
from ..records import AbstractVar, Record, field
from ..seeds import generator
from ..vector_log import VectorLog
from .policies import Controller, held
from .rollouts import Chance, Feature, Walk, check_noise, discounted_sums, log_density, segment

# A walk takes long for what it keeps: chunks are cut down to a few models, so that not many are filled up.
LEAST_BYTES = 2**17

# Rows of a log at which it is looked whether noise enters linearly.
LOOKED_AT = 16


class SimulatedModel(Record):
    """One model of a family: what a loss is told beside the occupancy.

    >>> import prudent as pr
    >>> family = pr.SimulatedFamily(lambda theta, s, a, w: theta * s + a + w, lambda theta, s, a: s[0] ** 2,
    ...                             lambda noise: noise, discount=0.9, horizon=20, actions=1, noise=1, start_noise=1)
    >>> float(family.at(0.5).theta)
    0.5

    Attributes:
        family: what it is of.
        theta: the parameter.
    """

    family: Any
    theta: Float[Array, ...]


class AbstractSimulated(Record):
    """A family of models of which walks can be made, and nothing else.

    Attributes:
        discount: gamma in the paper, in [0, 1].
        horizon: the last step that counts, `t = 0..horizon`.
        actions: dimension of the action.
        action_noise: `[m, m]` covariance of what is added to every action, whatever the policy.
        particles: walks behind one loss.
        seed: of the noise that they meet.
        seen: how many numbers a policy sees.
        differentiable: whether JAX can go backwards through a walk.
    """

    differentiable: ClassVar[bool] = True

    discount: AbstractVar[Float[Array, ""]]
    horizon: AbstractVar[int]
    actions: AbstractVar[int]
    action_noise: AbstractVar[Float[Array, "m m"]]
    particles: AbstractVar[int]
    seed: AbstractVar[Int[Array, ""]]
    seen: AbstractVar[int]

    def _begin(self, discount: Any, horizon: int, actions: int, action_noise: Any, particles: int, seed: int) -> None:
        """Fields that all families have, checked."""
        self.discount = require_number("discount", discount, "[0, 1]")
        self.horizon, self.actions = require_size("horizon", as_whole(horizon), 0), require_size("actions", actions)
        self.action_noise = covariance("the covariance action_noise", action_noise, self.actions)
        self.particles = require_size("particles", particles)
        self.seed = np.asarray(require_size("seed", as_whole(seed), 0))

    @abc.abstractmethod
    def chance(self, random: np.random.Generator, particles: int) -> Any:
        """What so many particles meet, as arrays."""

    @abc.abstractmethod
    def sums(
        self, functions: Sequence[Feature], controller: Controller, point: Array, theta: Array, chance: Any
    ) -> list[Float[Array, "P ..."]]:
        """Discounted sums of the cost, then of other functions of state and action, of each particle; traced."""

    @abc.abstractmethod
    def shapes(self) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
        """Of state and action, as functions of them are given."""

    @abc.abstractmethod
    def check(self, theta: Float[np.ndarray, ...]) -> None:
        """Refuse parts that do not fit together at a theta."""

    @abc.abstractmethod
    def bytes(self, work: int) -> int:
        """What one loss with its derivative takes, if an action takes so many numbers."""

    def at(self, theta: Any) -> SimulatedModel:
        """The model at a theta."""
        return SimulatedModel(self, jnp.asarray(theta))

    @property
    def mass(self) -> Float[Array, ""]:
        """`sum_t gamma^t`, of the occupancy; traced."""
        return (jnp.asarray(self.discount) ** jnp.arange(self.horizon + 1)).sum()

    def root(self) -> Float[Array, "m m"]:
        """A square root of the covariance of actions; traced."""
        return root(jnp.asarray(self.action_noise))

    def objective(self, loss: Any = None, policy: Any = None, occupancy: Any = None) -> Any:
        """What is minimised over the policies of a class; the expected discounted cost when no loss is given."""
        # Made of the family, so it comes later; a family is what knows its own.
        from .objective import SimulatedObjective

        if occupancy is not None:
            raise InputError("occupancy= is for models whose occupancy can be computed; walks have a horizon=")
        return SimulatedObjective(self, loss, policy)


class SimulatedFamily(AbstractSimulated):
    """Models `s' = step(theta, s, a, w)`, `w ~ N(0, I)`, as JAX functions; states and actions are vectors.

    Losses are means over particles that meet the same noise for every theta and every policy, and their derivatives go
    backwards through the walk. The last step that counts is `horizon`.

    >>> import jax.numpy as jnp, prudent as pr
    >>> def step(theta, state, action, noise):
    ...     return theta * state + action + 0.1 * noise
    >>> family = pr.SimulatedFamily(step, cost=lambda theta, state, action: state[0] ** 2 + 0.1 * action[0] ** 2,
    ...                             start=lambda noise: 1.0 + 0.0 * noise, discount=0.95, horizon=30, actions=1,
    ...                             noise=1, start_noise=1, particles=8)
    >>> belief = pr.Draws([[0.8], [1.1], [1.3]])
    >>> solution = pr.solve(family, belief, risk=pr.CVaR(0.5), policy=pr.Network(width=4, bounds=(-3.0, 3.0)),
    ...                     solver=pr.SampleAverage(starts=1, iterations=20))
    >>> bool(solution.risk < pr.evaluate([[0.0]], family, belief, risk=pr.CVaR(0.5)).risk)
    True
    >>> solution.certificate.lower_bound is None, solution.certificate.reason[:34]
    (True, 'of a model that can only be simula')

    Args:
        step: `(theta, state [n], action [m], noise [w]) -> state [n]`, traceable.
        cost: `(theta, state, action) -> number`.
        start: `noise [v] -> state [n]`.
        discount: in [0, 1].
        horizon: the last step that counts, `t = 0..horizon`.
        actions: dimension of the action.
        noise: how many standard normal numbers a step takes.
        start_noise: how many the start takes.
        observe: `state -> [o]` what a policy sees; the state when left out.
        action_noise: `[m, m]` covariance of what is added to every action, whatever the policy; 0 when left out.
        density: `(theta, state, action, next state) -> log-density`, for beliefs from logs; when left out, it is found
            from `step`, whose noise must then enter linearly.
        particles: walks behind one loss; an answer is judged on twice as many others.
        seed: of the noise they meet.
    """

    step: Callable[..., Any] = field(static=True)
    cost: Callable[..., Any] = field(static=True)
    start: Callable[..., Any] = field(static=True)
    observe: Callable[..., Any] | None = field(static=True)
    density: Callable[..., Any] | None = field(static=True)
    discount: Float[Array, ""]
    action_noise: Float[Array, "m m"]
    horizon: int = field(static=True)
    actions: int = field(static=True)
    noise: int = field(static=True)
    start_noise: int = field(static=True)
    particles: int = field(static=True)
    seed: Int[Array, ""]
    states: int = field(static=True)
    seen: int = field(static=True)

    @in_float64
    def __init__(
        self,
        step: Callable[..., Any],
        cost: Callable[..., Any],
        start: Callable[..., Any],
        *,
        discount: Any,
        horizon: int,
        actions: int,
        noise: int = 0,
        start_noise: int = 0,
        observe: Callable[..., Any] | None = None,
        action_noise: Any = None,
        density: Callable[..., Any] | None = None,
        particles: int = 64,
        seed: int = 0,
    ):
        for name, function in (("step", step), ("cost", cost), ("start", start)):
            if not callable(function):
                raise InputError(f"{name} must be a function, got {function!r}")
        self.step, self.cost, self.start, self.observe, self.density = step, cost, start, observe, density
        self._begin(discount, horizon, actions, action_noise, particles, seed)
        self.noise = require_size("noise", as_whole(noise), 0)
        self.start_noise = require_size("start_noise", as_whole(start_noise), 0)
        first = _shape("start(noise)", start, _vector(self.start_noise))
        if len(first.shape) != 1:
            raise InputError(f"start must return a state, a vector, got shape {first.shape}")
        self.states = int(first.shape[0])
        looked = first if observe is None else _shape("observe(state)", observe, _vector(self.states))
        if len(looked.shape) != 1:
            raise InputError(f"observe must return a vector, got shape {looked.shape}")
        self.seen = int(looked.shape[0])

    def chance(self, random: np.random.Generator, particles: int) -> Chance:
        """Standard normal numbers for every step of every particle."""
        steps = self.horizon + 1
        return Chance(
            random.normal(size=(particles, self.start_noise)),
            random.normal(size=(steps, particles, self.noise)),
            random.normal(size=(steps, particles, self.actions)),
        )

    def walk(self, controller: Controller, point: Array, theta: Array, root: Any) -> Walk:
        """How particles move under a policy."""

        def act(states: Array, noise: Array) -> Array:
            seen = states if self.observe is None else jax.vmap(self.observe)(states)
            return controller.mean(point, seen, self.actions) + noise @ jnp.asarray(root).T

        def step(state: Array, action: Array, noise: Array) -> Array:
            return jnp.asarray(self.step(theta, state, action, noise), state.dtype)

        return Walk(lambda noise: jnp.asarray(self.start(noise), float), step, act, jnp.asarray(self.discount))

    def sums(
        self, functions: Sequence[Feature], controller: Controller, point: Array, theta: Array, chance: Chance
    ) -> list[Float[Array, "P ..."]]:
        """By one walk of all particles."""
        walk = self.walk(controller, point, theta, self.root())
        cost: Feature = lambda state, action: self.cost(theta, state, action)  # noqa: E731
        return discounted_sums(walk, [cost, *functions], Chance(*map(jnp.asarray, chance)), self.horizon)

    def shapes(self) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
        """Vectors."""
        return _vector(self.states), _vector(self.actions)

    @in_float64
    def check(self, theta: Float[np.ndarray, ...]) -> None:
        """Shapes of what the functions return."""
        state, action = self.shapes()
        at = jax.ShapeDtypeStruct(np.shape(theta), np.float64)
        after = _shape("step(theta, state, action, noise)", self.step, at, state, action, _vector(self.noise))
        if after.shape != state.shape:
            raise InputError(f"step must return a state of shape {state.shape}, as start does, got {after.shape}")
        value = _shape("cost(theta, state, action)", self.cost, at, state, action)
        if value.shape != () or not jnp.issubdtype(value.dtype, jnp.floating):
            raise InputError(f"cost must return one real number, got shape {value.shape} of {value.dtype}")

    def bytes(self, work: int) -> int:
        """States between segments and within one, and what one step takes."""
        kept = 2 * segment(max(1, self.horizon)) * (self.states + 2)
        return max(LEAST_BYTES, 8 * self.particles * (kept + 4 * work))

    @in_float64
    def simulate(
        self, theta: Any, policy: Any, steps: int | None = None, rollouts: int = 1, seed: Any = 0
    ) -> VectorLog:
        """A log of `rollouts` walks of `steps` steps at a known theta; a `covariance` of the policy explores.

        >>> import prudent as pr
        >>> family = pr.SimulatedFamily(lambda theta, s, a, w: theta * s + a + w, lambda theta, s, a: s[0] ** 2,
        ...                             lambda w: w, discount=0.9, horizon=20, actions=1, noise=1, start_noise=1)
        >>> len(family.simulate(0.5, pr.LinearGaussianPolicy([[0.0]], covariance=[[1.0]]), steps=5, rollouts=2))
        10

        Args:
            theta: the truth.
            policy: a gain, a network, or any function of what is seen.
            steps: of a walk, at most `horizon + 1`, which it is when left out.
            rollouts: how many walks.
            seed: of their noise.
        """
        length = self.horizon + 1 if steps is None else require_size("steps", steps)
        if length > self.horizon + 1:
            raise InputError(f"a walk of this family has at most {self.horizon + 1} steps, got steps={length}")
        controller, point = held(policy, self.seen, self.actions)
        known = np.asarray(as_float(theta, "theta"))
        self.check(known)
        extra = np.asarray(getattr(policy, "covariance", np.zeros((self.actions, self.actions))))
        chance = self.chance(generator(seed), require_size("rollouts", rollouts))
        jitter = root(np.asarray(self.action_noise) + extra)
        found = _walked(self, controller, point, known, jitter, chance, length)
        # One walk after the other.
        return VectorLog(*(np.asarray(part).swapaxes(0, 1).reshape(rollouts * length, -1) for part in found))

    @in_float64
    def check_log(self, log: Any) -> None:
        """Refuse a log of another system."""
        require_log(log, self.states, self.actions, "family.simulate(...)")
        if self.density is None and self.noise == 0:
            raise InputError("without noise a log says theta for certain or not at all; give noise= or density=")

    def check_density(self, theta: Any, log: VectorLog) -> None:
        """Refuse noise that does not enter linearly, where no density is given."""
        if self.density is None:
            rows = slice(0, LOOKED_AT)
            check_noise(self.step, self.noise, theta, log.state[rows], log.action[rows])

    def log_likelihood(self, theta: Float[Array, ...], log: VectorLog) -> Float[Array, ""]:
        """`sum_k log p(s'_k | s_k, a_k, theta)` through the noise of `step`, or by `density`; traced.

        >>> import numpy as np, prudent as pr
        >>> family = pr.SimulatedFamily(lambda theta, s, a, w: theta * s + a + 2.0 * w, lambda theta, s, a: s[0] ** 2,
        ...                             lambda w: w, discount=0.9, horizon=20, actions=1, noise=1, start_noise=1)
        >>> log = pr.VectorLog([[1.0]], [[0.0]], [[1.0]])
        >>> round(float(family.log_likelihood(np.array(1.0), log)), 4)  # of N(1, 2^2) at 1
        -1.6121
        """

        def one(state: Array, action: Array, after: Array) -> Array:
            if self.density is not None:
                return jnp.asarray(self.density(theta, state, action, after))
            return log_density(lambda noise: self.step(theta, state, action, noise), self.noise, after)

        rows = (jnp.asarray(part) for part in (log.state, log.action, log.next_state))
        return jax.vmap(one)(*rows).sum()


@jitted
def _walked(
    family: SimulatedFamily, controller: Controller, point: Array, theta: Array, root: Array, chance: Chance, steps: int
) -> tuple[Array, Array, Array]:
    """States `[T, P, n]`, actions and next states of so many steps."""
    walk = family.walk(controller, point, jnp.asarray(theta), root)

    def body(states: Array, noises: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array, Array]]:
        actions = walk.act(states, noises[1])
        after = jax.vmap(walk.step)(states, actions, noises[0])
        return after, (states, actions, after)

    return lax.scan(body, jax.vmap(walk.start)(chance.start), (chance.step[:steps], chance.action[:steps]))[1]


def _vector(size: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((size,), np.float64)


def _shape(called: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """The shape that a user's function returns; refused in words where it cannot be traced."""
    shapes = [argument.shape for argument in arguments]
    with explained(
        lambda error: (
            f"{called} could not be traced by JAX with arguments of shapes {shapes}: "
            f"{' '.join(str(error).split())[:200]}; write it with jax.numpy, or use EnvironmentFamily for a "
            "simulator in plain Python"
        )
    ):
        return jax.eval_shape(lambda *given: jnp.asarray(function(*given)), *arguments)
