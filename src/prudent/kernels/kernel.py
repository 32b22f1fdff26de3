"""Kernels: probabilities along a support, and the moves of mass (push) and values (pull)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from ..arrays import Array, as_float, in_float64, is_concrete, require_distribution, require_kind, require_number
from ..deferred import jnp, lax
from ..errors import InputError
from ..records import Record, field
from .support import Support

ROWS = ("state", "action")

# Longer sums of terms become a loop, so that the compiled program stays small.
LONGEST_UNROLLED = 64


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


@in_float64
def pull(kernel: Kernel, values: Float[Array, " S"]) -> Float[Array, "S A"]:
    """Expected next value `(P v)(s, a) = sum_b P(s, a, b) v(successor(s, a, b))`.

    >>> import numpy as np, prudent as pr
    >>> pr.pull(pr.Kernel.dense([[[0.9, 0.1]], [[0.0, 1.0]]]), np.array([0.0, 10.0])).tolist()
    [[1.0], [10.0]]
    """
    values = as_float(values, "values")
    _require_shape("values", values, (kernel.support.states,))
    return pull_batch(kernel.support, kernel.probability, values)


def _require_shape(name: str, value: Any, shape: tuple[int, ...]) -> None:
    if np.shape(value) != shape:
        raise InputError(f"{name} must have shape {shape}, got {np.shape(value)}")


@in_float64
def push(kernel: Kernel, mass: Float[Array, "S A"]) -> Float[Array, " S"]:
    """Mass one step on, `(P^T m)(s') = sum_{s,a} m(s, a) P(s' | s, a)`.

    >>> import numpy as np, prudent as pr
    >>> pr.push(pr.Kernel.dense([[[0.75, 0.25]], [[0.0, 1.0]]]), np.array([[1.0], [2.0]])).tolist()
    [0.75, 2.25]
    """
    mass = as_float(mass, "mass")
    _require_shape("mass", mass, kernel.support.shape[:2])
    flow = kernel.probability * mass[..., None]
    if kernel.support.successor is None:
        return flow.sum(axis=(0, 1))
    return jnp.zeros(kernel.support.states, flow.dtype).at[kernel.support.successor].add(flow)


def pull_batch(support: Support, probability: Array, values: Array) -> Array:
    """`pull` for many kernels at once: trailing batch axes, `[S, A, B, ...]` and `[S, ...]`."""
    if support.successor is None:
        return (probability * values[None, None]).sum(axis=2)
    # A loop's counter cannot index NumPy's arrays.
    successor, probability, values = (jnp.asarray(array) for array in (support.successor, probability, values))

    def term(entry: int | Array) -> Array:
        return probability[:, :, entry] * values[successor[:, :, entry]]

    return sum_terms(support.successors, term, in_turn=support.states > LONGEST_UNROLLED)


def sum_terms(count: int, term: Callable[[int | Array], Array], in_turn: bool = False) -> Array:
    """`sum_j term(j)`, written so that XLA gathers and adds in one loop.

    A `sum` over a gathered axis would write the gathered array first, several times the kernel's size.
    `in_turn` adds one term before the next is made, for terms too large to be held side by side.
    """
    if in_turn or count > LONGEST_UNROLLED:
        return lax.fori_loop(1, count, lambda entry, total: total + term(entry), term(0))
    total = term(0)
    for entry in range(1, count):
        total = total + term(entry)
    return total


@in_float64
def transition_matrix(kernel: Kernel, policy: Float[Array, "S A"]) -> Float[Array, "S S"]:
    """`P_pi(s, s') = sum_a pi(a | s) P(s' | s, a)` as a full matrix.

    >>> import numpy as np, prudent as pr
    >>> kernel = pr.Kernel(pr.Support.lists([[[0], [1]], [[1], [1]]]), np.ones((2, 2, 1)))
    >>> pr.transition_matrix(kernel, np.full((2, 2), 0.5)).tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    """
    policy = as_float(policy, "policy")
    _require_shape("policy", policy, kernel.support.shape[:2])
    return transition_matrix_batch(kernel.support, kernel.probability, policy)


def transition_matrix_batch(support: Support, probability: Array, policy: Array) -> Array:
    """`transition_matrix` with trailing batch axes: `[S, A, B, ...]`, `[S, A, ...]` to `[S, S, ...]`."""
    weight = probability * policy[:, :, None]
    if support.successor is None:
        return weight.sum(axis=1)
    states = np.arange(support.states)[:, None, None]
    empty = jnp.zeros((support.states, support.states, *weight.shape[3:]), weight.dtype)
    return empty.at[states, support.successor].add(weight)


def on_graph(support: Support, probability: Array, policy: Array) -> tuple[Array, Array]:
    """Kernel and policy along the state graph, `[S, A', B', ...]` and `[S, A', ...]`.

    Where the graph merges moves, the policy is folded into the probabilities and is 1 from then on.
    """
    graph = support.graph
    assert graph is not None
    if graph.slot is None:
        return probability, policy
    shape = graph.successor.shape
    batch = probability.shape[3:]
    weight = (probability * policy[:, :, None]).reshape(-1, *batch)
    merged = jnp.zeros((int(np.prod(shape)), *batch), weight.dtype).at[graph.slot.reshape(-1)].add(weight)
    return merged.reshape(*shape, *batch), jnp.ones((*shape[:2], *batch), weight.dtype)


@in_float64
def identity_minus(kernel: Kernel, policy: Float[Array, "S A"], discount: float | Array) -> Float[Array, "S S"]:
    """The matrix `M = I - discount P_pi` of the Bellman equation `M V = c_pi`.

    >>> import numpy as np, prudent as pr
    >>> pr.identity_minus(pr.Kernel.dense([[[0.0, 1.0]], [[0.0, 1.0]]]), np.ones((2, 1)), 0.5).tolist()
    [[1.0, -0.5], [0.0, 0.5]]
    """
    discount = require_number("discount", discount, "[0, 1)")
    return jnp.eye(kernel.support.states) - discount * transition_matrix(kernel, policy)
