"""The rows of a log in their order, as far as they are kept: what a test of its model needs, and counts do not have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from .reading import Batch, numpy_of

# Columns that say which rows belong together and in which order; both may be missing.
UNIT, TIME = "unit", "time"

# Rows that are kept; a log that is longer is tested on its first ones.
MOST_ROWS = 1_000_000


@dataclass(frozen=True)
class Rows:
    """Rows of a log, in order: those of one unit one after the other, by time where it is given.

    Attributes:
        state, action, next_state: `[N]` numbers.
        cost: `[N]`, or None.
        unit: `[N]` whole numbers in the order the units were met; None without a column of units.
        time: `[N]` numbers, or None without a column of times.
        units: names of the units by number.
        dated: whether times are dates, as microseconds.
        counted: whether some row stands for several, so that there is no order among them.
        complete: whether these are all rows of the log.
    """

    state: np.ndarray
    action: np.ndarray
    next_state: np.ndarray
    cost: np.ndarray | None
    unit: np.ndarray | None
    time: np.ndarray | None
    units: tuple[str, ...] = ()
    dated: bool = False
    counted: bool = False
    complete: bool = True

    def __len__(self) -> int:
        return len(self.state)

    def renumbered(self, states: np.ndarray, actions: np.ndarray) -> Rows:
        """The same rows with other numbers for their names."""
        return replace(self, state=states[self.state], action=actions[self.action], next_state=states[self.next_state])

    def sorted(self) -> Rows:
        """By unit and time; without either, as they are."""
        keys = [key for key in (self.time, self.unit) if key is not None]
        if not keys:
            return self
        order = np.lexsort(keys)
        columns = ("state", "action", "next_state", "cost", "unit", "time")
        found = {name: getattr(self, name) for name in columns}
        return replace(self, **{name: each if each is None else each[order] for name, each in found.items()})

    def previous(self) -> np.ndarray:
        """`[N]` the number of the row that a row goes on from, of the same unit; -1 where there is none."""
        before = np.full(len(self), -1)
        follows = self.next_state[:-1] == self.state[1:]
        if self.unit is not None:
            follows &= self.unit[:-1] == self.unit[1:]
        if self.time is not None:
            follows &= self.time[:-1] < self.time[1:]
        before[1:] = np.where(follows, np.arange(len(self) - 1), -1)
        return before


class Keeper:
    """Keeps the first rows of a log as it is read."""

    def __init__(self) -> None:
        self.parts: list[dict[str, Any]] = []
        self.units: dict[Any, int] = {}
        self.size, self.complete, self.counted, self.dated = 0, True, False, False

    def add(self, batch: Batch, numbers: dict[str, np.ndarray | None]) -> None:
        """Keep the rows of a batch; `numbers` are its states, actions, next states, costs and counts."""
        left = MOST_ROWS - self.size
        size = len(numbers["state"])  # pyright: ignore[reportArgumentType]
        self.complete &= size <= left
        count = numbers.pop("count")
        self.counted |= count is not None and bool(np.any(count != 1.0))
        if left <= 0:
            return
        part: dict[str, Any] = {name: None if each is None else each[:left] for name, each in numbers.items()}
        part[UNIT] = self._unit(batch.columns[UNIT].slice(0, left)) if UNIT in batch.columns else None
        part[TIME], dated = _times(batch.columns[TIME].slice(0, left)) if TIME in batch.columns else (None, False)
        self.dated |= dated
        self.parts.append(part)
        self.size += min(size, left)

    def _unit(self, column: pa.Array) -> np.ndarray | None:
        """Numbers of the units of a column; None where a cell is empty or no name."""
        if column.null_count or pa.types.is_nested(column.type):
            return None
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        number = np.array([self.units.setdefault(name, len(self.units)) for name in names], np.int64)
        return number[numpy_of(encoded.indices)]

    def rows(self) -> Rows | None:
        """What was kept; None if nothing was. A column that some part of the log does not have is left out."""
        if not self.parts:
            return None
        columns = {}
        for name in ("state", "action", "next_state", "cost", UNIT, TIME):
            found = [part[name] for part in self.parts]
            columns[name] = None if any(each is None for each in found) else np.concatenate(found)
        units = tuple(str(name) for name in self.units)
        return Rows(**columns, units=units, dated=self.dated, counted=self.counted, complete=self.complete).sorted()


def _times(column: pa.Array) -> tuple[np.ndarray | None, bool]:
    """Times as numbers, and whether they are dates, in microseconds; None where a cell is neither."""
    if column.null_count or pa.types.is_nested(column.type):
        return None, False
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        micros = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
        return numpy_of(micros).astype(float), True
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        found = numpy_of(column).astype(float)
        return (found if np.all(np.isfinite(found)) else None), False
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    texts = [str(each).strip() for each in encoded.dictionary.to_pylist()]
    dated = False
    try:
        values = np.array([float(each) for each in texts])
    except ValueError:
        try:
            dated, values = True, np.array(texts, dtype="datetime64[us]").astype(np.int64).astype(float)
        except ValueError:
            return None, False
    sound = bool(np.all(np.isfinite(values)))
    return (values[numpy_of(encoded.indices)] if sound else None), dated and sound
