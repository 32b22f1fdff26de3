"""Risks that look at the order of the losses alone: expectation, CVaR, worst case, spectra, distortions, quantiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from ..arrays import Array, as_float, as_number, float64, is_concrete, is_traced, namespace_of, require_finite
from ..conformance import explained
from ..errors import InputError, hinted
from ..records import field
from ..settings import number
from .base import ConcaveRisk, OfEach, Risk, Sample, Samples

# What a level means, and what to do beyond it.
LEVEL, BEYOND = "0 is the mean, 0.9 is for the worst tenth", "use WorstCase() for the limit 1."

# Up to this many losses, comparing all pairs is faster than sorting them.
LARGEST_PAIRWISE = 64

# The derivative of a distortion is found by differences this long, as a share of the distance to 0 or 1.
DISTORTION_STEP = 1e-6

# Below this many draws under the window, the spacings between them say too little of the spread.
FEWEST_DRAWS = 10.0


class Expectation(ConcaveRisk):
    """The posterior mean: risk neutral.

    >>> import prudent as pr
    >>> float(pr.Expectation()([1.0, 2.0, 6.0]).value)
    3.0
    """

    def density(self, losses: Samples, probabilities: Samples) -> Samples:
        """1 everywhere."""
        return namespace_of(losses).ones_like(losses)

    def influence(self, losses: Sample, probabilities: Sample) -> Sample:
        """The loss."""
        return losses


@hinted
class CVaR(ConcaveRisk):
    """Conditional value at risk: the mean of the worst `1 - level` share, cut exactly.

    The draw at the quantile counts with the fraction that fills the tail; equal losses share alike.
    `level = 0` is the expectation.

    >>> import prudent as pr
    >>> round(float(pr.CVaR(0.5)([1.0, 2.0, 6.0]).value), 6)  # worst 1.5 of 3 draws: (6 + 2 / 2) / 1.5
    4.666667
    """

    level: Float[Array, "*batch"] = field(converter=as_number, default=0.9, metadata=number("[0, 1)", LEVEL, BEYOND))

    def density(self, losses: Samples, probabilities: Samples) -> Samples:
        """`clip((tail - mass above) / mass at the same loss, 0, 1) / tail` with `tail = 1 - level`."""
        return tail_density(1.0 - self.level[..., None], losses, probabilities)

    def influence(self, losses: Sample, probabilities: Sample) -> Sample:
        """`(C - q)^+ / tail` at the quantile q; the derivative of `clip` hangs on rounding where the tail is whole."""
        return tail_influence(1.0 - self.level, losses, probabilities)


class WorstCase(ConcaveRisk):
    """The largest loss among draws of positive weight; the limit of CVaR as its level goes to 1.

    >>> import prudent as pr
    >>> pr.WorstCase()([1.0, 6.0, 6.0]).weights.tolist()
    [0.0, 1.5, 1.5]
    """

    def density(self, losses: Samples, probabilities: Samples) -> Samples:
        """All mass on the worst draws, shared in proportion to their weights."""
        return worst_density(losses, probabilities)

    def influence(self, losses: Sample, probabilities: Sample) -> Sample:
        """NaN: a sample's maximum only bounds the worst case from below, and has no standard error."""
        return np.full_like(losses, np.nan)


