"""A network as a policy: asked about features, those of the model's states or others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ..arrays import Array, as_float, require_finite
from ..errors import InputError
from ..records import Record
from .tabular_policy import TabularPolicy, chosen_by, policy_from, write_policy_file


class NeuralPolicy(Record):
    """A policy that a network computes from features: hidden layers of tanh, a softmax over actions.

    What `solve(..., policy=Neural(features))` gives. It acts by state as its table does, and by features with `at`.

    >>> import numpy as np, prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> place = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> solution = pr.solve(lake, lake.prior, policy=pr.Neural(place, width=4), solver=pr.BRPG(iterations=3))
    >>> solution.policy.at([[0.5, 0.5]]).shape
    (1, 4)

    Attributes:
        of_states: the table of the model's states.
        features: `[S, F]` what the network sees of each.
        layers: weights `[out, in]` and biases `[out]` of each layer, the first one first.
    """

    of_states: TabularPolicy
    features: Float[Array, "S F"]
    layers: tuple[tuple[Float[Array, "o i"], Float[Array, " o"]], ...]

    def __init__(self, of_states: TabularPolicy, features: Any, layers: Any):
        self.of_states = of_states
        self.features = np.asarray(as_float(features, "features"))
        self.layers = tuple((np.asarray(as_float(w, "weight")), np.asarray(as_float(b, "bias"))) for w, b in layers)
        states, actions = of_states.probabilities.shape
        sizes = [self.features.shape[1:], *(bias.shape for _, bias in self.layers)]
        fits = all(
            weight.shape == (*out, *put)
            for (weight, _), put, out in zip(self.layers, sizes[:-1], sizes[1:], strict=True)
        )
        if not self.layers or len(self.features) != states or not fits or sizes[-1] != (actions,):
            raise InputError(
                f"layers of shapes {[w.shape for w, _ in self.layers]} do not lead from features of shape "
                f"{self.features.shape} to the {actions} actions of {states} states"
            )
        for part in [self.features, *(each for layer in self.layers for each in layer)]:
            require_finite("network", part)

    @property
    def probabilities(self) -> Float[Array, "S A"]:
        """`[S, A]` of the model's states."""
        return self.of_states.probabilities

    @property
    def labels(self) -> Any:
        """Names of the model's states and actions."""
        return self.of_states.labels

    def at(self, features: Any) -> Float[np.ndarray, "N A"]:
        """Action probabilities for features `[N, F]`, any that have the meaning of those it was trained on."""
        value = np.asarray(as_float(features, "features"))
        width = self.features.shape[1]
        if value.ndim != 2 or value.shape[1] != width:
            raise InputError(f"features must be indexed [row, feature] with {width} features, got shape {value.shape}")
        require_finite("feature", value)
        for weight, bias in self.layers[:-1]:
            value = np.tanh(value @ weight.T + bias)
        weight, bias = self.layers[-1]
        raised = value @ weight.T + bias
        raised = np.exp(raised - raised.max(axis=1, keepdims=True))
        return raised / raised.sum(axis=1, keepdims=True)

    def act(self, state: str | int, seed: int | np.random.Generator | None = None) -> Any:
        """An action for a state of the model, as a `TabularPolicy` gives it."""
        return self.of_states.act(state, seed)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        seed: int | np.random.Generator | None = None,
    ) -> tuple[np.ndarray, Any]:
        """Actions for features `[F]` or `[N, F]`, as Stable-Baselines3's models answer: `(actions, state)`."""
        del episode_start
        features = np.asarray(as_float(observation, "observation"))
        rows = self.at(features if features.ndim == 2 else features[None])
        chosen = rows.argmax(axis=1) if deterministic else chosen_by(rows, seed)
        return chosen if features.ndim == 2 else chosen[0], state

    def greedy(self) -> np.ndarray:
        """`[S]` the most probable action of each state."""
        return self.of_states.greedy()

    def table(self, backend: str | None = None) -> Any:
        """The frame of its table."""
        return self.of_states.table(backend)

    def save(self, path: str | Path) -> Path:
        """Write the policy as JSON: what a table has, and `features`, `layers`, `activation`, `output`."""
        return write_policy_file(path, "network", self.content())

    def content(self) -> dict[str, Any]:
        """What a file holds of it."""
        layers = [{"weight": weight.tolist(), "bias": bias.tolist()} for weight, bias in self.layers]
        more = {"features": self.features.tolist(), "layers": layers, "activation": "tanh", "output": "softmax"}
        return self.of_states.content() | more

    @staticmethod
    def from_content(content: Mapping[str, Any]) -> NeuralPolicy:
        """The policy of a file's content, checked."""
        if (content["activation"], content["output"]) != ("tanh", "softmax"):
            raise InputError("a network has the activation 'tanh' and the output 'softmax'")
        layers = [(layer["weight"], layer["bias"]) for layer in content["layers"]]
        return NeuralPolicy(TabularPolicy.from_content(content), content["features"], layers)

    @staticmethod
    def load(path: str | Path) -> NeuralPolicy:
        """The policy that `save` wrote."""
        return policy_from(path, {"network": NeuralPolicy})

    def __repr__(self) -> str:
        sizes = [self.features.shape[1], *(len(bias) for _, bias in self.layers)]
        return f"NeuralPolicy({' → '.join(map(str, sizes))})"
