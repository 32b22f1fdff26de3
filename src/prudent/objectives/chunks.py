"""The one place that maps models: pairs of a point and a draw, in chunks of a shape that depends on neither."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..arrays import filled_blocks
from ..records import tree_map
from ..workers import mapped, workers
from .base import Losses, ModelSlopes, Objective

# A chunk of models: in the inner cache where that is faster, else bounded by memory.
CHUNK_MODELS = 1024
CHUNK_BYTES = {True: 4 * 2**20, False: 64 * 2**20}


class Chunk(NamedTuple):
    """Models that are worked on together, each with a point and a draw of its own."""

    points: Float[np.ndarray, "N ..."]
    thetas: np.ndarray


def chunk_size(objective: Objective) -> int:
    """Return how many models are worked on together, at most: a power of two."""
    size = objective.size()
    most = CHUNK_BYTES[size.cached] // size.bytes
    return 1 << int(np.clip(most, 1, CHUNK_MODELS)).bit_length() - 1


def _chunks(
    objective: Objective, points: np.ndarray, thetas: np.ndarray, which: np.ndarray, draws: np.ndarray
) -> Iterator[Chunk]:
    size = chunk_size(objective)
    for begin in range(0, len(which), size):
        rows = slice(begin, begin + size)
        yield Chunk(_rows_of(points, which[rows]), thetas[draws[rows]])


def _rows_of(points: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Return the points of a chunk, models last in memory; without copies where all are one."""
    if len(points) == 1:
        return np.broadcast_to(points, (len(which), *points.shape[1:]))
    return np.moveaxis(np.moveaxis(points, 0, -1).take(which, axis=-1), -1, 0)


def _mapped(
    function: Callable[[Objective, Chunk], Any],
    objective: Objective,
    points: np.ndarray,
    thetas: np.ndarray,
    which: Int[np.ndarray, " M"],
    draws: Int[np.ndarray, " M"],
) -> Iterator[Any]:
    """What a function makes of point `which[m]` at draw `draws[m]`, chunk by chunk."""
    chunks = _chunks(objective, points, thetas, which, draws)
    # One chunk at a time where they are worked on here: together they may be larger than memory.
    return mapped(function, objective, list(chunks)) if workers() > 1 else (function(objective, c) for c in chunks)


def _losses_of(objective: Objective, chunk: Chunk) -> Losses:
    found = objective.on_host(chunk.points, chunk.thetas, sloped=False)
    return _computed("losses", objective, chunk) if found is None else Losses(found.losses, found.visits)


def _slopes_of(objective: Objective, chunk: Chunk) -> ModelSlopes:
    found = objective.on_host(chunk.points, chunk.thetas, sloped=True)
    return _computed("slopes", objective, chunk) if found is None else found


def _replicates_of(objective: Objective, chunk: Chunk) -> Float[np.ndarray, "N B"]:
    return _computed("replicates", objective, chunk)


def _computed(name: str, objective: Objective, chunk: Chunk) -> Any:
    """Return what a compiled function makes of a chunk, in batches of the few sizes that it is compiled for."""
    from . import compiled  # imports JAX

    function, parts = getattr(compiled, name), []
    for block, few in filled_blocks(len(chunk.points)):
        found = function(objective, chunk.points[block], chunk.thetas[block])
        parts.append(tree_map(lambda part, few=few: part[:few], found))
    return tree_map(lambda *each: np.concatenate(each), *parts)


def losses_on(
    objective: Objective,
    points: Float[np.ndarray, "K ..."],
    thetas: Float[np.ndarray, "R ..."],
) -> Float[np.ndarray, "K R"]:
    """Return `C(point_k, theta_r)` of all pairs."""
    which, draws = np.divmod(np.arange(len(points) * len(thetas)), len(thetas))
    return losses_of_pairs(objective, points, thetas, which, draws).reshape(len(points), len(thetas))


def losses_of_pairs(
    objective: Objective,
    points: Float[np.ndarray, "K ..."],
    thetas: Float[np.ndarray, "R ..."],
    which: Int[np.ndarray, " M"],
    draws: Int[np.ndarray, " M"],
) -> Float[np.ndarray, " M"]:
    """Return the losses of M models: point `which[m]` at draw `draws[m]`."""
    own = objective.averages()
    if own is None:
        parts = [found.losses for found in _mapped(_losses_of, objective, points, thetas, which, draws)]
        return _less_offsets(objective, thetas, draws, np.concatenate(parts))
    found, every = np.empty(len(which)), np.arange(len(thetas))
    for k in np.unique(which):
        rows = which == k
        found[rows] = own.losses(points[k], thetas if np.array_equal(draws[rows], every) else thetas[draws[rows]])
    return found


def _less_offsets(
    objective: Objective, thetas: Float[np.ndarray, "R ..."], draws: Int[np.ndarray, " M"], losses: np.ndarray
) -> Float[np.ndarray, " M"]:
    """Return losses less what is taken off at each draw, where anything is."""
    offsets = objective.offsets(thetas)
    return losses if offsets is None else losses - offsets[draws]


def slopes_on(
    objective: Objective,
    points: Float[np.ndarray, "K ..."],
    thetas: Float[np.ndarray, "R ..."],
    which: Int[np.ndarray, " M"],
    draws: Int[np.ndarray, " M"],
) -> ModelSlopes:
    """Losses and derivatives of M models: point `which[m]` at draw `draws[m]`."""
    columns = zip(*_mapped(_slopes_of, objective, points, thetas, which, draws), strict=True)
    found = ModelSlopes(*(np.concatenate(column) for column in columns))
    return found._replace(losses=_less_offsets(objective, thetas, draws, found.losses))


def replicates_on(
    objective: Objective, point: Float[np.ndarray, ...], thetas: Float[np.ndarray, "R ..."]
) -> tuple[Float[np.ndarray, " R"], Float[np.ndarray, "B R"]]:
    """Losses of one point on chance of their own, and without each of its batches; of an objective by chance only."""
    which, draws = np.zeros(len(thetas), int), np.arange(len(thetas))
    found = np.concatenate(list(_mapped(_replicates_of, objective, point[None], thetas, which, draws))).T
    return found[0], found[1:]


def mean_visits(
    objective: Objective,
    point: Float[np.ndarray, ...],
    thetas: Float[np.ndarray, "M ..."],
    shares: Float[np.ndarray, "K M"],
) -> Float[np.ndarray, "K S"]:
    """Visits of a table's rows, averaged over draws under K sets of weights; only of an objective that has a table."""
    which, draws = np.zeros(len(thetas), int), np.arange(len(thetas))
    total, begin = 0.0, 0
    for _, visits in _mapped(_losses_of, objective, point[None], thetas, which, draws):
        total = total + shares[:, begin : begin + len(visits)] @ visits
        begin += len(visits)
    return np.asarray(total)


def point_at(objective: Objective, parameters: Any) -> Float[np.ndarray, ...]:
    """The point of one parameter set."""
    return np.asarray(objective.points(tree_map(lambda leaf: np.asarray(leaf)[None], parameters)))[0]
