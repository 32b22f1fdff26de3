"""Stage 5: policies as functions of parameters, and the parameter set W they are kept in."""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Float

from .arrays import Array, as_float, require_distribution, require_finite, require_indices
from .errors import InputError


class TabularPolicy(eqx.Module):
    """Action probabilities, `[S, A]`, rows summing to 1.

    >>> import prudent as pr
    >>> pr.TabularPolicy([[0.5, 0.5], [1.0, 0.0]]).greedy().tolist()
    [0, 0]
    """

    probabilities: Float[Array, "S A"]

    def __init__(self, probabilities: Any):
        self.probabilities = as_float(probabilities)
        table = np.asarray(self.probabilities)
        if table.ndim != 2:
            raise InputError(f"a policy is indexed [state, action], got shape {table.shape}")
        require_finite("policy", table)
        require_distribution("policy", table, ("state",))

    @staticmethod
    def deterministic(action: Any, actions: int) -> TabularPolicy:
        """The policy that always takes `action[s]` in state s."""
        return TabularPolicy(np.eye(actions)[require_indices("action", action, actions)])

    def greedy(self) -> np.ndarray:
        """`[S]` the most probable action of each state."""
        return np.asarray(self.probabilities).argmax(axis=1)


def action_probabilities(policy: TabularPolicy | Array | Any, states: int, actions: int) -> np.ndarray:
    """The checked table `[S, A]` of a `TabularPolicy` or an array."""
    table = policy if isinstance(policy, TabularPolicy) else TabularPolicy(policy)
    if table.probabilities.shape != (states, actions):
        raise InputError(f"the policy has shape {table.probabilities.shape}, the model needs {(states, actions)}")
    return np.asarray(table.probabilities)


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


class ParameterSet(eqx.Module):
    """W in the paper: the set a gradient step is projected onto."""

    @abc.abstractmethod
    def project(self, parameters: Any) -> Any:
        """The nearest point of the set."""


class Everywhere(ParameterSet):
    """No restriction.

    >>> import prudent as pr
    >>> pr.Softmax().within.project(7.0)
    7.0
    """

    def project(self, parameters: Any) -> Any:
        """The parameters as they are."""
        return parameters


class Box(ParameterSet):
    """Every parameter within `[low, high]`.

    >>> import prudent as pr
    >>> pr.Softmax(within=pr.Box(-5.0, 5.0)).within.high
    5.0
    """

    low: float = eqx.field(static=True)
    high: float = eqx.field(static=True)

    def __check_init__(self) -> None:
        if not (_is_real(self.low) and _is_real(self.high) and self.low < self.high):
            raise InputError(f"Box needs low < high, got [{self.low}, {self.high}]")

    def project(self, parameters: Any) -> Any:
        """Clip each parameter."""
        return optax.projections.projection_box(parameters, self.low, self.high)


class Ball(ParameterSet):
    """Euclidean norm of all parameters at most `radius`, the paper's `B_W`.

    >>> import prudent as pr
    >>> pr.Softmax(within=pr.Ball(10.0)).within.radius
    10.0
    """

    radius: float = eqx.field(static=True)

    def __check_init__(self) -> None:
        if not (_is_real(self.radius) and self.radius > 0):
            raise InputError(f"Ball needs radius > 0, got {self.radius}")

    def project(self, parameters: Any) -> Any:
        """Scale back onto the ball."""
        return optax.projections.projection_l2_ball(parameters, self.radius)


class Parametrisation(eqx.Module):
    """A differentiable map from parameters alpha to action probabilities, with its set W."""

    within: eqx.AbstractVar[ParameterSet]

    @abc.abstractmethod
    def initial(self, states: int, actions: int) -> Any:
        """Where the optimisation starts."""

    @abc.abstractmethod
    def probabilities(self, parameters: Any) -> Float[Array, "S A"]:
        """`pi_alpha(a | s)`."""


class Softmax(Parametrisation):
    """Tabular softmax, `pi(a | s) = exp(alpha[s, a]) / sum_b exp(alpha[s, b])`; starts uniform.

    >>> import numpy as np, prudent as pr
    >>> pr.Softmax().probabilities(np.log([[1.0, 3.0]])).round(6).tolist()
    [[0.25, 0.75]]
    """

    within: ParameterSet = Everywhere()

    def initial(self, states: int, actions: int) -> Float[Array, "S A"]:
        """Zero logits."""
        return jnp.zeros((states, actions))

    def probabilities(self, parameters: Float[Array, "S A"]) -> Float[Array, "S A"]:
        """Rowwise softmax."""
        return jax.nn.softmax(parameters, axis=-1)


@eqx.filter_jit
def action_table(policy: Parametrisation, parameters: Any) -> Float[Array, "S A"]:
    """`policy.probabilities(parameters)`, compiled."""
    return policy.probabilities(parameters)


@eqx.filter_jit
def action_tables(policy: Parametrisation, parameters: Any) -> Float[Array, "G S A"]:
    """The tables of G parameter sets, compiled."""
    return jax.vmap(policy.probabilities)(parameters)
