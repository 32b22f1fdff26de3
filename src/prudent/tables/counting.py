"""A log of any length counted in bounded memory: what is kept grows with distinct transitions, not with rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import InputError
from .names import INDEX_BITS, Names, as_name, few_of, require_name
from .reading import Batch, Called, numpy_of, read_batches
from .repeats import RowOrder
from .rows import EPISODE, TIME, UNIT, Keeper, Steps, taken

# Distinct codes of finished batches are merged once this many have gathered.
MOST_PENDING = 2**20
# Rows that are sorted sooner than Arrow's functions, which hash them, are imported.
FEW_ROWS = 50_000
LARGEST_COUNT = 2.0**53
LARGEST_COST = 1e100


@dataclass(frozen=True)
class LogCounts:
    """What a log holds: how often each transition was seen, and what its rows cost.

    Attributes:
        state, action, next_state: `[K]` each transition that is in the log, in order.
        count: `[K]` how often it was seen.
        cost_count: `[K]` how many of these have a cost; 0 without a column of costs.
        cost_total: `[K]` the sum of these costs.
        cost_square: `[K]` the sum of the squares of what they differ from their mean by.
        rows: rows read.
        sources: the files they came from.
    """

    state: np.ndarray
    action: np.ndarray
    next_state: np.ndarray
    count: np.ndarray
    cost_count: np.ndarray
    cost_total: np.ndarray
    cost_square: np.ndarray
    rows: int
    sources: tuple[str, ...]

    def renumbered(self, states: np.ndarray, actions: np.ndarray) -> LogCounts:
        """The same log with other numbers for its names, in their order."""
        state, action, next_state = states[self.state], actions[self.action], states[self.next_state]
        order = np.lexsort((next_state, action, state))
        return taken(replace(self, state=state, action=action, next_state=next_state), order)

    def joined(self, other: LogCounts) -> LogCounts:
        """Both logs as one."""
        seen = Tally()
        for log in (self, other):
            codes = (log.state << 2 * INDEX_BITS) | (log.action << INDEX_BITS) | log.next_state
            seen.put(codes, log.count, log.cost_count, log.cost_total, log.cost_square)
        return _of_tally(seen, self.rows + other.rows, (*self.sources, *other.sources))


@dataclass(frozen=True)
class LogForm:
    """How the rows of a log are to be read.

    Attributes:
        called: what its columns are called, where that is something else; empty for one to leave alone; several for a
            state that is made of them.
        trajectories: rows are consecutive steps, whose next state is the state of the row behind.
    """

    called: Called = field(default_factory=dict)
    trajectories: bool = False

    def __post_init__(self) -> None:
        columns = {name: [each] if isinstance(each, str) else list(each) for name, each in self.called.items()}
        named = [column for each in columns.values() for column in each if column]
        twice = [column for column, count in Counter(named).items() if count > 1]
        if twice:
            raise InputError(f"column {twice[0]!r} of the log is named twice; it has one meaning")
        width = {name: len(columns.get(name, [name])) for name in (*columns, "state", "next_state")}
        for name, number in width.items():
            if number != 1 and name not in ("state", "next_state"):
                raise InputError(f"{name} is one column of the log, got {few_of(columns[name])}; give one")
        if not self.trajectories and width["state"] != width["next_state"]:
            raise InputError(
                f"a state is made of {width['state']} columns of the log and the next state of {width['next_state']}; "
                "name as many next_state columns, or say that the rows are consecutive steps (trajectories)"
            )


def count_log(
    sources: Sequence[Any],
    states: Names,
    actions: Names,
    folder: Path | None = None,
    leave: tuple[str, ...] = (),
    keep: Keeper | None = None,
    form: LogForm | None = None,
    order: RowOrder | None = None,
) -> LogCounts:
    """Read and count logs, one after the other.

    Args:
        sources: paths or frames; see `read_batches`.
        states: their names, declared or to be collected as they are met.
        actions: the same for actions.
        folder: where relative paths begin.
        leave: optional columns to leave alone, such as `cost` where costs come from elsewhere.
        keep: keeps the rows themselves, with their units and times if there are any.
        form: how its rows are to be read; a transition a row under the usual names when left out.
        order: takes digests of the rows, and may leave the first ones out.
    """
    form = LogForm() if form is None else form
    seen = Tally()
    rows = 0
    numbers = [name for name in ("count", "cost", "reward") if name not in leave]
    names = ("state", "action", EPISODE, UNIT) if form.trajectories else ("state", "action", "next_state")
    names += () if keep is None else (TIME,) if form.trajectories else (UNIT, TIME)
    optional = [*numbers, EPISODE, UNIT, TIME]
    for source in sources:
        before, steps = rows, Steps() if form.trajectories else None
        for batch in read_batches(source, names, numbers, optional, folder, form.called):
            rows += _add(batch, states, actions, seen, steps, keep, order)
        if rows == before:
            name = source if isinstance(source, str | Path) else "the frame"
            raise InputError(f"{name}: the log has no row; observe at least one transition")
    return _of_tally(seen, rows, tuple(str(each) for each in sources if isinstance(each, str | Path)))


def _of_tally(seen: Tally, rows: int, sources: tuple[str, ...]) -> LogCounts:
    state, action, next_state, count, paid, total, square = seen.table()
    if not count.sum() > 0:
        raise InputError("every count of the log is 0; observe at least one transition")
    return LogCounts(state, action, next_state, count, paid, total, square, rows, sources)


def _add(
    batch: Batch,
    states: Names,
    actions: Names,
    seen: Tally,
    steps: Steps | None,
    keep: Keeper | None,
    order: RowOrder | None,
) -> int:
    state = indices(batch, "state", states)
    cost, rows = _costs(batch, empty=steps is not None), len(state)
    if steps is None:
        action, next_state = indices(batch, "action", actions), indices(batch, "next_state", states)
        count = _counts(batch) if "count" in batch.columns else None
    elif "count" in batch.columns:
        raise InputError(f"{batch.source}: consecutive steps have no column count; give every step a row")
    else:
        action, count = indices(batch, "action", actions, empty=True), None
        batch, state, action, next_state, cost = steps.transitions(batch, state, action, cost)
    if order is not None:
        names = {"state": (states, state), "action": (actions, action), "next_state": (states, next_state)}
        known = order.add(names, {"count": np.ones(len(state)) if count is None else count, "cost": cost})
        if order.skip:
            state, action, next_state = state[known:], action[known:], next_state[known:]
            count, cost = None if count is None else count[known:], None if cost is None else cost[known:]
            rows = len(state)
    seen.add((state << 2 * INDEX_BITS) | (action << INDEX_BITS) | next_state, count, cost)
    if keep is not None:
        keep.add(batch, {"state": state, "action": action, "next_state": next_state, "cost": cost, "count": count})
    return rows


def _costs(batch: Batch, empty: bool) -> np.ndarray | None:
    """The costs of rows; a reward is a negative cost, and is looked at where there is no cost."""
    if "cost" in batch.columns:
        cost = batch.numbers("cost", empty)
    elif "reward" in batch.columns:
        cost = -batch.numbers("reward", empty)
    else:
        return None
    large = np.abs(cost) > LARGEST_COST
    if large.any():
        position = int(np.argmax(large))
        raise InputError(f"{batch.place(position)}: cost {cost[position]:g} is too large; change the unit of the costs")
    return cost


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


def indices(batch: Batch, column: str, names: Names, empty: bool = False) -> np.ndarray:
    """The numbers of a column's names, -1 for cells that may be empty; refuses the first row of another name."""
    values, which = batch.labels(column, empty)
    numbers = np.empty(len(values), np.int64)
    for k, value in enumerate(values):
        if isinstance(value, tuple):
            try:
                value = names.product(value)
            except InputError as error:
                raise InputError(f"{_place(batch, which, k)}: {error}") from None
        name = as_name(value)
        if empty and name == "":
            numbers[k] = -1
            continue
        if name == "":
            raise InputError(f"{_place(batch, which, k)}: {column} is empty; give a name or a number")
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
    """Counts by code, and of rows with a cost their number, sum and squares; batches are merged now and then."""

    def __init__(self) -> None:
        self.pending: list[tuple[np.ndarray, ...]] = [(np.zeros(0, np.int64), *[np.zeros(0)] * 4)]
        self.size = 0

    def add(self, codes: np.ndarray, count: np.ndarray | None, cost: np.ndarray | None = None) -> None:
        """Add rows: a code each, how often it counts (once when None), and what it cost each time."""
        codes = np.ascontiguousarray(codes, np.int64)
        distinct, place = _distinct(codes)
        number = np.bincount(place, count, minlength=len(distinct)).astype(np.float64)
        none = np.zeros(len(distinct))
        if cost is None:
            self.put(distinct, number, none, none, none)
            return
        weight = np.ones(len(codes)) if count is None else count
        self.put(distinct, number, *_moments(place, len(distinct), weight, weight * cost, np.zeros(len(codes))))

    def put(
        self, codes: np.ndarray, count: np.ndarray, paid: np.ndarray, total: np.ndarray, square: np.ndarray
    ) -> None:
        """Add what has been summed elsewhere."""
        self.pending.append((codes, count, paid, total, square))
        self.size += len(codes)
        if self.size > MOST_PENDING:
            self._merge()

    def _merge(self) -> None:
        codes, count, *costs = (np.concatenate(column) for column in zip(*self.pending, strict=True))
        distinct, place = np.unique(codes, return_inverse=True)
        number = np.bincount(place, count, minlength=len(distinct)).astype(np.float64)
        self.pending = [(distinct, number, *_moments(place, len(distinct), *costs))]
        # What is left stays; only what comes on top of it counts towards the next merge.
        self.size = 0

    def table(self) -> tuple[np.ndarray, ...]:
        """State, action, next state, count, and number, sum and squares of costs, of each distinct code, in order."""
        self._merge()
        codes, number, *costs = self.pending[0]
        if number.sum() > LARGEST_COUNT:
            raise InputError(f"the counts of the log sum to {number.sum():g}, more than can be counted exactly")
        mask = 2**INDEX_BITS - 1
        return (codes >> 2 * INDEX_BITS, (codes >> INDEX_BITS) & mask, codes & mask, number, *costs)


def _distinct(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The values there are, and which of them each row has."""
    if len(codes) <= FEW_ROWS:
        return np.unique(codes, return_inverse=True)
    # `pa.array` would import pandas wherever that is installed.
    encoded = pa.Array.from_buffers(pa.int64(), len(codes), [None, pa.py_buffer(codes)]).dictionary_encode()
    return numpy_of(encoded.dictionary), numpy_of(encoded.indices)


def _moments(
    place: np.ndarray, size: int, paid: np.ndarray, total: np.ndarray, square: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Number, sum and squared deviations of groups, from those of their parts.

    Deviations are taken from means, so that costs which all lie far from 0 lose no digits.
    """
    number = np.bincount(place, paid, minlength=size)
    whole = np.bincount(place, total, minlength=size)
    mean = whole / np.where(number > 0, number, 1.0)
    apart = total / np.where(paid > 0, paid, 1.0) - mean[place]
    return number, whole, np.bincount(place, square + paid * apart**2, minlength=size)
