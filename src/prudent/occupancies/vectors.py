"""Block elimination without blocks, by NumPy: small models in any number, and nothing is compiled.

Every operation is one of vectors over models, which come last; so many models take hardly longer than one. Order and
windows are those of an `XlaElimination`, and no pivoting is done for the same reason.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from ..kernels import Support
from .elimination import BLOCK, XlaElimination


def factorised(
    solver: XlaElimination,
    support: Support,
    probability: Float[np.ndarray, "S A B N"],
    policy: Float[np.ndarray, "S A N"],
    discount: float,
) -> Float[np.ndarray, "S S N"]:
    """`M = I - discount P_pi` as `L U`, in the solver's order; ones on the diagonal of L are left out."""
    place, (states, actions, successors) = np.argsort(solver.order), support.shape
    flow = (-discount * policy)[:, :, None] * probability
    if support.is_dense:
        matrix = flow.sum(axis=1)
    else:
        matrix, index = np.zeros((states, states, policy.shape[2])), support.index()
        for a, b in np.ndindex(actions, successors):
            matrix[place, place[index[:, a, b]]] += flow[:, a, b]
    matrix[np.arange(states), np.arange(states)] += 1.0
    for k, end in _steps(solver):
        matrix[k + 1 : end, k] /= matrix[k, k]
        matrix[k + 1 : end, k + 1 : end] -= matrix[k + 1 : end, k, None] * matrix[k, k + 1 : end]
    return matrix


def forward(
    solver: XlaElimination, factors: Float[np.ndarray, "S S N"], start: Float[np.ndarray, "S N"]
) -> Float[np.ndarray, "S N"]:
    """Solve `M^T mu = start`."""
    rest = start[np.asarray(solver.order)]
    for k, end in _steps(solver):
        rest[k] /= factors[k, k]
        rest[k + 1 : end] -= factors[k, k + 1 : end] * rest[k]
    for k, end in reversed(_steps(solver)):
        rest[k] -= (factors[k + 1 : end, k] * rest[k + 1 : end]).sum(axis=0)
    return rest[np.argsort(solver.order)]


def adjoint(
    solver: XlaElimination, factors: Float[np.ndarray, "S S N"], values: Float[np.ndarray, "S N"]
) -> Float[np.ndarray, "S N"]:
    """Solve `M V = values`."""
    rest = values[np.asarray(solver.order)]
    for k, end in _steps(solver):
        rest[k + 1 : end] -= factors[k + 1 : end, k] * rest[k]
    for k, end in reversed(_steps(solver)):
        rest[k] -= (factors[k, k + 1 : end] * rest[k + 1 : end]).sum(axis=0)
        rest[k] /= factors[k, k]
    return rest[np.argsort(solver.order)]


def _steps(solver: XlaElimination) -> list[tuple[int, int]]:
    """Each state that is eliminated, and where what it touches ends."""
    return [(k, solver.reach[k // BLOCK]) for k in range(len(solver.order))]
