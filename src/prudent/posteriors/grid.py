"""Exact posteriors of one or two unknown numbers, from the family's own kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..arrays import Array, as_float, filled_blocks, in_float64, require_finite, require_size
from ..errors import InputError
from ..records import field
from ..transitions import Likelihood, joined, likelihood_of
from .base import Invertible

# The density, as a part of the largest, below which the grid leaves cells out.
LEFT_OUT = 1e-12

# A grid is drawn again around the mass while that narrows a side to less than this part of it.
WORTH_ZOOMING, MOST_ZOOMS = 0.9, 100

# Fewer cells than this (the exponential of the entropy) cannot show the shape of a marginal.
FEWEST_CELLS = 8

# Kernels evaluated at once.
BATCH_BYTES = 16 * 2**20


class Grid(Invertible):
    """The posterior of a theta of one or two numbers, computed on a grid of cells: no conjugacy, no sampler.

    The density is proportional to `prior(theta) prod_k P_theta(s'_k | s_k, a_k)^count_k` within the box and constant
    on each cell, with its value at the cell's middle. It is 0 where the family's kernel is not a proper one, so
    the box may be larger than the domain of theta. The grid finds the mass by itself: it is drawn again
    around the cells that hold all but about 1e-12 of it, until they fill the grid.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake()
    >>> log = pr.Transitions.from_records([(6, 1, 11), (6, 1, 5), (2, 1, 2)], states=25, actions=4)
    >>> belief = pr.Grid(lake, low=[0, 0], high=[1, 1], log=log)
    >>> belief.mean().round(3).tolist()  # as Beta(2, 2) and Beta(1, 2)
    [0.5, 0.333]
    >>> belief.quantile([0.05, 0.95]).round(3).tolist()
    [[0.135, 0.025], [0.865, 0.776]]

    Attributes:
        family: the family of models, tables or others with a likelihood of their own.
        low, high: `[D]` the box theta lies in.
        log: what was observed, merged; None for the prior.
        prior: log-density of theta up to a constant, `[D] -> number`, traceable by JAX; uniform when None.
        cells: cells along each coordinate.
        corners: `[2, D]` the part of the box the cells cover.
        weights: `[C]` or `[C, C]` the mass of each cell.
    """

    family: Any
    low: Float[Array, " D"]
    high: Float[Array, " D"]
    log: Any
    prior: Callable[[Any], Any] | None
    cells: int = field(static=True)
    corners: Float[Array, "2 D"]
    weights: Float[Array, " *C"]

    @in_float64
    def __init__(
        self,
        family: Any,
        low: Any,
        high: Any,
        log: Any = None,
        prior: Callable[[Any], Any] | None = None,
        cells: int = 200,
    ):
        likelihood = likelihood_of(family, log)
        self.family, self.log, self.prior = family, log, prior
        self.low, self.high = _check_box(low, high)
        self.cells = require_size("cells", cells, FEWEST_CELLS)
        if prior is not None and not callable(prior):
            raise InputError(f"prior must be a function theta -> log-density, or None for a uniform one, got {prior!r}")
        likelihood.check((self.low + self.high) / 2.0)
        density = _Density(prior, likelihood, self.cells)
        corners, values = density.zoom(np.stack([self.low, self.high]))
        weights = np.exp(values.middle - values.middle.max())
        weights /= weights.sum()
        self.corners, self.weights = corners, weights
        _require_resolved(self._marginals(), self.cells)

    def update(self, log: Any) -> Grid:
        """Add the counts of a log; updates in any order and split give the same posterior."""
        return Grid(self.family, self.low, self.high, joined(self.family, self.log, log), self.prior, self.cells)

    def _edges(self) -> Float[np.ndarray, "D E"]:
        low, high = np.asarray(self.corners)
        return np.linspace(low, high, self.cells + 1, axis=1)

    def _marginals(self) -> list[Float[np.ndarray, " C"]]:
        weights = np.asarray(self.weights)
        return [weights] if weights.ndim == 1 else [weights.sum(axis=1), weights.sum(axis=0)]

    def mean(self) -> Float[np.ndarray, " D"]:
        """Posterior mean of theta."""
        edges = self._edges()
        return np.array([m @ (e[1:] + e[:-1]) / 2.0 for m, e in zip(self._marginals(), edges, strict=True)])

    def quantile(self, levels: Any) -> Float[np.ndarray, ...]:
        """Quantiles of each coordinate by itself: the shape of `levels`, then `[D]`."""
        levels = np.asarray(as_float(levels, "levels"))
        if not np.all((levels >= 0) & (levels <= 1)):
            raise InputError(f"levels must lie in [0, 1], got {levels.tolist()}")
        row = np.zeros(levels.size, dtype=int)
        parts = [
            _invert(m[None], row, levels.ravel(), e)[0] for m, e in zip(self._marginals(), self._edges(), strict=True)
        ]
        return np.stack(parts, axis=-1).reshape(*levels.shape, -1)

    @in_float64
    def maximum_likelihood(self) -> Float[np.ndarray, " D"]:
        """Where within the box the likelihood is largest, whatever the prior; refined far beyond the cells."""
        if self.log is None:
            raise InputError("no transition seen: maximum likelihood needs data; use mean()")
        density = _Density(None, likelihood_of(self.family, self.log), self.cells)
        return density.argmax(np.stack([self.low, self.high]))

    def draw(self, generator: np.random.Generator, n: int) -> Float[np.ndarray, "N D"]:
        """`n` draws: cells by their mass, and uniform points within them."""
        return self.from_uniform(generator.random((n, self.uniform_dimension)))

    @property
    def uniform_dimension(self) -> int:
        """`D`."""
        return len(self.low)

    def from_uniform(self, uniforms: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
        """The first coordinate's quantile, then the second's given the first's cell."""
        edges, row = self._edges(), np.zeros(len(uniforms), dtype=int)
        first, cell = _invert(self._marginals()[0][None], row, uniforms[:, 0], edges[0])
        if len(edges) == 1:
            return first[:, None]
        second, _ = _invert(np.asarray(self.weights), cell, uniforms[:, 1], edges[1])
        return np.stack([first, second], axis=1)


