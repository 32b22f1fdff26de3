"""The worst distribution within a distance of the posterior: Kullback-Leibler, chi-square, total variation."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float

from ..arrays import Array, as_float
from .base import BELOW_ONE, Risk, require_number
from .quantiles import CVaR, WorstCase
from .tails import excess_moments, normalised

# Every other step at least halves the bracket, so this is enough for any sample.
NEWTON_STEPS = 120

# A step of Newton's method this short, in the logarithm of the tilt, leaves nothing but rounding.
ROUNDING = 1e-12

SMALLEST = float(np.finfo(float).tiny)

# Losses this close to the largest, as a share of their range, count as it; and the largest tilt, which tells apart the
# others.
TIE = 1e-13
LARGEST_TILT = 1e15


class KullbackLeiblerBall(Risk):
    """The worst mean over `E[xi log xi] <= radius`: `min_t t radius + t log E exp(C / t)`.

    Radius 0 is the expectation; from `-log P(worst loss)` on it is the worst case.

    >>> import prudent as pr
    >>> pr.KullbackLeiblerBall(0.1)([1.0, 2.0, 6.0]).value.round(6).tolist()
    3.993432
    """

    radius: Float[Array, "*batch"] = eqx.field(converter=as_float)

    def __check_init__(self) -> None:
        require_number(self, "radius", 0.0, np.finfo(float).max, "[0, inf)", "; use WorstCase() for no bound at all")

    def density(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """`exp(C / t) / E exp(C / t)`, the exponential tilt that uses up the radius."""
        return _tilt(losses, probabilities, jnp.asarray(self.radius)).density

    def influence(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """`t xi`; NaN where the ball reaches the sample's worst case."""
        return _tilt(losses, probabilities, jnp.asarray(self.radius)).influence


