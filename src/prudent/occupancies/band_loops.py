"""Factors within a band and solves with them, compiled by Numba and called from within XLA's programs.

Eight models at a time lie side by side, a line of the cache, and `take` and `scale` work on all of them by vector
instructions, which Numba does not make of eight numbers by itself. A group of models is factorised while it is in
the cache, where XLA goes through all models for each block of states. Rows of `M = I - discount P_pi` are strictly
diagonally dominant, so no pivoting is needed, and none is done.

XLA calls a handler with a frame of pointers, whose layout it promises for all versions of its interface that begin
with 0. A handler tells which version it was made for when it is registered, and is refused where that is another:
`available` is then false.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending
from numba.core import cgutils, types
from numba.np.numpy_support import carray

from ..deferred import jax
from ..errors import InputError
from ..loops import compiled, handler

LANES = 8

# Places in the frame of a call, in words of eight bytes: extensions, the interface, arguments, results.
EXTENSION, INTERFACE, ARGUMENTS, RESULTS = 1, 2, 9, 14

# Of a buffer: its data and its sizes. Of the interface, and of what is asked about a handler: the version, two numbers
# in a word.
DATA, SIZES = 3, 5
OWN_VERSION, ASKED, ASKED_VERSION = 4, 3, 3

# Of types that a checker knows only before the first argument is taken away.
instruction: Any = extending.intrinsic

VECTOR = ir.VectorType(ir.DoubleType(), LANES)


def _line(context: Any, builder: Any, kind: Any, array: Any, row: Any) -> Any:
    """Pointer to a row of an array `[..., LANES]`, or to the numbers from a place on of a list."""
    parts = context.make_array(kind)(context, builder, array)
    shape, strides = (cgutils.unpack_tuple(builder, each, kind.ndim) for each in (parts.shape, parts.strides))
    where = [row, context.get_constant(types.intp, 0)][: kind.ndim]
    pointer = cgutils.get_item_pointer2(context, builder, parts.data, shape, strides, "C", where)
    return builder.bitcast(pointer, VECTOR.as_pointer())


def _numbers(builder: Any, pointer: Any) -> Any:
    found = builder.load(pointer)
    found.align = 8
    return found


@instruction
def take(typing: Any, array: Any, row: Any, left: Any, i: Any, right: Any, j: Any) -> Any:
    """`array[row] -= left[i] * right[j]`, of all lanes."""

    def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        kinds = signature.args
        lines = [_line(context, builder, kinds[k], given[k], given[k + 1]) for k in (0, 2, 4)]
        own, left, right = (_numbers(builder, line) for line in lines)
        product = builder.fmul(left, right, flags=("contract",))
        builder.store(builder.fsub(own, product, flags=("contract",)), lines[0]).align = 8
        return context.get_dummy_value()

    return types.void(array, row, left, i, right, j), code


@instruction
def scale(typing: Any, array: Any, row: Any, by: Any, i: Any) -> Any:
    """`array[row] *= by[i]`, of all lanes."""

    def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        kinds = signature.args
        lines = [_line(context, builder, kinds[k], given[k], given[k + 1]) for k in (0, 2)]
        own, by = (_numbers(builder, line) for line in lines)
        builder.store(builder.fmul(own, by), lines[0]).align = 8
        return context.get_dummy_value()

    return types.void(array, row, by, i), code


@compiled
def assemble(band, probability, policy, discount, place, successor, models, first):
    """`M` of eight models, entry `(i, j)` in row `i * (2 B + 1) + B + j - i`, in the order of places.

    Probabilities and policies are lists, models last; where fewer models are left, the identity stands for the others.
    """
    states, actions, outcomes = successor.shape
    width, lanes = len(band) // states, min(LANES, models - first)
    share = np.zeros((2, LANES))
    band[:] = 0.0
    for s in range(states):
        i = place[s]
        row = i * width + width // 2 - i
        band[row + i] = 1.0
        for a in range(actions):
            pair = s * actions + a
            for n in range(lanes):
                share[0, n] = discount * policy[pair * models + first + n]
            for b in range(outcomes):
                entry, move = row + place[successor[s, a, b]], (pair * outcomes + b) * models + first
                if lanes == LANES:
                    take(band, entry, share, 0, probability, move)
                else:
                    for n in range(lanes):
                        share[1, n] = probability[move + n]
                    take(band, entry, share, 0, share, 1)


@compiled
def factorise(band, reach):
    """`M = L U` in its place, with the inverses of the pivots on the diagonal; `reach` ends what a pivot touches."""
    states = len(reach)
    width = len(band) // states
    for k in range(states):
        own = k * width + width // 2
        for n in range(LANES):
            band[own, n] = 1.0 / band[own, n]
        for below in range(1, reach[k] - k):
            row = own + below * (width - 1)
            scale(band, row, band, own)
            for beside in range(1, reach[k] - k):
                take(band, row + beside, band, row, band, own + beside)


@compiled
def solve_transposed(band, reach, vector):
    """`M^T x = b` in the place of b."""
    states = len(reach)
    width = len(band) // states
    for k in range(states):
        own = k * width + width // 2
        scale(vector, k, band, own)
        for beside in range(1, reach[k] - k):
            take(vector, k + beside, band, own + beside, vector, k)
    for i in range(states - 1, 0, -1):
        own = i * width + width // 2
        for before in range(1, min(i, width // 2) + 1):
            take(vector, i - before, band, own - before, vector, i)


@compiled
def solve(band, reach, vector):
    """`M x = b` in the place of b."""
    states = len(reach)
    width = len(band) // states
    for k in range(states):
        own = k * width + width // 2
        for below in range(1, reach[k] - k):
            take(vector, k + below, band, own + below * (width - 1), vector, k)
    for k in range(states - 1, -1, -1):
        own = k * width + width // 2
        scale(vector, k, band, own)
        for above in range(1, min(k, width // 2) + 1):
            take(vector, k - above, band, own - above * (width - 1), vector, k)


@instruction
def _pointer(typing: Any, address: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return builder.inttoptr(given[0], cgutils.voidptr_t)

    return types.voidptr(address), code


@compiled
def words(address, count):
    """The words at an address."""
    return carray(_pointer(address), (count,), np.int64)


@compiled
def told(frame):
    """Whether XLA only asks which version of its interface a handler is for: 0 and whatever goes with it."""
    extension = words(frame, RESULTS + 1)[EXTENSION]
    if extension == 0:
        return False
    asked = words(extension, ASKED + 1)[ASKED]
    minor = words(words(frame, RESULTS + 1)[INTERFACE], OWN_VERSION + 1)[OWN_VERSION] >> 32
    words(asked, ASKED_VERSION + 1)[ASKED_VERSION] = minor << 32
    return True


@compiled
def buffer(frame, side, number):
    """Address of a buffer's data, and of its sizes."""
    each = words(words(frame, RESULTS + 1)[side], number + 1)[number]
    parts = words(each, SIZES + 1)
    return parts[DATA], parts[SIZES]


