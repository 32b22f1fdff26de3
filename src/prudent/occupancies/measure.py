"""Which traced solver suits a support, and occupancies of one policy in many models by direct solves."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from ..kernels import Support
from .banded import LARGEST_SMALL, XlaBanded, has_loops
from .elimination import XlaElimination
from .krylov import LinearSolver, XlaKrylov

# Up to here elimination takes less time than loading Numba and its loops.
LARGEST_ELIMINATION = 16

# Up to here, and where moves lead no farther than this in some order of the states, a factorisation within the band
# takes about half the time of an iterative solve; its work grows with the square of the band.
LARGEST_BANDED, WIDEST_BAND = 4096, 48

# Matrices of a batch of direct solves on the host.
SOLVE_BYTES = 32 * 2**20


def _chosen(support: Support) -> LinearSolver:
    """The solver that suits a support's size and structure."""
    if support.states <= LARGEST_SMALL:
        # Without loops the unrolled elimination beats an iterative solve and still compiles in seconds.
        looped = support.states > LARGEST_ELIMINATION and has_loops()
        return XlaBanded.of(support) if looped else XlaElimination.of(support)
    if support.states <= LARGEST_BANDED and not support.is_dense:
        banded = XlaBanded.of(support)
        if banded.band <= WIDEST_BAND:
            return banded
    return XlaKrylov.of(support)


def traced_solver(horizon: int | None, support: Support) -> LinearSolver:
    """Return the solver of traced models."""
    return _chosen(support) if horizon is None else XlaKrylov.of(support)


def chains(weights: Float[np.ndarray, "M S K"], index: Int[np.ndarray, "*M S K"]) -> Float[np.ndarray, "M S S"]:
    """Transition matrices on the host: from each state, weights of moves to the states of an index."""
    models, states = weights.shape[:2]
    cell = np.arange(models * states).reshape(models, states, 1) * states + index
    return np.bincount(cell.ravel(), weights.ravel(), minlength=models * states**2).reshape(models, states, states)


def occupancies_on_host(
    support: Support,
    probability: Float[np.ndarray, "M S A B"],
    start: Float[np.ndarray, " S"],
    discount: float,
    policy: Float[np.ndarray, "S A"],
) -> Float[np.ndarray, "M S A"]:
    """Occupancies of one policy in many models, by direct solves in NumPy: nothing is compiled."""
    states, actions, successors = support.shape
    found = np.empty((len(probability), states, actions))
    size = max(1, SOLVE_BYTES // (8 * states * max(states, actions * successors)))
    for begin in range(0, len(probability), size):
        moves = policy[:, :, None] * probability[begin : begin + size]
        if support.is_dense:
            chain = moves.sum(axis=2)
        else:
            chain = chains(moves.reshape(len(moves), states, -1), support.index().reshape(states, -1))
        system = np.eye(states) - discount * chain.swapaxes(1, 2)
        visits = np.linalg.solve(system, np.broadcast_to(start[:, None], (len(moves), states, 1)))
        # Rounding may leave a state that is hardly visited below zero.
        found[begin : begin + size] = np.maximum(visits, 0.0) * policy
    return found
