"""Named arrays and a JSON record in one safetensors file, with a digest over both; never pickle."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..files import write_whole


def write_tensors(path: Path, arrays: dict[str, np.ndarray], record: dict[str, Any]) -> Path:
    """Write arrays and record; what is read back is these bits or nothing."""
    from safetensors.numpy import save

    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    text = json.dumps(record, sort_keys=True, allow_nan=False)
    return write_whole(path, save(arrays, {"record": text, "digest": _digest(arrays, text)}))


def read_tensors(path: Path, kind: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and record of a file of this kind; a damaged file, or one of another kind, is refused."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        text = metadata["record"]
        record = json.loads(text)
    except (SafetensorError, KeyError, ValueError, TypeError, OSError, RecursionError, MemoryError, AttributeError):
        raise InputError(f"{path}: is not a file that prudent has written, or is damaged; solve again") from None
    if not isinstance(record, dict) or record.get("kind") != kind:
        raise InputError(f"{path}: does not hold a {kind}; name another file")
    if metadata.get("digest") != _digest(arrays, text):
        raise InputError(f"{path}: is damaged (its digest does not fit its content); solve again")
    return arrays, record


def _digest(arrays: dict[str, np.ndarray], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"|{name}|{array.dtype.str}|{array.shape}|".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
