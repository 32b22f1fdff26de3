"""The one place that maps models: pairs of a point and a draw, in chunks of a shape that depends on neither."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int

from ..arrays import Array, in_float64
from .base import Losses, Objective

# A chunk of models: in the inner cache where that is faster, else bounded by memory.
CHUNK_MODELS = 512
CHUNK_BYTES = {True: 4 * 2**20, False: 64 * 2**20}

# Each size of a chunk is compiled for itself. Chunks in the cache have one size, because a whole one takes some
# milliseconds and another compilation seconds. Others are divided by this number, down to these bytes, until models
# that fill a chunk up are at most this share of those asked for.
DIVISION, LEAST_BYTES, MOST_FILLED = 4, 2**20, 0.5

Executor = Callable[[Callable[..., Any], Iterable[Any]], Iterator[Any]]
"""How chunks are mapped: `map`, or anything of its kind, such as the `map` of a pool."""


class ModelSlopes(NamedTuple):
    """Losses of M models and their derivatives by their points.

    Attributes:
        losses: of each.
        slopes: `dC/dpoint`.
        visits: of the rows of a table; empty without one.
    """

    losses: Float[np.ndarray, " M"]
    slopes: Float[np.ndarray, "M ..."]
    visits: Float[np.ndarray, "M S"]


class Chunk(NamedTuple):
    """Models that are worked on together; filled up with repeats, because a shorter chunk would be compiled again."""

    points: Float[np.ndarray, "N ..."]
    thetas: np.ndarray
    kept: int


def chunk_size(objective: Objective) -> int:
    """How many models a compiled function takes at once, at most."""
    size = objective.size()
    return int(np.clip(CHUNK_BYTES[size.cached] // size.bytes, 1, CHUNK_MODELS))


def chunk_sizes(objective: Objective, models: int) -> list[int]:
    """The sizes of the chunks that so many models are worked on in: few different ones, whatever their number."""
    size, largest = objective.size(), chunk_size(objective)
    rest = models % largest
    whole = [largest] * (models // largest)
    if rest == 0:
        return whole
    least = largest if size.cached else max(1, min(largest, LEAST_BYTES // size.bytes))
    last = largest
    while last > least and -(-rest // last) * last - rest > MOST_FILLED * models:
        last = max(1, last // DIVISION)
    return whole + [last] * -(-rest // last)


def _chunks(
    objective: Objective, points: np.ndarray, thetas: np.ndarray, which: np.ndarray, draws: np.ndarray
) -> Iterator[Chunk]:
    models, begin = len(which), 0
    for size in chunk_sizes(objective, models):
        rows = np.minimum(np.arange(begin, begin + size), models - 1)
        yield Chunk(points[which[rows]], objective.arrange(thetas[draws[rows]]), min(size, models - begin))
        begin += size


def _mapped(
    function: Callable[..., Any],
    objective: Objective,
    points: np.ndarray,
    thetas: np.ndarray,
    which: Int[np.ndarray, " M"],
    draws: Int[np.ndarray, " M"],
    executor: Executor,
) -> Iterator[Any]:
    """What a compiled function makes of point `which[m]` at draw `draws[m]`, chunk by chunk."""

    @in_float64  # by thread, and an executor may have threads of its own
    def work(chunk: Chunk) -> Any:
        found = function(objective, chunk.points, chunk.thetas)
        return jax.tree.map(lambda part: np.asarray(part)[: chunk.kept], found)

    return executor(work, _chunks(objective, points, thetas, which, draws))


def losses_on(
    objective: Objective,
    points: Float[np.ndarray, "K ..."],
    thetas: Float[np.ndarray, "R ..."],
    executor: Executor = map,
) -> Float[np.ndarray, "K R"]:
    """`C(point_k, theta_r)` of all pairs."""
    which, draws = np.divmod(np.arange(len(points) * len(thetas)), len(thetas))
    parts = list(_mapped(_losses, objective, points, thetas, which, draws, executor))
    return np.concatenate(parts).reshape(len(points), len(thetas))


def slopes_on(
    objective: Objective,
    points: Float[np.ndarray, "K ..."],
    thetas: Float[np.ndarray, "R ..."],
    which: Int[np.ndarray, " M"],
    draws: Int[np.ndarray, " M"],
    executor: Executor = map,
) -> ModelSlopes:
    """Losses and derivatives of M models: point `which[m]` at draw `draws[m]`."""
    columns = zip(*_mapped(_slopes, objective, points, thetas, which, draws, executor), strict=True)
    return ModelSlopes(*(np.concatenate(column) for column in columns))


def mean_visits(
    objective: Objective,
    point: Float[np.ndarray, ...],
    thetas: Float[np.ndarray, "M ..."],
    shares: Float[np.ndarray, "K M"],
    executor: Executor = map,
) -> Float[np.ndarray, "K S"]:
    """Visits of a table's rows, averaged over draws under K sets of weights; only of an objective that has a table."""
    which, draws = np.zeros(len(thetas), int), np.arange(len(thetas))
    total, begin = 0.0, 0
    for visits in _mapped(_visits, objective, point[None], thetas, which, draws, executor):
        total = total + shares[:, begin : begin + len(visits)] @ visits
        begin += len(visits)
    return np.asarray(total)


@eqx.filter_jit
def _visits(objective: Objective, points: Float[Array, "N ..."], thetas: Array) -> Any:
    return objective.losses(points, thetas).visits


@eqx.filter_jit
def _losses(objective: Objective, points: Float[Array, "N ..."], thetas: Array) -> Float[Array, " N"]:
    return objective.losses(points, thetas).losses


@eqx.filter_jit
def _slopes(objective: Objective, points: Float[Array, "N ..."], thetas: Array) -> tuple[Array, Array, Array]:
    def total(points: Array) -> tuple[Array, Losses]:
        found = objective.losses(points, thetas)
        # Each model has a point of its own, so the gradient of the sum holds every model's.
        return found.losses.sum(), found

    slopes, (losses, visits) = jax.grad(total, has_aux=True)(points)
    return losses, slopes, losses[:, None][:, :0] if visits is None else visits


@eqx.filter_jit
def point_at(objective: Objective, parameters: Any) -> Float[Array, ...]:
    """The point of one parameter set, compiled."""
    return objective.point(parameters)
