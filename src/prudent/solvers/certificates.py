"""How good an answer is: a bound no policy can beat, what chance leaves open, and what drives the risk.

If theta were told before acting, the loss at theta could be `min_pi C(pi, theta)`. A coherent risk is monotone, so
`rho(min_pi C(pi, theta))` is below the risk of every policy. On one sample of fresh draws this holds draw by draw.
"""

from __future__ import annotations

import time
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from ..gradients import Problem
from ..losses import ConvexLoss
from ..occupancies import Exact, Truncated
from ..planning import least_costs
from ..planning.convex import Search, searched
from ..planning.exact import LARGEST_DIRECT
from ..risks import Risk, SmoothedVaR
from .descent import look
from .drivers import Driver, drivers_of
from .judging import Judgement, known_of
from .starts import linear_cost, linear_models

# Fresh draws of which the bound is made where a plan of each takes long: convex losses and large models.
FEW_DRAWS = 16

# Accuracy of convex plans, a share of the uniform policy's loss where that is below 1, down to the least; a bound holds
# at any accuracy.
CONVEX_ACCURACY, LEAST_ACCURACY = 1e-3, 1e-9

# Groups of draws whose gradients are compared for the standard error of their mean.
GROUPS = 20

# Two-sided 95 % of the normal distribution.
NORMAL = 1.959963984540054


class Certificate(eqx.Module):
    """What is known of an answer beyond its risk; all of it from fresh posterior draws.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> certificate = pr.solve(lake, lake.prior, risk=pr.CVaR(0.9)).certificate
    >>> certificate.lower_bound <= certificate.risk, certificate.draws
    (True, 1000)

    Attributes:
        lower_bound: `rho(min_pi C(pi, theta))`, below the risk of every policy; None where it cannot be had.
        lower_bound_standard_error: its Monte-Carlo error.
        reason: why there is no bound; empty where there is one.
        risk: of the answer on the draws of the bound, which may be fewer than those of the solution.
        gap: `risk - lower_bound`: no policy is better by more, and learning theta is worth no more; None without bound.
        gap_standard_error: of the gap, draw by draw.
        draws: fresh draws behind bound and gap.
        interval: 95 % confidence interval of the solution's risk.
        in_sample: objective on the draws the policy was fitted to; the risk is usually above it.
        stationarity: norm of the projected gradient of a unit step, on fresh draws.
        stationarity_standard_error: length of the gradient's Monte-Carlo error; a norm about as large is no sign of a
            slope. Both are NaN where the loss has no derivative.
        drivers: parts of theta that the risk's weights pull away by more than chance, the farthest first.
        drivers_considered: how many unknowns that the policy meets were looked at for it.
        seconds: wall time of the certificate.
    """

    lower_bound: float | None
    lower_bound_standard_error: float | None
    reason: str = eqx.field(static=True)
    risk: float
    gap: float | None
    gap_standard_error: float | None
    draws: int
    interval: tuple[float, float]
    in_sample: float
    stationarity: float
    stationarity_standard_error: float
    drivers: tuple[Driver, ...]
    drivers_considered: int
    seconds: float

    def rows(self) -> list[tuple[str, str]]:
        """Lines of a solution's summary, as (label, text)."""
        if self.lower_bound is None or self.gap is None:
            bound = [("lower bound", f"none: {self.reason}")]
        else:
            share = f" ({self.gap / abs(self.risk):.2%})" if self.risk else ""
            fewer = f", {self.draws} draws"
            bound = [
                ("lower bound", f"{self.lower_bound:.4f} if theta were known{fewer}"),
                ("gap", f"{self.gap:.4f}{share}: no policy is better by more"),
            ]
        low, high = self.interval
        driver = self.drivers[0] if self.drivers else None
        return [
            ("interval", f"{low:.4f} to {high:.4f} (95 %)"),
            ("in sample", f"{self.in_sample:.4f}"),
            *bound,
            ("stationarity", f"{self.stationarity:.2g} ± {self.stationarity_standard_error:.2g}"),
            *([("driven by", f"theta{list(driver.place)}, {driver.shift:+.2f} s.d.")] if driver else []),
        ]


