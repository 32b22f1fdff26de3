"""Convex combinations of risks, by arithmetic: `0.3 * Expectation() + 0.7 * CVaR(0.9)`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NoReturn

import equinox as eqx
import numpy as np
from jaxtyping import Float

from ..arrays import Array, as_float, is_concrete, require_finite
from ..errors import InputError
from .base import Mixable, Risk

# Weights that sum to 1 this closely make a mixture; it divides by their sum.
ROUNDING = 1e-9


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
    ignores_weightless: ClassVar[bool] = _of_parts("ignores_weightless")
    on_host: ClassVar[bool] = _of_parts("on_host")
    is_program: ClassVar[bool] = _of_parts("is_program", any)

    risks: tuple[Risk, ...] = eqx.field(converter=tuple)
    weights: Float[Array, "*batch K"] = eqx.field(converter=as_float)

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

    def density(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """The densities of the parts, mixed."""
        xp: Any = losses.__array_namespace__()
        weights = xp.asarray(self.weights) / xp.asarray(self.weights).sum()
        parts = [risk.density(losses, probabilities) for risk in self.risks]
        mixed: Any = sum((weight * part for weight, part in zip(weights, parts, strict=True)), xp.zeros_like(losses))
        return mixed

    def influence(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """The influences of the parts, mixed; NaN if a part has none, unless its weight is 0."""
        xp: Any = losses.__array_namespace__()
        weights = xp.asarray(self.weights) / xp.asarray(self.weights).sum()
        parts = [risk.influence(losses, probabilities) for risk in self.risks]
        parts = (xp.where(weight > 0, weight * part, 0.0) for weight, part in zip(weights, parts, strict=True))
        mixed: Any = sum(parts, xp.zeros_like(losses))
        return mixed


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
