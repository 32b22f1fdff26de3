"""What is proved beside a policy with limits: that none keeps them, and what none that does can beat."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betaincinv, stdtrit

from ...evaluation import Evaluation, judged
from ...objectives import Objective, losses_on
from ...posteriors import WeightedDraws
from ..certificates import Certificate, certify, least_losses
from .answer import independent, limits_of, share_interval
from .limit import Limit
from .problem import LimitQuestion
from .wait_and_see import relaxed

# Draws that are planned for: of each limit by itself, of the bound, and in how many batches for its confidence.
PLANNED, BOUND_DRAWS, BATCHES = 2048, 400, 8

# What a number may be off by rounding, as a share of its size.
ROUNDING = 1e-9


class Least(NamedTuple):
    """What no policy gets a limit's loss below.

    Attributes:
        least: on the draws that were planned for; with a chance, the probability with which any policy could keep it.
        unreachable: levels below this are proved to be kept by no policy; NaN where nothing is.
        proved: whether the limit itself is.
    """

    least: float
    unreachable: float
    proved: bool


class Infeasibility(NamedTuple):
    """Whether no policy keeps the limits.

    Attributes:
        single: of each limit by itself.
        together: whether they are proved to contradict one another.
        exact: whether it is so for certain, or with 95 % confidence.
    """

    single: tuple[Least, ...]
    together: bool
    exact: bool

    @property
    def proved(self) -> bool:
        """Of any limit, or of all together."""
        return self.together or any(each.proved for each in self.single)


def infeasible(
    objectives: Sequence[Objective], limits: tuple[Limit, ...], draws: WeightedDraws, point: np.ndarray
) -> Infeasibility:
    """`rho(min_pi D) > d` for a limit by itself; for several, a weighted sum of them that no policy keeps."""
    planned = draws if draws.exact else draws.first(PLANNED)
    # Each of several limits may be said to be impossible by chance: together they are no more often than one.
    confidence = 1.0 - 0.05 / (len(limits) + 1)
    single = tuple(
        _least(objective, limit, planned, point, confidence)
        for limit, objective in zip(limits, objectives[1:], strict=True)
    )
    proved = any(each.proved for each in single)
    together = not proved and len(limits) > 1 and _contradictory(objectives, limits, planned, point, confidence)
    return Infeasibility(single, together, draws.exact)


def _least(objective: Objective, limit: Limit, draws: WeightedDraws, point: np.ndarray, confidence: float) -> Least:
    lows, _ = least_losses(objective, limit.risk, draws, point)
    if lows is None:
        return Least(float("nan"), float("nan"), False)
    # What is below the loss's own range says nothing.
    floor = objective.loss_range(draws.thetas if draws.exact else draws.thetas[:4])[0]
    least = judged(limit.risk, lows, draws.first(len(lows)))
    at_most = float(limit.at_most)
    if limit.chance is not None:
        kept = min(float(np.asarray(least.probabilities)[lows <= at_most].sum()), 1.0)
        most = kept if least.exact else share_interval(kept, independent(least), 2.0 * confidence - 1.0)[1]
        low = _quantile_limit(least, limit.chance, confidence)
        return Least(kept, low if low > floor else float("nan"), bool(most < limit.chance - 1e-12))
    low = limits_of(least, limit.risk, confidence)[0] - ROUNDING * float(np.abs(lows).max()) * least.exact
    return Least(least.risk, float(low) if low > floor else float("nan"), bool(low > at_most))


def _quantile_limit(least: Evaluation, chance: float, confidence: float) -> float:
    """Below this the chance is out of reach: the quantile of what is least, or its confidence limit by ranks."""
    if least.exact:
        return float(least.quantile(chance)) - ROUNDING * float(np.abs(np.asarray(least.losses)).max())
    below = np.arange(len(least.losses))
    counts = independent(least) / len(below) * np.stack([below, len(below) - below])
    # With so many losses below a level, this is the largest probability that they may have come from.
    most = betaincinv(counts[0] + 1.0, counts[1], confidence)
    out = np.flatnonzero(most < chance)
    return float(np.sort(np.asarray(least.losses))[out[-1]]) if len(out) else float("nan")


def _question(
    objectives: Sequence[Objective], limits: tuple[Limit, ...], risk: Any, draws: WeightedDraws, point: np.ndarray
) -> tuple[LimitQuestion, list[int]]:
    """The limits in a risk; those with a chance have no bound of this kind and are left out, which keeps it one."""
    kept = [j for j, limit in enumerate(limits) if limit.chance is None]
    chosen = (objectives[0], *(objectives[j + 1] for j in kept))
    units = []
    for objective in chosen:
        losses = losses_on(objective, point[None], draws.thetas)[0]
        units.append(max(float(np.ptp(losses)), 1e-6 * float(np.abs(losses).max())) or 1.0)
    risks = (risk, *(limits[j].risk for j in kept))
    aims = np.array([float(limits[j].at_most) for j in kept])
    return LimitQuestion(chosen, risks, draws, aims, np.array(units)), kept


def _contradictory(
    objectives: Sequence[Objective],
    limits: tuple[Limit, ...],
    draws: WeightedDraws,
    point: np.ndarray,
    confidence: float,
) -> bool:
    """Whether a weighted sum of the limits is more than any policy can keep."""
    few = draws if draws.exact else draws.first(BOUND_DRAWS)
    question, kept = _question(objectives, limits, limits[0].risk, few, point)
    if len(kept) < 2:
        return False
    if few.exact:
        found = relaxed(question, point, feasibility=True)
        return found is not None and found.bound > ROUNDING * float(found.multipliers @ np.abs(question.aims) + 1.0)
    half = len(few) // 2
    first, rest = few.first(half), WeightedDraws(few.thetas[half:], *_even(len(few) - half), few.behind)
    found = relaxed(question._replace(draws=first), point, feasibility=True)
    if found is None or not found.bound > 0 or not _biased_low(question):
        return False
    # The weights of the limits come from other draws than those that judge them.
    low = _batched(question._replace(draws=rest), point, found.multipliers, confidence, feasibility=True)
    return low is not None and low > 0.0


def _even(count: int) -> tuple[np.ndarray, bool]:
    return np.full(count, 1.0 / count), False


def _biased_low(question: LimitQuestion) -> bool:
    return all(risk.biased_low for risk in question.risks)


def _batched(
    question: LimitQuestion, point: np.ndarray, multipliers: np.ndarray, confidence: float, feasibility: bool = False
) -> float | None:
    """A lower confidence limit of the bound at fixed multipliers, from batches; None where there is none.

    On a batch of draws the Lagrangian of any one policy is on average at most what it is under the posterior, for risks
    that are biased low. So the mean over batches of what no policy can beat there is below what none can beat there.
    """
    size = len(question.draws) // BATCHES
    found = []
    for b in range(BATCHES):
        here = slice(b * size, (b + 1) * size)
        draws = WeightedDraws(question.draws.thetas[here], *_even(size))
        priced = question._replace(draws=draws)
        if feasibility:
            bound = _priced_breach(priced, point, multipliers)
        else:
            batch = relaxed(priced, point, multipliers=multipliers, rounds=12)
            bound = None if batch is None else batch.bound
        if bound is None or not np.isfinite(bound):
            return None
        found.append(bound)
    values = np.array(found)
    error = float(values.std(ddof=1)) / np.sqrt(BATCHES) * question.draws.stretch
    return float(values.mean() - stdtrit(BATCHES - 1, confidence) * error)


def _priced_breach(question: LimitQuestion, point: np.ndarray, multipliers: np.ndarray) -> float | None:
    """`min_pi sum_j mu_j (rho_j(D_j) - d_j)` from below: the first priced limit takes the objective's place."""
    lead = int(np.argmax(multipliers))
    if not multipliers[lead] > 0:
        return None
    others = [j for j in range(len(multipliers)) if j != lead]
    order = [lead + 1, *(j + 1 for j in others)]
    turned = LimitQuestion(
        tuple(question.objectives[g] for g in order),
        tuple(question.risks[g] for g in order),
        question.draws,
        question.aims[others],
        question.units[order],
    )
    found = relaxed(turned, point, multipliers=multipliers[others] / multipliers[lead], rounds=12)
    return None if found is None else multipliers[lead] * (found.bound - question.aims[lead])


