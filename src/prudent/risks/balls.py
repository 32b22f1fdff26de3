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

# Enough for the slowest of several thousand hard samples (near ties, tiny weights) to reach rounding.
NEWTON_STEPS = 30

# Losses closer than some 1e-13 of their range are not told apart: this is the largest tilt.
LARGEST_TILT = 1e14


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
    at_top = (y >= 0) & (probabilities > 0)
    top = jnp.where(at_top, probabilities, 0.0).sum()
    limit = -jnp.log(top)
    inside = (given > 0) & (given < limit)
    radius = jnp.where(inside, given, 0.5 * jnp.where(limit > 0, limit, 1.0))
    target = jnp.log(radius) - jnp.log(jnp.where(inside, limit - radius, radius))
    sample = _Sample(y, probabilities, at_top, top, radius, target)

    settled = _root(lax.stop_gradient(sample))
    # A loop of unknown length has no reverse derivative. One more step at the root has it, by the implicit function
    # theorem, and moves nothing.
    _, following = _newton(sample, settled)
    tilt = jnp.exp(jnp.where(jnp.isfinite(following), following, settled))
    logs = _log_density(sample, tilt)
    worst = at_top / top
    spread = jnp.where(width > 0, jnp.nan, 0.0)  # of a maximum: none is known unless all losses are one
    return _Tilted(
        jnp.where(inside, jnp.exp(logs), jnp.where(given > 0, worst, 1.0)),
        jnp.where(inside, width / tilt * jnp.expm1(logs), jnp.where(given > 0, spread, losses)),
    )


def _root(sample: _Sample) -> Array:
    """The logarithm of the tilt that uses up the radius."""

    def unsettled(state: tuple) -> Array:
        *_, moved, number = state
        return (moved > 1e-14) & (number < NEWTON_STEPS)

    def step(state: tuple) -> tuple:
        low, high, log_tilt, _, number = state
        error, newton = _newton(sample, log_tilt)
        below = error < 0
        low, high = jnp.where(below, log_tilt, low), jnp.where(below, high, log_tilt)
        usable = jnp.isfinite(newton) & (newton > low) & (newton < high)
        # A step of rounding size may leave the bracket it has just shrunk to.
        close = jnp.abs(newton - log_tilt) < 1e-12
        following = jnp.where(usable | close, newton, 0.5 * (low + high))
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
    left = jnp.log1p(others / sample.top) - tilt * mean
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
        y, _ = normalised(losses, probabilities)
        active, mass, mean, slope = self._active(y, probabilities)
        return jnp.where(active, jnp.maximum(1.0 + slope * (y - mean), 0.0) / mass, 0.0)

    def influence(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """`xi^2 E (C - v)^+ / 2`; NaN where the ball reaches the sample's worst case."""
        y, width = normalised(losses, probabilities)
        active, mass, mean, slope = self._active(y, probabilities)
        # Less the constant 1 / (2 slope mass), without which this grows beyond all bounds as the radius goes to 0.
        inner = (y - mean) * (1.0 + 0.5 * slope * (y - mean)) / mass
        outer = -0.5 / (jnp.where(slope > 0, slope, 1.0) * mass)
        carried = probabilities > 0
        worst = (self.radius > 0) & (width > 0) & ~jnp.any(active & carried & (y < 0))
        return jnp.where(worst, jnp.nan, width * jnp.where(carried, jnp.where(active, inner, outer), 0.0))

    def _active(self, y: Array, probabilities: Array) -> tuple[Array, Array, Array, Array]:
        """Draws with positive density, their mass and mean, and `s = 1 / (mean - v)`: `xi = (1 + s (y - mean)) / mass`.

        `h(v) = E ((y - v)^+)^2 / (E (y - v)^+)^2` rises in v and is `1 + radius` at the optimum, so a draw is
        active just if h is larger at its loss; at the largest loss h is infinite.
        """
        first, second = excess_moments(y, probabilities)
        active = (second > (1.0 + self.radius) * first**2) | (y >= 0)
        weights = jnp.where(active, probabilities, 0.0)
        mass = weights.sum()
        mean = (weights * y).sum() / mass
        variance = (weights * (y - mean) ** 2).sum() / mass
        room = jnp.maximum(mass * (1.0 + self.radius) - 1.0, 0.0)
        return active, mass, mean, jnp.sqrt(room / jnp.where(variance > 0, variance, jnp.inf))


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
