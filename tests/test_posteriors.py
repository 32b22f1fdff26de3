"""Conjugate posteriors: updates, moments, marginals and simulation-based calibration."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import prudent as pr
from prudent.seeds import child

# Successor lists of several lengths, not in order, with states that pad their lists.
RAGGED = pr.Support.lists([[[2, 0, 1], [1]], [[0, 1], [2, 1]], [[2], [0, 2]]])


def log_of(*records: tuple[int, int, int], count: list[float] | None = None) -> pr.Transitions:
    return pr.Transitions.from_records(records, states=3, actions=2, count=count)


RECORDS = [(0, 0, 1), (0, 0, 1), (0, 0, 2), (0, 1, 1), (1, 0, 0), (1, 1, 1), (2, 1, 2), (1, 1, 1), (0, 0, 0)]


def random_records(support: pr.Support, n: int) -> np.ndarray:
    rng = np.random.default_rng(3)
    state, action = rng.integers(support.states, size=n), rng.integers(support.actions, size=n)
    length = support.allowed().sum(axis=2)[state, action]
    return np.stack([state, action, support.index()[state, action, rng.integers(length)]], axis=1)


# ---------------------------------------------------------------- updates


def test_beta_updated_one_by_one_in_any_order_equals_one_batch_bit_for_bit():
    rng = np.random.default_rng(0)
    logs = [rng.integers(0, 50, size=(4, 2)) for _ in range(20)]
    prior = pr.Beta(rng.uniform(0.1, 3.0, size=(4, 2)), np.zeros((4, 2)))
    batch = prior.update(pr.Trials(sum(logs)))
    for order in (range(20), reversed(range(20)), rng.permutation(20)):
        belief = prior
        for i in order:
            belief = belief.update(pr.Trials(logs[i]))
        assert belief.counts.tobytes() == batch.counts.tobytes()
        assert belief.mean().tobytes() == batch.mean().tobytes()
        assert belief.sample(1, 5).tobytes() == batch.sample(1, 5).tobytes()


@pytest.mark.parametrize("support", [RAGGED, pr.Support.dense(3, 2)], ids=["ragged", "dense"])
def test_dirichlet_updated_one_by_one_in_any_order_equals_one_batch_bit_for_bit(support):
    rng = np.random.default_rng(1)
    records = random_records(support, 100)
    prior = pr.Dirichlet.symmetric(support, 0.3)
    batch = prior.update(log_of(*records))
    for order in (np.arange(100), np.arange(100)[::-1], rng.permutation(100)):
        belief = prior
        for part in np.array_split(records[order], 13):
            belief = belief.update(log_of(*part))
        assert belief.counts.tobytes() == batch.counts.tobytes()
        assert belief.mean().tobytes() == batch.mean().tobytes()
        assert belief.sample(1, 5).tobytes() == batch.sample(1, 5).tobytes()


def test_repeated_rows_and_counts_are_the_same_data():
    prior = pr.Dirichlet.symmetric(RAGGED)
    repeated = prior.update(log_of(*[(0, 0, 1)] * 3, (1, 1, 2)))
    counted = prior.update(log_of((0, 0, 1), (1, 1, 2), count=[3, 1]))
    assert np.array_equal(repeated.counts, counted.counts)
    assert len(log_of((0, 0, 1), (1, 1, 2), count=[3, 1])) == 4


def test_an_update_leaves_the_prior_as_it_was():
    beta, dirichlet = pr.Beta.uniform(1), pr.Dirichlet.symmetric(RAGGED)
    beta.update(pr.Trials([[1, 2]]))
    dirichlet.update(log_of((0, 0, 1)))
    assert not beta.counts.any() and not dirichlet.counts.any()


# ---------------------------------------------------------------- summaries by hand


def test_beta_mean_and_maximum_likelihood_by_hand():
    belief = pr.Beta([[2.0, 1.0], [0.5, 0.5]], np.zeros((2, 2))).update(pr.Trials([[3, 4], [0, 4]]))
    np.testing.assert_allclose(belief.mean(), [5 / 10, 0.5 / 5], rtol=1e-15)
    np.testing.assert_allclose(belief.maximum_likelihood(), [3 / 7, 0.0], rtol=1e-15)


def test_dirichlet_mean_and_maximum_likelihood_by_hand():
    belief = pr.Dirichlet.symmetric(RAGGED, 0.5).update(log_of(*RECORDS))
    mean = belief.mean()
    # State 0, action 0 lists 2, 0, 1 and has seen them 1, 1 and 2 times.
    np.testing.assert_allclose(mean[0, 0], np.array([1.5, 1.5, 2.5]) / 5.5, rtol=1e-15)
    np.testing.assert_allclose(mean[0, 1], [1.0, 0.0, 0.0], rtol=1e-15)
    np.testing.assert_allclose(mean[1, 0], [1.5 / 2, 0.5 / 2, 0.0], rtol=1e-15)
    np.testing.assert_allclose(mean[1, 1], [0.5 / 3, 2.5 / 3, 0.0], rtol=1e-15)
    np.testing.assert_allclose(mean[2, 0], [1.0, 0.0, 0.0], rtol=1e-15)
    likely = belief.maximum_likelihood(unseen=mean)
    np.testing.assert_allclose(likely[0, 0], [0.25, 0.25, 0.5], rtol=1e-15)
    np.testing.assert_allclose(likely[1, 1], [0.0, 1.0, 0.0], rtol=1e-15)
    np.testing.assert_allclose(likely[2, 0], mean[2, 0], rtol=1e-15)


def test_maximum_likelihood_is_refused_where_there_is_no_data():
    belief = pr.Dirichlet.symmetric(RAGGED).update(log_of(*RECORDS))
    with pytest.raises(pr.InputError, match=r"1 state-action pairs have no data.*state 2, action 0"):
        belief.maximum_likelihood()
    np.testing.assert_allclose(belief.update(log_of((2, 0, 2))).maximum_likelihood().sum(axis=2), 1.0, rtol=1e-15)


def test_a_transition_outside_the_support_is_refused_by_row_state_and_action():
    with pytest.raises(pr.InputError, match=r"row 1 .*state 1 by action 0 to state 2"):
        pr.Dirichlet.symmetric(RAGGED).update(log_of((0, 0, 0), (1, 0, 2), (2, 0, 0)))


def test_a_transition_to_a_successor_that_only_pads_the_list_is_refused():
    """Padding repeats the first successor; it must not make room for state 0, nor count twice."""
    with pytest.raises(pr.InputError, match=r"row 0 .*state 0 by action 1 to state 0"):
        pr.Dirichlet.symmetric(RAGGED).update(log_of((0, 1, 0)))
    assert pr.Dirichlet.symmetric(RAGGED).update(log_of((0, 1, 1))).counts[0, 1].tolist() == [1.0, 0.0, 0.0]


def test_the_same_data_give_the_same_mdp_on_a_ragged_and_a_dense_support():
    """A dense posterior with no prior weight off the lists is the same belief, in another layout."""
    ragged = pr.Dirichlet.symmetric(RAGGED, 1.0).update(log_of(*RECORDS))
    table = pr.Kernel(RAGGED, ragged.mean()).table()
    prior = pr.Kernel(RAGGED, RAGGED.allowed() / RAGGED.allowed().sum(axis=2, keepdims=True)).table()
    prior = (prior > 0).astype(float)
    dense = pr.Dirichlet(pr.Support.dense(3, 2), prior, np.zeros((3, 2, 3))).update(log_of(*RECORDS))
    np.testing.assert_allclose(dense.mean(), table, rtol=1e-14)


# ---------------------------------------------------------------- draws

BETA = pr.Beta([[1.0, 1.0], [0.4, 2.0]], [[3.0, 9.0], [0.0, 5.0]])
DIRICHLET = pr.Dirichlet.symmetric(RAGGED, 0.7).update(log_of(*RECORDS))
POINT = pr.Point([0.3, 0.02])
every_posterior = pytest.mark.parametrize(
    ("belief", "shape"), [(BETA, (2,)), (DIRICHLET, (3, 2, 3)), (POINT, (2,))], ids=["beta", "dirichlet", "point"]
)
random_posterior = pytest.mark.parametrize("belief", [BETA, DIRICHLET], ids=["beta", "dirichlet"])


@every_posterior
def test_draws_carry_the_batch_first_in_float64(belief, shape):
    drawn = belief.sample(0, 7)
    assert drawn.shape == (7, *shape)
    assert isinstance(drawn, np.ndarray) and drawn.dtype == np.float64


@random_posterior
def test_the_same_seed_gives_the_same_draws_and_another_seed_others(belief):
    again = belief.sample(5, 20)
    assert again.tobytes() == belief.sample(5, 20).tobytes()
    assert again.tobytes() == belief.sample(np.int64(5), 20).tobytes()
    varying = again.std(axis=0) > 0
    for other in (6, child(5, 0)):
        assert not np.any((again == belief.sample(other, 20))[:, varying])


def test_the_draws_within_a_sample_differ():
    assert len(np.unique(BETA.sample(0, 1000))) == 2000


def test_dirichlet_rows_sum_to_1_and_padding_is_exactly_0():
    drawn = DIRICHLET.sample(0, 1000)
    np.testing.assert_allclose(drawn.sum(axis=-1), 1.0, rtol=0, atol=1e-14)
    assert np.all(drawn[:, ~RAGGED.allowed()] == 0.0)
    assert np.all(drawn[:, RAGGED.allowed()] > 0.0)


def test_dirichlet_rows_stay_proper_for_very_small_weights():
    drawn = pr.Dirichlet.symmetric(RAGGED, 1e-4).sample(0, 1000)
    assert np.all(np.isfinite(drawn))
    np.testing.assert_allclose(drawn.sum(axis=-1), 1.0, rtol=0, atol=1e-14)
    assert np.all(drawn[:, ~RAGGED.allowed()] == 0.0)


def uneven() -> pr.Support:
    """Two pairs that may lead to any of 60 states, and 118 that lead to two."""
    lists = [[[s, (s + a + 1) % 60] for a in range(2)] for s in range(60)]
    lists[0][0] = lists[7][1] = list(range(60))
    return pr.Support.lists(lists)


def in_memory() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have no /proc")
def test_draws_of_uneven_rows_take_memory_for_what_is_allowed_and_not_for_padding():
    support = uneven()
    belief = pr.Dirichlet.symmetric(support, 1.0)
    belief.sample(0, 200)
    before = in_memory()
    drawn = belief.sample(0, 4000)
    assert np.isfinite(drawn[:, 0, 0].sum()) and drawn[::50].copy().shape == (80, 60, 2, 60)  # reading takes none
    taken, allowed = in_memory() - before, 8 * 4000 * int(support.allowed().sum())
    assert allowed < taken < 3 * allowed < drawn.nbytes / 4


def test_many_draws_of_uneven_rows_are_those_of_few():
    support = uneven()
    allowed, log = support.allowed(), pr.Transitions.from_records([(0, 0, 5), (3, 1, 3)], states=60, actions=2)
    beliefs = (pr.Dirichlet.symmetric(support, 1.0), pr.Dirichlet.symmetric(support, 1e-3), pr.Pooled(support))
    for belief in beliefs:
        drawn = belief.update(log).sample(0, 300)
        np.testing.assert_allclose(drawn.sum(axis=-1), 1.0, rtol=0, atol=1e-12)
        assert np.all(drawn[:, ~allowed] == 0.0)
    few, many = (beliefs[0].sample(0, n) for n in (50, 300))
    assert np.array_equal(few, many[:50])
    uniforms = np.random.default_rng(0).random((300, beliefs[0].uniform_dimension))
    assert np.array_equal(beliefs[0].from_uniform(uniforms)[250:], beliefs[0].from_uniform(uniforms[250:]))
    costs = pr.WithCosts(beliefs[0], np.ones((60, 2)), np.full((60, 2), 0.5), [5.0])
    with_costs = costs.sample(0, 300)
    assert np.array_equal(with_costs[..., :60], many) and np.all(with_costs[..., 60].std(axis=0) > 0.1)


def test_a_point_repeats_itself():
    assert np.array_equal(POINT.sample(0, 3), np.tile([0.3, 0.02], (3, 1)))


def marginals(belief: pr.Beta | pr.Dirichlet) -> list[tuple[np.ndarray, float, float]]:
    """Draws of each coordinate that is not fixed, with the parameters of its Beta marginal."""
    drawn = belief.sample(11, 20_000)
    weight = belief.prior + belief.counts
    if isinstance(belief, pr.Beta):
        return [(drawn[:, d], *weight[d]) for d in range(len(weight))]
    total = weight.sum(axis=-1, keepdims=True)
    free = np.argwhere((weight > 0) & (weight < total))
    return [(drawn[:, *where], weight[*where], (total - weight)[*where]) for where in free]


@random_posterior
def test_marginals_are_the_beta_distributions_of_the_textbook(belief):
    parts = marginals(belief)
    assert len(parts) == (2 if belief is BETA else 9)
    for drawn, success, failure in parts:
        assert stats.kstest(drawn, stats.beta(success, failure).cdf).pvalue > 1e-3
        assert stats.kstest(drawn, stats.beta(success + 0.3, failure).cdf).pvalue < 1e-3


@random_posterior
def test_moments_of_the_draws_are_those_of_the_textbook(belief):
    for drawn, success, failure in marginals(belief):
        mean, variance, _, excess = stats.beta.stats(success, failure, moments="mvsk")
        assert abs(drawn.mean() - mean) < 4.0 * np.sqrt(variance / len(drawn))
        assert abs(drawn.var() - variance) < 4.0 * variance * np.sqrt((excess + 2.0) / len(drawn))
    np.testing.assert_allclose(belief.sample(11, 20_000).mean(axis=0), belief.mean(), rtol=0, atol=0.01)


def test_dirichlet_rows_are_independent_and_entries_of_a_row_are_not():
    drawn = DIRICHLET.sample(2, 20_000)
    weight = (DIRICHLET.prior + DIRICHLET.counts)[0, 0]
    expected = -np.sqrt(weight[0] * weight[1] / ((weight.sum() - weight[0]) * (weight.sum() - weight[1])))
    assert np.corrcoef(drawn[:, 0, 0, 0], drawn[:, 0, 0, 1])[0, 1] == pytest.approx(expected, abs=0.03)
    assert abs(np.corrcoef(drawn[:, 0, 0, 0], drawn[:, 1, 1, 0])[0, 1]) < 0.03


# ---------------------------------------------------------------- simulation-based calibration
#
# theta* from the prior, data from theta*, L draws from the posterior: if all three belong together, the rank of
# theta* among the draws is uniform on 0..L. The replications are the independent coordinates (rows) of one
# posterior, so that the library's own update and draw run once for all of them.

REPLICATIONS, RANKS = 10_000, 99


def uniformity(ranks: np.ndarray) -> float:
    """The p-value of uniform ranks, 20 bins."""
    assert ranks.shape == (REPLICATIONS,)
    return stats.chisquare(np.bincount(ranks // 5, minlength=20)).pvalue


def beta_ranks(assumed: tuple[float, float], true: tuple[float, float] = (1.0, 1.0)) -> np.ndarray:
    def prior(weights: tuple[float, float]) -> pr.Beta:
        return pr.Beta(np.tile(weights, (REPLICATIONS, 1)), np.zeros((REPLICATIONS, 2)))

    truth = prior(true).sample(0, 1)[0]
    success = np.random.default_rng(1).binomial(10, truth)
    belief = prior(assumed).update(pr.Trials(np.stack([success, 10 - success], axis=1)))
    return (belief.sample(2, RANKS) < truth).sum(axis=0)


@pytest.mark.parametrize("prior", [(1.0, 1.0), (4.0, 1.0)])
def test_the_beta_posterior_is_calibrated(prior):
    assert uniformity(beta_ranks(assumed=prior, true=prior)) > 1e-3


def test_calibration_notices_a_wrong_beta_prior():
    assert uniformity(beta_ranks(assumed=(4.0, 1.0))) < 1e-6


ROWS = 100
# One hundred states, one hundred actions, two to four successors each.
WIDE = pr.Support.lists(
    [[[(s + a + b) % ROWS for b in range(2 + (s + a) % 3)] for a in range(ROWS)] for s in range(ROWS)]
)


def dirichlet_ranks(assumed: float, true: float = 1.0) -> list[np.ndarray]:
    truth = pr.Dirichlet.symmetric(WIDE, true).sample(0, 1)[0]
    seen = np.random.default_rng(1).multinomial(6, truth)
    s, a, b = np.nonzero(seen)
    log = pr.Transitions.from_records(
        np.stack([s, a, WIDE.index()[s, a, b]], axis=1), states=ROWS, actions=ROWS, count=seen[s, a, b]
    )
    drawn = pr.Dirichlet.symmetric(WIDE, assumed).update(log).sample(2, RANKS)
    # Two functions of a row: its first entry, and one that all its entries have a part in.
    return [(drawn @ part < truth @ part).sum(axis=0).ravel() for part in np.array([[1, 0, 0, 0], [0, 1, 4, 9.0]])]


@pytest.mark.parametrize("weight", [1.0, 0.5])
def test_the_dirichlet_posterior_is_calibrated(weight):
    for ranks in dirichlet_ranks(assumed=weight, true=weight):
        assert uniformity(ranks) > 1e-3


def test_calibration_notices_a_wrong_dirichlet_prior():
    for ranks in dirichlet_ranks(assumed=4.0):
        assert uniformity(ranks) < 1e-6


@pytest.mark.parametrize("weight", [1e-4, 1e-3, 1e-2, 0.1])
def test_dirichlet_draws_of_tiny_weight_sit_at_the_corners(weight):
    """Var = m (1 - m) / (total + 1) with m = 1/2 and total = 2 weight; underflow would pull rows to the middle."""
    belief = pr.Dirichlet.symmetric(pr.Support.dense(2, 1), weight)
    draws = belief.sample(3, 20_000)[:, 0, 0, 0]
    assert np.var(draws) == pytest.approx(0.25 / (2 * weight + 1), rel=0.03)
    assert draws.mean() == pytest.approx(0.5, abs=0.015)


def test_a_box_around_a_belief_that_is_drawn_by_rejection_is_solved_for():
    """The default solver drives beliefs by Sobol points where it can, and this one it cannot."""
    support = pr.Support.dense(2, 2)
    family = pr.TabularFamily(support, [[0.0, 1.0], [1.0, 0.5]], 0, 0.9)
    belief = pr.WithinBox(pr.Dirichlet.symmetric(support), 0.0, 0.9)
    solution = pr.solve(family, belief, solver=pr.SampleAverage(samples=32, largest=32), certify=False)
    assert np.isfinite(solution.risk)
    with pytest.raises(pr.InputError, match="Sobol points cannot drive"):
        pr.Sobol(belief)
