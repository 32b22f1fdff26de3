"""How good an answer is: a bound no policy can beat, what chance leaves open, and what drives the risk.

If theta were told before acting, the loss at theta could be `min_pi C(pi, theta)`. For a monotone risk
`rho(min_pi C(pi, theta))` is below the risk of every policy. On one sample of fresh draws this holds draw by draw;
of the posterior it holds up to what the sample leaves open, and exactly where the draws are all of its atoms.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from jaxtyping import Float

from ..evaluation import Evaluation, judged, stretched
from ..objectives import Objective, losses_on, slopes_on
from ..posteriors import WeightedDraws
from ..records import Record, field
from ..risks import Risk
from .descent import ROUNDING
from .drivers import Driver, drivers_of
from .linear_model import LinearModel, TrustRegion
from .question import Question, assess_rows

# A predicted decrease of this share of the spread of losses is not looked at more closely.
STATIONARY = 1e-5


# Derivatives of single draws that are kept, and the fewest that are.
SLOPE_BYTES, FEWEST_SLOPES = 256 * 2**20, 40


class Certificate(Record):
    """What is known of an answer beyond its risk; all of it from fresh posterior draws, or from all atoms.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> few = pr.SampleAverage(samples=32, largest=32, starts=2)
    >>> certificate = pr.solve(lake, lake.prior, risk=pr.CVaR(0.9), solver=few).certificate
    >>> certificate.lower_bound <= certificate.risk, certificate.gap <= certificate.gap_limit, certificate.draws
    (True, True, 1000)

    Attributes:
        lower_bound: `rho(min_pi C(pi, theta))`, below the risk of every policy on these draws; None where it cannot be
            had.
        lower_bound_standard_error: its Monte-Carlo error.
        reason: why there is no bound; empty where there is one.
        risk: of the answer on the draws of the bound, which may be fewer than those of the solution.
        gap: `risk - lower_bound` on these draws; None without bound.
        gap_limit: one-sided 95 % confidence limit of the gap under the posterior: no policy is better by more, and
            learning theta is worth no more. The gap itself where it is exact; None where the draws are too few to tell.
        confidence: what the limit holds: 95 %, less for certain where few draws are in the tail, or exact.
        draws: draws behind bound and gap.
        exact: whether they are the whole posterior.
        in_sample: objective on the draws the policy was fitted to; the risk is usually above it.
        stationarity: the predicted decrease: on fresh draws no change of the table gains more, to first order; NaN
            where the loss has no derivative or the policy no table.
        drivers: parts of theta that the risk's weights pull away by more than chance, the farthest first.
        drivers_considered: how many unknowns that the policy meets were looked at for it.
        seconds: wall time of the certificate.
        limited: whether bound and gap are about policies that keep the limits, on the draws of the bound, only.
    """

    lower_bound: float | None
    lower_bound_standard_error: float | None
    reason: str = field(static=True)
    risk: float
    gap: float | None
    gap_limit: float | None
    confidence: str = field(static=True)
    draws: int
    exact: bool = field(static=True)
    in_sample: float
    stationarity: float
    drivers: tuple[Driver, ...]
    drivers_considered: int
    seconds: float
    limited: bool = field(static=True, default=False)

    def rows(self, bounded: bool = True) -> list[tuple[str, str]]:
        """Return the lines of a solution's summary, as (label, text); bound and gap only where they are wanted."""
        driver = self.drivers[0] if self.drivers else None
        return [
            ("in sample", f"{self.in_sample:.4f}"),
            *(self._bound_rows() if bounded else []),
            *self._stationarity_rows(),
            *([("driven by", f"{driver.name}, {driver.shift:+.2f} s.d.")] if driver else []),
        ]

    def _bound_rows(self) -> list[tuple[str, str]]:
        if self.lower_bound is None or self.gap is None:
            return [("lower bound", f"none: {self.reason}")]
        on = f"exact: all {self.draws} atoms" if self.exact else f"{self.draws} draws"
        share = f" ({self.gap / self.risk:.2%})" if self.lower_bound > 0 else ""
        kept = ", the limits kept" if self.limited else ""
        return [
            ("lower bound", f"{self.lower_bound:.4f} if theta were known{kept} ({on})"),
            ("gap", f"{self.gap:.4f}{share}: {self._gap_text()}"),
        ]

    def _stationarity_rows(self) -> list[tuple[str, str]]:
        if not np.isfinite(self.stationarity):
            return []
        return [("stationarity", f"{self.stationarity:.2g}: no change of the policy gains more, to first order")]

    def _gap_text(self) -> str:
        policy = "policy that keeps the limits" if self.limited else "policy"
        if self.exact:
            return f"no {policy} is better by more"
        if self.gap_limit is None:
            if self.limited:
                return (
                    f"on these {self.draws} draws no {policy} there is better by more; of the posterior nothing is said"
                )
            return (
                f"on these {self.draws} draws no {policy} is better by more; they are too few to speak of the posterior"
            )
        sure = "95 % confidence" if self.confidence == "95 %" else self.confidence
        return f"no {policy} is better by more than {self.gap_limit:.4f} ({sure})"


