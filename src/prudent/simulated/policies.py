"""Policies of simulated models: what is seen to an action, as functions of flat parameters."""

from __future__ import annotations

import abc
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from ..arrays import Array, as_float, as_whole, in_float64, require_finite, require_kind, require_size
from ..autodiff import jax, jnp
from ..errors import InputError
from ..linear import LinearGain, LinearGaussianPolicy, point_of
from ..parameter_sets import Everywhere, ParameterSet
from ..records import AbstractVar, Record, field

# Size of the entries of gains that are drawn at random.
SPREAD = 0.3


class Controller(Record):
    """A class of policies: `[D]` parameters and what is seen `[o]` to a mean action `[m]`."""

    within: AbstractVar[ParameterSet]

    @abc.abstractmethod
    def entries(self, seen: int, actions: int) -> int:
        """How many parameters there are."""

    @abc.abstractmethod
    def initial(self, seen: int, actions: int, random: np.random.Generator | None = None) -> Float[np.ndarray, " D"]:
        """Where a search begins; by chance where a generator is given."""

    @abc.abstractmethod
    def mean(self, parameters: Float[Any, " D"], seen: Float[Any, "*P o"], actions: int, numbers: Any = jnp) -> Any:
        """The mean action `[*P, m]`; `numbers` is `jax.numpy` in traced code and `numpy` on the host."""

    @abc.abstractmethod
    def policy(self, parameters: Float[np.ndarray, " D"], seen: int, actions: int) -> Any:
        """The policy a user is given."""

    def work(self, seen: int, actions: int) -> int:
        """Numbers that one action takes on its way."""
        return seen + actions


class Affine(Controller):
    """`k + K s`, the class of `LinearGain`."""

    gain: LinearGain
    within: ParameterSet

    def __init__(self, gain: LinearGain):
        self.gain, self.within = gain, gain.within

    @property
    def biased(self) -> bool:
        """Whether there is a k; unless it was ruled out."""
        return self.gain.bias is not False

    def entries(self, seen: int, actions: int) -> int:
        """`m (1 + o)`, or `m o` without the bias."""
        return actions * (seen + self.biased)

    def initial(self, seen: int, actions: int, random: np.random.Generator | None = None) -> Float[np.ndarray, " D"]:
        """No action."""
        size = self.entries(seen, actions)
        return np.zeros(size) if random is None else SPREAD * random.normal(size=size)

    def mean(self, parameters: Any, seen: Any, actions: int, numbers: Any = jnp) -> Any:
        """The bias in front of the gain, as in a linear system."""
        matrix = parameters.reshape(actions, -1)
        return seen @ matrix[:, 1:].T + matrix[:, 0] if self.biased else seen @ matrix.T

    def policy(self, parameters: Float[np.ndarray, " D"], seen: int, actions: int) -> LinearGaussianPolicy:
        """The gain with its bias."""
        matrix = np.asarray(parameters).reshape(actions, -1)
        return LinearGaussianPolicy(matrix[:, 1:], matrix[:, 0]) if self.biased else LinearGaussianPolicy(matrix)


def _ends(bounds: Any) -> Any:
    """Field converter: a pair of numbers, or of lists of them, as tuples, which a compiled function is made for."""
    if bounds is None:
        return None
    if not isinstance(bounds, tuple | list | np.ndarray) or len(bounds) != 2:
        raise InputError(f"Network bounds are (low, high), got {bounds!r}")
    ends = [np.asarray(as_float(end, "bounds")) for end in bounds]
    return tuple(float(end) if end.ndim == 0 else tuple(end.ravel().tolist()) for end in ends)


class Network(Controller):
    """Layers of tanh from what is seen to actions within bounds, by a last tanh; starts in their middle.

    `a = middle + half (high - low) tanh(W_L h_L + b_L)`, so that no policy of the class leaves the bounds. Without
    bounds the last layer is linear. Scale what is seen to about 1, by the family's `observe`.

    >>> import prudent as pr
    >>> pr.Network(width=8, bounds=(-10.0, 10.0)).entries(seen=4, actions=1)
    121

    Args:
        width: neurons of a hidden layer.
        depth: hidden layers.
        bounds: `(low, high)` of every action, numbers or lists with one for each; none when left out.
        seed: of the first weights.
        within: the set the weights are kept in.
    """

    width: int = field(static=True, converter=as_whole, default=64)
    depth: int = field(static=True, converter=as_whole, default=2)
    bounds: Any = field(static=True, converter=_ends, default=None)
    seed: int = field(static=True, converter=as_whole, default=0)
    within: ParameterSet = field(default=Everywhere(), kw_only=True)

    def __check_init__(self) -> None:
        for name, least in (("width", 1), ("depth", 0), ("seed", 0)):
            require_size(f"Network {name}", getattr(self, name), least)
        require_kind("within", self.within, ParameterSet, "Everywhere(), Box(low, high) or Ball(radius)")
        if self.bounds is None:
            return
        low, high = (np.asarray(end) for end in self.bounds)
        if low.shape != high.shape or low.ndim > 1 or not np.all(np.isfinite([low, high])) or not np.all(low < high):
            raise InputError(f"Network bounds must be finite, low below high and of one shape, got {self.bounds!r}")

    def _sizes(self, seen: int, actions: int) -> list[int]:
        return [seen, *[self.width] * self.depth, actions]

    def _bounds(self, actions: int) -> tuple[np.ndarray, np.ndarray] | None:
        if self.bounds is None:
            return None
        low, high = (np.asarray(end) for end in self.bounds)
        if low.ndim == 1 and len(low) != actions:
            raise InputError(f"Network bounds are for {len(low)} actions, the model has {actions}")
        return low, high

    def entries(self, seen: int, actions: int) -> int:
        """Weights and biases of all layers."""
        sizes = self._sizes(seen, actions)
        return sum((before + 1) * after for before, after in itertools.pairwise(sizes))

    def initial(self, seen: int, actions: int, random: np.random.Generator | None = None) -> Float[np.ndarray, " D"]:
        """Random hidden layers of variance one over their inputs; a last layer of zeros, or small by chance."""
        self._bounds(actions)
        source = np.random.default_rng(self.seed) if random is None else random
        sizes, parts = self._sizes(seen, actions), []
        for number, (before, after) in enumerate(itertools.pairwise(sizes)):
            weights = source.normal(size=(after, before)) / np.sqrt(before)
            last = number == self.depth
            weights = weights * ((0.0 if random is None else SPREAD) if last else 1.0)
            parts += [weights.ravel(), np.zeros(after)]
        return np.concatenate(parts)

    def mean(self, parameters: Any, seen: Any, actions: int, numbers: Any = jnp) -> Any:
        """The layers one after the other."""
        sizes, values, begin = self._sizes(seen.shape[-1], actions), seen, 0
        for number, (before, after) in enumerate(itertools.pairwise(sizes)):
            matrix = parameters[begin : begin + before * after].reshape(after, before)
            begin += before * after
            values = values @ matrix.T + parameters[begin : begin + after]
            begin += after
            if number < self.depth:
                values = numbers.tanh(values)
        ends = self._bounds(actions)
        if ends is None:
            return values
        low, high = ends
        return (low + high) / 2.0 + (high - low) / 2.0 * numbers.tanh(values)

    def work(self, seen: int, actions: int) -> int:
        """All neurons, and the weights once."""
        return sum(self._sizes(seen, actions))

    def policy(self, parameters: Float[np.ndarray, " D"], seen: int, actions: int) -> NetworkPolicy:
        """The network with its weights."""
        return NetworkPolicy(self, parameters, seen, actions)


