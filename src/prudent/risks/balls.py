"""The worst distribution within a distance of the posterior: Kullback-Leibler, chi-square, total variation."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ..arrays import Array, as_number
from ..records import field
from ..settings import number
from .base import ConcaveRisk, OfEach, Sample, Samples
from .quantiles import BEYOND, LEVEL, excess_moments, normalised, tail_density, worst_density

# Every other step at least halves the bracket, so this is enough for any sample.
NEWTON_STEPS = 120

# A step of Newton's method this short, in the logarithm of the tilt, leaves nothing but rounding.
ROUNDING = 1e-12

# After one this short the next error is its square.
SETTLED = 1e-9

SMALLEST = float(np.finfo(float).tiny)

# Losses this close to the largest, as a share of their range, count as it; and the largest tilt, which tells apart the
# others.
TIE = 1e-13
LARGEST_TILT = 1e15


class _Tilting(ConcaveRisk):
    """The worst mean over `E[xi log xi] <= radius`, attained by an exponential tilt of the losses."""

    @abc.abstractmethod
    def _radius(self) -> Any:
        """The divergence that may be used up."""

    def density(self, losses: Samples, probabilities: Samples) -> Samples:
        """`exp(C / t) / E exp(C / t)`, the exponential tilt that uses up the radius."""
        return _tilt(losses, probabilities, self._radius())[0]

    def influence(self, losses: Sample, probabilities: Sample) -> Sample:
        """`t xi`; NaN where the ball reaches the sample's worst case."""
        return _tilt(losses, probabilities, self._radius())[1]


class KullbackLeiblerBall(_Tilting):
    """The worst mean over `E[xi log xi] <= radius`: `min_t t radius + t log E exp(C / t)`.

    Radius 0 is the expectation; from `-log P(worst loss)` on it is the worst case.

    >>> import prudent as pr
    >>> pr.KullbackLeiblerBall(0.1)([1.0, 2.0, 6.0]).value.round(6).tolist()
    3.993432
    """

    radius: Float[Array, "*batch"] = field(
        converter=as_number, metadata=number("[0, inf)", "0 is the mean", "use WorstCase() for no bound at all")
    )

    def _radius(self) -> Any:
        return self.radius


class EntropicVaR(_Tilting):
    """`min_t t log(E exp(C / t) / (1 - level))`: the tightest bound on CVaR by exponential moments.

    The same as `KullbackLeiblerBall(-log(1 - level))`.

    >>> import prudent as pr
    >>> pr.EntropicVaR(0.5)([1.0, 2.0, 6.0]).value.round(6).tolist()
    5.540838
    """

    level: Float[Array, "*batch"] = field(converter=as_number, default=0.9, metadata=number("[0, 1)", LEVEL, BEYOND))

    def _radius(self) -> Any:
        return -np.log1p(-self.level)