@hinted
class Spectral(ConcaveRisk):
    """`integral_0^1 phi(t) q(1 - t) dt`: losses averaged under a step spectrum phi, worst losses first.

    The spectrum must not increase (a worse loss counts no less), must not be negative and must integrate to 1.
    It is a mixture of CVaRs, one a step. For a spectrum that is not made of steps see `Distortion`.

    Args:
        heights: `[K]` height of each step, the first one for the worst losses.
        widths: `[K]` share of the draws under each step, summing to 1; equal when left out.

    >>> import prudent as pr
    >>> pr.Spectral([2.0, 1.0, 0.5], [0.25, 0.25, 0.5])([1.0, 2.0, 3.0, 6.0]).weights.tolist()
    [0.5, 0.5, 1.0, 2.0]
    """

    heights: Float[Array, "*batch K"]
    widths: Float[Array, "*batch K"]

    def __init__(self, heights: Any, widths: Any = None):
        self.heights = as_float(heights, "Spectral heights")
        pieces = max(1, self.heights.size)
        self.widths = np.full(self.heights.shape, 1.0 / pieces) if widths is None else as_float(widths, "widths")

    def __check_init__(self) -> None:
        heights, widths = self.heights, self.widths
        if heights.ndim != 1 or heights.shape[0] == 0 or heights.shape != widths.shape:
            raise InputError(
                f"Spectral needs a list of heights and as many widths, got shapes {heights.shape} and {widths.shape}"
            )
        if is_concrete(widths):
            require_finite("Spectral widths", np.asarray(widths))
            if np.any(widths <= 0) or abs(widths.sum() - 1.0) > 1e-8:
                raise InputError(f"Spectral widths must be positive and sum to 1, got {widths}; divide by the sum")
        if is_concrete(heights):
            require_finite("Spectral heights", np.asarray(heights))
            if np.any(np.diff(heights) > 0):
                raise InputError(
                    f"Spectral heights must not increase, or the risk is not coherent, got {heights}; "
                    "the first height is for the worst losses"
                )
            if heights[-1] < 0:
                raise InputError(f"Spectral heights must not be negative, got {heights}; raise the last one to 0")
        if is_concrete(heights) and is_concrete(widths) and abs(heights @ widths - 1.0) > 1e-8:
            raise InputError(f"the spectrum must integrate to 1, got {heights @ widths}; divide the heights by it")

    def density(self, losses: Samples, probabilities: Samples) -> Samples:
        """The average of the spectrum over `[mass above, mass above + mass at the same loss]`."""
        above, level = mass_above_and_level(losses, probabilities)
        tails, drops = self._steps()
        room = (tails[..., None] - above[..., None, :]) / np.where(level > 0, level, 1.0)[..., None, :]
        return (drops[..., None] * np.clip(room, 0.0, 1.0)).sum(axis=-2)

    def influence(self, losses: Sample, probabilities: Sample) -> Sample:
        """The sum of `(C - q)^+` over the quantiles at which the spectrum drops, weighted by the drop."""
        above, _ = mass_above_and_level(losses, probabilities)
        tails, drops = self._steps()
        quantiles = np.array([quantile(losses, probabilities, above, tail) for tail in tails])
        return (drops[:, None] * np.maximum(losses[None, :] - quantiles[:, None], 0.0)).sum(axis=0)

    def _steps(self) -> tuple[Any, Any]:
        """Where the spectrum drops, and by how much: `phi(t) = sum of drops at tails >= t`."""
        tails = np.cumsum(self.widths, axis=-1)
        drops = self.heights - np.concatenate([self.heights[..., 1:], np.zeros_like(self.heights[..., :1])], axis=-1)
        tails = tails / tails[..., -1:]
        return tails, drops / (drops * tails).sum(axis=-1, keepdims=True)


