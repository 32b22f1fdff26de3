"""Which logs were counted, and the refusal to count rows twice."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError
from ..tables import RowDigests, RowOrder

# Columns of a log by which it is known again, as far as it has them.
COLUMNS = ("state", "action", "next_state", "count", "cost_count", "cost_total")

# Two logs that begin alike with less chance than this are not two.
BY_CHANCE = 1e-6


@dataclass(frozen=True)
class Counted:
    """A log that was counted.

    Attributes:
        name: what it was called.
        path: where it is; None for a frame.
        digest: of its rows in any order.
        order: of its rows in their order.
        new: how many of its rows were counted: those behind the ones that had been counted before.
    """

    name: str
    path: str | None
    digest: str
    order: RowDigests
    new: int


def digest_of_arrays(arrays: Iterable[np.ndarray | None], text: str = "") -> str:
    """A number for a text and arrays, of which some may not be there."""
    digest = hashlib.sha256(text.encode())
    for array in arrays:
        digest.update(b"|" if array is None else np.ascontiguousarray(array).tobytes() + b"|")
    return digest.hexdigest()


def counted(source: Any, log: Any, order: RowOrder, folder: Path | None = None) -> Counted:
    """The log that a source was counted to; its `digest` does not depend on the order of the rows of a table."""
    columns = [log] if isinstance(log, np.ndarray) else [getattr(log, name) for name in COLUMNS if hasattr(log, name)]
    known = {"digest": digest_of_arrays(columns), "order": order.digests(), "new": order.rows}
    if not isinstance(source, str | Path):
        return Counted("the frame", None, **known)
    named = str(source)
    path = str(((folder or Path()) / named).resolve())
    return Counted(named, path, **known)


class Ways(NamedTuple):
    """Ways out of a refusal to count a log: to count all its rows, empty for none, and to count the new ones."""

    all: str
    new: str

    def or_all(self, other: str) -> str:
        """Another way, or all rows."""
        return f"{other}, or {self.all}" if self.all else other


CONTINUED = Ways(
    "count it all the same with --again (again=True)", "count the others alone with --only-new (only_new=True)"
)
LISTED = Ways("count it all the same with data.again = true", "leave one of them out")


def counted_more(
    before: tuple[Counted, ...],
    sources: Sequence[Any],
    read: Callable[[Any, RowOrder], Any],
    again: bool = False,
    only_new: bool = False,
    ways: Ways = CONTINUED,
) -> tuple[list[Any], tuple[Counted, ...]]:
    """Read more logs, and list all that were counted.

    Args:
        before: what was counted.
        sources: of the logs.
        read: a source, and the order that takes digests of its rows.
        again: count rows that were counted before once more; they are refused otherwise.
        only_new: a log begins with rows that were counted before; count those behind them.
        ways: out of a refusal.
    """
    if again and only_new:
        raise InputError("--again counts all rows of a log, --only-new those that are new; give one of them")
    logs = []
    for source in sources:
        order = RowOrder([each.order for each in before])
        log = read(source, order)
        more = counted(source, log, order)
        if not again and (known := rows_known(more, order, before, ways, only_new)):
            log, more = read(source, RowOrder(skip=known)), replace(more, new=order.rows - known)
        logs.append(log)
        before = (*before, more)
    return logs, before


def rows_known(more: Counted, order: RowOrder, before: tuple[Counted, ...], ways: Ways, only_new: bool = False) -> int:
    """How many first rows of a log to leave out; refuse a log that repeats what was counted.

    A log repeats others where it has the same rows in any order, or begins with all that was counted, with what was
    counted of its own file, or with rows that another log by chance would not begin with.

    Args:
        more: the log.
        order: that read it.
        before: what was counted.
        ways: out of a refusal.
        only_new: leave rows out that were counted, in place of a refusal; refuse a log that does not begin with any.
    """
    leave = ways.or_all("leave it out")
    for other in before:
        if more.digest == other.digest:
            also = "" if more.name == other.name else f" as {other.name}"
            raise InputError(f"{more.name}: its rows were counted before{also}; {leave}")
    rows, known, names = order.rows, order.repeated, _named(order, before)
    there = any(other.path is not None and other.path == more.path for other in before)
    if known and (there or known == sum(each.new for each in before) or order.chance(known) < BY_CHANCE):
        if known == rows:
            raise InputError(f"{more.name}: its rows were counted before, in {names}; {leave}")
        if only_new:
            return known
        said = f"the first {known:,} of its {rows:,} rows were counted before, in {names}"
        raise InputError(f"{more.name}: {said}; {ways.or_all(ways.new)}")
    for other in before:
        alike = order.shared(other.order)
        if alike and order.chance(alike) < BY_CHANCE:
            raise InputError(
                f"{more.name}: begins with the first {alike:,} rows of {other.name}, which were counted before, but "
                f"not with all of them; {ways.or_all('name a file that holds the new rows alone')}"
            )
    if there:
        raise InputError(
            f"{more.name}: was counted before, and has other rows now; "
            + ways.or_all("name a file that holds the new rows alone")
        )
    if only_new:
        raise InputError(
            f"{more.name}: begins with no rows that were counted before, or with so few that chance explains it; leave "
            "--only-new (only_new=True) out if all its rows are new"
        )
    return 0


def _named(order: RowOrder, before: tuple[Counted, ...]) -> str:
    return " and ".join(dict.fromkeys(before[k].name for k in order.of))
