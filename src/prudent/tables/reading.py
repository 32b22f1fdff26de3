"""Rows of a file, a frame or a dataset in batches of columns, with names as dictionaries and numbers as floats."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ..errors import InputError
from .names import suggest, unguarded
from .opening import (
    KINDS,
    PACKED,
    decimal_point,
    for_arrow,
    header_of,
    look_at_footer,
    look_at_lines,
    look_at_packed,
    look_at_parquet,
    near_file,
    opened,
    refuse_disguise,
    require_text_name,
)

BLOCK_BYTES = 8 * 2**20
BATCH_ROWS = 2**18

# Rows that tell what the columns of JSON lines are, and how many different ones there may be.
FIRST_BYTES, MOST_COLUMNS = 2**20, 1000

# Rows looked at one by one for the place of an error.
MOST_SEARCHED = 2_000_000

# Columns of logs, which may be called otherwise.
LOGGED = ("state", "action", "next_state")

# What columns of a log are called; a state may be made of several.
Called = Mapping[str, str | Sequence[str]]


class Batch(NamedTuple):
    """Some rows of a table.

    Attributes:
        source: the file, for messages.
        first: the number of the first row, counted from 1 below the header.
        columns: arrays of one length by column name.
        guarded: whether names may begin with an apostrophe that spreadsheets take for "this is text".
        parts: by column that the table does not have, the columns whose cells together are its names.
    """

    source: str
    first: int
    columns: dict[str, pa.Array]
    guarded: bool = False
    parts: Mapping[str, list[str]] | None = None

    def place(self, position: int) -> str:
        """Where a row is, for messages."""
        return f"{self.source}, row {self.first + position}"

    def numbers(self, column: str, empty: bool = False) -> np.ndarray:
        """A column of numbers as float64; refuses text, NaN, infinities and, unless they are NaN then, empty cells."""
        array = self.columns[column]
        if array.null_count and not empty:
            raise InputError(f"{self.place(_first_null(array))}: {column} is empty; give a number")
        if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
            raise InputError(f"{self.place(0)}: {column} holds {array.type} values, not numbers")
        whole = array.cast(pa.float64(), safe=False).fill_null(np.nan) if array.null_count else array
        values = numpy_of(whole).astype(np.float64)
        bad = ~np.isfinite(values)
        if array.null_count:  # asking for them imports a library of functions
            bad &= ~_nulls(array)
        if bad.any():
            position = int(np.argmax(bad))
            raise InputError(f"{self.place(position)}: {column} {values[position]} is not a finite number")
        return values

    def labels(self, column: str, empty: bool = False) -> tuple[list[Any], np.ndarray]:
        """A column's distinct values, and which of them each row has; refuses empty cells by row, unless it may be.

        Values of a column of several parts are tuples, in the order of their first rows.
        """
        if self.parts and column in self.parts:
            return self._product(self.parts[column])
        array = self.columns[column]
        if array.null_count and empty:
            array = (array.dictionary_decode() if pa.types.is_dictionary(array.type) else array).cast(pa.string())
            array = array.fill_null("")
        if array.null_count:
            raise InputError(f"{self.place(_first_null(array))}: {column} is empty; give a name or a number")
        if not pa.types.is_dictionary(array.type):
            if pa.types.is_nested(array.type):
                raise InputError(f"{self.place(0)}: {column} holds {array.type} values, not names or numbers")
            array = array.dictionary_encode()
        try:
            values = array.dictionary.to_pylist()
            if self.guarded:
                values = [unguarded(value) if isinstance(value, str) else value for value in values]
            return values, numpy_of(array.indices)
        except UnicodeDecodeError:
            raise InputError(f"{self.source}: is not UTF-8 text; save it as UTF-8") from None

    def _product(self, parts: list[str]) -> tuple[list[Any], np.ndarray]:
        found = [self.labels(part) for part in parts]
        code = np.ravel_multi_index([which for _, which in found], [len(values) for values, _ in found])
        _, first, which = np.unique(code, return_index=True, return_inverse=True)
        order = np.argsort(first)
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        return [tuple(values[at[row]] for values, at in found) for row in first[order]], place[which]


def numpy_of(array: pa.Array) -> np.ndarray:
    """The numbers of an array without empty cells; its own `to_numpy` imports pandas wherever that is installed."""
    return np.from_dlpack(array)


def _nulls(array: pa.Array) -> np.ndarray:
    return numpy_of(array.is_null().cast(pa.uint8())).astype(bool)


def _first_null(array: pa.Array) -> int:
    return int(np.argmax(_nulls(array)))


def read_batches(
    source: Any,
    names: Sequence[str],
    numbers: Sequence[str],
    optional: Sequence[str],
    folder: Path | None = None,
    called: Called | None = None,
) -> Iterator[Batch]:
    """The rows of a file or a frame in batches that hold the columns asked for and nothing else.

    Args:
        source: a path, or a frame of pandas, polars or pyarrow.
        names: columns whose cells are names.
        numbers: columns whose cells are numbers.
        optional: which of both may be missing.
        folder: where a relative path begins; the working folder when left out.
        called: of a log, what its columns are called, where that is something else; empty for one to leave alone.
            Several columns make up one name.
    """
    parts = {
        name: {f"{name} column {column!r}": column for column in columns}
        for name, columns in (called or {}).items()
        if not isinstance(columns, str)
    }
    plain = {name: column for name, column in (called or {}).items() if isinstance(column, str)}
    plain |= {part: column for each in parts.values() for part, column in each.items()}
    names = [part for name in names for part in parts.get(name, [name])]
    wanted = _Wanted(tuple(names), tuple(numbers), frozenset(optional), plain, called is not None)
    for batch in _batches(source, wanted, folder):
        yield batch._replace(parts={name: list(each) for name, each in parts.items()})


def _batches(source: Any, wanted: _Wanted, folder: Path | None) -> Iterator[Batch]:
    """The rows in batches."""
    if not isinstance(source, str | Path):
        yield from _of_frame(source, wanted)
        return
    path = Path(source) if folder is None else folder / source
    kind = require_text_name(path)
    if not path.exists():
        raise InputError(f"{path}: there is no such file{near_file(path)}")
    if not path.is_file():
        raise InputError(f"{path}: is not a file")
    refuse_disguise(path, kind)
    readers = {"csv": _of_text, "tsv": _of_text, "parquet": _of_parquet, "jsonl": _of_json}
    try:
        if path.suffix.lower() in PACKED:
            look_at_packed(path)
        yield from readers[kind](path, wanted)
    except pa.ArrowException as error:
        raise InputError(f"{path}: {_explained(error, KINDS[kind])}") from None
    except (OSError, MemoryError, UnicodeDecodeError, OverflowError) as error:
        raise InputError(f"{path}: cannot be read as {KINDS[kind]}: {_one_line(error)}") from None


class _Wanted(NamedTuple):
    names: tuple[str, ...]
    numbers: tuple[str, ...]
    optional: frozenset[str]
    called: dict[str, str]
    log: bool

    def within(self, columns: Sequence[str], source: str) -> dict[str, str]:
        """The wanted columns that are there, each with the name the table has it under."""
        wanted = {self.called.get(name, name): name for name in (*self.names, *self.numbers)}
        wanted.pop("", None)
        found: dict[str, str] = {}
        for column in columns:
            name = wanted.get(column.strip())
            if name is not None:
                if name in found:
                    raise InputError(f"{source}: column {column.strip()!r} appears twice; remove one")
                found[name] = column
        for name in (*self.names, *self.numbers):
            said = self.called.get(name)
            if name in found or said == "" or (name in self.optional and said is None):
                continue
            have = ", ".join(repr(column[:40]) for column in columns[:8]) + (", ..." if len(columns) > 8 else "")
            others = [column.strip() for column in columns if column.strip() not in wanted]
            near = suggest(said or name, others).replace("did you mean", "is it")
            what = (
                f"column {name!r}" if said is None else f"column {said!r}, which is to be the {name.partition(' ')[0]},"
            )
            fix = _fix(name, said) if self.log else ""
            # A question ends by itself.
            there = f"{' The' if near else '; the'} columns are {have or 'none'}{fix}"
            raise InputError(f"{source}: {what} is missing{near}{there}")
        return found


def _fix(name: str, said: str | None) -> str:
    if said is not None:
        return "; correct data.columns (--columns of prudent init)"
    if name not in LOGGED:
        return ""
    steps = ", or data.trajectories = true if the rows are consecutive steps (--trajectories of prudent init)"
    more = steps if name == "next_state" else ""
    return f"; data.columns says what a column is called (--columns {name}=... of prudent init){more}"


def _of_text(path: Path, wanted: _Wanted) -> Iterator[Batch]:
    from pyarrow import csv as arrow_csv

    header, delimiter, first = header_of(path)
    found = wanted.within(header, str(path))
    point = decimal_point(header, first, [found[name] for name in wanted.numbers if name in found])
    label = pa.dictionary(pa.int32(), pa.string())
    types = {found[name]: label for name in wanted.names if name in found}
    types |= {found[name]: pa.float64() for name in wanted.numbers if name in found}

    def batches(types: Mapping[str, pa.DataType]) -> Iterator[Batch]:
        reader = arrow_csv.open_csv(
            for_arrow(path),
            read_options=arrow_csv.ReadOptions(block_size=BLOCK_BYTES),
            parse_options=arrow_csv.ParseOptions(delimiter=delimiter),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict(types),
                include_columns=list(found.values()),
                null_values=[""],
                decimal_point=point,
                strings_can_be_null=False,
                quoted_strings_can_be_null=False,
            ),
        )
        yield from (batch._replace(guarded=True) for batch in _numbered(str(path), reader, found))

    try:
        yield from batches(types)
    except pa.ArrowInvalid as error:
        if "columns, got" in str(error):
            raise InputError(f"{path}{_ragged(path, delimiter)}") from None
        texts = {found[name]: pa.string() for name in found}
        for batch in batches(texts):
            _refuse_text(batch, [name for name in wanted.numbers if name in found], point)
        raise InputError(f"{path}: {_explained(error, 'CSV')}") from None


def _ragged(path: Path, delimiter: str) -> str:
    """Where the first row is that has more or fewer cells than the header."""
    with opened(path) as content, io.TextIOWrapper(content, "utf-8-sig", "replace", newline="") as file:
        lines = (line for line in iter(lambda: file.readline(BLOCK_BYTES), "") if line.strip("\r\n"))
        try:
            rows = csv.reader(lines, delimiter=delimiter)
            header = next(rows)
            for number, row in zip(range(1, MOST_SEARCHED), rows, strict=False):
                if len(row) != len(header):
                    start = delimiter.join(row)[:60]
                    return f", row {number}: {len(row)} cells where the header has {len(header)}: {start!r}"
        except (csv.Error, StopIteration):
            pass
    return ": a row has more or fewer cells than the header"


def _refuse_text(batch: Batch, columns: Sequence[str], point: str) -> None:
    """Name the first cell that is not a number."""
    for column in columns:
        for position, cell in enumerate(batch.columns[column].to_pylist()):
            try:
                float(cell.replace(",", ".", 1) if point == "," else cell)
            except ValueError:
                text = f"{column} {cell[:40]!r} is not a number" if cell else f"{column} is empty; give a number"
                raise InputError(f"{batch.place(position)}: {text}") from None


def _of_parquet(path: Path, wanted: _Wanted) -> Iterator[Batch]:
    from pyarrow import parquet

    look_at_footer(path)
    with parquet.ParquetFile(path) as file:
        schema = file.schema_arrow
        found = wanted.within(schema.names, str(path))
        for name, column in found.items():
            _refuse_kind(path, name, schema.field(column).type)
        look_at_parquet(path, file, list(found.values()))
    texts = [column for name, column in found.items() if name in wanted.names and _is_text(schema.field(column).type)]
    with parquet.ParquetFile(path, read_dictionary=texts, pre_buffer=False, buffer_size=2**20) as file:
        yield from _numbered(
            str(path), file.iter_batches(BATCH_ROWS, columns=list(found.values()), use_threads=True), found
        )


def _refuse_kind(path: Path, name: str, kind: pa.DataType) -> None:
    """Refuse a column that holds neither names nor numbers before it is unpacked."""
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    known = (_is_text, pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null)
    if not any(test(plain) for test in known):
        raise InputError(f"{path}: {name} holds {kind} values, not names or numbers")


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _of_json(path: Path, wanted: _Wanted) -> Iterator[Batch]:
    from pyarrow import json as arrow_json

    look_at_lines(path)
    options = arrow_json.ReadOptions(block_size=BLOCK_BYTES)
    first = _first_rows(path)
    found = wanted.within(first.names, str(path))
    schema = pa.schema([first.field(column) for column in found.values()])
    # What the first rows show is what the columns are; other columns are not looked at.
    parse = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    yield from _numbered(
        str(path), arrow_json.open_json(for_arrow(path), read_options=options, parse_options=parse), found
    )


def _first_rows(path: Path) -> pa.Schema:
    """The columns that the first rows show."""
    from pyarrow import json as arrow_json

    with opened(path) as file:
        lines = file.readlines(FIRST_BYTES) if file.seekable() else file.read(FIRST_BYTES).splitlines(True)[:-1]
    try:
        names = {name for line in lines if line.strip() for name in json.loads(line)}
    except (ValueError, RecursionError, TypeError, UnicodeDecodeError):
        names = set()  # the parser will say what is wrong
    if len(names) > MOST_COLUMNS:
        raise InputError(f"{path}: its rows have more than {MOST_COLUMNS:,} different keys; a log has a few columns")
    options = arrow_json.ReadOptions(block_size=BLOCK_BYTES)
    return arrow_json.open_json(pa.BufferReader(b"".join(lines)), read_options=options).schema


def _of_frame(frame: Any, wanted: _Wanted) -> Iterator[Batch]:
    import narwhals as nw

    try:
        table = nw.from_native(frame)
    except TypeError:
        raise InputError(
            f"a log is a path or a frame of pandas, polars or pyarrow, got {type(frame).__name__}; "
            "Transitions.from_records takes lists of rows"
        ) from None
    columns = table.collect_schema().names() if isinstance(table, nw.LazyFrame) else table.columns
    found = wanted.within([str(column) for column in columns], "the frame")
    chosen = table.select(*found.values())
    try:
        arrow = chosen.collect(backend="pyarrow").to_native() if isinstance(chosen, nw.LazyFrame) else chosen.to_arrow()
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(f"the frame: {_one_line(error)}; a column must hold names or numbers alone") from None
    yield from _numbered("the frame", arrow.to_batches(max_chunksize=BATCH_ROWS), found)


def _numbered(source: str, batches: Any, found: Mapping[str, str]) -> Iterator[Batch]:
    first = 1
    for batch in batches:
        if len(batch):
            yield Batch(source, first, {name: batch.column(column) for name, column in found.items()})
        first += len(batch)


def _explained(error: Exception, kind: str) -> str:
    text = _one_line(error)
    if "UTF8" in text or "UTF-8" in text:
        return "is not UTF-8 text; save it as UTF-8"
    return f"cannot be read as {kind}: {text}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
