"""The least loss of each model over the tables of a box, many boxes at once: what branch and bound is made of.

A box holds the tables with `low <= pi(a | s) <= high`. Within it, minimising a linear loss is an MDP whose action at a
state is any row of the box, solved by policy iteration whose greedy row fills the cheapest actions up to their bounds.
With the operator `T v = min_{row in box} <row, c + discount P v>`, any v proves a bound,

    min_pi <start, v^pi>  >=  <start, v> + min_s (T v - v)(s) / (1 - discount)        if min_s (T v - v) <= 0,

because T is monotone and contracts; policy iteration only makes it tight. Rounding is taken off it.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..arrays import Array
from ..deferred import jax, jitted, jnp, lax
from ..kernels import Kernel, Support, pull_batch
from ..losses import ConvexLoss
from ..models import MDP
from ..occupancies import LinearSolver
from ..records import AbstractVar, Record, tree_map
from .boxes import Boxes, Relaxed

# Boxes that are worked on together: so few that their models stay in the processor's cache.
BLOCK = 8

# Policy improvements of a relaxation at most; its bound holds after any number of them.
MOST_IMPROVEMENTS = 12

# Residual of the values, as a share of the largest value there could be, below which no improvement is made.
RESIDUAL = 1e-8

# Tangents of a convex loss in one relaxation at most, the gap at which no more are made, as a share of the loss, and
# the shares of a step that are tried between two of them.
CUTS, CONVEX_GAP = 60, 1e-5
STEPS = 0.5 ** np.arange(6.0)

# Halvings of the bracket around a projection's multiplier.
HALVINGS = 60

EPSILON = float(np.finfo(np.float64).eps)


def _in_blocks(function: Callable[..., Any], *parts: Array) -> Any:
    """A function of a few boxes applied to all, `BLOCK` at a time; their number is a multiple of it."""
    count = parts[0].shape[0]
    split = tuple(jnp.asarray(part).reshape(count // BLOCK, BLOCK, *part.shape[1:]) for part in parts)
    found = lax.map(lambda block: function(*block), split)
    return tree_map(lambda part: part.reshape(count, *part.shape[2:]), found)


class Models(Record):
    """R models along one support, the models on the last axis."""

    support: Support
    solver: LinearSolver
    probability: Float[Array, "S A B R"]
    start: Float[Array, " S"]
    discount: Float[Array, ""]


class TableBoxes(Boxes):
    """Boxes of a loss of the occupancy, by vector operations."""

    models: AbstractVar[Models]
    cost: AbstractVar[Float[Array, "S A R"]]

    @abc.abstractmethod
    def block(self, batch: _Batch, values: Float[Array, "S M"]) -> Relaxed:
        """The relaxation of a few boxes, models on the last axis."""

    @abc.abstractmethod
    def losses(self, batch: _Batch) -> Callable[[Float[Array, "S A M"]], Float[Array, " M"]]:
        """Of occupancies."""

    @jitted
    def relaxed(self, low: Array, high: Array, values: Array) -> Relaxed:
        """Of all boxes, begun at the rows that are greedy for the given values."""

        def block(low: Array, high: Array, values: Array) -> Relaxed:
            batch = _Batch(self.models, low, high)
            return Relaxed(*(batch.apart(part) for part in self.block(batch, batch.packed(values))))

        return _in_blocks(block, low, high, values)

    @jitted
    def followed(self, tables: Array) -> tuple[Array, Array]:
        """By one solve each."""

        def block(tables: Array) -> tuple[Array, Array]:
            batch = _Batch(self.models, tables, tables)
            visits = batch.visits(batch.low)
            return batch.apart(self.losses(batch)(visits[:, None] * batch.low)), batch.apart(visits)

        return _in_blocks(block, tables)


class LinearBoxes(TableBoxes):
    """Boxes of a loss that is linear in the occupancy."""

    models: Models
    cost: Float[Array, "S A R"]

    def block(self, batch: _Batch, values: Array) -> Relaxed:
        """One policy iteration for every box and model."""
        return batch.iterated(batch.tiled(self.cost), values)

    def losses(self, batch: _Batch) -> Callable[[Array], Array]:
        """What is paid."""
        return lambda occupancy: (occupancy * batch.tiled(self.cost)).sum(axis=(0, 1))

    def listed(self) -> dict[str, np.ndarray]:
        """Successors, probabilities and costs with the models in front, start and discount."""
        models = self.models
        return {
            "successor": np.broadcast_to(models.support.index(), models.support.shape).astype(np.int32),
            "probability": np.moveaxis(np.asarray(models.probability), -1, 0),
            "cost": np.moveaxis(np.asarray(self.cost), -1, 0),
            "start": np.asarray(models.start),
            "discount": np.asarray(models.discount),
        }

    @jitted
    def proved(self, low: Array, high: Array, values: Array) -> tuple[Float[Array, "N R"], Float[Array, "N S A R"]]:
        """What these values prove as they are, without any improvement."""

        def block(low: Array, high: Array, values: Array) -> tuple[Array, Array]:
            batch = _Batch(self.models, low, high)
            cost, flat = batch.tiled(self.cost), batch.packed(values)
            quality = batch.quality(cost, flat)
            residual = ((cheapest_rows(quality, batch.low, batch.high) * quality).sum(axis=1) - flat).min(axis=0)
            return batch.apart(batch.proved(cost, flat, residual)), batch.apart(quality)

        return _in_blocks(block, low, high, values)


class ConvexBoxes(TableBoxes):
    """Boxes of a convex loss: bounds by tangents, `F(m) >= F(l) + <z, m - l>` with `z = F'(l)`.

    So a box's least loss is at least a constant more than the least of an MDP with cost z, whatever l is; projected
    gradient steps bring l near the least loss, where the bound is tight.
    """

    models: Models
    cost: Float[Array, "S A R"]
    loss: ConvexLoss

    def block(self, batch: _Batch, values: Array) -> Relaxed:
        """The best bound of the tangents met, and the table that they ended at."""
        losses, tangent = self.losses(batch), self._tangent(batch)

        def cut(state: _Descent) -> _Descent:
            value, slope = tangent(state.occupancy)
            found = batch.iterated(slope, state.found.values)
            bound = value - (slope * state.occupancy).sum(axis=(0, 1)) + found.least
            _, rows = _rows(state.occupancy, found)
            # A gradient step on each row in units of what its actions differ by, and the least linear loss beside it.
            spread = jnp.ptp(found.quality, axis=1, keepdims=True)
            stepped = nearest_rows(
                rows - state.length * found.quality / jnp.where(spread > 0, spread, 1.0), batch.low, batch.high
            )
            near = batch.visits(stepped)[:, None] * stepped
            far = found.visits[:, None] * found.rows
            tried = jnp.stack(
                [losses(state.occupancy + step * (to - state.occupancy)) for to in (near, far) for step in STEPS]
            )
            best = jnp.argmin(tried, axis=0)
            step = jnp.where(tried.min(axis=0) < value, jnp.asarray(STEPS)[best % len(STEPS)], 0.0)
            to = jnp.where(best < len(STEPS), near, far)
            # Accepted whole, a step may be longer; cut short or refused, it was too long.
            length = jnp.where(
                (best == 0) & (step > 0.0), 2.0 * state.length, jnp.where(step < 0.5, 0.5 * state.length, state.length)
            )
            moved = state.occupancy + step * (to - state.occupancy)
            return _Descent(state.cuts + 1, moved, length, jnp.maximum(state.bound, bound), value, found)

        def unfinished(state: _Descent) -> Array:
            return (state.cuts < CUTS) & jnp.any(state.value - state.bound > CONVEX_GAP * jnp.abs(state.value))

        first = batch.iterated(batch.tiled(self.cost), values)
        nothing, ones = jnp.full(first.least.shape, -jnp.inf), jnp.ones(first.least.shape)
        state = _Descent(0, first.visits[:, None] * first.rows, ones, nothing, ones, first)
        state = lax.while_loop(unfinished, cut, cut(state))
        visits, rows = _rows(state.occupancy, state.found)
        return state.found._replace(least=state.bound, rows=rows, visits=visits)

    def losses(self, batch: _Batch) -> Callable[[Array], Array]:
        """Of each model by itself."""
        values, cost = jax.vmap(self._loss, in_axes=-1), batch.tiled(self.cost)
        return lambda occupancy: values(occupancy, batch.probability, cost)

    def _tangent(self, batch: _Batch) -> Callable[[Array], tuple[Array, Array]]:
        """Losses with their derivatives."""
        slopes = jax.vmap(jax.value_and_grad(self._loss), in_axes=-1, out_axes=(0, -1))
        cost = batch.tiled(self.cost)
        return lambda occupancy: slopes(occupancy, batch.probability, cost)

    def _loss(self, occupancy: Array, moves: Array, paid: Array) -> Array:
        models = self.models
        mdp = MDP(Kernel(models.support, moves), paid, models.start, models.discount)
        return jnp.asarray(self.loss(occupancy, mdp))


def _rows(occupancy: Float[Array, "S A M"], found: Relaxed) -> tuple[Array, Array]:
    """Visits and rows of an occupancy; of a state that it does not meet, those that were found."""
    visits = occupancy.sum(axis=1)
    met = visits > 0
    return visits, jnp.where(met[:, None], occupancy / jnp.where(met, visits, 1.0)[:, None], found.rows)


class _Descent(NamedTuple):
    """A descent on a convex loss in all boxes and models at once."""

    cuts: int | Array
    occupancy: Float[Array, "S A M"]
    length: Float[Array, " M"]
    bound: Float[Array, " M"]
    value: Float[Array, " M"]
    found: Relaxed


class _Batch:
    """N boxes of R models each, as `M = N R` models side by side."""

    def __init__(self, models: Models, low: Float[Array, "N S A"], high: Float[Array, "N S A"]):
        self.models, self.boxes, self.draws = models, low.shape[0], models.probability.shape[-1]
        self.probability = self.tiled(models.probability)
        self.low, self.high = (jnp.repeat(jnp.moveaxis(end, 0, -1), self.draws, axis=-1) for end in (low, high))
        self.start = jnp.broadcast_to(models.start[:, None], (models.start.shape[0], self.boxes * self.draws))

    def tiled(self, array: Array) -> Array:
        """The models once for each box."""
        return jnp.tile(array, (1,) * (array.ndim - 1) + (self.boxes,))

    def quality(self, cost: Array, values: Array) -> Array:
        """`c + discount P v`."""
        return cost + self.models.discount * pull_batch(self.models.support, self.probability, values)

    def iterated(self, cost: Float[Array, "S A M"], values: Float[Array, "S M"]) -> Relaxed:
        """Policy iteration from the greedy rows of these values, models of all boxes on the last axis."""
        models = self.models
        largest = jnp.abs(cost).max(axis=(0, 1)) / (1.0 - models.discount)

        def improve(state: tuple) -> tuple:
            count, rows, *_ = state
            prepared = models.solver.prepare(models.support, self.probability, rows, models.discount)
            values = models.solver.adjoint(prepared, (rows * cost).sum(axis=1))
            visits = models.solver.forward(prepared, self.start)
            quality = self.quality(cost, values)
            greedy = cheapest_rows(quality, self.low, self.high)
            residual = ((greedy * quality).sum(axis=1) - values).min(axis=0)
            return count + 1, greedy, rows, values, quality, visits, residual

        def unfinished(state: tuple) -> Array:
            return (state[0] < MOST_IMPROVEMENTS) & jnp.any(state[-1] < -RESIDUAL * largest)

        rows = cheapest_rows(self.quality(cost, values), self.low, self.high)
        state = lax.while_loop(unfinished, improve, improve((0, rows)))
        _, _, rows, values, quality, visits, residual = state
        return Relaxed(self.proved(cost, values, residual), values, rows, quality, visits)

    @jitted
    def proved(self, cost: Array, values: Array, residual: Array) -> Float[Array, " M"]:
        """The bound that values and their residual prove, rounding taken off."""
        models = self.models
        rounding = hidden(models.support, jnp.abs(values).max(axis=0) + jnp.abs(cost).max(axis=(0, 1)))
        return (self.start * values).sum(axis=0) + (jnp.minimum(residual, 0.0) - rounding) / (1.0 - models.discount)

    def visits(self, rows: Float[Array, "S A M"]) -> Float[Array, "S M"]:
        """How often each model meets a state under its own table."""
        models = self.models
        prepared = models.solver.prepare(models.support, self.probability, rows, models.discount)
        return models.solver.forward(prepared, self.start)

    def packed(self, array: Float[Array, "N ... R"]) -> Float[Array, "... M"]:
        """Boxes and models on one axis, the last."""
        moved = jnp.moveaxis(array, 0, -2)
        return moved.reshape(*moved.shape[:-2], self.boxes * self.draws)

    def apart(self, array: Float[Array, "... M"]) -> Float[Array, "N ... R"]:
        """Boxes in front and models last."""
        return jnp.moveaxis(array.reshape(*array.shape[:-1], self.boxes, self.draws), -2, 0)


def hidden(support: Support, size: Any) -> Any:
    """What rounding may hide in the residual of values and costs of a size together.

    Of the sums behind the residual, of rows that do not sum to 1 exactly, and of the product with the start.
    """
    return EPSILON * (4 * (support.successors + support.actions + 8) + support.states) * size


def cheapest_rows(cost: Float[Array, "S A M"], low: Float[Array, "S A M"], high: Float[Array, "S A M"]) -> Array:
    """The rows of least cost between the bounds: the cheapest actions filled up first; of equal ones, the first."""
    actions, room = cost.shape[1], high - low
    left = 1.0 - low.sum(axis=1)
    rows = []
    for a in range(actions):
        # Comparing in pairs is a handful of passes over the batch; sorting rows of four is many times slower in XLA.
        cheaper = jnp.zeros_like(left)
        for b in range(actions):
            if b != a:
                before = cost[:, b] < cost[:, a] if b > a else cost[:, b] <= cost[:, a]
                cheaper = cheaper + jnp.where(before, room[:, b], 0.0)
        rows.append(low[:, a] + jnp.clip(left - cheaper, 0.0, room[:, a]))
    return jnp.stack(rows, axis=1)


def nearest_rows(rows: Float[Array, "S A M"], low: Float[Array, "S A M"], high: Float[Array, "S A M"]) -> Array:
    """The nearest rows between the bounds that sum to 1: shifted by a number and clipped, the number by halving."""

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        below, above = ends
        middle = 0.5 * (below + above)
        short = jnp.clip(rows + middle[:, None], low, high).sum(axis=1) < 1.0
        return jnp.where(short, middle, below), jnp.where(short, above, middle)

    ends = ((low - rows).min(axis=1), (high - rows).max(axis=1))
    _, above = lax.fori_loop(0, HALVINGS, halve, ends)
    found = jnp.clip(rows + above[:, None], low, high)
    return found / found.sum(axis=1, keepdims=True)
