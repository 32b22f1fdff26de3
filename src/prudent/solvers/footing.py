"""What an answer stands on: how much of it rests on pairs with few rows, and on the prior.

A stated risk is a promise about the true loss. It is kept as far as the belief is right, and where there are few rows
the belief is mostly prior. So the same policy is judged under three priors for the same counts, and the chance that the
loss is above the stated risk is that of somebody who gives each of them a third:

    exceeded = mean_j P_j(C(pi, theta) > stated risk).

An answer whose tail is spent mostly in pairs with few rows is thin, too, whatever these priors agree on.
"""

from __future__ import annotations

import dataclasses
import enum

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float

from ..arrays import Stream, as_key, in_float64, key_words, stream
from ..gradients import Problem, losses_on
from ..losses import ExpectedCost
from ..models import TabularFamily
from ..occupancies import Exact
from ..planning.exact import LARGEST_DIRECT
from ..planning.many import followed, plan_many
from ..policies import Softmax
from ..posteriors import Dirichlet, Pooled, Posterior
from ..risks import Risk
from .draws import fresh_draws
from .drivers import mean_occupancies
from .grounds import Ground, ground_of
from .judging import Judgement, judgement
from .starts import linear_cost

# Rows below which a pair is thin.
FEW = 5

# Share of discounted time, plain or in the tail, from which the policy leans on a pair.
LEANS = 1e-3

# The rule: from these values of `exceeded` on, an answer is thin or unsupported; from this `tail_time` on, it is thin.
THIN_FROM, UNSUPPORTED_FROM, THIN_TIME_FROM = 0.2, 0.4, 0.5

# Up to this many states NumPy evaluates policies at once, and nothing is compiled for it.
LARGEST_PLAIN = 128

# Draws of each other belief, fewer where their tables would take more than these bytes.
DRAWS, FEWEST_DRAWS, BYTES = 256, 32, 2**27

# Draws on which a plan is judged before anything is solved.
MEAN_PLAN_DRAWS = 1000

# Gains below this share of the loss are rounding.
ROUNDING = 1e-9


class Soundness(enum.Enum):
    """What an answer stands on, in a word; the value says what it means.

    >>> import prudent as pr
    >>> pr.Soundness.SOUND.warns, pr.Soundness.THIN.warns
    (False, True)
    """

    SOUND = (
        "averaged over other priors for the same rows, the chance of a loss above the stated risk is below 20 %, and "
        "less than half of the tail's time passes through pairs with few rows"
    )
    THIN = (
        "averaged over other priors for the same rows, the chance of a loss above the stated risk is 20 % or more, or "
        "half of the tail's time passes through pairs with few rows"
    )
    UNSUPPORTED = (
        "averaged over other priors for the same rows, the chance of a loss above the stated risk is 40 % or more"
    )

    @property
    def warns(self) -> bool:
        """Whether the stated risk is to be taken with caution."""
        return self is not Soundness.SOUND


class ThinPair(eqx.Module):
    """A pair with few rows that the policy leans on.

    >>> import prudent as pr
    >>> pr.ThinPair((0, 1), rows=1.0, time=0.2, tail_time=0.4).rows
    1.0

    Attributes:
        pair: state and action.
        rows: how often the log has it; for tied pairs, all of them together.
        time: share of discounted time that the policy spends there, the mean over the belief.
        tail_time: the same under the weights xi* of the risk.
    """

    pair: tuple[int, int] = eqx.field(static=True)
    rows: float
    time: float
    tail_time: float


class OtherPrior(eqx.Module):
    """The policy under another prior for the same rows; where the belief is a `Pooled` one, under it, too.

    >>> import prudent as pr
    >>> pr.OtherPrior("seen successors only", risk=12.0, exceeded=0.25, gain=None).exceeded
    0.25

    Attributes:
        name: the prior, in words.
        risk: of the policy there.
        exceeded: share of its draws in which the loss is above the risk that was stated.
        gain: how much less the best policy for its mean table loses there; None where no planner finds that.
    """

    name: str = eqx.field(static=True)
    risk: float
    exceeded: float
    gain: float | None


