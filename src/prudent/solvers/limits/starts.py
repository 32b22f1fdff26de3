"""Where a search with limits begins: mixtures of plans of one who is told theta, plans, and policies by chance."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from ...objectives import Objective
from ...posteriors import Posterior, WeightedDraws
from .problem import LimitQuestion, Variables
from .wait_and_see import RelaxedLimits

# Candidates by chance for each start that is wanted; draws whose own mixtures are candidates.
BY_CHANCE, OWN_MIXTURES = 2, 6

# Spread of random starts in parameters, where a policy cannot be told to begin at a plan.
SPREAD = 0.3


def candidates(
    question: LimitQuestion,
    variables: Variables,
    belief: Posterior,
    initial: Float[np.ndarray, " N"],
    told: RelaxedLimits | None,
    count: int,
    random: np.random.Generator,
) -> Float[np.ndarray, "K N"]:
    """Many choices, of which the best by merit and a few by chance are worth a descent."""
    objective = question.objectives[0]
    points: list[np.ndarray] = []
    if told is not None:
        points += _mixtures(told)
    for each in question.objectives:
        points += _plans(each, belief, question.draws, count)
    drawn = objective.random_points(random, BY_CHANCE * count)
    parts = [initial[None]]
    if points:
        found = variables.from_points(np.stack(points))
        parts += [] if found is None else [found]
    if drawn is not None:
        found = variables.from_points(drawn)
        parts += [] if found is None else [found]
    else:
        parts.append(initial + SPREAD * random.normal(size=(BY_CHANCE * count, len(initial))))
    return np.concatenate(parts)


def chosen(
    question: LimitQuestion,
    variables: Variables,
    x: Float[np.ndarray, "K N"],
    prices: np.ndarray,
    count: int,
) -> Float[np.ndarray, "chosen N"]:
    """The best candidates by merit that differ, and some that are far away: the best may all lie in one valley."""
    values = question.values(variables.points(x))
    finite = np.all(np.isfinite(values), axis=1)
    if not finite.any():
        return x[:0]
    x, values = x[finite], values[finite]
    score = values[:, 0] + question.breach(values) @ prices
    order = np.argsort(score, kind="stable")
    kept: list[int] = []
    for k in order:
        if len(kept) < (count + 1) // 2 and all(np.abs(x[k] - x[j]).max() > 0.05 for j in kept):
            kept.append(int(k))
    while len(kept) < min(count, len(x)):
        # The farthest of the rest, among the better half.
        rest = [int(k) for k in order[: max(count, len(order) // 2)] if k not in kept]
        if not rest:
            break
        away = [min(float(np.abs(x[k] - x[j]).max()) for j in kept) for k in rest]
        if max(away) <= 1e-9:
            break
        kept.append(rest[int(np.argmax(away))])
    return x[kept]


def _mixtures(told: RelaxedLimits) -> list[np.ndarray]:
    """Tables that visit pairs as the mixtures do: of all draws, under the risks' weights, and of the heaviest draws."""
    if told.visits.shape[1] == 0:
        heavy = np.argsort(-told.share, kind="stable")[:OWN_MIXTURES]
        return [told.points[k] for k in heavy]
    draws = told.weights.shape[1]
    mass = np.bincount(told.owner, told.share, minlength=draws)
    each = told.share / np.where(mass[told.owner] > 0, mass[told.owner], 1.0)
    weightings = [mass, *(row for row in told.weights if row.sum() > 0), told.weights.sum(axis=0)]
    heavy = np.argsort(-told.weights.sum(axis=0), kind="stable")[:OWN_MIXTURES]
    weightings += [np.eye(draws)[k] for k in heavy]
    return [_table(told, each * weighting[told.owner]) for weighting in weightings if weighting.sum() > 0]


def _table(told: RelaxedLimits, share: np.ndarray) -> np.ndarray:
    visits = share[:, None] * told.visits
    met = np.einsum("ps,psa->sa", visits, told.points)
    total = met.sum(axis=1, keepdims=True)
    plain = np.einsum("p,psa->sa", share / share.sum(), told.points)
    return np.where(total > 1e-14 * total.max(), met / np.where(total > 0, total, 1.0), plain)


def _plans(objective: Objective, belief: Posterior, draws: WeightedDraws, most: int) -> list[np.ndarray]:
    plans = objective.plans()
    if plans is None:
        return []
    return list(plans.planned(belief, draws.first(min(len(draws), 32)), most).points[: 4 * most])
