"""What a risk is: the worst reweighting of a weighted sample, its value, gradient, error and confidence interval.

A risk here is its worst reweighting (Theorem 1 of the paper): `rho(C) = max_xi sum_k p_k xi_k C_k` over
densities xi in the risk's envelope. A concrete risk supplies that maximiser, `density`; value and gradient
follow from it, and so does the standard error unless the density is not smooth in the weights.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float

from ..arrays import as_float, float64, is_jax_array, is_traced, loaded, require_distribution, require_finite
from ..errors import InputError
from ..records import Record, tree_map
from ..settings import check_settings
from .intervals import Estimate, confidence_interval, effective_draws

# An infinite loss counts as so many times the largest finite one when the weights are found.
LARGE = 1e6

# The derivative by the weights of a user's risk is found by differences this long, as a share of a weight, at no more
# than so many draws of a sample.
WEIGHT_STEP, MOST_DIFFERENCES = 1e-5, 200

# Classes of users' risks whose density was seen to return an array of JAX.
_written_for_jax: set[type] = set()


Sample: TypeAlias = Float[np.ndarray, " R"]
"""Losses of a sample, or a number of each of its draws."""

Samples: TypeAlias = Float[np.ndarray, "*#batch R"]
"""Losses of many samples, or a number of each of their draws; weights may be those of all samples."""

OfEach: TypeAlias = Float[np.ndarray, "*#batch 1"]
"""A number of each sample."""


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
        ignores_weightless: whether draws of weight 0 change nothing, as in every function of the losses' distribution;
            a density that is written with `jax.numpy` then is compiled for few numbers of draws.
        batched: whether `density` takes losses `[..., R]` of many samples, and numbers of the risk that have their
            leading axes.
    """

    monotone: ClassVar[bool] = True
    coherent: ClassVar[bool] = True
    biased_low: ClassVar[bool] = False
    is_program: ClassVar[bool] = False
    ignores_weightless: ClassVar[bool] = False
    batched: ClassVar[bool] = False

    def __check_init__(self) -> None:
        check_settings(self)

    @abc.abstractmethod
    def density(self, losses: Samples, probabilities: Samples) -> Samples:
        """Return the maximiser xi* (equation 7 of the paper): non-negative, with `sum_k p_k xi_k = 1`.

        A risk of your own is given one sample, `[R]`, and may use NumPy or `jax.numpy`.
        """

    def densities(self, losses: Any, probabilities: Any) -> Any:
        """Return the density of each sample `[..., R]`, whatever `density` is written with; in jitted code, too."""
        if is_traced(losses):
            from .user import traced_densities

            return traced_densities(self, losses, probabilities)
        if self.batched:
            return self.density(losses, probabilities)
        rows, weights = losses.reshape(-1, losses.shape[-1]), np.broadcast_to(probabilities, losses.shape)
        several = zip(rows, weights.reshape(rows.shape), strict=True)
        return np.stack([_density_of_sample(self, row, own) for row, own in several]).reshape(losses.shape)

    def __call__(self, losses: Any, probabilities: Any = None) -> Assessment:
        """Assess a sample.

        Args:
            losses: `[R]` one loss a posterior draw.
            probabilities: `[R]` weights of the draws summing to 1; equal when left out.
        """
        return Assessment(*assess_sample(self, *checked_sample(losses, probabilities)))

    def influence(self, losses: Sample, probabilities: Sample) -> Sample:
        """Return the derivative of the value by the weight of each draw, up to a constant; NaN where there is none.

        A risk whose `density` is not smooth in the weights gives its own. It is found by differences where the density
        is written with NumPy; of more than 200 draws at 200, and between them it is interpolated in the loss.
        """
        self.densities(losses, probabilities)
        if type(self) in _written_for_jax:
            from .user import derive_by_weights

            return derive_by_weights(self, losses, probabilities)
        return difference_by_weights(self, losses, probabilities)

    def standard_error(self, losses: Any, probabilities: Any = None) -> Any:
        """Monte-Carlo standard error of the value, by the infinitesimal jackknife.

        The influence of draw k is the derivative of the value by its weight; for the mean this is the
        textbook standard error, for CVaR its usual asymptotic one.
        """
        return np.asarray(_estimate(self, losses, probabilities).error)

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


def _density_of_sample(risk: Risk, losses: Sample, probabilities: Sample) -> Sample:
    """Return the density of one sample of a risk of the user's, compiled if it is written with `jax.numpy`."""
    with float64():
        if type(risk) not in _written_for_jax:
            try:
                found = risk.density(losses, probabilities)
            except AttributeError:
                # A method that only arrays of JAX have, such as `losses.at`.
                if not loaded():
                    raise
            else:
                if not is_jax_array(found):
                    return np.asarray(found)
            _written_for_jax.add(type(risk))
        from .user import compiled_density

        return compiled_density(risk, losses, probabilities)