class NetworkPolicy(Record):
    """A `Network` with its weights; `policy.mean(seen)` is the action.

    >>> import numpy as np, prudent as pr
    >>> network = pr.Network(width=4, bounds=(-2.0, 2.0))
    >>> pr.NetworkPolicy(network, network.initial(seen=3, actions=1), seen=3, actions=1).mean([1.0, 0.0, 0.0]).tolist()
    [0.0]

    Attributes:
        network: the class it is of.
        weights: `[D]`.
        seen, actions: how many numbers it sees, and how many it gives.
    """

    network: Network
    weights: Float[Array, " D"]
    seen: int = field(static=True)
    actions: int = field(static=True)

    def __init__(self, network: Network, weights: Any, seen: int, actions: int):
        require_kind("network", network, Network, "Network(width=64)")
        self.network, self.seen, self.actions = network, require_size("seen", seen), require_size("actions", actions)
        self.weights = np.asarray(as_float(weights, "weights"))
        wanted = network.entries(self.seen, self.actions)
        if self.weights.shape != (wanted,):
            raise InputError(f"weights must have shape {(wanted,)} for this network, got {self.weights.shape}")
        require_finite("weights", self.weights)

    def mean(self, seen: Any) -> Float[np.ndarray, "*N m"]:
        """The action for what is seen, or for each of several."""
        given = np.asarray(as_float(seen, "seen"))
        if given.shape[-1:] != (self.seen,):
            raise InputError(f"the policy sees {self.seen} numbers, got shape {given.shape}")
        return np.asarray(self.network.mean(np.asarray(self.weights), given, self.actions, np))


class Given(Controller):
    """One policy that is a user's own function of what is seen; it has no parameters."""

    function: Callable[[Any], Any] = field(static=True)
    within: ParameterSet = field(default=Everywhere(), kw_only=True)

    def entries(self, seen: int, actions: int) -> int:
        """None."""
        return 0

    def initial(self, seen: int, actions: int, random: np.random.Generator | None = None) -> Float[np.ndarray, " D"]:
        """Nothing."""
        return np.zeros(0)

    def mean(self, parameters: Any, seen: Any, actions: int, numbers: Any = jnp) -> Any:
        """The function, state by state."""
        if numbers is not np:
            one = lambda row: jnp.reshape(jnp.asarray(self.function(row)), (actions,))  # noqa: E731
            return one(seen) if seen.ndim == 1 else jax.vmap(one)(seen)
        rows = [np.reshape(np.asarray(self.function(row)), (actions,)) for row in seen.reshape(-1, seen.shape[-1])]
        return np.stack(rows).reshape(*seen.shape[:-1], actions)

    def policy(self, parameters: Float[np.ndarray, " D"], seen: int, actions: int) -> Any:
        """The function."""
        return self.function


def controller_of(policy: Any) -> Controller:
    """The class of policies that is searched: `LinearGain()` when left out."""
    if policy is None:
        return Affine(LinearGain())
    if isinstance(policy, LinearGain):
        return Affine(policy)
    require_kind("policy", policy, Network, "LinearGain() or Network(width=64, bounds=(-10.0, 10.0))")
    return policy


@in_float64
def held(policy: Any, seen: int, actions: int) -> tuple[Controller, Float[np.ndarray, " D"]]:
    """A user's policy as a class with its parameters: a gain, a network, or any function of what is seen."""
    if isinstance(policy, NetworkPolicy):
        if (policy.seen, policy.actions) != (seen, actions):
            raise InputError(
                f"the policy sees {policy.seen} numbers and gives {policy.actions}, the model needs {seen}, {actions}"
            )
        return policy.network, np.asarray(policy.weights)
    if callable(policy) and not isinstance(policy, LinearGaussianPolicy):
        return Given(policy), np.zeros(0)
    return Affine(LinearGain(bias=True)), point_of(policy, seen, actions).ravel()