def judge_closely(
    objective: Objective, risk: Risk, point: np.ndarray, draws: WeightedDraws
) -> tuple[Evaluation, Float[np.ndarray, ...]]:
    """`judge`, and the losses' derivatives by the point at the first N draws, as many as memory takes.

    Of models that the objective works through itself, the derivative of their average under the risk's weights alone,
    which has no axis of draws.
    """
    own, count = objective.averages(), len(draws)
    if own is not None:
        share = draws.probabilities
        found = own.slopes(point, draws.thetas, lambda losses: share * assess_rows(risk, losses[None], share)[1][0])
        return judged(risk, found.losses, draws, objective.truncation), found.slope
    few = int(np.clip(SLOPE_BYTES // (8 * point.size), min(count, FEWEST_SLOPES), count))
    losses = np.empty(count)
    found = slopes_on(objective, point[None], draws.thetas, np.zeros(few, int), np.arange(few))
    losses[:few] = found.losses
    if few < count:
        losses[few:] = losses_on(objective, point[None], draws.thetas[few:])[0]
    return judged(risk, losses, draws, objective.truncation), found.slopes


def certify(
    objective: Objective, point: np.ndarray, answer: Evaluation, risk: Risk, slopes: Any, in_sample: float
) -> Certificate:
    """The certificate of a policy judged on fresh draws.

    Args:
        objective: what was minimised.
        point: the policy's.
        answer: the policy on fresh draws.
        risk: that was minimised.
        slopes: `[N, ...]` derivatives by the point at the first N of the draws; None where the loss has none.
        in_sample: the objective on the draws the policy was fitted to.
    """
    clock = time.perf_counter()
    value, bound, error, gap, limit, ours, draws = float(answer.risk), None, None, None, None, answer, answer.draws
    lows, reason = least_losses(objective, risk, answer.draws, point)
    if lows is not None:
        draws = answer.draws.first(len(lows))
        losses = np.asarray(answer.losses)[: len(lows)]
        # Rounding can put a draw's optimum a hair above the loss of the policy that attains it.
        ours, theirs = (judged(risk, values, draws) for values in (losses, np.minimum(lows, losses)))
        value, bound, error = ours.risk, theirs.risk, theirs.risk_standard_error
        gap = max(0.0, value - bound)
        limit = gap if draws.exact else _gap_limit(risk, ours, theirs)
    named, considered = drivers_of(objective, point, answer.draws, np.asarray(answer.weights))
    return Certificate(
        lower_bound=bound,
        lower_bound_standard_error=error,
        reason=reason,
        risk=value,
        gap=gap,
        gap_limit=limit,
        confidence=ours.confidence,
        draws=len(draws),
        exact=draws.exact,
        in_sample=in_sample,
        stationarity=stationarity(objective, risk, point, answer, slopes),
        drivers=named,
        drivers_considered=considered,
        seconds=time.perf_counter() - clock,
    )


def _gap_limit(risk: Risk, ours: Evaluation, theirs: Evaluation) -> float | None:
    # The upper end of a two-sided interval of 90 % is a one-sided limit of 95 %.
    ends = risk.difference_interval(ours.losses, theirs.losses, ours.draws.probabilities, confidence=0.9)
    gap = ours.risk - theirs.risk
    limit = stretched(gap, ends, ours.draws)[1]
    known = np.isfinite(limit) and (np.isinf(ours.draws.behind) or np.all(np.isfinite(ours.interval)))
    return max(limit, gap) if known else None


def least_losses(
    objective: Objective, risk: Risk, draws: WeightedDraws, point: np.ndarray
) -> tuple[Float[np.ndarray, " M"] | None, str]:
    """Numbers at most `min_pi C(pi, theta)` at the first M draws, or None and the reason why there are none."""
    if not risk.monotone:
        return None, "the risk is not monotone, and a smaller loss at every draw need not have a smaller risk"
    plans = objective.plans()
    return (None, objective.no_bound()) if plans is None else plans.least(draws, point)


def stationarity(objective: Objective, risk: Risk, point: np.ndarray, answer: Evaluation, slopes: Any) -> float:
    """What any change of the table gains at most, to first order, on the first draws; NaN without a table."""
    table = objective.table(answer.draws.thetas[0])
    if table is None or slopes is None or not np.all(np.isfinite(slopes)):
        return float("nan")
    region, losses = TrustRegion(point, table.rows), np.asarray(answer.losses)
    if slopes.ndim == point.ndim:
        # Of large models the average alone is known. What a linear program could take off for kinks stays on.
        return -region.lowest(slopes.ravel())[1] + ROUNDING * float(np.abs(losses).max() + np.abs(slopes).sum())
    question = Question.unlimited(objective, risk, answer.draws.first(len(slopes)))
    losses = losses[: len(slopes)]
    model = LinearModel(question, losses[None], (slopes.reshape(len(slopes), -1),), region)
    most = model.minimise(np.zeros(0), enough=STATIONARY * float(np.ptp(losses))).most
    # What rounding may hide: the slopes are no more exact than the losses.
    return most + ROUNDING * float(np.abs(losses).max() + np.abs(slopes).sum(axis=(1, 2)).max())
