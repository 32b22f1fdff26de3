"""The worst distribution within a distance of the posterior: Kullback-Leibler, chi-square, total variation."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..arrays import Array, as_number
from ..deferred import jnp, lax
from ..records import field
from ..settings import number
from .base import ConcaveRisk
from .quantiles import BEYOND, LEVEL, CVaR, WorstCase, excess_moments, normalised

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

    def density(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """`exp(C / t) / E exp(C / t)`, the exponential tilt that uses up the radius."""
        return _tilt(losses, probabilities, self._radius()).density

    def influence(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """`t xi`; NaN where the ball reaches the sample's worst case."""
        return _tilt(losses, probabilities, self._radius()).influence


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
        return jnp.asarray(self.radius)


class EntropicVaR(_Tilting):
    """`min_t t log(E exp(C / t) / (1 - level))`: the tightest bound on CVaR by exponential moments.

    The same as `KullbackLeiblerBall(-log(1 - level))`.

    >>> import prudent as pr
    >>> pr.EntropicVaR(0.5)([1.0, 2.0, 6.0]).value.round(6).tolist()
    5.540838
    """

    level: Float[Array, "*batch"] = field(converter=as_number, default=0.9, metadata=number("[0, 1)", LEVEL, BEYOND))

    def _radius(self) -> Any:
        return -jnp.log1p(-self.level)


class _Sample(NamedTuple):
    """Losses y in [-1, 0] along the first axis, which of them are the worst, and the divergence K that is wanted.

    In JAX for one sample, in NumPy for many side by side; the arithmetic is the same. The target is `log(K / (L - K))`
    with the limit L of the divergence.
    """

    y: Array
    probabilities: Array
    at_top: Array
    top: Array
    radius: Array
    target: Array

    @staticmethod
    def of(losses: Array, probabilities: Array, given: Array) -> tuple[_Sample, Array, Array]:
        """The sample, whether a tilt reaches the radius, and the range of the losses."""
        xp = losses.__array_namespace__()
        y, width = normalised(losses, probabilities)
        y = xp.where(y >= -TIE, 0.0, y)
        at_top = (y >= 0) & (probabilities > 0)
        top = xp.where(at_top, probabilities, 0.0).sum(axis=0)
        limit = -xp.log(top)
        inside = (given > 0) & (given < limit)
        radius = xp.where(inside, given, 0.5 * xp.where(limit > 0, limit, 1.0))
        target = xp.log(radius) - xp.log(xp.where(inside, limit - radius, radius))
        return _Sample(y, probabilities, at_top, top, radius, target), inside, width

    def log_density(self, tilt: Array) -> Any:
        """`log xi` of the exponential tilt `xi = exp(eta y) / E exp(eta y)`."""
        # Around the mean for a small tilt, else around the top: neither cancels where it is used.
        xp = self.y.__array_namespace__()
        small, centred = xp.minimum(tilt, 1.0), self._centred()
        mean = xp.log1p((self.probabilities * xp.expm1(small * centred)).sum(axis=0))
        total = xp.log((self.probabilities * xp.exp(tilt * self.y)).sum(axis=0))
        return xp.where(tilt < 1.0, small * centred - mean, tilt * self.y - total)

    def newton(self, log_tilt: Array) -> tuple[Any, Any]:
        """The error of `log(K / (L - K))` at a tilt and where Newton's method goes from there.

        In the logarithm of the tilt that function is close to linear both for small radii (K is quadratic in eta) and
        near the worst case (L - K decays exponentially), so that few steps are needed; a bracket catches those that
        leave it.
        """
        xp = self.y.__array_namespace__()
        y, probabilities, tilt = self.y, self.probabilities, xp.exp(log_tilt)
        logs = self.log_density(tilt)
        rise = xp.expm1(logs)
        divergence = (probabilities * (logs * rise - (rise - logs))).sum(axis=0)
        tilted = probabilities * (1.0 + rise)
        mean = (tilted * y).sum(axis=0)
        slope = tilt**2 * (tilted * (y - mean) ** 2).sum(axis=0)
        others = xp.where(self.at_top, 0.0, probabilities * xp.exp(tilt * y)).sum(axis=0)
        remaining = xp.logaddexp(0.0, xp.log(others) - xp.log(self.top)) - tilt * mean
        # Rounding may leave less than nothing of either, far from the root.
        divergence, remaining = xp.maximum(divergence, SMALLEST), xp.maximum(remaining, SMALLEST)
        error = xp.log(divergence) - xp.log(remaining) - self.target
        return error, log_tilt - error / (slope * (1.0 / divergence + 1.0 / remaining))

    def first(self) -> tuple[Any, Any, Any, Any]:
        """A bracket of the logarithm of the tilt, a guess in it, and the length of the step that led there."""
        xp = self.y.__array_namespace__()
        # The variance of losses in [-1, 0] is at most 1/4, so the divergence is at most eta^2 / 8.
        low = 0.5 * xp.log(8.0 * self.radius)
        high = xp.maximum(np.log(LARGEST_TILT), low + 1.0)
        variance = (self.probabilities * self._centred() ** 2).sum(axis=0)
        guess = xp.clip(0.5 * xp.log(2.0 * self.radius / xp.where(variance > 0, variance, 1.0)), low, high)
        return low, high, guess, xp.full_like(guess, np.inf)

    def step(self, low: Array, high: Array, log_tilt: Array, moved: Array) -> tuple[Any, Any, Any, Any]:
        """The next bracket and guess."""
        xp = self.y.__array_namespace__()
        error, newton = self.newton(log_tilt)
        below = error < 0
        low, high = xp.where(below, log_tilt, low), xp.where(below, high, log_tilt)
        length = xp.abs(newton - log_tilt)
        usable = (newton > low) & (newton < high) & (length < 0.5 * moved)
        # A step of rounding size may leave the bracket it has just shrunk to.
        following = xp.where(usable | (length < ROUNDING), newton, 0.5 * (low + high))
        return low, high, following, xp.abs(following - log_tilt)

    def _centred(self) -> Any:
        return self.y - (self.probabilities * self.y).sum(axis=0)


