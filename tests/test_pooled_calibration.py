"""What is stated under pooled rows, where the truth is drawn from their own prior."""

import sys

import numpy as np
import pytest
from scipy.stats import chisquare

import prudent as pr
from prudent.posteriors import learning

STATES, ACTIONS, DISCOUNT, DRAWS = 8, 2, 0.9, 199
SUPPORT = pr.Support.dense(STATES, ACTIONS)
PRIOR = pr.Pooled(SUPPORT)
COST = np.random.default_rng(8).random((STATES, ACTIONS)) + np.arange(STATES)[:, None]


def losses(tables: np.ndarray, policy: np.ndarray) -> np.ndarray:
    chain = np.einsum("sa,nsat->nst", policy, tables)
    paid = np.broadcast_to((policy * COST).sum(axis=1)[:, None], (len(tables), STATES, 1))
    return np.linalg.solve(np.eye(STATES) - DISCOUNT * chain, paid)[:, 0, 0]


def log_of(table: np.ndarray, steps: int, random: np.random.Generator) -> pr.Transitions:
    """A walk of random actions, begun again at a random state every ten steps."""
    state, rows = 0, []
    for step in range(steps):
        state = int(random.integers(STATES)) if step % 10 == 0 else state
        action = int(random.integers(ACTIONS))
        following = int(random.choice(STATES, p=table[state, action]))
        rows.append((state, action, following))
        state = following
    return pr.Transitions.from_records(rows, states=STATES, actions=ACTIONS)


def replication(seed: int) -> tuple[int, bool, bool]:
    """Of the plan at the posterior mean: the truth's rank among draws, whether CVaR 0.9 and the 90 % quantile hold."""
    random = np.random.default_rng([9, seed])
    truth = PRIOR.sample(seed, 1)[0]
    belief = PRIOR.update(log_of(truth, (30, 100, 300)[seed % 3], random))
    mean = np.asarray(belief.mean())
    policy = np.asarray(pr.plan(pr.MDP(pr.Kernel.dense(mean), COST, 0, DISCOUNT)).policy.probabilities)
    drawn = np.sort(losses(belief.sample(seed + 1, DRAWS), policy))
    true = losses(truth[None], policy)[0]
    tail = drawn[-20:]
    return int((drawn < true).sum()), bool(true <= tail.mean()), bool(true <= drawn[179])


def shares(replications: int) -> tuple[np.ndarray, float, float]:
    ranks, by_risk, by_quantile = zip(*(replication(seed) for seed in range(replications)), strict=True)
    # Ranks are 0 to 199: ten bins of twenty.
    return np.bincount(np.array(ranks) // 20, minlength=10), float(np.mean(by_risk)), float(np.mean(by_quantile))


def test_the_stated_risk_holds_where_the_truth_is_drawn_from_the_prior():
    _, by_risk, _ = shares(40)
    # 0.95 less three standard errors of forty.
    assert by_risk >= 0.85


@pytest.mark.long
def test_the_stated_risk_holds_at_its_rate_in_a_thousand_replications():
    ranks, by_risk, by_quantile = shares(1000)
    # A mean beyond the 90 % quantile holds at least as often as the quantile should.
    assert by_risk >= 0.9 + 3.0 * np.sqrt(0.09 / 1000)
    # The quantile holds somewhat more often than it says, since laws count for less than they say; the manual has why.
    assert 0.9 - 3.0 * np.sqrt(0.09 / 1000) <= by_quantile <= 0.96
    assert ranks.max() <= 140 and ranks.min() >= 60


if __name__ == "__main__":
    if sys.argv[1:] == ["whole"]:
        # The laws as if pairs were the same: every observation counts whole.
        learning.FOR_ONE, learning.MOST = 1.0, np.inf
    counts, by_risk, by_quantile = shares(1000)
    print(f"ranks in tenths {counts.tolist()}, chi-square p value {chisquare(counts).pvalue:.1g}")
    print(f"CVaR 0.9 held in {by_risk:.1%}, the 90 % quantile in {by_quantile:.1%}")
