"""Loops compiled by Numba, which is installed with the extra `large`; nothing here is imported without it.

Every function that the library has Numba compile is made here, because Numba unpickles what it kept of one: it is kept
where `cache_folder` says and nowhere else, whatever Numba's settings are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, config, types
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic

from .files import cache_folder

# Products may be added in one rounding, which is as exact; sums keep their order, so that bits do not change.
SETTINGS: dict[str, Any] = {"nogil": True, "fastmath": {"contract"}, "error_model": "numpy"}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function compiled at its first call, and kept for other processes in the user's cache."""
    # Numba checks types itself, and cannot keep what a checker of types wraps functions in.
    return _kept(lambda cache: numba.njit(cache=cache, **SETTINGS)(inspect.unwrap(function)))


def _kept(make: Callable[[bool], Any]) -> Any:
    """What is made of a function, kept in a folder of the user's alone, or not at all.

    Numba chooses the folder when a function is made. Its settings may be those of a file in the working directory, or
    name a folder that others can write to: they are put aside for so long.
    """
    folder = cache_folder("loops", "NUMBA_CACHE_DIR")
    if folder is not None:
        ours = {"CACHE_DIR": str(folder), "CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}
        with global_compiler_lock:
            theirs = {name: getattr(config, name, "") for name in ours}
            _set(ours)
            try:
                return make(True)
            except RuntimeError:  # it could not be written to
                pass
            finally:
                _set(theirs)
    return make(False)


def _set(settings: dict[str, str]) -> None:
    for name, value in settings.items():
        setattr(config, name, value)


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
