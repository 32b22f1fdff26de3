"""Rows of a file, a frame or a dataset in batches of columns, with names as dictionaries and numbers as floats."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ..errors import InputError
from .names import suggest

BLOCK_BYTES = 8 * 2**20
BATCH_ROWS = 2**18
LONGEST_HEADER = 2**16

# Rows looked at one by one for the place of an error.
MOST_SEARCHED = 2_000_000

SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
KINDS = {"csv": "CSV", "tsv": "TSV", "parquet": "Parquet", "jsonl": "JSON lines"}
MAGIC = {b"PAR1": "a Parquet file", b"\x1f\x8b": "compressed by gzip", b"PK\x03\x04": "a zip archive or a spreadsheet"}
MAGIC |= {b"\x89HDF": "an HDF5 file", b"ARROW1": "an Arrow file", b"\x28\xb5\x2f\xfd": "compressed by zstd"}


class Batch(NamedTuple):
    """Some rows of a table.

    Attributes:
        source: the file, for messages.
        first: the number of the first row, counted from 1 below the header.
        columns: arrays of one length by column name.
    """

    source: str
    first: int
    columns: dict[str, pa.Array]

    def place(self, position: int) -> str:
        """Where a row is, for messages."""
        return f"{self.source}, row {self.first + position}"

    def numbers(self, column: str) -> np.ndarray:
        """A column of numbers as float64; refuses empty cells, text, NaN and infinities by row."""
        array = self.columns[column]
        if array.null_count:
            raise InputError(f"{self.place(_first_null(array))}: {column} is empty; give a number")
        if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
            raise InputError(f"{self.place(0)}: {column} holds {array.type} values, not numbers")
        values = array.to_numpy(zero_copy_only=False).astype(np.float64)
        bad = ~np.isfinite(values)
        if bad.any():
            position = int(np.argmax(bad))
            raise InputError(f"{self.place(position)}: {column} {values[position]} is not a finite number")
        return values

    def labels(self, column: str) -> tuple[list[Any], np.ndarray]:
        """A column's distinct values, and which of them each row has; refuses empty cells by row."""
        array = self.columns[column]
        if array.null_count:
            raise InputError(f"{self.place(_first_null(array))}: {column} is empty; give a name or a number")
        if not pa.types.is_dictionary(array.type):
            if pa.types.is_nested(array.type):
                raise InputError(f"{self.place(0)}: {column} holds {array.type} values, not names or numbers")
            array = array.dictionary_encode()
        try:
            return array.dictionary.to_pylist(), array.indices.to_numpy(zero_copy_only=False)
        except UnicodeDecodeError:
            raise InputError(f"{self.source}: is not UTF-8 text; save it as UTF-8") from None


def _first_null(array: pa.Array) -> int:
    return int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))


def require_text_name(path: Path) -> str:
    """The kind of table a file's name says it is."""
    kind = SUFFIXES.get(path.suffix.lower())
    if kind is None:
        raise InputError(f"{path}: the name of a table ends in {', '.join(SUFFIXES)}; rename or convert it")
    return kind


def read_batches(
    source: Any, names: Sequence[str], numbers: Sequence[str], optional: Sequence[str], folder: Path | None = None
) -> Iterator[Batch]:
    """The rows of a file or a frame in batches that hold the columns asked for and nothing else.

    Args:
        source: a path, `minari:name` for a Minari dataset, or a frame of pandas, polars or pyarrow.
        names: columns whose cells are names.
        numbers: columns whose cells are numbers.
        optional: which of both may be missing.
        folder: where a relative path begins; the working folder when left out.
    """
    wanted = _Wanted(tuple(names), tuple(numbers), frozenset(optional))
    if isinstance(source, str) and source.startswith("minari:"):
        from .minari_datasets import minari_batches

        yield from minari_batches(source.removeprefix("minari:"), wanted.names, wanted.numbers)
        return
    if not isinstance(source, str | Path):
        yield from _of_frame(source, wanted)
        return
    path = Path(source) if folder is None else folder / source
    kind = require_text_name(path)
    if not path.exists():
        raise InputError(f"{path}: there is no such file{_near_file(path)}")
    if not path.is_file():
        raise InputError(f"{path}: is not a file")
    _refuse_disguise(path, kind)
    readers = {"csv": _of_text, "tsv": _of_text, "parquet": _of_parquet, "jsonl": _of_json}
    try:
        yield from readers[kind](path, wanted)
    except pa.ArrowException as error:
        raise InputError(f"{path}: {_explained(error, KINDS[kind])}") from None
    except (OSError, MemoryError, UnicodeDecodeError, OverflowError) as error:
        raise InputError(f"{path}: cannot be read as {KINDS[kind]}: {_one_line(error)}") from None


class _Wanted(NamedTuple):
    names: tuple[str, ...]
    numbers: tuple[str, ...]
    optional: frozenset[str]

    def within(self, columns: Sequence[str], source: str) -> dict[str, str]:
        """The wanted columns that are there, each with the name the table has it under."""
        found: dict[str, str] = {}
        for column in columns:
            name = column.strip()
            if name in (*self.names, *self.numbers):
                if name in found:
                    raise InputError(f"{source}: column {name!r} appears twice; remove one")
                found[name] = column
        for name in (*self.names, *self.numbers):
            if name not in found and name not in self.optional:
                have = ", ".join(repr(column[:40]) for column in columns[:8]) + (", ..." if len(columns) > 8 else "")
                others = [column.strip() for column in columns if column.strip() not in found]
                raise InputError(
                    f"{source}: column {name!r} is missing{_renamed(name, others)}; the columns are {have or 'none'}"
                )
        return found


