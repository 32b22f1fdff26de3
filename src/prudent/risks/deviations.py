"""The mean plus a deviation from it: semideviations of any order, and the deviation from a quantile."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Float

from ..arrays import Array, as_number, is_concrete
from ..errors import InputError
from ..settings import check_settings, number
from .base import Risk
from .quantiles import BEYOND, LEVEL, CVaR


class MeanSemideviation(Risk):
    """`E C + c (E ((C - E C)^+)^p)^(1/p)`: the mean plus a share of the mean excess over it.

    Args:
        order: p >= 1.
        weight: c in [0, 1]; above 1 the measure would not be monotone.

    >>> import prudent as pr
    >>> round(float(pr.MeanSemideviation(order=1.0, weight=0.5)([1.0, 2.0, 6.0]).value), 9)  # 3 + 0.5 * (3 / 3)
    3.5
    """

    on_host: ClassVar[bool] = True
    ignores_weightless: ClassVar[bool] = True

    order: Float[Array, "*batch"] = eqx.field(
        converter=as_number,
        default=1.0,
        metadata=number("[1, inf)", "of the semideviation", "use WorstCase() for the limit"),
    )
    weight: Float[Array, "*batch"] = eqx.field(
        converter=as_number,
        default=1.0,
        metadata=number("[0, 1]", "of the deviation", "above 1 it is not monotone, below 0 not convex", alone=True),
    )

    def density(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """`1 + c (zeta - E zeta)` with `zeta = ((C - E C)^+ / semideviation)^(p - 1)`, 0 at the mean and below."""
        ratio, _ = self._excess(losses, probabilities)
        zeta = self._power(ratio)
        xp = losses.__array_namespace__()
        return xp.maximum(1.0 + self.weight * (zeta - (probabilities * zeta).sum()), 0.0)

    def influence(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """`(1 - c E zeta) C + c s ((C - E C)^+ / s)^p / p`: the mean moves with the weights, too."""
        ratio, deviation = self._excess(losses, probabilities)
        mean_zeta = (probabilities * self._power(ratio)).sum()
        xp = losses.__array_namespace__()
        own = deviation * xp.where(ratio > 0, ratio, 0.0) ** self.order / self.order
        return (1.0 - self.weight * mean_zeta) * losses + self.weight * own

    def _excess(self, losses: Array, probabilities: Array) -> tuple[Any, Any]:
        """The excess over the mean in units of the semideviation, and the semideviation."""
        xp = losses.__array_namespace__()
        excess = xp.maximum(losses - (probabilities * losses).sum(), 0.0)
        # Powers are taken of numbers in [0, 1], whatever the scale of the losses.
        scale = xp.max(xp.where(probabilities > 0, excess, 0.0))
        share = xp.clip(excess / xp.where(scale > 0, scale, 1.0), 0.0, 1.0)
        norm = (probabilities * share**self.order).sum() ** (1.0 / self.order)
        return xp.where(norm > 0, share / xp.where(norm > 0, norm, 1.0), 0.0), scale * norm

    def _power(self, ratio: Array) -> Any:
        xp = ratio.__array_namespace__()
        return xp.where(ratio > 0, xp.where(ratio > 0, ratio, 1.0) ** (self.order - 1.0), 0.0)


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

    on_host: ClassVar[bool] = True
    ignores_weightless: ClassVar[bool] = True

    level: Float[Array, "*batch"] = eqx.field(
        converter=as_number, default=0.9, metadata=number("[0, 1)", LEVEL, BEYOND)
    )
    weight: Float[Array, "*batch"] = eqx.field(
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

    def density(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """`1 - c (1 - b)` for every draw, and `c` for a draw in the tail."""
        share = losses.__array_namespace__().clip(self._share(), 0.0, 1.0)
        return 1.0 - share + share * CVaR(self.level).density(losses, probabilities)

    def influence(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """As the density: a part of the mean, a part of CVaR."""
        share = losses.__array_namespace__().clip(self._share(), 0.0, 1.0)
        return (1.0 - share) * losses + share * CVaR(self.level).influence(losses, probabilities)

    def _share(self) -> Any:
        return self.weight * (1.0 - self.level)
