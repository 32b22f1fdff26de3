"""What has been observed: transitions with counts, or trials of single probabilities."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from ..arrays import Array, as_float, require_finite, require_indices, require_size
from ..errors import InputError


class Transitions(eqx.Module):
    """Observed transitions, each `(state, action, next_state)` with a count.

    >>> import prudent as pr
    >>> log = pr.Transitions.from_records([(0, 1, 2), (0, 1, 2), (2, 0, 0)], states=3, actions=2)
    >>> len(log)
    3

    Attributes:
        state, action, next_state: `[K]` whole numbers.
        count: `[K]` how often each was seen.
        states, actions: the sizes the indices were checked against.
    """

    state: Int[Array, " K"]
    action: Int[Array, " K"]
    next_state: Int[Array, " K"]
    count: Float[Array, " K"]
    states: int = eqx.field(static=True)
    actions: int = eqx.field(static=True)

    def __init__(self, state: Any, action: Any, next_state: Any, count: Any, states: int, actions: int):
        require_size("states", states)
        require_size("actions", actions)
        self.state = require_indices("state", state, states)
        self.action = require_indices("action", action, actions)
        self.next_state = require_indices("next_state", next_state, states)
        self.count = np.asarray(as_float(count, "count"))
        self.states, self.actions = states, actions
        shapes = {column.shape for column in (self.state, self.action, self.next_state, self.count)}
        if len(shapes) != 1 or self.state.ndim != 1:
            raise InputError(
                f"state, action, next_state and count must be lists of one length, got shapes {sorted(shapes)}"
            )
        require_finite("count", self.count)
        if np.any(self.count < 0):
            row = int(np.argmax(self.count < 0))
            raise InputError(f"count {self.count[row]} at row {row} is negative")
        if np.any(self.count != np.floor(self.count)):
            row = int(np.argmax(self.count != np.floor(self.count)))
            raise InputError(f"count {self.count[row]} at row {row} is not a whole number")

    @staticmethod
    def from_records(records: Any, states: int, actions: int, count: Any = None) -> Transitions:
        """From rows `(state, action, next_state)`; refuses unknown, negative and fractional indices by row."""
        try:
            rows = np.asarray(records)
            if rows.dtype.kind not in "iuf":
                rows = np.asarray(records, dtype=object)
        except ValueError:
            raise InputError("each row must be (state, action, next_state), got rows of several lengths") from None
        if rows.size == 0:
            raise InputError("the log has no row; observe at least one transition, or keep the prior as it is")
        if rows.ndim != 2 or rows.shape[1] != 3:
            raise InputError(f"each row must be (state, action, next_state), got an array of shape {rows.shape}")
        counts = np.ones(len(rows)) if count is None else np.asarray(as_float(count, "count"))
        if counts.shape != (len(rows),):
            raise InputError(f"count must have one entry for each of the {len(rows)} rows, got shape {counts.shape}")
        return Transitions(rows[:, 0], rows[:, 1], rows[:, 2], counts, states, actions)

    def __len__(self) -> int:
        return int(np.asarray(self.count).sum())


class Trials(eqx.Module):
    """Coin-like trials of each unknown probability: `[D, 2]` counts of (success, failure).

    >>> import prudent as pr
    >>> pr.Trials([[2, 3], [0, 5]]).counts.sum(axis=1).tolist()
    [5.0, 5.0]
    """

    counts: Float[Array, "D 2"]

    def __init__(self, counts: Any):
        self.counts = np.asarray(as_float(counts, "trials (success, failure)"))
        if self.counts.ndim != 2 or self.counts.shape[1] != 2:
            raise InputError(f"trials are counts of (success, failure) a coordinate, got shape {self.counts.shape}")
        require_finite("trial count", self.counts)
        bad = np.argwhere((self.counts < 0) | (self.counts != np.floor(self.counts)))
        if bad.size:
            row = int(bad[0, 0])
            raise InputError(f"trial counts must be whole numbers >= 0, got {self.counts[row]} for coordinate {row}")


def merge(*logs: Transitions) -> Transitions:
    """One log with the counts of all of them, a row for each transition seen, in order."""
    sizes = {(log.states, log.actions) for log in logs}
    if len(sizes) > 1:
        raise InputError(f"logs to be merged must be for the same numbers of (states, actions), got {sorted(sizes)}")
    states, actions = sizes.pop()
    code, place = np.unique(np.concatenate([codes(log) for log in logs]), return_inverse=True)
    count = np.bincount(place, np.concatenate([np.asarray(log.count) for log in logs]), minlength=len(code))
    return Transitions(code // states // actions, code // states % actions, code % states, count, states, actions)


def codes(log: Transitions) -> Int[np.ndarray, " K"]:
    """One number for each (state, action, next_state)."""
    return (np.asarray(log.state, np.int64) * log.actions + log.action) * log.states + log.next_state
