"""The likelihood of a family's own kernel, and exact posteriors on a grid: against conjugacy, quadrature and ranks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import prudent as pr

LAKE = pr.envs.frozen_lake("SHF\nFFF\nFFG")
RAGGED = pr.Support.lists([[[2, 0, 1], [1]], [[0, 1], [2, 1]], [[2], [0, 2]]])


def lake_log(slips: int, moves: int, escapes: int, stays: int) -> pr.Transitions:
    """Tries where nothing is ambiguous: state 4, down, leads to 7 or slips to 3 or 5; hole 1, left, to 0."""
    return pr.Transitions.from_records(
        [(4, 1, 7), (4, 1, 3), (4, 1, 5), (1, 0, 0), (1, 0, 1)],
        states=9,
        actions=4,
        count=[moves, slips // 2, slips - slips // 2, escapes, stays],
    )


def beta_of(slips: int, moves: int, escapes: int, stays: int) -> pr.Beta:
    return LAKE.prior.update(pr.Trials([[slips, moves], [escapes, stays]]))


def square_family() -> pr.Family:
    """Forward with probability theta squared: no conjugate prior."""

    def move(theta):
        return jnp.broadcast_to(jnp.stack([theta[0] ** 2, 1.0 - theta[0] ** 2]), (2, 1, 2))

    return pr.Family(pr.Support.lists([[[1, 0]], [[0, 1]]]), move, cost=[[1.0], [0.0]], start=0, discount=0.9)


SQUARE = square_family()


def square_log(forward: int, stay: int) -> pr.Transitions:
    return pr.Transitions.from_records([(0, 0, 1), (0, 0, 0)], states=2, actions=1, count=[forward, stay])


# ---------------------------------------------------------------- likelihood


def test_the_likelihood_of_the_lake_by_hand():
    theta = (0.3, 0.02)
    expected = 7 * np.log(0.7) + 3 * np.log(0.15) + 2 * np.log(0.02) + 5 * np.log(0.98)
    assert pr.log_likelihood(LAKE, theta, lake_log(3, 7, 2, 5)) == pytest.approx(expected, rel=1e-14)


def test_a_next_state_has_the_probability_of_all_its_places_in_the_list():
    """At the upper left corner, left and up both stay: left stays with probability 1 - slip + slip / 2."""
    log = pr.Transitions.from_records([(0, 0, 0), (0, 0, 3)], states=9, actions=4, count=[4, 2])
    value = pr.log_likelihood(LAKE, (0.3, 0.02), log)
    assert value == pytest.approx(4 * np.log(0.85) + 2 * np.log(0.15), rel=1e-14)


def test_padding_has_no_part_in_the_likelihood():
    family = pr.TabularFamily(RAGGED, np.zeros((3, 2)), start=0, discount=0.9)
    theta = np.full((3, 2, 3), 0.25)
    log = pr.Transitions.from_records([(0, 1, 1), (1, 0, 0)], states=3, actions=2, count=[1, 3])
    assert pr.log_likelihood(family, theta, log) == pytest.approx(4 * np.log(0.25), rel=1e-14)


def test_the_likelihood_of_a_table_on_a_dense_support():
    support = pr.Support.dense(3, 2)
    family = pr.TabularFamily(support, np.zeros((3, 2)), start=0, discount=0.9)
    theta = pr.Dirichlet.symmetric(support).sample(0, 1)[0]
    records = np.random.default_rng(0).integers([3, 2, 3], size=(50, 3))
    log = pr.Transitions.from_records(records, states=3, actions=2)
    assert pr.log_likelihood(family, theta, log) == pytest.approx(np.log(theta[tuple(records.T)]).sum(), rel=1e-13)


def test_the_likelihood_is_differentiated_and_mapped_over_theta():
    log = lake_log(3, 7, 2, 5)
    with jax.enable_x64(True):
        slope = jax.grad(lambda theta: pr.log_likelihood(LAKE, theta, log))(jnp.array([0.3, 0.02]))
        values = jax.vmap(lambda theta: pr.log_likelihood(LAKE, theta, log))(jnp.array([[0.3, 0.02], [0.5, 0.1]]))
    np.testing.assert_allclose(slope, [3 / 0.3 - 7 / 0.7, 2 / 0.02 - 5 / 0.98], rtol=1e-12)
    assert values[1] == pytest.approx(float(pr.log_likelihood(LAKE, (0.5, 0.1), log)), rel=1e-14)


def test_transitions_never_seen_or_impossible_leave_no_nan():
    nothing = lake_log(0, 3, 0, 2)
    assert pr.log_likelihood(LAKE, (0.0, 0.0), nothing) == 0.0
    assert pr.log_likelihood(LAKE, (0.0, 0.5), lake_log(2, 3, 0, 0)) == -np.inf
    with jax.enable_x64(True):
        slope = jax.grad(lambda theta: pr.log_likelihood(LAKE, theta, nothing))(jnp.zeros(2))
    np.testing.assert_allclose(slope, [-3.0, -2.0], rtol=1e-14)


def test_a_million_rows_are_merged_first():
    rng = np.random.default_rng(0)
    rows = np.stack([np.full(10**6, 4), np.full(10**6, 1), rng.choice([7, 3, 5], size=10**6, p=[0.7, 0.15, 0.15])], 1)
    log = pr.Transitions.from_records(rows, states=9, actions=4)
    seen = np.bincount(rows[:, 2], minlength=9)
    value = pr.log_likelihood(LAKE, (0.3, 0.02), log)
    assert value == pytest.approx(seen[7] * np.log(0.7) + (seen[3] + seen[5]) * np.log(0.15), rel=1e-13)


# ---------------------------------------------------------------- grid against what is known


def test_the_grid_on_the_lake_is_the_conjugate_posterior():
    data = (3, 9, 0, 6)
    grid, beta = pr.Grid(LAKE, [0, 0], [1, 1], log=lake_log(*data)), beta_of(*data)
    np.testing.assert_allclose(grid.mean(), beta.mean(), rtol=0, atol=2e-4)
    levels = [0.05, 0.5, 0.95]
    exact = stats.beta(*(beta.prior + beta.counts).T).ppf(np.array(levels)[:, None])
    np.testing.assert_allclose(grid.quantile(levels), exact, rtol=0, atol=2e-4)
    np.testing.assert_allclose(grid.maximum_likelihood(), beta.maximum_likelihood(), rtol=0, atol=1e-6)
    drawn = grid.sample(0, 20_000)
    for d in range(2):
        assert stats.kstest(drawn[:, d], stats.beta(*(beta.prior + beta.counts)[d]).cdf).pvalue > 1e-3
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.03
    assert len(np.unique(drawn)) == 40_000


@pytest.mark.parametrize("size", [10, 10**4, 10**8])
def test_the_grid_finds_the_mass_however_narrow(size):
    """Without a zoom, 10^8 observations would all fall within one of the 100 cells."""
    forward = int(0.3 * size)
    grid = pr.Grid(SQUARE, [0.0], [1.0], log=square_log(forward, size - forward), cells=100)
    exact = stats.beta(forward + 0.5, size - forward + 1)  # of theta squared
    expected = integrate.quad(lambda u: np.sqrt(exact.ppf(u)), 0, 1, epsabs=1e-10)[0]
    spread = np.sqrt(exact.ppf(0.84)) - np.sqrt(exact.ppf(0.16))
    assert grid.mean()[0] == pytest.approx(expected, abs=1e-3 * spread)
    levels = np.array([1e-3, 0.05, 0.5, 0.95, 0.999])
    np.testing.assert_allclose(grid.quantile(levels)[:, 0], np.sqrt(exact.ppf(levels)), rtol=0, atol=5e-3 * spread)
    assert grid.maximum_likelihood()[0] == pytest.approx(np.sqrt(forward / size), abs=1e-6)


def test_a_prior_is_a_log_density_up_to_a_constant():
    def prior(theta):
        return 3 * jnp.log(theta[0]) + jnp.log1p(-theta[1]) + 100.0

    grid = pr.Grid(LAKE, [0, 0], [1, 1], log=lake_log(2, 4, 1, 6), prior=prior)
    np.testing.assert_allclose(grid.mean(), [(4 + 2) / (4 + 1 + 6), (1 + 1) / (1 + 2 + 7)], rtol=0, atol=2e-4)
    np.testing.assert_allclose(grid.maximum_likelihood(), [2 / 6, 1 / 7], rtol=0, atol=1e-6)


def test_ambiguous_transitions_are_used_as_quadrature_says():
    """Staying at the upper left corner is an intended move or a slip: likelihood (1 - slip / 2)^4 (slip / 2)^2."""
    log = pr.Transitions.from_records([(0, 0, 0), (0, 0, 3)], states=9, actions=4, count=[4, 2])
    grid = pr.Grid(LAKE, [0, 0], [1, 1], log=log)
    mass, first = (
        integrate.quad(lambda x, power=power: x**power * (1 - x / 2) ** 4 * (x / 2) ** 2, 0, 1)[0] for power in (0, 1)
    )
    np.testing.assert_allclose(grid.mean(), [first / mass, 0.5], rtol=0, atol=1e-4)


def test_updates_in_any_order_give_the_same_bits():
    prior = pr.Grid(LAKE, [0, 0], [1, 1], cells=40)
    parts = [lake_log(2, 4, 0, 0), lake_log(0, 0, 1, 6), lake_log(1, 0, 0, 3)]
    batch = prior.update(lake_log(3, 4, 1, 9))
    one = prior.update(parts[0]).update(parts[1]).update(parts[2])
    other = prior.update(parts[2]).update(parts[0]).update(parts[1])
    assert one.sample(1, 5).tobytes() == other.sample(1, 5).tobytes()
    np.testing.assert_allclose(one.mean(), batch.mean(), rtol=1e-12)
    np.testing.assert_allclose(prior.mean(), [0.5, 0.5], rtol=1e-12)


def test_the_box_may_be_larger_than_the_domain_and_no_draw_leaves_it():
    """Two chances of leaving by two doors: their sum is at most 1, the box is the unit square and more."""

    def doors(theta):
        return jnp.broadcast_to(jnp.stack([theta[0], theta[1], 1.0 - theta[0] - theta[1]]), (3, 1, 3))

    family = pr.Family(pr.Support.dense(3, 1), doors, np.zeros((3, 1)), start=0, discount=0.9)
    log = pr.Transitions.from_records([(0, 0, 0), (0, 0, 1), (0, 0, 2)], states=3, actions=1, count=[3, 4, 0])
    grid = pr.Grid(family, [-0.5, -0.5], [1.5, 1.5], log=log, cells=150)
    drawn = grid.sample(0, 5000)
    assert np.all(drawn >= 0) and np.all(drawn.sum(axis=1) <= 1)
    np.testing.assert_allclose(grid.mean(), [4 / 10, 5 / 10], rtol=0, atol=4e-3)
    np.testing.assert_allclose(grid.quantile(0.5)[0], stats.beta(4, 6).ppf(0.5), rtol=0, atol=4e-3)


def test_two_modes_are_both_kept():
    def hidden(theta):
        chance = 4.0 * (theta[0] - 0.5) ** 2
        return jnp.broadcast_to(jnp.stack([chance, 1.0 - chance]), (2, 1, 2))

    family = pr.Family(pr.Support.lists([[[1, 0]], [[0, 1]]]), hidden, np.zeros((2, 1)), start=0, discount=0.9)
    grid = pr.Grid(family, [0.0], [1.0], log=square_log(400, 600))
    assert np.mean(grid.sample(0, 4000) < 0.5) == pytest.approx(0.5, abs=0.03)
    with pytest.raises(pr.InputError, match=r"about \d+\.\d of 30 cells along coordinate 0.*cells=\d+"):
        pr.Grid(family, [0.0], [1.0], log=square_log(400_000, 600_000), cells=30)


# ---------------------------------------------------------------- calibration by ranks


def grid_ranks(prior, replications: int = 400, ranks: int = 19) -> np.ndarray:
    """Ranks of true thetas, uniform on [0, 1], among draws of their posteriors: data are eight tries a truth."""
    rng = np.random.default_rng(5)
    truth = rng.random(replications)
    forward = rng.binomial(8, truth**2)
    beliefs = {k: pr.Grid(SQUARE, [0.0], [1.0], log=square_log(k, 8 - k), prior=prior, cells=100) for k in range(9)}
    return np.array(
        [
            (beliefs[int(k)].sample(seed, ranks)[:, 0] < theta).sum()
            for seed, (k, theta) in enumerate(zip(forward, truth, strict=True))
        ]
    )


def test_the_grid_posterior_is_calibrated():
    assert stats.chisquare(np.bincount(grid_ranks(None), minlength=20)).pvalue > 1e-3


def test_calibration_notices_a_wrong_prior():
    ranks = grid_ranks(lambda theta: 2.0 * jnp.log(theta[0]))
    assert stats.chisquare(np.bincount(ranks, minlength=20)).pvalue < 1e-6


def test_maximum_likelihood_of_a_box_larger_than_the_domain():
    lake = pr.envs.frozen_lake("SFF\nFFF\nFFG")
    log = pr.Transitions.from_records([(4, 0, 3)] * 7 + [(4, 0, 1)] * 3, states=9, actions=4)
    with pytest.raises(pr.InputError, match="nothing of coordinate 1"):
        pr.Grid(lake, [-0.5, -0.5], [1.5, 1.5], log).maximum_likelihood()
    family = pr.Family(
        lake.support, lambda theta: lake.probability(jnp.stack([theta[0], theta[0]])), 1.0 * (np.ones((9, 4))), 0, 0.9
    )
    assert pr.Grid(family, [-0.5], [1.5], log).maximum_likelihood() == pytest.approx([0.3], abs=1e-6)
