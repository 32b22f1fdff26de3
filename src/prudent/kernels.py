"""Transition kernels: where a state-action pair can lead (support), how likely (kernel), and how mass and values move.

The support is the part that is fixed while numbers change; `push` moves mass on, `pull` brings values back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Bool, Float, Int

from .arrays import (
    Array,
    as_float,
    in_float64,
    is_concrete,
    require_distribution,
    require_finite,
    require_indices,
    require_kind,
    require_number,
)
from .errors import InputError

# Past this ratio of the largest to the mean in-degree, padding the transpose would waste more memory
# than its faster gather is worth (a hub state that every state can fall back to).
HUB_RATIO = 8

# Merging parallel moves must shrink the lists at least this much to pay for the merged copy.
MERGE_RATIO = 2

ROWS = ("state", "action")

# Longer sums of terms become a loop, so that the compiled program stays small.
LONGEST_UNROLLED = 64


class Graph(eqx.Module):
    """The state graph under any policy, in the form that moves mass and values fastest.

    Where actions of a state share successors, their moves are merged into one list a state (`A' = 1`);
    where they hardly do, the lists stay as they are (`A' = A`), and no second copy of the kernel is made.

    Attributes:
        successor: `[S, A', B']` next states.
        slot: `[S, A, B]` where entry `(s, a, b)` of the kernel lands in the flattened merged lists;
            None when nothing was merged.
        incoming: `[S, V]` the transpose: flattened entries that lead into each state, padded with
            `S A' B'`; None when one state has so many that padding would not pay.
    """

    successor: Int[Array, "S E F"]
    slot: Int[Array, "S A B"] | None
    incoming: Int[Array, "S V"] | None

    @staticmethod
    def of(successor: Int[np.ndarray, "S A B"], listed: Bool[np.ndarray, "S A B"] | None) -> Graph:
        states = successor.shape[0]
        flat = successor.reshape(states, -1)
        # Padding entries carry probability 0; pointing them at the row's first entry adds no neighbour.
        if listed is not None:
            flat = np.where(listed.reshape(states, -1), flat, flat[:, :1])
        ordered = np.sort(flat, axis=1)
        fresh = np.ones_like(ordered, dtype=bool)
        fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
        rank = np.cumsum(fresh, axis=1) - 1
        width = int(rank[:, -1].max()) + 1
        if MERGE_RATIO * width > flat.shape[1]:
            used = np.ones(flat.shape, dtype=bool) if listed is None else listed.reshape(flat.shape)
            return Graph(successor, None, _transpose(flat, used))
        neighbour = np.repeat(np.arange(states, dtype=np.int32)[:, None], width, axis=1)
        np.put_along_axis(neighbour, rank, ordered, axis=1)
        column = np.empty_like(rank)
        np.put_along_axis(column, np.argsort(flat, axis=1, kind="stable"), rank, axis=1)
        slot = (column + width * np.arange(states)[:, None]).reshape(successor.shape)
        used = np.arange(width)[None, :] <= rank[:, -1:]
        return Graph(neighbour[:, None], slot.astype(np.int32), _transpose(neighbour, used))


def _transpose(neighbour: np.ndarray, used: np.ndarray) -> np.ndarray | None:
    """Entries of `neighbour` that lead into each state; None if one state has far more than the others."""
    states = len(neighbour)
    target, source = neighbour[used], np.flatnonzero(used.ravel())
    degree = np.bincount(target, minlength=states)
    if degree.max() > HUB_RATIO * max(1.0, degree.mean()):
        return None
    order = np.argsort(target, kind="stable")
    first = np.concatenate([[0], np.cumsum(degree)[:-1]])
    incoming = np.full((states, int(degree.max())), neighbour.size)
    incoming[target[order], np.arange(target.size) - first[target[order]]] = source[order]
    return incoming.astype(np.int32)


class Support(eqx.Module):
    """The successors a kernel may give probability to, `successor[s, a, b]`; dense is `B = S`.

    Build one with `Support.lists` or `Support.dense`; share it between kernels, posteriors and
    families, so that its checks and its index tables are made once.

    >>> import prudent as pr
    >>> ring = pr.Support.lists([[[0, 1]], [[1, 2]], [[2, 0]]], states=3)
    >>> ring.states, ring.actions, ring.successors
    (3, 1, 2)

    Attributes:
        successor: `[S, A, B]` next states; None for a dense support, where entry b is state b.
        listed: `[S, A, B]` False where a shorter list was padded; None when nothing was padded.
        graph: the state graph; None for a dense support.
        states, actions, successors: the sizes S, A and B.
    """

    successor: Int[Array, "S A B"] | None
    listed: Bool[Array, "S A B"] | None
    graph: Graph | None
    states: int = eqx.field(static=True)
    actions: int = eqx.field(static=True)
    successors: int = eqx.field(static=True)

    @staticmethod
    def dense(states: int, actions: int) -> Support:
        """Every state can follow every pair."""
        if not all(isinstance(size, int | np.integer) and size >= 1 for size in (states, actions)):
            raise InputError(f"an MDP needs at least one state and one action, got {states!r} and {actions!r}")
        return Support(None, None, None, states, actions, states)

    @staticmethod
    def lists(successor: Sequence | np.ndarray, states: int | None = None) -> Support:
        """From `successor[s][a]`, the list of next states; lists may differ in length.

        Args:
            successor: an `[S, A, B]` array, or nested lists of whole numbers.
            states: the number of states, checked against the outer length when given.
        """
        array, listed = _pad(successor)
        size = array.shape[0] if states is None else states
        if array.shape[0] != size:
            raise InputError(f"successor lists cover {array.shape[0]} states but states={size}; give one row a state")
        index = require_indices("successor", array, size)
        return Support(index, listed, Graph.of(index, listed), *index.shape)

    @property
    def is_dense(self) -> bool:
        return self.successor is None

    @property
    def shape(self) -> tuple[int, int, int]:
        """`(S, A, B)`."""
        return self.states, self.actions, self.successors

    def index(self) -> np.ndarray:
        """`[S, A, B]` next states as an array, also for a dense support."""
        if self.successor is None:
            return np.broadcast_to(np.arange(self.states, dtype=np.int32), self.shape)
        return np.asarray(self.successor)

    def allowed(self) -> np.ndarray:
        """`[S, A, B]` True where probability may be put."""
        return np.ones(self.shape, dtype=bool) if self.listed is None else np.asarray(self.listed)


def _pad(successor: Sequence | np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Nested lists to a rectangle, with a mask of what was really listed (None if all was)."""
    try:
        array = np.asarray(successor)
    except ValueError:
        array = np.empty(0, dtype=object)
    nested = isinstance(successor, list | tuple | np.ndarray) and all(
        isinstance(row, list | tuple | np.ndarray) and all(isinstance(item, list | tuple | np.ndarray) for item in row)
        for row in successor
    )
    if array.dtype == object and not nested:
        raise InputError("successor must be lists indexed [state, action, successor]")
    if array.dtype != object:
        if array.ndim != 3 or 0 in array.shape:
            raise InputError(f"successor must be indexed [state, action, successor], got shape {array.shape}")
        return array, None
    actions = {len(row) for row in successor}
    if len(actions) != 1:
        raise InputError(f"every state needs the same number of actions, got {sorted(actions)}")
    for s, row in enumerate(successor):
        for a, entries in enumerate(row):
            if len(entries) == 0:
                raise InputError(f"state {s}, action {a} lists no successor; a pair must lead somewhere")
    width = max(len(entries) for row in successor for entries in row)
    shape = (len(successor), actions.pop(), width)
    array = np.zeros(shape)
    listed = np.zeros(shape, dtype=bool)
    for s, row in enumerate(successor):
        for a, entries in enumerate(row):
            entries = as_float(entries, f"successor of state {s}, action {a}")
            array[s, a] = entries[0]
            array[s, a, : len(entries)] = entries
            listed[s, a, : len(entries)] = True
    return array, listed


