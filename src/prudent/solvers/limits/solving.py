"""`solve` with limits: check, search, judge on fresh draws, prove what can be proved."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ...arrays import in_float64, require_kind
from ...errors import InputError
from ...evaluation import CHEAP_DRAWS, CHEAP_KERNELS, CHEAP_WORK, Evaluation, judge, usual_draws
from ...objectives import Objective, point_at
from ...records import Record, tree_map
from ...risks import Risk
from ..draws import Job, fresh_draws
from ..progress import Shown
from ..sample_average import SampleAverage
from ..solution import Asked, Checkpoint, History, Solution, Status
from .answer import LimitAnswer, Verdict, limit_answer
from .bounds import certified, infeasible
from .limit import Limit, refuse_idle
from .program import prices_beside, within_prices
from .search import Candidate, LimitSearch

# Fresh and held-out draws, where that is cheap: what is kept to spare shrinks with them.
MANY_DRAWS = 8192


class LimitedState(Record):
    """What is left of a search with limits: the policy and its multipliers."""

    point: Float[np.ndarray, ...]
    multipliers: Float[np.ndarray, " L"]


@in_float64
def solve_limited(
    objectives: Sequence[Objective],
    limits: tuple[Limit, ...],
    job: Job,
    settings: SampleAverage,
    progress: Shown,
    certify: bool,
) -> Solution:
    """The cheapest policy that was found to keep the limits, with what can be said of it.

    Args:
        objectives: of the loss that is minimised, then of each limit.
        limits: what is to be kept.
        job: belief, risk and start.
        settings: of the search.
        progress: as in `solve`.
        certify: as in `solve`.
    """
    clock = time.perf_counter()
    belief, risk, words, start, _ = job
    count = settings.evaluation or _many(objectives, [risk, *(limit.risk for limit in limits)])
    fresh = fresh_draws(belief, words, count)
    thetas, own = fresh.thetas[:4], objectives[0]
    own.check(thetas, start)
    for number, (limit, objective) in enumerate(zip(limits, objectives[1:], strict=True)):
        try:
            objective.check(thetas, start)
        except InputError as error:
            raise InputError(f"{limit.called(number)}: {error}") from None
    for number, (limit, objective) in enumerate(zip(limits, objectives[1:], strict=True)):
        refuse_idle(limit, number, *objective.loss_range(fresh.thetas if fresh.exact else thetas))
    # What no policy keeps is searched for all the same, for the policy that breaks it least.
    proofs = infeasible(objectives, limits, fresh, np.asarray(point_at(own, start)))
    search = LimitSearch(objectives, limits, job, settings, count, thetas, proofs.proved)
    candidate = search.found(progress)
    parameters = tree_map(lambda leaf: np.asarray(leaf)[0], search.variables.parameters(candidate.point.here.x[None]))
    point = np.asarray(point_at(own, parameters))
    answer = judge(own, risk, point, fresh)
    answer = dataclasses.replace(answer, notes=own.notes(belief, point, fresh))
    multipliers, prices = _multipliers(search, candidate)
    kept = [
        limit_answer(
            limit,
            judge(objectives[j + 1], search.risks()[j + 1], point, fresh),
            multiplier=float(multipliers[j]),
            prices=(float(prices[j, 0]), float(prices[j, 1])),
            level=search.levels[j],
            **proofs.single[j]._asdict(),
        )
        for j, limit in enumerate(limits)
    ]
    certificate = None
    if certify and answer.finite():
        in_sample, scales = float(search.units[0].loss(candidate.point.here.values[0])), search.scales
        told = None if search.told is None else search.told.multipliers * scales[0] / scales[1:]
        certificate = certified(objectives, limits, risk, point, answer, in_sample, told, proofs.proved)
        answer = dataclasses.replace(answer, footing=own.footing(belief, risk, point, answer, words))
    history = np.array(search.history).reshape(-1, 3)
    return Solution(
        status=_status(search, candidate, answer, kept, own),
        policy=own.policy(point),
        evaluation=answer,
        history=History(*history.T),
        iterations=len(history),
        seconds=time.perf_counter() - clock,
        parameters=parameters,
        checkpoint=Checkpoint(LimitedState(point, multipliers), words),
        models=search.models,
        certificate=certificate,
        limits=tuple(kept),
        asked=Asked(own, belief, risk, words),
    )


def _many(objectives: Sequence[Objective], risks: Sequence[Risk]) -> int:
    usual = max(usual_draws(objective, risk) for objective, risk in zip(objectives, risks, strict=True))
    size = objectives[0].size()
    cheap = min(CHEAP_KERNELS // size.theta_bytes, CHEAP_WORK // size.bytes, CHEAP_DRAWS)
    return int(max(usual, min(cheap, MANY_DRAWS)))


def limit_objectives(limits: tuple[Limit, ...], made: Any) -> tuple[Objective, ...]:
    """The objective of each limit: one that was given, or the one that the family makes of the limit's loss."""
    found = []
    for number, limit in enumerate(limits):
        own = limit.loss if isinstance(limit.loss, Objective) else made(limit.loss)
        require_kind(f"the loss of {limit.called(number)}", own, Objective, "a loss of this model, or an Objective")
        found.append(own)
    return tuple(found)


def _multipliers(search: LimitSearch, candidate: Candidate) -> tuple[Float[np.ndarray, " L"], Float[np.ndarray, "L 2"]]:
    """Multipliers and prices on both sides, in the user's units: of the objective for one of the limit.

    NaN where a limit is broken on the sample itself, or no policy keeps them. A CVaR that stands in for a chance need
    not be kept: then it is priced where it is.
    """
    question, point = candidate.question, candidate.point
    chances = np.array([limit.chance is not None for limit in search.limits])
    values = point.here.values[1:]
    over = question.breach(point.here.values) > 1e-6 * question.units[1:]
    if search.hopeless or point.step is None or np.any(over & ~chances):
        return np.full(question.limits, np.nan), np.full((question.limits, 2), np.nan)
    ratio = search.scales[0] / search.scales[1:]
    asked = question._replace(aims=np.where(over, values, question.aims))
    prices = prices_beside(asked, search.variables, point.here, point.prices)
    multipliers = within_prices(np.where(over, 0.0, np.maximum(point.multipliers, 0.0)), prices)
    return multipliers * ratio, prices * ratio[:, None]


def _status(
    search: LimitSearch, candidate: Candidate, answer: Evaluation, kept: list[LimitAnswer], objective: Objective
) -> Status:
    if answer.infinite() and objective.infinite():
        return Status.INFINITE
    if not answer.finite() or not all(each.evaluation.finite() for each in kept):
        return Status.NON_FINITE
    if search.hopeless:
        return Status.INFEASIBLE
    verdicts = {each.verdict for each in kept}
    if verdicts != {Verdict.KEPT}:
        return Status.LIMIT_BROKEN if Verdict.BROKEN in verdicts else Status.LIMIT_OPEN
    if not candidate.point.done:
        return Status.ITERATION_LIMIT if candidate.point.done is None else Status.STALLED
    return Status.SAMPLE_LIMIT if search.moved else Status.CONVERGED_WITHIN_LIMITS
