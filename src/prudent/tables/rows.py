"""The rows of a log in their order: kept for a test of its model, and consecutive steps joined to transitions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import InputError
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
        return taken(self, np.lexsort(keys))

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


def taken(record: Any, order: np.ndarray) -> Any:
    """A record with its columns in another order."""
    columns = {name: each for name, each in vars(record).items() if isinstance(each, np.ndarray)}
    return replace(record, **{name: each[order] for name, each in columns.items()})


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


EPISODE = "episode"


class Steps:
    """Joins rows to transitions, batch by batch; the last row of an episode says where the step before it led.

    Its own action and cost, which may be empty, belong to a step whose end was not seen, and are left out.
    """

    def __init__(self) -> None:
        self.state: int | None = None
        self.action, self.cost, self.place = -1, float("nan"), ""
        self.episode: Any = None
        self.met: set[Any] = set()
        self.last: dict[str, pa.Array] = {}

    def transitions(
        self, batch: Batch, state: np.ndarray, action: np.ndarray, cost: np.ndarray | None
    ) -> tuple[Batch, np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        """States, actions, next states and costs of the steps that end in this batch, and their units and times.

        Args:
            batch: for the column `episode`, and for places in messages.
            state: numbers.
            action: numbers, -1 where the cell is empty.
            cost: numbers, NaN where the cell is empty; None without a column.
        """
        episodes = self._episodes(batch, len(state))
        first = self.state is None
        before = (np.array([-1 if first else self.state]), np.array([self.action]), np.array([self.cost]))
        states, actions = np.concatenate([before[0], state]), np.concatenate([before[1], action])
        costs = np.concatenate([before[2], np.full(len(state), np.nan) if cost is None else cost])
        same = np.concatenate([[not first and self.episode == episodes[0]], episodes[1:] == episodes[:-1]])
        step = np.flatnonzero(same)
        for what, bad in (("action", actions[step] < 0), ("cost", np.isnan(costs[step]) & (cost is not None))):
            if bad.any():
                row = int(step[int(np.argmax(bad))])
                where = self.place if row == 0 else batch.place(row - 1)
                raise InputError(f"{where}: {what} is empty, and the episode goes on behind it; give one")
        beside = Batch(batch.source, batch.first, self._beside(batch, step))
        self.state, self.action, self.cost = int(state[-1]), int(action[-1]), float(costs[-1])
        self.episode, self.place = episodes[-1], batch.place(len(state) - 1)
        return beside, states[step], actions[step], states[step + 1], None if cost is None else costs[step]

    def _beside(self, batch: Batch, step: np.ndarray) -> dict[str, pa.Array]:
        """Units and times of the rows that steps begin in, the last row of the batch before among them."""
        found = {}
        for name in (UNIT, TIME):
            if name in batch.columns:
                array = batch.columns[name]
                array = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
                whole = pa.concat_arrays([self.last.get(name, array.slice(0, 1)), array])
                found[name], self.last[name] = whole.take(pa.array(step)), array.slice(len(array) - 1)
        return found

    def _episodes(self, batch: Batch, rows: int) -> np.ndarray:
        """The episode of each row, or its unit; one that begins again after another is refused."""
        column = EPISODE if EPISODE in batch.columns else UNIT
        if column not in batch.columns:
            return np.zeros(rows, np.int64)
        values, which = batch.labels(column)
        names = np.array([str(value) for value in values], dtype=object)[which]
        change = np.flatnonzero(np.concatenate([[True], names[1:] != names[:-1]]))
        for row in change:
            name = names[row]
            if row == 0 and name == self.episode:
                continue
            if name in self.met:
                again = f"{column} {name!r} goes on after another began"
                raise InputError(f"{batch.place(int(row))}: {again}; sort the rows by {column} and time")
            self.met.add(name)
        return names
