"""Arrays at the edge of the library: float64 inside, NumPy outside, whatever JAX's global flag says.

A JAX float64 array that leaves the float64 context of a public call would quietly fall to float32 in the next
operation; so what is handed back is NumPy's. JAX is not imported here: where nobody has, no array is its own.
"""

from __future__ import annotations

import contextlib
import functools
import math
import mmap
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np
from jaxtyping import Int

from .errors import InputError
from .records import tree_leaves, tree_map

if TYPE_CHECKING:
    import jax

    Array = np.ndarray | jax.Array
    """What a record's array field holds: NumPy outside a compiled function, a JAX tracer inside."""
else:
    Array = np.ndarray | sys.modules["jax"].Array if sys.modules.get("jax") else np.ndarray

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def loaded() -> Any:
    """JAX, if the user or the library has imported it, else None; another thread may be about to."""
    found = sys.modules.get("jax")
    return found if hasattr(found, "enable_x64") else None


def float64() -> contextlib.AbstractContextManager[Any]:
    """Have JAX compute in float64, in this thread, and leave the user's flag as it was; nothing where JAX is not."""
    jax = loaded()
    return jax.enable_x64(True) if jax else contextlib.nullcontext()


def in_float64(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Run `function` with JAX in float64, leave the caller's flag as it was, hand back NumPy.

    A user's functions may use JAX; where it is not imported there is nothing to do. Inside someone's compiled function
    the result is still being traced and is left alone.
    """

    @functools.wraps(function)
    def wrapped(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with float64():
            return to_numpy(function(*args, **kwargs))

    return wrapped


def to_numpy(tree: Any) -> Any:
    """Copy every computed JAX array of a pytree (random keys excepted) to NumPy."""
    jax = loaded()
    if not jax:
        return tree

    def computed(value: Any) -> bool:
        own = is_jax_array(value) and not is_traced(value)
        return own and not jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)

    if not any(map(computed, tree_leaves(tree))):
        return tree
    return tree_map(lambda value: np.asarray(value) if computed(value) else value, tree)


def is_jax_array(value: Any) -> bool:
    """Whether `value` is an array of JAX's, computed or traced."""
    jax = loaded()
    return bool(jax) and isinstance(value, jax.Array)


def is_traced(value: Any) -> bool:
    """Whether `value` stands for an array in a function that is being compiled or differentiated."""
    jax = loaded()
    return bool(jax) and isinstance(value, jax.core.Tracer)


def namespace_of(value: Any) -> Any:
    """The module whose functions take `value`: `jax.numpy` for an array of JAX's, else `numpy`."""
    return value.__array_namespace__() if is_jax_array(value) else np


def is_placeholder(value: Any) -> bool:
    """Whether `value` has a shape and no numbers: traced, or what `jax.eval_shape` makes."""
    jax = loaded()
    return is_traced(value) or (bool(jax) and isinstance(value, jax.ShapeDtypeStruct))


def is_concrete(value: Any) -> bool:
    """Whether `value` is a NumPy array that can be checked now, not a tracer or a placeholder."""
    return isinstance(value, np.ndarray)


# Of a value that is refused, as much as can be read.
LONGEST_SHOWN = 200


def as_float(value: Any, name: str = "") -> Any:
    """Field converter: float64 NumPy for anything concrete, untouched for a tracer or placeholder."""
    if is_placeholder(value):
        return value
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"{array.dtype} values")
        return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError) as error:
        got = repr(value)
        got = got if len(got) <= LONGEST_SHOWN else f"{got[:LONGEST_SHOWN]}..."
        raise InputError(f"{name and name + ': '}expected an array of numbers, got {got} ({error})") from None


def as_number(value: float | Array) -> Any:
    """Field converter of a field that is one number: `as_float`, with the type that a user gives."""
    return as_float(value)


def require_kind(name: str, value: Any, kind: Any, example: str) -> None:
    """Refuse a part of another type, with an example of the right one."""
    if not isinstance(value, kind):
        plain = isinstance(value, str | int | float | None)
        raise InputError(f"{name} must be {example}, got {repr(value) if plain else type(value).__name__}")


def require_size(name: str, value: Any, least: int = 1) -> int:
    """A whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name} must be a whole number >= {least}, got {value!r}")
    return int(value)


def require_number(name: str, value: Any, allowed: str, fix: str = "") -> Any:
    """One number in an interval such as "[0, 1)" or "(0, inf)", as a float64 scalar; a tracer as it is."""
    try:
        number = as_float(value)
    except InputError:
        raise InputError(f"{name} must be one number in {allowed}, got {value!r}") from None
    if is_concrete(number):
        low, high = (float(end) for end in allowed[1:-1].split(","))
        if number.ndim:
            raise InputError(f"{name} must be one number in {allowed}, got an array of shape {number.shape}")
        above = number >= low if allowed[0] == "[" else number > low
        below = number <= high if allowed[-1] == "]" else number < high
        if not (above and below):
            raise InputError(f"{name} must lie in {allowed}, got {value}{fix and '; ' + fix}")
    return number


def as_whole(value: Any) -> Any:
    """Field converter: a NumPy whole number as Python's own; anything else is left for the check."""
    return int(value) if isinstance(value, np.integer) else value


