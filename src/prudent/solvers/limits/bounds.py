"""What is proved beside a policy with limits: that none keeps them, and what none that does can beat."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import betaincinv, stdtrit

from ...evaluation import Evaluation, judged
from ...objectives import Objective, losses_on
from ...posteriors import WeightedDraws, equally_weighted
from ...risks import Risk, share_interval
from ..certificates import Certificate, certify, least_losses
from ..question import Question
from .answer import independent, limits_of, share_within
from .limit import Limit
from .relaxation import relaxed

# Draws that are planned for: of each limit by itself, of the bound, in how many batches for its confidence; and rounds
# of a batch.
PLANNED, BOUND_DRAWS, BATCHES, BATCH_ROUNDS = 2048, 400, 8, 12

# What a number may be off by rounding, as a share of its size.
ROUNDING = 1e-9


class Least(NamedTuple):
    """What no policy gets a limit's loss below.

    Attributes:
        least: on the draws that were planned for; with a chance, the probability with which any policy could keep it.
        unreachable: levels below this are proved to be kept by no policy; NaN where nothing is.
        proved: whether the limit itself is.
    """

    least: float = float("nan")
    unreachable: float = float("nan")
    proved: bool = False


class Infeasibility(NamedTuple):
    """Whether no policy keeps the limits: for certain on atoms, else with 95 % confidence.

    Attributes:
        single: of each limit by itself.
        together: whether they are proved to contradict one another.
    """

    single: tuple[Least, ...]
    together: bool

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
    pairs = zip(objectives[1:], limits, strict=True)
    single = Infeasibility(tuple(_least(*pair, planned, point, confidence) for pair in pairs), False)
    if single.proved or len(limits) == 1:
        return single
    return single._replace(together=_contradictory(objectives, limits, planned, point, confidence))


def _least(objective: Objective, limit: Limit, draws: WeightedDraws, point: np.ndarray, confidence: float) -> Least:
    lows, _ = least_losses(objective, limit.risk, draws, point)
    if lows is None:
        return Least()
    # What is below the loss's own range says nothing.
    floor = objective.loss_range(draws.thetas if draws.exact else draws.thetas[:4])[0]
    least, at_most = judged(limit.risk, lows, draws.first(len(lows))), float(limit.at_most)
    if limit.chance is not None:
        kept = share_within(least, at_most)
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
    objectives: Sequence[Objective], limits: tuple[Limit, ...], risk: Risk, draws: WeightedDraws, point: np.ndarray
) -> Question:
    """The limits in a risk; those with a chance have no bound of this kind and are left out, which keeps it one."""
    kept = [j for j, limit in enumerate(limits) if limit.chance is None]
    chosen = (objectives[0], *(objectives[j + 1] for j in kept))
    units = []
    for objective in chosen:
        losses = losses_on(objective, point[None], draws.thetas)[0]
        units.append(max(float(np.ptp(losses)), 1e-6 * float(np.abs(losses).max())) or 1.0)
    risks = (risk, *(limits[j].risk for j in kept))
    return Question(chosen, risks, draws, np.array([float(limits[j].at_most) for j in kept]), np.array(units))


def _contradictory(
    objectives: Sequence[Objective],
    limits: tuple[Limit, ...],
    draws: WeightedDraws,
    point: np.ndarray,
    confidence: float,
) -> bool:
    """Whether a weighted sum of the limits is more than any policy can keep."""
    few = draws if draws.exact else draws.first(BOUND_DRAWS)
    question = _question(objectives, limits, limits[0].risk, few, point)
    if question.limits < 2:
        return False
    half = len(few) if few.exact else len(few) // 2
    found = relaxed(question._replace(draws=few.first(half)), point, feasibility=True)
    if found is None or (not few.exact and not (found.bound > 0 and _biased_low(question))):
        return False
    if few.exact:
        return found.bound > ROUNDING * float(found.multipliers @ np.abs(question.aims) + 1.0)
    # The weights of the limits come from other draws than those that judge them.
    rest, prices = equally_weighted(few.thetas[half:], few.behind), found.multipliers
    low = _batched(question._replace(draws=rest), confidence, lambda batch: _priced_breach(batch, point, prices))
    return low is not None and low > 0.0


def _biased_low(question: Question) -> bool:
    return all(risk.biased_low for risk in question.risks)


def _batched(question: Question, confidence: float, bound_on: Callable[[Question], float | None]) -> float | None:
    """A lower confidence limit of the bound at fixed multipliers, from batches; None where there is none.

    On a batch of draws the Lagrangian of any one policy is on average at most what it is under the posterior, for risks
    that are biased low. So the mean over batches of what no policy can beat there is below what none can beat there.
    """
    size, found = len(question.draws) // BATCHES, []
    for b in range(BATCHES):
        batch = equally_weighted(question.draws.thetas[b * size : (b + 1) * size])
        bound = bound_on(question._replace(draws=batch))
        if bound is None or not np.isfinite(bound):
            return None
        found.append(bound)
    values = np.array(found)
    error = float(values.std(ddof=1)) / np.sqrt(BATCHES) * question.draws.stretch
    return float(values.mean() - stdtrit(BATCHES - 1, confidence) * error)


def _priced(question: Question, point: np.ndarray, multipliers: np.ndarray) -> float | None:
    """`min_pi rho_0(C) + sum_j mu_j (rho_j(D_j) - d_j)` from below, on a batch."""
    found = relaxed(question, point, multipliers=multipliers, rounds=BATCH_ROUNDS)
    return None if found is None else found.bound


def _priced_breach(question: Question, point: np.ndarray, multipliers: np.ndarray) -> float | None:
    """`min_pi sum_j mu_j (rho_j(D_j) - d_j)` from below: the first priced limit takes the objective's place."""
    lead = int(np.argmax(multipliers))
    if not multipliers[lead] > 0:
        return None
    others = [j for j in range(len(multipliers)) if j != lead]
    order = [lead + 1, *(j + 1 for j in others)]
    turned = question._replace(
        objectives=tuple(question.objectives[g] for g in order),
        risks=tuple(question.risks[g] for g in order),
        aims=question.aims[others],
        units=question.units[order],
    )
    bound = _priced(turned, point, multipliers[others] / multipliers[lead])
    return None if bound is None else multipliers[lead] * (bound - question.aims[lead])


