"""What a risk is: the worst reweighting of a weighted sample, its value, gradient, error and confidence interval.

A risk here is its worst reweighting (Theorem 1 of the paper): `rho(C) = max_xi sum_k p_k xi_k C_k` over
densities xi in the risk's envelope. A concrete risk supplies that maximiser, `density`; value and gradient
follow from it, and so does the standard error unless the density is not smooth in the weights.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float

from ..arrays import (
    Array,
    as_float,
    in_float64,
    is_concrete,
    is_jax_array,
    is_traced,
    require_distribution,
    require_finite,
    to_numpy,
)
from ..deferred import jax, jitted, lax, loaded
from ..errors import InputError
from ..records import Record
from ..settings import check_settings
from .intervals import Estimate, confidence_interval, effective_draws, error_norm

# An infinite loss counts as so many times the largest finite one when the weights are found.
LARGE = 1e6

# A sample is filled up with draws of weight 0 to one of these sizes: few are compiled, whatever the number of draws.
SMALLEST_FILLED, FILLED_GROWTH = 1024, 4


class Assessment(NamedTuple):
    """A risk's value and the density `xi*` that attains it: `value = sum_k p_k xi_k C_k`.

    >>> import prudent as pr
    >>> value, weights = pr.CVaR(0.5)([1.0, 2.0, 3.0, 6.0])
    >>> float(value), weights.tolist()
    (4.5, [0.0, 0.0, 2.0, 2.0])
    """

    value: Any
    weights: Any


class Assessed(NamedTuple):
    """A risk on a sample with what its error is made of.

    Attributes:
        value: the risk.
        weights: the density `xi*` that attains it.
        influence: derivative of the value by each draw's weight, up to a constant; NaN where there is none.
        share: the largest part of the value that one draw can have.
    """

    value: float
    weights: Float[np.ndarray, " R"]
    influence: Float[np.ndarray, " R"]
    share: float


class Mixable:
    """What can be weighted and added up to a mixture, by arithmetic."""

    # NumPy numbers leave the product to us instead of looking for an array in here.
    __array_ufunc__ = None

    def __mul__(self, weight: Any) -> Any:
        """This risk's part in a mixture, `CVaR(0.9) * 0.7`."""
        from .mixtures import multiplied

        return multiplied(self, weight)

    def __add__(self, other: Any) -> Any:
        """The sum of weighted risks; one without a weight counts once."""
        from .mixtures import weighted_sum

        return weighted_sum(self, other)

    __rmul__, __radd__ = __mul__, __add__


