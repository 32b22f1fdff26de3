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
    return _kept(lambda cache: numba.njit(cache=cache, **SETTINGS)(function))


def handler(function: Callable[..., Any]) -> Any:
    """A function of the address of a frame that XLA's programs can call; compiled now, and kept likewise."""
    signature = numba.types.intp(numba.types.intp)
    return _kept(lambda cache: numba.cfunc(signature, cache=cache)(function))


def _kept(make: Callable[[bool], Any]) -> Any:
    if not os.environ.get("PRUDENT_NO_CACHE"):
        try:
            return make(True)
        except RuntimeError:  # nowhere to keep it
            pass
    return make(False)
