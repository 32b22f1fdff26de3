"""Risks that look at the order of the losses alone: expectation, CVaR, worst case, spectra and distortions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..arrays import Array, as_float, is_concrete, require_finite
from ..errors import InputError
from .base import BELOW_ONE, Risk, require_number
from .tails import largest, mass_above_and_level, quantile


class Expectation(Risk):
    """The posterior mean: risk neutral.

    >>> import prudent as pr
    >>> float(pr.Expectation()([1.0, 2.0, 6.0]).value)
    3.0
    """

    def density(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """1 everywhere."""
        return jnp.ones_like(losses)


class CVaR(Risk):
    """Conditional value at risk: the mean of the worst `1 - level` share, cut exactly.

    The draw at the quantile counts with the fraction that fills the tail; equal losses share alike.
    `level = 0` is the expectation.

    >>> import prudent as pr
    >>> round(float(pr.CVaR(0.5)([1.0, 2.0, 6.0]).value), 6)  # worst 1.5 of 3 draws: (6 + 2 / 2) / 1.5
    4.666667
    """

    level: Float[Array, "*batch"] = eqx.field(converter=as_float)

    def __check_init__(self) -> None:
        require_number(self, "level", 0.0, BELOW_ONE, "[0, 1)", "; use WorstCase() for the limit 1.")

    def density(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """`clip((tail - mass above) / mass at the same loss, 0, 1) / tail` with `tail = 1 - level`."""
        tail = 1.0 - self.level
        above, level = mass_above_and_level(losses, probabilities)
        room = (tail - above) / jnp.where(level > 0, level, 1.0)
        return jnp.clip(room, 0.0, 1.0) / tail

    def influence(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """`(C - q)^+ / tail` at the quantile q; the derivative of `clip` hangs on rounding where the tail is whole."""
        tail = 1.0 - self.level
        above, _ = mass_above_and_level(losses, probabilities)
        return jnp.maximum(losses - quantile(losses, probabilities, above, tail), 0.0) / tail


class WorstCase(Risk):
    """The largest loss among draws of positive weight; the limit of CVaR as its level goes to 1.

    >>> import prudent as pr
    >>> pr.WorstCase()([1.0, 6.0, 6.0]).weights.tolist()
    [0.0, 1.5, 1.5]
    """

    def density(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """All mass on the worst draws, shared in proportion to their weights."""
        at_worst = (losses == largest(losses, probabilities)) & (probabilities > 0)
        return at_worst / jnp.where(at_worst, probabilities, 0.0).sum()

    def influence(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """NaN: a sample's maximum only bounds the worst case from below, and has no standard error."""
        del probabilities
        return jnp.full_like(losses, jnp.nan)


class Spectral(Risk):
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

    def density(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """The average of the spectrum over `[mass above, mass above + mass at the same loss]`."""
        above, level = mass_above_and_level(losses, probabilities)
        tails, drops = self._steps()
        room = (tails[:, None] - above[None, :]) / jnp.where(level > 0, level, 1.0)[None, :]
        return (drops[:, None] * jnp.clip(room, 0.0, 1.0)).sum(axis=0)

    def influence(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """The sum of `(C - q)^+` over the quantiles at which the spectrum drops, weighted by the drop."""
        above, _ = mass_above_and_level(losses, probabilities)
        tails, drops = self._steps()
        quantiles = jax.vmap(lambda tail: quantile(losses, probabilities, above, tail))(tails)
        return (drops[:, None] * jnp.maximum(losses[None, :] - quantiles[:, None], 0.0)).sum(axis=0)

    def _steps(self) -> tuple[Array, Array]:
        """Where the spectrum drops, and by how much: `phi(t) = sum of drops at tails >= t`."""
        tails = jnp.cumsum(jnp.asarray(self.widths))
        heights = jnp.asarray(self.heights)
        drops = heights - jnp.concatenate([heights[1:], jnp.zeros(1)])
        tails = tails / tails[-1]
        return tails, drops / (drops * tails).sum()


class Distortion(Risk):
    """`integral g(P(C > c)) dc`: a spectrum of any shape, given by its integral g, a concave distortion.

    Args:
        function: `g: [0, 1] -> [0, 1]`, concave with g(0) = 0 and g(1) = 1, written in `jax.numpy` so that it takes
            an array of any shape. `t -> min(t / (1 - b), 1)` is CVaR.

    >>> import jax.numpy as jnp, prudent as pr
    >>> pr.Distortion(jnp.sqrt)([1.0, 2.0, 3.0, 6.0]).value.round(6).tolist()  # 1 + sqrt(3/4) + sqrt(2/4) + 3 sqrt(1/4)
    4.073132
    """

    function: Callable[[Any], Any] = eqx.field(static=True)

    def __check_init__(self) -> None:
        if not callable(self.function):
            raise InputError(f"Distortion needs a function from [0, 1] to [0, 1], got {self.function!r}")
        # Finer towards 0, the worst losses, where a distortion is steepest.
        grid = np.concatenate([[0.0], np.geomspace(1e-6, 1e-2, 60)[:-1], np.linspace(0.01, 1.0, 500)])
        try:
            # At once even when the risk is made inside someone's compiled function.
            with jax.enable_x64(True), jax.ensure_compile_time_eval():
                jax.eval_shape(self.function, jnp.asarray(grid))
                values = np.asarray(self.function(jnp.asarray(grid)))
        except Exception as error:
            raise InputError(f"Distortion cannot compile its function ({error}); write it with jax.numpy") from error
        if values.shape != grid.shape:
            raise InputError(f"Distortion's function turns shape {grid.shape} into {values.shape}; keep the shape")
        _check_distortion(grid, values)

    def density(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """`(g(mass above + mass at the same loss) - g(mass above)) / mass at the same loss`."""
        above, level = mass_above_and_level(losses, probabilities)
        rise = self.function(jnp.clip(above + level, 0.0, 1.0)) - self.function(jnp.clip(above, 0.0, 1.0))
        return jnp.where(level > 0, jnp.maximum(rise, 0.0) / jnp.where(level > 0, level, 1.0), 0.0)

    def influence(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """`integral g'(P(C > c)) dc` from the smallest loss to C_k."""
        order = jnp.argsort(losses)
        ordered = losses[order]
        above = 1.0 - jnp.cumsum(probabilities[order])[:-1]
        # Beyond the draws of positive weight the slope touches none of them, and may be infinite.
        between = (above > 1e-12) & (above < 1.0 - 1e-12)
        inner = jnp.where(between, above, 0.5)
        _, slope = jax.jvp(self.function, (inner,), (jnp.ones_like(inner),))
        areas = jnp.where(between, slope, 0.0) * (ordered[1:] - ordered[:-1])
        return jnp.concatenate([jnp.zeros(1), jnp.cumsum(areas)])[jnp.argsort(order)]


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
