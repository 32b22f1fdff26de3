"""Risks that are not coherent, and sums that are no risk, are refused with the fix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import prudent as pr

from .catalogue import RISKS
from .marks import short

CVAR, MEAN = pr.CVaR(0.9), pr.Expectation()

REFUSALS = {
    "several levels": (lambda: pr.CVaR([0.5, 0.9]), r"level must be one number in \[0, 1\), got an array"),
    "several radii": (lambda: pr.ChiSquareBall([0.5, 0.9]), r"radius must be one number"),
    "semideviation weight": (lambda: pr.MeanSemideviation(1.0, 1.5), r"weight must lie in \[0, 1\], got 1.5.*monotone"),
    "negative weight": (lambda: pr.MeanSemideviation(1.0, -0.1), r"\[0, 1\], got -0.1"),
    "order": (lambda: pr.MeanSemideviation(0.5), r"order must lie in \[1, inf\), got 0.5"),
    "order nan": (lambda: pr.MeanSemideviation(np.nan), r"order must lie in"),
    "quantile weight": (lambda: pr.QuantileDeviation(0.5, 2.1), r"1 / \(1 - level\).*got 2.1.*above 2 "),
    "quantile level": (lambda: pr.QuantileDeviation(1.0), r"level must lie in \[0, 1\), got 1"),
    "increasing spectrum": (lambda: pr.Spectral([0.5, 1.5]), r"must not increase.*first height is for the worst"),
    "negative spectrum": (lambda: pr.Spectral([2.5, -0.5]), r"must not be negative"),
    "spectrum of mass 2": (lambda: pr.Spectral([3.0, 1.0]), r"integrate to 1, got 2.*divide the heights"),
    "widths": (lambda: pr.Spectral([1.0, 1.0], [0.5, 0.6]), r"widths must be positive and sum to 1"),
    "number of widths": (lambda: pr.Spectral([1.0, 1.0], [1.0]), r"as many widths"),
    "a single height": (lambda: pr.Spectral(1.0), r"list of heights"),
    "convex distortion": (lambda: pr.Distortion(lambda t: t**2), r"must be concave.*spectrum increases"),
    "distortion at 1": (lambda: pr.Distortion(lambda t: 0.5 * t), r"g\(1\) = 1, got 0.5"),
    "distortion at 0": (lambda: pr.Distortion(lambda t: 0.5 + 0.5 * t), r"g\(0\) = 0, got 0.5"),
    "falling distortion": (lambda: pr.Distortion(lambda t: 4.0 * t - 3.0 * t**2), r"must not decrease"),
    "distortion of a sum": (lambda: pr.Distortion(lambda t: t @ np.eye(3)), r"fails on an array of shape \(560,\)"),
    "distortion of one number": (lambda: pr.Distortion(lambda t: t.sum()), r"keep the shape"),
    "no distortion": (lambda: pr.Distortion(0.5), r"needs a function.*got 0.5"),
    "divergence": (lambda: pr.KullbackLeiblerBall(-0.1), r"radius must lie in \[0, inf\), got -0.1"),
    "chi-square": (lambda: pr.ChiSquareBall(-1e-9), r"radius must lie in \[0, inf\)"),
    "infinite radius": (lambda: pr.ChiSquareBall(np.inf), r"use WorstCase\(\)"),
    "total variation": (lambda: pr.TotalVariationBall(1.0), r"radius must lie in \[0, 1\).*WorstCase"),
    "entropic level": (lambda: pr.EntropicVaR(1.0), r"level must lie in \[0, 1\).*WorstCase"),
    "sum above 1": (lambda: 0.7 * CVAR + 0.7 * MEAN, r"0.7 \* CVaR \+ 0.7 \* Expectation sum to 1.4"),
    "product above 1": (lambda: 1.5 * CVAR, r"sum to 1.5"),
    "no weights": (lambda: CVAR + MEAN, r"sum to 2.*without a weight counts as 1"),
    "negative share": (lambda: -0.5 * CVAR, r"number in \[0, 1\], got -0.5"),
    "share nan": (lambda: np.nan * CVAR, r"number in \[0, 1\]"),
    "several shares": (lambda: CVAR * [0.1, 0.2], r"one number"),
    "a share of a share of a word": (lambda: CVAR * "a", r"expected an array of numbers"),
    "added number": (lambda: 0.5 * CVAR + 0.5, r"can be added to weighted risks.*got 0.5"),
    "incomplete sum called": (lambda: (0.3 * CVAR)([1.0, 2.0]), r"sum to 0.3, not 1.*\+ 0.7 \* Expectation\(\)"),
    "incomplete density": (lambda: (0.3 * CVAR).density(None, None), r"sum to 0.3, not 1"),
    "incomplete sum checked": (
        lambda: pr.check_risk(0.3 * CVAR),
        r"risk must be a risk such as CVaR.*got PartialMixture",
    ),
    "mixture sum": (lambda: pr.Mixture((CVAR, MEAN), [0.5, 0.6]), r"sum to 1.*divide by their sum"),
    "mixture sign": (lambda: pr.Mixture((CVAR, MEAN), [1.5, -0.5]), r">= 0 and sum to 1"),
    "mixture size": (lambda: pr.Mixture((CVAR, MEAN), [1.0]), r"2 risks need as many weights"),
    "mixture of a share": (lambda: pr.Mixture((0.3 * CVAR,), [1.0]), r"made of risks.*got PartialMixture"),
    "envelope": (lambda: pr.Envelope(None), r"needs a function \(xi, probabilities\)"),
    "norm bound": (lambda: pr.Envelope(lambda xi, p: [], norm_bound=0.5), r"norm_bound must lie in .*, got 0.5"),
    "norm order": (lambda: pr.Envelope(lambda xi, p: [], order=0.5), r"order must lie in.*got 0.5"),
    "envelope solver": (lambda: pr.Envelope(lambda xi, p: [], solver="scs"), r"Clarabel\(\) or another EnvelopeSolver"),
    "clarabel": (lambda: pr.Clarabel(tolerance=0.0), r"tolerance must lie in \(0, 1\), got 0"),
    "traced share": (lambda: jax.jit(lambda w: (w * CVAR)(np.ones(2)).value)(0.5), r"use Mixture\(risks, weights\)"),
    "traced losses": (lambda: jax.jit(lambda losses: CVAR(losses).value)(np.ones(2)), r"assesses numbers; call it out"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_no_coherent_risk_is_refused_with_the_fix(name):
    make, message = REFUSALS[name]
    with pytest.raises(pr.InputError, match=message):
        make()


@pytest.mark.parametrize(
    "mixed",
    [
        0.3 * MEAN + 0.7 * CVAR,
        MEAN * 0.3 + CVAR * 0.7,
        sum([0.3 * MEAN, 0.35 * CVAR, 0.35 * CVAR]),
        0.5 * (0.6 * MEAN + 0.4 * CVAR) + 0.5 * CVAR,
        0.5 * (0.6 * MEAN) + 0.7 * CVAR,
        np.float64(0.3) * MEAN + CVAR * np.array(0.7),
        0.0 * pr.WorstCase() + 0.3 * MEAN + 0.7 * CVAR,
    ],
)
def test_sums_of_weighted_risks_are_mixtures(mixed):
    losses = np.random.default_rng(0).normal(size=30)
    assert isinstance(mixed, pr.Risk)
    assert mixed(losses).value == pytest.approx(0.3 * MEAN(losses).value + 0.7 * CVAR(losses).value, abs=1e-12)
    np.testing.assert_allclose(mixed(losses).weights, 0.3 + 0.7 * CVAR(losses).weights, rtol=0, atol=1e-12)
    assert np.isfinite(mixed.standard_error(losses))


def test_a_whole_risk_plus_a_part_of_weight_zero_is_itself():
    assert (1.0 * CVAR + 0.0 * MEAN)([1.0, 2.0]).value == CVAR([1.0, 2.0]).value
    assert not isinstance(0.999 * CVAR, pr.Risk)


# ---------------------------------------------------------------- the public check


class Median(pr.Risk):
    def density(self, losses, probabilities):
        middle = (losses == jnp.sort(losses)[losses.size // 2]) & (probabilities > 0)
        safe = jnp.where(middle.any(), middle, probabilities > 0)
        return safe / (probabilities * safe).sum()


class Deviation(pr.Risk):
    def density(self, losses, probabilities):
        mean = (probabilities * losses).sum()
        spread = jnp.sqrt((probabilities * (losses - mean) ** 2).sum() + 1e-12)
        return 1.0 + 3.0 * (losses - mean) / spread


class Entropic(pr.Risk):
    def density(self, losses, probabilities):
        tilt = jnp.exp(0.1 * (losses - losses.max()))
        return tilt / (probabilities * tilt).sum()


class TooHeavy(pr.Risk):
    def density(self, losses, probabilities):
        return jnp.full_like(losses, 1.01)


class Sized(pr.Risk):
    def density(self, losses, probabilities):
        tilt = jnp.abs(losses) + 1e-9
        return tilt / (probabilities * tilt).sum()


class Smoothed(pr.Risk):
    """A subgradient that is not the maximiser: between CVaR and the mean as the spread says."""

    def density(self, losses, probabilities):
        return 0.5 + 0.5 * pr.CVaR(0.2 + 0.5 * (losses[0] > losses[1])).density(losses, probabilities)


class Failing(pr.Risk):
    def density(self, losses, probabilities):
        return losses @ np.eye(3)


# The entropic value-at-risk is a Kullback-Leibler ball, which is here.
CLOSED = [case for case in RISKS if case.name != "entropic_var"]
CHECKED = [case for case in CLOSED if case.name in ("cvar", "mean_semideviation", "mixture")]


# The laws themselves are tested of every risk elsewhere; here it is the check that has to pass.
@pytest.mark.parametrize("case", short(CHECKED, CLOSED), ids=lambda case: case.name)
def test_the_check_passes_every_risk_in_closed_form(case):
    report = pr.check_risk(case.build(0.83), samples=80, draws=6)
    assert max(finding.worst for finding in report.findings if finding.law != "gradient") < 1e-9


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        (Deviation, "weights .*by .*density is .*>= 0"),
        (TooHeavy, "weights .*by 0.01.*divide"),
        (Entropic, "homogeneity"),
        (Sized, "translation"),
        (Median, "monotonicity|convexity"),
        (Smoothed, "monotonicity|convexity"),
        (Failing, "Failing.density fails: "),
    ],
)
def test_the_check_names_the_law_that_is_broken(broken, law):
    with pytest.raises(pr.InputError, match=law):
        pr.check_risk(broken())


def test_the_check_passes_a_convex_program():
    report = pr.check_risk(pr.Envelope(lambda xi, p: [xi <= 2.0]), samples=24, draws=5)
    assert max(finding.worst for finding in report.findings) < 1e-4
    assert "monotonicity" in str(report)