def _invert(
    mass: Float[np.ndarray, "R C"],
    row: Int[np.ndarray, " N"],
    level: Float[np.ndarray, " N"],
    edges: Float[np.ndarray, " E"],
) -> tuple[Float[np.ndarray, " N"], Int[np.ndarray, " N"]]:
    """Quantiles of densities constant on cells, each of the row named, and the cells they are in."""
    rows, cells = mass.shape
    total = mass.sum(axis=1, keepdims=True)
    mass = mass / np.where(total > 0, total, 1.0)
    above = np.cumsum(mass, axis=1)
    # All rows behind one another are one increasing list.
    level = np.clip(level, 0.0, 1.0 - 2.0**-44)
    cell = np.searchsorted((above + np.arange(rows)[:, None]).ravel(), row + level, side="right") - row * cells
    cell = np.clip(cell, 0, cells - 1)
    own = mass[row, cell]
    part = (level - (above[row, cell] - own)) / np.where(own > 0, own, 1.0)
    return edges[cell] + np.clip(part, 0.0, 1.0) * (edges[cell + 1] - edges[cell]), cell


class _Values(NamedTuple):
    """Log-densities at the cells' middles and corners, -inf where the kernel is not a proper one."""

    middle: np.ndarray
    corner: np.ndarray


class _Density:
    """A log-density on grids over any box; every box goes through the same compiled function."""

    def __init__(self, prior: Callable[[Any], Any] | None, likelihood: Likelihood, cells: int):
        self.prior, self.likelihood, self.cells = prior, likelihood, cells
        self.batch = max(1, BATCH_BYTES // likelihood.bytes)

    def at(self, box: Float[np.ndarray, "2 D"]) -> _Values:
        corner = [np.linspace(low, high, self.cells + 1) for low, high in box.T]
        middle = [(edges[1:] + edges[:-1]) / 2.0 for edges in corner]
        grids = [np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1) for axes in (middle, corner)]
        points = np.concatenate([grid.reshape(-1, box.shape[1]) for grid in grids])
        likelihood, proper = self._likelihoods(points)
        prior = np.zeros(len(points)) if self.prior is None else _priors(self.prior, points)
        inside = np.arange(len(points)) < self.cells ** box.shape[1]
        _check_prior(prior[inside], points[inside])
        value = np.where(proper & (prior < np.inf), prior + likelihood, -np.inf)
        value, proper = ([part[inside], part[~inside]] for part in (value, proper))
        # A cell is used when all of it is in the family's domain, so that no draw is out of it.
        usable = _all_corners(proper[1].reshape(grids[1].shape[:-1]))
        middle_value = np.where(usable, value[0].reshape(usable.shape), -np.inf)
        if not np.any(middle_value > -np.inf):
            reason = (
                "the prior or the likelihood is 0 at every cell: the log cannot have come from a theta in the box"
                if np.any(usable)
                else "the family has nowhere a proper model (of tables: probabilities >= 0 that sum to 1)"
            )
            raise InputError(f"in the box from {box[0].tolist()} to {box[1].tolist()}, {reason}; move or widen the box")
        return _Values(middle_value, np.nan_to_num(value[1], nan=-np.inf).reshape(grids[1].shape[:-1]))

    def _likelihoods(self, points: Float[np.ndarray, "N D"]) -> list[np.ndarray]:
        """The logarithms, and whether there is a model, batch by batch."""
        blocks = range(0, len(points), self.batch)
        parts = [self.likelihood.values(points[begin : begin + self.batch]) for begin in blocks]
        return [np.concatenate(part) for part in zip(*parts, strict=True)]

    def zoom(self, box: Float[np.ndarray, "2 D"]) -> tuple[Float[np.ndarray, "2 D"], _Values]:
        """The smallest box that holds the mass, and the values on its grid."""
        values = self.at(box)
        for _ in range(MOST_ZOOMS):
            closer = self._around(box, _may_matter(values.middle))
            if np.all(closer[1] - closer[0] > WORTH_ZOOMING * (box[1] - box[0])):
                break
            box, values = closer, self.at(closer)
        return box, values

    def argmax(self, box: Float[np.ndarray, "2 D"]) -> Float[np.ndarray, " D"]:
        values = self.at(box)
        for axis in range(box.shape[1]):
            profile = np.moveaxis(values.middle, axis, 0).reshape(self.cells, -1).max(axis=1)
            # Where the box is larger than theta's domain, or the likelihood is 0, there is no number to compare.
            inside = profile[np.isfinite(profile)]
            if np.ptp(inside) <= 1e-12 * max(1.0, np.abs(inside).max()):
                raise InputError(
                    f"the log says nothing of coordinate {axis}: maximum likelihood needs data; use mean()"
                )
        start = box[1] - box[0]
        box, values = self.zoom(box)
        while np.any(box[1] - box[0] > 1e-11 * start):
            closer = self._around(box, values.middle == values.middle.max())
            if np.all(closer == box):
                break
            box, values = closer, self.at(closer)
        # Corners reach the sides of the box, where a rate never seen has its maximum.
        corner = np.unravel_index(int(np.argmax(values.corner)), values.corner.shape)
        middle = np.unravel_index(int(np.argmax(values.middle)), values.middle.shape)
        step = (box[1] - box[0]) / self.cells
        if values.corner.max() > values.middle.max():
            return np.clip(box[0] + np.array(corner) * step, box[0], box[1])
        return box[0] + (np.array(middle) + 0.5) * step

    def _around(self, box: Float[np.ndarray, "2 D"], kept: Bool[np.ndarray, " *C"]) -> Float[np.ndarray, "2 D"]:
        """The box of the cells kept and one more on each side."""
        step = (box[1] - box[0]) / self.cells
        place = np.argwhere(kept)
        low = np.where(place.min(axis=0) > 1, box[0] + (place.min(axis=0) - 1) * step, box[0])
        high = np.where(place.max(axis=0) < self.cells - 2, box[0] + (place.max(axis=0) + 2) * step, box[1])
        return np.stack([low, high])


