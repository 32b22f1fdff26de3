"""What an answer stands on: how much of it rests on pairs with few rows, and on the prior.

A stated risk is a promise about the true loss. It is kept as far as the belief is right, and where there are few rows
the belief is mostly prior. So the same policy is judged under a few priors for the same counts, and the chance that the
loss is above the stated risk is that of somebody who gives each of them the same weight:

    exceeded = mean_j P_j(C(pi, theta) > stated risk).

An answer whose tail is spent mostly in pairs with few rows is thin, too, whatever these priors agree on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from ..arrays import Stream, stream
from ..losses import ExpectedCost
from ..models import TabularFamily
from ..occupancies import occupancies_on_host
from ..planning import LARGEST_DIRECT, plan_many
from ..posteriors import Posterior
from ..risks import Risk
from .chunks import losses_on
from .footing import FEW, Footing, OtherPrior, ThinPair, word_for
from .grounds import Ground, ground_of
from .tabular_plans import linear_cost

if TYPE_CHECKING:
    from .tabular import TabularObjective

# Share of discounted time, plain or in the tail, from which the policy leans on a pair.
LEANS = 1e-3

# Up to this many states NumPy evaluates policies at once, and nothing is compiled for it.
LARGEST_PLAIN = 128

# Draws of each other belief, fewer where their tables would take more than these bytes.
DRAWS, FEWEST_DRAWS, BYTES = 256, 32, 2**27

# Gains below this share of the loss are rounding.
ROUNDING = 1e-9


def footing_of(
    objective: TabularObjective,
    belief: Posterior,
    risk: Risk,
    table: Float[np.ndarray, "S A"],
    answer: Any,
    words: tuple[int, ...],
) -> Footing:
    """What a policy's stated risk stands on.

    Args:
        objective: what was minimised.
        belief: under which the risk was stated.
        risk: that was stated.
        table: the policy's probabilities.
        answer: the policy judged on fresh draws of the belief, an `Evaluation`.
        words: of the random key.
    """
    ground = ground_of(objective.family, belief)
    if isinstance(ground, str):
        return Footing.unknown(ground)
    time, tail = _times(objective, table, answer)
    thin = ground.open & (ground.rows < FEW)
    others = _others(objective, ground, risk, table, answer, words)
    if others is None:
        return Footing.unknown("the loss is not a finite number at every draw of another prior")
    exceeded, tail_time = float(np.mean([other.exceeded for other in others])), float(tail[thin].sum())
    return Footing(
        word=word_for(exceeded, tail_time),
        reason="",
        few=FEW,
        time=float(time[thin].sum()),
        tail_time=tail_time,
        pairs=_leant_on(ground.rows, thin, time, tail),
        others=tuple(others),
        exceeded=exceeded,
    )


def costs_at(family: TabularFamily, thetas: Float[np.ndarray, "M S A B"]) -> Float[np.ndarray, "M S A"]:
    """The expected costs of pairs in each model."""
    tables, own = np.split(thetas, [family.support.successors], axis=3)
    cost = own if family.costs is None else np.asarray(family.costs)
    if cost.ndim == 2:
        return np.broadcast_to(cost, tables.shape[:3])
    return cost[..., 0] if cost.shape[-1] == 1 < tables.shape[3] else (cost * tables).sum(axis=3)


def is_plain(objective: TabularObjective) -> bool:
    """Whether direct solves evaluate policies fast enough, so that nothing is compiled; nor is it for the smallest."""
    if objective.size().any_number:
        return False
    plain = isinstance(objective.loss, ExpectedCost) and isinstance(objective.family, TabularFamily)
    return plain and objective.occupancy.horizon is None and objective.family.support.states <= LARGEST_PLAIN


def plainly(
    objective: TabularObjective, table: np.ndarray, thetas: Float[np.ndarray, "M S A B"]
) -> tuple[Float[np.ndarray, " M"], Float[np.ndarray, "M S A"]]:
    """Losses and occupancies of one policy by NumPy."""
    family = objective.family
    assert isinstance(family, TabularFamily)
    start, discount = np.asarray(family.start), float(family.discount)
    tables = thetas[..., : family.support.successors]
    occupancies = occupancies_on_host(family.support, tables, start, discount, table)
    return (occupancies * costs_at(family, thetas)).sum(axis=(1, 2)), occupancies


def _times(objective: TabularObjective, table: np.ndarray, answer: Any) -> Float[np.ndarray, "2 S A"]:
    """Shares of discounted time, the mean over the belief and under the weights of the risk."""
    share = np.asarray(answer.draws.probabilities)
    shares = np.stack([share, share * np.asarray(answer.weights)])
    thetas = answer.draws.thetas
    if is_plain(objective):
        visits = np.tensordot(shares, plainly(objective, table, thetas)[1], axes=1)
    else:
        visits = objective.mean_occupancies(table, thetas, shares)
    return visits / visits.sum(axis=(1, 2), keepdims=True)


def _leant_on(
    rows: Float[np.ndarray, "S A"],
    thin: Bool[np.ndarray, "S A"],
    time: Float[np.ndarray, "S A"],
    tail: Float[np.ndarray, "S A"],
) -> tuple[ThinPair, ...]:
    """Thin pairs with a noticeable share of the time, the most time for each row first."""
    most = np.maximum(time, tail)
    pairs = sorted(np.argwhere(thin & (most >= LEANS)).tolist(), key=lambda pair: -most[*pair] / (rows[*pair] + 1.0))
    return tuple(ThinPair((s, a), float(rows[s, a]), float(time[s, a]), float(tail[s, a])) for s, a in pairs)


def _others(
    objective: TabularObjective, ground: Ground, risk: Risk, table: np.ndarray, answer: Any, words: tuple
) -> list[OtherPrior] | None:
    """The policy under each of the other priors, all of their draws in one batch; None if a loss is not finite."""
    if ground.family is not objective.family:
        method = None if objective.occupancy.horizon is None else objective.occupancy
        objective = type(objective)(ground.family, objective.loss, objective.parametrisation, method)
    beliefs = ground.beliefs
    draws = int(np.clip(BYTES // (8 * len(beliefs) * int(np.prod(ground.family.support.shape))), FEWEST_DRAWS, DRAWS))
    means = [np.asarray(belief.mean()) for belief in beliefs.values()]
    thetas = [belief.draw(stream(words, Stream.OTHERS, k), draws) for k, belief in enumerate(beliefs.values())]
    every = np.concatenate([*thetas, np.stack(means)])
    losses = plainly(objective, table, every)[0] if is_plain(objective) else losses_on(objective, table[None], every)[0]
    if not np.all(np.isfinite(losses)):
        return None
    scale = ROUNDING * float(np.abs(np.concatenate([losses, answer.losses])).max())
    others = []
    for k, (name, mean) in enumerate(zip(beliefs, means, strict=True)):
        these = losses[k * draws : (k + 1) * draws]
        others.append(
            OtherPrior(
                name,
                risk=float(risk(these, np.full(draws, 1.0 / draws)).value),
                exceeded=float((these > answer.risk + scale).mean()),
                gain=_gain(objective, mean, float(losses[len(beliefs) * draws + k])),
            )
        )
    return others


def _gain(objective: TabularObjective, mean: Float[np.ndarray, "S A B"], loss: float) -> float | None:
    """How much less the best policy for one table loses there; None where it cannot be planned for exactly."""
    family = objective.family
    if objective.occupancy.horizon is not None or family.support.states > LARGEST_DIRECT:
        return None
    mdp = family.at(mean)
    cost = linear_cost(objective.loss, mdp)
    if cost is None:
        return None
    plans = plan_many(family.support, mean[None], np.asarray(cost)[None], float(family.discount))
    gain = loss - float(plans.values[0] @ np.asarray(family.start))
    return gain if gain > ROUNDING * abs(loss) else 0.0
