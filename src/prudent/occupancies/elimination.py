"""Direct solver for small MDPs: block elimination of `I - discount P_pi` for many models at once.

All models of a batch share their support, so one elimination order and one set of non-zero windows
serve all of them: the order (reverse Cuthill-McKee) and the windows are found once in NumPy, and the
arithmetic is unrolled over blocks with the batch as the last, contiguous axis. Rows of
`I - discount P_pi` are strictly diagonally dominant, so no pivoting is needed, and none is done.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..arrays import Array
from ..deferred import jnp, lax
from ..kernels import Support, transition_matrix_batch
from ..records import field
from .krylov import LinearSolver

BLOCK = 5


class Block(NamedTuple):
    """One step of `M = L U` on the window `[start, reach)`: pivot inverse, multipliers and upper rows."""

    inverse: Float[Array, "K K N"]
    lower: Float[Array, "J K N"]
    upper: Float[Array, "K J N"]


class XlaElimination(LinearSolver):
    """Factorise once, then solve with the matrix and with its transpose.

    >>> import prudent as pr
    >>> from prudent.occupancies import XlaElimination
    >>> plan = XlaElimination.of(pr.envs.frozen_lake().support)
    >>> plan.reach  # a band of one row of the lake on either side, not the full 25
    (10, 15, 20, 25, 25)

    Args:
        order: `[S]` the order in which states are eliminated.
        reach: for each block of `BLOCK` states, one past the last position its rows or columns touch.
    """

    order: tuple[int, ...] = field(static=True)
    reach: tuple[int, ...] = field(static=True)

    def axis(self) -> int:
        """Last: the arithmetic is contiguous in the batch."""
        return -1

    @property
    def direct(self) -> bool:
        """It does."""
        return True

    def width(self, support: Support) -> int:
        """A row of the matrix."""
        return support.states

    @staticmethod
    def of(support: Support) -> XlaElimination:
        """Plan the elimination of a support's state graph."""
        as_given = np.arange(support.states)
        if support.graph is None or support.states <= BLOCK:
            return XlaElimination(tuple(as_given.tolist()), _reach(as_given, support))
        banded = narrow_order(support)
        given_reach, banded_reach = _reach(as_given, support), _reach(banded, support)
        # Reordering moves every entry once, so it must save a good deal to pay.
        if _work(given_reach) <= 1.3 * _work(banded_reach):
            return XlaElimination(tuple(as_given.tolist()), given_reach)
        return XlaElimination(tuple(banded.tolist()), banded_reach)

    def fits(self, support: Support) -> bool:
        """Whether this plan's windows hold every entry of a support."""
        if len(self.order) != support.states:
            return False
        needed = _reach(np.asarray(self.order), support)
        return all(have >= need for have, need in zip(self.reach, needed, strict=True))

    def prepare(
        self,
        support: Support,
        probability: Float[Array, "S A B N"],
        policy: Float[Array, "S A N"],
        discount: Array,
    ) -> list[Block]:
        """Factorise `M = I - discount P_pi` of every model of the batch."""
        matrix = -discount * transition_matrix_batch(support, probability, policy)
        size = len(self.order)
        if not self._as_given:
            matrix = matrix[np.asarray(self.order)[:, None], np.asarray(self.order)]
        matrix = matrix + jnp.eye(size)[:, :, None]
        blocks = []
        # The barriers stop XLA from fusing one step into the next, which would recompute it many times.
        window = matrix[: self.reach[0], : self.reach[0]]
        for step, start in enumerate(range(0, size, BLOCK)):
            width = min(BLOCK, size - start)
            inverse = invert(lax.optimization_barrier(window[:width, :width]))
            lower = lax.optimization_barrier(multiply(window[width:, :width], inverse))
            upper = window[:width, width:]
            blocks.append(Block(inverse, lower, upper))
            if start + width < size:
                rest = window[width:, width:] - multiply(lower, upper)
                window = lax.optimization_barrier(_grow(rest, matrix, start + width, self.reach[step + 1]))
        return blocks

    def forward(self, prepared: list[Block], start: Float[Array, "S N"]) -> Float[Array, "S N"]:
        """Solve `M^T mu = start`."""
        rest = self._arrange(start)
        parts = []
        for block in prepared:
            width, reach = _sizes(block)
            part = lax.optimization_barrier(_transposed_times(block.inverse, rest[:width]))
            parts.append(part)
            touched = rest[width:reach] - _transposed_times(block.upper, part)
            rest = lax.optimization_barrier(jnp.concatenate([touched, rest[reach:]]))
        solution = parts[-1]
        for block, part in zip(prepared[-2::-1], parts[-2::-1], strict=True):
            width, reach = _sizes(block)
            part = part - _transposed_times(block.lower, solution[: reach - width])
            solution = lax.optimization_barrier(jnp.concatenate([part, solution]))
        return self._restore(solution)

    def adjoint(self, prepared: list[Block], values: Float[Array, "S N"]) -> Float[Array, "S N"]:
        """Solve `M V = values`."""
        rest = self._arrange(values)
        parts = []
        for block in prepared:
            width, reach = _sizes(block)
            parts.append(rest[:width])
            touched = rest[width:reach] - times(block.lower, rest[:width])
            rest = lax.optimization_barrier(jnp.concatenate([touched, rest[reach:]]))
        solution = lax.optimization_barrier(times(prepared[-1].inverse, parts[-1]))
        for block, part in zip(prepared[-2::-1], parts[-2::-1], strict=True):
            width, reach = _sizes(block)
            part = lax.optimization_barrier(part - times(block.upper, solution[: reach - width]))
            part = times(block.inverse, part)
            solution = lax.optimization_barrier(jnp.concatenate([part, solution]))
        return self._restore(solution)

    @property
    def _as_given(self) -> bool:
        return self.order == tuple(range(len(self.order)))

    def _arrange(self, vector: Array) -> Array:
        return vector if self._as_given else vector[np.asarray(self.order)]

    def _restore(self, vector: Array) -> Array:
        return vector if self._as_given else vector[np.argsort(self.order)]


