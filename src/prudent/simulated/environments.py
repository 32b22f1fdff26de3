"""Simulators in plain Python with the interface of Gymnasium, one for each theta."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..arrays import Array, require_size
from ..autodiff import jax, jnp, lax
from ..conformance import explained
from ..errors import InputError
from ..records import field
from .family import AbstractSimulated
from .policies import Controller
from .rollouts import Feature

# Chunks of models that take this or more each are cut down to what was asked for.
LEAST_BYTES = 2**20


class Seeds(NamedTuple):
    """What particles meet: seeds of the environment, and standard normal numbers for actions."""

    seeds: Array
    action: Float[Array, "T P m"]


class EnvironmentFamily(AbstractSimulated):
    """Simulators with Gymnasium's interface, made for each theta: plain Python, without derivatives.

    A cost is minus the reward, and nothing is lost after an episode has ended. Particles are episodes whose seeds are
    the same for every theta and every policy. Policies are found from values alone, `gradient=ZerothOrder()`; what they
    see are observations.

    >>> import numpy as np, prudent as pr
    >>> class Walk:
    ...     def __init__(self, pull): self.pull = pull
    ...     def reset(self, seed): self.at = np.random.default_rng(seed).normal(size=1); return self.at, {}
    ...     def step(self, action):
    ...         self.at = self.pull * self.at + action
    ...         return self.at, -float(self.at[0] ** 2), False, False, {}
    >>> family = pr.EnvironmentFamily(lambda theta: Walk(theta[0]), discount=0.9, horizon=10, seen=1, actions=1,
    ...                               particles=4)
    >>> solution = pr.solve(family, pr.Draws([[0.9], [1.1]]), gradient=pr.ZerothOrder(directions=4, radius=0.01),
    ...                     solver=pr.BRPG(samples=2, iterations=20, step=0.005))
    >>> bool(solution.risk < pr.evaluate([[0.0]], family, pr.Draws([[0.9], [1.1]])).risk)
    True

    Args:
        make: `theta -> environment` with `reset(seed=)` and `step(action)`.
        discount: in [0, 1].
        horizon: the last step that counts, `t = 0..horizon`.
        seen: how many numbers an observation has.
        actions: dimension of the action.
        convert: `[m] -> action` of the environment, such as `lambda u: int(u[0] > 0)`; the vector itself when left out.
        action_noise: `[m, m]` covariance of what is added to every action; 0 when left out.
        particles: episodes behind one loss.
        seed: from which those of the episodes are drawn.
    """

    differentiable: ClassVar[bool] = False

    make: Callable[[np.ndarray], Any] = field(static=True)
    convert: Callable[[np.ndarray], Any] | None = field(static=True)
    discount: Float[Array, ""]
    action_noise: Float[Array, "m m"]
    horizon: int = field(static=True)
    seen: int = field(static=True)
    actions: int = field(static=True)
    particles: int = field(static=True)
    seed: Int[Array, ""]

    def __init__(
        self,
        make: Callable[[np.ndarray], Any],
        *,
        discount: Any,
        horizon: int,
        seen: int,
        actions: int,
        convert: Callable[[np.ndarray], Any] | None = None,
        action_noise: Any = None,
        particles: int = 8,
        seed: int = 0,
    ):
        if not callable(make):
            raise InputError(f"make must be a function theta -> environment, got {make!r}")
        self.make, self.convert, self.seen = make, convert, require_size("seen", seen)
        self._begin(discount, horizon, actions, action_noise, particles, seed)

    def chance(self, random: np.random.Generator, particles: int) -> Seeds:
        """Seeds of episodes, and noise of actions."""
        seeds = random.integers(2**31, size=particles).astype(np.int32)
        return Seeds(seeds, random.normal(size=(self.horizon + 1, particles, self.actions)))

    def sums(
        self, functions: Sequence[Feature], controller: Controller, point: Array, theta: Array, chance: Seeds
    ) -> list[Float[Array, "P ..."]]:
        """By a call back to Python; functions of state and action are then traced on the walks."""
        steps, width = self.horizon + 1, self.seen + self.actions + 2
        # As whole numbers: JAX's threads that call back do not know that we compute in float64.
        words = jax.ShapeDtypeStruct((len(chance.seeds), steps, width, 2), jnp.uint32)
        noise = jnp.asarray(chance.action) @ self.root().T
        given = [lax.bitcast_convert_type(jnp.asarray(part, float), jnp.uint32) for part in (point, theta, noise)]

        def walked(seeds: Any, *given: Any) -> np.ndarray:
            lead = np.shape(seeds)[:-1]
            floats = [np.ascontiguousarray(part).view(np.float64)[..., 0] for part in given]
            parts = [np.asarray(part).reshape(-1, *part.shape[len(lead) :]) for part in (seeds, *floats)]
            found = np.stack([self._episodes(controller, *each) for each in zip(*parts, strict=True)])
            return np.ascontiguousarray(found)[..., None].view(np.uint32).reshape(*lead, *words.shape)

        found = jax.pure_callback(walked, words, jnp.asarray(chance.seeds), *given, vmap_method="broadcast_all")
        walks = lax.bitcast_convert_type(found, jnp.float64)
        seen, action = walks[..., : self.seen], walks[..., self.seen : -2]
        weights = jnp.asarray(self.discount) ** jnp.arange(steps) * walks[..., -1]

        def total(function: Feature) -> Array:
            values = jax.vmap(jax.vmap(function))(seen, action)
            return jax.vmap(lambda weight, value: jnp.tensordot(weight, value, axes=1))(weights, values)

        return [(weights * walks[..., -2]).sum(axis=1), *map(total, functions)]

    def _episodes(
        self, controller: Controller, seeds: np.ndarray, point: np.ndarray, theta: np.ndarray, noise: np.ndarray
    ) -> Float[np.ndarray, "P T w"]:
        """Observation, action, cost, and 1 until the end, of every step of every particle."""
        steps, seen = self.horizon + 1, self.seen
        walks = np.zeros((len(seeds), steps, seen + self.actions + 2))
        environment = self.make(theta)
        for walk, seed, pushed in zip(walks, seeds, noise.swapaxes(0, 1), strict=True):
            observation = environment.reset(seed=int(seed))[0]
            for t in range(steps):
                walk[t, :seen] = np.asarray(observation, float).ravel()
                action = controller.mean(point, walk[t, :seen], self.actions, np) + pushed[t]
                given = action if self.convert is None else self.convert(action)
                observation, reward, terminated, truncated, _ = environment.step(given)
                walk[t, seen:] = [*action, -float(reward), 1.0]
                if terminated or truncated:
                    break
        return walks

    def shapes(self) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
        """Observation and action."""
        return jax.ShapeDtypeStruct((self.seen,), np.float64), jax.ShapeDtypeStruct((self.actions,), np.float64)

    def check(self, theta: Float[np.ndarray, ...]) -> None:
        """An environment that can be reset, and whose observations have so many numbers."""
        refused = f"make(theta) at theta = {np.asarray(theta)} gave no environment with reset(seed=): "
        with explained(lambda error: refused + " ".join(str(error).split())[:200], ()):
            observation = self.make(np.asarray(theta)).reset(seed=0)[0]
        size = np.size(np.asarray(observation, float))
        if size != self.seen:
            raise InputError(f"an observation has {size} numbers, seen= says {self.seen}")

    def bytes(self, work: int) -> int:
        """Whole walks; at least so much that no chunk is filled up with walks that nobody asked for."""
        return max(LEAST_BYTES, 8 * self.particles * ((self.horizon + 1) * (self.seen + self.actions + 2) + work))
