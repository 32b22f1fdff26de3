"""Whether the worth of data foretells what data turn out to be worth: rankings over many data sets."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

from prudent import CVaR, Risk, loss_at
from prudent.advice import WorthQuestion, outcome_beliefs, outcome_chances
from prudent.arrays import in_float64
from prudent.records import Record
from prudent.seeds import Seed, Stream, as_seed, child, generator

# Worths are compared to this many digits behind the point.
DIGITS = 4

# What a foretold worth is held against.
MEASURES = {
    "found": "fall of the optimal risk when the trials are added, less the shift of the present policy's mean loss",
    "plain": "the same with that shift left in",
    "gained": "fall of the policy's loss under the truth",
}


class RankingRow(Record):
    """One data set, and what trials of each coordinate are worth to it.

    Attributes:
        truth: `[D]` theta that the data came from.
        foretold: `[D]` expected fall of the optimal risk, as `worth_of_data` tells it.
        found, plain, gained: `[D]` the `MEASURES`, in expectation over what the trials show at the truth.
    """

    truth: np.ndarray
    foretold: np.ndarray
    found: np.ndarray
    plain: np.ndarray
    gained: np.ndarray


class Agreement(Record):
    """How well the foretold worths rank the coordinates.

    Attributes:
        correlation, standard_error: mean of Spearman's over the data sets.
        data_sets: that have more than one rank, and so a correlation.
        pooled: Spearman's of all worths of all data sets.
        same_first: share of those data sets in which no coordinate is worth more than the one foretold to be.
    """

    correlation: float
    standard_error: float
    data_sets: int
    pooled: float
    same_first: float


class Rankings(Record):
    """One row for each data set."""

    rows: tuple[RankingRow, ...]

    def column(self, what: str) -> np.ndarray:
        """`[data sets, D]` of "foretold" or one of the `MEASURES`."""
        return np.stack([getattr(row, what) for row in self.rows])

    def means(self) -> list[np.ndarray]:
        """`[D]` means over the data sets: foretold, then each of the `MEASURES`."""
        return [self.column(what).mean(axis=0) for what in ("foretold", *MEASURES)]

    def agreements(self) -> dict[str, Agreement]:
        """Each of the `MEASURES` held against what was foretold."""
        return {what: agreement(self.column("foretold"), self.column(what)) for what in MEASURES}


@in_float64
def worth_rankings(
    model: Any,
    truth: Any = None,
    *,
    data_sets: int = 50,
    n: int = 10,
    observations: int = 20,
    risk: Risk | None = None,
    seed: Seed = 0,
) -> Rankings:
    """Foretold and found worth of each coordinate, for data sets of `n` trials at the truth.

    Every count that the added trials can show is gone through, with its chance under the belief (foretold) and under
    the truth (found), so that there is no chance but that of the data set.

    Args:
        model: a family with `prior` and `trials`, such as machine replacement or the lake.
        truth: theta that data come from; one drawn from the prior for each data set when left out.
        data_sets: how many.
        n: trials of each coordinate in a data set.
        observations: trials that are added to one coordinate.
        risk: `CVaR(0.5)` when left out.
        seed: of truths, data and draws.
    """
    seed = as_seed(seed)
    risk = CVaR(0.5) if risk is None else risk
    rows = (_ranking(model, truth, n, observations, risk, child(seed, i)) for i in range(data_sets))
    return Rankings(tuple(rows))


def _ranking(model: Any, truth: Any, n: int, observations: int, risk: Risk, seed: Seed) -> RankingRow:
    truth = model.prior.draw(generator(seed, Stream.WORLD), 1)[0] if truth is None else np.asarray(truth, dtype=float)
    belief = model.prior.update(model.trials(n, truth, seed))
    question = WorthQuestion(model, belief, risk, seed)
    places = [(d,) for d in range(len(truth))]
    answers = question.answers(outcome_beliefs(belief, places, observations))
    policies = [np.asarray(question.base.policy.probabilities), *(answer.policy for answer in answers)]
    losses = np.asarray(loss_at(policies, model, truth))
    before = np.array([question.risk_now, question.risk_now - question.mean_now, losses[0]])
    after = np.array([[a.risk, a.risk - a.mean, loss] for a, loss in zip(answers, losses[1:], strict=True)])
    plain, net, gained = np.moveaxis((before - after).reshape(len(truth), observations + 1, 3), 2, 0)
    believed = np.stack([outcome_chances(belief, place, observations) for place in places])
    true = np.stack([stats.binom.pmf(np.arange(observations + 1), observations, probability) for probability in truth])
    return RankingRow(
        truth=truth,
        foretold=(believed * net).sum(axis=1),
        found=(true * net).sum(axis=1),
        plain=(true * plain).sum(axis=1),
        gained=(true * gained).sum(axis=1),
    )


def agreement(foretold: np.ndarray, seen: np.ndarray) -> Agreement:
    """Of two `[data sets, D]` tables of worths; what is below the error of a solve ties."""
    foretold, seen = np.round(foretold, DIGITS), np.round(seen, DIGITS)
    each = np.array([spearman(*pair) for pair in zip(foretold, seen, strict=True)])
    ranked = ~np.isnan(each)
    each, count = each[ranked], int(ranked.sum())
    chosen = np.take_along_axis(seen, foretold.argmax(axis=1)[:, None], axis=1)[:, 0]
    first = (chosen == seen.max(axis=1))[ranked]
    return Agreement(
        correlation=float(each.mean()) if count else float("nan"),
        standard_error=float(each.std(ddof=1) / np.sqrt(count)) if count > 1 else float("nan"),
        data_sets=count,
        pooled=spearman(foretold.ravel(), seen.ravel()),
        same_first=float(first.mean()) if count else float("nan"),
    )


def spearman(first: np.ndarray, second: np.ndarray) -> float:
    """The correlation of the ranks; NaN if one of them has a single rank."""
    ranks = np.stack([stats.rankdata(first), stats.rankdata(second)])
    return float(np.corrcoef(ranks)[0, 1]) if np.all(np.ptp(ranks, axis=1) > 0) else float("nan")