def certified(
    objectives: Sequence[Objective],
    limits: tuple[Limit, ...],
    risk: Risk,
    point: np.ndarray,
    answer: Evaluation,
    in_sample: float,
    multipliers: Float[np.ndarray, " L"] | None,
    proved: bool,
) -> Certificate:
    """The certificate of a policy with limits: no policy that keeps them has a smaller risk than its bound.

    Args:
        objectives: of the loss that is minimised, then of each limit.
        limits: what is to be kept.
        risk: that was minimised.
        point: the policy's.
        answer: the policy on fresh draws.
        in_sample: the objective on the draws the policy was fitted to.
        multipliers: from other draws, at which a bound for the whole posterior is asked for.
        proved: whether no policy keeps the limits.
    """
    plain = certify(objectives[0], point, answer, risk, None, in_sample)
    if proved:
        nothing = dict.fromkeys(("lower_bound", "lower_bound_standard_error", "gap", "gap_limit"))
        return dataclasses.replace(plain, **nothing, reason="no policy keeps the limits, so there is nothing to bound")
    draws = answer.draws if answer.exact else answer.draws.first(BOUND_DRAWS)
    question = _question(objectives, limits, risk, draws, point)
    found = relaxed(question, point) if question.limits and risk.coherent else None
    if found is None or not np.isfinite(found.bound):
        return plain
    ours = judged(risk, np.asarray(answer.losses)[: len(draws)], draws)
    # The policy may break a limit on these draws, and then be below what no policy that keeps it can beat.
    bound = found.bound
    if plain.lower_bound is not None and plain.draws == len(draws):
        bound = max(bound, plain.lower_bound)
    limit = max(ours.risk - bound, 0.0) if draws.exact else None
    if not draws.exact and multipliers is not None and _biased_low(question) and question.limits == len(limits):
        low = _batched(question, 0.975, lambda batch: _priced(batch, point, multipliers))
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
