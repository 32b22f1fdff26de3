"""Each risk in closed form against its envelope: the convex program `max sum p xi C`, solved by cvxpy."""

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import cvxpy as cp
import jax.numpy as jnp
import numpy as np
import pytest

import prudent as pr
from prudent.risks import LARGEST_PAIRWISE, assess_sample

WIDTHS = np.array([0.1, 0.2, 0.7])
ENDS = np.cumsum(WIDTHS)


class Dual(NamedTuple):
    """A risk at a level, and its envelope `(xi, p) -> constraints` written from the definition."""

    name: str
    build: Callable[[Any], pr.Risk]
    envelope: Callable[[float, Any, np.ndarray], list]
    largest: int = LARGEST_PAIRWISE + 1


def steps(level: Any) -> Any:
    """Heights over the widths 0.1, 0.2 and 0.7 that integrate to 1, steeper with the level."""
    heights = 1.0 + level * np.array([5.0, 1.0, 0.0])
    return heights / (heights * WIDTHS).sum()


def semideviation(order: float) -> Callable[[float, Any, np.ndarray], list]:
    def envelope(level: float, xi: Any, p: np.ndarray) -> list:
        zeta = cp.Variable(p.size, nonneg=True)
        conjugate = order / (order - 1.0) if order > 1 else np.inf
        norm = cp.pnorm(cp.multiply(p ** (1.0 / conjugate), zeta), conjugate) if order > 1 else cp.max(zeta)
        return [xi == 1.0 + zeta - p @ zeta, norm <= level]

    return envelope


def spectral(level: float, xi: Any, p: np.ndarray) -> list:
    """One density a step, each at most the drop of the spectrum there."""
    heights = steps(level)
    drops = heights - np.append(heights[1:], 0.0)
    parts = cp.Variable((3, p.size), nonneg=True)
    return [xi == cp.sum(parts, axis=0), parts <= drops[:, None] * np.ones((1, p.size)), parts @ p == drops * ENDS]


def distortion(level: float, xi: Any, p: np.ndarray) -> list:
    """The core: no set of draws weighs more than the distortion of its probability."""
    sets = np.array(list(itertools.product([0.0, 1.0], repeat=p.size)))
    return [(sets * p) @ xi <= np.sqrt(np.minimum(sets @ p, 1.0))]


def entropy(radius: float, xi: Any, p: np.ndarray) -> list:
    return [cp.sum(cp.multiply(p, -cp.entr(xi))) <= radius]


def mixture(level: float, xi: Any, p: np.ndarray) -> list:
    cvar, ball = cp.Variable(p.size, nonneg=True), cp.Variable(p.size, nonneg=True)
    inside = [p @ cvar == 1.0, cvar <= 1.0 / (1.0 - level), p @ ball == 1.0, p @ cp.square(ball - 1.0) <= 2.0 * level]
    return [*inside, xi == 0.2 + 0.5 * cvar + 0.3 * ball]


DUALS = (
    Dual("cvar", pr.CVaR, lambda level, xi, p: [xi <= 1.0 / (1.0 - level)]),
    Dual("worst_case", lambda level: pr.WorstCase(), lambda level, xi, p: []),
    Dual("semideviation_1", lambda level: pr.MeanSemideviation(1.0, level), semideviation(1.0)),
    Dual("semideviation_2", lambda level: pr.MeanSemideviation(2.0, level), semideviation(2.0)),
    Dual("semideviation_3", lambda level: pr.MeanSemideviation(3.0, level), semideviation(3.0)),
    Dual("spectral", lambda level: pr.Spectral(steps(level), WIDTHS), spectral),
    Dual("distortion", lambda level: pr.Distortion(jnp.sqrt), distortion, largest=8),
    Dual("entropic_var", pr.EntropicVaR, lambda level, xi, p: entropy(-np.log(1.0 - level), xi, p)),
    Dual(
        "kullback_leibler",
        lambda level: pr.KullbackLeiblerBall(0.5 * level),
        lambda level, xi, p: entropy(0.5 * level, xi, p),
    ),
    Dual(
        "chi_square",
        lambda level: pr.ChiSquareBall(2.0 * level),
        lambda level, xi, p: [p @ cp.square(xi - 1.0) <= 2.0 * level],
    ),
    Dual("total_variation", pr.TotalVariationBall, lambda level, xi, p: [p @ cp.abs(xi - 1.0) / 2.0 <= level]),
    Dual(
        "quantile_deviation",
        lambda level: pr.QuantileDeviation(level, 0.9),
        lambda level, xi, p: [xi >= 1.0 - 0.9 * (1.0 - level), xi <= 1.0 + 0.9 * level],
    ),
    Dual(
        "mixture",
        lambda level: pr.Mixture((pr.Expectation(), pr.CVaR(level), pr.ChiSquareBall(2.0 * level)), [0.2, 0.5, 0.3]),
        mixture,
    ),
)
each_dual = pytest.mark.parametrize("dual", DUALS, ids=lambda dual: dual.name)


class Group(NamedTuple):
    """Samples that share weights (equal, unequal or partly 0) and a level, and so one compiled program."""

    level: float
    weights: np.ndarray
    losses: np.ndarray


