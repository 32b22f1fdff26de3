"""How good an answer is: a bound no policy can beat, what chance leaves open, and what drives the risk.

If theta were told before acting, the loss at theta could be `min_pi C(pi, theta)`. For a monotone risk
`rho(min_pi C(pi, theta))` is below the risk of every policy. On one sample of fresh draws this holds draw by draw;
of the posterior it holds up to what the sample leaves open, and exactly where the draws are all of its atoms.
"""

from __future__ import annotations

import time
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from ..gradients import Problem, Sample
from ..losses import ConvexLoss
from ..occupancies import Exact, Truncated
from ..planning import least_costs
from ..planning.convex import Search, searched
from ..planning.exact import LARGEST_DIRECT
from ..posteriors import WeightedDraws
from ..risks import Risk
from ..row_sets import RowSet
from .descent import ROUNDING
from .drivers import Driver, drivers_of
from .judging import Judgement, judgement, stretched
from .linear_model import Reach, improve
from .prox_linear import linearised
from .starts import linear_cost, linear_models

# Fresh draws of which the bound is made where a plan of each takes long: convex losses and large models.
FEW_DRAWS = 16

# Accuracy of convex plans, a share of the loss's spread; a bound holds at any accuracy.
CONVEX_ACCURACY = 1e-4

# Atoms of which each is planned for by itself where a plan takes long.
MOST_PLANNED_ATOMS = 64

# A predicted decrease of this share of the spread of losses is not looked at more closely.
STATIONARY = 1e-5


class Certificate(eqx.Module):
    """What is known of an answer beyond its risk; all of it from fresh posterior draws, or from all atoms.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> certificate = pr.solve(lake, lake.prior, risk=pr.CVaR(0.9)).certificate
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
        draws: draws behind bound and gap.
        exact: whether they are the whole posterior.
        in_sample: objective on the draws the policy was fitted to; the risk is usually above it.
        stationarity: the predicted decrease: on fresh draws no change of the table gains more, to first order; NaN
            where the loss has no derivative.
        drivers: parts of theta that the risk's weights pull away by more than chance, the farthest first.
        drivers_considered: how many unknowns that the policy meets were looked at for it.
        seconds: wall time of the certificate.
    """

    lower_bound: float | None
    lower_bound_standard_error: float | None
    reason: str = eqx.field(static=True)
    risk: float
    gap: float | None
    gap_limit: float | None
    draws: int
    exact: bool = eqx.field(static=True)
    in_sample: float
    stationarity: float
    drivers: tuple[Driver, ...]
    drivers_considered: int
    seconds: float

    def rows(self) -> list[tuple[str, str]]:
        """Lines of a solution's summary, as (label, text)."""
        driver = self.drivers[0] if self.drivers else None
        return [
            ("in sample", f"{self.in_sample:.4f}"),
            *self._bound_rows(),
            ("stationarity", f"{self.stationarity:.2g}: no change of the policy gains more, to first order"),
            *([("driven by", f"theta{list(driver.place)}, {driver.shift:+.2f} s.d.")] if driver else []),
        ]

    def _bound_rows(self) -> list[tuple[str, str]]:
        if self.lower_bound is None or self.gap is None:
            return [("lower bound", f"none: {self.reason}")]
        on = f"exact: all {self.draws} atoms" if self.exact else f"{self.draws} draws"
        share = f" ({self.gap / self.risk:.2%})" if self.lower_bound > 0 else ""
        return [
            ("lower bound", f"{self.lower_bound:.4f} if theta were known ({on})"),
            ("gap", f"{self.gap:.4f}{share}: {self._gap_text()}"),
        ]

    def _gap_text(self) -> str:
        if self.exact:
            return "no policy is better by more"
        if self.gap_limit is None:
            return (
                f"on these {self.draws} draws no policy is better by more; they are too few to speak of the posterior"
            )
        return f"no policy is better by more than {self.gap_limit:.4f} (95 % confidence)"