def certified(
    search: Any,
    objectives: Sequence[Objective],
    limits: tuple[Limit, ...],
    point: np.ndarray,
    answer: Evaluation,
    candidate: Any,
    proofs: Infeasibility,
) -> Certificate:
    """The certificate of a policy with limits: no policy that keeps them has a smaller risk than its bound."""
    risk, in_sample = search.risk, float(search.units[0].loss(candidate.point.here.values[0]))
    plain = certify(objectives[0], point, answer, risk, None, in_sample)
    if proofs.proved:
        return dataclasses.replace(
            plain,
            lower_bound=None,
            lower_bound_standard_error=None,
            gap=None,
            gap_limit=None,
            reason="no policy keeps the limits, so there is nothing to bound",
        )
    draws = answer.draws if answer.exact else answer.draws.first(BOUND_DRAWS)
    question, kept = _question(objectives, limits, risk, draws, point)
    if not kept or not risk.coherent:
        return plain
    found = relaxed(question, point)
    if found is None or not np.isfinite(found.bound):
        return plain
    ours = judged(risk, np.asarray(answer.losses)[: len(draws)], draws)
    # The policy may break a limit on these draws, and then be below what no policy that keeps it can beat.
    bound = found.bound
    if plain.lower_bound is not None and plain.draws == len(draws):
        bound = max(bound, plain.lower_bound)
    limit = None
    if draws.exact:
        limit = max(ours.risk - bound, 0.0)
    elif search.told is not None and _biased_low(question) and len(kept) == len(limits):
        scales = np.array([unit.scale for unit in search.units])
        low = _batched(question, point, search.told.multipliers * scales[0] / scales[1:], 0.975)
        high = limits_of(answer, risk, 0.975)[1]
        limit = None if low is None or not np.isfinite(high) else max(high - low, ours.risk - bound)
    return dataclasses.replace(
        plain,
        lower_bound=bound,
        lower_bound_standard_error=0.0 if draws.exact else float("nan"),
        reason="",
        risk=ours.risk,
        gap=max(ours.risk - bound, 0.0),
        gap_limit=limit,
        confidence="exact" if draws.exact else answer.confidence,
        draws=len(draws),
        exact=draws.exact,
        limited=True,
    )
