"""Direct solver for MDPs whose states can be ordered so that moves lead nearby: a grid, a line, a queue.

`M = I - discount P_pi` is then banded, and its factors stay within the band. Where Numba is installed (the extra
`large`), the loops of `band_loops` find them. Elsewhere the elimination is that of small models, but as a loop over
equal steps instead of unrolled code: each step inverts a block of the diagonal and updates the window of the band below
and to the right of it, with the batch of models as the last, contiguous axis. Rows of M are strictly diagonally
dominant, so no pivoting is needed, and none is done.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..arrays import Array
from ..deferred import jnp, lax
from ..kernels import Support
from ..records import field
from .elimination import farthest, invert, matrix_entries, multiply, narrow_order, times
from .krylov import LinearSolver

# States eliminated in one step, without loops.
BLOCK = 4

# Models of up to so many states are small.
LARGEST_SMALL = 48

Sweep = Callable[[Array, Any], tuple[Array, Array]]


class XlaFactors(NamedTuple):
    """`M = L U` in T steps: inverses of the pivots, multipliers below them, upper rows beside them."""

    inverse: Float[Array, "T K K N"]
    lower: Float[Array, "T W K N"]
    upper: Float[Array, "T K W N"]


class Bands(NamedTuple):
    """`M = L U` of groups of models, as `band_loops` lays them out, and where what a pivot touches ends."""

    rows: Float[Array, "G R 8"]
    reach: Int[Array, " S"]


class XlaBanded(LinearSolver):
    """Factorise once within a band, then solve with the matrix and with its transpose.

    >>> import prudent as pr
    >>> from prudent.occupancies.banded import XlaBanded
    >>> plan = XlaBanded.of(pr.envs.frozen_lake("\\n".join(["S" + "F" * 9, *["F" * 10] * 8, "F" * 9 + "G"])).support)
    >>> plan.band  # a row of the lake, in whole blocks
    12

    Args:
        order: `[S]` the order in which states are eliminated.
        band: how far an entry may be from the diagonal, in that order; a multiple of the block's size.
        reach: `[S]` one past the last place that a state and those before it touch, which the loops need; None where
            they are not to be used.
    """

    order: tuple[int, ...] = field(static=True)
    band: int = field(static=True)
    reach: tuple[int, ...] | None = field(static=True, default=None)

    def axis(self) -> int:
        """Last: the arithmetic is contiguous in the batch."""
        return -1

    @staticmethod
    def of(support: Support) -> XlaBanded:
        """Plan the elimination of a support's state graph: the order given, or a narrower one."""
        as_given = np.arange(support.states)
        order = as_given
        if support.graph is not None:
            order = min((as_given, narrow_order(support)), key=lambda order: _band(order, support))
        reach = tuple(farthest(order, support).tolist()) if has_loops() else None
        return XlaBanded(tuple(order.tolist()), _band(order, support), reach)

    @property
    def direct(self) -> bool:
        """Of small models, where it has loops."""
        return self.reach is not None and len(self.order) <= LARGEST_SMALL

    def fits(self, support: Support) -> bool:
        """Whether the band holds every entry of a support."""
        if len(self.order) != support.states:
            return False
        order = np.asarray(self.order)
        if self.reach is not None and np.any(farthest(order, support) > np.asarray(self.reach)):
            return False
        return _band(order, support) <= self.band

    def width(self, support: Support) -> int:
        """Numbers of the factors and of what they are made of."""
        return 4 * (self.band + BLOCK) if self.reach is None else 2 * self.band + 1

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
    ) -> XlaFactors | Bands:
        """Factorise `M = I - discount P_pi` of every model of the batch."""
        if self.reach is not None:
            return self._bands(np.array(self.reach, np.int32), support, probability, policy, discount)
        window = jnp.broadcast_to(jnp.eye(self.band + BLOCK)[:, :, None], (*[self.band + BLOCK] * 2, policy.shape[-1]))

        def step(window: Array, entries: tuple[Array, Array]) -> tuple[Array, XlaFactors]:
            bottom, right = entries
            inverse = invert(window[:BLOCK, :BLOCK])
            lower = lax.optimization_barrier(multiply(window[BLOCK:, :BLOCK], inverse))
            upper = window[:BLOCK, BLOCK:]
            rest = window[BLOCK:, BLOCK:] - multiply(lower, upper)
            grown = jnp.concatenate([jnp.concatenate([rest, right], axis=1), bottom], axis=0)
            return grown, XlaFactors(inverse, lower, upper)

        return lax.scan(step, window, self._entering(support, probability, policy, discount))[1]

    def _bands(self, reach: np.ndarray, support: Support, probability: Array, policy: Array, discount: Array) -> Bands:
        from .band_loops import LANES, call

        width = 2 * int((reach - np.arange(len(reach))).max()) - 1
        shape = (-(-policy.shape[-1] // LANES), len(reach) * width, LANES)
        successor = support.index() if support.successor is None else jnp.asarray(support.successor)
        arrays = probability, policy, jnp.asarray(discount), self._places, successor, reach
        return Bands(call("prudent_factorised", shape, *arrays), jnp.asarray(reach))

    def _solved(self, name: str, prepared: Bands, right: Float[Array, "S N"]) -> Float[Array, "S N"]:
        from .band_loops import call

        return call(name, right.shape, prepared.rows, right, self._places, prepared.reach)

    @property
    def _places(self) -> np.ndarray:
        return np.argsort(self.order).astype(np.int32)

    def forward(self, prepared: XlaFactors | Bands, start: Float[Array, "S N"]) -> Float[Array, "S N"]:
        """Solve `M^T mu = start`."""
        if isinstance(prepared, Bands):
            return self._solved("prudent_solved_transposed", prepared, start)

        def down(rest: Array, entries: tuple[XlaFactors, Array]) -> tuple[Array, Array]:
            factors, coming = entries
            part = (factors.inverse * rest[:BLOCK, None]).sum(axis=0)
            rest = rest[BLOCK:] - (factors.upper * part[:, None]).sum(axis=0)
            return jnp.concatenate([rest, coming]), part

        def up(known: Array, entries: tuple[XlaFactors, Array]) -> tuple[Array, Array]:
            factors, part = entries
            part = part - (factors.lower * known[:, None]).sum(axis=0)
            return jnp.concatenate([part, known[:-BLOCK]]), part

        return self._swept(prepared, start, down, up)

    def adjoint(self, prepared: XlaFactors | Bands, values: Float[Array, "S N"]) -> Float[Array, "S N"]:
        """Solve `M V = values`."""
        if isinstance(prepared, Bands):
            return self._solved("prudent_solved", prepared, values)

        def down(rest: Array, entries: tuple[XlaFactors, Array]) -> tuple[Array, Array]:
            factors, coming = entries
            part = rest[:BLOCK]
            rest = rest[BLOCK:] - times(factors.lower, part)
            return jnp.concatenate([rest, coming]), part

        def up(known: Array, entries: tuple[XlaFactors, Array]) -> tuple[Array, Array]:
            factors, part = entries
            # Row by row: a sum along the first axis is one contiguous loop.
            part = part - jnp.stack([(row * known).sum(axis=0) for row in factors.upper])
            part = times(factors.inverse, part)
            return jnp.concatenate([part, known[:-BLOCK]]), part

        return self._swept(prepared, values, down, up)

    def _swept(self, prepared: XlaFactors, right: Array, down: Sweep, up: Sweep) -> Array:
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


def has_loops() -> bool:
    """Whether there are loops that Numba compiled, and XLA takes them."""
    if importlib.util.find_spec("numba") is None:
        return False
    from .band_loops import available

    return available()


def _band(order: np.ndarray, support: Support) -> int:
    """How far entries are from the diagonal in an order, in whole blocks."""
    rows, columns = matrix_entries(support)
    place = np.argsort(order)
    return BLOCK * max(1, -(-int(np.abs(place[rows] - place[columns]).max()) // BLOCK))