class _Rows(NamedTuple):
    """Samples `[N, R]` of losses y in [-1, 0], and a divergence K for each, `[N, 1]`, that its tilt shall have.

    `at_top` are the largest losses of positive weight and `top` their weight. The target is `log(K / (L - K))` with the
    limit L of the divergence.
    """

    y: Float[np.ndarray, "N R"]
    probabilities: Float[np.ndarray, "N R"]
    at_top: Bool[np.ndarray, "N R"]
    top: Float[np.ndarray, "N 1"]
    radius: Float[np.ndarray, "N 1"]
    target: Float[np.ndarray, "N 1"]

    @staticmethod
    def of(
        losses: Float[np.ndarray, "N R"], probabilities: Float[np.ndarray, "N R"], given: Float[np.ndarray, "N 1"]
    ) -> tuple[_Rows, Bool[np.ndarray, "N 1"], Float[np.ndarray, "N 1"]]:
        """Return the samples, whether a tilt reaches the radius, and the ranges of the losses."""
        y, width = normalised(losses, probabilities)
        y = np.where(y >= -TIE, 0.0, y)
        at_top = (y >= 0) & (probabilities > 0)
        top = np.where(at_top, probabilities, 0.0).sum(axis=1, keepdims=True)
        limit = -np.log(top)
        inside = (given > 0) & (given < limit)
        radius = np.where(inside, given, 0.5 * np.where(limit > 0, limit, 1.0))
        target = np.log(radius) - np.log(np.where(inside, limit - radius, radius))
        return _Rows(y, probabilities, at_top, top, radius, target), inside, width

    def select(self, rows: Any) -> _Rows:
        """Return some of the samples."""
        return _Rows(*(part[rows] for part in self))

    def mean(self, values: Float[np.ndarray, "N R"]) -> Float[np.ndarray, "N 1"]:
        """Return the mean of each sample."""
        return (self.probabilities * values).sum(axis=1, keepdims=True)

    def log_density(self, tilt: Float[np.ndarray, "N 1"]) -> Float[np.ndarray, "N R"]:
        """Return `log xi` of the exponential tilt `xi = exp(eta y) / E exp(eta y)`."""
        # Around the mean for a small tilt, else around the top: neither cancels where it is used.
        small, centred = np.minimum(tilt, 1.0), self.y - self.mean(self.y)
        around = small * centred - np.log1p(self.mean(np.expm1(small * centred)))
        return np.where(tilt < 1.0, around, tilt * self.y - np.log(self.mean(np.exp(tilt * self.y))))

    def newton(self, log_tilt: Float[np.ndarray, "N 1"]) -> tuple[np.ndarray, np.ndarray]:
        """Return the error of `log(K / (L - K))` at a tilt and where Newton's method goes from there.

        In the logarithm of the tilt that function is close to linear both for small radii (K is quadratic in eta) and
        near the worst case (L - K decays exponentially), so that few steps are needed; a bracket catches those that
        leave it.
        """
        tilt = np.exp(log_tilt)
        logs = self.log_density(tilt)
        rise = np.expm1(logs)
        divergence = self.mean(logs * rise - (rise - logs))
        tilted = 1.0 + rise
        mean = self.mean(tilted * self.y)
        slope = tilt**2 * self.mean(tilted * (self.y - mean) ** 2)
        others = self.mean(np.where(self.at_top, 0.0, np.exp(tilt * self.y)))
        remaining = np.logaddexp(0.0, np.log(others) - np.log(self.top)) - tilt * mean
        # Rounding may leave less than nothing of either, far from the root.
        divergence, remaining = np.maximum(divergence, SMALLEST), np.maximum(remaining, SMALLEST)
        error = np.log(divergence) - np.log(remaining) - self.target
        return error, log_tilt - error / (slope * (1.0 / divergence + 1.0 / remaining))

    def first(self) -> _Bracket:
        """Return a bracket of the logarithm of the tilt, with a guess in it."""
        # The variance of losses in [-1, 0] is at most 1/4, so the divergence is at most eta^2 / 8.
        low = 0.5 * np.log(8.0 * self.radius)
        high = np.maximum(np.log(LARGEST_TILT), low + 1.0)
        variance = self.mean((self.y - self.mean(self.y)) ** 2)
        guess = np.clip(0.5 * np.log(2.0 * self.radius / np.where(variance > 0, variance, 1.0)), low, high)
        return _Bracket(low, high, guess, np.full_like(guess, np.inf))

    def step(self, bracket: _Bracket) -> _Bracket:
        """Return the next bracket and guess."""
        low, high, log_tilt, moved = bracket
        error, newton = self.newton(log_tilt)
        below = error < 0
        low, high = np.where(below, log_tilt, low), np.where(below, high, log_tilt)
        length = np.abs(newton - log_tilt)
        usable = (newton > low) & (newton < high) & (length < 0.5 * moved)
        # A step of rounding size may leave the bracket it has just shrunk to.
        following = np.where(usable | (length < ROUNDING), newton, 0.5 * (low + high))
        return _Bracket(low, high, following, np.abs(following - log_tilt))

    def find_tilts(self, settled: float) -> Float[np.ndarray, "N 1"]:
        """Return the tilts of the divergences that are wanted; samples leave the search as they settle."""
        log_tilt, left, rows = np.zeros(self.radius.shape), np.arange(len(self.y)), self
        bracket = rows.first()
        for _ in range(NEWTON_STEPS):
            bracket = rows.step(bracket)
            log_tilt[left] = bracket.log_tilt
            going = bracket.moved[:, 0] > settled
            if not going.any():
                break
            left, rows, bracket = left[going], rows.select(going), _Bracket(*(part[going] for part in bracket))
        return np.exp(log_tilt)