def matrix_entries(support: Support) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of every entry `P_pi` may have."""
    if support.graph is None:
        return np.divmod(np.arange(support.states**2), support.states)
    successor = np.asarray(support.graph.successor).reshape(support.states, -1)
    return np.repeat(np.arange(support.states), successor.shape[1]), successor.ravel()


def narrow_order(support: Support) -> np.ndarray:
    """An order of the states in which moves lead to near ones (reverse Cuthill and McKee)."""
    from scipy.sparse import coo_matrix  # slow to import, both
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    rows, columns = matrix_entries(support)
    pattern = coo_matrix((np.ones(rows.size), (rows, columns)), shape=(support.states,) * 2).tocsr()
    return reverse_cuthill_mckee((pattern + pattern.T).tocsr(), symmetric_mode=True)


def farthest(order: np.ndarray, support: Support) -> np.ndarray:
    """`[S]` one past the last position that rows and columns up to each one touch, its own at least."""
    rows, columns = matrix_entries(support)
    position = np.argsort(order)
    last = np.arange(1, order.size + 1)
    np.maximum.at(
        last, np.minimum(position[rows], position[columns]), np.maximum(position[rows], position[columns]) + 1
    )
    return np.maximum.accumulate(last)


def _reach(order: np.ndarray, support: Support) -> tuple[int, ...]:
    last = farthest(order, support)
    return tuple(int(last[min(start + BLOCK, order.size) - 1]) for start in range(0, order.size, BLOCK))


def _work(reach: tuple[int, ...]) -> int:
    return sum((end - step * BLOCK) ** 2 for step, end in enumerate(reach))


def _sizes(block: Block) -> tuple[int, int]:
    width = block.inverse.shape[0]
    return width, width + block.lower.shape[0]


def _grow(rest: Array, matrix: Array, start: int, reach: int) -> Array:
    """The next window: what the last step updated, bordered by entries no step has touched yet."""
    done = start + rest.shape[0]
    if done == reach:
        return rest
    top = jnp.concatenate([rest, matrix[start:done, done:reach]], axis=1)
    return jnp.concatenate([top, matrix[done:reach, start:reach]], axis=0)


def invert(matrix: Float[Array, "K K N"]) -> Float[Array, "K K N"]:
    """Gauss-Jordan inverse of small diagonally dominant blocks, in place and without pivoting."""
    size = matrix.shape[0]
    for k in range(size):
        pivot = 1.0 / matrix[k, k]
        row, column = matrix[k] * pivot, matrix[:, k]
        here = np.arange(size) == k
        matrix = jnp.where(here[:, None, None], row[None], matrix - column[:, None] * row[None])
        column = jnp.where(here[:, None], pivot[None], -column * pivot)
        matrix = lax.optimization_barrier(jnp.where(here[None, :, None], column[:, None], matrix))
    return matrix


# Sums of outer products, not `dot`: XLA turns them into one loop that is contiguous in the batch.


def multiply(left: Array, right: Array) -> Array:
    return sum((left[:, k, None] * right[None, k] for k in range(1, left.shape[1])), left[:, 0, None] * right[None, 0])


def times(matrix: Array, vector: Array) -> Array:
    if matrix.shape[1] > matrix.shape[0] or matrix.shape[1] == 0:
        return (matrix * vector[None]).sum(axis=1)
    return sum((matrix[:, k] * vector[k] for k in range(1, matrix.shape[1])), matrix[:, 0] * vector[0])


def _transposed_times(matrix: Array, vector: Array) -> Array:
    if matrix.shape[0] > matrix.shape[1] or matrix.shape[0] == 0:
        return (matrix * vector[:, None]).sum(axis=0)
    return sum((matrix[k] * vector[k] for k in range(1, matrix.shape[0])), matrix[0] * vector[0])