class Distortion(ConcaveRisk):
    """`integral g(P(C > c)) dc`: a spectrum of any shape, given by its integral g, a concave distortion.

    Args:
        function: `g: [0, 1] -> [0, 1]`, concave with g(0) = 0 and g(1) = 1, written with NumPy or `jax.numpy` so that
            it takes an array of any shape. `t -> min(t / (1 - b), 1)` is CVaR.

    >>> import numpy as np, prudent as pr
    >>> pr.Distortion(np.sqrt)([1.0, 2.0, 3.0, 6.0]).value.round(6).tolist()  # 1 + sqrt(3/4) + sqrt(2/4) + 3 sqrt(1/4)
    4.073132
    """

    function: Callable[[Any], Any] = field(static=True)

    def __check_init__(self) -> None:
        if not callable(self.function):
            raise InputError(f"Distortion needs a function from [0, 1] to [0, 1], got {self.function!r}")
        # Finer towards 0, the worst losses, where a distortion is steepest.
        grid = np.concatenate([[0.0], np.geomspace(1e-6, 1e-2, 60)[:-1], np.linspace(0.01, 1.0, 500)])
        refused = explained(lambda why: f"Distortion's function fails on an array of shape {grid.shape}: {why}", ())
        with refused:
            values = self._distorted(grid)
        if values.shape != grid.shape:
            raise InputError(f"Distortion's function turns shape {grid.shape} into {values.shape}; keep the shape")
        _check_distortion(grid, values)

    def density(self, losses: Samples, probabilities: Samples) -> Samples:
        """`(g(mass above + mass at the same loss) - g(mass above)) / mass at the same loss`."""
        above, level = mass_above_and_level(losses, probabilities)
        rise = self._distorted(np.clip(above + level, 0.0, 1.0)) - self._distorted(np.clip(above, 0.0, 1.0))
        return np.where(level > 0, np.maximum(rise, 0.0) / np.where(level > 0, level, 1.0), 0.0)

    def influence(self, losses: Sample, probabilities: Sample) -> Sample:
        """`integral g'(P(C > c)) dc` from the smallest loss to C_k, with central differences of g."""
        order = np.argsort(losses, kind="stable")
        ordered = losses[order]
        above = 1.0 - np.cumsum(probabilities[order])[:-1]
        # Beyond the draws of positive weight the slope touches none of them, and may be infinite.
        between = (above > 1e-12) & (above < 1.0 - 1e-12)
        inner = np.where(between, above, 0.5)
        step = DISTORTION_STEP * np.minimum(inner, 1.0 - inner)
        slope = (self._distorted(inner + step) - self._distorted(inner - step)) / (2.0 * step)
        areas = np.where(between, slope, 0.0) * np.diff(ordered)
        found = np.empty_like(losses)
        found[order] = np.concatenate([np.zeros(1), np.cumsum(areas)])
        return found

    def _distorted(self, share: Float[np.ndarray, ...]) -> Float[np.ndarray, ...]:
        with float64():
            return np.asarray(self.function(share))


def _check_distortion(grid: np.ndarray, values: np.ndarray) -> None:
    require_finite("Distortion's function", values)
    for end, value in ((0, values[0]), (1, values[-1])):
        if abs(value - end) > 1e-9:
            raise InputError(f"a distortion must have g({end}) = {end}, got {value}; use (g - g(0)) / (g(1) - g(0))")
    slopes = np.diff(values) / np.diff(grid)
    rising = np.flatnonzero(np.diff(slopes) > 1e-7 * (1.0 + np.abs(slopes[:-1])))
    if rising.size:
        raise InputError(
            f"a distortion must be concave, or its spectrum increases and the risk is not coherent: the slope rises "
            f"from {slopes[rising[0]]:.6g} to {slopes[rising[0] + 1]:.6g} near t = {grid[rising[0] + 1]:.4g}; t is "
            "the share of worst losses, so t -> 1 - g(1 - t) may be what is meant"
        )
    falling = np.flatnonzero(slopes < -1e-9)
    if falling.size:
        raise InputError(
            f"a distortion must not decrease, or some draws get negative weight: it falls near t = "
            f"{grid[falling[0]]:.4g}; keep it at 1 once it is there"
        )