class _Tilted(NamedTuple):
    density: Array
    influence: Array


def _tilt(losses: Array, probabilities: Array, given: Array) -> _Tilted:
    """The exponential tilt of the losses with `E[xi log xi] = given`, and its influence; in JAX, for one sample."""
    sample, inside, width = _Sample.of(losses, probabilities, given)
    held = lax.stop_gradient(sample)
    state = lax.while_loop(
        lambda state: (state[3] > ROUNDING) & (state[4] < NEWTON_STEPS),
        lambda state: (*held.step(*state[:4]), state[4] + 1),
        (*held.first(), jnp.zeros((), jnp.int32)),
    )
    settled = state[2]
    # A loop of unknown length has no reverse derivative. One more step at the root has it, by the implicit function
    # theorem, and moves nothing; where the largest tilt is not enough it would leave.
    _, following = sample.newton(settled)
    tilt = jnp.exp(jnp.where(jnp.abs(following - settled) < 1e-6, following, settled))
    logs = sample.log_density(tilt)
    tilted = jnp.exp(logs)
    worst = sample.at_top / sample.top
    spread = jnp.where(width > 0, jnp.nan, 0.0)  # of a maximum: none is known unless all losses are one
    return _Tilted(
        jnp.where(inside, tilted / (probabilities * tilted).sum(), jnp.where(given > 0, worst, 1.0)),
        jnp.where(inside, width / tilt * jnp.expm1(logs), jnp.where(given > 0, spread, losses)),
    )