class Risk(Record, Mixable):
    """A coherent risk measure: monotone, convex, positively homogeneous, translation equivariant.

    Risks are mixed by arithmetic, `0.3 * Expectation() + 0.7 * CVaR(0.9)`; the weights must sum to 1. A risk of your
    own declares where it differs from what is said of any below; a mixture is what its parts are.

    Attributes:
        monotone: whether losses that are no larger at any draw are never riskier, as of every coherent risk: what
            `rho(min_pi C)` needs to be a bound.
        coherent: whether the value is the largest mean over a set of densities, so that each of them bounds it from
            below.
        biased_low: whether the value on a sample is on average at most that of the distribution it was drawn from, as
            of every risk that is concave in the distribution: the mean, CVaR and what is mixed from them.
        is_program: whether every assessment is a convex program, which costs more than the losses do.
        ignores_weightless: whether draws of weight 0 change nothing, as in every function of the losses' distribution,
            so that a sample may be filled up with them, and is compiled less often.
        on_host: whether density and influence take NumPy arrays, too, as those do that take their functions from
            `losses.__array_namespace__()`: nothing has to be compiled for a sample.
    """

    monotone: ClassVar[bool] = True
    coherent: ClassVar[bool] = True
    biased_low: ClassVar[bool] = False
    is_program: ClassVar[bool] = False
    ignores_weightless: ClassVar[bool] = False
    on_host: ClassVar[bool] = False

    def __check_init__(self) -> None:
        check_settings(self)

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
        losses, probabilities = checked_sample(losses, probabilities)
        traced = is_traced(losses) or is_traced(probabilities)
        found: Any = risk_value if traced else assess_sample
        return Assessment(*found(self, losses, probabilities))

    def influence(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """The derivative of the value by the weight of each draw, up to a constant; NaN where there is none.

        A risk whose `density` is not smooth in the weights gives its own.
        """

        def value(weights: Array) -> Any:
            return (weights * self.density(losses, weights) * losses).sum()

        return jax.grad(value)(probabilities)

    @in_float64
    def standard_error(self, losses: Any, probabilities: Any = None) -> Any:
        """Monte-Carlo standard error of the value, by the infinitesimal jackknife.

        The influence of draw k is the derivative of the value by its weight; for the mean this is the
        textbook standard error, for CVaR its usual asymptotic one.
        """
        sample = checked_sample(losses, probabilities)
        if sample[0].shape[0] == 1:
            return np.asarray(np.nan)  # one draw says nothing of the spread
        if any(map(is_traced, sample)):
            slope = self.influence(*sample)
            return error_norm(sample[1] * (slope - (sample[1] * slope).sum()))
        return np.asarray(_estimate(self, losses, probabilities).error)

    @in_float64
    def interval(self, losses: Any, probabilities: Any = None, confidence: float = 0.95) -> tuple[float, float]:
        """A confidence interval of the risk of the distribution that the losses were drawn from.

        Student's t with as many degrees of freedom as draws make up the error, and its skewness removed by Hall's
        transformation; the fewer draws the tail holds, the wider. Both ends are NaN where the draws do not tell: no
        standard error (`WorstCase`, `TotalVariationBall`, `Envelope`), or fewer than three draws in effect. Where all
        draws that matter tie, what was not drawn is allowed for by the range of the losses. The ends at confidence 0.9
        are one-sided limits of 95 %.

        Args:
            losses: `[R]` one loss an independent draw.
            probabilities: `[R]` weights of the draws summing to 1; equal when left out.
            confidence: in (0, 1).

        >>> import numpy as np, prudent as pr
        >>> low, high = pr.CVaR(0.9).interval(np.random.default_rng(0).uniform(size=1000))
        >>> low < 0.95 < high
        True
        >>> pr.CVaR(0.999).interval(np.random.default_rng(0).uniform(size=1000))
        (nan, nan)
        """
        return confidence_interval(_estimate(self, losses, probabilities), confidence)

    @in_float64
    def difference_interval(
        self, losses: Any, others: Any, probabilities: Any = None, confidence: float = 0.95
    ) -> tuple[float, float]:
        """A confidence interval of `rho(losses) - rho(others)`, both at the same draws; otherwise as `interval`.

        Args:
            losses: `[R]` one loss an independent draw.
            others: `[R]` what is compared with, at the same draws.
            probabilities: `[R]` weights of the draws summing to 1; equal when left out.
            confidence: in (0, 1).

        >>> import numpy as np, prudent as pr
        >>> losses = np.random.default_rng(0).uniform(size=1000)
        >>> low, high = pr.CVaR(0.9).difference_interval(losses, 0.9 * losses)
        >>> low < 0.095 < high < low + 0.003
        True
        """
        one, other = (_estimate(self, each, probabilities) for each in (losses, others))
        if one.contributions.shape != other.contributions.shape:
            raise InputError(
                f"a difference needs the losses of the same draws, got {one.contributions.size} and "
                f"{other.contributions.size}"
            )
        return confidence_interval(one.less(other), confidence)


def risk_value(risk: Risk, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> tuple[Any, Any]:
    """Value and xi*, differentiable by the losses: the derivative of the value is `p xi*`.

    This is the envelope theorem (Theorem 2 of the paper): the maximiser is held fixed. The losses are cut
    off before the density, not after it: a density that calls a solver has no derivative rule.
    """
    xp: Any = losses.__array_namespace__()
    held = lax.stop_gradient if is_jax_array(losses) else lambda part: part
    infinite = losses == np.inf
    losses, density = _weighed(risk, losses, probabilities)
    # In units of the largest loss, or small losses times small weights fall below what numbers can hold.
    size = held(xp.max(xp.where(probabilities > 0, xp.abs(losses), 0.0)))
    unit = xp.where(size > 0, size, 1.0)
    value = unit * (probabilities * density * xp.where(probabilities > 0, losses / unit, 0.0 * losses)).sum()
    return xp.where(xp.any(infinite & (probabilities * density > 0)), np.inf, value), density


def _weighed(risk: Risk, losses: Any, probabilities: Any) -> tuple[Any, Any]:
    """The losses as they are weighed, and xi*: an infinite loss counts as a very large one."""
    xp: Any = losses.__array_namespace__()
    most = xp.max(xp.where(xp.isfinite(losses), xp.abs(losses), 0.0))
    losses = xp.where(losses == np.inf, LARGE * xp.where(most > 0, most, 1.0), losses)
    if not is_jax_array(losses):
        return losses, risk.density(losses, probabilities)
    try:
        return losses, risk.density(lax.stop_gradient(losses), lax.stop_gradient(probabilities))
    except jax.errors.JAXTypeError as error:
        raise InputError(
            f"the density of {type(risk).__name__} could not be compiled: {str(error).splitlines()[0]}; write it "
            "with jax.numpy in place of numpy, and hold it to its laws with pr.check_risk"
        ) from error


def weights_of(risk: Risk, losses: np.ndarray, probabilities: np.ndarray) -> Float[np.ndarray, " R"]:
    """xi* alone, as `assess_sample` has it."""
    if not risk.on_host:
        return assess_sample(risk, losses, probabilities)[1]
    with np.errstate(all="ignore"):
        return np.asarray(_weighed(risk, losses, probabilities)[1])


def _closely(risk: Risk, losses: Any, probabilities: Any) -> tuple[Any, Any, Any, Any]:
    xp: Any = losses.__array_namespace__()
    value, density = risk_value(risk, losses, probabilities)
    single = xp.where(np.arange(len(losses)) == xp.argmax(probabilities), 1.0, 0.0)
    share = xp.maximum(risk_value(risk, single, probabilities)[0], probabilities.max())
    return value, density, risk.influence(losses, probabilities), share


compiled_value, _compiled_closely = jitted(risk_value), jitted(_closely)


def _filled(risk: Risk, losses: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sample, followed by draws of weight 0 where these change nothing."""
    size = SMALLEST_FILLED
    while size < len(losses):
        size *= FILLED_GROWTH
    more = size - len(losses) if risk.ignores_weightless else 0
    return np.pad(losses, (0, more), mode="edge"), np.pad(probabilities, (0, more))


def _by(risk: Risk, plain: Callable, compiled: Callable, losses: np.ndarray, probabilities: np.ndarray) -> Any:
    """What a function finds of a sample, by NumPy where the risk takes its arrays."""
    if not risk.on_host:
        return to_numpy(compiled(risk, *_filled(risk, losses, probabilities)))
    with np.errstate(all="ignore"):  # as in compiled code
        return tuple(np.asarray(part) for part in plain(risk, losses, probabilities))


@in_float64
def assess_sample(risk: Risk, losses: Any, probabilities: Any) -> tuple[Any, Any]:
    """Value and xi* of a sample: by NumPy, or compiled for few sizes, whatever the sample's."""
    losses, probabilities = np.asarray(losses), np.asarray(probabilities)
    value, density = _by(risk, risk_value, compiled_value, losses, probabilities)
    return value, density[: len(losses)]


@in_float64
def assess_closely(risk: Risk, losses: np.ndarray, probabilities: np.ndarray) -> Assessed:
    """As `assess_sample`, with what the value's error is made of."""
    losses, probabilities = np.asarray(losses), np.asarray(probabilities)
    value, density, influence, share = _by(risk, _closely, _compiled_closely, losses, probabilities)
    return Assessed(float(value), density[: len(losses)], influence[: len(losses)], float(share))


def estimate_of(assessed: Assessed, losses: np.ndarray, probabilities: np.ndarray) -> Estimate:
    """The value with what each draw adds to its error; one draw says nothing of the spread."""
    centred = assessed.influence - probabilities @ assessed.influence
    parts = probabilities * centred if len(losses) > 1 else np.full(1, np.nan)
    carried = losses[probabilities > 0]
    drawn = effective_draws(probabilities * assessed.weights)
    return Estimate(assessed.value, parts, drawn, assessed.share, float(carried.max() - carried.min()))


def sample_interval(assessed: Assessed, losses: np.ndarray, probabilities: np.ndarray) -> tuple[float, float]:
    """The 95 % confidence interval of an assessed sample."""
    return confidence_interval(estimate_of(assessed, losses, probabilities), 0.95)


def _estimate(risk: Risk, losses: Any, probabilities: Any) -> Estimate:
    sample = to_numpy(checked_sample(losses, probabilities))
    return estimate_of(assess_closely(risk, *sample), *sample)


class ConcaveRisk(Risk):
    """A risk that is concave in the distribution of the losses, as the least of expectations over some number."""

    biased_low: ClassVar[bool] = True  # by Jensen's inequality
    ignores_weightless: ClassVar[bool] = True


def checked_sample(losses: Any, probabilities: Any) -> tuple[Any, Any]:
    """A user's losses and weights as float64, equal weights when left out."""
    losses = as_float(losses)
    if losses.ndim != 1 or losses.shape[0] == 0:
        raise InputError(f"a risk needs a list of at least one loss, got shape {losses.shape}")
    if is_concrete(losses):
        require_finite("loss", np.asarray(losses))
    if probabilities is None:
        return _jax_array(losses), _jax_array(np.full(losses.shape, 1.0 / losses.shape[0]))
    probabilities = as_float(probabilities)
    if probabilities.shape != losses.shape:
        raise InputError(f"{losses.shape[0]} losses need as many weights, got shape {probabilities.shape}")
    if is_concrete(probabilities):
        require_finite("weight", np.asarray(probabilities))
        require_distribution("weights", np.asarray(probabilities))
        # The check lets rounding through; a ball of radius 0 would take it for a distance.
        probabilities = probabilities / probabilities.sum()
    return _jax_array(losses), _jax_array(probabilities)


def _jax_array(part: Any) -> Any:
    """Traced inside a compiled function, so that the risk can be, too; outside, nothing is compiled for it."""
    return jax.device_put(part) if loaded() and not is_traced(part) else part
