"""Loops compiled by Numba, which is installed with the extra `large`; nothing here is imported without it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numba

# Products may be added in one rounding, which is as exact; sums keep their order, so that bits do not change.
SETTINGS: dict[str, Any] = {"nogil": True, "fastmath": {"contract"}, "error_model": "numpy"}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function compiled at its first call, and kept for other processes beside its bytecode or in the user's cache.

    Not kept where neither can be written to, or where `PRUDENT_NO_CACHE` is set.
    """
    if not os.environ.get("PRUDENT_NO_CACHE"):
        try:
            return numba.njit(cache=True, **SETTINGS)(function)
        except RuntimeError:  # nowhere to keep it
            pass
    return numba.njit(**SETTINGS)(function)
