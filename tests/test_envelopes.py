"""Envelopes written in cvxpy: against the risks in closed form, inside compiled code."""

import math
import subprocess
import sys

import cvxpy as cp
import jax
import numpy as np
import pytest

import prudent as pr
from prudent.arrays import in_float64
from prudent.records import tree_map
from prudent.risks import assess_sample
from prudent.risks.envelope import check_envelope
from prudent.risks.envelope_programs import program_of

DRAWS = 12


def tail(xi, p):
    return [xi <= 4.0]


def nothing(xi, p):
    return []


def semideviation(xi, p):
    zeta = cp.Variable(p.size, nonneg=True)
    return [xi == 1.0 + zeta - p @ zeta, zeta <= 0.8]


def semideviation_of_order_two(xi, p):
    zeta = cp.Variable(p.size)
    return [zeta >= 0, xi == 1.0 + zeta - p @ zeta, cp.norm(cp.multiply(np.sqrt(p), zeta)) <= 0.8]


def chi_square(xi, p):
    return [p @ cp.square(xi - 1.0) <= 0.7]


def whole_tail(xi, p):
    return [xi >= 0, p @ xi == 1.0, xi <= 4.0]


CASES = {
    "tail": (pr.Envelope(tail), pr.CVaR(0.75)),
    "tail, whole": (pr.Envelope(whole_tail, impose=False), pr.CVaR(0.75)),
    "largest norm": (pr.Envelope(nothing, norm_bound=4.0, order=math.inf), pr.CVaR(0.75)),
    "norm of order 2": (pr.Envelope(nothing, norm_bound=1.3), pr.ChiSquareBall(1.3**2 - 1.0)),
    "semideviation": (pr.Envelope(semideviation), pr.MeanSemideviation(1.0, 0.8)),
    "semideviation of order 2": (pr.Envelope(semideviation_of_order_two), pr.MeanSemideviation(2.0, 0.8)),
    "chi-square": (pr.Envelope(chi_square), pr.ChiSquareBall(0.7)),
}
each_case = pytest.mark.parametrize("name", CASES)


def samples():
    for number in range(4):
        rng = np.random.default_rng(number)
        weights = np.full(DRAWS, 1.0 / DRAWS) if number % 2 else rng.dirichlet(2.0 * np.ones(DRAWS))
        yield 10.0**number * rng.normal(size=DRAWS) + 5.0, weights


@each_case
def test_clarabel_finds_the_closed_form(name):
    envelope, closed = CASES[name]
    for losses, weights in samples():
        solution, expected = envelope.solve(losses, weights), closed(losses, weights)
        scale = np.ptp(losses)
        assert solution.status.ok and solution.gap <= 1e-6 * scale and solution.residual <= 1e-6
        assert abs(solution.value - expected.value) <= 1e-6 * scale
        np.testing.assert_allclose(solution.weights, expected.weights, rtol=0, atol=2e-3)
        assert abs(weights @ solution.weights - 1.0) <= 1e-12 and np.all(solution.weights >= 0)


def test_a_norm_of_any_order_bounds_the_weights():
    envelope = pr.Envelope(nothing, norm_bound=1.3, order=3.0)
    for losses, weights in samples():
        solution = envelope.solve(losses, weights)
        assert solution.status.ok and (weights @ solution.weights**3) ** (1 / 3) <= 1.3 + 1e-6


def test_an_envelope_is_assessed_in_a_batch_and_as_a_part_of_a_mixture():
    envelope, closed = CASES["tail"]
    rows = np.stack([losses for losses, _ in samples()])
    equal = np.full(DRAWS, 1.0 / DRAWS)
    for risk, reference in ((envelope, closed), (0.5 * pr.Expectation() + 0.5 * envelope, None)):
        expected = assess_sample(0.5 * pr.Expectation() + 0.5 * closed if reference is None else closed, rows, equal)
        found = assess_sample(risk, rows, equal)
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-7)
        np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=1e-5)


