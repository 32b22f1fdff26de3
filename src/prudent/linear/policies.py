"""Gains: actions that are linear in the state, and the parameters they have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ..arrays import Array, as_float, require_finite, require_kind
from ..errors import InputError
from ..parameter_sets import Everywhere, ParameterSet
from ..policies import write_policy_file
from ..records import Record, field


class LinearGaussianPolicy(Record):
    """`a ~ N(gain s + bias, covariance)`.

    >>> import prudent as pr
    >>> pr.LinearGaussianPolicy([[-0.5, 0.0]], bias=[1.0]).mean([2.0, 7.0]).tolist()
    [0.0]

    Attributes:
        gain: `[m, n]`.
        bias: `[m]`; 0 when left out.
        covariance: `[m, m]` of exploration; 0 when left out. Losses do not know it: what is added to every action is
            the family's `action_noise`.
    """

    gain: Float[Array, "m n"]
    bias: Float[Array, " m"]
    covariance: Float[Array, "m m"]

    def __init__(self, gain: Any, bias: Any = None, covariance: Any = None):
        self.gain = np.asarray(as_float(gain, "gain"))
        if self.gain.ndim != 2:
            raise InputError(f"a gain is indexed [action, state], got shape {self.gain.shape}")
        actions = len(self.gain)
        self.bias = np.zeros(actions) if bias is None else np.asarray(as_float(bias, "bias"))
        self.covariance = (
            np.zeros((actions, actions)) if covariance is None else np.asarray(as_float(covariance, "covariance"))
        )
        for name, part, shape in (
            ("bias", self.bias, (actions,)),
            ("covariance", self.covariance, (actions, actions)),
        ):
            if part.shape != shape:
                raise InputError(f"{name} must have shape {shape} like the gain's {actions} actions, got {part.shape}")
        for name, part in (("gain", self.gain), ("bias", self.bias), ("covariance", self.covariance)):
            require_finite(name, part)

    def mean(self, state: Any) -> Float[np.ndarray, "*N m"]:
        """The mean action in a state, or in each of several."""
        return np.asarray(as_float(state, "state")) @ np.asarray(self.gain).T + np.asarray(self.bias)

    def act(self, state: Any, seed: int | np.random.Generator | None = None) -> Float[np.ndarray, " m"]:
        """The action in a state, with the noise of its covariance.

        Args:
            state: `[n]`.
            seed: of the noise: a whole number, or a generator that goes on; when left out, every call draws again.
        """
        mean = self.mean(state)
        if mean.shape != self.bias.shape:
            raise InputError(f"a state has {self.gain.shape[1]} numbers, got shape {np.shape(state)}")
        if not np.any(self.covariance):
            return mean
        return np.random.default_rng(seed).multivariate_normal(mean, np.asarray(self.covariance))

    def save(self, path: str | Path) -> Path:
        """Write the policy as JSON: `format`, `kind`, `gain`, `bias`, `covariance`.

        >>> import prudent as pr, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pr.LinearGaussianPolicy([[-0.5, 0.1]]).save(f"{folder}/gain.json")
        ...     pr.load_policy(path).gain.tolist()
        [[-0.5, 0.1]]
        """
        return write_policy_file(path, "linear", self.content())

    def content(self) -> dict[str, Any]:
        """What a file holds of it."""
        return {name: np.asarray(getattr(self, name)).tolist() for name in ("gain", "bias", "covariance")}

    @staticmethod
    def from_content(content: Mapping[str, Any]) -> LinearGaussianPolicy:
        """The policy of a file's content, checked."""
        if not all(isinstance(content[name], list) for name in ("gain", "bias", "covariance")):
            raise InputError("gain, bias and covariance are lists")
        return LinearGaussianPolicy(content["gain"], content["bias"], content["covariance"])


class LinearGain(Record):
    """The parameters of a linear policy: `alpha = [K]`, or `[bias K]`.

    >>> import prudent as pr
    >>> family = pr.LinearFamily(state_cost=[[1.0]], action_cost=[[1.0]], noise=[[1.0]], discount=0.9)
    >>> family.objective(policy=pr.LinearGain(bias=True)).initial().shape
    (1, 2)

    Args:
        bias: whether actions have a part that no state moves; when left out, where costs have a target.
        within: the set that parameters are kept in.
    """

    bias: bool | None = field(static=True, default=None)
    within: ParameterSet = Everywhere()

    def __check_init__(self) -> None:
        require_kind("bias", self.bias, bool | None, "True, False or None")
        require_kind("within", self.within, ParameterSet, "a set such as Box(-5.0, 5.0)")


def point_of(policy: Any, states: int, actions: int) -> Float[np.ndarray, "m x"]:
    """`[bias K]` of a policy, or of a gain `[m, n]`, checked."""
    known = policy if isinstance(policy, LinearGaussianPolicy) else LinearGaussianPolicy(policy)
    if known.gain.shape != (actions, states):
        raise InputError(f"the gain has shape {known.gain.shape}, the model needs {(actions, states)}")
    return np.concatenate([np.asarray(known.bias)[:, None], np.asarray(known.gain)], axis=1)
