"""Parametrisations: parameters to tables of action probabilities."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from ..arrays import (
    Array,
    as_float,
    as_whole,
    is_concrete,
    namespace_of,
    require_finite,
    require_kind,
    require_size,
)
from ..errors import InputError
from ..parameter_sets import LOWEST_LOGIT, Box, Everywhere, ParameterSet, RowSet, Simplex
from ..records import AbstractVar, Record, field, tree_leaves
from .networks import NeuralPolicy
from .tabular_policy import TabularPolicy


def _floats(tree: Any) -> Any:
    """Field converter: a list of numbers or an array as one array; of another pytree, every leaf."""
    from ..autodiff import as_floats  # imports JAX, which alone knows trees of other kinds

    return as_floats(tree)


class Parametrisation(Record):
    """A differentiable map from parameters alpha to action probabilities, with its set W."""

    within: AbstractVar[ParameterSet]

    @abc.abstractmethod
    def initial(self, states: int, actions: int) -> Any:
        """Where the optimisation starts."""

    @abc.abstractmethod
    def probabilities(self, parameters: Any) -> Float[Array, "S A"]:
        """`pi_alpha(a | s)`."""

    def tables(self, parameters: Any) -> Float[np.ndarray, "K S A"]:
        """The tables of K parameter sets."""
        return action_tables(self, parameters)

    def pull_back(self, parameters: Any, slopes: Float[np.ndarray, "K S A"]) -> Any:
        """Gradients by the parameters of K tables, from those by the tables."""
        from ..autodiff import pull_back  # imports JAX

        return pull_back(self, "probabilities", parameters, slopes)

    def policy(self, parameters: Any, table: TabularPolicy) -> Any:
        """The policy a user is given: the table, or more than a table where parameters say more than it does."""
        del parameters
        return table

    def rows(self) -> RowSet | None:
        """Which tables the parameters reach, where every row can be chosen by itself; None where that is not so."""
        return None

    def from_table(self, table: Float[np.ndarray, "*K S A"]) -> Float[np.ndarray, "*K S A"] | None:
        """Parameters of a table, before projection; None where the policy cannot be told to be one."""
        return None


class Softmax(Parametrisation):
    """Tabular softmax, `pi(a | s) = exp(alpha[s, a]) / sum_b exp(alpha[s, b])`; starts uniform.

    >>> import numpy as np, prudent as pr
    >>> pr.Softmax().probabilities(np.log([[1.0, 3.0]])).round(6).tolist()
    [[0.25, 0.75]]
    """

    within: ParameterSet = Everywhere()

    def initial(self, states: int, actions: int) -> Float[Array, "S A"]:
        """Zero logits."""
        return np.zeros((states, actions))

    def probabilities(self, parameters: Float[Array, "S A"]) -> Float[Array, "S A"]:
        """Rowwise softmax."""
        xp = namespace_of(parameters)
        raised = xp.exp(parameters - xp.max(parameters, axis=-1, keepdims=True))
        return raised / raised.sum(axis=-1, keepdims=True)

    def tables(self, parameters: Float[np.ndarray, "K S A"]) -> Float[np.ndarray, "K S A"]:
        """Rowwise softmax in NumPy: for the commonest policy nothing has to be compiled."""
        raised = np.exp(parameters - parameters.max(axis=2, keepdims=True))
        return raised / raised.sum(axis=2, keepdims=True)

    def pull_back(self, parameters: Any, slopes: Float[np.ndarray, "K S A"]) -> Any:
        """`pi (slope - <pi, slope>)`, row by row."""
        tables = self.tables(parameters)
        return tables * (slopes - (tables * slopes).sum(axis=2, keepdims=True))

    def rows(self) -> RowSet | None:
        """All tables, or those whose logits fit a box; a ball ties the rows together."""
        if isinstance(self.within, Box):
            return RowSet(ratio=float(np.exp(min(self.within.high - self.within.low, 700.0))))
        return RowSet() if isinstance(self.within, Everywhere) else None

    def from_table(self, table: Float[np.ndarray, "*K S A"]) -> Float[np.ndarray, "*K S A"]:
        """Logarithms, the largest of a row 0, or at the top of the box."""
        share = table / table.max(axis=-1, keepdims=True)
        logits = np.maximum(np.log(np.maximum(share, np.exp(LOWEST_LOGIT))), LOWEST_LOGIT)
        if isinstance(self.within, Box):
            return np.clip(logits + self.within.high, self.within.low, self.within.high)
        return logits


class Direct(Parametrisation):
    """The table itself, `pi(a | s) = alpha[s, a]`, projected onto the simplex after each step; starts uniform.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> policy = pr.solve(lake, lake.prior, policy=pr.Direct(), solver=pr.BRPG(iterations=20, step=0.1)).policy
    >>> bool(abs(policy.probabilities.sum(axis=1) - 1).max() < 1e-12)
    True

    Attributes:
        within: `Simplex()`; `Simplex(floor=0.01)` keeps every action possible.
    """

    within: ParameterSet = Simplex()

    def __check_init__(self) -> None:
        require_kind("within", self.within, Simplex, "Simplex(), because the parameters are probabilities")

    def initial(self, states: int, actions: int) -> Float[Array, "S A"]:
        """Uniform rows."""
        return np.full((states, actions), 1.0 / actions)

    def probabilities(self, parameters: Float[Array, "S A"]) -> Float[Array, "S A"]:
        """The parameters."""
        return parameters

    def rows(self) -> RowSet | None:
        """All tables with entries of at least the floor."""
        assert isinstance(self.within, Simplex)
        return RowSet(floor=self.within.floor)

    def from_table(self, table: Float[np.ndarray, "*K S A"]) -> Float[np.ndarray, "*K S A"]:
        """The table."""
        return table


class Neural(Parametrisation):
    """A network from state features to a softmax over actions; starts uniform.

    The network is an `equinox.nn.MLP` whose last layer starts at zero. Its gradients call for an adaptive
    step, such as `BRPG(step=optax.adam(0.01))`.

    >>> import numpy as np, prudent as pr
    >>> policy = pr.Neural(features=np.eye(4), width=8)
    >>> policy.probabilities(policy.initial(4, 2)).tolist()[0]
    [0.5, 0.5]

    Args:
        features: `[S, F]` what the network sees of each state; scale them to about 1.
        width: neurons of a hidden layer.
        depth: hidden layers.
        seed: of the first weights.
        within: the set the weights are kept in.
    """

    features: Float[Array, "S F"] = field(converter=as_float)
    width: int = field(static=True, converter=as_whole, default=64)
    depth: int = field(static=True, converter=as_whole, default=2)
    seed: int = field(static=True, converter=as_whole, default=0)
    within: ParameterSet = field(default=Everywhere(), kw_only=True)

    def __check_init__(self) -> None:
        if is_concrete(self.features):
            if self.features.ndim != 2:
                raise InputError(f"features must be indexed [state, feature], got shape {self.features.shape}")
            require_finite("feature", np.asarray(self.features))
        for name, least in (("width", 1), ("depth", 0), ("seed", 0)):
            require_size(f"Neural {name}", getattr(self, name), least)
        require_kind("within", self.within, ParameterSet, "Everywhere(), Box(low, high) or Ball(radius)")

    def initial(self, states: int, actions: int) -> Any:
        """Random hidden layers, a last layer of zeros."""
        from .layers import first_weights  # imports JAX

        if self.features.shape[0] != states:
            raise InputError(f"Neural has features of {self.features.shape[0]} states, the model has {states}")
        return first_weights(self._sizes(actions), self.seed)

    def probabilities(self, parameters: Any) -> Float[Array, "S A"]:
        """The softmax of the network's outputs, state by state."""
        from .layers import shares

        return shares(self._sizes(parameters.layers[-1].bias.shape[0]), parameters, self.features)

    def policy(self, parameters: Any, table: TabularPolicy) -> NeuralPolicy:
        """The network itself, which can be asked about features that no state of the model has."""
        layers = tuple((np.asarray(layer.weight), np.asarray(layer.bias)) for layer in parameters.layers)
        return NeuralPolicy(table, np.asarray(self.features), layers)

    def _sizes(self, actions: int) -> tuple[int, int, int, int]:
        return self.features.shape[1], actions, self.width, self.depth


