"""Draws from elsewhere, tied Dirichlet rows, Sobol points and boxes."""

import numpy as np
import pytest
from scipy import integrate, stats

import prudent as pr
from prudent.posteriors import draw_sets

LAKE = pr.envs.frozen_lake("SFF\nFHF\nFFG")
BETA = pr.Beta([[1.0, 1.0], [0.4, 2.0]], [[3.0, 9.0], [0.0, 5.0]])
RAGGED = pr.Support.lists([[[2, 0, 1], [1]], [[0, 1], [2, 1]], [[2], [0, 2]]])
# The pairs with two successors are alike, the others are each their own.
TIES = np.array([[0, 1], [7, 7], [3, 7]])
RECORDS = [(0, 0, 1), (0, 0, 2), (0, 1, 1), (1, 0, 0), (1, 1, 2), (2, 1, 2), (1, 1, 1), (1, 0, 0)]
LOG = pr.Transitions.from_records(RECORDS, states=3, actions=2)
DIRICHLET = pr.Dirichlet.symmetric(RAGGED, 0.7).update(LOG)
TIED = pr.Dirichlet.symmetric(RAGGED, 0.7, tied=TIES).update(LOG)


class Given(pr.Posterior):
    thetas: np.ndarray

    def draw(self, generator, n):
        return self.thetas[:n]


# ---------------------------------------------------------------- draws from elsewhere


def test_draws_are_resampled_by_their_weights():
    thetas = np.arange(12.0).reshape(4, 3)
    belief = pr.Draws(thetas, weights=[1, 0, 5, 2])
    drawn = belief.sample(0, 20_000)
    seen = np.array([np.all(drawn == theta, axis=1).mean() for theta in thetas])
    np.testing.assert_allclose(seen, [1 / 8, 0, 5 / 8, 2 / 8], rtol=0, atol=0.015)
    np.testing.assert_allclose(belief.mean(), [1, 0, 5, 2] @ thetas / 8, rtol=1e-15)


def test_draws_without_weights_count_alike_and_may_be_numbers_or_tables():
    drawn = pr.Draws([1.0, 2.0]).sample(0, 10_000)
    assert drawn.shape == (10_000,) and drawn.mean() == pytest.approx(1.5, abs=0.02)
    assert pr.Draws(DIRICHLET.sample(0, 5)).sample(1, 7).shape == (7, 3, 2, 3)


# ---------------------------------------------------------------- tied rows


def test_tied_rows_pool_their_counts_by_hand():
    # Slots of the tied pairs: (1, 0) saw [2, 0], (1, 1) saw [1, 1], (2, 1) saw [0, 1].
    expected = np.array([3.7, 2.7]) / 6.4
    for s, a in ((1, 0), (1, 1), (2, 1)):
        np.testing.assert_allclose(TIED.mean()[s, a], [*expected, 0.0], rtol=1e-14)
        np.testing.assert_allclose(TIED.maximum_likelihood(unseen=TIED.mean())[s, a], [0.6, 0.4, 0.0], rtol=1e-14)
    np.testing.assert_allclose(TIED.mean()[0, 0], DIRICHLET.mean()[0, 0], rtol=1e-14)


def test_tied_rows_are_drawn_as_one_and_the_others_apart():
    drawn = TIED.sample(0, 20_000)
    assert np.array_equal(drawn[:, 1, 0], drawn[:, 1, 1]) and np.array_equal(drawn[:, 1, 0], drawn[:, 2, 1])
    assert stats.kstest(drawn[:, 1, 0, 0], stats.beta(3.7, 2.7).cdf).pvalue > 1e-3
    assert abs(np.corrcoef(drawn[:, 1, 0, 0], drawn[:, 0, 0, 0])[0, 1]) < 0.03
    np.testing.assert_allclose(drawn.mean(axis=0), TIED.mean(), rtol=0, atol=0.01)


def test_labels_all_different_are_no_ties_bit_for_bit():
    apart = pr.Dirichlet.symmetric(RAGGED, 0.7, tied=np.arange(6).reshape(3, 2)).update(LOG)
    assert apart.sample(0, 50).tobytes() == DIRICHLET.sample(0, 50).tobytes()
    assert apart.mean().tobytes() == DIRICHLET.mean().tobytes()


def test_tied_rows_of_tiny_weight_stay_proper():
    drawn = pr.Dirichlet.symmetric(RAGGED, 1e-3, tied=TIES).sample(0, 200)
    np.testing.assert_allclose(drawn.sum(axis=-1), 1.0, rtol=0, atol=1e-14)