def difference_by_weights(risk: Risk, losses: Sample, probabilities: Sample) -> Sample:
    """Return central differences of the value by the weights, forward ones by weights of 0."""
    chosen = np.arange(len(losses))
    if len(losses) > MOST_DIFFERENCES:
        chosen = np.argsort(losses, kind="stable")[np.linspace(0, len(losses) - 1, MOST_DIFFERENCES).astype(int)]

    def value(k: int, step: float) -> float:
        weights = probabilities.copy()
        weights[k] += step
        # A density is asked for weights that sum to 1.
        weights /= weights.sum()
        return float((weights * risk.densities(losses, weights) * losses).sum())

    found = np.empty(len(chosen))
    for place, k in enumerate(chosen.tolist()):
        ahead = WEIGHT_STEP * (probabilities[k] or 1.0 / len(losses))
        behind = -ahead if probabilities[k] > 0 else 0.0
        found[place] = (value(k, ahead) - value(k, behind)) / (ahead - behind)
    if len(chosen) == len(losses):
        return found
    knots, first = np.unique(losses[chosen], return_index=True)
    return np.interp(losses, knots, found[first])


def assess_sample(risk: Risk, losses: Samples, probabilities: Samples) -> tuple[Float[np.ndarray, "*batch"], Samples]:
    """Return the value and xi* of each sample.

    The derivative of the value by the losses is `p xi*`, by the envelope theorem (Theorem 2 of the paper).
    """
    losses, probabilities = np.asarray(losses), np.asarray(probabilities)
    with np.errstate(all="ignore"):
        density = weights_of(risk, losses, probabilities)
        infinite, carried = losses == np.inf, probabilities > 0
        losses = _without_infinite(losses)
        # In units of the largest loss, or small losses times small weights fall below what numbers can hold.
        size = np.max(np.where(carried, np.abs(losses), 0.0), axis=-1, keepdims=True)
        unit = np.where(size > 0, size, 1.0)
        share = probabilities * density
        value = unit[..., 0] * (share * np.where(carried, losses / unit, 0.0 * losses)).sum(axis=-1)
        return np.where(np.any(infinite & (share > 0), axis=-1), np.inf, value), density


def assess_each(
    risks: Risk, losses: Float[np.ndarray, "G R"], shares: Float[np.ndarray, "G R"]
) -> tuple[Float[np.ndarray, " G"], Float[np.ndarray, "G R"]]:
    """Return the value and xi* of each sample under a risk of its own: numbers of `risks` have a leading axis G."""
    if risks.batched:
        return assess_sample(risks, losses, shares)
    each = (select_run(risks, g) for g in range(len(losses)))
    values, densities = zip(*map(assess_sample, each, losses, shares), strict=True)
    return np.array(values), np.stack(densities)


def select_run(risks: Risk, run: int) -> Risk:
    """Return the risk of one run, of risks whose numbers have a leading axis of runs."""
    return tree_map(lambda leaf: leaf[run], risks)


def weights_of(risk: Risk, losses: Samples, probabilities: Samples) -> Samples:
    """Return xi* alone, as `assess_sample` does."""
    with np.errstate(all="ignore"):
        return risk.densities(_without_infinite(losses), probabilities)


def _without_infinite(losses: Samples) -> Samples:
    """Return the losses as they are weighed: an infinite loss counts as a very large one."""
    infinite = losses == np.inf
    if not infinite.any():
        return losses
    most = np.max(np.where(np.isfinite(losses), np.abs(losses), 0.0), axis=-1, keepdims=True)
    return np.where(infinite, LARGE * np.where(most > 0, most, 1.0), losses)


def assess_closely(risk: Risk, losses: Sample, probabilities: Sample) -> Assessed:
    """Return what `assess_sample` does, with what the value's error is made of."""
    losses, probabilities = np.asarray(losses), np.asarray(probabilities)
    value, density = assess_sample(risk, losses, probabilities)
    single = np.where(np.arange(len(losses)) == np.argmax(probabilities), 1.0, 0.0)
    share = max(float(assess_sample(risk, single, probabilities)[0]), float(probabilities.max()))
    with np.errstate(all="ignore"):
        influence = np.asarray(risk.influence(losses, probabilities))
    return Assessed(float(value), density, influence, share)


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
    sample = checked_sample(losses, probabilities)
    return estimate_of(assess_closely(risk, *sample), *sample)


class ConcaveRisk(Risk):
    """A risk that is concave in the distribution of the losses, as the least of expectations over some number."""

    biased_low: ClassVar[bool] = True  # by Jensen's inequality
    batched: ClassVar[bool] = True


def checked_sample(losses: Any, probabilities: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return a user's losses and weights as float64, equal weights when left out."""
    if is_traced(losses) or is_traced(probabilities):
        raise InputError("a risk assesses numbers; call it outside the function that JAX compiles or differentiates")
    losses = as_float(losses)
    if losses.ndim != 1 or losses.shape[0] == 0:
        raise InputError(f"a risk needs a list of at least one loss, got shape {losses.shape}")
    require_finite("loss", losses)
    if probabilities is None:
        return losses, np.full(losses.shape, 1.0 / losses.shape[0])
    probabilities = as_float(probabilities)
    if probabilities.shape != losses.shape:
        raise InputError(f"{losses.shape[0]} losses need as many weights, got shape {probabilities.shape}")
    require_finite("weight", probabilities)
    require_distribution("weights", probabilities)
    # The check lets rounding through; a ball of radius 0 would take it for a distance.
    return losses, probabilities / probabilities.sum()
