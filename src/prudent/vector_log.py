"""A log whose states and actions are vectors: states, actions and next states as rows of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from .arrays import Array, as_float, require_finite, require_kind
from .errors import InputError
from .records import Record, tree_leaves
from .tables import read_batches

# Singular values below this share of the largest count as none.
RANK = 1e-10


class VectorLog(Record):
    """Observed transitions of states and actions that are vectors, one a row.

    >>> import prudent as pr
    >>> log = pr.VectorLog(state=[[0.0], [1.0]], action=[[1.0], [0.0]], next_state=[[1.0], [0.9]])
    >>> len(log), log.least_squares().round(6).tolist()
    (2, [[0.9, 1.0]])

    Attributes:
        state, action, next_state: `[N, n]`, `[N, m]`, `[N, n]`.
    """

    state: Float[Array, "N n"]
    action: Float[Array, "N m"]
    next_state: Float[Array, "N n"]

    def __init__(self, state: Any, action: Any, next_state: Any):
        parts = {"state": state, "action": action, "next_state": next_state}
        arrays = {name: np.asarray(as_float(value, name)) for name, value in parts.items()}
        for name, array in arrays.items():
            if array.ndim != 2:
                raise InputError(f"{name} must be rows of numbers, [row, coordinate], got shape {array.shape}")
            require_finite(name, array)
        shapes = {name: array.shape for name, array in arrays.items()}
        if len({len(array) for array in arrays.values()}) != 1 or shapes["state"] != shapes["next_state"]:
            raise InputError(f"state and next_state must have one shape, and action as many rows, got {shapes}")
        if len(arrays["state"]) == 0:
            raise InputError("the log has no row; observe at least one transition, or keep the prior as it is")
        self.state, self.action, self.next_state = arrays.values()

    @staticmethod
    def from_episodes(states: Sequence[Any], actions: Sequence[Any]) -> VectorLog:
        """From walks: `states[i]` is `[T + 1, n]`, `actions[i]` is `[T, m]`.

        >>> import prudent as pr
        >>> len(pr.VectorLog.from_episodes([[[0.0], [1.0], [2.0]]], [[[1.0], [1.0]]]))
        2
        """
        if len(states) != len(actions) or not len(states):
            raise InputError(f"there must be as many walks of states as of actions, got {len(states)}, {len(actions)}")
        walks = []
        for number, (walk, moves) in enumerate(zip(states, actions, strict=True)):
            along, acted = np.asarray(as_float(walk, "states")), np.asarray(as_float(moves, "actions"))
            if along.ndim != 2 or acted.ndim != 2 or len(along) != len(acted) + 1:
                raise InputError(
                    f"walk {number} must have one state more than actions, got shapes {along.shape}, {acted.shape}"
                )
            walks.append((along[:-1], acted, along[1:]))
        return VectorLog(*(np.concatenate(part) for part in zip(*walks, strict=True)))

    def __len__(self) -> int:
        return len(self.state)

    def joined(self, other: VectorLog) -> VectorLog:
        """This log and another of the same system, one behind the other.

        >>> import prudent as pr
        >>> log = pr.VectorLog([[0.0]], [[1.0]], [[1.0]])
        >>> len(log.joined(log))
        2
        """
        require_kind("log", other, VectorLog, "a VectorLog, such as read_vector_log(...)")
        (n, m), (other_n, other_m) = ((log.state.shape[1], log.action.shape[1]) for log in (self, other))
        if (n, m) != (other_n, other_m):
            raise InputError(
                f"the logs are of different systems: {n} states and {m} actions, and {other_n} and {other_m}"
            )
        return _stacked([self, other])

    def inputs(self) -> Float[np.ndarray, "N z"]:
        """`(s, a)` of each row."""
        return np.concatenate([np.asarray(self.state), np.asarray(self.action)], axis=1)

    def rank(self) -> int:
        """In how many directions of `(s, a)` the log has moved; fewer than there are tell nothing of the others."""
        sizes = np.linalg.svd(self.inputs(), compute_uv=False)
        return int((sizes > RANK * sizes[0]).sum()) if sizes[0] > 0 else 0

    def least_squares(self) -> Float[np.ndarray, "n z"]:
        """`[A B]` of the least squared error; refused where the log leaves a direction of `(s, a)` out."""
        inputs = self.inputs()
        if self.rank() < inputs.shape[1]:
            raise InputError(
                f"the log moves in {self.rank()} of {inputs.shape[1]} directions of (state, action), so least squares "
                "have no answer; log with actions that vary by themselves, or use the mean of a posterior"
            )
        return np.linalg.lstsq(inputs, np.asarray(self.next_state), rcond=None)[0].T

    def residual_covariance(self) -> Float[np.ndarray, "n n"]:
        """Of what least squares leave over, the degrees of freedom that were fitted taken off."""
        inputs = self.inputs()
        left = np.asarray(self.next_state) - inputs @ self.least_squares().T
        freedom = len(self) - inputs.shape[1]
        if freedom <= 0:
            raise InputError(f"{len(self)} rows leave nothing over after {inputs.shape[1]} numbers a row of [A B]")
        return left.T @ left / freedom


def read_vector_log(
    source: Any,
    states: Sequence[str],
    actions: Sequence[str],
    next_states: Sequence[str] | None = None,
    episode: str | None = None,
) -> VectorLog:
    """A log from a CSV, TSV, Parquet or JSON-lines file, or a frame of pandas, polars or pyarrow.

    >>> import pandas as pd, prudent as pr
    >>> frame = pd.DataFrame({"walk": [1, 1, 1, 2, 2], "x": [0.0, 1.0, 0.5, 0.0, 2.0], "u": [1.0, 0.0, 0.0, 2.0, 0.0]})
    >>> pr.read_vector_log(frame, states=["x"], actions=["u"], episode="walk").next_state.ravel().tolist()
    [1.0, 0.5, 2.0]

    Args:
        source: a path, a frame, or a list of these.
        states: names of their columns, in their order.
        actions: names of their columns.
        next_states: names of the columns of what came after. When left out, a row's next state is the state of the
            row below, within the same episode; the last row of an episode then only ends it.
        episode: column of whole numbers that tells episodes apart; without it the source is one.
    """
    after, also = list(next_states or ()), [] if episode is None else [episode]
    columns = [*states, *actions, *after, *also]
    if not states or not actions:
        raise InputError("states and actions must each name at least one column")
    if len(set(columns)) < len(columns):
        raise InputError(f"a column has one meaning, got {columns}")
    if next_states is not None and len(after) != len(states):
        raise InputError(f"next_states must name one column for each of the {len(states)} states, got {after}")
    logs = []
    for number, one in enumerate(source if isinstance(source, list | tuple) else [source]):
        batches = [
            np.stack([batch.numbers(column) for column in columns], axis=1)
            for batch in read_batches(one, (), columns, ())
        ]
        if not batches:
            raise InputError(f"source {number} of the log has no row")
        logs.append(_rows(np.concatenate(batches), len(states), len(actions), len(after)))
    return _stacked(logs)


def _stacked(logs: Sequence[VectorLog]) -> VectorLog:
    """Several logs of one system, one behind the other."""
    return VectorLog(*(np.concatenate(parts) for parts in zip(*map(tree_leaves, logs), strict=True)))


def _rows(table: np.ndarray, n: int, m: int, after: int) -> VectorLog:
    state, action = table[:, :n], table[:, n : n + m]
    if after:
        return VectorLog(state, action, table[:, n + m : n + m + after])
    label = table[:, n + m] if table.shape[1] > n + m else np.zeros(len(table))
    goes_on = label[:-1] == label[1:]
    if not goes_on.any():
        raise InputError("no row is followed by another of its episode, so that no next state is known")
    return VectorLog(state[:-1][goes_on], action[:-1][goes_on], state[1:][goes_on])