class Parametric(Parametrisation):
    """A user's own map from parameters to probabilities.

    >>> import jax, jax.numpy as jnp, prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> def same_everywhere(logits):  # [A] -> [S, A]: one distribution for all states
    ...     return jnp.broadcast_to(jax.nn.softmax(logits), (4, 4))
    >>> solution = pr.solve(lake, lake.prior, policy=pr.Parametric(same_everywhere, start=[0.0] * 4),
    ...                     solver=pr.BRPG(iterations=5))
    >>> solution.parameters.shape
    (4,)

    Args:
        function: `parameters -> [S, A]`, traceable by JAX; rows sum to 1 for all parameters in `within`.
        start: array, or any pytree of arrays, the optimisation starts from.
        within: the set the parameters are kept in.
    """

    function: Callable[[Any], Any] = field(static=True)
    start: Any = field(converter=_floats)
    within: ParameterSet = field(default=Everywhere(), kw_only=True)

    def __check_init__(self) -> None:
        if not callable(self.function):
            raise InputError(f"function must map parameters to probabilities [S, A], got {self.function!r}")
        require_kind("within", self.within, ParameterSet, "Everywhere(), Box(low, high) or Ball(radius)")
        for leaf in filter(is_concrete, tree_leaves(self.start)):
            require_finite("start", leaf)

    def initial(self, states: int, actions: int) -> Any:
        """The start given."""
        return self.start

    def probabilities(self, parameters: Any) -> Float[Array, "S A"]:
        """The user's function."""
        return self.function(parameters)


def action_tables(policy: Parametrisation, parameters: Any) -> Float[np.ndarray, "G S A"]:
    """The tables of G parameter sets, compiled."""
    from ..autodiff import each  # imports JAX

    return each(policy, ("probabilities",), parameters)[0]
