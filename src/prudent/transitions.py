"""Stage 3: the log of what has been observed."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from .arrays import Array, require_finite, require_indices
from .errors import InputError


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

    @staticmethod
    def from_records(records: Any, states: int, actions: int, count: Any = None) -> Transitions:
        """From rows `(state, action, next_state)`; refuses unknown, negative and fractional indices by row."""
        rows = np.asarray(records)
        if rows.size == 0:
            raise InputError("the log has no row; observe at least one transition, or keep the prior as it is")
        if rows.ndim != 2 or rows.shape[1] != 3:
            raise InputError(f"each row must be (state, action, next_state), got an array of shape {rows.shape}")
        counts = np.ones(len(rows)) if count is None else np.asarray(count, dtype=np.float64)
        if counts.shape != (len(rows),):
            raise InputError(f"count must have one entry for each of the {len(rows)} rows, got shape {counts.shape}")
        require_finite("count", counts)
        if np.any(counts < 0):
            row = int(np.argmax(counts < 0))
            raise InputError(f"count {counts[row]} at row {row} is negative")
        return Transitions(
            state=require_indices("state", rows[:, 0], states),
            action=require_indices("action", rows[:, 1], actions),
            next_state=require_indices("next_state", rows[:, 2], states),
            count=counts,
            states=states,
            actions=actions,
        )

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
        self.counts = np.asarray(counts, dtype=np.float64)
        if self.counts.ndim != 2 or self.counts.shape[1] != 2:
            raise InputError(f"trials are counts of (success, failure) a coordinate, got shape {self.counts.shape}")
        require_finite("trial count", self.counts)
        bad = np.argwhere((self.counts < 0) | (self.counts != np.floor(self.counts)))
        if bad.size:
            row = int(bad[0, 0])
            raise InputError(f"trial counts must be whole numbers >= 0, got {self.counts[row]} for coordinate {row}")