def _renamed(name: str, others: Sequence[str]) -> str:
    """A hint at a column that is perhaps the one missing under another spelling."""
    near = suggest(name, others)
    return near.replace("did you mean", "is it").removesuffix("?") + "?" if near else ""


def _near_file(path: Path) -> str:
    try:
        return suggest(path.name, sorted(other.name for other in path.parent.iterdir() if other.is_file()))
    except OSError:
        return f"; neither is there a folder {path.parent}"


def _refuse_disguise(path: Path, kind: str) -> None:
    """Refuse a file that begins like one of another kind."""
    with path.open("rb") as file:
        start = file.read(4096)
    said = f"{path}: is named as {KINDS[kind]}"
    if not start:
        raise InputError(f"{path}: is empty; a log needs a header and at least one row")
    for magic, what in MAGIC.items():
        if start.startswith(magic) and not (kind == "parquet" and magic == b"PAR1"):
            raise InputError(f"{said} but is {what}; rename or convert it")
    if kind == "parquet":
        if not start.startswith(b"PAR1"):
            raise InputError(f"{said} but does not begin like one; rename or convert it")
        return
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{path}: is UTF-16 text; save it as UTF-8")
    if b"\x00" in start:
        raise InputError(f"{said} but holds binary data; rename or convert it")
    looks_like_json = start.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{"
    if looks_like_json != (kind == "jsonl"):
        what = "holds JSON" if looks_like_json else "its first line is not a JSON object"
        raise InputError(f"{said} but {what}; rename or convert it")


def _of_text(path: Path, wanted: _Wanted) -> Iterator[Batch]:
    from pyarrow import csv as arrow_csv

    delimiter = "\t" if require_text_name(path) == "tsv" else ","
    found = wanted.within(_header(path, delimiter), str(path))
    label = pa.dictionary(pa.int32(), pa.string())
    types = {found[name]: label for name in wanted.names if name in found}
    types |= {found[name]: pa.float64() for name in wanted.numbers if name in found}

    def batches(types: Mapping[str, pa.DataType]) -> Iterator[Batch]:
        reader = arrow_csv.open_csv(
            path,
            read_options=arrow_csv.ReadOptions(block_size=BLOCK_BYTES),
            parse_options=arrow_csv.ParseOptions(delimiter=delimiter),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict(types),
                include_columns=list(found.values()),
                null_values=[""],
                strings_can_be_null=False,
                quoted_strings_can_be_null=False,
            ),
        )
        yield from _numbered(str(path), reader, found)

    try:
        yield from batches(types)
    except pa.ArrowInvalid as error:
        if "columns, got" in str(error):
            raise InputError(f"{path}{_ragged(path, delimiter)}") from None
        texts = {found[name]: pa.string() for name in found}
        for batch in batches(texts):
            _refuse_text(batch, [name for name in wanted.numbers if name in found])
        raise InputError(f"{path}: {_explained(error, 'CSV')}") from None


def _ragged(path: Path, delimiter: str) -> str:
    """Where the first row is that has more or fewer cells than the header."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        lines = (line for line in file if line.strip("\r\n"))
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


def _refuse_text(batch: Batch, columns: Sequence[str]) -> None:
    """Name the first cell that is not a number."""
    for column in columns:
        for position, cell in enumerate(batch.columns[column].to_pylist()):
            try:
                float(cell)
            except ValueError:
                text = f"{column} {cell[:40]!r} is not a number" if cell else f"{column} is empty; give a number"
                raise InputError(f"{batch.place(position)}: {text}") from None


def _header(path: Path, delimiter: str) -> list[str]:
    with path.open("rb") as file:
        line = file.readline(LONGEST_HEADER)
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text; save it as UTF-8") from None
    cells = next(csv.reader(io.StringIO(text.splitlines()[0] if text.strip() else ""), delimiter=delimiter), [])
    if not cells:
        raise InputError(f"{path}: the first line is empty; it must name the columns")
    if len(cells) == 1 and (other := {",": "\t", "\t": ","}[delimiter]) in text:
        kind = {",": "TSV (tabs between the cells)", "\t": "CSV (commas between the cells)"}[delimiter]
        raise InputError(f"{path}: looks like {kind}; rename it{'' if other == ',' else ' to .tsv'}")
    return cells


def _of_parquet(path: Path, wanted: _Wanted) -> Iterator[Batch]:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        schema = file.schema_arrow
    found = wanted.within(schema.names, str(path))
    texts = [column for name, column in found.items() if name in wanted.names and _is_text(schema.field(column).type)]
    with parquet.ParquetFile(path, read_dictionary=texts, pre_buffer=False, buffer_size=2**20) as file:
        yield from _numbered(
            str(path), file.iter_batches(BATCH_ROWS, columns=list(found.values()), use_threads=True), found
        )


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _of_json(path: Path, wanted: _Wanted) -> Iterator[Batch]:
    from pyarrow import json as arrow_json

    options = arrow_json.ReadOptions(block_size=BLOCK_BYTES)
    first = arrow_json.open_json(path, read_options=options).schema
    found = wanted.within(first.names, str(path))
    schema = pa.schema([first.field(column) for column in found.values()])
    # What the first block shows is what the columns are; other columns are not looked at.
    parse = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    yield from _numbered(str(path), arrow_json.open_json(path, read_options=options, parse_options=parse), found)


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
