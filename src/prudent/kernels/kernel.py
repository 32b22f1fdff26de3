"""Kernels: probabilities along a support, and the moves of mass (push) and values (pull)."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from ..arrays import Array, as_float, is_concrete, require_distribution, require_kind, require_number
from ..errors import InputError
from ..records import Record, field
from .support import Support

ROWS = ("state", "action")


class Kernel(Record):
    """A transition kernel `P(s' | s, a)`, stored along its support and never silently made dense.

    >>> import numpy as np, prudent as pr
    >>> kernel = pr.Kernel(pr.Support.lists([[[0, 1]], [[1]]]), probability=[[[0.9, 0.1]], [[1.0, 0.0]]])
    >>> pr.pull(kernel, np.array([0.0, 10.0])).ravel().tolist()
    [1.0, 10.0]

    Attributes:
        support: where each pair can lead.
        probability: `[S, A, B]`, rows summing to 1; 0 after the last successor of a shorter list.
    """

    support: Support
    probability: Float[Array, "S A B"] = field(converter=as_float)

    def __check_init__(self) -> None:
        require_kind("support", self.support, Support, "a Support, such as Support.lists(...)")
        if not is_concrete(self.probability):
            return
        probability = np.asarray(self.probability)
        if probability.shape != self.support.shape:
            raise InputError(
                f"probability has shape {probability.shape} but the support has shape {self.support.shape}; "
                "both are indexed [state, action, successor]"
            )
        require_distribution("transition probability", probability, ROWS)
        if self.support.listed is not None and np.any(probability[~np.asarray(self.support.listed)] > 0):
            raise InputError("probability on a padding entry; give lists of equal length or zeros after the last one")

    @staticmethod
    def dense(probability: Any) -> Kernel:
        """From a full table `[S, A, S]`."""
        table = np.asarray(as_float(probability))
        if table.ndim != 3 or table.shape[0] != table.shape[2]:
            raise InputError(f"a dense kernel is indexed [state, action, next_state], got shape {table.shape}")
        return Kernel(Support.dense(*table.shape[:2]), table)

    def table(self) -> np.ndarray:
        """The full `[S, A, S]` table, asked for by name because it may be large."""
        states, actions, _ = self.support.shape
        table = np.zeros((states, actions, states))
        s, a = np.ogrid[:states, :actions]
        np.add.at(table, (s[..., None], a[..., None], self.support.index()), np.asarray(self.probability))
        return table


def pull(kernel: Kernel, values: Float[Array, " S"]) -> Float[Array, "S A"]:
    """Return the expected next value `(P v)(s, a) = sum_b P(s, a, b) v(successor(s, a, b))`.

    >>> import numpy as np, prudent as pr
    >>> pr.pull(pr.Kernel.dense([[[0.9, 0.1]], [[0.0, 1.0]]]), np.array([0.0, 10.0])).tolist()
    [[1.0], [10.0]]
    """
    values = as_float(values, "values")
    _require_shape("values", values, (kernel.support.states,))
    successor = kernel.support.successor
    return kernel.probability @ values if successor is None else (kernel.probability * values[successor]).sum(axis=-1)


def _require_shape(name: str, value: Any, shape: tuple[int, ...]) -> None:
    if np.shape(value) != shape:
        raise InputError(f"{name} must have shape {shape}, got {np.shape(value)}")


def push(kernel: Kernel, mass: Float[np.ndarray, "S A"]) -> Float[np.ndarray, " S"]:
    """Return the mass one step on, `(P^T m)(s') = sum_{s,a} m(s, a) P(s' | s, a)`.

    >>> import numpy as np, prudent as pr
    >>> pr.push(pr.Kernel.dense([[[0.75, 0.25]], [[0.0, 1.0]]]), np.array([[1.0], [2.0]])).tolist()
    [0.75, 2.25]
    """
    mass = np.asarray(as_float(mass, "mass"))
    support = kernel.support
    _require_shape("mass", mass, support.shape[:2])
    flow = np.asarray(kernel.probability) * mass[..., None]
    if support.successor is None:
        return flow.sum(axis=(0, 1))
    return np.bincount(np.ravel(support.successor), np.ravel(flow), minlength=support.states)


def transition_matrix(kernel: Kernel, policy: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S S"]:
    """Return `P_pi(s, s') = sum_a pi(a | s) P(s' | s, a)` as a full matrix.

    >>> import numpy as np, prudent as pr
    >>> kernel = pr.Kernel(pr.Support.lists([[[0], [1]], [[1], [1]]]), np.ones((2, 2, 1)))
    >>> pr.transition_matrix(kernel, np.full((2, 2), 0.5)).tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    """
    policy, support = np.asarray(as_float(policy, "policy")), kernel.support
    _require_shape("policy", policy, support.shape[:2])
    weight = np.asarray(kernel.probability) * policy[..., None]
    if support.successor is None:
        return weight.sum(axis=1)
    matrix = np.zeros((support.states, support.states))
    np.add.at(matrix, (np.arange(support.states)[:, None, None], support.successor), weight)
    return matrix


def identity_minus(kernel: Kernel, policy: Float[np.ndarray, "S A"], discount: float) -> Float[np.ndarray, "S S"]:
    """Return the matrix `M = I - discount P_pi` of the Bellman equation `M V = c_pi`.

    >>> import numpy as np, prudent as pr
    >>> pr.identity_minus(pr.Kernel.dense([[[0.0, 1.0]], [[0.0, 1.0]]]), np.ones((2, 1)), 0.5).tolist()
    [[1.0, -0.5], [0.0, 0.5]]
    """
    discount = float(require_number("discount", discount, "[0, 1)"))
    return np.eye(kernel.support.states) - discount * transition_matrix(kernel, policy)
