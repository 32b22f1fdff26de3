"""Gymnasium's pendulum and cart-pole: as families whose constants are unknown, and as worlds with changed constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from prudent import SimulatedFamily, VectorLog
from prudent.autodiff import jax, jnp

# Of the pendulum: its own constants, largest torque and speed, what a gust adds to the torque, and how far from
# upright and how fast it may begin.
GRAVITY, TORQUE, SPEED, SECONDS, GUST, FIRST = 10.0, 2.0, 8.0, 0.05, 0.5, (0.2, 0.2)

# Of the cart-pole: its own gravity, largest force and seconds of a step, and what pushes add to both speeds.
EARTH, FORCE, TICK, PUSHES = 9.8, 10.0, 0.02, (0.02, 0.04)

# What a squared torque and a squared force cost. Gymnasium's torque costs 0.001: then a hard hand is right for every
# pendulum, and nothing is gained by knowing that one of them may be heavy.
TORQUE_COST, FORCE_COST = 0.1, 0.03

# Angle of the pole and place of the cart at which an episode of Gymnasium ends.
TILTED, OFF = 0.2095, 2.4

# What a step costs at most where the pole has fallen: more than three times the largest force, so that none lets go.
FALLEN = 10.0

# Most of the force while the cart-pole is logged.
GENTLE = 2.0


class World(NamedTuple):
    """One environment of Gymnasium with constants of its own.

    Attributes:
        reset: `seed -> state`, as the environment itself begins.
        step: `(state, action, noise) -> state`, by the environment's own step.
    """

    reset: Callable[[int], np.ndarray]
    step: Callable[[np.ndarray, float, np.ndarray], np.ndarray]


class Setting(NamedTuple):
    """A family, and the environment that it is of.

    Attributes:
        name: of the environment.
        family: of models, whose theta are the constants.
        constants: their names.
        truth: what the log comes from.
        centre, spread: of the prior, log-normal: medians, and standard deviations of logarithms.
        world: `theta -> World`.
        log: `seed -> VectorLog`, a short one from the world at the truth.
        bounds: of actions.
        unit: of what is pictured: a state over time.
        pictured: which coordinate of the state.
        fallen: where it is farther from 0 than this, it has fallen.
    """

    name: str
    family: SimulatedFamily
    constants: tuple[str, ...]
    truth: np.ndarray
    centre: np.ndarray
    spread: np.ndarray
    world: Callable[[np.ndarray], World]
    log: Callable[[int], VectorLog]
    bounds: tuple[float, float]
    unit: str
    pictured: int
    fallen: float


def pendulum(particles: int = 8) -> Setting:
    """Hold a pendulum upright with a torque that cannot lift it, its mass, length and friction unknown."""

    def step(theta: Any, state: Any, action: Any, noise: Any) -> Any:
        mass, length, friction = theta
        angle, speed = state
        torque = jnp.clip(action[0], -TORQUE, TORQUE) - friction * speed + GUST * noise[0]
        pull = 3.0 * GRAVITY / (2.0 * length) * jnp.sin(angle) + 3.0 / (mass * length**2) * torque
        after = jnp.clip(speed + pull * SECONDS, -SPEED, SPEED)
        return jnp.stack([angle + after * SECONDS, after])

    def cost(theta: Any, state: Any, action: Any) -> Any:
        del theta
        angle = jnp.mod(state[0] + jnp.pi, 2.0 * jnp.pi) - jnp.pi
        return angle**2 + 0.1 * state[1] ** 2 + TORQUE_COST * action[0] ** 2

    def start(noise: Any) -> Any:
        return (2.0 * jax.scipy.special.ndtr(noise) - 1.0) * jnp.asarray(FIRST)

    family = SimulatedFamily(
        step,
        cost,
        start,
        observe=lambda state: jnp.stack([jnp.cos(state[0]), 2.0 * jnp.sin(state[0]), state[1]]),
        discount=0.99,
        horizon=59,
        actions=1,
        noise=1,
        start_noise=2,
        particles=particles,
    )

    def world(theta: np.ndarray) -> World:
        import gymnasium

        made: Any = gymnasium.make("Pendulum-v1").unwrapped
        made.m, made.l = float(theta[0]), float(theta[1])
        # The bound is on the motor alone: friction and gusts come on top of it.
        made.max_torque = np.inf

        def stepped(state: np.ndarray, action: float, noise: np.ndarray) -> np.ndarray:
            made.state = np.array(state)
            torque = min(max(action, -TORQUE), TORQUE) - theta[2] * state[1] + GUST * noise[0]
            made.step(np.array([torque]))
            return np.array(made.state)

        def reset(seed: int) -> np.ndarray:
            made.reset(seed=seed, options={"x_init": FIRST[0], "y_init": FIRST[1]})
            return np.array(made.state)

        return World(reset, stepped)

    truth = np.array([1.0, 1.0, 0.1])

    def log(seed: int) -> VectorLog:
        return logged(world(truth), family, seed, steps=4, first=np.array([np.pi, 0.0]), size=TORQUE)

    return Setting(
        "Pendulum-v1",
        family,
        ("mass", "length", "friction"),
        truth,
        np.array([1.0, 1.0, 0.1]),
        np.array([0.5, 0.3, 1.0]),
        world,
        log,
        (-TORQUE, TORQUE),
        "angle from upright",
        0,
        np.pi / 2.0,
    )


def cart_pole(particles: int = 8) -> Setting:
    """Balance a pole on a cart by a bounded force, with unknown masses and length."""

    def step(theta: Any, state: Any, action: Any, noise: Any) -> Any:
        cart, pole, length = theta
        _, speed, angle, turning = state
        force = jnp.clip(action[0], -FORCE, FORCE)
        total, arm = cart + pole, pole * length
        pushed = (force + arm * turning**2 * jnp.sin(angle)) / total
        turned = (EARTH * jnp.sin(angle) - jnp.cos(angle) * pushed) / (
            length * (4.0 / 3.0 - pole * jnp.cos(angle) ** 2 / total)
        )
        moved = pushed - arm * turned * jnp.cos(angle) / total
        kicks = jnp.asarray(PUSHES) * noise
        return state + jnp.stack([TICK * speed, TICK * moved + kicks[0], TICK * turning, TICK * turned + kicks[1]])

    def cost(theta: Any, state: Any, action: Any) -> Any:
        del theta
        size = (state[2] / TILTED) ** 2 + (state[0] / OFF) ** 2
        return size / (1.0 + size / FALLEN) + FORCE_COST * action[0] ** 2

    def start(noise: Any) -> Any:
        return 0.05 * (2.0 * jax.scipy.special.ndtr(noise) - 1.0)

    family = SimulatedFamily(
        step,
        cost,
        start,
        observe=lambda state: state * jnp.asarray([0.5, 0.5, 3.0, 1.0]),
        discount=0.99,
        horizon=99,
        actions=1,
        noise=2,
        start_noise=4,
        particles=particles,
    )

    def world(theta: np.ndarray) -> World:
        import gymnasium

        made: Any = gymnasium.make("CartPole-v1").unwrapped
        made.masscart, made.masspole, made.length = (float(part) for part in theta)
        made.total_mass, made.polemass_length = made.masscart + made.masspole, made.masspole * made.length

        def stepped(state: np.ndarray, action: float, noise: np.ndarray) -> np.ndarray:
            force = min(max(action, -FORCE), FORCE)
            # Gymnasium pushes to the left or to the right, as hard as `force_mag` says.
            made.state, made.force_mag, made.steps_beyond_terminated = np.array(state), abs(force), None
            made.step(int(force > 0))
            return np.array(made.state, float) + np.array([0.0, PUSHES[0], 0.0, PUSHES[1]]) * noise[[0, 0, 1, 1]]

        def reset(seed: int) -> np.ndarray:
            made.reset(seed=seed)
            return np.array(made.state, float)

        return World(reset, stepped)

    truth = np.array([1.0, 0.1, 0.5])

    def log(seed: int) -> VectorLog:
        return logged(world(truth), family, seed, steps=6, first=np.zeros(4), size=GENTLE)

    return Setting(
        "CartPole-v1",
        family,
        ("mass of the cart", "mass of the pole", "half its length"),
        truth,
        np.array([1.0, 0.1, 0.5]),
        np.array([0.7, 0.7, 0.5]),
        world,
        log,
        (-FORCE, FORCE),
        "angle of the pole",
        2,
        TILTED,
    )


def logged(world: World, family: SimulatedFamily, seed: int, steps: int, first: np.ndarray, size: float) -> VectorLog:
    """A walk from one state with actions that are drawn anew every few steps, evenly up to a size."""
    random = np.random.default_rng(seed)
    states, actions = [np.array(first)], []
    for t in range(steps):
        actions.append([random.uniform(-size, size)] if t % 3 == 0 else actions[-1])
        states.append(world.step(states[-1], actions[-1][0], random.normal(size=family.noise)))
    return VectorLog.from_episodes([np.stack(states)], [np.array(actions)])
