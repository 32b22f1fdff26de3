"""What is said of each limit: its value on fresh draws, whether it is kept, how surely, and what it costs."""

from __future__ import annotations

import enum
from typing import Any

import equinox as eqx
import numpy as np
from scipy.special import betaincinv

from ...evaluation import Evaluation
from .limit import Limit


class Verdict(enum.Enum):
    """Whether a limit is kept, as far as fresh draws tell.

    >>> import prudent as pr
    >>> pr.Verdict.KEPT.value
    'kept'
    """

    KEPT = "kept"
    BROKEN = "broken"
    OPEN = "not shown to be kept, nor broken"


class LimitAnswer(eqx.Module):
    """A limit and what the policy makes of it, on the draws of the solution's evaluation.

    >>> import numpy as np, prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> limit = pr.Limit(pr.Visits([2], per=1), at_most=0.5, risk=pr.Expectation())
    >>> answer = pr.solve(lake, pr.Point([0.3, 0.1]), subject_to=[limit]).limits[0]
    >>> answer.verdict.value, answer.kept
    ('kept', 1.0)

    Attributes:
        limit: as it was asked for.
        evaluation: the limit's loss at each draw, and its risk; with a chance, the risk by which it was searched for.
        verdict: whether it is kept.
        upper: one-sided confidence limit of the risk; the risk itself where it is exact, NaN where there is none.
        kept: posterior probability that the loss itself is at most the limit.
        kept_interval: of that, exact binomial of 95 %; the probability itself where the draws are the whole posterior.
        multiplier: what the optimal risk falls by for one unit more of the limit, to first order; with a chance, of the
            CVaR that stands in for it; NaN where no policy that keeps the limits was found.
        least: `rho(min_pi D)`, below which no policy gets; with a chance, the probability with which any policy could
            keep it; NaN where it is not known.
        proved: whether that proves that no policy keeps the limit.
        level: of the CVaR by which a limit with a chance was searched for; None without one.
    """

    limit: Limit
    evaluation: Evaluation
    verdict: Verdict = eqx.field(static=True)
    upper: float
    kept: float
    kept_interval: tuple[float, float]
    multiplier: float
    least: float
    proved: bool
    level: float | None

    @property
    def value(self) -> float:
        """The risk of the limit's loss; with a chance, its quantile there."""
        if self.limit.chance is not None:
            return float(self.evaluation.quantile(self.limit.chance))
        return self.evaluation.risk

    @property
    def slack(self) -> float:
        """What is left of the limit; below 0 where it is broken."""
        return float(self.limit.at_most) - self.value

    @property
    def violation(self) -> np.ndarray:
        """`[M]` by how much the loss is above the limit at each draw; 0 where it is not."""
        return np.maximum(np.asarray(self.evaluation.losses) - float(self.limit.at_most), 0.0)

    @property
    def mean_violation(self) -> float:
        """Over the posterior."""
        return float(np.asarray(self.evaluation.probabilities) @ self.violation)

    def rows(self, number: int) -> list[tuple[str, str]]:
        """Lines of a solution's summary, as (label, text)."""
        limit, unit = self.limit, f" {self.limit.unit}" if self.limit.unit else ""
        exact = self.evaluation.exact
        if limit.chance is None:
            sure = "" if exact else f", at most {self.upper:.4g} with {(limit.confidence or 0.95):.0%} confidence"
            stated = f"{self.value:.4g} of {float(limit.at_most):.4g}{unit}{sure}"
        else:
            stated = f"asked for with {limit.chance:.4g}, {float(limit.at_most):.4g}{unit}"
        low, high = self.kept_interval
        held = f"{self.kept:.2%}" + (" (exact)" if exact else f" ({low:.2%} to {high:.2%})")
        said = [
            (limit.called(number), f"{self.verdict.value}: {stated}; the loss is within it with probability {held}")
        ]
        if np.isfinite(self.multiplier):
            said.append(("", f"one unit more saves {self.multiplier:.4g}, to first order"))
        return said


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


def independent(evaluation: Evaluation) -> float:
    """How many independent draws an evaluation counts for."""
    return len(evaluation.losses) / evaluation.draws.stretch**2


def answer_of(
    limit: Limit, evaluation: Evaluation, multiplier: float, least: float, proved: bool, level: float | None
) -> LimitAnswer:
    """The verdict on fresh draws, or on all atoms."""
    at_most, losses = float(limit.at_most), np.asarray(evaluation.losses)
    kept = float(np.asarray(evaluation.probabilities)[losses <= at_most].sum())
    kept = min(kept, 1.0)
    confidence = limit.confidence or 0.95
    if evaluation.exact:
        inside = (kept, kept)
        upper = evaluation.risk
        good = upper <= at_most if limit.chance is None else kept >= limit.chance - 1e-12
        verdict = Verdict.KEPT if good else Verdict.BROKEN
    else:
        count = independent(evaluation)
        inside = share_interval(kept, count)
        low, upper = limits_of(evaluation, limit.risk, confidence)
        if limit.chance is not None:
            low, high = share_interval(kept, count, 2.0 * confidence - 1.0)
            verdict = Verdict.KEPT if low >= limit.chance else Verdict.BROKEN if high < limit.chance else Verdict.OPEN
        else:
            verdict = Verdict.KEPT if upper <= at_most else Verdict.BROKEN if low > at_most else Verdict.OPEN
    return LimitAnswer(limit, evaluation, verdict, float(upper), kept, inside, multiplier, least, proved, level)


def limits_of(evaluation: Evaluation, risk: Any, confidence: float) -> tuple[float, float]:
    """One-sided confidence limits of a risk, from below and from above; NaN where the draws do not tell."""
    if evaluation.exact:
        return evaluation.risk, evaluation.risk
    if not np.all(np.isfinite(evaluation.interval)):
        return float("nan"), float("nan")
    ends = risk.interval(
        evaluation.losses, evaluation.probabilities, 2.0 * confidence - 1.0 if confidence > 0.5 else 1e-9
    )
    return tuple(evaluation.risk + evaluation.draws.stretch * (end - evaluation.risk) for end in ends)  # pyright: ignore[reportReturnType]