def worst_rows(
    nominal: Float[np.ndarray, "B ..."], values: Float[np.ndarray, "B ..."], radius: Float[np.ndarray, ...]
) -> Float[np.ndarray, "B ..."]:
    """The rows p along the first axis that maximise `p values` within `KL(p || nominal) <= radius`, in NumPy.

    Tilts as those of `KullbackLeiblerBall`, many side by side; rows leave the search as they settle.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        sample, inside, _ = _Sample.of(values, nominal, radius)
        worst = np.where(sample.at_top, nominal, 0.0)
        rows = np.where(inside | (radius <= 0), nominal, worst / worst.sum(axis=0))
        tilted = _Sample(*(part[..., inside] for part in sample))
        log_tilt, unsettled, search = np.zeros(tilted.radius.shape), np.arange(tilted.radius.size), tilted
        state = search.first()
        for _ in range(NEWTON_STEPS):
            state = search.step(*state)
            log_tilt[unsettled] = state[2]
            going = state[3] > SETTLED
            if not going.any():
                break
            unsettled, state = unsettled[going], tuple(part[going] for part in state)
            search = _Sample(*(part[..., going] for part in search))
        weights = tilted.probabilities * np.exp(tilted.log_density(np.exp(log_tilt)))
        rows[..., inside] = weights / weights.sum(axis=0)
    return rows


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

    def density(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """`(C - v)^+ / E (C - v)^+` at the v that uses up the radius."""
        active, mass, centred, slope, _ = self._active(losses, probabilities)
        density = jnp.where(active, jnp.maximum(1.0 + slope * centred, 0.0) / mass, 0.0)
        # A steep slope makes the rounding of the mean large.
        return density / (probabilities * density).sum()

    def influence(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """`xi^2 E (C - v)^+ / 2`; NaN where the ball reaches the sample's worst case."""
        active, mass, centred, slope, width = self._active(losses, probabilities)
        # Less the constant 1 / (2 slope mass), without which this grows beyond all bounds as the radius goes to 0.
        inner = centred * (1.0 + 0.5 * slope * centred) / mass
        outer = -0.5 / (jnp.where(slope > 0, slope, 1.0) * mass)
        carried = probabilities > 0
        worst = (self.radius > 0) & (width > 0) & (slope == 0)
        return jnp.where(worst, jnp.nan, width * jnp.where(carried, jnp.where(active, inner, outer), 0.0))

    def _active(self, losses: Array, probabilities: Array) -> tuple[Any, ...]:
        """Draws with positive density, their mass, normalised losses less their mean, `s = 1 / (mean - v)`, the range.

        `xi = (1 + s (y - mean)) / mass`. The ratio `h(v) = E ((y - v)^+)^2 / (E (y - v)^+)^2` rises in v and is
        `1 + radius` at the optimum, so a draw is active just if h is larger at its loss; at the largest loss h is
        infinite. The mean is taken from the smallest active loss on, next to which tiny weights keep their digits.
        """
        y, width = normalised(losses, probabilities)
        first, second = excess_moments(y, probabilities)
        active = (second > (1.0 + self.radius) * first * first) | (y >= 0)
        weights = jnp.where(active, probabilities, 0.0)
        mass = weights.sum()
        above = y - jnp.min(jnp.where(weights > 0, y, 0.0))
        centred = above - (weights * above).sum() / mass
        variance = (weights * centred**2).sum() / mass
        # `mass (1 + radius) - 1`, which cancels for a small radius.
        outside = jnp.where(active, 0.0, probabilities).sum()
        room = jnp.where(mass < 0.5, mass * (1.0 + self.radius) - 1.0, self.radius - (1.0 + self.radius) * outside)
        slope = jnp.sqrt(jnp.maximum(room, 0.0)) / jnp.sqrt(jnp.where(variance > 0, variance, jnp.inf))
        return active, mass, centred, slope, width


class TotalVariationBall(ConcaveRisk):
    """The worst mean over `E|xi - 1| / 2 <= radius`: the best `radius` share is moved onto the worst loss.

    It is `radius WorstCase + (1 - radius) CVaR_radius`.

    >>> import prudent as pr
    >>> pr.TotalVariationBall(0.25)([1.0, 2.0, 3.0, 6.0]).weights.tolist()
    [0.0, 1.0, 1.0, 2.0]
    """

    radius: Float[Array, "*batch"] = field(converter=as_number, metadata=number("[0, 1)", "0 is the mean", BEYOND))

    def density(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """The densities of the worst case and of CVaR, mixed."""
        worst = WorstCase().density(losses, probabilities)
        return self.radius * worst + (1.0 - self.radius) * CVaR(self.radius).density(losses, probabilities)

    def influence(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """NaN unless the radius is 0: the worst case is a part of it."""
        return jnp.where(self.radius > 0, jnp.nan, losses)
