"""Loops compiled by Numba, which is installed with the extra `large`; nothing here is imported without it."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

# Products may be added in one rounding, which is as exact; sums keep their order, so that bits do not change.
SETTINGS: dict[str, Any] = {"nogil": True, "fastmath": {"contract"}, "error_model": "numpy"}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function compiled at its first call, and kept for other processes beside its bytecode or in the user's cache.

    Not kept where neither can be written to, or where `PRUDENT_NO_CACHE` is set.
    """
    # Numba checks types itself, and cannot keep what a checker of types wraps functions in.
    return _kept(lambda cache: numba.njit(cache=cache, **SETTINGS)(inspect.unwrap(function)))


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


def _prefetch(typing_context: Any, array: Any, row: Any) -> Any:
    """Have the processor fetch the beginning of a row of a table that will be needed soon; changes nothing."""
    del typing_context

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind, place = signature.args
        table = context.make_array(kind)(context, builder, arguments[0])
        where = [context.cast(builder, arguments[1], place, types.intp), context.get_constant(types.intp, 0)]
        pointer = cgutils.get_item_pointer(context, builder, kind, table, where)
        pointer = builder.bitcast(pointer, ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        shape = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], shape)
        # To be read, and kept; data.
        builder.call(fetch, [pointer, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, row), generate


prefetch: Any = intrinsic(_prefetch)