@compiled
def numbers(frame, side, number, shape):
    """A buffer of numbers."""
    return carray(_pointer(buffer(frame, side, number)[0]), shape, np.float64)


@compiled
def indices(frame, number, shape):
    """An argument of whole numbers."""
    return carray(_pointer(buffer(frame, ARGUMENTS, number)[0]), shape, np.int32)


def factorised(frame):
    """Probabilities, policies, discount, places, successors, reach; the bands of groups of models."""
    if told(frame):
        return 0
    size = words(buffer(frame, ARGUMENTS, 0)[1], 4)
    states, actions, outcomes, models = size[0], size[1], size[2], size[3]
    rows = words(buffer(frame, RESULTS, 0)[1], 2)[1]
    probability = numbers(frame, ARGUMENTS, 0, states * actions * outcomes * models)
    policy = numbers(frame, ARGUMENTS, 1, states * actions * models)
    discount = numbers(frame, ARGUMENTS, 2, 1)[0]
    place, reach = indices(frame, 3, (states,)), indices(frame, 5, (states,))
    successor = indices(frame, 4, (states, actions, outcomes))
    groups = (models + LANES - 1) // LANES
    bands = numbers(frame, RESULTS, 0, (groups, rows, LANES))
    for group in range(groups):
        assemble(bands[group], probability, policy, discount, place, successor, models, group * LANES)
        factorise(bands[group], reach)
    return 0


@compiled
def solved(frame, transposed):
    """Bands, right-hand sides, places, reach; the solutions."""
    if told(frame):
        return 0
    size, rows = words(buffer(frame, ARGUMENTS, 1)[1], 2), words(buffer(frame, ARGUMENTS, 0)[1], 2)[1]
    states, models = size[0], size[1]
    groups = (models + LANES - 1) // LANES
    bands = numbers(frame, ARGUMENTS, 0, (groups, rows, LANES))
    right, solution = numbers(frame, ARGUMENTS, 1, (states, models)), numbers(frame, RESULTS, 0, (states, models))
    place, reach = indices(frame, 2, (states,)), indices(frame, 3, (states,))
    vector = np.zeros((states, LANES))
    for group in range(groups):
        first = group * LANES
        lanes = min(LANES, models - first)
        for s in range(states):
            for n in range(lanes):
                vector[place[s], n] = right[s, first + n]
        if transposed:
            solve_transposed(bands[group], reach, vector)
        else:
            solve(bands[group], reach, vector)
        for s in range(states):
            for n in range(lanes):
                solution[s, first + n] = vector[place[s], n]
    return 0


def solved_plain(frame):
    return solved(frame, False)


def solved_transposed(frame):
    return solved(frame, True)


# What XLA has the addresses of.
KEPT: list[Any] = []


@functools.cache
def available() -> bool:
    """Whether XLA's programs can call these loops: on processors whose addresses have eight bytes."""
    if ctypes.sizeof(ctypes.c_void_p) != 8 or jax.default_backend() != "cpu":
        return False
    loops = {
        "prudent_factorised": factorised,
        "prudent_solved": solved_plain,
        "prudent_solved_transposed": solved_transposed,
    }
    try:
        for name, loop in loops.items():
            made = handler(loop)
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(made.ctypes), platform="cpu")
            KEPT.append(made)
    except Exception:
        # Of another version of Numba or XLA: there is an elimination without them.
        return False
    return True


def call(name: str, shape: tuple[int, ...], *arrays: Any) -> Any:
    """What a loop makes of arrays, from within a compiled function."""
    # The plan may have been made in another process, such as the one that a worker works for.
    if not available():
        raise InputError(
            "this was made where Numba's loops can be used; make it again"
        )
    return jax.ffi.ffi_call(name, jax.ShapeDtypeStruct(shape, np.float64), vmap_method="sequential")(*arrays)
