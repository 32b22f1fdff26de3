"""MCMC posteriors: against conjugacy and the grid on the lake, and refusal of runs that cannot be trusted."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import prudent as pr
from prudent.posteriors.chains import diagnose
from prudent.posteriors.points import Settings, _status

LAKE = pr.envs.frozen_lake()
TRIALS = pr.Trials([[4, 11], [2, 13]])
# State 6, down, leads to 11 or slips to 5 or 7; hole 12, left, leads to 11: nothing is ambiguous.
LOG = pr.Transitions.from_records(
    [(6, 1, 11), (6, 1, 5), (6, 1, 7), (12, 0, 11), (12, 0, 12)], states=25, actions=4, count=[11, 1, 3, 2, 13]
)
UNIT_SQUARE = dist.Uniform(0.0, 1.0).expand([2])


@pytest.fixture(scope="module")
def run() -> pr.MCMC:
    return pr.MCMC.run(LAKE, LOG, UNIT_SQUARE, warmup=400, samples=500, seed=3)


def hidden(theta):
    chance = 4.0 * (theta[0] - 0.5) ** 2
    return jnp.broadcast_to(jnp.stack([chance, 1.0 - chance]), (2, 1, 2))


@pytest.fixture(scope="module")
def bimodal() -> pr.MCMC:
    """Two mirrored modes far apart: each chain sees one of them."""
    family = pr.Family(pr.Support.lists([[[1, 0]], [[0, 1]]]), hidden, np.zeros((2, 1)), start=0, discount=0.9)
    log = pr.Transitions.from_records([(0, 0, 1), (0, 0, 0)], states=2, actions=1, count=[400, 600])
    return pr.MCMC.run(family, log, dist.Uniform(0.0, 1.0).expand([1]), warmup=200, samples=200, seed=0)


def test_the_run_is_sound_and_leaves_the_flag(run):
    assert run.status is pr.MCMCStatus.OK
    assert run.draws.shape == (2000, 2) and run.draws.dtype == np.float64
    assert run.rhat.shape == run.effective_sample_size.shape == (2,)
    assert np.all(run.rhat < 1.01) and np.all(run.effective_sample_size >= 400) and run.divergences == 0
    assert run.behind == np.min(run.effective_sample_size)
    assert not jax.config.jax_enable_x64
    assert "2000 draws, largest R-hat 1.00" in str(run)


def test_mcmc_grid_and_conjugate_posteriors_agree_on_the_lake(run):
    beta = LAKE.prior.update(TRIALS)
    grid = pr.Grid(LAKE, [0, 0], [1, 1], log=LOG)
    exact = stats.beta(*(beta.prior + beta.counts).T)
    np.testing.assert_allclose(grid.mean(), beta.mean(), rtol=0, atol=2e-4)
    error = 4.0 * exact.std() / np.sqrt(run.effective_sample_size)
    assert np.all(np.abs(run.mean() - beta.mean()) < error)
    for level in (0.05, 0.95):
        quantile = exact.ppf(level)
        np.testing.assert_allclose(grid.quantile(level), quantile, rtol=0, atol=2e-4)
        # The standard error of a sample quantile is sqrt(p (1 - p) / n) / density.
        error = 4.0 * np.sqrt(level * (1 - level) / run.effective_sample_size) / exact.pdf(quantile)
        assert np.all(np.abs(np.quantile(run.draws, level, axis=0) - quantile) < error)


def test_a_sound_run_is_a_belief(run):
    drawn = run.sample(0, 1000)
    assert drawn.shape == (1000, 2)
    assert drawn.tobytes() == run.sample(0, 1000).tobytes()
    assert np.all(np.isin(drawn, run.draws))


@pytest.mark.long
def test_chains_in_different_modes_are_refused_with_the_fix(bimodal):
    assert bimodal.status is pr.MCMCStatus.NOT_MIXED and not bimodal.status.ok
    assert bimodal.rhat.max() > 1.5
    for use in (lambda: bimodal.sample(0, 5), bimodal.mean):
        with pytest.raises(pr.InputError, match=r"R-hat is 1\.01 or more.*raise warmup=.*Draws\(run\.draws\)"):
            use()
    with pytest.raises(pr.InputError, match="cannot be trusted"):
        pr.solve(bimodal.family, bimodal, solver=pr.BRPG(iterations=2))
    assert pr.Draws(bimodal.draws).sample(0, 5).shape == (5, 1)


@pytest.mark.long
def test_a_table_of_any_shape_in_a_short_run_is_refused_for_its_few_draws_and_learns_in_an_update():
    """Theta is a Dirichlet table; the mean is the conjugate one, roughly."""
    support = pr.Support.dense(2, 1)
    family = pr.TabularFamily(support, np.zeros((2, 1)), start=0, discount=0.9)
    log = pr.Transitions.from_records([(0, 0, 1), (0, 0, 0)], states=2, actions=1, count=[7, 2])
    prior = dist.Dirichlet(jnp.ones((2, 1, 2), dtype=jnp.float32))
    before = pr.MCMC(
        np.zeros((1, 2, 1, 2)),
        np.ones(1),
        np.ones(1),
        0,
        pr.MCMCStatus.OK,
        family,
        prior,
        None,
        Settings(100, 80, 2, 0, 0.8),
    )
    run = before.update(log)
    assert run.draws.shape == (160, 2, 1, 2) and run.draws.dtype == np.float64
    exact = pr.Dirichlet.symmetric(support).update(log)
    np.testing.assert_allclose(run.draws.mean(axis=0), exact.mean(), rtol=0, atol=0.12)
    assert run.log is not None and len(run.log) == 9
    assert run.status in (pr.MCMCStatus.FEW_EFFECTIVE, pr.MCMCStatus.NOT_MIXED)
    with pytest.raises(pr.InputError, match=r"raise (samples=|warmup=)"):
        run.sample(0, 1)


# ---------------------------------------------------------------- diagnostics and refusals, without a run


def record(draws: np.ndarray, divergences: int = 0) -> pr.MCMC:
    rhat, effective = diagnose(draws)
    flat, status = draws.reshape(-1, *draws.shape[2:]), _status(rhat, effective, divergences)
    return pr.MCMC(
        flat, rhat, effective, divergences, status, LAKE, UNIT_SQUARE, None, Settings(1, draws.shape[1], 4, 0, 0.8)
    )


NORMAL = np.random.default_rng(0).normal(size=(4, 1000, 2))


def test_independent_normal_chains_pass():
    sound = record(NORMAL)
    assert sound.status.ok
    assert np.all(sound.rhat < 1.005) and np.all(sound.effective_sample_size > 2500)


def test_entries_that_cannot_move_are_no_fault():
    draws = np.concatenate([NORMAL, np.ones((4, 1000, 1))], axis=2)
    assert record(draws).status.ok


@pytest.mark.parametrize(
    ("draws", "divergences", "status"),
    [
        (NORMAL + np.arange(4)[:, None, None] / 4, 0, pr.MCMCStatus.NOT_MIXED),
        (NORMAL * (1 + np.arange(4)[:, None, None]), 0, pr.MCMCStatus.NOT_MIXED),
        (NORMAL + np.linspace(0, 1, 1000)[:, None], 0, pr.MCMCStatus.NOT_MIXED),
        (np.broadcast_to(np.arange(4.0)[:, None, None], (4, 1000, 2)), 0, pr.MCMCStatus.NOT_MIXED),
        (np.random.default_rng(1).normal(size=(4, 80, 2)).round(3), 0, pr.MCMCStatus.FEW_EFFECTIVE),
        (NORMAL, 2, pr.MCMCStatus.DIVERGENT),
    ],
    ids=["shifted", "scaled", "drifting", "stuck", "short", "divergent"],
)
def test_faults_of_chains_are_noticed(draws, divergences, status):
    fault = record(np.array(draws), divergences)
    assert fault.status is status or (status is pr.MCMCStatus.FEW_EFFECTIVE and not fault.status.ok)
    with pytest.raises(pr.InputError, match="cannot be trusted"):
        fault.sample(0, 1)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "prudent.posteriors.chains", raising=False)
    monkeypatch.setitem(sys.modules, "numpyro", None)
    with pytest.raises(pr.InputError, match=r'pip install "prudent\[mcmc\]"'):
        pr.MCMC.run(LAKE, LOG, UNIT_SQUARE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((LAKE, LOG, lambda theta: 0.0), r"prior must be a NumPyro distribution"),
        ((LAKE, LOG, dist.Uniform(0.0, 1.0).expand([3])), r"two numbers; got shape \(3,\)"),
        (([0.5], LOG, UNIT_SQUARE), r"family must be"),
        ((LAKE, TRIALS, UNIT_SQUARE), r"log must be a log of Transitions.*got Trials"),
    ],
    ids=["prior", "shape", "family", "log"],
)
def test_parts_of_another_kind_are_refused(arguments, message):
    with pytest.raises(pr.InputError, match=message):
        pr.MCMC.run(*arguments)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"warmup": 0}, r"warmup.*>= 1, got 0"),
        ({"samples": 3}, r"samples.*>= 4, got 3"),
        ({"chains": 1}, r"chains.*>= 2, got 1"),
        ({"target_acceptance": 1.0}, r"target_acceptance must lie in \(0, 1\), got 1\.0"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(pr.InputError, match=message):
        pr.MCMC.run(LAKE, LOG, UNIT_SQUARE, **settings)
