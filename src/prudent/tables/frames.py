"""Columns as a frame of the library that is there."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ..errors import InputError

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
