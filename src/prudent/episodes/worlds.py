"""Where a policy is deployed: a model or a linear system at a true theta, a Gymnasium environment, a user's step."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from ..arrays import Array, as_float, as_whole, require_kind, require_size
from ..errors import InputError
from ..linear import LinearFamily, LinearGaussianPolicy, covariance
from ..models import AbstractFamily
from ..policies import TabularPolicy, picked
from ..records import Record, field
from ..transitions import Transitions
from ..vector_log import VectorLog


class World(Record):
    """Something that can be acted in. A concrete world supplies `deploy`.

    >>> import numpy as np, prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> world = pr.SimulatedWorld(lake, theta=(0.3, 0.1), steps=20)
    >>> len(world.deploy(pr.TabularPolicy(np.full((4, 4), 0.25)), np.random.default_rng(0)))
    20
    """

    @abc.abstractmethod
    def deploy(self, policy: Any, generator: np.random.Generator) -> Any:
        """Act by the policy; the log for the posterior's `update`, or None if nothing was observed."""


class SimulatedWorld(World):
    """A family at its true theta: `rollouts` walks of `steps` steps from the start, logged as transitions.

    >>> import numpy as np, prudent as pr
    >>> family = pr.TabularFamily(pr.Support.dense(2, 1), cost=[[1.0], [0.0]], start=0, discount=0.9)
    >>> world = pr.SimulatedWorld(family, theta=[[[0.5, 0.5]], [[0.5, 0.5]]], steps=10, rollouts=3)
    >>> len(world.deploy(pr.TabularPolicy([[1.0], [1.0]]), np.random.default_rng(0)))
    30

    Args:
        model: the family.
        theta: the truth.
        steps: length of a walk.
        rollouts: walks an episode.
    """

    model: AbstractFamily
    theta: Float[Array, ...] = field(converter=as_float)
    steps: int = field(static=True, converter=as_whole, default=100)
    rollouts: int = field(static=True, converter=as_whole, default=1)

    def __check_init__(self) -> None:
        require_kind("model", self.model, AbstractFamily, "a family of MDPs, made by Family(...) or TabularFamily(...)")
        require_size("steps", self.steps)
        require_size("rollouts", self.rollouts)
        try:
            self.model.at(self.theta)
        except Exception as error:  # a user's own function may fail in any way on a theta that is not its own
            raise InputError(f"the true theta gives no model of this family: {error}; give one that it has") from error

    def deploy(self, policy: TabularPolicy, generator: np.random.Generator) -> Transitions:
        """The transitions of all walks."""
        state, action, slot = self.walk(policy, generator)
        index = self.model.support.index()
        states, actions, _ = self.model.support.shape
        return Transitions(state, action, index[state, action, slot], np.ones(len(state)), states, actions)

    def walk(self, policy: TabularPolicy, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """State, action and slot in the successor list of every step, walk after walk."""
        mdp = self.model.at(self.theta)
        index, start = mdp.kernel.support.index(), np.asarray(mdp.start)
        choose = _choices(policy, self.model.support.shape[:2])
        move = np.cumsum(np.asarray(mdp.kernel.probability), axis=2)
        path = np.empty((self.steps, 3, self.rollouts), dtype=int)
        now = picked(np.broadcast_to(np.cumsum(start), (self.rollouts, len(start))), generator)
        for step in range(self.steps):
            action = picked(choose[now], generator)
            slot = picked(move[now, action], generator)
            path[step] = now, action, slot
            now = index[now, action, slot]
        state, action, slot = path.transpose(1, 2, 0).reshape(3, -1)
        return state, action, slot


class LinearWorld(World):
    """A linear system at its true theta: `rollouts` walks of `steps` steps from the start.

    Under `a = K s` alone, every state moves its action in the same way, and what actions do by themselves cannot be
    told from what states do: `exploration` is added to the actions so that the log tells.

    >>> import prudent as pr
    >>> family = pr.LinearFamily(state_cost=[[1.0]], action_cost=[[1.0]], noise=[[1.0]], discount=0.9)
    >>> world = pr.LinearWorld(family, theta=[[1.1, 1.0]], steps=10, exploration=[[1.0]])
    >>> prior = pr.CutOff(family.prior(spread=3.0), credible=0.9)
    >>> result = pr.run_episodes(family, prior, world, episodes=3)
    >>> bool(pr.loss_at(result.policy, family, [[1.1, 1.0]]) < 1.1 * pr.linear_plan(family, [[1.1, 1.0]]).cost)
    True

    Args:
        family: the systems.
        theta: the truth.
        steps: length of a walk.
        rollouts: walks an episode.
        exploration: `[m, m]` covariance of what is added to the policy's actions; 0 when left out.
    """

    family: LinearFamily
    theta: Float[Array, "n p"]
    exploration: Float[Array, "m m"]
    steps: int = field(static=True)
    rollouts: int = field(static=True)

    def __init__(self, family: LinearFamily, theta: Any, steps: int = 100, rollouts: int = 1, exploration: Any = None):
        require_kind("family", family, LinearFamily, "a LinearFamily; for tables there is SimulatedWorld(model, theta)")
        family.at(theta)
        self.family, self.theta = family, np.asarray(as_float(theta, "theta"))
        self.steps, self.rollouts = require_size("steps", steps), require_size("rollouts", rollouts)
        self.exploration = covariance("exploration", exploration, family.actions)

    def deploy(self, policy: LinearGaussianPolicy, generator: np.random.Generator) -> VectorLog:
        """The transitions of all walks."""
        require_kind("policy", policy, LinearGaussianPolicy, "a gain, as of a solution for a LinearFamily")
        acting = LinearGaussianPolicy(policy.gain, policy.bias, policy.covariance + self.exploration)
        seed = int(generator.integers(2**31))
        return self.family.simulate(self.theta, acting, self.steps, self.rollouts, seed)


class SteppedWorld(World):
    """A world walked through step by step. A concrete one supplies its sizes, `_begin` and `_go`."""

    @property
    @abc.abstractmethod
    def _sizes(self) -> tuple[int, int, int, int]:
        """How many states and actions there are, how many walks an episode has, and how many steps a walk at most."""

    @abc.abstractmethod
    def _begin(self, generator: np.random.Generator) -> Any:
        """The first state of a walk, or None if there is no walk to be had now."""

    @abc.abstractmethod
    def _go(self, state: int, action: int, generator: np.random.Generator) -> tuple[Any, Any]:
        """The next state, and whether the walk has ended."""

    def deploy(self, policy: TabularPolicy, generator: np.random.Generator) -> Transitions | None:
        """The transitions of all walks, up to the step that ends each; None when there was no walk."""
        *shape, rollouts, steps = self._sizes
        choose, records = _choices(policy, tuple(shape)), []
        for _ in range(rollouts):
            first = self._begin(generator)
            if first is None:
                continue
            state = _state_number(first, shape[0])
            for _ in range(steps):
                action = int(picked(choose[state][None], generator)[0])
                following, ended = _stepped(self._go(state, action, generator))
                following = _state_number(following, shape[0])
                records.append((state, action, following))
                state = following
                if ended:
                    break
        return Transitions.from_records(records, *shape) if records else None


class StepWorld(SteppedWorld):
    """A user's own world, stepped by a function.

    >>> import numpy as np, prudent as pr
    >>> def step(state, action, generator):  # a fair coin decides whether the walk moves on
    ...     return (state + generator.integers(2)) % 3, False
    >>> world = pr.StepWorld(step, reset=lambda generator: 0, states=3, actions=1, steps=5)
    >>> len(world.deploy(pr.TabularPolicy(np.ones((3, 1))), np.random.default_rng(0)))
    5

    Args:
        step: `(state, action, generator) -> (next state, whether the walk has ended)`.
        reset: `generator -> first state`, or None if there is no walk to be had now.
        states: how many there are.
        actions: how many there are.
        steps: most steps of a walk.
        rollouts: walks an episode.
    """

    step: Callable[[int, int, np.random.Generator], tuple[Any, Any]] = field(static=True)
    reset: Callable[[np.random.Generator], Any] = field(static=True)
    states: int = field(static=True, converter=as_whole)
    actions: int = field(static=True, converter=as_whole)
    steps: int = field(static=True, converter=as_whole, default=100)
    rollouts: int = field(static=True, converter=as_whole, default=1)

    def __check_init__(self) -> None:
        for name in ("step", "reset"):
            if not callable(getattr(self, name)):
                raise InputError(f"{name} must be a function, got {getattr(self, name)!r}")
        for name in ("states", "actions", "steps", "rollouts"):
            require_size(name, getattr(self, name))

    @property
    def _sizes(self) -> tuple[int, int, int, int]:
        """As given."""
        return self.states, self.actions, self.rollouts, self.steps

    def _begin(self, generator: np.random.Generator) -> Any:
        """The user's `reset`."""
        return self.reset(generator)

    def _go(self, state: int, action: int, generator: np.random.Generator) -> tuple[Any, Any]:
        """The user's `step`."""
        return self.step(state, action, generator)


class GymnasiumWorld(SteppedWorld):
    """A Gymnasium environment with discrete states and actions (`pip install "prudent[gym]"`).

    A walk ends with the environment's episode, so nothing is logged, or learned, of a state that ends it.

    >>> import gymnasium, numpy as np, prudent as pr
    >>> world = pr.GymnasiumWorld(gymnasium.make("FrozenLake-v1"), rollouts=10)
    >>> log = world.deploy(pr.TabularPolicy(np.full((16, 4), 0.25)), np.random.default_rng(0))
    >>> log.states, log.actions
    (16, 4)

    Args:
        environment: made by `gymnasium.make`; its random numbers are seeded from the episode's stream.
        rollouts: its episodes in one of ours.
        steps: most steps of one of its episodes; its own limit holds too.
    """

    environment: Any = field(static=True)
    rollouts: int = field(static=True, converter=as_whole, default=1)
    steps: int = field(static=True, converter=as_whole, default=10_000)

    def __check_init__(self) -> None:
        require_size("rollouts", self.rollouts)
        require_size("steps", self.steps)
        discrete_sizes(self.environment)

    @property
    def _sizes(self) -> tuple[int, int, int, int]:
        """Those of its spaces, and as given."""
        return *discrete_sizes(self.environment), self.rollouts, self.steps

    def _begin(self, generator: np.random.Generator) -> Any:
        """Its first observation."""
        return self.environment.reset(seed=int(generator.integers(2**31)))[0]

    def _go(self, state: int, action: int, generator: np.random.Generator) -> tuple[Any, Any]:
        """A step of the environment, which knows its state and has random numbers of its own."""
        following, _, terminated, truncated, _ = self.environment.step(action)
        return following, terminated or truncated


def discrete_sizes(environment: Any) -> tuple[int, int]:
    """Numbers of states and actions of an environment; refuses one whose spaces are not discrete from 0."""
    sizes = []
    for name in ("observation_space", "action_space"):
        space = getattr(environment, name, None)
        if space is None or type(space).__name__ != "Discrete" or getattr(space, "start", 0) != 0:
            raise InputError(
                f"the environment's {name} is {space}; it must be Discrete, numbered from 0: "
                "discretise it with a gymnasium.ObservationWrapper or ActionWrapper"
            )
        sizes.append(int(space.n))
    return sizes[0], sizes[1]


def _stepped(result: Any) -> tuple[Any, bool]:
    """What a step gave, refused unless it is a pair of the next state and whether the walk has ended."""
    if not isinstance(result, tuple | list) or len(result) != 2 or not isinstance(result[1], bool | np.bool_):
        raise InputError(
            f"step(state, action, generator) gave {result!r}; it must give a pair, the next state and whether the walk "
            "has ended, such as (3, False)"
        )
    return result[0], bool(result[1])


def _choices(policy: TabularPolicy, shape: tuple[int, ...]) -> Float[np.ndarray, "S A"]:
    """Cumulative action probabilities; refuses a policy for other sizes."""
    require_kind("policy", policy, TabularPolicy, "a table, as of a solution for a family of MDPs")
    table = np.asarray(policy.probabilities)
    if table.shape != shape:
        raise InputError(
            f"the policy has shape {table.shape}, the world has {shape[0]} states and {shape[1]} actions; "
            "solve a model of the world's sizes"
        )
    return np.cumsum(table, axis=1)


def _state_number(value: Any, states: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < states:
        raise InputError(
            f"the world is in state {value!r}; its states must be whole numbers 0 to {states - 1}: "
            "correct its step and reset, or the number of states"
        )
    return int(value)
