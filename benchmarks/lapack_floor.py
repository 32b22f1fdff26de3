"""The least a direct method must do: one `dgetrf` and two `dgetrs` a matrix, from a compiled loop.

The calls go straight to SciPy's LAPACK from numba, without assembly, checks or Python between them.
"""

from __future__ import annotations

import ctypes

import numba
import numpy as np
from numba.extending import get_cython_function_address
from threadpoolctl import threadpool_limits


def _lapack(name: str, arguments: int):
    address = get_cython_function_address("scipy.linalg.cython_lapack", name)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)(address)


_getrf, _getrs = _lapack("dgetrf", 6), _lapack("dgetrs", 9)


@numba.njit
def _loop(matrices, right, left, work):
    count, size, _ = matrices.shape
    pivots = np.empty(size, np.int32)
    n, one, info = np.array([size], np.int32), np.array([1], np.int32), np.zeros(1, np.int32)
    plain, transposed = np.array([78], np.uint8), np.array([84], np.uint8)
    for k in range(count):
        work[:, :] = matrices[k]
        _getrf(n.ctypes, n.ctypes, work.ctypes, n.ctypes, pivots.ctypes, info.ctypes)
        _getrs(
            plain.ctypes,
            n.ctypes,
            one.ctypes,
            work.ctypes,
            n.ctypes,
            pivots.ctypes,
            right[k].ctypes,
            n.ctypes,
            info.ctypes,
        )
        _getrs(
            transposed.ctypes,
            n.ctypes,
            one.ctypes,
            work.ctypes,
            n.ctypes,
            pivots.ctypes,
            left[k].ctypes,
            n.ctypes,
            info.ctypes,
        )


def make_floor(size: int, count: int, times: int = 1, threads: int | None = None):
    """A call that factorises `count` matrices of a size and solves twice with each, `times` over."""
    random = np.random.default_rng(0)
    chain = random.exponential(size=(count, size, size))
    matrices = np.eye(size) - 0.97 * chain / chain.sum(axis=2, keepdims=True)
    work = np.empty((size, size))

    def call() -> None:
        with threadpool_limits(threads, "blas"):
            for _ in range(times):
                right, left = np.ones((count, size)), np.ones((count, size))
                _loop(matrices, right, left, work)

    _check(matrices[:2], work)
    return call


def _check(matrices: np.ndarray, work: np.ndarray) -> None:
    right, left = np.ones(matrices.shape[:2]), np.ones(matrices.shape[:2])
    _loop(matrices, right, left, work)
    # Row-major storage hands LAPACK the transpose, so the plain solve is the transposed one.
    np.testing.assert_allclose(np.einsum("kij,ki->kj", matrices, right), 1.0, atol=1e-9)
    np.testing.assert_allclose(np.einsum("kij,kj->ki", matrices, left), 1.0, atol=1e-9)
