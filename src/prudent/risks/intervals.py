"""Confidence intervals from what each draw adds to the error of a number, and how many draws a number rests on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import betaincinv, stdtrit

from ..arrays import Array, require_number

# Fewer draws in effect than this give no interval: in tails of one or two draws 95 % cover as little as 84 %.
LEAST_DRAWS = 3.0

# An error below this share of what one draw can do is that of ties and rounding.
FLAT = 1e-9


def effective_draws(weights: Any, probabilities: Any = None) -> float:
    """How many draws of equal weight would say as much: `(sum p xi)^2 / sum (p xi)^2`.

    Args:
        weights: `[R]` the density xi that attains a risk.
        probabilities: `[R]` weights of the draws; equal when left out.

    >>> import numpy as np, prudent as pr
    >>> from prudent.risks import effective_draws
    >>> round(effective_draws(pr.CVaR(0.99)(np.arange(1000.0)).weights), 6)
    10.0
    """
    weights = np.asarray(weights, float)
    shares = weights if probabilities is None else weights * np.asarray(probabilities, float)
    shares = shares / np.abs(shares).max()
    return float(shares.sum() ** 2 / (shares**2).sum())


class Estimate(NamedTuple):
    """A number estimated from a sample, with all that its interval needs.

    Attributes:
        value: the number.
        contributions: what each draw adds to the error: its weight times its influence less the mean influence.
        effective: how many draws the number rests on.
        share: how much of the number one draw can be.
        spread: the range of the losses.
        difference: whether it is the difference of two.
    """

    value: float
    contributions: Float[np.ndarray, " R"]
    effective: float
    share: float
    spread: float
    difference: bool = False

    @property
    def error(self) -> float:
        """The standard error."""
        return float(error_norm(self.contributions))

    def less(self, other: Estimate) -> Estimate:
        """The difference of two numbers from the same draws."""
        return Estimate(
            self.value - other.value,
            self.contributions - other.contributions,
            min(self.effective, other.effective),
            max(self.share, other.share),
            max(self.spread, other.spread),
            True,
        )


def error_norm(contributions: Float[Array, " R"]) -> Any:
    """Of what draws add to an error; squares of very small or large numbers would be lost."""
    xp: Any = contributions.__array_namespace__()
    largest = xp.max(xp.abs(contributions))
    scale = xp.where(largest > 0, largest, 1.0)
    return scale * xp.sqrt(((contributions / scale) ** 2).sum())


def confidence_interval(estimate: Estimate, confidence: float) -> tuple[float, float]:
    """The interval that holds the number behind the sample with this confidence; NaN where the draws do not tell.

    With c the n contributions, s their norm and g the sum of `(c / s)^3`, the skewness: `((1 + g T / 3)^3 - 1) / g +
    g / 6` of the studentised error T has none (Hall, 1992). It is taken for Student's, with as many degrees of freedom
    as the variance has, `2 / (sum (c / s)^4 - 1 / n)` (Satterthwaite, 1946). Where losses pile up at their maximum, few
    draws in the tail hide that some are lower: of a single risk the lower end is `0.5 / sqrt(k)` further away, for
    k draws in effect.
    """
    require_number("confidence", confidence, "(0, 1)", "0.95 is usual")
    value, contributions, outside = estimate.value, estimate.contributions, 0.5 * (1.0 - confidence)
    if not (estimate.effective >= LEAST_DRAWS and np.isfinite(contributions).all()):
        return float("nan"), float("nan")
    error = estimate.error
    if error <= FLAT * estimate.share * estimate.spread:
        return _unseen(estimate, outside)
    scaled = contributions / error
    freedom = 2.0 / max((scaled**4).sum() - 1.0 / scaled.size, 2.0 / (scaled.size - 1.0))
    student = stdtrit(freedom, np.array([1.0 - outside, outside]))
    low, high = value - error * _skewed(student, (scaled**3).sum())
    if not estimate.difference:
        low = value - (value - low) * (1.0 + 0.5 / np.sqrt(estimate.effective))
    return float(low), float(high)


def _unseen(estimate: Estimate, outside: float) -> tuple[float, float]:
    """For draws that tie: with this confidence, what none of n draws showed has less mass than `-log(outside) / n`."""
    if estimate.share * LEAST_DRAWS > 1.0:
        return float("nan"), float("nan")
    width = min(1.0, -np.log(outside) * estimate.share) * estimate.spread
    return float(estimate.value - width), float(estimate.value + width)


def _skewed(quantiles: np.ndarray, skewness: float) -> np.ndarray:
    """Hall's transformation undone; it tends to nothing with the skewness."""
    if abs(skewness) < 1e-6:
        return quantiles
    return 3.0 / skewness * (np.cbrt(1.0 + skewness * (quantiles - skewness / 6.0)) - 1.0)


def jackknife(without: Any) -> float:
    """The standard error of a number that rests on B batches, from what it is without each; NaN if one is."""
    left = np.asarray(without, float)
    if not np.all(np.isfinite(left)):
        return float("nan")
    return float(np.sqrt((len(left) - 1) / len(left) * ((left - left.mean()) ** 2).sum()))


def widened(
    value: float, interval: tuple[float, float], error: float, batches: int, confidence: float = 0.95
) -> tuple[float, float]:
    """An interval of 95 %, or another confidence, with an independent error added, which so many batches tell."""
    reach = float(stdtrit(batches - 1, 0.5 + 0.5 * confidence)) * error
    low, high = interval
    return value - float(np.hypot(value - low, reach)), value + float(np.hypot(high - value, reach))


def share_interval(share: float, count: int | float, confidence: float = 0.95) -> tuple[float, float]:
    """The exact binomial interval (Clopper and Pearson, 1934) of a probability seen as a share of so many draws.

    >>> import prudent as pr
    >>> [round(end, 3) for end in pr.share_interval(0.95, 200)]
    [0.91, 0.976]
    """
    outside = 0.5 * (1.0 - confidence)
    kept = share * count
    low = 0.0 if kept <= 0 else float(betaincinv(kept, count - kept + 1.0, outside))
    high = 1.0 if kept >= count else float(betaincinv(kept + 1.0, count - kept, 1.0 - outside))
    return low, high
