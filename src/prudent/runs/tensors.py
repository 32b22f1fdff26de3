"""Arrays and a record in one file of the safetensors format, whose declared sizes are looked at before it is read."""

from __future__ import annotations

import contextlib
import json
import math
import struct
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import numpy as np

from ..errors import InputError
from ..problems import available_memory

TYPES = {"F64": np.float64, "F32": np.float32, "I64": np.int64, "I32": np.int32, "U32": np.uint32, "U8": np.uint8}
TYPES |= {"BOOL": np.bool_}

# Names of states are in the header, and two million short ones fit.
LONGEST_HEADER = 2**25
MOST_ARRAYS, MOST_AXES = 1000, 8

# Up to here a file is small on any machine; beyond, it has to fit the memory there is several times.
SMALL = 2**26


def packed(arrays: dict[str, np.ndarray], record: dict[str, Any]) -> bytes:
    """The file of arrays and record."""
    from safetensors.numpy import save

    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    return save(arrays, {"record": json.dumps(record, allow_nan=False)})


@contextlib.contextmanager
def _refusal(source: str) -> Iterator[None]:
    """Whatever is wrong with a file's bytes is told in one sentence."""
    try:
        yield
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError, struct.error, OverflowError):
        raise InputError(f"{source}: is not a file that prudent has written, or is damaged; solve again") from None


def unpacked(data: bytes, kind: str, source: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays, which are views of the data and cannot be written to, and record of a file of this kind."""
    with _refusal(source):
        header, record, begin = _header(memoryview(data), len(data))
        if record.get("kind") != kind:
            raise InputError(f"{source}: does not hold a {kind}; solve again with this version of prudent")
        return {name: _array(data, begin, entry) for name, entry in header.items()}, record
    raise AssertionError


def kind_of(data: bytes) -> str:
    """What a file says that it is; empty where it says nothing."""
    with contextlib.suppress(InputError), _refusal(""):
        return str(_header(memoryview(data), len(data))[1].get("kind", ""))
    return ""


def check_tensors(file: BinaryIO, size: int, most: Callable[[dict[str, Any]], int], key: str = "record") -> None:
    """Refuse a file whose header does not fit its size, or that is larger than its problem could make it.

    `most` gives a number of bytes from the record, which is under a key; what is `SMALL` is fine.
    """
    with _refusal(file.name):
        length = _header_length(file.read(8), size)
        file.seek(0)
        record = _header(memoryview(file.read(8 + length)), size, key)[1]
        if size > SMALL and (size > most(record) or 4 * size > available_memory()):
            raise InputError(f"{file.name}: is larger than a run of its problem leaves it; solve again")


def _header_length(data: bytes | memoryview, size: int) -> int:
    (length,) = struct.unpack("<Q", data)
    if length > min(LONGEST_HEADER, size - 8):
        raise ValueError
    return length


def _header(data: memoryview, size: int, key: str = "record") -> tuple[dict[str, Any], dict[str, Any], int]:
    """What a file declares, with arrays that follow on one another to its end; and where they begin."""
    length = _header_length(data[:8], size)
    header = json.loads(bytes(data[8 : 8 + length]))
    record = json.loads(header.pop("__metadata__")[key])
    if not isinstance(record, dict) or len(header) > MOST_ARRAYS:
        raise ValueError
    place = 0
    for entry in sorted(header.values(), key=lambda entry: entry["data_offsets"]):
        begin, end = entry["data_offsets"]
        shape = entry["shape"]
        sound = all(type(length) is int and length >= 0 for length in shape) and len(shape) <= MOST_AXES
        if not sound or begin != place or end - begin != math.prod(shape) * np.dtype(TYPES[entry["dtype"]]).itemsize:
            raise ValueError
        place = end
    if 8 + length + place != size:
        raise ValueError
    return header, record, 8 + length


def _array(data: bytes, begin: int, entry: dict[str, Any]) -> np.ndarray:
    kind, shape = np.dtype(TYPES[entry["dtype"]]), tuple(entry["shape"])
    place = begin + entry["data_offsets"][0]
    array = np.frombuffer(data, kind, math.prod(shape), place).reshape(shape)
    # A header of another length puts arrays where a processor may not read them.
    return array if place % kind.itemsize == 0 else array.copy()
