"""Direct solver for middling MDPs whose states can be ordered so that moves lead nearby: a grid, a line, a queue.

`M = I - discount P_pi` is then banded, and its factors stay within the band. The elimination is that of small models,
but as a loop over equal steps instead of unrolled code: each step inverts a block of the diagonal and updates the
window of the band below and to the right of it, with the batch of models as the last, contiguous axis. Rows of M are
strictly diagonally dominant, so no pivoting is needed, and none is done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float

from ..arrays import Array
from ..kernels import Support
from .elimination import invert, matrix_entries, multiply, narrow_order, times
from .krylov import LinearSolver

# States eliminated in one step.
BLOCK = 4


Sweep = Callable[[Array, Any], tuple[Array, Array]]


class Factors(NamedTuple):
    """`M = L U` in T steps: inverses of the pivots, multipliers below them, upper rows beside them."""

    inverse: Float[Array, "T K K N"]
    lower: Float[Array, "T W K N"]
    upper: Float[Array, "T K W N"]


class Banded(LinearSolver):
    """Factorise once within a band, then solve with the matrix and with its transpose.

    >>> import prudent as pr
    >>> plan = pr.Banded.of(pr.envs.frozen_lake("\\n".join(["S" + "F" * 9, *["F" * 10] * 8, "F" * 9 + "G"])).support)
    >>> plan.band  # a row of the lake, in whole blocks
    12

    Args:
        order: `[S]` the order in which states are eliminated.
        band: how far an entry may be from the diagonal, in that order; a multiple of the block's size.
    """

    order: tuple[int, ...] = eqx.field(static=True)
    band: int = eqx.field(static=True)

    def axis(self) -> int:
        """Last: the arithmetic is contiguous in the batch."""
        return -1

    @staticmethod
    def of(support: Support) -> Banded:
        """Plan the elimination of a support's state graph: the order given, or a narrower one."""
        as_given = np.arange(support.states)
        if support.graph is None:
            return Banded(tuple(as_given.tolist()), _band(as_given, support))
        order = min((as_given, narrow_order(support)), key=lambda order: _band(order, support))
        return Banded(tuple(order.tolist()), _band(order, support))

    def fits(self, support: Support) -> bool:
        """Whether the band holds every entry of a support."""
        return len(self.order) == support.states and _band(np.asarray(self.order), support) <= self.band

    def width(self, support: Support) -> int:
        """Numbers of the factors and of what they are made of."""
        return 4 * (self.band + BLOCK)

    @property
    def steps(self) -> int:
        """How many blocks are eliminated."""
        return -(-len(self.order) // BLOCK)

    def prepare(
        self,
        support: Support,
        probability: Float[Array, "S A B N"],
        policy: Float[Array, "S A N"],
        discount: Array,
    ) -> Factors:
        """Factorise `M = I - discount P_pi` of every model of the batch."""
        window = jnp.broadcast_to(jnp.eye(self.band + BLOCK)[:, :, None], (*[self.band + BLOCK] * 2, policy.shape[-1]))

        def step(window: Array, entries: tuple[Array, Array]) -> tuple[Array, Factors]:
            bottom, right = entries
            inverse = invert(window[:BLOCK, :BLOCK])
            lower = lax.optimization_barrier(multiply(window[BLOCK:, :BLOCK], inverse))
            upper = window[:BLOCK, BLOCK:]
            rest = window[BLOCK:, BLOCK:] - multiply(lower, upper)
            grown = jnp.concatenate([jnp.concatenate([rest, right], axis=1), bottom], axis=0)
            return grown, Factors(inverse, lower, upper)

        return lax.scan(step, window, self._entering(support, probability, policy, discount))[1]

    def forward(self, prepared: Factors, start: Float[Array, "S N"]) -> Float[Array, "S N"]:
        """Solve `M^T mu = start`."""

        def down(rest: Array, entries: tuple[Factors, Array]) -> tuple[Array, Array]:
            factors, coming = entries
            part = (factors.inverse * rest[:BLOCK, None]).sum(axis=0)
            rest = rest[BLOCK:] - (factors.upper * part[:, None]).sum(axis=0)
            return jnp.concatenate([rest, coming]), part

        def up(known: Array, entries: tuple[Factors, Array]) -> tuple[Array, Array]:
            factors, part = entries
            part = part - (factors.lower * known[:, None]).sum(axis=0)
            return jnp.concatenate([part, known[:-BLOCK]]), part

        return self._swept(prepared, start, down, up)

    def adjoint(self, prepared: Factors, values: Float[Array, "S N"]) -> Float[Array, "S N"]:
        """Solve `M V = values`."""

        def down(rest: Array, entries: tuple[Factors, Array]) -> tuple[Array, Array]:
            factors, coming = entries
            part = rest[:BLOCK]
            rest = rest[BLOCK:] - times(factors.lower, part)
            return jnp.concatenate([rest, coming]), part

        def up(known: Array, entries: tuple[Factors, Array]) -> tuple[Array, Array]:
            factors, part = entries
            # Row by row: a sum along the first axis is one contiguous loop.
            part = part - jnp.stack([(row * known).sum(axis=0) for row in factors.upper])
            part = times(factors.inverse, part)
            return jnp.concatenate([part, known[:-BLOCK]]), part

        return self._swept(prepared, values, down, up)

    def _swept(self, prepared: Factors, right: Array, down: Sweep, up: Sweep) -> Array:
        """Substitution down the blocks and back up."""
        states, batch = right.shape[0], right.shape[1:]
        total = self.steps + self._empty
        coming = jnp.zeros((BLOCK * total, *batch)).at[:states].set(self._arrange(right)).reshape(total, BLOCK, *batch)
        nothing = jnp.zeros((self.band, *batch))
        _, parts = lax.scan(down, jnp.concatenate([nothing, nothing[:BLOCK]]), (prepared, coming))
        _, parts = lax.scan(up, nothing, (prepared, parts), reverse=True)
        solution = parts.reshape(BLOCK * total, *batch)[BLOCK * self._empty :][:states]
        return solution if self._as_given else solution[np.argsort(self.order)]

    def _entering(self, support: Support, probability: Array, policy: Array, discount: Array) -> tuple[Array, Array]:
        """Of each step, the rows of M that enter the window at its bottom, and the columns that enter at its right."""
        steps, band, width = self.steps, self.band, self.band + BLOCK
        place = jnp.asarray(np.argsort(self.order))
        if support.successor is None:
            weight = (probability * policy[:, :, None]).sum(axis=1)
            columns = place[None]
        else:
            weight = (probability * policy[:, :, None]).reshape(support.states, -1, policy.shape[-1])
            columns = place[support.successor.reshape(support.states, -1)]
        rows, columns = jnp.broadcast_arrays(place[:, None], columns)
        # An entry comes in with the later of its blocks; then the window begins `band` states before that block.
        step = jnp.maximum(rows, columns) // BLOCK
        row, column = rows - BLOCK * step + band, columns - BLOCK * step + band
        below = row >= band
        bottom, right = (
            jnp.zeros((steps * BLOCK * length, weight.shape[-1])).at[index].add(-discount * weight, mode="drop")
            for length, index in (
                (width, jnp.where(below, (BLOCK * step + row - band) * width + column, steps * BLOCK * width)),
                (band, jnp.where(below, steps * BLOCK * band, (band * step + row) * BLOCK + column - band)),
            )
        )
        own = jnp.eye(BLOCK, width, band)[:, :, None]
        more = (((0, self._empty), (0, 0), (0, 0), (0, 0)),)
        bottom = jnp.pad(bottom.reshape(steps, BLOCK, width, -1), *more) + own
        return bottom, jnp.pad(right.reshape(steps, band, BLOCK, -1), *more)

    @property
    def _empty(self) -> int:
        """Steps before the first state is at the top of the window."""
        return self.band // BLOCK + 1

    @property
    def _as_given(self) -> bool:
        return self.order == tuple(range(len(self.order)))

    def _arrange(self, vector: Array) -> Array:
        return vector if self._as_given else vector[np.asarray(self.order)]


def _band(order: np.ndarray, support: Support) -> int:
    """How far entries are from the diagonal in an order, in whole blocks."""
    rows, columns = matrix_entries(support)
    place = np.argsort(order)
    return BLOCK * max(1, -(-int(np.abs(place[rows] - place[columns]).max()) // BLOCK))