class Kernel(eqx.Module):
    """A transition kernel `P(s' | s, a)`, stored along its support and never silently made dense.

    >>> import numpy as np, prudent as pr
    >>> kernel = pr.Kernel.sparse(successor=[[[0, 1]], [[1, 0]]], probability=[[[0.9, 0.1]], [[1.0, 0.0]]])
    >>> pr.pull(kernel, np.array([0.0, 10.0])).ravel().tolist()
    [1.0, 10.0]

    Attributes:
        support: where each pair can lead.
        probability: `[S, A, B]`, rows summing to 1.
    """

    support: Support
    probability: Float[Array, "S A B"] = eqx.field(converter=as_float)

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
        require_finite("transition probability", probability)
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

    @staticmethod
    def sparse(successor: Any, probability: Any) -> Kernel:
        """From successor lists and their probabilities, both `[S][A][B]`."""
        support = Support.lists(successor)
        if isinstance(probability, np.ndarray):
            return Kernel(support, probability)
        table = np.zeros(support.shape)
        rows = _items(probability, support.states, "probability", "states")
        for s, row in enumerate(rows):
            for a, entries in enumerate(_items(row, support.actions, f"probability of state {s}", "actions")):
                values = np.atleast_1d(as_float(entries, f"probability of state {s}, action {a}"))
                count = int(support.allowed()[s, a].sum())
                if values.shape != (count,):
                    raise InputError(f"state {s}, action {a} has {count} successors but {values.size} probabilities")
                table[s, a, :count] = values
        return Kernel(support, table)

    def table(self) -> np.ndarray:
        """The full `[S, A, S]` table, asked for by name because it may be large."""
        states, actions, _ = self.support.shape
        table = np.zeros((states, actions, states))
        s, a = np.ogrid[:states, :actions]
        np.add.at(table, (s[..., None], a[..., None], self.support.index()), np.asarray(self.probability))
        return table


def _items(value: Any, count: int, name: str, unit: str) -> Any:
    """A nested list's items, of which there must be `count`."""
    if not isinstance(value, list | tuple | np.ndarray) or len(value) != count:
        got = len(value) if isinstance(value, list | tuple | np.ndarray) else repr(value)
        raise InputError(f"{name} must be a list with one entry for each of the {count} {unit}, got {got}")
    return value


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
    >>> kernel = pr.Kernel.sparse([[[0], [1]], [[1], [1]]], [[[1.0], [1.0]], [[1.0], [1.0]]])
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