class EntropicVaR(Risk):
    """`min_t t log(E exp(C / t) / (1 - level))`: the tightest bound on CVaR by exponential moments.

    The same as `KullbackLeiblerBall(-log(1 - level))`.

    >>> import prudent as pr
    >>> pr.EntropicVaR(0.5)([1.0, 2.0, 6.0]).value.round(6).tolist()
    5.540838
    """

    level: Float[Array, "*batch"] = eqx.field(converter=as_float)

    def __check_init__(self) -> None:
        require_number(self, "level", 0.0, BELOW_ONE, "[0, 1)", "; use WorstCase() for the limit 1.")

    def density(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """As in `KullbackLeiblerBall`."""
        return _tilt(losses, probabilities, -jnp.log1p(-self.level)).density

    def influence(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """As in `KullbackLeiblerBall`."""
        return _tilt(losses, probabilities, -jnp.log1p(-self.level)).influence


class _Tilted(NamedTuple):
    density: Array
    influence: Array


class _Sample(NamedTuple):
    """Normalised losses y, the draws with the worst of them, and the divergence wanted as `log(K / (L - K))`."""

    y: Array
    probabilities: Array
    at_top: Array
    top: Array
    radius: Array
    target: Array


def _tilt(losses: Array, probabilities: Array, given: Array) -> _Tilted:
    """The exponential tilt `xi = exp(eta y) / E exp(eta y)` of normalised losses y with `E[xi log xi] = given`.

    With K the divergence at eta and L its limit -log P(worst), the root of `log(K / (L - K))` is sought in log eta.
    That function is close to linear both for small radii (K is quadratic in eta) and near the worst case (L - K
    decays exponentially), so that Newton's method needs few steps; a bracket catches those that leave it.
    """
    y, width = normalised(losses, probabilities)
    y = jnp.where(y >= -TIE, 0.0, y)
    at_top = (y >= 0) & (probabilities > 0)
    top = jnp.where(at_top, probabilities, 0.0).sum()
    limit = -jnp.log(top)
    inside = (given > 0) & (given < limit)
    radius = jnp.where(inside, given, 0.5 * jnp.where(limit > 0, limit, 1.0))
    target = jnp.log(radius) - jnp.log(jnp.where(inside, limit - radius, radius))
    sample = _Sample(y, probabilities, at_top, top, radius, target)

    settled = _root(lax.stop_gradient(sample))
    # A loop of unknown length has no reverse derivative. One more step at the root has it, by the implicit function
    # theorem, and moves nothing; where the largest tilt is not enough it would leave.
    _, following = _newton(sample, settled)
    tilt = jnp.exp(jnp.where(jnp.abs(following - settled) < 1e-6, following, settled))
    logs = _log_density(sample, tilt)
    tilted = jnp.exp(logs)
    worst = at_top / top
    spread = jnp.where(width > 0, jnp.nan, 0.0)  # of a maximum: none is known unless all losses are one
    return _Tilted(
        jnp.where(inside, tilted / (probabilities * tilted).sum(), jnp.where(given > 0, worst, 1.0)),
        jnp.where(inside, width / tilt * jnp.expm1(logs), jnp.where(given > 0, spread, losses)),
    )


def _root(sample: _Sample) -> Array:
    """The logarithm of the tilt that uses up the radius."""

    def unsettled(state: tuple) -> Array:
        *_, moved, number = state
        return (moved > ROUNDING) & (number < NEWTON_STEPS)

    def step(state: tuple) -> tuple:
        low, high, log_tilt, moved, number = state
        error, newton = _newton(sample, log_tilt)
        below = error < 0
        low, high = jnp.where(below, log_tilt, low), jnp.where(below, high, log_tilt)
        length = jnp.abs(newton - log_tilt)
        usable = (newton > low) & (newton < high) & (length < 0.5 * moved)
        # A step of rounding size may leave the bracket it has just shrunk to.
        following = jnp.where(usable | (length < ROUNDING), newton, 0.5 * (low + high))
        return low, high, following, jnp.abs(following - log_tilt), number + 1

    # The variance of losses in [-1, 0] is at most 1/4, so the divergence is at most eta^2 / 8.
    low = 0.5 * jnp.log(8.0 * sample.radius)
    high = jnp.maximum(jnp.log(LARGEST_TILT), low + 1.0)
    variance = (sample.probabilities * _centred(sample) ** 2).sum()
    guess = jnp.clip(0.5 * jnp.log(2.0 * sample.radius / jnp.where(variance > 0, variance, 1.0)), low, high)
    first = (low, high, guess, jnp.full_like(guess, jnp.inf), jnp.zeros((), jnp.int32))
    return lax.while_loop(unsettled, step, first)[2]


def _newton(sample: _Sample, log_tilt: Array) -> tuple[Array, Array]:
    """The error of `log(K / (L - K))` at a tilt and where Newton's method goes from there."""
    y, probabilities = sample.y, sample.probabilities
    tilt = jnp.exp(log_tilt)
    logs = _log_density(sample, tilt)
    rise = jnp.expm1(logs)
    divergence = (probabilities * (logs * rise - (rise - logs))).sum()
    tilted = probabilities * (1.0 + rise)
    mean = (tilted * y).sum()
    slope = tilt**2 * (tilted * (y - mean) ** 2).sum()
    others = jnp.where(sample.at_top, 0.0, probabilities * jnp.exp(tilt * y)).sum()
    left = jnp.logaddexp(0.0, jnp.log(others) - jnp.log(sample.top)) - tilt * mean
    # Rounding may leave less than nothing of either, far from the root.
    divergence, left = jnp.maximum(divergence, SMALLEST), jnp.maximum(left, SMALLEST)
    error = jnp.log(divergence) - jnp.log(left) - sample.target
    return error, log_tilt - error / (slope * (1.0 / divergence + 1.0 / left))


def _log_density(sample: _Sample, tilt: Array) -> Array:
    # Around the mean for a small tilt, else around the top: neither cancels where it is used.
    small = jnp.minimum(tilt, 1.0)
    centred = _centred(sample)
    mean = jnp.log1p((sample.probabilities * jnp.expm1(small * centred)).sum())
    total = jnp.log((sample.probabilities * jnp.exp(tilt * sample.y)).sum())
    return jnp.where(tilt < 1.0, small * centred - mean, tilt * sample.y - total)


def _centred(sample: _Sample) -> Array:
    return sample.y - (sample.probabilities * sample.y).sum()


class ChiSquareBall(Risk):
    """The worst mean over `E[(xi - 1)^2] <= radius`: `min_v v + sqrt((1 + radius) E ((C - v)^+)^2)`.

    The Cressie-Read divergence of order 2 is half of `E[(xi - 1)^2]`: for a radius r of that, use `2 r`.
    Radius 0 is the expectation; from `1 / P(worst loss) - 1` on it is the worst case.

    >>> import prudent as pr
    >>> pr.ChiSquareBall(0.5)([1.0, 2.0, 6.0]).value.round(6).tolist()  # 3 + sqrt(0.5 * 14 / 3)
    4.527525
    """

    radius: Float[Array, "*batch"] = eqx.field(converter=as_float)

    def __check_init__(self) -> None:
        require_number(self, "radius", 0.0, np.finfo(float).max, "[0, inf)", "; use WorstCase() for no bound at all")

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

    def _active(self, losses: Array, probabilities: Array) -> tuple[Array, Array, Array, Array, Array]:
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


class TotalVariationBall(Risk):
    """The worst mean over `E|xi - 1| / 2 <= radius`: the best `radius` share is moved onto the worst loss.

    It is `radius WorstCase + (1 - radius) CVaR_radius`.

    >>> import prudent as pr
    >>> pr.TotalVariationBall(0.25)([1.0, 2.0, 3.0, 6.0]).weights.tolist()
    [0.0, 1.0, 1.0, 2.0]
    """

    radius: Float[Array, "*batch"] = eqx.field(converter=as_float)

    def __check_init__(self) -> None:
        require_number(self, "radius", 0.0, BELOW_ONE, "[0, 1)", "; use WorstCase() for the limit 1.")

    def density(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """The densities of the worst case and of CVaR, mixed."""
        worst = WorstCase().density(losses, probabilities)
        return self.radius * worst + (1.0 - self.radius) * CVaR(self.radius).density(losses, probabilities)

    def influence(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """NaN unless the radius is 0: the worst case is a part of it."""
        del probabilities
        return jnp.where(self.radius > 0, jnp.nan, losses)
