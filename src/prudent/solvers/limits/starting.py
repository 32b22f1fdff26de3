"""Where a search with limits begins: the best of many policies by merit, and a few that are far away from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ...objectives import Objective, losses_on
from ...records import tree_map
from ...seeds import Stream, generator
from ..draws import Job
from ..question import Question
from ..space import Space, select
from ..starts import PLANNED, SPREAD, heaviest
from .relaxation import RelaxedLimits, relaxed

# Draws of the relaxation that starts come from.
TOLD_DRAWS = 64

# Of this many policies without bounds, the best tells how much losses differ.
BETTER = 4

# What a breach costs at first, in units of the objective for a unit of the limit.
FIRST_PRICE = 2.0

# Candidates by chance for each start that is wanted.
BY_CHANCE = 2

# Points closer than this in every number are one.
APART = 0.05


class LimitedStarts(NamedTuple):
    """What is known before a search with limits begins; the same for the same job.

    Attributes:
        units: `[G]` what each loss is measured in: how much it differs over draws and policies.
        relaxation: the problem of one who is told theta, on a few draws; None where it has no planner.
        prices: `[L]` what a breach costs at first.
        candidates: parameters of policies, the job's own start the first.
    """

    units: Float[np.ndarray, " G"]
    relaxation: RelaxedLimits | None
    prices: Float[np.ndarray, " L"]
    candidates: Any


def prepare_starts(space: Space, job: Job, question: Question, count: int) -> LimitedStarts:
    """Return candidates, units and prices, on the first sample of the search, whose units are not known yet."""
    random = generator(job.seed, Stream.SAMPLE)
    own = tree_map(lambda leaf: np.asarray(leaf)[None], job.start)
    objectives, draws = question.objectives, question.draws
    candidates = _candidates(space, job, objectives, question, own, [], count, random)
    units = _units(space, question, candidates)
    question = question._replace(units=units)
    point = np.asarray(space.objective.points(own))[0]
    told = relaxed(question._replace(draws=heaviest(draws, TOLD_DRAWS)), point)
    prices = FIRST_PRICE * units[0] / units[1:]
    if told is not None:
        prices = np.maximum(prices, 2.0 * told.multipliers)
        more = _candidates(space, job, objectives, question, own, told.mixtures(), 1, random)
        candidates = tree_map(lambda *parts: np.concatenate(parts), more, candidates)
    return LimitedStarts(units, told, prices, candidates)


def choose_starts(
    space: Space, question: Question, candidates: Any, prices: Float[np.ndarray, " L"], count: int
) -> Any:
    """Return the best candidates by merit that differ, and some that are far away: the best may lie in one valley."""
    points = np.asarray(space.objective.points(candidates))
    x, values = points.reshape(len(points), -1), question.values(points)
    finite = np.flatnonzero(np.all(np.isfinite(values), axis=1))
    if not finite.size:
        return select(candidates, np.arange(min(count, len(x))))
    order = finite[np.argsort(question.merit(values[finite], prices), kind="stable")]
    kept: list[int] = []
    for k in order:
        if len(kept) < (count + 1) // 2 and all(np.abs(x[k] - x[j]).max() > APART for j in kept):
            kept.append(int(k))
    while len(kept) < min(count, len(order)):
        # The farthest of the rest, among the better half.
        rest = [int(k) for k in order[: max(count, len(order) // 2)] if k not in kept]
        away = [min(float(np.abs(x[k] - x[j]).max()) for j in kept) for k in rest]
        if not away or max(away) <= 1e-9:
            break
        kept.append(rest[int(np.argmax(away))])
    return select(candidates, np.array(kept))


def _candidates(
    space: Space,
    job: Job,
    objectives: Sequence[Objective],
    question: Question,
    own: Any,
    planned: list[np.ndarray],
    count: int,
    random: np.random.Generator,
) -> Any:
    """Return the start, mixtures of plans of one who is told theta, plans of each loss, and policies by chance."""
    for objective in objectives:
        if (plans := objective.plans()) is not None:
            few = question.draws.first(min(len(question.draws), PLANNED))
            planned = planned + list(plans.planned(job.belief, few, count).points[: 4 * count])
    drawn = space.objective.random_points(random, BY_CHANCE * count)
    several = [*([np.stack(planned)] if planned else []), *([] if drawn is None else [drawn])]
    found = [space.parameters_of(points) for points in several]
    parts = [own, *(each for each in found if each is not None)]
    if drawn is None:

        def near(leaf: np.ndarray) -> np.ndarray:
            return leaf + SPREAD * random.normal(size=(BY_CHANCE * count, *leaf.shape[1:]))

        parts.append(tree_map(near, own))
    return tree_map(lambda *each: np.concatenate(each), *parts)


def _units(space: Space, question: Question, candidates: Any) -> Float[np.ndarray, " G"]:
    """Return how much each loss differs over draws and policies; of policies without bounds, over better ones."""
    points, units = np.asarray(space.objective.points(candidates)), []
    for objective in question.objectives:
        losses = losses_on(objective, points, question.draws.thetas)
        if space.table is None:
            # A gain that lets a system go may lose any number.
            losses = losses[np.argsort(losses.max(axis=1), kind="stable")[: max(2, len(losses) // BETTER)]]
        losses = losses[np.isfinite(losses)]
        size = float(np.abs(losses).max(initial=0.0))
        units.append(max(float(np.ptp(losses)) if losses.size else 0.0, 1e-9 * size) or 1.0)
    return np.array(units)