def tied_ranks(assumed: float) -> np.ndarray:
    """Ranks of true vectors, from a uniform prior, among draws that learned from both rows of a pair."""
    support = pr.Support.lists(np.add.outer(np.add.outer(np.arange(100), np.arange(100)), np.arange(3)) % 100)
    labels = np.arange(10_000).reshape(100, 100) // 2
    truth = pr.Dirichlet.symmetric(support, 1.0, tied=labels).sample(0, 1)[0]
    seen = np.random.default_rng(1).multinomial(3, truth)
    s, a, b = np.nonzero(seen)
    log = pr.Transitions.from_records(
        np.stack([s, a, support.index()[s, a, b]], axis=1), states=100, actions=100, count=seen[s, a, b]
    )
    drawn = pr.Dirichlet.symmetric(support, assumed, tied=labels).update(log).sample(2, 19)
    return (drawn[:, :, ::2, 0] < truth[:, ::2, 0]).sum(axis=0).ravel()


def test_the_tied_posterior_is_calibrated():
    assert stats.chisquare(np.bincount(tied_ranks(1.0), minlength=20)).pvalue > 1e-3


def test_calibration_notices_a_wrong_tied_prior():
    assert stats.chisquare(np.bincount(tied_ranks(3.0), minlength=20)).pvalue < 1e-6


# ---------------------------------------------------------------- Sobol points


@pytest.mark.parametrize("belief", [BETA, DIRICHLET, TIED], ids=["beta", "dirichlet", "tied"])
def test_each_sobol_draw_has_the_posterior_as_its_distribution(belief):
    """The seventh draw of many scrambles, so that the draws compared are independent."""
    seventh = np.stack([pr.Sobol(belief).sample(seed, 7)[6] for seed in range(500)])
    plain = belief.sample(0, 20_000)
    for where in np.argwhere(plain.std(axis=0) > 0):
        assert stats.ks_2samp(seventh[:, *where], plain[:, *where]).pvalue > 1e-3


@pytest.mark.parametrize("belief", [BETA, DIRICHLET, TIED], ids=["beta", "dirichlet", "tied"])
def test_the_marginals_of_one_net_are_exact(belief):
    """Among 2^m points of a net each of the 2^m equal parts of a coordinate holds exactly one."""
    drawn, weight = pr.Sobol(belief).sample(3, 256), belief.prior + belief.counts
    first = drawn[:, 0] if belief is BETA else drawn[:, 0, 0, 0]
    marginal = stats.beta(*weight[0]) if belief is BETA else stats.beta(weight[0, 0, 0], weight[0, 0, 1:].sum())
    assert sorted(np.floor(256 * marginal.cdf(first)).astype(int)) == list(range(256))
    np.testing.assert_allclose(drawn.mean(axis=0), belief.mean(), rtol=0, atol=0.01)


def test_rows_from_sobol_points_sum_to_1_and_padding_is_exactly_0():
    drawn = pr.Sobol(TIED).sample(0, 100)
    np.testing.assert_allclose(drawn.sum(axis=-1), 1.0, rtol=0, atol=1e-14)
    assert np.all(drawn[:, ~RAGGED.allowed()] == 0.0)
    assert TIED.uniform_dimension == 3 and DIRICHLET.uniform_dimension == 5
    sharp = pr.Sobol(pr.Dirichlet.symmetric(RAGGED, 1e-4)).sample(0, 1000)
    np.testing.assert_allclose(sharp.sum(axis=-1), 1.0, rtol=0, atol=1e-14)


def lake_means(sample, n: int, sets: int = 64) -> np.ndarray:
    """Means of the lake's loss over `sets` samples of `n` draws."""
    thetas = np.concatenate([sample(seed, n) for seed in range(sets)])
    uniform = np.full((9, 4), 0.25)
    losses = pr.evaluate(uniform, LAKE, Given(thetas), samples=len(thetas)).losses
    return losses.reshape(sets, n).mean(axis=1)


@pytest.mark.parametrize(("n", "factor"), [(32, 10.0), (50, 8.0)])
def test_sobol_points_cut_the_variance_of_a_mean_loss(n, factor):
    belief = LAKE.prior.update(LAKE.trials(n=10, truth=(0.3, 0.1), seed=1))
    even, independent = lake_means(pr.Sobol(belief).sample, n), lake_means(belief.sample, n)
    assert independent.var() > factor * even.var()
    error = np.sqrt((even.var() + independent.var()) / len(even))
    assert abs(even.mean() - independent.mean()) < 4.0 * error


