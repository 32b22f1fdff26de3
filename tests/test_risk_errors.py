"""Standard errors of risks against replications, textbooks and differences; a sample on the host as a compiled one."""

import equinox as eqx
import jax
import numpy as np
import pytest

import prudent as pr
from prudent.arrays import in_float64

from .catalogue import RISKS

each_risk = pytest.mark.parametrize("case", RISKS, ids=lambda case: case.name)


def softened(share):
    """A distortion with a finite slope everywhere."""
    return 1.0 - (1.0 - share) ** 3


REPLICATED = {
    "expectation": pr.Expectation(),
    "cvar": pr.CVaR(0.8),
    "semideviation": pr.MeanSemideviation(1.0, 0.9),
    "semideviation of order 2": pr.MeanSemideviation(2.0, 0.9),
    "spectral": pr.Spectral([2.0, 0.9, 0.1]),
    "distortion": pr.Distortion(softened),
    "divergence": pr.KullbackLeiblerBall(0.1),
    "chi-square": pr.ChiSquareBall(0.3),
    "chi-square where some draws count nothing": pr.ChiSquareBall(2.0),
    "mixture": 0.5 * pr.QuantileDeviation(0.7) + 0.5 * pr.ChiSquareBall(0.2),
}


@pytest.mark.parametrize("risk", REPLICATED.values(), ids=REPLICATED)
def test_the_standard_error_is_the_spread_over_replications(risk):
    losses = np.random.default_rng(7).exponential(size=(600, 400))
    both = jax.jit(jax.vmap(lambda row: (risk(row).value, risk.standard_error(row))))
    values, errors = in_float64(both)(losses)
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.1)


def test_the_standard_error_of_the_mean_is_the_textbook_one():
    losses = np.random.default_rng(0).normal(size=50)
    assert pr.Expectation().standard_error(losses) == pytest.approx(losses.std() / np.sqrt(50), abs=1e-12)


@pytest.mark.parametrize("size", [20, 60, 400])
def test_the_standard_error_of_cvar_does_not_hang_on_rounding(size):
    """Where the tail holds a whole number of draws, any quantile between two neighbours will do, no other."""
    losses = np.random.default_rng(size).exponential(size=size)
    ordered = np.sort(losses)[::-1]
    counts = np.unique(np.linspace(2, size - 1, 50).astype(int))
    errors = in_float64(jax.jit(jax.vmap(lambda level: pr.CVaR(level).standard_error(losses))))(1.0 - counts / size)
    for count, error in zip(counts, errors, strict=True):
        least, most = (
            np.std(np.maximum(losses - quantile, 0.0)) * np.sqrt(size) / count
            for quantile in (ordered[count - 1], ordered[count])
        )
        assert least - 1e-9 <= error <= most + 1e-9, f"{count} of {size} draws in the tail"


@each_risk
def test_a_risk_says_whether_it_has_a_standard_error(case):
    losses = np.random.default_rng(0).normal(size=30)
    error = in_float64(jax.jit(lambda losses: case.build(0.83).standard_error(losses)))(losses)
    assert np.isnan(error) != case.has_standard_error


@pytest.mark.parametrize("risk", [pr.KullbackLeiblerBall(0.3), pr.KullbackLeiblerBall(1e-4), pr.EntropicVaR(0.6)])
def test_a_ball_is_differentiable_by_the_weights_of_its_draws(risk):
    """Through the root search, as a user's risk that contains it needs."""
    losses, weights = np.random.default_rng(0).normal(size=20), np.random.default_rng(1).dirichlet(np.ones(20))
    both = in_float64(jax.jit(lambda *sample: (risk.influence(*sample), pr.Risk.influence(risk, *sample))))
    given, derived = both(losses, weights)
    np.testing.assert_allclose(given - given.mean(), derived - derived.mean(), atol=1e-12)


@each_risk
def test_a_sample_on_the_host_is_assessed_as_a_compiled_one(case):
    """By NumPy, or filled up with draws of weight 0: value, density, influence and share are those of compiled code."""
    from prudent.risks import assess_closely, assess_sample, weights_of
    from prudent.risks.base import _closely

    risk = case.build(0.83)
    random = np.random.default_rng(5)
    losses = np.round(random.normal(size=37), 1)
    weights = random.dirichlet(np.ones(37)) * (np.arange(37) != 3)
    weights /= weights.sum()
    compiled = in_float64(eqx.filter_jit(_closely))(risk, losses, weights)
    found = assess_closely(risk, losses, weights)
    for name, here, there in zip(found._fields, found, compiled, strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-9, atol=1e-9, err_msg=name)
    value, density = assess_sample(risk, losses, weights)
    assert value == pytest.approx(found.value, rel=1e-12)
    np.testing.assert_allclose(density, found.weights, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(weights_of(risk, losses, weights), density)