def certify(
    problem: Problem,
    risk: Risk,
    parameters: Any,
    table: Float[np.ndarray, "S A"],
    judged: Judgement,
    slopes: Float[np.ndarray, "N S A"] | None,
    in_sample: float,
) -> Certificate:
    """The certificate of a policy judged on fresh draws.

    Args:
        problem: what was minimised; its risk is not used.
        risk: of this run.
        parameters: of the policy.
        table: its probabilities.
        judged: the policy on fresh draws, without a batch axis.
        slopes: derivatives by the table at the first N of the draws; None where the loss has none.
        in_sample: the objective on the draws the policy was fitted to.
    """
    clock = time.perf_counter()
    spread = NORMAL * float(judged.standard_error)
    value = float(judged.risk)
    lows, reason = least_losses(problem, risk, judged.thetas, table)
    bound = error = gap = gap_error = None
    draws = len(judged.thetas)
    if lows is not None:
        draws = len(lows)
        losses = np.asarray(judged.losses)[:draws]
        # Rounding can put a draw's optimum a hair above the loss of the policy that attains it.
        lows = np.minimum(lows, losses)
        ours, theirs = known_of(risk, losses), known_of(risk, lows)
        value, bound, error = ours.value, theirs.value, theirs.standard_error
        gap, gap_error = max(0.0, value - bound), ours.error_of_difference(theirs, losses, lows)
    norm, norm_error = stationarity(problem, parameters, np.asarray(judged.weights), slopes)
    named, considered = drivers_of(problem, table, judged.thetas, judged.weights)
    return Certificate(
        lower_bound=bound,
        lower_bound_standard_error=error,
        reason=reason,
        risk=value,
        gap=gap,
        gap_standard_error=gap_error,
        draws=draws,
        interval=(float(judged.risk) - spread, float(judged.risk) + spread),
        in_sample=in_sample,
        stationarity=norm,
        stationarity_standard_error=norm_error,
        drivers=named,
        drivers_considered=considered,
        seconds=time.perf_counter() - clock,
    )


def least_losses(
    problem: Problem, risk: Risk, thetas: np.ndarray, table: np.ndarray
) -> tuple[Float[np.ndarray, " M"] | None, str]:
    """Numbers at most `min_pi C(pi, theta)` at the first M draws, or None and the reason why there are none."""
    family, loss = problem.family, problem.loss
    support, discount = family.support, float(family.discount)
    if _blind(risk):
        return None, "the risk is not coherent"
    if not isinstance(loss, ConvexLoss):
        return None, "the loss is a plain function that may not be convex; as_convex(loss) says that it is"
    if linear_cost(loss, family.at(thetas[0])) is None:
        if isinstance(problem.occupancy, Truncated):
            return None, "a truncated occupancy of a loss that is not linear has no planner"
        return _least_convex(problem, thetas[:FEW_DRAWS])
    if support.states > LARGEST_DIRECT:
        thetas = thetas[:FEW_DRAWS]
    probability, cost = linear_models(family, loss, thetas)
    horizon = None if isinstance(problem.occupancy, Exact) else problem.occupancy.horizon
    start = np.asarray(family.start)
    first = table.argmax(axis=1)
    return least_costs(support, probability, cost, start, discount, horizon=horizon, first=first), ""


def _blind(risk: Risk) -> bool:
    return isinstance(risk, SmoothedVaR)


def _least_convex(problem: Problem, thetas: np.ndarray) -> tuple[np.ndarray | None, str]:
    lows = np.empty(len(thetas))
    for k, theta in enumerate(thetas):
        search = Search(problem.family.at(theta), problem.loss, CONVEX_ACCURACY)
        size = abs(search.slope(search.occupancy)[0])
        search.tolerance *= float(np.clip(size, LEAST_ACCURACY / CONVEX_ACCURACY, 1.0)) if np.isfinite(size) else 1.0
        lows[k] = searched(search, 100, time.perf_counter()).lower_bound
    if not np.all(np.isfinite(lows)):
        return None, "the loss has no finite lower bound at a posterior draw"
    return lows, ""


def stationarity(
    problem: Problem, parameters: Any, weights: Float[np.ndarray, " M"], slopes: Float[np.ndarray, "N S A"] | None
) -> tuple[float, float]:
    """Norm of the projected gradient on the first N draws, and the length of the gradient's standard error."""
    if slopes is None or not np.all(np.isfinite(slopes)):
        return float("nan"), float("nan")
    draws = len(slopes)
    groups = min(GROUPS, draws)
    share = weights[:draws, None, None] / max(float(weights[:draws].mean()), np.finfo(float).tiny) * slopes
    means = np.stack([part.mean(axis=0) for part in np.array_split(share, groups)])
    sizes = np.array([len(part) for part in np.array_split(np.arange(draws), groups)]) / draws
    # Row 0 is the whole sample's; the number of rows is fixed, so that one compiled function serves all.
    rows = np.concatenate([np.tensordot(sizes, means, axes=1)[None], means])
    repeated = _repeated(parameters, len(rows))
    gradients, norms = look(problem.policy, repeated, rows)
    if groups == 1:
        return float(norms[0]), float("nan")
    spread = ((gradients[1:] - gradients[0]) ** 2).sum(axis=1)
    return float(norms[0]), float(np.sqrt((sizes**2 * spread).sum() * groups / (groups - 1)))


def _repeated(parameters: Any, count: int) -> Any:
    return jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], count, axis=0), parameters)