@hinted
class SmoothedVaR(Risk):
    """Value at risk, the loss exceeded with probability `1 - level`, averaged over nearby quantiles.

    `integral w(u) q(u) du`: q(u) are the quantiles of the losses and w is a triangle of half-width h around `level`,
    so that a draw counts with the triangle's mass over its own interval of probability. It tends to the quantile
    as the width goes to 0 and the sample grows; the bias is about `h^2 q''(level) / 12`.

    **Not coherent**: it is blind to how bad the worst losses are, and the mean of two losses may have a larger
    quantile than both. It is monotone: losses that are nowhere larger have no larger quantiles. `solve` takes it and
    follows the true gradient of the smoothed value, but what holds for coherent risks does not hold here, and
    `check_risk` refuses it. `CVaR(level)` is the coherent bound above it; for a soft-robust objective, between the mean
    and the tail, mix `(1 - w) * Expectation() + w * CVaR(level)`.

    Args:
        level: of the quantile, in (0, 1).
        width: h, in probability, > 0; cut to `min(width, level, 1 - level)` so that the triangle stays in [0, 1].

    >>> import numpy as np, prudent as pr
    >>> losses = np.arange(1001.0)
    >>> [round(float(risk(losses).value)) for risk in (pr.SmoothedVaR(0.9), pr.CVaR(0.9))]
    [900, 950]
    >>> pr.SmoothedVaR(0.5, width=0.5)([1.0, 2.0, 6.0, 7.0]).weights.round(6).tolist()
    [0.5, 1.5, 1.5, 0.5]
    """

    coherent: ClassVar[bool] = False  # two densities it attains do not bound each other's values
    batched: ClassVar[bool] = True

    level: Float[Array, "*batch"] = field(
        converter=as_number, default=0.9, metadata=number("(0, 1)", "of the quantile", BEYOND)
    )
    width: Float[Array, "*batch"] = field(
        converter=as_number,
        default=0.05,
        metadata=number("(0, 1]", "of the average over nearby quantiles", "0.05 averages over a tenth of the draws"),
    )

    def density(self, losses: Samples, probabilities: Samples) -> Samples:
        """`(W(mass above + mass at the same loss) - W(mass above)) / mass at the same loss`, W the integral of w."""
        above, level = mass_above_and_level(losses, probabilities)
        mass = self._mass(above + level) - self._mass(above)
        return np.where(level > 0, np.maximum(mass, 0.0) / np.where(level > 0, level, 1.0), 0.0)

    def influence(self, losses: Sample, probabilities: Sample) -> Sample:
        """`integral_{-inf}^{C_k} w(P(C <= c)) dc`; NaN where the triangle covers too few draws to tell."""
        share = probabilities * self.density(losses, probabilities)
        if (share**2).sum() * FEWEST_DRAWS > 1.0:
            return np.full_like(losses, np.nan)
        order = np.argsort(losses, kind="stable")
        centre, half = self._triangle()
        above = 1.0 - np.cumsum(probabilities[order])[:-1]
        height = np.maximum(1.0 - np.abs(above - centre) / half, 0.0) / half
        found = np.empty_like(losses)
        found[order] = np.concatenate([np.zeros(1), np.cumsum(height * np.diff(losses[order]))])
        return found

    def _triangle(self) -> tuple[Any, Any]:
        """The centre of the triangle, as a share of the worst losses, and its half-width."""
        centre = 1.0 - self.level
        return centre, np.minimum(self.width, np.minimum(self.level, centre))

    def _mass(self, tail: Samples) -> Samples:
        """The triangle's mass over the worst `tail` share of the losses."""
        centre, half = self._triangle()
        place = (tail - centre[..., None]) / half[..., None]
        return 0.5 * (1.0 + np.clip(1.0 + place, 0.0, 1.0) ** 2 - np.clip(1.0 - place, 0.0, 1.0) ** 2)


def tail_density(tail: Any, losses: Samples, probabilities: Samples) -> Samples:
    """Return the density of CVaR, the mean of the worst `tail` share."""
    (above, level), xp = mass_above_and_level(losses, probabilities), namespace_of(losses)
    return xp.clip((tail - above) / xp.where(level > 0, level, 1.0), 0.0, 1.0) / tail


def tail_influence(tail: Any, losses: Sample, probabilities: Sample) -> Sample:
    """Return the influence of each draw on CVaR, the mean of the worst `tail` share."""
    above, _ = mass_above_and_level(losses, probabilities)
    return np.maximum(losses - quantile(losses, probabilities, above, tail), 0.0) / tail


def worst_density(losses: Samples, probabilities: Samples) -> Samples:
    """Return the density of the worst case."""
    at_worst = (losses == largest(losses, probabilities)) & (probabilities > 0)
    return at_worst / namespace_of(losses).where(at_worst, probabilities, 0.0).sum(axis=-1, keepdims=True)