class Footing(eqx.Module):
    """What an answer stands on.

    >>> import prudent as pr
    >>> records = [(0, 0, 0)] * 500 + [(0, 1, 0)] + [(1, 0, 1), (1, 1, 1)] * 500  # the shortcut, action 1, once
    >>> log = pr.Transitions.from_records(records, states=2, actions=2)
    >>> support = pr.Support.lists([[[0], [0]], [[1], [1]]], observed=True)
    >>> plant = pr.TabularFamily(support, cost=[[1.0, 0.0], [50.0, 50.0]], start=0, discount=0.9)
    >>> belief = pr.Dirichlet.symmetric(support).update(log)
    >>> footing = pr.evaluate([[0.0, 1.0], [0.0, 1.0]], plant, belief).footing
    >>> footing.word.name, footing.pairs[0].pair, footing.pairs[0].rows
    ('UNSUPPORTED', (0, 1), 1.0)

    Attributes:
        word: sound, thin or unsupported; None where it cannot be said.
        reason: why it cannot be said; empty where it can.
        few: a pair with fewer rows than this is thin.
        time: share of its discounted time that the policy spends in thin pairs, the mean over the belief.
        tail_time: the same under the weights xi* of the risk: how much of its tail passes through them.
        pairs: the thin pairs that it leans on, those with the most time for each row first.
        others: the policy under other priors.
        exceeded: the mean of their chances that the loss is above the stated risk; NaN without any.
    """

    word: Soundness | None = eqx.field(static=True)
    reason: str = eqx.field(static=True)
    few: int = eqx.field(static=True)
    time: float
    tail_time: float
    pairs: tuple[ThinPair, ...]
    others: tuple[OtherPrior, ...]
    exceeded: float

    @staticmethod
    def unknown(reason: str) -> Footing:
        """Nothing can be said, and why."""
        return Footing(None, reason, FEW, float("nan"), float("nan"), (), (), float("nan"))

    def rows(self) -> list[tuple[str, str]]:
        """Lines of a summary, as (label, text); none where nothing can be said."""
        if self.word is None:
            return []
        return [("footing", f"{self.word.name.lower()}: {self.word.value}"), ("leans on", self.leaning())]

    def leaning(self) -> str:
        """How much of the answer passes through thin pairs."""
        return (
            f"pairs with fewer than {self.few} rows for {self.time:.1%} of its discounted time, "
            f"{self.tail_time:.1%} in the tail"
        )


def word_for(exceeded: float, tail_time: float) -> Soundness:
    """The rule: by how likely one who is undecided between priors finds the stated risk exceeded, and by the tail."""
    if exceeded >= UNSUPPORTED_FROM:
        return Soundness.UNSUPPORTED
    return Soundness.THIN if exceeded >= THIN_FROM or tail_time >= THIN_TIME_FROM else Soundness.SOUND


def footing_of(
    problem: Problem,
    belief: Posterior,
    risk: Risk,
    table: Float[np.ndarray, "S A"],
    judged: Judgement,
    words: tuple[int, ...],
) -> Footing:
    """What a policy's stated risk stands on.

    Args:
        problem: what was minimised; its risk is not used.
        belief: under which the risk was stated.
        risk: that was stated.
        table: the policy's probabilities.
        judged: the policy on fresh draws of the belief.
        words: of the random key.
    """
    ground = ground_of(problem.family, belief)
    if isinstance(ground, str):
        return Footing.unknown(ground)
    time, tail = _times(problem, table, judged)
    thin = ground.open & (ground.rows < FEW)
    others = _others(problem, ground, risk, table, judged, words)
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


@in_float64
def footing_of_mean_plan(model: TabularFamily, belief: Dirichlet | Pooled, risk: Risk, seed: int) -> Footing:
    """What the plan for the posterior mean would stand on, for expected costs: by NumPy, and before any solve."""
    words = key_words(as_key(seed))
    mean = np.asarray(belief.mean())
    chosen = plan_many(model.support, mean[None], costs_at(model, mean[None]), float(model.discount)).action[0]
    table = np.eye(model.support.actions)[chosen]
    draws = fresh_draws(belief, words, MEAN_PLAN_DRAWS)
    problem = Problem(model, ExpectedCost(), None, Softmax(), Exact().resolve(model.support))
    judged = judgement(risk, _plainly(problem, table, draws.thetas)[0], draws)
    return footing_of(problem, belief, risk, table, judged, words)