@functools.cache
def groups(largest: int) -> list[Group]:
    """20 groups of 10 samples: 200 for each risk, on both sides of the switch from pairs to sorting."""
    made = []
    for number in range(20):
        rng = np.random.default_rng(number)
        size = largest if number >= 18 else (5, 8)[number % 2]
        weights = np.full(size, 1.0 / size) if number % 3 == 0 else rng.dirichlet(np.ones(size))
        if number % 3 == 1:
            weights[: size // 3 + 1] = 0.0
            weights /= weights.sum()
        losses = rng.normal(size=(10, size)) * 10.0 ** rng.integers(-2, 3, size=(10, 1))
        losses[::4] = rng.integers(0, 4, size=losses[::4].shape)
        made.append(Group(float(rng.uniform(0.05, 0.95)), weights, losses))
    return made


def program(dual: Dual, group: Group) -> tuple[Any, Any, np.ndarray]:
    carried = group.weights > 0
    p = group.weights[carried]
    xi, losses = cp.Variable(p.size, nonneg=True), cp.Parameter(p.size)
    return cp.Problem(cp.Maximize(losses @ xi), [p @ xi == 1.0, *dual.envelope(group.level, xi, p)]), losses, carried


def closed_form_solves_the_convex_program(dual, groups):
    for group in groups:
        values, densities = assess_sample(dual.build(group.level), group.losses, group.weights)
        problem, parameter, carried = program(dual, group)
        assert np.all(densities >= 0)
        np.testing.assert_allclose(densities @ group.weights, 1.0, rtol=0, atol=1e-9)
        for losses, value, density in zip(group.losses, values, densities, strict=True):
            scale = np.ptp(losses[carried]) or 1.0
            parameter.value = (group.weights * (losses - losses.mean()))[carried] / scale
            problem.solve(cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
            assert abs(problem.value * scale + losses.mean() - value) <= 1e-6 * max(scale, np.abs(losses).max())
            np.testing.assert_allclose((group.weights * density) @ losses, value, rtol=1e-9, atol=1e-9)


# The program is asked for more digits than it always has; what it found is compared all the same.
inaccurate = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")


@inaccurate
@each_dual
def test_the_closed_form_solves_the_convex_program(dual):
    """A few samples of weights that are equal, partly 0, and unequal, on both sides of the switch."""
    few = [group._replace(losses=group.losses[:3]) for group in groups(dual.largest)]
    closed_form_solves_the_convex_program(dual, [few[0], few[1], few[2], few[18]])


@pytest.mark.long
@inaccurate
@each_dual
def test_the_closed_form_solves_two_hundred_convex_programs(dual):
    closed_form_solves_the_convex_program(dual, groups(dual.largest))


@each_dual
def test_the_weights_lie_in_the_envelope(dual):
    """Checked as a program with xi fixed: auxiliary variables must exist that prove it, up to a small slack."""
    group = groups(dual.largest)[5]
    carried = group.weights > 0
    p = group.weights[carried]
    for losses in group.losses[:5]:
        density = dual.build(group.level)(losses, group.weights).weights[carried]
        xi = cp.Variable(p.size, nonneg=True)
        distance = cp.Problem(
            cp.Minimize(cp.max(cp.abs(xi - density))), [p @ xi == 1, *dual.envelope(group.level, xi, p)]
        )
        assert distance.solve(cp.CLARABEL) <= 1e-6


def test_a_distortion_made_of_steps_is_the_spectral_risk():
    rng = np.random.default_rng(3)
    drops = steps(0.6) - np.append(steps(0.6)[1:], 0.0)
    distorted = pr.Distortion(lambda t: (drops * jnp.minimum(t[..., None], ENDS)).sum(axis=-1))
    for size in (9, LARGEST_PAIRWISE + 20):
        losses, weights = rng.normal(size=size), rng.dirichlet(np.ones(size))
        losses[:4] = 0.5
        ours, theirs = distorted(losses, weights), pr.Spectral(steps(0.6), WIDTHS)(losses, weights)
        np.testing.assert_allclose(ours.value, theirs.value, rtol=0, atol=1e-12)
        np.testing.assert_allclose(ours.weights, theirs.weights, rtol=0, atol=1e-9)


@pytest.mark.parametrize("size", [6, LARGEST_PAIRWISE + 6])
@pytest.mark.parametrize("build", [pr.KullbackLeiblerBall, pr.ChiSquareBall], ids=["kullback_leibler", "chi_square"])
def test_a_ball_that_holds_the_worst_case_is_the_worst_case(build, size):
    rng = np.random.default_rng(1)
    losses, weights = rng.normal(size=size), rng.dirichlet(np.ones(size))
    losses[[0, 3]] = 3.0
    top = weights[[0, 3]].sum()
    edge = -np.log(top) if build is pr.KullbackLeiblerBall else 1.0 / top - 1.0
    for radius in (edge, 1.01 * edge, 100.0 * edge):
        result = build(radius)(losses, weights)
        np.testing.assert_allclose(result.weights, pr.WorstCase()(losses, weights).weights, rtol=0, atol=1e-6)
        assert np.isnan(build(1.01 * edge).standard_error(losses, weights))
    assert build(0.9 * edge)(losses, weights).value < 3.0 - 1e-4
    assert build(1.01 * edge).standard_error(np.ones(size), weights) == 0.0


@each_dual
def test_equal_losses_are_worth_what_they_are(dual):
    for value in (0.0, 3.0, -1e-300, 1e8 + 0.1):
        result = dual.build(0.6)(np.full(7, value), np.array([0.1, 0.0, 0.2, 0.3, 0.0, 0.1, 0.3]))
        assert result.value == pytest.approx(value, rel=1e-14, abs=1e-14)
