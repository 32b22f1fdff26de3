"""What an answer stands on: how much of it rests on pairs with few rows, and on the prior.

A stated risk is a promise about the true loss. It is kept as far as the belief is right, and where there are few rows
the belief is mostly prior. So the same policy is judged under a few priors for the same counts, and what counts is the
least favourable of them:

    exceeded = max_j P_j(C(pi, theta) > stated risk).

The belief itself has such a chance, too, about one half where the risk is a mean: what counts is the difference,

    exceeded - own,    own = P(C(pi, theta) > stated risk) on the draws that the risk is stated on.

An answer that spends much of its time, or makes most of what its costs vary by, in pairs with few rows is thin, too,
whatever these priors agree on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..engine import LARGEST_DIRECT, plan
from ..kernels import Support
from ..losses import as_convex, is_linear
from ..models import AbstractFamily, TabularFamily
from ..objectives import FEW, Evidence, OtherPrior, ThinPair, losses_on, word_for
from ..posteriors import Dirichlet, OutcomeLaws, Pooled, Posterior, Sobol, TriedRows, WithCosts
from ..risks import Risk
from ..seeds import Seed, Stream, generator
from .plans import linear_cost

if TYPE_CHECKING:
    from .objective import TabularObjective

# Share of discounted time, plain or in the tail, from which the policy leans on a pair.
LEANS = 1e-3

# Draws of each other belief, fewer where their tables would take more than these bytes.
DRAWS, FEWEST_DRAWS, BYTES = 256, 32, 2**27

# A pseudo-count that draws nothing.
NEVER = 1e-9

# Gains below this share of the loss are rounding.
ROUNDING = 1e-9


def evidence_of(
    objective: TabularObjective,
    belief: Posterior,
    risk: Risk,
    table: Float[np.ndarray, "S A"],
    answer: Any,
    seed: Seed,
) -> Evidence:
    """What a policy's stated risk stands on.

    Args:
        objective: what was minimised.
        belief: under which the risk was stated.
        risk: that was stated.
        table: the policy's probabilities.
        answer: the policy judged on fresh draws of the belief, an `Evaluation`.
        seed: of the draws.
    """
    ground = ground_of(objective.family, belief)
    if isinstance(ground, str):
        return Evidence.unknown(ground)
    time, tail = _times(objective, table, answer)
    thin = ground.open & (ground.rows < FEW)
    found = _others(objective, ground, risk, table, answer, seed)
    if found is None:
        return Evidence.unknown("the loss is not a finite number at every draw of another prior")
    own, others = found
    exceeded = max(other.exceeded for other in others)
    mean_time, tail_time, cost_share = (
        float(time[thin].sum()),
        float(tail[thin].sum()),
        _cost_share(objective, answer, time, thin),
    )
    return Evidence(
        word=word_for(exceeded, own, mean_time, tail_time, cost_share),
        reason="",
        few=FEW,
        time=mean_time,
        tail_time=tail_time,
        cost_share=cost_share,
        pairs=_thin_pairs_by_visits(ground.rows, thin, time, tail),
        others=tuple(others),
        exceeded=exceeded,
        own=own,
    )


class Ground(NamedTuple):
    """What a belief stands on.

    Attributes:
        family: the models along all successors that may be possible.
        rows: `[S, A]` how often each pair was seen; of pairs that are tied or share a law, all of them together.
        open: `[S, A]` pairs of which more than one thing may come.
        beliefs: by name, what careful readers of the same rows might believe.
    """

    family: AbstractFamily
    rows: Float[np.ndarray, "S A"]
    open: Bool[np.ndarray, "S A"]
    beliefs: dict[str, Dirichlet | Pooled | OutcomeLaws]


def _ground(
    family: AbstractFamily,
    support: Support,
    counts: Float[np.ndarray, "S A B"],
    allowed: Bool[np.ndarray, "S A B"],
    tied: Int[np.ndarray, "S A"] | None = None,
    pooled: Pooled | None = None,
) -> Ground:
    """Counts under several priors, laid out along all successors that may be possible.

    Args:
        family: the models along the support.
        support: these successors.
        counts: of tied rows together.
        allowed: where a row may lead.
        tied: labels of rows that are one, or None.
        pooled: the belief itself, where its rows learn from one another.
    """
    seen = counts > 0
    shown = np.where(seen.any(axis=2, keepdims=True), seen, allowed)
    spread = allowed / allowed.sum(axis=2, keepdims=True)
    priors = {"seen successors only, a row each": shown * 1.0, "one row spread over all successors": spread}
    own = counts
    if tied is not None:
        # Counts of tied rows, which are together in each of them, are in the first alone.
        first = np.isin(np.arange(tied.size), np.unique(tied.ravel(), return_index=True)[1])
        own = np.where(first.reshape(tied.shape)[..., None], counts, 0.0)
    beliefs: dict[str, Dirichlet | Pooled | OutcomeLaws] = {
        name: Dirichlet(support, prior, own, tied) for name, prior in priors.items()
    }
    if tied is None and np.array_equal(allowed, support.allowed()):
        beliefs["pairs that learn from one another"] = pooled or Pooled(support, counts)
    return Ground(family, counts.sum(axis=2), allowed.sum(axis=2) > 1, beliefs)


def ground_of(family: AbstractFamily, belief: Posterior) -> Ground | str:
    """The rows that a belief was made from; or, in words, why they are not known."""
    while isinstance(belief, Sobol | WithCosts):
        if isinstance(belief, WithCosts):
            # What is open is where pairs lead: costs are at their means.
            cost = np.asarray(belief.cost)
            cost = cost[..., 0] if cost.shape[2] == 1 else cost
            family = TabularFamily(belief.support, cost, family.start, family.discount)
        belief = belief.posterior
    if isinstance(belief, OutcomeLaws):
        return _ground_of_laws(family, belief)
    if isinstance(belief, TriedRows):
        return "a TriedRows belief has no prior for what its log has not shown, but its dearest case"
    if not isinstance(belief, Dirichlet | Pooled):
        return f"the {type(belief).__name__} belief does not say how often each state-action pair was seen"
    counts, allowed, tied = np.asarray(belief.counts), belief.support.allowed(), None
    if isinstance(belief, Dirichlet):
        tied = None if belief.tied is None else np.asarray(belief.tied)
        counts = counts if tied is None else _together(counts, tied)
        allowed = allowed & ((np.asarray(belief.prior) > 0) | (counts > 0))
    if belief.support.observed and tied is None and isinstance(family, TabularFamily):
        return _ground(*_widened(family, belief.support, counts, allowed))
    return _ground(family, belief.support, counts, allowed, tied, belief if isinstance(belief, Pooled) else None)


def _ground_of_laws(family: AbstractFamily, belief: OutcomeLaws) -> Ground:
    """What was seen of laws, under several priors of their outcomes."""
    allowed, index = belief.support.allowed(), belief.support.index()
    own = np.asarray(belief.prior) > 0
    priors = {
        "seen outcomes only, a row each": np.where(belief.shown(), 1.0, NEVER * own),
        "one row spread over all outcomes": own / own.sum(axis=1, keepdims=True),
    }
    beliefs: dict[str, Dirichlet | Pooled | OutcomeLaws] = {
        name: OutcomeLaws(belief.support, belief.law, prior, belief.counts, belief.seen)
        for name, prior in priors.items()
    }
    open_ = allowed.sum(axis=2) > 1
    if isinstance(family, TabularFamily):
        # Outcomes that lead to one state at one cost are one.
        cost = np.asarray(family.costs)
        differ = [index, cost] if cost.ndim == 3 else [index]
        first = [np.take_along_axis(each, allowed.argmax(axis=2)[..., None], axis=2) for each in differ]
        apart = [(each != one) & allowed for each, one in zip(differ, first, strict=True)]
        open_ = np.any(apart, axis=(0, 3))
    return Ground(family, belief.rows(), open_, beliefs)


def _together(counts: Float[np.ndarray, "S A B"], tied: Int[np.ndarray, "S A"]) -> Float[np.ndarray, "S A B"]:
    """Counts of tied rows, added up in each of them."""
    _, place = np.unique(tied.ravel(), return_inverse=True)
    rows = counts.reshape(len(place), -1)
    total = np.zeros((place.max() + 1, rows.shape[1]))
    np.add.at(total, place, rows)
    return total[place].reshape(counts.shape)


def _widened(
    family: TabularFamily, support: Support, counts: Float[np.ndarray, "S A B"], allowed: Bool[np.ndarray, "S A B"]
) -> tuple[TabularFamily, Support, np.ndarray, np.ndarray]:
    """Lists that only say what was seen, made wide enough for what was not: any state may follow an open pair.

    A pair whose only successor was never seen is one that cannot be left, as in a terminal state. A transition
    without a cost of its own costs what its pair costs on average over the list.
    """
    shape = (*support.shape[:2], support.states)
    closed = (allowed.sum(axis=2) == 1) & (counts.sum(axis=2) == 0)
    index = np.broadcast_to(np.arange(shape[2], dtype=np.int32), shape).copy()
    index[closed] = support.index()[closed][allowed[closed]][:, None]
    listed = ~closed[:, :, None] | (np.arange(shape[2]) == 0)
    wide = Support(index, listed, *shape) if closed.any() else Support.dense(*shape[:2])
    state, action, slot = np.nonzero(allowed & ~closed[:, :, None])
    place = state, action, support.index()[state, action, slot]
    spread = np.zeros(shape)
    spread[place] = counts[state, action, slot]
    cost = np.asarray(family.costs)
    if cost.ndim == 3:
        usual = np.where(allowed, cost, 0.0).sum(axis=2, keepdims=True) / allowed.sum(axis=2, keepdims=True)
        every = np.where(listed, usual, 0.0)
        every[place] = cost[state, action, slot]
        cost = every
    return TabularFamily(wide, cost, family.start, family.discount), wide, spread, wide.allowed()


def _times(objective: TabularObjective, table: np.ndarray, answer: Any) -> Float[np.ndarray, "2 S A"]:
    """Shares of discounted time, the mean over the belief and under the weights of the risk."""
    share = np.asarray(answer.draws.probabilities)
    shares = np.stack([share, share * np.asarray(answer.weights)])
    thetas = answer.draws.thetas
    visits = objective.mean_occupancies(table, thetas, shares)
    return visits / visits.sum(axis=(1, 2), keepdims=True)


def _cost_share(
    objective: TabularObjective, answer: Any, time: Float[np.ndarray, "S A"], thin: Bool[np.ndarray, "S A"]
) -> float:
    """Return the share of `sum time |cost - median cost|` that falls to thin pairs, at the mean model.

    Level and scale of the costs change nothing. A loss that is not linear in the occupancy has no costs: 0.
    """
    if objective.averages() is not None:
        return 0.0
    share = np.asarray(answer.draws.probabilities)
    cost = linear_cost(
        objective.loss, objective.family.at(np.tensordot(share / share.sum(), answer.draws.thetas, axes=1))
    )
    if cost is None:
        return 0.0
    median = np.quantile(cost, 0.5, weights=time, method="inverted_cdf")
    apart = time * np.abs(cost - median)
    return float(apart[thin].sum() / apart.sum()) if apart.sum() > ROUNDING * np.abs(cost).max(initial=0.0) else 0.0


def _thin_pairs_by_visits(
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
    objective: TabularObjective, ground: Ground, risk: Risk, table: np.ndarray, answer: Any, seed: Seed
) -> tuple[float, list[OtherPrior]] | None:
    """How likely the belief itself finds its stated risk exceeded, and the policy under each of the other priors.

    All of their draws are one batch; None if a loss is not finite.
    """
    if ground.family is not objective.family:
        method = None if objective.occupancy.horizon is None else objective.occupancy
        objective = type(objective)(ground.family, objective.loss, objective.parametrisation, method)
    beliefs = ground.beliefs
    draws = int(np.clip(BYTES // (8 * len(beliefs) * int(np.prod(ground.family.support.shape))), FEWEST_DRAWS, DRAWS))
    means = [np.asarray(belief.mean()) for belief in beliefs.values()]
    thetas = [belief.draw(generator(seed, Stream.OTHERS, k), draws) for k, belief in enumerate(beliefs.values())]
    every = np.concatenate([*thetas, np.stack(means)])
    losses = losses_on(objective, table[None], every)[0]
    if not np.all(np.isfinite(losses)):
        return None
    # One limit for all, so that losses which tie with the risk are above it nowhere.
    limit = answer.risk + ROUNDING * float(np.abs(np.concatenate([losses, answer.losses])).max())
    above = np.asarray(answer.losses) > limit
    # Divided by their sum: shares that add up to all but one rounding are not more than everything.
    own = float(np.asarray(answer.probabilities)[above].sum() / np.asarray(answer.probabilities).sum())
    others = []
    for k, (name, mean) in enumerate(zip(beliefs, means, strict=True)):
        these = losses[k * draws : (k + 1) * draws]
        others.append(
            OtherPrior(
                name,
                risk=float(risk(these, np.full(draws, 1.0 / draws)).value),
                exceeded=float((these > limit).mean()),
                gain=_gain(objective, mean, float(losses[len(beliefs) * draws + k])),
            )
        )
    return own, others


def _gain(objective: TabularObjective, mean: Float[np.ndarray, "S A B"], loss: float) -> float | None:
    """How much less the best policy for one table loses there; None where it cannot be planned for exactly."""
    family = objective.family
    if objective.occupancy.horizon is not None or family.support.states > LARGEST_DIRECT:
        return None
    if not is_linear(objective.loss):
        return None
    models = family.models(mean[None])
    plans = plan(models, as_convex(objective.loss).cost_tables(models))
    gain = loss - float(models.start @ plans.values[:, 0])
    return gain if gain > ROUNDING * abs(loss) else 0.0
