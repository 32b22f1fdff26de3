"""Stage 8: coherent risk measures of a weighted sample, with the weights that attain them.

A risk here is its worst reweighting (Theorem 1 of the paper): `rho(C) = max_xi sum_k p_k xi_k C_k` over
densities xi in the risk's envelope. A concrete risk supplies that maximiser, `density`; value and gradient
follow from it, and so does the standard error unless the density is not smooth in the weights.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float

from .arrays import Array, as_float, in_float64, is_concrete, require_distribution, require_finite
from .errors import InputError

# Up to this many losses, comparing all pairs is faster than sorting them.
LARGEST_PAIRWISE = 64


class Assessment(NamedTuple):
    """A risk's value and the density `xi*` that attains it: `value = sum_k p_k xi_k C_k`.

    >>> import prudent as pr
    >>> value, weights = pr.CVaR(0.5)([1.0, 2.0, 3.0, 6.0])
    >>> float(value), weights.tolist()
    (4.5, [0.0, 0.0, 2.0, 2.0])
    """

    value: Any
    weights: Any


class Risk(eqx.Module):
    """A coherent risk measure: monotone, convex, positively homogeneous, translation equivariant."""

    @abc.abstractmethod
    def density(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """The maximiser xi* (equation 7 of the paper): non-negative, with `sum_k p_k xi_k = 1`."""

    @in_float64
    def __call__(self, losses: Any, probabilities: Any = None) -> Assessment:
        """Assess a sample.

        Args:
            losses: `[R]` one loss a posterior draw.
            probabilities: `[R]` weights of the draws summing to 1; equal when left out.
        """
        self._require_single()
        return Assessment(*_value_and_density(self, *_checked(losses, probabilities)))

    def influence(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """The derivative of the value by the weight of each draw, up to a constant; NaN where there is none.

        A risk whose `density` is not smooth in the weights gives its own.
        """

        def value(weights: Array) -> Array:
            return (weights * self.density(losses, weights) * losses).sum()

        return jax.grad(value)(probabilities)

    def _require_single(self) -> None:
        if any(np.ndim(leaf) for leaf in jax.tree.leaves(self)):
            raise InputError(f"{type(self).__name__} holds an array of levels; make one risk a level")

    @in_float64
    def standard_error(self, losses: Any, probabilities: Any = None) -> Any:
        """Monte-Carlo standard error of the value, by the infinitesimal jackknife.

        The influence of draw k is the derivative of the value by its weight; for the mean this is the
        textbook standard error, for CVaR its usual asymptotic one.
        """
        return _standard_error(self, *_checked(losses, probabilities))


def risk_value(risk: Risk, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> tuple[Array, Array]:
    """Value and xi*, differentiable by the losses: the derivative of the value is `p xi*`.

    This is the envelope theorem (Theorem 2 of the paper): the maximiser is held fixed.
    """
    density = lax.stop_gradient(risk.density(losses, probabilities))
    return (probabilities * density * losses).sum(), density


@eqx.filter_jit
def _value_and_density(risk: Risk, losses: Array, probabilities: Array) -> tuple[Array, Array]:
    return risk_value(risk, losses, probabilities)


@eqx.filter_jit
def _standard_error(risk: Risk, losses: Array, probabilities: Array) -> Array:
    if losses.shape[0] == 1:
        return jnp.asarray(jnp.nan)  # one draw says nothing of the spread
    slope = risk.influence(losses, probabilities)
    influence = slope - (probabilities * slope).sum()
    return jnp.sqrt(((probabilities * influence) ** 2).sum())


def _checked(losses: Any, probabilities: Any) -> tuple[Array, Array]:
    losses = as_float(losses)
    if losses.ndim != 1 or losses.shape[0] == 0:
        raise InputError(f"a risk needs a list of at least one loss, got shape {losses.shape}")
    if is_concrete(losses):
        require_finite("loss", np.asarray(losses))
    if probabilities is None:
        return jnp.asarray(losses), jnp.full(losses.shape, 1.0 / losses.shape[0])
    probabilities = as_float(probabilities)
    if probabilities.shape != losses.shape:
        raise InputError(f"{losses.shape[0]} losses need as many weights, got shape {probabilities.shape}")
    if is_concrete(probabilities):
        require_finite("weight", np.asarray(probabilities))
        require_distribution("weights", np.asarray(probabilities))
    return jnp.asarray(losses), jnp.asarray(probabilities)


def mass_above_and_level(losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> tuple[Array, Array]:
    """For each loss the probability of strictly larger ones, and of equal ones (itself included)."""
    if losses.shape[0] <= LARGEST_PAIRWISE:
        above = jnp.where(losses[None, :] > losses[:, None], probabilities[None, :], 0.0).sum(axis=1)
        level = jnp.where(losses[None, :] == losses[:, None], probabilities[None, :], 0.0).sum(axis=1)
        return above, level
    order = jnp.argsort(losses)
    ordered = losses[order]
    cumulative = jnp.concatenate([jnp.zeros(1), jnp.cumsum(probabilities[order])])
    upper = cumulative[jnp.searchsorted(ordered, losses, side="right")]
    lower = cumulative[jnp.searchsorted(ordered, losses, side="left")]
    return cumulative[-1] - upper, upper - lower


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
        if is_concrete(self.level) and not np.all((self.level >= 0) & (self.level < 1)):
            raise InputError(f"CVaR level must lie in [0, 1), got {self.level}; use WorstCase() for the limit 1.")

    def density(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """`clip((tail - mass above) / mass at the same loss, 0, 1) / tail` with `tail = 1 - level`."""
        tail = 1.0 - self.level
        above, level = mass_above_and_level(losses, probabilities)
        room = (tail - above) / jnp.where(level > 0, level, 1.0)
        return jnp.clip(room, 0.0, 1.0) / tail

    def influence(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """`(C - q)^+ / tail` at the quantile q; the derivative of `clip` hangs on rounding where the tail is whole."""
        above, _ = mass_above_and_level(losses, probabilities)
        inside = above < (1.0 - self.level) * (1.0 - 1e-9)
        quantile = jnp.min(jnp.where(inside & (probabilities > 0), losses, jnp.inf))
        return jnp.maximum(losses - quantile, 0.0) / (1.0 - self.level)


class WorstCase(Risk):
    """The largest loss among draws of positive weight; the limit of CVaR as its level goes to 1.

    >>> import prudent as pr
    >>> pr.WorstCase()([1.0, 6.0, 6.0]).weights.tolist()
    [0.0, 1.5, 1.5]
    """

    def density(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """All mass on the worst draws, shared in proportion to their weights."""
        worst = jnp.max(jnp.where(probabilities > 0, losses, -jnp.inf))
        at_worst = (losses == worst) & (probabilities > 0)
        return at_worst / jnp.where(at_worst, probabilities, 0.0).sum()

    def influence(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """NaN: a sample's maximum only bounds the worst case from below, and has no standard error."""
        del probabilities
        return jnp.full_like(losses, jnp.nan)
