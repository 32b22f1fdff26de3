"""Descent-ascent on the Lagrangian of an envelope, against Clarabel and the risks in closed form."""

import math

import cvxpy as cp
import numpy as np
import pytest

import prudent as pr
from prudent.risks.envelope import check_envelope
from prudent_studies.descent_ascent import DescentAscent

DRAWS = 12


def nothing(xi, p):
    return []


def semideviation(xi, p):
    zeta = cp.Variable(p.size, nonneg=True)
    return [xi == 1.0 + zeta - p @ zeta, zeta <= 0.8]


SETS = {
    "tail": ({"constraints": lambda xi, p: [xi <= 4.0]}, pr.CVaR(0.75)),
    "tail, whole": (
        {"constraints": lambda xi, p: [xi >= 0, p @ xi == 1.0, xi <= 4.0], "impose": False},
        pr.CVaR(0.75),
    ),
    "largest norm": ({"constraints": nothing, "norm_bound": 4.0, "order": math.inf}, pr.CVaR(0.75)),
    "norm of order 2": ({"constraints": nothing, "norm_bound": 1.3}, pr.ChiSquareBall(1.3**2 - 1.0)),
    "semideviation": ({"constraints": semideviation}, pr.MeanSemideviation(1.0, 0.8)),
}


def samples():
    for number in range(4):
        random = np.random.default_rng(number)
        weights = np.full(DRAWS, 1.0 / DRAWS) if number % 2 else random.dirichlet(2.0 * np.ones(DRAWS))
        yield 10.0**number * random.normal(size=DRAWS) + 5.0, weights


@pytest.mark.parametrize("name", SETS)
def test_descent_ascent_finds_the_closed_form(name):
    settings, closed = SETS[name]
    for losses, weights in samples():
        solution = pr.Envelope(**settings, solver=DescentAscent()).solve(losses, weights)
        expected = closed(losses, weights).value
        assert solution.status.ok, solution
        assert solution.gap <= 1e-5 * np.ptp(losses) and solution.residual <= 1e-5
        assert abs(solution.value - expected) <= 1e-3 * abs(expected)


def test_a_norm_of_any_order_has_clarabels_value():
    for losses, weights in samples():
        exact, plain = (
            pr.Envelope(nothing, norm_bound=1.3, order=3.0, solver=solver).solve(losses, weights)
            for solver in (pr.Clarabel(), DescentAscent())
        )
        assert plain.status.ok and abs(plain.value - exact.value) <= 1e-3 * np.ptp(losses)


def test_descent_ascent_says_when_it_stops_short():
    losses, weights = next(samples())
    envelope = pr.Envelope(semideviation, solver=DescentAscent(iterations=3))
    solution = envelope.solve(losses, weights)
    assert solution.status is pr.EnvelopeStatus.NOT_CONVERGED and not solution.status.ok
    assert np.isnan(envelope(losses, weights).value)


def test_a_worst_weight_that_is_no_density_is_refused():
    def loose(xi, p):
        return [p @ xi == 1.0, xi >= -0.5, xi <= 2.0]

    solution = pr.Envelope(loose, impose=False, solver=DescentAscent()).solve(np.arange(10.0))
    assert solution.status is pr.EnvelopeStatus.NOT_A_DENSITY and np.isnan(solution.value)


def test_a_draw_that_the_check_beforehand_leaves_out_is_noticed_when_it_matters():
    """At 127 draws the check looks at every other one; number 1 alone may fall below 0."""

    def spared(xi, p):
        return [p @ xi == 1.0, xi >= -3.0 * (np.arange(p.size) == 1), xi <= 2.0]

    envelope = pr.Envelope(spared, impose=False, solver=DescentAscent())
    check_envelope(envelope, 127)
    assert envelope.solve(np.arange(127.0)).status is pr.EnvelopeStatus.NOT_A_DENSITY


def test_variables_that_the_solver_would_get_wrong_are_refused():
    def constraints(xi, p):
        return [xi <= 2.0 + cp.Variable(nonpos=True)]

    with pytest.raises(pr.InputError, match=r"nonpos.*Clarabel"):
        pr.Envelope(constraints, solver=DescentAscent()).solve([1.0, 2.0, 3.0, 6.0])


@pytest.mark.parametrize(
    ("settings", "message"), [({"iterations": 0}, "iterations.*got 0"), ({"step": 1.5}, "got 1.5")]
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(pr.InputError, match=message):
        DescentAscent(**settings)