class _Bracket(NamedTuple):
    """Ends of an interval that holds the logarithm of the tilt, a guess in it, and the step that led there."""

    low: Float[np.ndarray, "N 1"]
    high: Float[np.ndarray, "N 1"]
    log_tilt: Float[np.ndarray, "N 1"]
    moved: Float[np.ndarray, "N 1"]


def _tilt(losses: Samples, probabilities: Samples, radius: Any) -> tuple[Samples, Samples]:
    """Return the exponential tilt of each sample with `E[xi log xi] = radius`, and the influence of its draws."""
    shape = losses.shape
    losses, probabilities = losses.reshape(-1, shape[-1]), np.broadcast_to(probabilities, shape).reshape(-1, shape[-1])
    given = np.broadcast_to(np.asarray(radius)[..., None], (*shape[:-1], 1)).reshape(-1, 1)
    with np.errstate(all="ignore"):
        rows, inside, width = _Rows.of(losses, probabilities, given)
        spread = np.where(width > 0, np.nan, 0.0)  # of a maximum: none is known unless all losses are one
        density = np.where(given > 0, rows.at_top / rows.top, 1.0)
        influence = np.where(given > 0, spread, losses)
        found = np.flatnonzero(inside)
        if found.size:
            tilted = rows.select(found)
            tilt = tilted.find_tilts(ROUNDING)
            logs = tilted.log_density(tilt)
            weights = np.exp(logs)
            density[found], influence[found] = weights / tilted.mean(weights), width[found] / tilt * np.expm1(logs)
    return density.reshape(shape), influence.reshape(shape)


def worst_rows(
    nominal: Float[np.ndarray, "B ..."], values: Float[np.ndarray, "B ..."], radius: Float[np.ndarray, ...]
) -> Float[np.ndarray, "B ..."]:
    """Return the rows p along the first axis that maximise `p values` within `KL(p || nominal) <= radius`.

    They are tilts as those of `KullbackLeiblerBall`.
    """
    shape = np.moveaxis(nominal, 0, -1).shape
    given, likely = (np.moveaxis(part, 0, -1).reshape(-1, shape[-1]) for part in (values, nominal))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        rows, inside, _ = _Rows.of(given, likely, radius.reshape(-1, 1))
        worst = np.where(rows.at_top, likely, 0.0)
        found = np.where(inside | (radius.reshape(-1, 1) <= 0), likely, worst / worst.sum(axis=1, keepdims=True))
        tilted = rows.select(inside[:, 0])
        if len(tilted.y):
            weights = tilted.probabilities * np.exp(tilted.log_density(tilted.find_tilts(SETTLED)))
            found[inside[:, 0]] = weights / weights.sum(axis=1, keepdims=True)
    return np.moveaxis(found.reshape(shape), -1, 0)


