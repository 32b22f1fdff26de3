"""Files of rows before they are parsed: what they are by name and content, what they declare, their header."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from ..errors import InputError
from .names import suggest_file

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
        return suggest_file(path.name, sorted(other.name for other in path.parent.iterdir() if other.is_file()))
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


BLOCK = 2**20
LONGEST_LINE = 2**20

# A row of a log is flat; columns that nobody asks for may hold a few levels.
DEEPEST = 32

# Writers make pages of about a megabyte.
LARGEST_PAGE = 2**26
LARGEST_FOOTER = 2**24

# Rows that take less room than this in a file are no observations.
ROWS_A_BYTE, ALWAYS_ROWS = 200, 10_000_000

# Text that repeats itself packs a hundredfold.
MOST_PACKED, ALWAYS_UNPACKED = 200, 2**26


def look_at_packed(path: Path) -> None:
    """Refuse a packed file that would unpack to far more than any log does."""
    most, unpacked = max(ALWAYS_UNPACKED, MOST_PACKED * path.stat().st_size), 0
    with opened(path) as file:
        while block := file.read(BLOCK):
            unpacked += len(block)
            if unpacked > most:
                raise InputError(
                    f"{path}: unpacks to more than {MOST_PACKED} times its size; a log gives counts instead"
                )


def look_at_lines(path: Path) -> None:
    """Refuse JSON lines whose objects are nested deeply, are not closed on their line, or fill a very long one.

    The parser calls itself for each level, and would run out of stack.
    """
    row = 1
    for lines in _whole_lines(path):
        row += _look_at_block(path, lines, row)


def _whole_lines(path: Path) -> Iterator[bytes]:
    """The file in blocks that end with a line."""
    with opened(path) as file:
        rest = b""
        while block := file.read(BLOCK):
            rest += block
            end = rest.rfind(b"\n") + 1
            if end:
                yield rest[:end]
                rest = rest[end:]
            if len(rest) > LONGEST_LINE:
                raise InputError(f"{path}: has a line of more than {LONGEST_LINE:,} bytes; rows of a log are short")
        if rest:
            yield rest + b"\n"


def _look_at_block(path: Path, lines: bytes, row: int) -> int:
    """Check whole lines, of which the first is row `row`; how many they are."""
    if b"\\" in lines:
        # An escaped character is never a quote that ends a text, nor a bracket.
        lines = re.sub(rb"\\[^\n]", b"__", lines)
    codes = np.frombuffer(lines, np.uint8)
    ends = np.flatnonzero(codes == 10)
    begins = np.concatenate([[0], ends[:-1] + 1])
    quotes = np.cumsum(codes == 34)
    line = np.repeat(np.arange(len(ends)), ends - begins + 1)
    before = quotes[begins] - (codes[begins] == 34)
    within = ((quotes - before[line]) % 2).astype(bool)
    steps = np.where(np.isin(codes, (91, 123)), 1, 0) - np.where(np.isin(codes, (93, 125)), 1, 0)
    steps[within] = 0
    depth = np.cumsum(steps)
    level = depth - (depth[begins] - steps[begins])[line]
    deepest = np.maximum.reduceat(level, begins)
    wrong = (level[ends] != 0) | within[ends]
    for bad, what in (
        (deepest > DEEPEST, f"is nested more than {DEEPEST} levels deep; a row is a flat object"),
        (wrong, "is not an object that ends on its line; JSON lines hold one in each"),
    ):
        if bad.any():
            raise InputError(f"{path}, row {row + int(np.argmax(bad))}: {what}")
    return len(ends)


def look_at_footer(path: Path) -> None:
    """Refuse a Parquet file whose description of itself is longer than that of any log."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 8))
        length = int.from_bytes(file.read(4), "little")
    if length > min(LARGEST_FOOTER, size):
        raise InputError(f"{path}: declares a footer of {length:,} bytes; it is damaged, or no log")


def look_at_parquet(path: Path, file: Any, columns: list[str]) -> None:
    """Refuse a Parquet file with more rows than its size can hold, or a page that would unpack to far more than one.

    Args:
        path: of the file.
        file: it opened by pyarrow.
        columns: those that will be read.
    """
    metadata, size = file.metadata, path.stat().st_size
    if metadata.num_rows > max(ALWAYS_ROWS, ROWS_A_BYTE * size):
        raise InputError(f"{path}: declares {metadata.num_rows:,} rows in {size:,} bytes; a log gives counts instead")
    wanted = [
        place for place in range(metadata.num_columns) if metadata.schema.column(place).path.split(".")[0] in columns
    ]
    with path.open("rb") as data:
        for group in range(metadata.num_row_groups):
            for place in wanted:
                chunk = metadata.row_group(group).column(place)
                begins = [chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset]
                _look_at_pages(path, data, min(begins), chunk.total_compressed_size, size)


def _look_at_pages(path: Path, data: BinaryIO, begin: int, length: int, size: int) -> None:
    """Walk the headers of a column's pages, each of which declares what it takes packed and unpacked."""
    end = begin + length
    if not 0 <= begin <= end <= size:
        raise InputError(f"{path}: declares pages outside the file")
    while begin < end:
        unpacked, packed, header = _header_at(path, data, begin, end)
        if not (packed >= 0 and 0 <= unpacked <= LARGEST_PAGE):
            raise InputError(
                f"{path}: has a page of {max(packed, unpacked):,} bytes, and {LARGEST_PAGE:,} are allowed; names are "
                "short, and writers make pages of about a megabyte"
            )
        begin += header + packed


def _header_at(path: Path, data: BinaryIO, begin: int, end: int) -> tuple[int, int, int]:
    for most in (4096, BLOCK):
        data.seek(begin)
        try:
            return _page_header(data.read(min(most, end - begin)))
        except IndexError:
            continue
        except (ValueError, KeyError, RecursionError):
            break
    raise InputError(f"{path}: has a page whose header cannot be read")


def _page_header(data: bytes) -> tuple[int, int, int]:
    """Sizes unpacked and packed of a page, and the length of its header, in Thrift's compact protocol."""
    place, number, sizes = 0, 0, {}
    while kind := data[place] & 15:
        step = data[place] >> 4
        place += 1
        if step:
            number += step
        else:
            value, place = _varint(data, place)
            number = _zigzag(value)
        if number in (2, 3) and kind == 5:
            value, place = _varint(data, place)
            sizes[number] = _zigzag(value)
        else:
            place = _skipped(data, place, kind)
    return sizes[2], sizes[3], place + 1


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
        if shift > 63:
            raise ValueError


def _zigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


def _skipped(data: bytes, place: int, kind: int) -> int:
    """The place after a value of a kind."""
    if kind in (1, 2):  # a truth value is its kind
        return place
    if kind == 3:
        return place + 1
    if kind in (4, 5, 6):
        return _varint(data, place)[1]
    if kind == 7:
        return place + 8
    if kind == 8:
        length, place = _varint(data, place)
        return place + length
    if kind == 12:
        while inner := data[place] & 15:
            place = place + 1 if data[place] >> 4 else _varint(data, place + 1)[1]
            place = _skipped(data, place, inner)
        return place + 1
    raise ValueError