def unwritten_zeros(shape: tuple[int, ...]) -> np.ndarray:
    """Zeros that take memory, a page at a time, only where something else is written, if the system can do that.

    NumPy's own ask for large pages, so that a number here and there would take all of it.
    """
    if not hasattr(mmap, "MAP_PRIVATE"):
        return np.zeros(shape)
    pages = mmap.mmap(-1, 8 * math.prod(shape), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages).reshape(shape)


def require_finite(name: str, values: np.ndarray) -> None:
    """Refuse NaN and infinite entries, naming the first one."""
    # Most arrays are finite, and then a sum is, which needs no room for what is found of each entry.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):
            return
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        where = tuple(int(i) for i in bad[0])
        raise InputError(f"{name} has a non-finite entry: {values[where]} at index {where}; remove or replace it")


def require_distribution(name: str, values: np.ndarray, rows: tuple[str, ...] = ()) -> None:
    """Refuse entries that are not finite or negative, and rows (last axis) whose sum is off 1 by more than 1e-8.

    Args:
        name: what the array is, for the message.
        values: the array.
        rows: names of the leading axes, so that the message can point at `state 3, action 1`.
    """
    require_finite(name, values)
    bad = np.argwhere(values < 0)
    if bad.size:
        where = tuple(int(i) for i in bad[0])
        raise InputError(f"{name} has a negative probability {values[where]} at {place_of(rows, where)}")
    off = np.abs(values.sum(axis=-1) - 1.0)
    if np.any(off > 1e-8):
        where = tuple(int(i) for i in np.argwhere(off > 1e-8)[0])
        total = float(values[where].sum())
        raise InputError(
            f"{name} must sum to 1 within 1e-8; it sums to {total!r}"
            + (f" at {place_of(rows, where)}" if rows else "")
            + "; divide by the sum if the numbers are counts or weights"
        )


def place_of(rows: tuple[str, ...], where: Any) -> str:
    """`state 3, action 1`: the names of an index's axes, `entry` for those without."""
    named = [f"{name} {index}" for name, index in zip(rows, where, strict=False)]
    rest = [f"entry {index}" for index in where[len(rows) :]]
    return ", ".join(named + rest)


def require_indices(name: str, values: Any, size: int) -> np.ndarray:
    """Whole numbers in `0..size-1` as int32; refuses fractional, negative and unknown ones by position."""
    array = np.asarray(values)
    if array.dtype.kind not in "iuf":
        array = np.asarray(values, dtype=object)
        for where in np.ndindex(array.shape):
            if isinstance(array[where], bool) or not isinstance(array[where], int | float | np.number):
                raise InputError(f"{name} {array[where]!r} at {_entry(where)} is not a number; use whole numbers")
        array = array.astype(np.float64)
    flat = array.ravel()
    problems = (
        (~np.isfinite(flat.astype(np.float64)), "is not a number"),
        (flat != np.floor(flat), "is not a whole number"),
        (flat < 0, "is negative"),
        (flat >= size, f"is unknown: there are {size}, numbered 0 to {size - 1}"),
    )
    for bad, reason in problems:
        if bad.any():
            position = int(np.argmax(bad))
            where = tuple(int(i) for i in np.unravel_index(position, array.shape))
            raise InputError(f"{name} {flat[position]} at {_entry(where)} {reason}")
    return array.astype(np.int32)


def _entry(where: tuple[int, ...]) -> str:
    return f"row {where[0]}" if len(where) == 1 else f"index {where}"


# Sizes of the batches that users' functions are compiled for; at most half of a batch is filled up.
BATCH_SIZES = (1, 4, 16, 64, 256, 1024)


def filled_blocks(count: int) -> Iterator[tuple[Int[np.ndarray, " M"], int]]:
    """Yield the numbers `0..count-1` in blocks of a few sizes, and how many of each block count.

    A function is compiled once for each size of a batch. A block that is not full is filled up with the last number.

    >>> from prudent.arrays import filled_blocks
    >>> [(block.tolist(), few) for block, few in filled_blocks(6)]
    [([0, 1, 2, 3], 4), ([4], 1), ([5], 1)]
    """
    begin = 0
    while (left := count - begin) > 0:
        size = max(size for size in BATCH_SIZES if size < 2 * left)
        yield np.minimum(np.arange(begin, begin + size), count - 1), min(size, left)
        begin += size