def test_an_envelope_compiles_its_program_once():
    envelope = pr.Envelope(lambda xi, p: [xi <= 3.0])
    losses, _ = next(samples())
    before, first = program_of.cache_info().misses, envelope(losses).value
    for _ in range(20):
        losses = losses - 0.1 * envelope(losses).weights / DRAWS
    assert program_of.cache_info().misses == before + 1
    assert envelope(losses).value < first


CALLED_BACK = """
import jax, numpy as np
import prudent as pr
from prudent.arrays import in_float64
envelope = pr.Envelope(lambda xi, p: [xi <= 2.0])
losses = 1.0 + 1e-9 * np.arange(2000.0).reshape(4, 500)
weights = in_float64(jax.jit(lambda rows: envelope.densities(rows, np.full(rows.shape, 1 / 500))))(losses)
assert weights.dtype == "float64"
print(abs((weights * losses).mean(axis=1) - losses[:, 250:].mean(axis=1)).max() < 1e-13)
"""


def test_the_call_back_keeps_float64_on_every_thread(capsys):
    """Large arrays make JAX call back from a thread of its own, which does not know our flag."""
    exec(CALLED_BACK, {})
    assert capsys.readouterr().out.strip() == "True"


@pytest.mark.long
@pytest.mark.parametrize("flag", [False, True])
def test_the_call_back_keeps_float64_whatever_the_flag(flag):
    code = f"import jax\njax.config.update('jax_enable_x64', {flag})\n" + CALLED_BACK
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "True", done.stderr


def test_the_densities_inside_compiled_code_are_those_outside():
    """Of one risk for all rows, and of a risk a row where JAX maps over both."""
    random = np.random.default_rng(0)
    rows, weights, levels = random.normal(size=(3, 7)), random.dirichlet(np.ones(7), size=3), np.array([0.1, 0.5, 0.8])
    one = in_float64(jax.jit(lambda rows: pr.CVaR(0.5).densities(rows, weights)))(rows)
    np.testing.assert_array_equal(one, pr.CVaR(0.5).densities(rows, weights))
    risks = pr.CVaR(0.0)
    risks = tree_map(lambda leaf: levels, risks)
    each = in_float64(jax.jit(jax.vmap(lambda risk, row, own: risk.densities(row, own))))(risks, rows, weights)
    for level, row, own, found in zip(levels, rows, weights, each, strict=True):
        np.testing.assert_array_equal(found, pr.CVaR(level).densities(row, own))


def test_an_envelope_has_no_standard_error_and_hides_no_bad_loss():
    envelope, _ = CASES["tail"]
    losses, _ = next(samples())
    assert np.isnan(envelope.standard_error(losses))
    losses[3] = np.nan
    value, weights = assess_sample(envelope, losses, np.full(DRAWS, 1.0 / DRAWS))
    assert np.isnan(value) and np.all(np.isnan(weights))


@each_case
def test_a_sound_envelope_passes_its_check(name):
    check_envelope(CASES[name][0], DRAWS)
    check_envelope(0.5 * pr.CVaR(0.3) + 0.5 * CASES[name][0], DRAWS)


def force(mass):
    return lambda xi, p: [p @ xi == mass]


