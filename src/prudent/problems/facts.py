"""What the files of a problem say, in numbers: the least that has to be kept to make the problem again."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..tables import (
    LARGEST_COST,
    Keeper,
    LogCounts,
    LogForm,
    Names,
    RowOrder,
    Rows,
    SmallTable,
    count_log,
    entries_of,
    read_table,
)
from .counted import LISTED, Counted, counted, counted_more, rows_known
from .limits import limit_tables
from .outcomes import Outcomes, read_outcomes, read_seen, seen_together, tells_outcomes
from .schema import ProblemFile


@dataclass(frozen=True)
class Facts:
    """A problem file with its tables read.

    Attributes:
        file: the file's content.
        states, actions: their names.
        log: what was observed, or None.
        listed: `[K, 3]` the transitions listed as possible; None where none are.
        costs: `[K, 2]` pairs or `[K, 3]` transitions with a cost; None where the log has the costs.
        cost_values: `[K]` these costs.
        target: `[S]` or `[S, A]` what the loss compares with, or None.
        source: the problem file, for messages.
        counted: the logs that make up `log`.
        outcomes: where random outcomes lead, with laws that pairs share; None where rows are by themselves.
        limits: `[S, A]` of each limit, what a visit of each pair counts.
        rows: the rows of the log in their order, to test the model by; None where they were not kept.
    """

    file: ProblemFile
    states: Names
    actions: Names
    log: LogCounts | None
    listed: np.ndarray | None
    costs: np.ndarray | None
    cost_values: np.ndarray | None
    target: np.ndarray | None
    source: str
    counted: tuple[Counted, ...] = ()
    outcomes: Outcomes | None = None
    limits: tuple[np.ndarray, ...] = ()
    rows: Rows | None = None

    @property
    def ordered(self) -> bool:
        """Whether the states are in an order that someone gave: declared, or numbered from 0."""
        return self.file.states is not None or self.states.all() == tuple(map(str, range(len(self.states))))

    @property
    def left_alone(self) -> tuple[str, ...]:
        """Columns of the log that are not looked at."""
        return _left_alone(self.costs, self.file.family is not None, self.outcomes)

    def pair(self, state: int | np.integer, action: int | np.integer) -> str:
        """A pair in words."""
        return f"state {self.states[state]}, action {self.actions[action]}"

    def loss(self) -> Any:
        """The loss that the file asks for; what its class refuses is refused."""
        try:
            return self.file.loss.build(**({} if self.target is None else {"target": self.target}))
        except InputError as error:
            raise InputError(f"{self.source}: loss: {error}") from None

    def with_log(self, sources: Any, again: bool = False, only_new: bool = False) -> Facts:
        """The same problem after more has been observed; see `counted_more` for what was counted before."""
        tables, counted = counted_more(self.counted, sources, self._read, again, only_new)
        known = self.outcomes
        if known is not None:
            told = (each for each in tables if not isinstance(each, LogCounts))
            known = known._replace(seen=seen_together([known.seen, *told]))
        log = joined_logs([self.log, *(each for each in tables if isinstance(each, LogCounts))])
        # A checkpoint has counts alone, so the rows of all that was seen are not there.
        return replace(self, log=log, outcomes=known, counted=counted, rows=None)

    def _read(self, source: Any, order: RowOrder) -> LogCounts | np.ndarray:
        """A log of transitions or, where pairs share laws and it has a column of them, of outcomes."""
        if self.outcomes is not None and tells_outcomes(source):
            names = {"state": self.states, "action": self.actions, "next_state": self.states}
            return read_seen(source, self.outcomes, names, order)
        form = form_of(self.file)
        return count_log([source], self.states, self.actions, leave=self.left_alone, form=form, order=order)


def joined_logs(logs: Iterable[Any]) -> Any:
    """One log of several, of which some may not be there; None without any."""
    there = [log for log in logs if log is not None]
    return functools.reduce(lambda one, other: one.joined(other), there) if there else None


def declared(kind: str, value: Any) -> Names:
    """The names a file declares, open for more if it declares none; a table has codes for them."""
    if isinstance(value, dict):
        if not value:
            raise InputError(f"the table {kind}s is empty; name at least one")
        names = list(value.values())
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise InputError(f"{kind} {twice[0]!r} is declared twice; remove one")
        return Names(kind, names, {name: code for code, name in value.items()})
    return Names(kind, [str(name) for name in value] if isinstance(value, list) else value)


def form_of(file: ProblemFile) -> LogForm:
    """How the rows of the file's logs are to be read."""
    return LogForm({str(key): name for key, name in file.data.columns.items()}, file.data.trajectories)


