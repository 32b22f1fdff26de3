"""Files of rows opened: what kind they are by name and content, unpacked where they are packed, their header read."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from ..errors import InputError
from .names import suggest

LONGEST_HEADER = 2**16

SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
SPREADSHEETS = (".xlsx", ".xlsm", ".xls", ".xlsb", ".ods", ".numbers")
EXPORT = "open it and export it as CSV (in Excel: File, Save As, CSV UTF-8), and name the .csv file here"
KINDS = {"csv": "CSV", "tsv": "TSV", "parquet": "Parquet", "jsonl": "JSON lines"}
MAGIC = {b"PAR1": "a Parquet file", b"\x1f\x8b": "compressed by gzip", b"PK\x03\x04": "a zip archive or a spreadsheet"}
MAGIC |= {b"\x89HDF": "an HDF5 file", b"ARROW1": "an Arrow file", b"\x28\xb5\x2f\xfd": "compressed by zstd"}
MAGIC |= {b"BZh": "compressed by bzip2", b"\xd0\xcf\x11\xe0": "a spreadsheet of old Excel"}


def require_text_name(path: Path) -> str:
    """The kind of table a file's name says it is."""
    suffix = path.suffix.lower()
    if suffix in SPREADSHEETS:
        raise InputError(f"{path}: is a spreadsheet; {EXPORT}")
    inner = Path(path.stem).suffix.lower() if suffix in PACKED else suffix
    kind = SUFFIXES.get(inner)
    if kind is None or (suffix in PACKED and kind == "parquet"):
        names = ", ".join(SUFFIXES)
        raise InputError(
            f"{path}: the name of a table ends in {names}, of text also with {', '.join(PACKED)} behind; rename or "
            "convert it"
        )
    return kind


def opened(path: Path) -> BinaryIO:
    """The bytes of a file, unpacked if its name says that they are packed."""
    packing = PACKED.get(path.suffix.lower())
    stream: Any = path.open("rb") if packing is None else pa.input_stream(str(path), compression=packing)
    return stream


def for_arrow(path: Path) -> Any:
    """What Arrow reads a file from: its path, or the stream that unpacks it."""
    return opened(path) if path.suffix.lower() in PACKED else path


def start_of(path: Path, size: int) -> bytes:
    """The first bytes of a file's content."""
    try:
        with opened(path) as file:
            return file.read(size)
    except (OSError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{path}: cannot be unpacked as its name says: {reason}; rename it") from None


def near_file(path: Path) -> str:
    """A hint at a file that is perhaps the one meant."""
    try:
        return suggest(path.name, sorted(other.name for other in path.parent.iterdir() if other.is_file()))
    except OSError:
        return f"; neither is there a folder {path.parent}"


def refuse_disguise(path: Path, kind: str) -> None:
    """Refuse a file that begins like one of another kind."""
    start = start_of(path, 4096)
    said = f"{path}: is named as {KINDS[kind]}"
    if not start:
        raise InputError(f"{path}: is empty; a log needs a header and at least one row")
    for magic, what in MAGIC.items():
        if start.startswith(magic) and not (kind == "parquet" and magic == b"PAR1"):
            fix = EXPORT if "spreadsheet" in what else "rename or convert it"
            raise InputError(f"{said} but is {what}; {fix}")
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


def header_of(path: Path) -> tuple[list[str], str, list[list[str]]]:
    """The names of the columns, what is between the cells, and where that is a semicolon the first rows.

    Cells of a CSV file are apart by commas or, as spreadsheets of many countries write them, by semicolons; numbers
    may then have a decimal comma, which `decimal_point` finds.
    """
    delimiter = "\t" if require_text_name(path) == "tsv" else ","
    begin = start_of(path, LONGEST_HEADER)
    try:
        text = begin.split(b"\n", 1)[0].decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text; save it as UTF-8") from None
    line = text.splitlines()[0] if text.strip() else ""
    cells = next(csv.reader(io.StringIO(line), delimiter=delimiter), [])
    if not cells:
        raise InputError(f"{path}: the first line is empty; it must name the columns")
    if len(cells) == 1 and delimiter == "," and ";" in line:
        rows = list(csv.reader(io.StringIO(begin.decode("utf-8-sig", errors="replace")), delimiter=";"))
        return rows[0], ";", rows[1:]
    if len(cells) == 1 and (other := {",": "\t", "\t": ","}[delimiter]) in text:
        kind = {",": "TSV (tabs between the cells)", "\t": "CSV (commas between the cells)"}[delimiter]
        raise InputError(f"{path}: looks like {kind}; rename it{'' if other == ',' else ' to .tsv'}")
    return cells, delimiter, []


def decimal_point(header: list[str], rows: list[list[str]], columns: Collection[str]) -> str:
    """A comma if the first rows have one in a column of numbers, else a point."""
    places = [header.index(column) for column in columns]
    cells = (row[place].strip() for row in rows for place in places if place < len(row))
    return "," if any(re.fullmatch(r"[-+]?\d*,\d+", cell) for cell in cells) else "."
