"""Whether the worth of data foretells what data turn out to be worth: rankings over many data sets."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import numpy as np
from scipy import stats

from ..advice import worth_of_data
from ..advice.worth import NESTED, Question
from ..arrays import as_key, generator, in_float64
from ..risks import CVaR, Risk
from ..transitions import Trials


class RankingRow(eqx.Module):
    """One data set.

    Attributes:
        foretold: `[D]` worth of more trials of each coordinate, by `worth_of_data`.
        found: `[D]` mean fall of the optimal risk when trials at the truth are added, less the shift of the present
            policy's mean loss.
        correlation: Spearman's, of the two.
    """

    foretold: np.ndarray
    found: np.ndarray
    correlation: float


@in_float64
def worth_rankings(
    model: Any,
    truth: Any,
    *,
    data_sets: int = 50,
    n: int = 10,
    observations: int = 20,
    additions: int = 16,
    risk: Risk | None = None,
    seed: int | jax.Array = 0,
) -> list[RankingRow]:
    """Foretold and found worth of each coordinate, for data sets of `n` trials at the truth.

    Args:
        model: a family with `prior` and `trials`, such as machine replacement or the lake.
        truth: theta that data come from.
        data_sets: how many.
        n: trials of each coordinate in a data set.
        observations: trials that are added to one coordinate.
        additions: how often they are, for the mean.
        risk: `CVaR(0.5)` when left out.
        seed: of data and draws.
    """
    key, truth = as_key(seed), np.asarray(truth, dtype=float)
    risk = CVaR(0.5) if risk is None else risk
    rows = []
    for i in range(data_sets):
        own = jax.random.fold_in(key, i)
        belief = model.prior.update(model.trials(n, truth, own))
        worth = worth_of_data(model, belief, observations=observations, replications=additions, risk=risk, seed=own)
        foretold = np.array([{row.place: row.worth for row in worth.rows}[(d,)] for d in range(len(truth))])
        random = generator(own, 1)
        question = Question(model, belief, risk, None, None, None, NESTED, own)
        beliefs = []
        for d in range(len(truth)):
            for _ in range(additions):
                counts = np.zeros((len(truth), 2))
                hits = random.binomial(observations, truth[d])
                counts[d] = hits, observations - hits
                beliefs.append(belief.update(Trials(counts)))
        found = question.falls(beliefs).reshape(len(truth), additions).mean(axis=1)
        rows.append(RankingRow(foretold, found, _spearman(foretold, found)))
    return rows


def _spearman(first: np.ndarray, second: np.ndarray) -> float:
    """The correlation of the ranks."""
    return float(np.corrcoef(stats.rankdata(first), stats.rankdata(second))[0, 1])
