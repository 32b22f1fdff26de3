"""A log of any length counted in bounded memory: what is kept grows with distinct transitions, not with rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import InputError
from .names import INDEX_BITS, Names, as_name, require_name
from .reading import Batch, read_batches

# Distinct codes of finished batches are merged once this many have gathered.
MOST_PENDING = 2**20
LARGEST_COUNT = 2.0**53


@dataclass(frozen=True)
class LogCounts:
    """What a log holds: how often each transition was seen, and what the rows of each pair cost.

    Attributes:
        state, action, next_state: `[K]` each transition that is in the log, in order.
        count: `[K]` how often it was seen.
        cost_state, cost_action: `[P]` pairs whose rows have costs; empty without a column of costs.
        cost_total, cost_count: `[P]` the sum of their costs, and of how many.
        rows: rows read.
        sources: the files they came from.
    """

    state: np.ndarray
    action: np.ndarray
    next_state: np.ndarray
    count: np.ndarray
    cost_state: np.ndarray
    cost_action: np.ndarray
    cost_total: np.ndarray
    cost_count: np.ndarray
    rows: int
    sources: tuple[str, ...]

    def renumbered(self, states: np.ndarray, actions: np.ndarray) -> LogCounts:
        """The same log with other numbers for its names, in their order."""
        state, action, next_state = states[self.state], actions[self.action], states[self.next_state]
        order = np.lexsort((next_state, action, state))
        return replace(
            self,
            state=state[order],
            action=action[order],
            next_state=next_state[order],
            count=self.count[order],
            cost_state=states[self.cost_state],
            cost_action=actions[self.cost_action],
        )

    def joined(self, other: LogCounts) -> LogCounts:
        """Both logs as one."""
        seen, paid = Tally(), Tally()
        for log in (self, other):
            pair = (log.state << 2 * INDEX_BITS) | (log.action << INDEX_BITS)
            seen.put(pair | log.next_state, log.count, np.zeros(len(pair)))
            pair = (log.cost_state << 2 * INDEX_BITS) | (log.cost_action << INDEX_BITS)
            paid.put(pair, log.cost_count, log.cost_total)
        return _of_tallies(seen, paid, self.rows + other.rows, (*self.sources, *other.sources))


def count_log(
    sources: Sequence[Any], states: Names, actions: Names, folder: Path | None = None, leave: tuple[str, ...] = ()
) -> LogCounts:
    """Read and count logs, one after the other.

    Args:
        sources: paths, `minari:name`, or frames; see `read_batches`.
        states: their names, declared or to be collected as they are met.
        actions: the same for actions.
        folder: where relative paths begin.
        leave: optional columns to leave alone, such as `cost` where costs come from elsewhere.
    """
    seen, paid = Tally(), Tally()
    rows = 0
    optional = [name for name in ("count", "cost") if name not in leave]
    for source in sources:
        before = rows
        for batch in read_batches(source, ("state", "action", "next_state"), optional, optional, folder):
            rows += _add(batch, states, actions, seen, paid)
        if rows == before:
            name = source if isinstance(source, str | Path) else "the frame"
            raise InputError(f"{name}: the log has no row; observe at least one transition")
    return _of_tallies(seen, paid, rows, tuple(str(each) for each in sources if isinstance(each, str | Path)))


def _of_tallies(seen: Tally, paid: Tally, rows: int, sources: tuple[str, ...]) -> LogCounts:
    state, action, next_state, count, _ = seen.table()
    if not count.sum() > 0:
        raise InputError("every count of the log is 0; observe at least one transition")
    cost_state, cost_action, _, cost_count, cost_total = paid.table()
    return LogCounts(state, action, next_state, count, cost_state, cost_action, cost_total, cost_count, rows, sources)


def _add(batch: Batch, states: Names, actions: Names, seen: Tally, paid: Tally) -> int:
    state = indices(batch, "state", states)
    action = indices(batch, "action", actions)
    next_state = indices(batch, "next_state", states)
    count = _counts(batch) if "count" in batch.columns else None
    pair = (state << 2 * INDEX_BITS) | (action << INDEX_BITS)
    seen.add(pair | next_state, count)
    if "cost" in batch.columns:
        paid.add(pair, count, batch.numbers("cost"))
    return len(state)


def _counts(batch: Batch) -> np.ndarray:
    count = batch.numbers("count")
    for bad, reason in (
        (count < 0, "is negative"),
        (count != np.floor(count), "is not a whole number"),
        (count > LARGEST_COUNT, "is too large"),
    ):
        if bad.any():
            position = int(np.argmax(bad))
            raise InputError(f"{batch.place(position)}: count {count[position]:g} {reason}; use whole numbers >= 0")
    return count


def indices(batch: Batch, column: str, names: Names) -> np.ndarray:
    """The numbers of a column's names; refuses the first row whose name is not declared."""
    values, which = batch.labels(column)
    numbers = np.empty(len(values), np.int64)
    for k, value in enumerate(values):
        name = as_name(value)
        try:
            number = None if name is None else names.find(require_name(names.kind, name))
        except InputError as error:
            raise InputError(f"{_place(batch, which, k)}: {error}") from None
        if number is None:
            where = _place(batch, which, k)
            if name is None:
                raise InputError(f"{where}: {column} {value!r} is neither a name nor a whole number")
            raise InputError(f"{where}: {column} {name!r} is not declared{names.hint(name)}")
        numbers[k] = number
    return numbers[which]


