"""Small tables as a whole: read with names in them (costs, successors, targets, policies), or handed out as frames."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ..errors import InputError
from .counting import indices
from .names import Names
from .reading import read_batches

MOST_ROWS = 50_000_000


class SmallTable(NamedTuple):
    """A small table with its names as numbers.

    Attributes:
        source: the file.
        indices: `[K]` by column of names.
        numbers: `[K]` by column of numbers.
    """

    source: str
    indices: dict[str, np.ndarray]
    numbers: dict[str, np.ndarray]

    def __len__(self) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        return len(next(iter(self.indices.values())))

    def place(self, row: int) -> str:
        """Where a row is, for messages."""
        return f"{self.source}, row {row + 1}"


def read_table(
    source: Any,
    names: dict[str, Names],
    numbers: Sequence[str],
    optional: Sequence[str] = (),
    folder: Path | None = None,
) -> SmallTable:
    """Read a whole table.

    Args:
        source: a path or a frame.
        names: the names that each column of names has.
        numbers: columns of numbers.
        optional: columns that may be missing.
        folder: where a relative path begins.
    """
    gathered: dict[str, list[np.ndarray]] = {}
    rows = 0
    for batch in read_batches(source, tuple(names), tuple(numbers), optional, folder):
        for column in batch.columns:
            part = indices(batch, column, names[column]) if column in names else batch.numbers(column)
            gathered.setdefault(column, []).append(part)
            rows = batch.first + len(part) - 1
        if rows > MOST_ROWS:
            raise InputError(f"{source}: has more than {MOST_ROWS:,} rows")
    name = str(source) if isinstance(source, str | Path) else "the frame"
    if not gathered:
        raise InputError(f"{name}: has no row")
    columns = {column: np.concatenate(parts) for column, parts in gathered.items()}
    return SmallTable(
        name,
        {column: columns[column] for column in names if column in columns},
        {column: columns[column] for column in numbers if column in columns},
    )


def entries_of(table: SmallTable, columns: Sequence[str], sizes: Sequence[int]) -> np.ndarray:
    """`[K]` one number for the names of each row; refuses a row that repeats an earlier one."""
    code = np.ravel_multi_index([table.indices[column] for column in columns], tuple(sizes))
    _, first, place = np.unique(code, return_index=True, return_inverse=True)
    repeated = np.flatnonzero(first[place] != np.arange(len(code)))
    if repeated.size:
        row = int(repeated[0])
        raise InputError(f"{table.place(row)}: repeats row {int(first[place][row]) + 1}; keep one of them")
    return code


BACKENDS = ("pandas", "polars", "pyarrow")


def frame_of(columns: Mapping[str, Any], backend: str | None = None) -> Any:
    """A frame of these columns.

    Args:
        columns: by name, lists or arrays of one length.
        backend: `pandas`, `polars` or `pyarrow`; when left out, the first of these that is installed.

    >>> frame_of({"state": ["new"], "run": [1.0]}, "pyarrow").column_names
    ['state', 'run']
    """
    if backend is None:
        backend = next(name for name in BACKENDS if importlib.util.find_spec(name) is not None)
    if backend not in BACKENDS:
        raise InputError(f"there is no frame {backend!r}; use one of {', '.join(BACKENDS)}")
    table = pa.table([pa.array(column) for column in columns.values()], names=list(columns))
    if backend == "pyarrow":
        return table
    try:
        library = importlib.import_module(backend)
    except ImportError:
        raise InputError(f"frames of {backend} need it installed: pip install {backend}") from None
    return table.to_pandas() if backend == "pandas" else library.from_arrow(table)