SOLID = {"impose": False}
REFUSED = {
    "mass 2": (pr.Envelope(force(2.0)), r"force mass 2;.*must be 1"),
    "mass at least 3": (pr.Envelope(lambda xi, p: [xi >= 3.0]), r"mass from 3 to inf.*must be 1"),
    "negative": (pr.Envelope(lambda xi, p: [xi[4] <= -1.0]), r"force xi <= -1 < 0 at draw 4"),
    "contradiction": (pr.Envelope(lambda xi, p: [xi <= 1.0, xi >= 2.0]), r"contradict each other"),
    "norm": (pr.Envelope(lambda xi, p: [xi[0] >= 6.0], norm_bound=1.1), r"norm_bound 1.1 .*too small.*raise it"),
    "together": (pr.Envelope(lambda xi, p: [xi <= 1.0, xi[0] == 0.0]), r"force mass from|together|force"),
    "not convex": (pr.Envelope(lambda xi, p: [cp.square(xi) >= 1.0]), r"rules of convexity.*convex"),
    "curved equality": (pr.Envelope(lambda xi, p: [p @ cp.square(xi) == 1.0]), r"equalities must be affine"),
    "no list": (pr.Envelope(lambda xi, p: xi <= 1.0), r"must be a list of cvxpy constraints"),
    "not constraints": (pr.Envelope(lambda xi, p: [True]), r"must be a list of cvxpy constraints"),
    "wrong shape": (
        pr.Envelope(lambda xi, p: [xi <= np.ones(3)]),
        r"constraints\(xi, probabilities\) fail for 12 draws",
    ),
    "no mass": (pr.Envelope(lambda xi, p: [xi >= 0, xi <= 4.0], **SOLID), r"not coherent: .*mass from .* to 4.*impose"),
    "unbounded": (pr.Envelope(lambda xi, p: [xi >= 0], **SOLID), r"mass from .* to inf.*impose=True"),
    "no sign": (pr.Envelope(lambda xi, p: [p @ xi == 1.0, xi <= 4.0], **SOLID), r"allow xi = -.* at draw 0.*xi >= 0"),
    "no sign, unbounded": (pr.Envelope(lambda xi, p: [p @ xi == 1.0], **SOLID), r"arbitrarily negative at draw 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_unsound_envelope_is_refused_with_the_reason(name):
    envelope, message = REFUSED[name]
    with pytest.raises(pr.InputError, match=message):
        check_envelope(pr.Mixture((pr.Expectation(), envelope), [0.5, 0.5]), DRAWS)


def test_an_envelope_that_is_not_feasible_says_so_in_its_status():
    solution = REFUSED["mass 2"][0].solve(np.arange(5.0))
    assert solution.status is pr.EnvelopeStatus.INFEASIBLE
    assert np.isnan(solution.value) and np.all(np.isnan(solution.weights))


def loose(xi, p):
    """Of mass 1, but down to -0.5: on the losses 0 to 9 the largest mean is 7.5, that of its densities 7."""
    return [p @ xi == 1.0, xi >= -0.5, xi <= 2.0]


def test_a_worst_weight_that_is_no_density_is_refused_not_cleaned():
    envelope = pr.Envelope(loose, impose=False)
    solution = envelope.solve(np.arange(10.0))
    assert solution.status is pr.EnvelopeStatus.NOT_A_DENSITY and not solution.status.usable
    assert np.isnan(solution.value) and np.all(np.isnan(solution.weights))
    assert solution.residual == pytest.approx(0.5, abs=1e-6)
    assert np.isnan(envelope(np.arange(10.0)).value)


def test_a_draw_that_the_check_beforehand_leaves_out_is_noticed_when_it_matters():
    """At 127 draws the check looks at every other one; number 1 alone may fall below 0."""

    def spared(xi, p):
        return [p @ xi == 1.0, xi >= -3.0 * (np.arange(p.size) == 1), xi <= 2.0]

    envelope = pr.Envelope(spared, impose=False)
    check_envelope(envelope, 127)
    losses = np.arange(127.0)
    assert envelope.solve(losses).status is pr.EnvelopeStatus.NOT_A_DENSITY
    # Where the worst density of the set is one, it is that of the densities.
    assert envelope.solve(np.where(losses == 1, 200.0, losses)).status.ok


@each_case
def test_a_sound_envelope_reports_how_far_it_was_from_a_density(name):
    losses, weights = next(samples())
    assert CASES[name][0].solve(losses, weights).residual < 1e-7


def test_without_cvxpy_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(pr.InputError, match=r'pip install "prudent\[convex\]"'):
        pr.Envelope(tail)