def _left_alone(costs: np.ndarray | None, family: bool, shared: Outcomes | None) -> tuple[str, ...]:
    """A family has its own costs; costs by transitions or outcomes leave no pair to the log."""
    by_outcome = shared is not None and shared.costs is not None
    return ("cost", "reward") if family or by_outcome or (costs is not None and costs.shape[1] == 3) else ()


def gather(
    file: ProblemFile, source: Path, sizes: tuple[int, int] | None = None, frames: Mapping[str, Any] | None = None
) -> Facts:
    """Read every table a problem file names.

    Args:
        file: its content.
        source: where it is; the tables' paths are relative to its folder.
        sizes: how many states and actions the file's family has.
        frames: tables in memory, by what the file has in the place of their paths.
    """
    where = _Tables(source.parent, source, {} if frames is None else frames)
    try:
        states, actions = declared("state", file.states), declared("action", file.actions)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    if sizes is not None:
        states, actions = _sized(states, sizes[0], source), _sized(actions, sizes[1], source)
    folder, said = where.folder, file.posterior
    names = {"state": states, "action": actions, "next_state": states}
    costs, values = _costs(file.data.costs, names, where)
    listed = _successors(said.successors, names, where)
    told = where.at(said.outcomes_seen)
    order = RowOrder()
    shared = None if said.outcomes is None else read_outcomes(where.at(said.outcomes), told, names, folder, order)
    given = file.data.transitions
    paths = [] if given is None else [given] if isinstance(given, str) else given
    if said.outcomes_seen in paths:
        raise InputError(
            f"{source}: {said.outcomes_seen} is named by data.transitions and by posterior.outcomes_seen; its rows "
            "count once, by their outcomes if they have these"
        )
    tables = [where.at(path) for path in paths]
    leave, form, kept = _left_alone(costs, sizes is not None, shared), form_of(file), Keeper()
    logs, orders = [], []
    for each in tables:
        orders.append(RowOrder([other.digests() for other in orders]))
        logs.append(count_log([each], states, actions, folder, leave, kept, form, orders[-1]))
    rows = kept.rows()
    (states, state_places), (actions, action_places) = states.settled(), actions.settled()
    places = [state_places, action_places, state_places]
    if shared is not None:
        moves = shared.moves.copy()
        moves[:, [0, 3]], moves[:, 1] = state_places[moves[:, [0, 3]]], action_places[moves[:, 1]]
        shared = shared._replace(moves=moves)
    for what, known in (("state", states), ("action", actions)):
        if not len(known):
            raise InputError(f"{source}: there is no {what}; give {what}s, a log or costs")

    def renumbered(index: np.ndarray | None) -> np.ndarray | None:
        if index is None:
            return None
        return np.stack([places[k][index[:, k]] for k in range(index.shape[1])], axis=1)

    logs = [log.renumbered(state_places, action_places) for log in logs]
    seen = tuple(counted(*each, folder) for each in zip(tables, logs, orders, strict=True))
    if shared is not None and shared.seen is not None:
        seen += (counted(told, shared.seen, order, folder),)
    if not file.data.again:
        for k, each in enumerate(seen):
            rows_known(each, [*orders, order][k], seen[:k], LISTED)
    return Facts(
        file=file,
        states=states,
        actions=actions,
        log=joined_logs(logs),
        listed=renumbered(listed),
        costs=renumbered(costs),
        cost_values=values,
        target=_target(getattr(file.loss, "target", None), {"state": states, "action": actions}, where),
        source=str(source),
        counted=seen,
        outcomes=shared,
        limits=limit_tables(file.limit, states, actions, folder, str(source)),
        rows=None if rows is None else rows.renumbered(state_places, action_places),
    )


