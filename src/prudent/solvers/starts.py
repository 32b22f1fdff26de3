"""Where a search begins: points that would be right if theta were known, and a few by chance."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..objectives import Objective, losses_on
from ..parameter_sets import project_all
from ..posteriors import WeightedDraws
from ..records import tree_map
from ..risks import Risk
from .draws import Job
from .question import assess_rows
from .space import Space

# Starts that are left to chance, as a share of those that are not the job's own.
RANDOM_SHARE = 0.45

# Draws that are planned for.
PLANNED = 32

# Spread of random starts in parameters, where a policy cannot be told to begin at a plan.
SPREAD = 0.3


class Starts(NamedTuple):
    """Where a search begins.

    Attributes:
        parameters: with a leading axis.
        floor: about the risk if theta were told before acting; NaN where that would take too long to find. What a
            policy can gain is measured by it, so that tolerances do not depend on the level of the losses.
    """

    parameters: Any
    floor: float


def first_parameters(
    space: Space, job: Job, count: int, draws: WeightedDraws, pure: bool, random: np.random.Generator
) -> Starts:
    """The job's own start, then plans, then random ones; a start that was given, again.

    Args:
        space: what is minimised over.
        job: its own start, and its belief, asked for its mean and its maximum likelihood where it has them.
        count: how many.
        draws: to plan at.
        pure: whether plans may be starts as they are; else they are mixed with others, because a step could not leave
            them or a loss has no slope there.
        random: for what plans leave open.
    """
    own = tree_map(lambda leaf: np.asarray(leaf)[None], job.start)
    parts, floor = [own], float("nan")
    if count > 1:
        others, floor = _others(space, job, count - 1, draws, pure, random)
        parts.append(others)
    parts += [own] if job.given else []
    return Starts(tree_map(lambda *leaves: np.concatenate(leaves), *parts), floor)


def _others(
    space: Space, job: Job, count: int, draws: WeightedDraws, pure: bool, random: np.random.Generator
) -> Starts:
    objective = space.objective
    points, floor = _plans(objective, job, draws, count - int(RANDOM_SHARE * count))
    drawn = objective.random_points(random, count - len(points))
    if drawn is None:
        starts = tree_map(
            lambda leaf: np.asarray(leaf) + SPREAD * random.normal(size=(count, *np.shape(leaf))), job.start
        )
        return Starts(tree_map(np.asarray, project_all(space.within, starts)), floor)
    if not pure or space.table is None or space.table.nonlinear:
        points = [objective.mixed(point) for point in points]
    parameters = objective.from_point(np.stack([*points, *drawn]))
    return Starts(tree_map(np.asarray, project_all(space.within, parameters)), floor)


def _plans(objective: Objective, job: Job, draws: WeightedDraws, most: int) -> tuple[list[np.ndarray], float]:
    """The best of the objective's plans, and the risk if each of these draws had its own; NaN where that is unknown."""
    plans = objective.plans()
    if plans is None:
        return [], float("nan")
    draws = heaviest(draws, PLANNED)

    def weigh(losses: np.ndarray) -> np.ndarray:
        return draws.probabilities * assess_rows(job.risk, losses[None], draws.probabilities)[1][0]

    points, least = plans.planned(job.belief, draws, most, weigh)
    if least is None:
        return list(points[:most]), float("nan")
    order = _order(objective, job.risk, points, draws)
    return list(points[order[:most]]), float(assess_rows(job.risk, least[None], draws.probabilities)[0][0])


def plan_points(objective: Objective, job: Job, draws: WeightedDraws) -> list[np.ndarray]:
    """Return the objective's plans at these draws, at the mean and at the maximum likelihood, where it has plans."""
    plans = objective.plans()
    if plans is None:
        return []
    few = heaviest(draws, PLANNED)
    return list(plans.planned(job.belief, few, len(few)).points)


def heaviest(draws: WeightedDraws, most: int) -> WeightedDraws:
    """As many of the draws; of atoms, those of the largest probability."""
    if len(draws) <= most:
        return draws
    kept = np.sort(np.argsort(-draws.probabilities, kind="stable")[:most])
    share = draws.probabilities[kept]
    return WeightedDraws(draws.thetas[kept], share / share.sum(), False)


def _order(objective: Objective, risk: Risk, points: np.ndarray, draws: WeightedDraws) -> np.ndarray:
    """Points from the least risk on these draws to the largest."""
    if len(points) == 1:
        return np.zeros(1, int)
    losses = losses_on(objective, points, draws.thetas)
    return np.argsort(assess_rows(risk, losses, draws.probabilities)[0], kind="stable")