def test_sets_are_independent_nets_under_sobol_and_one_stream_otherwise():
    generator = np.random.default_rng
    sets = draw_sets(pr.Sobol(BETA), generator(0), 5, 64).reshape(5, 64, 2)
    for net in sets:
        parts = np.floor(64 * stats.beta(4.0, 10.0).cdf(net[:, 0])).astype(int)
        assert sorted(parts) == list(range(64))
    assert len(np.unique(sets)) == sets.size
    assert draw_sets(BETA, generator(0), 5, 64).tobytes() == BETA.draw(generator(0), 320).tobytes()
    assert draw_sets(pr.Sobol(BETA), generator(0), 1, 64).tobytes() == pr.Sobol(BETA).draw(generator(0), 64).tobytes()


def test_the_solver_takes_sobol_points():
    belief = pr.Sobol(pr.WithinBox(LAKE.prior, 0.1, 0.9))
    solution = pr.solve(LAKE, belief, solver=pr.BRPG(iterations=5, samples=8, evaluation=20), seed=0)
    assert solution.status.ok


# ---------------------------------------------------------------- boxes


def test_a_beta_within_a_box_by_quadrature():
    low, high = [0.1, 0.0], [0.3, 0.05]
    belief = pr.WithinBox(BETA, low, high)
    drawn = belief.sample(0, 20_000)
    for d, (success, failure) in enumerate(BETA.prior + BETA.counts):
        whole = stats.beta(success, failure)
        mass = whole.cdf(high[d]) - whole.cdf(low[d])
        mean = integrate.quad(whole.cdf, low[d], high[d])[0]
        mean = (high[d] * whole.cdf(high[d]) - low[d] * whole.cdf(low[d]) - mean) / mass
        assert belief.mean()[d] == pytest.approx(mean, rel=1e-8)
        assert stats.kstest(drawn[:, d], lambda x, w=whole, d=d, m=mass: (w.cdf(x) - w.cdf(low[d])) / m).pvalue > 1e-3
    assert np.all(drawn >= low) and np.all(drawn <= high)


def test_a_box_far_in_either_tail_keeps_its_precision():
    belief = pr.Beta([[300.0, 300.0], [300.0, 300.0]], np.zeros((2, 2)))
    cut = pr.WithinBox(belief, [0.8, 0.1], [0.9, 0.2])
    drawn = cut.sample(0, 1000)
    np.testing.assert_allclose(cut.mean(), 1.0 - cut.mean()[::-1], rtol=1e-9)
    np.testing.assert_allclose(drawn.mean(axis=0), cut.mean(), rtol=0, atol=1e-3)
    assert drawn[:, 0].min() >= 0.8 and drawn[:, 1].max() <= 0.2 and len(np.unique(drawn)) == 2000


def test_cutting_off_and_updating_commute():
    log = pr.Trials([[2, 3], [1, 4]])
    one = pr.WithinBox(BETA, 0.1, 0.6).update(log)
    other = pr.WithinBox(BETA.update(log), 0.1, 0.6)
    assert one.sample(0, 5).tobytes() == other.sample(0, 5).tobytes()


@pytest.mark.parametrize("belief", [DIRICHLET, TIED], ids=["untied", "tied"])
def test_dirichlet_rows_within_a_box_are_the_rows_that_fall_in_it(belief):
    drawn = pr.WithinBox(belief, 0.1, 1.0).sample(0, 4000)
    allowed = RAGGED.allowed()
    assert np.all(drawn[:, allowed] >= 0.1) and np.all(drawn[:, ~allowed] == 0.0)
    np.testing.assert_allclose(drawn.sum(axis=-1), 1.0, rtol=0, atol=1e-14)
    plain = belief.sample(1, 40_000)
    for s, a in ((0, 0), (1, 1), (2, 1)):
        row = plain[:, s, a][np.all(plain[:, s, a][:, allowed[s, a]] >= 0.1, axis=1)]
        assert stats.ks_2samp(drawn[:, s, a, 0], row[:, 0]).pvalue > 1e-3
    if belief is TIED:
        assert np.array_equal(drawn[:, 1, 0], drawn[:, 2, 1])


def test_any_other_posterior_is_cut_off_as_a_whole():
    thetas = np.random.default_rng(0).random((1000, 2))
    drawn = pr.WithinBox(pr.Draws(thetas), [0.0, 0.5], 1.0).sample(0, 500)
    assert drawn[:, 1].min() >= 0.5 and set(map(tuple, drawn)) <= set(map(tuple, thetas))
