"""A proof's file: arrays and claims, in the safetensors format, looked at before anything large is read."""

from __future__ import annotations

import json
import math
import os
import stat
import struct
from pathlib import Path
from typing import Any

import numpy as np

# A header of a proof is a few kilobytes, a file no larger than any that prudent writes to a run.
LONGEST_HEADER, LARGEST_FILE, MOST_ARRAYS = 10**6, 2**30, 100

TYPES = {"F64": np.float64, "F32": np.float32, "I32": np.int32, "I64": np.int64}


class Refused(Exception):  # noqa: N818
    """The proof does not hold; the message says what is wrong with it."""


class NoProof(Refused):
    """The file is no proof, or one that is larger than it could be."""


def read(proof: str | Path | bytes) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and claims of a proof, in the safetensors format; refused before anything large is read or copied."""
    if isinstance(proof, bytes):
        header, claims, begin = _header(proof[: 8 + LONGEST_HEADER], len(proof))
        body = memoryview(proof)[begin:]
    else:
        with _opened(Path(proof)) as file:
            size = os.fstat(file.fileno()).st_size
            header, claims, begin = _header(file.read(8 + LONGEST_HEADER), size)
            file.seek(begin)
            body = memoryview(file.read(size - begin))
    arrays = {name: np.ndarray(shape, kind, body, first) for name, (kind, shape, first, _) in header.items()}
    return arrays, claims


def _opened(path: Path) -> Any:
    """A file, and no pipe or device, which might never end."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise NoProof("it is not a file")
    return os.fdopen(handle, "rb")


def _header(data: bytes, size: int) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Of each array its type, shape and place, one after the other to the end; the claims; where arrays begin."""
    if size < 8 or len(data) < 8:
        raise NoProof("the file is too short to be a proof")
    if size > LARGEST_FILE:
        raise NoProof(f"the file is larger than {LARGEST_FILE >> 20} MiB, as no proof is")
    (length,) = struct.unpack("<Q", data[:8])
    if length > min(LONGEST_HEADER, size - 8):
        raise NoProof("the file's header is longer than the file, or than any proof's")
    try:
        said = json.loads(data[8 : 8 + length])
        claims = json.loads(said.pop("__metadata__")["proof"])
        if not isinstance(claims, dict) or len(said) > MOST_ARRAYS:
            raise ValueError
        header = {name: _entry(entry) for name, entry in said.items()}
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError, OverflowError):
        raise NoProof("the file's header is not that of a proof") from None
    place = 0
    for _, _, first, last in sorted(header.values(), key=lambda entry: entry[2:]):
        if first != place:
            raise NoProof("the arrays do not follow on one another")
        place = last
    if 8 + length + place != size:
        raise NoProof("the arrays do not fill the file, or lie outside it")
    return header, claims, 8 + length


def _entry(entry: Any) -> tuple[Any, tuple[int, ...], int, int]:
    kind, shape, (first, last) = TYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
    whole = all(type(number) is int and number >= 0 for number in (*shape, first, last))
    if not whole or len(shape) > 8 or last - first != math.prod(shape) * np.dtype(kind).itemsize:
        raise ValueError
    return kind, tuple(shape), first, last