def certify(
    problem: Problem, table: Float[np.ndarray, "S A"], judged: Judgement, risk: Risk, slopes: Any, in_sample: float
) -> Certificate:
    """The certificate of a policy judged on fresh draws.

    Args:
        problem: what was minimised; its risk is not used.
        table: the policy's probabilities.
        judged: the policy on fresh draws.
        risk: of this run.
        slopes: `[N, S, A]` derivatives by the table at the first N of the draws; None where the loss has none.
        in_sample: the objective on the draws the policy was fitted to.
    """
    clock = time.perf_counter()
    value, bound, error, gap, limit, draws = float(judged.risk), None, None, None, None, judged.draws
    lows, reason = least_losses(problem, risk, judged.draws, table)
    if lows is not None:
        draws = judged.draws.first(len(lows))
        losses = np.asarray(judged.losses)[: len(lows)]
        # Rounding can put a draw's optimum a hair above the loss of the policy that attains it.
        ours, theirs = (judgement(risk, values, draws) for values in (losses, np.minimum(lows, losses)))
        value, bound, error = ours.risk, theirs.risk, theirs.standard_error
        gap = max(0.0, value - bound)
        limit = gap if draws.exact else _gap_limit(risk, ours, theirs)
    named, considered = drivers_of(problem, table, judged.draws, judged.weights)
    return Certificate(
        lower_bound=bound,
        lower_bound_standard_error=error,
        reason=reason,
        risk=value,
        gap=gap,
        gap_limit=limit,
        draws=len(draws),
        exact=draws.exact,
        in_sample=in_sample,
        stationarity=stationarity(problem, risk, table, judged, slopes),
        drivers=named,
        drivers_considered=considered,
        seconds=time.perf_counter() - clock,
    )


def _gap_limit(risk: Risk, ours: Judgement, theirs: Judgement) -> float | None:
    # The upper end of a two-sided interval of 90 % is a one-sided limit of 95 %.
    ends = risk.difference_interval(ours.losses, theirs.losses, ours.draws.probabilities, confidence=0.9)
    gap = ours.risk - theirs.risk
    limit = stretched(gap, ends, ours.draws)[1]
    known = np.isfinite(limit) and (np.isinf(ours.draws.behind) or np.all(np.isfinite(ours.interval)))
    return max(limit, gap) if known else None


def least_losses(
    problem: Problem, risk: Risk, draws: WeightedDraws, table: np.ndarray
) -> tuple[Float[np.ndarray, " M"] | None, str]:
    """Numbers at most `min_pi C(pi, theta)` at the first M draws, or None and the reason why there are none."""
    family, loss, thetas = problem.family, problem.loss, draws.thetas
    support, discount = family.support, float(family.discount)
    if not risk.monotone:
        return None, "the risk is not monotone, and a smaller loss at every draw need not have a smaller risk"
    if not isinstance(loss, ConvexLoss):
        return None, "the loss is a plain function that may not be convex; as_convex(loss) says that it is"
    linear = linear_cost(loss, family.at(thetas[0])) is not None
    if not linear and isinstance(problem.occupancy, Truncated):
        return None, "a truncated occupancy of a loss that is not linear has no planner"
    if not linear or support.states > LARGEST_DIRECT:
        # A few of the draws are a sample as well; a few of the atoms are not.
        if draws.exact and len(draws) > MOST_PLANNED_ATOMS:
            return None, f"each of {len(draws)} atoms would have to be planned for by itself, which takes too long"
        thetas = thetas if draws.exact else thetas[:FEW_DRAWS]
    if not linear:
        return _least_convex(problem, thetas)
    probability, cost = linear_models(family, loss, thetas)
    horizon = None if isinstance(problem.occupancy, Exact) else problem.occupancy.horizon
    start = np.asarray(family.start)
    first = table.argmax(axis=1)
    return least_costs(support, probability, cost, start, discount, horizon=horizon, first=first), ""


def _least_convex(problem: Problem, thetas: np.ndarray) -> tuple[np.ndarray | None, str]:
    lows = np.empty(len(thetas))
    for k, theta in enumerate(thetas):
        search = Search(problem.family.at(theta), problem.loss, None, CONVEX_ACCURACY)
        lows[k] = searched(search, 100, time.perf_counter()).lower_bound
    if not np.all(np.isfinite(lows)):
        return None, "the loss has no finite lower bound at a posterior draw"
    return lows, ""


def stationarity(problem: Problem, risk: Risk, table: np.ndarray, judged: Judgement, slopes: Any) -> float:
    """What any change of the table gains at most, to first order, on the first draws."""
    if slopes is None or not np.all(np.isfinite(slopes)):
        return float("nan")
    draws = judged.draws.first(len(slopes))
    sample = Sample(table[None], draws, risk, np.ones(1, bool))
    losses = np.asarray(judged.losses)[: len(slopes)]
    enough = STATIONARY * float(np.ptp(losses))
    rows = problem.policy.rows() or RowSet()
    most = improve(linearised(sample, table, losses, slopes), Reach(table, rows), enough).most
    # What rounding may hide: the slopes are no more exact than the losses.
    return most + ROUNDING * float(np.abs(losses).max() + np.abs(slopes).sum(axis=(1, 2)).max())