def mass_above_and_level(losses: Samples, probabilities: Samples) -> tuple[Samples, Samples]:
    """Return the probability of losses strictly larger than each, and of equal ones (itself included)."""
    if losses.shape[-1] <= LARGEST_PAIRWISE or is_traced(losses):
        weights = probabilities[..., None, :]
        larger = losses[..., None, :] > losses[..., :, None]
        equal = losses[..., None, :] == losses[..., :, None]
        return (larger * weights).sum(axis=-1), (equal * weights).sum(axis=-1)
    order = np.argsort(losses, axis=-1, kind="stable")
    ordered = np.take_along_axis(losses, order, axis=-1)
    # Summed from the worst loss on, so that small tails keep their digits.
    weights = np.take_along_axis(np.broadcast_to(probabilities, losses.shape), order, axis=-1)
    cumulative = np.zeros((*losses.shape[:-1], losses.shape[-1] + 1))
    cumulative[..., :-1] = np.cumsum(weights[..., ::-1], axis=-1)[..., ::-1]
    # Where each run of equal losses begins and ends.
    place, steps = np.arange(losses.shape[-1]), ordered[..., 1:] != ordered[..., :-1]
    begin, end = np.zeros(losses.shape, int), np.full(losses.shape, losses.shape[-1])
    begin[..., 1:] = np.maximum.accumulate(np.where(steps, place[1:], 0), axis=-1)
    end[..., :-1] = np.minimum.accumulate(np.where(steps, place[1:], place.size)[..., ::-1], axis=-1)[..., ::-1]
    above, level = np.empty(losses.shape), np.empty(losses.shape)
    beyond = np.take_along_axis(cumulative, end, axis=-1)
    np.put_along_axis(above, order, beyond, axis=-1)
    np.put_along_axis(level, order, np.take_along_axis(cumulative, begin, axis=-1) - beyond, axis=-1)
    return above, level


def excess_moments(losses: Samples, probabilities: Samples) -> tuple[Samples, Samples]:
    """Return `E (C - c)^+` and `E ((C - c)^+)^2` at each loss c, as sums of non-negative terms: nothing cancels."""
    if losses.shape[-1] <= LARGEST_PAIRWISE:
        excess = np.maximum(losses[..., None, :] - losses[..., :, None], 0.0)
        weights = probabilities[..., None, :]
        return (weights * excess).sum(axis=-1), (weights * excess**2).sum(axis=-1)
    order = np.argsort(-losses, axis=-1, kind="stable")
    descending = np.take_along_axis(losses, order, axis=-1)
    weights = np.take_along_axis(np.broadcast_to(probabilities, losses.shape), order, axis=-1)
    gap = descending[..., :-1] - descending[..., 1:]
    # d/dc E (C - c)^+ = -P(C > c), and d/dc E ((C - c)^+)^2 = -2 E (C - c)^+, linear between two losses.
    first, second = np.zeros(losses.shape), np.zeros(losses.shape)
    first[..., 1:] = np.cumsum(np.cumsum(weights, axis=-1)[..., :-1] * gap, axis=-1)
    second[..., 1:] = np.cumsum((first[..., :-1] + first[..., 1:]) * gap, axis=-1)
    rank = np.argsort(order, axis=-1, kind="stable")
    return np.take_along_axis(first, rank, axis=-1), np.take_along_axis(second, rank, axis=-1)


def largest(losses: Samples, probabilities: Samples) -> OfEach:
    """Return the largest loss of positive weight of each sample, `[..., 1]`."""
    return namespace_of(losses).where(probabilities > 0, losses, -np.inf).max(axis=-1, keepdims=True)


def normalised(losses: Samples, probabilities: Samples) -> tuple[Samples, OfEach]:
    """Return the losses moved and scaled so that those of positive weight fill [-1, 0], and the range they had.

    Draws of weight 0 are cut off at 0, so that no power or exponential of theirs can overflow. The range is `[..., 1]`.
    """
    top = largest(losses, probabilities)
    width = top - np.where(probabilities > 0, losses, np.inf).min(axis=-1, keepdims=True)
    return np.clip((losses - top) / np.where(width > 0, width, 1.0), -1.0, 0.0), width


def quantile(losses: Sample, probabilities: Sample, above: Sample, tail: Any) -> Any:
    """Return the smallest loss of the worst `tail` share; of a tail that is whole up to rounding, the next below it.

    Any number between the two neighbours of a whole tail is a quantile. This one makes the error larger, not smaller,
    and never 0 for a tail of one draw.
    """
    inside = above <= tail * (1.0 + 1e-9)
    return np.min(np.where(inside & (probabilities > 0), losses, np.inf))