def costs_at(family: TabularFamily, thetas: Float[np.ndarray, "M S A B"]) -> Float[np.ndarray, "M S A"]:
    """The expected costs of pairs in each model."""
    cost = np.asarray(family.costs)
    return np.broadcast_to(cost, thetas.shape[:3]) if cost.ndim == 2 else (cost * thetas).sum(axis=3)


def _is_plain(problem: Problem) -> bool:
    """Whether NumPy evaluates policies fast enough, so that nothing is compiled."""
    plain = isinstance(problem.loss, ExpectedCost) and isinstance(problem.family, TabularFamily)
    return plain and isinstance(problem.occupancy, Exact) and problem.family.support.states <= LARGEST_PLAIN


def _plainly(
    problem: Problem, table: np.ndarray, thetas: Float[np.ndarray, "M S A B"]
) -> tuple[Float[np.ndarray, " M"], Float[np.ndarray, "M S A"]]:
    """Losses and occupancies of one policy by NumPy."""
    family = problem.family
    assert isinstance(family, TabularFamily)
    start, discount = np.asarray(family.start), float(family.discount)
    return followed(family.support, thetas, costs_at(family, thetas), start, discount, table)


def _times(problem: Problem, table: np.ndarray, judged: Judgement) -> Float[np.ndarray, "2 S A"]:
    """Shares of discounted time, the mean over the belief and under the weights of the risk."""
    share = np.asarray(judged.draws.probabilities)
    shares = np.stack([share, share * np.asarray(judged.weights)])
    thetas = judged.draws.thetas
    if _is_plain(problem):
        visits = np.tensordot(shares, _plainly(problem, table, thetas)[1], axes=1)
    else:
        visits = mean_occupancies(problem, table, thetas, shares)
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
    problem: Problem, ground: Ground, risk: Risk, table: np.ndarray, judged: Judgement, words: tuple
) -> list[OtherPrior]:
    """The policy under each of the other priors, all of their draws in one batch."""
    if ground.family is not problem.family:
        method = Exact().resolve(ground.support) if isinstance(problem.occupancy, Exact) else problem.occupancy
        problem = dataclasses.replace(problem, family=ground.family, occupancy=method)
    beliefs = ground.beliefs()
    draws = int(np.clip(BYTES // (8 * len(beliefs) * ground.counts.size), FEWEST_DRAWS, DRAWS))
    means = [np.asarray(belief.mean()) for belief in beliefs.values()]
    thetas = [belief.draw(stream(words, Stream.OTHERS, k), draws) for k, belief in enumerate(beliefs.values())]
    every = np.concatenate([*thetas, np.stack(means)])
    losses = (
        _plainly(problem, table, every)[0] if _is_plain(problem) else losses_on(problem, table[None], every[None])[0]
    )
    scale = ROUNDING * float(np.abs(np.concatenate([losses, judged.losses])).max())
    others = []
    for k, (name, mean) in enumerate(zip(beliefs, means, strict=True)):
        these = losses[k * draws : (k + 1) * draws]
        others.append(
            OtherPrior(
                name,
                risk=float(risk(these, np.full(draws, 1.0 / draws)).value),
                exceeded=float((these > judged.risk + scale).mean()),
                gain=_gain(problem, mean, float(losses[len(beliefs) * draws + k])),
            )
        )
    return others


def _gain(problem: Problem, mean: Float[np.ndarray, "S A B"], loss: float) -> float | None:
    """How much less the best policy for one table loses there; None where it cannot be planned for exactly."""
    family = problem.family
    if not isinstance(problem.occupancy, Exact) or family.support.states > LARGEST_DIRECT:
        return None
    mdp = family.at(mean)
    cost = linear_cost(problem.loss, mdp)
    if cost is None:
        return None
    plans = plan_many(family.support, mean[None], np.asarray(cost)[None], float(family.discount))
    gain = loss - float(plans.values[0] @ np.asarray(family.start))
    return gain if gain > ROUNDING * abs(loss) else 0.0