def _priors(prior: Callable[[Any], Any], points: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
    """Return a user's log-density at each point."""
    from ..autodiff import mapped  # imports JAX

    values = np.concatenate([mapped(prior, points[block])[:few] for block, few in filled_blocks(len(points))])
    if values.ndim != 1:
        raise InputError(f"the prior must give one number, the log-density of theta; got shape {values.shape[1:]}")
    return values


def _all_corners(corner: Bool[np.ndarray, " *E"]) -> Bool[np.ndarray, " *C"]:
    """Which cells have all their corners marked."""
    for axis in range(corner.ndim):
        corner = np.delete(corner, 0, axis) & np.delete(corner, -1, axis)
    return corner


def _may_matter(value: Float[np.ndarray, " *C"]) -> Bool[np.ndarray, " *C"]:
    """Cells that may hold mass, on a grid that may be too coarse to show the peaks.

    Between middles a parabola rises above them by up to an eighth of its second difference; half of it is
    allowed for. Once the grid is fine the allowance vanishes.
    """
    peak = value.copy()
    for axis in range(value.ndim):
        with np.errstate(invalid="ignore"):
            bend = np.abs(np.diff(value, n=2, axis=axis))
        width = [(1, 1) if other == axis else (0, 0) for other in range(value.ndim)]
        peak += 0.5 * np.pad(np.where(np.isfinite(bend), bend, 0.0), width, mode="edge")
    return peak > value.max() + np.log(LEFT_OUT)


def _require_resolved(marginals: list[Float[np.ndarray, " C"]], cells: int) -> None:
    for axis, mass in enumerate(marginals):
        used = float(np.exp(-(mass[mass > 0] * np.log(mass[mass > 0])).sum()))
        if used < FEWEST_CELLS:
            enough = int(np.ceil(4 * FEWEST_CELLS * cells / used))
            raise InputError(
                f"the mass sits in about {used:.1f} of {cells} cells along coordinate {axis}, too few to show its "
                f"shape; use cells={enough}, or a box around one of its peaks"
            )


def _check_box(low: Any, high: Any) -> tuple[np.ndarray, np.ndarray]:
    low, high = np.asarray(as_float(low, "low")), np.asarray(as_float(high, "high"))
    if low.ndim != 1 or low.shape != high.shape:
        raise InputError(
            f"low and high are lists, a number for each coordinate; got shapes {low.shape} and {high.shape}"
        )
    if len(low) not in (1, 2):
        raise InputError(f"a grid is for a theta of 1 or 2 numbers, got a box of {len(low)}; use MCMC.run(...)")
    require_finite("low", low)
    require_finite("high", high)
    if not np.all(low < high):
        where = int(np.argmax(low >= high))
        raise InputError(f"low must be below high, got {low[where]} and {high[where]} for coordinate {where}")
    return low, high


def _check_prior(value: Float[np.ndarray, " N"], points: Float[np.ndarray, "N D"]) -> None:
    bad = np.isnan(value) | (value == np.inf)
    if bad.any():
        where = int(np.argmax(bad))
        raise InputError(
            f"the prior's log-density is {value[where]} at theta = {points[where].tolist()}; give finite values (-inf "
            "for a density of 0), or a box within its domain"
        )