class ChiSquareBall(ConcaveRisk):
    """The worst mean over `E[(xi - 1)^2] <= radius`: `min_v v + sqrt((1 + radius) E ((C - v)^+)^2)`.

    The Cressie-Read divergence of order 2 is half of `E[(xi - 1)^2]`: for a radius r of that, use `2 r`.
    Radius 0 is the expectation; from `1 / P(worst loss) - 1` on it is the worst case.

    >>> import prudent as pr
    >>> pr.ChiSquareBall(0.5)([1.0, 2.0, 6.0]).value.round(6).tolist()  # 3 + sqrt(0.5 * 14 / 3)
    4.527525
    """

    radius: Float[Array, "*batch"] = field(
        converter=as_number, metadata=number("[0, inf)", "0 is the mean", "use WorstCase() for no bound at all")
    )

    def density(self, losses: Samples, probabilities: Samples) -> Samples:
        """`(C - v)^+ / E (C - v)^+` at the v that uses up the radius."""
        active, mass, centred, slope, _ = self._active(losses, probabilities)
        density = np.where(active, np.maximum(1.0 + slope * centred, 0.0) / mass, 0.0)
        # A steep slope makes the rounding of the mean large.
        return density / (probabilities * density).sum(axis=-1, keepdims=True)

    def influence(self, losses: Sample, probabilities: Sample) -> Sample:
        """`xi^2 E (C - v)^+ / 2`; NaN where the ball reaches the sample's worst case."""
        active, mass, centred, slope, width = self._active(losses, probabilities)
        # Less the constant 1 / (2 slope mass), without which this grows beyond all bounds as the radius goes to 0.
        inner = centred * (1.0 + 0.5 * slope * centred) / mass
        outer = -0.5 / (np.where(slope > 0, slope, 1.0) * mass)
        carried = probabilities > 0
        worst = (self.radius > 0) & (width > 0) & (slope == 0)
        return np.where(worst, np.nan, width * np.where(carried, np.where(active, inner, outer), 0.0))

    def _active(self, losses: Samples, probabilities: Samples) -> tuple[Any, ...]:
        """Draws with positive density, their mass, normalised losses less their mean, `s = 1 / (mean - v)`, the range.

        `xi = (1 + s (y - mean)) / mass`. The ratio `h(v) = E ((y - v)^+)^2 / (E (y - v)^+)^2` rises in v and is
        `1 + radius` at the optimum, so a draw is active just if h is larger at its loss; at the largest loss h is
        infinite. The mean is taken from the smallest active loss on, next to which tiny weights keep their digits.
        """

        def total(values: Samples) -> OfEach:
            return values.sum(axis=-1, keepdims=True)

        radius = self.radius[..., None]
        y, width = normalised(losses, probabilities)
        # Excesses over losses that are all but the worst would square to 0.
        y = np.where(y >= -TIE, 0.0, y)
        first, second = excess_moments(y, probabilities)
        active = (second > (1.0 + radius) * first * first) | (y >= 0)
        weights = np.where(active, probabilities, 0.0)
        mass = total(weights)
        above = y - np.min(np.where(weights > 0, y, 0.0), axis=-1, keepdims=True)
        centred = above - total(weights * above) / mass
        variance = total(weights * centred**2) / mass
        # `mass (1 + radius) - 1`, which cancels for a small radius.
        outside = total(np.where(active, 0.0, probabilities))
        room = np.where(mass < 0.5, mass * (1.0 + radius) - 1.0, radius - (1.0 + radius) * outside)
        slope = np.sqrt(np.maximum(room, 0.0)) / np.sqrt(np.where(variance > 0, variance, np.inf))
        return active, mass, centred, slope, width


class TotalVariationBall(ConcaveRisk):
    """The worst mean over `E|xi - 1| / 2 <= radius`: the best `radius` share is moved onto the worst loss.

    It is `radius WorstCase + (1 - radius) CVaR_radius`.

    >>> import prudent as pr
    >>> pr.TotalVariationBall(0.25)([1.0, 2.0, 3.0, 6.0]).weights.tolist()
    [0.0, 1.0, 1.0, 2.0]
    """

    radius: Float[Array, "*batch"] = field(converter=as_number, metadata=number("[0, 1)", "0 is the mean", BEYOND))

    def density(self, losses: Samples, probabilities: Samples) -> Samples:
        """The densities of the worst case and of CVaR, mixed."""
        radius = np.asarray(self.radius)[..., None]
        worst, tail = worst_density(losses, probabilities), tail_density(1.0 - radius, losses, probabilities)
        return radius * worst + (1.0 - radius) * tail

    def influence(self, losses: Sample, probabilities: Sample) -> Sample:
        """NaN unless the radius is 0: the worst case is a part of it."""
        return np.where(self.radius > 0, np.nan, losses)