def _sized(names: Names, size: int, source: Path) -> Names:
    """The names of a family's states or actions: those declared, or numbers."""
    if not names.declared:
        return Names(names.kind, size)
    if len(names) != size:
        raise InputError(f"{source}: declares {len(names)} {names.kind}s, the family has {size}")
    return names


@dataclass(frozen=True)
class _Tables:
    """Where tables are that a problem file names: beside it, or in memory under a name that stands in for a path."""

    folder: Path
    source: Path
    frames: Mapping[str, Any]

    def at(self, path: Any) -> Any:
        return self.frames.get(path or "", path)

    def read(self, path: str, names: dict[str, Names], numbers: list[str], optional: Sequence[str] = ()) -> SmallTable:
        return read_table(self.at(path), names, numbers, optional, self.folder)


def _costs(given: Any, names: dict[str, Names], tables: _Tables) -> tuple[np.ndarray | None, np.ndarray | None]:
    if given is None:
        return None, None
    if isinstance(given, dict):
        place = f"{tables.source}: data.costs"
        pairs = [(state, action, value) for state, row in given.items() for action, value in row.items()]
        if not pairs:
            raise InputError(f"{place} is empty; give a cost for each state and action")
        index = [(names["state"].number(s, place), names["action"].number(a, place)) for s, a, _ in pairs]
        costs, amounts = np.array(index, np.int64), np.array([value for *_, value in pairs], np.float64)
    else:
        table = tables.read(given, names, ["cost"], ["next_state"])
        columns = [column for column in ("state", "action", "next_state") if column in table.indices]
        entries_of(table, columns, [len(names[column]) for column in columns])
        costs = np.stack([table.indices[column] for column in columns], axis=1)
        amounts, place = table.numbers["cost"], given
    large = np.abs(amounts) > LARGEST_COST
    if large.any():
        row = int(np.argmax(large))
        raise InputError(f"{place}, row {row + 1}: cost {amounts[row]:g} is too large; change the unit of the costs")
    return costs, amounts


def _successors(given: Any, names: dict[str, Names], tables: _Tables) -> np.ndarray | None:
    if given is None:
        return None
    if isinstance(given, dict):
        where = f"{tables.source}: posterior.successors"
        moves = [(s, a, str(to)) for s, row in given.items() for a, several in row.items() for to in several]
        if not moves:
            raise InputError(f"{where} is empty; list the successors of each state and action")
        kinds = names.values()
        rows = [[kind.number(name, where) for kind, name in zip(kinds, move, strict=True)] for move in moves]
        triples = np.array(rows, np.int64)
    else:
        table = tables.read(given, names, [])
        triples = np.stack([table.indices[column] for column in names], axis=1)
    return np.unique(triples, axis=0)


def _target(given: str | None, names: dict[str, Names], tables: _Tables) -> np.ndarray | None:
    if given is None:
        return None
    table = tables.read(given, names, ["probability"], ["action"])
    columns = [column for column in names if column in table.indices]
    sizes = [len(names[column]) for column in columns]
    target = np.zeros(sizes)
    target.ravel()[entries_of(table, columns, sizes)] = probabilities = table.numbers["probability"]
    if np.any(probabilities < 0):
        row = int(np.argmax(probabilities < 0))
        raise InputError(f"{table.place(row)}: probability {probabilities[row]:g} is below 0")
    if abs(target.sum() - 1.0) > 1e-6:
        raise InputError(f"{table.source}: the probabilities sum to {target.sum():.9g}, not to 1")
    return target / target.sum()