def _place(batch: Batch, which: np.ndarray, value: int) -> str:
    used = which == value
    return batch.place(int(np.argmax(used))) if used.any() else batch.source


class Tally:
    """Sums by code; the codes of many batches are merged now and then."""

    def __init__(self) -> None:
        self.pending: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self.size = 0

    def add(self, codes: np.ndarray, count: np.ndarray | None, amount: np.ndarray | None = None) -> None:
        """Add rows: a code each, how often it counts (once when None), and an amount to be summed with it."""
        encoded = pa.array(codes).dictionary_encode()
        place = encoded.indices.to_numpy(zero_copy_only=False)
        distinct = encoded.dictionary.to_numpy(zero_copy_only=False)
        number = np.bincount(place, count, minlength=len(distinct)).astype(np.float64)
        if amount is None:
            total = np.zeros(len(distinct))
        else:
            total = np.bincount(place, amount if count is None else amount * count, minlength=len(distinct))
        self.put(distinct, number, total)

    def put(self, codes: np.ndarray, number: np.ndarray, total: np.ndarray) -> None:
        """Add what has been summed elsewhere."""
        self.pending.append((codes, number, total))
        self.size += len(codes)
        if self.size > MOST_PENDING:
            self._merge()

    def _merge(self) -> None:
        codes, number, total = (np.concatenate(column) for column in zip(*self.pending, strict=True))
        distinct, place = np.unique(codes, return_inverse=True)
        self.pending = [
            (
                distinct,
                np.bincount(place, number, minlength=len(distinct)).astype(np.float64),
                np.bincount(place, total, minlength=len(distinct)).astype(np.float64),
            )
        ]
        # What is left stays; only what comes on top of it counts towards the next merge.
        self.size = 0

    def table(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """State, action, next state, count and amount of each distinct code, in order."""
        if not self.pending:
            empty = np.zeros(0, np.int64)
            return empty, empty, empty, np.zeros(0), np.zeros(0)
        self._merge()
        codes, number, total = self.pending[0]
        if number.sum() > LARGEST_COUNT:
            raise InputError(f"the counts of the log sum to {number.sum():g}, more than can be counted exactly")
        mask = 2**INDEX_BITS - 1
        return codes >> 2 * INDEX_BITS, (codes >> INDEX_BITS) & mask, codes & mask, number, total
