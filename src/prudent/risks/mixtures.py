"""Risks made of others: mixtures, `0.3 * Expectation() + 0.7 * CVaR(0.9)`, and the mean plus a deviation from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NoReturn

import numpy as np
from jaxtyping import Float

from ..arrays import Array, as_float, as_number, is_concrete, namespace_of, require_finite
from ..errors import InputError
from ..records import field
from ..settings import check_settings, number
from .base import Mixable, OfEach, Risk, Sample, Samples
from .quantiles import BEYOND, LEVEL, tail_density, tail_influence

# Weights that sum to 1 this closely make a mixture; it divides by their sum.
ROUNDING = 1e-9

# Losses this close to their mean, as a share of the largest, are not above it.
AT_MEAN = 1e-15


def _of_parts(name: str, joined: Callable[[Iterable[bool]], bool] = all) -> Any:
    """What a mixture declares of itself where all, or any, of its parts do."""
    return property(lambda self: joined(getattr(risk, name) for risk in self.risks))


class Mixture(Risk):
    """`sum_i w_i rho_i`: a convex combination of risks, which is coherent if they are.

    Usually written as a sum; the long form is for weights that are traced by JAX.

    Args:
        risks: the K risks.
        weights: `[K]` their weights, not negative and summing to 1.

    >>> import prudent as pr
    >>> risk = 0.5 * pr.Expectation() + pr.CVaR(0.5) * 0.5
    >>> float(risk([1.0, 2.0, 3.0, 6.0]).value)
    3.75
    """

    monotone: ClassVar[bool] = _of_parts("monotone")
    coherent: ClassVar[bool] = _of_parts("coherent")
    biased_low: ClassVar[bool] = _of_parts("biased_low")
    batched: ClassVar[bool] = _of_parts("batched")
    is_program: ClassVar[bool] = _of_parts("is_program", any)

    risks: tuple[Risk, ...] = field(converter=tuple)
    weights: Float[Array, "*batch K"] = field(converter=as_float)

    def __check_init__(self) -> None:
        for risk in self.risks:
            if not isinstance(risk, Risk):
                raise InputError(f"a Mixture is made of risks such as CVaR(0.9), got {type(risk).__name__}")
        if self.weights.shape != (len(self.risks),) or not self.risks:
            raise InputError(f"{len(self.risks)} risks need as many weights, got shape {self.weights.shape}")
        if is_concrete(self.weights):
            require_finite("Mixture weights", np.asarray(self.weights))
            if np.any(self.weights < 0) or abs(self.weights.sum() - 1.0) > ROUNDING:
                raise InputError(
                    f"the weights of a Mixture must be >= 0 and sum to 1, got {self.weights}; divide by their sum"
                )

    def density(self, losses: Samples, probabilities: Samples) -> Samples:
        """The densities of the parts, mixed."""
        parts = (risk.densities(losses, probabilities) for risk in self.risks)
        shares = self._shares()
        mixed: Any = sum((shares[..., k, None] * part for k, part in enumerate(parts)), 0.0)
        return mixed

    def influence(self, losses: Sample, probabilities: Sample) -> Sample:
        """The influences of the parts, mixed; NaN if a part has none, unless its weight is 0."""
        several = [(share, risk) for share, risk in zip(self._shares(), self.risks, strict=True) if share > 0]
        return np.sum([share * np.asarray(risk.influence(losses, probabilities)) for share, risk in several], axis=0)

    def _shares(self) -> Float[np.ndarray, "*batch K"]:
        shares: Any = self.weights / self.weights.sum(axis=-1, keepdims=True)
        return shares


class PartialMixture(Mixable):
    """Weighted risks whose weights do not sum to 1 yet: not a risk, but on the way to a `Mixture`.

    >>> import prudent as pr
    >>> 0.3 * pr.Expectation()
    0.3 * Expectation (0.7 is missing to a risk)
    """

    def __init__(self, risks: tuple[Risk, ...], weights: tuple[float, ...]):
        self.risks = risks
        self.weights = weights

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise InputError(
            f"the weights of {self} sum to {sum(self.weights):.9g}, not 1; add the missing part, for example "
            f"+ {1.0 - sum(self.weights):.9g} * Expectation()"
        )

    density = influence = standard_error = interval = difference_interval = __call__

    def __repr__(self) -> str:
        terms = (f"{weight:g} * {type(risk).__name__}" for risk, weight in zip(self.risks, self.weights, strict=True))
        return f"{' + '.join(terms)} ({1.0 - sum(self.weights):.9g} is missing to a risk)"


def multiplied(part: Mixable, weight: Any) -> PartialMixture | Mixture:
    """A risk, or a sum of weighted risks, times a number."""
    number = as_float(weight, "weight of a risk")
    if not is_concrete(number):
        raise InputError(
            "a risk can be multiplied by plain numbers only; use Mixture(risks, weights) under JAX tracing"
        )
    if number.ndim or not np.isfinite(number) or number < 0:
        raise InputError(
            f"the weight of a risk must be one number in [0, 1], got {weight}; a risk less another one is not coherent"
        )
    risks, weights = _parts(part)
    return _settled(risks, tuple(float(number) * each for each in weights))


def weighted_sum(one: Any, other: Any) -> PartialMixture | Mixture:
    """The sum of weighted risks."""
    risks, weights = _parts(one)
    more, further = _parts(other)
    return _settled(risks + more, weights + further)


def _parts(part: Any) -> tuple[tuple[Risk, ...], tuple[float, ...]]:
    if isinstance(part, PartialMixture):
        return part.risks, part.weights
    if isinstance(part, Risk):
        return (part,), (1.0,)
    if isinstance(part, int | float) and part == 0:  # what `sum` begins with
        return (), ()
    raise InputError(f"a risk can be added to weighted risks such as 0.5 * CVaR(0.9), got {part!r}")


def _settled(risks: tuple[Risk, ...], weights: tuple[float, ...]) -> PartialMixture | Mixture:
    total = sum(weights)
    if total > 1.0 + ROUNDING:
        terms = " + ".join(f"{weight:g} * {type(risk).__name__}" for risk, weight in zip(risks, weights, strict=True))
        raise InputError(
            f"the weights of {terms} sum to {total:.9g}; they must sum to 1 (a risk without a weight counts as 1), "
            f"divide them by {total:.9g}"
        )
    return Mixture(risks, np.array(weights)) if total >= 1.0 - ROUNDING else PartialMixture(risks, weights)


class MeanSemideviation(Risk):
    """`E C + c (E ((C - E C)^+)^p)^(1/p)`: the mean plus a share of the mean excess over it.

    Args:
        order: p >= 1.
        weight: c in [0, 1]; above 1 the measure would not be monotone.

    >>> import prudent as pr
    >>> round(float(pr.MeanSemideviation(order=1.0, weight=0.5)([1.0, 2.0, 6.0]).value), 9)  # 3 + 0.5 * (3 / 3)
    3.5
    """

    batched: ClassVar[bool] = True

    order: Float[Array, "*batch"] = field(
        converter=as_number,
        default=1.0,
        metadata=number("[1, inf)", "of the semideviation", "use WorstCase() for the limit"),
    )
    weight: Float[Array, "*batch"] = field(
        converter=as_number,
        default=1.0,
        metadata=number("[0, 1]", "of the deviation", "above 1 it is not monotone, below 0 not convex", alone=True),
    )

    def density(self, losses: Samples, probabilities: Samples) -> Samples:
        """`1 + c (zeta - E zeta)` with `zeta = ((C - E C)^+ / semideviation)^(p - 1)`, 0 at the mean and below."""
        ratio, _ = self._excess(losses, probabilities)
        zeta = self._power(ratio)
        mean = (probabilities * zeta).sum(axis=-1, keepdims=True)
        return np.maximum(1.0 + self.weight[..., None] * (zeta - mean), 0.0)

    def influence(self, losses: Sample, probabilities: Sample) -> Sample:
        """`(1 - c E zeta) C + c s ((C - E C)^+ / s)^p / p`: the mean moves with the weights, too."""
        ratio, deviation = self._excess(losses, probabilities)
        mean_zeta = (probabilities * self._power(ratio)).sum()
        own = deviation * np.where(ratio > 0, ratio, 0.0) ** self.order / self.order
        return (1.0 - self.weight * mean_zeta) * losses + self.weight * own

    def _excess(self, losses: Samples, probabilities: Samples) -> tuple[Samples, OfEach]:
        """The excess over the mean in units of the semideviation, and the semideviation, `[..., 1]`."""
        order = self.order[..., None]
        excess = losses - (probabilities * losses).sum(axis=-1, keepdims=True)
        # What is above the mean by no more than its rounding is at the mean.
        size = np.max(np.where(probabilities > 0, np.abs(losses), 0.0), axis=-1, keepdims=True)
        excess = np.where(excess > AT_MEAN * size, excess, 0.0)
        # Powers are taken of numbers in [0, 1], whatever the scale of the losses.
        scale = np.max(np.where(probabilities > 0, excess, 0.0), axis=-1, keepdims=True)
        share = np.clip(excess / np.where(scale > 0, scale, 1.0), 0.0, 1.0)
        norm = (probabilities * share**order).sum(axis=-1, keepdims=True) ** (1.0 / order)
        return np.where(norm > 0, share / np.where(norm > 0, norm, 1.0), 0.0), scale * norm

    def _power(self, ratio: Samples) -> Samples:
        return np.where(ratio > 0, np.where(ratio > 0, ratio, 1.0) ** (self.order[..., None] - 1.0), 0.0)


class QuantileDeviation(Risk):
    """`E C + c min_t E max{(1 - b)(t - C), b (C - t)}`: the mean plus the deviation from the b-quantile.

    The same as `(1 - c (1 - b)) E C + c (1 - b) CVaR_b`.

    Args:
        level: b in [0, 1).
        weight: c in [0, 1 / (1 - b)].

    >>> import prudent as pr
    >>> float(pr.QuantileDeviation(0.5, 1.0)([1.0, 2.0, 3.0, 6.0]).value)  # (3 + 4.5) / 2
    3.75
    """

    batched: ClassVar[bool] = True

    level: Float[Array, "*batch"] = field(converter=as_number, default=0.9, metadata=number("[0, 1)", LEVEL, BEYOND))
    weight: Float[Array, "*batch"] = field(
        converter=as_number,
        default=1.0,
        metadata=number("[0, inf)", "of the deviation, at most 1 / (1 - level)", "it is at most 1 / (1 - level)"),
    )

    def __check_init__(self) -> None:
        check_settings(self)
        # A little more than the bound, so that 1 / (1 - level) itself is let through.
        if is_concrete(self.level) and is_concrete(self.weight) and self._share() > 1.0 + 1e-12:
            raise InputError(
                f"QuantileDeviation weight must lie in [0, 1 / (1 - level)], got {self.weight} at level {self.level}; "
                f"above {1.0 / (1.0 - self.level):.6g} it is not monotone"
            )

    def density(self, losses: Samples, probabilities: Samples) -> Samples:
        """`1 - c (1 - b)` for every draw, and `c` for a draw in the tail."""
        share = namespace_of(losses).clip(self._share(), 0.0, 1.0)[..., None]
        return 1.0 - share + share * tail_density(1.0 - self.level[..., None], losses, probabilities)

    def influence(self, losses: Sample, probabilities: Sample) -> Sample:
        """As the density: a part of the mean, a part of CVaR."""
        share = np.clip(self._share(), 0.0, 1.0)
        return (1.0 - share) * losses + share * tail_influence(1.0 - self.level, losses, probabilities)

    def _share(self) -> Any:
        return self.weight * (1.0 - self.level)
