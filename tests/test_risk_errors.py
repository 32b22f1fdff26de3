"""Standard errors of risks against replications, textbooks and differences; risks that users write."""

import jax.numpy as jnp
import numpy as np
import pytest

import prudent as pr
from prudent.risks import assess_each
from prudent.solvers.draws import stacked

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
    values, errors = zip(*((risk(row).value, risk.standard_error(row)) for row in losses), strict=True)
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
    errors = [pr.CVaR(level).standard_error(losses) for level in 1.0 - counts / size]
    for count, error in zip(counts, errors, strict=True):
        least, most = (
            np.std(np.maximum(losses - quantile, 0.0)) * np.sqrt(size) / count
            for quantile in (ordered[count - 1], ordered[count])
        )
        assert least - 1e-9 <= error <= most + 1e-9, f"{count} of {size} draws in the tail"


@each_risk
def test_a_risk_says_whether_it_has_a_standard_error(case):
    losses = np.random.default_rng(0).normal(size=30)
    error = case.build(0.83).standard_error(losses)
    assert np.isnan(error) != case.has_standard_error


SMOOTH = [case for case in RISKS if case.has_standard_error]


@pytest.mark.parametrize("case", SMOOTH, ids=lambda case: case.name)
def test_the_influence_is_the_derivative_by_the_weights(case):
    """As a user's risk that has none of its own finds it, by differences."""
    risk = case.build(0.83)
    losses, weights = np.random.default_rng(0).normal(size=20), np.random.default_rng(1).dirichlet(np.ones(20))
    given, derived = risk.influence(losses, weights), pr.Risk.influence(risk, losses, weights)
    np.testing.assert_allclose(given - weights @ given, derived - weights @ derived, atol=1e-6)


class TailByJax(pr.Risk):
    """CVaR as a user may write it."""

    level: float

    def density(self, losses, probabilities):
        above = jnp.where(losses[None, :] > losses[:, None], probabilities[None, :], 0.0).sum(axis=1)
        return jnp.clip((1.0 - self.level - above) / probabilities, 0.0, 1.0) / (1.0 - self.level)


class TailByMethods(TailByJax):
    """With a method that only arrays of JAX have."""

    def density(self, losses, probabilities):
        return super().density(losses.at[0].add(0.0), probabilities)


class TailByNumPy(pr.Risk):
    """The same by NumPy."""

    level: float

    def density(self, losses, probabilities):
        above = np.where(losses[None, :] > losses[:, None], probabilities[None, :], 0.0).sum(axis=1)
        return np.clip((1.0 - self.level - above) / probabilities, 0.0, 1.0) / (1.0 - self.level)


class Blend(pr.Risk):
    """One of the library's inside a function of JAX, which cannot trace it."""

    level: float

    def density(self, losses, probabilities):
        return 1.0 * jnp.asarray(pr.CVaR(self.level).density(losses, probabilities))


@pytest.mark.parametrize("kind", [TailByJax, TailByMethods, TailByNumPy, Blend])
@pytest.mark.parametrize("size", [40, 500])
def test_a_users_risk_is_assessed_whatever_it_is_written_with(kind, size):
    """Value, weights and error of a sample; and of samples side by side, under numbers of their own."""
    losses = np.random.default_rng(0).normal(size=(3, size))
    weights, levels = np.full(losses.shape, 1.0 / size), (0.313, 0.627, 0.911)
    together = assess_each(stacked([kind(level) for level in levels]), losses, weights)
    mixed = 0.5 * kind(0.313) + 0.5 * pr.Expectation()
    assert mixed(losses[0]).value == pytest.approx((0.5 * pr.CVaR(0.313) + 0.5 * pr.Expectation())(losses[0]).value)
    for row, level, value, density in zip(losses, levels, *together, strict=True):
        expected = pr.CVaR(level)(row)
        assert kind(level)(row).value == pytest.approx(expected.value, rel=1e-12)
        assert value == pytest.approx(expected.value, rel=1e-12)
        np.testing.assert_allclose(density, expected.weights, rtol=1e-9, atol=1e-9)
        assert kind(level).standard_error(row) == pytest.approx(pr.CVaR(level).standard_error(row), rel=0.05)
