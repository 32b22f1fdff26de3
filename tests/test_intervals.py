"""Confidence intervals of a risk: how often they hold the truth, and that none has no width by accident."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from scipy import optimize, special, stats

import prudent as pr
from prudent.evaluation import judged
from prudent.posteriors import equally_weighted
from prudent.risks import effective_draws

from .marks import short

RADIUS = -np.log(0.1)  # of the entropic value at risk of level 0.9


class Population(NamedTuple):
    """A distribution of losses: draws, and by arithmetic of its own the CVaR and the entropic value at risk."""

    draw: Callable[[np.random.Generator, tuple], np.ndarray]
    cvar: Callable[[float], float]
    entropic: float | None = None


def beta(a: float, b: float) -> Population:
    mean = a / (a + b)
    entropic = optimize.minimize_scalar(
        lambda s: (RADIUS + np.log(special.hyp1f1(a, a + b, s))) / s, bounds=(1.0, 500.0), method="bounded"
    )
    return Population(
        lambda rng, shape: rng.beta(a, b, size=shape),
        lambda level: mean * stats.beta(a + 1, b).sf(stats.beta(a, b).ppf(level)) / (1.0 - level),
        entropic.fun,
    )


def lognormal(sigma: float) -> Population:
    return Population(
        lambda rng, shape: np.exp(sigma * rng.normal(size=shape)),
        lambda level: np.exp(sigma**2 / 2) * stats.norm.sf(stats.norm.ppf(level) - sigma) / (1.0 - level),
    )


def lake() -> Population:
    """A frozen lake under a Beta posterior: the distribution is that of 200,000 draws, from which samples are taken."""
    family = pr.envs.frozen_lake("SF\nHG")
    belief = family.prior.update(family.trials(n=10, truth=(0.3, 0.1), seed=0))
    policy = pr.plan(family.at((0.3, 0.1))).policy
    pool = np.sort(pr.evaluate(policy, family, belief, samples=200_000).losses)

    def cvar(level: float) -> float:
        return pool[int(np.round(level * pool.size)) :].mean()

    scale = np.ptp(pool)
    entropic = optimize.minimize_scalar(
        lambda s: (RADIUS + np.log(np.mean(np.exp(s * (pool - pool[-1]) / scale)))) / s,
        bounds=(0.1, 1000.0),
        method="bounded",
    )
    return Population(
        lambda rng, shape: pool[rng.integers(pool.size, size=shape)], cvar, pool[-1] + scale * entropic.fun
    )


POPULATIONS = {
    "normal": lambda: Population(
        lambda rng, shape: rng.normal(size=shape),
        lambda level: stats.norm.pdf(stats.norm.ppf(level)) / (1.0 - level),
        np.sqrt(2.0 * RADIUS),
    ),
    "exponential": lambda: Population(
        lambda rng, shape: rng.exponential(size=shape), lambda level: 1.0 - np.log(1.0 - level)
    ),
    "skewed": lambda: lognormal(0.5),
    "very skewed": lambda: lognormal(1.0),
    "bounded": lambda: beta(2.0, 5.0),
    "bounded, bad": lambda: beta(5.0, 2.0),
    "lake": lake,
}


def truth(population: Population, risk: pr.Risk) -> float:
    if isinstance(risk, pr.EntropicVaR):
        assert population.entropic is not None and risk.level == 0.9
        return population.entropic
    return population.cvar(float(risk.level) if isinstance(risk, pr.CVaR) else 0.0)


def covered(name: str, risk: pr.Risk, draws: int, runs: int, seed: int = 0) -> float:
    population, rng = POPULATIONS[name](), np.random.default_rng([seed, draws])
    wanted = truth(population, risk)
    ends = np.array([risk.interval(population.draw(rng, (draws,))) for _ in range(runs)])
    assert np.all(ends[:, 0] < ends[:, 1])
    return float(np.mean((ends[:, 0] <= wanted) & (wanted <= ends[:, 1])))


# Of 300 runs at a coverage of 0.95, one in a thousand tables falls outside these.
FEW, MANY = 0.91, 0.985

# One length for all, so that each kind of risk is compiled once.
DRAWS = 1000


@pytest.mark.parametrize("name", short(["skewed"], ["skewed", "bounded, bad"]))
@pytest.mark.parametrize("risk", [pr.Expectation(), pr.CVaR(0.5), pr.CVaR(0.9)], ids=["mean", "half", "tenth"])
def test_a_tail_of_a_hundred_draws_is_covered(name, risk):
    assert FEW <= covered(name, risk, DRAWS, 300) <= MANY


@pytest.mark.long
@pytest.mark.parametrize("name", short(["bounded"], ["bounded", "bounded, bad"]))
def test_an_entropic_tail_is_covered(name):
    """It rests on 36 and 60 draws in effect."""
    assert covered(name, pr.EntropicVaR(0.9), DRAWS, 300) >= FEW


@pytest.mark.parametrize("name", short(["very skewed"], ["skewed", "very skewed", "bounded"]))
@pytest.mark.parametrize("level", [0.99, 0.997], ids=["ten", "three"])
def test_a_tail_of_few_draws_is_covered_by_a_wider_interval(name, level):
    """Where the value plus and minus two standard errors covers 83 to 90 of 100, or fewer."""
    assert covered(name, pr.CVaR(level), DRAWS, 300) >= 0.925


@pytest.mark.long
@pytest.mark.parametrize("name", POPULATIONS)
@pytest.mark.parametrize(
    ("risk", "draws"),
    [
        (pr.Expectation(), 1000),
        (pr.CVaR(0.5), 1000),
        (pr.CVaR(0.9), 1000),
        (pr.CVaR(0.99), 10_000),
        (pr.CVaR(0.999), 100_000),
        (pr.EntropicVaR(0.9), 10_000),
    ],
    ids=["mean", "half", "tenth", "hundredth", "thousandth", "entropic"],
)
def test_coverage_is_as_stated(name, risk, draws):
    if isinstance(risk, pr.EntropicVaR) and POPULATIONS[name]().entropic is None:
        pytest.skip("this distribution has no entropic value at risk, or its estimate no variance")
    found = covered(name, risk, draws, 2000 if draws < 100_000 else 300)
    assert 0.93 <= found <= (0.975 if draws < 100_000 else MANY), found


# ---------------------------------------------------------------- differences


def pairs(rng: np.random.Generator, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """A policy's losses, and the least losses if theta were known: below them by an amount that is often 0."""
    noise = rng.normal(size=draws)
    least = np.exp(0.5 * noise)
    return least + np.maximum(rng.normal(size=draws) - 0.5 + 0.3 * noise, 0.0), least


@pytest.mark.parametrize(
    "risk", [pytest.param(pr.Expectation(), marks=pytest.mark.long), pr.CVaR(0.9)], ids=["mean", "tenth"]
)
def test_the_difference_of_two_risks_at_the_same_draws_is_covered(risk):
    tail = 4_000_000 if isinstance(risk, pr.Expectation) else 400_000
    wanted = np.subtract(*(np.sort(losses)[-tail:].mean() for losses in pairs(np.random.default_rng(0), 4_000_000)))
    rng = np.random.default_rng(1)
    ends = np.array([risk.difference_interval(*pairs(rng, DRAWS), confidence=0.9) for _ in range(300)])
    assert 0.86 <= np.mean((ends[:, 0] <= wanted) & (wanted <= ends[:, 1])) <= 0.95
    assert np.mean(wanted <= ends[:, 1]) >= 0.93  # one-sided, 95 %
    apart = np.array([risk.interval(pairs(rng, DRAWS)[0]) for _ in range(20)])
    assert np.mean(np.diff(ends)) < 0.7 * np.mean(np.diff(apart))


def test_a_difference_takes_draws_as_they_are_paired():
    losses = np.random.default_rng(0).normal(size=DRAWS)
    low, high = pr.CVaR(0.8).difference_interval(losses, losses[::-1].copy())
    assert low < 0.0 < high and high - low > 0.1
    low, high = pr.CVaR(0.8).difference_interval(losses, 2.0 * losses)
    value, (below, above) = float(pr.CVaR(0.8)(losses).value), pr.CVaR(0.8).interval(losses)
    # Of a single risk the lower end is further away, by the root of the draws in the tail.
    below = value - (value - below) / (1.0 + 0.5 / np.sqrt(0.2 * DRAWS))
    np.testing.assert_allclose([low, high], [-above, -below], rtol=1e-9)


@pytest.mark.parametrize("shape", short([(1.0, 0.5)], [(5.0, 0.5), (1.0, 0.5), (1.0, 1.0)]))
def test_losses_that_pile_up_at_their_maximum_are_covered(shape):
    """A hundred draws in the tail."""
    law = stats.beta(*shape)
    wanted = float(law.ppf(np.linspace(0.9, 1.0, 2_000_001)[:-1] + 2.5e-8).mean())
    ends = np.array([pr.CVaR(0.9).interval(row) for row in law.rvs(size=(600, 1000), random_state=5)])
    assert np.mean((ends[:, 0] <= wanted) & (wanted <= ends[:, 1])) >= 0.93


def test_equal_losses_at_every_draw_leave_room_for_what_was_not_drawn():
    losses = np.random.default_rng(0).uniform(size=DRAWS)
    low, high = pr.CVaR(0.9).difference_interval(losses, losses, confidence=0.9)
    assert high == -low == pytest.approx(-np.log(0.05) * 0.01 * np.ptp(losses))
    assert np.all(np.isnan(pr.CVaR(0.999).difference_interval(losses, losses)))


@pytest.mark.parametrize("risk", [pr.Expectation(), pr.CVaR(0.8)], ids=["mean", "fifth"])
def test_draws_from_draws_carry_the_error_of_both(risk):
    """A posterior that is itself 400 draws, such as a chain's: drawn from a thousand times, it is known no better."""
    rng, known = np.random.default_rng(0), truth(POPULATIONS["normal"](), risk)
    held, alone = 0, 0
    for _ in range(300):
        losses = rng.choice(rng.normal(size=400), size=DRAWS)
        for behind in (400.0, np.inf):
            low, high = judged(risk, losses, equally_weighted(np.zeros(DRAWS), behind)).interval
            held, alone = held + (low <= known <= high) * np.isfinite(behind), alone + (low <= known <= high)
    alone -= held
    assert FEW <= held / 300 <= MANY
    assert alone / 300 <= 0.8


def test_a_tail_that_few_draws_are_behind_has_no_interval():
    losses = np.random.default_rng(0).normal(size=DRAWS)
    assert np.all(np.isfinite(judged(pr.CVaR(0.99), losses, equally_weighted(np.zeros(DRAWS), 400.0)).interval))
    assert np.all(np.isnan(judged(pr.CVaR(0.99), losses, equally_weighted(np.zeros(DRAWS), 200.0)).interval))


# ---------------------------------------------------------------- never zero by accident


def test_a_tail_of_fewer_than_three_draws_has_no_interval():
    losses = np.random.default_rng(0).normal(size=DRAWS)
    assert np.all(np.isnan(pr.CVaR(0.999).interval(losses)))
    assert np.all(np.isnan(pr.CVaR(0.999).interval(np.ones(DRAWS))))  # a constant sample tells nothing of such a tail
    assert np.all(np.isfinite(pr.CVaR(0.9965).interval(losses)))
    assert np.all(np.isnan(pr.Expectation().interval([1.0])))
    assert pr.CVaR(0.999).standard_error(losses) > 0.1


@pytest.mark.parametrize("noise", [0.0, 1e-12])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_ties_at_the_top_leave_room_for_what_was_not_drawn(level, noise):
    rng = np.random.default_rng(0)
    losses = np.minimum(rng.uniform(size=DRAWS), 0.4) + noise * rng.uniform(size=DRAWS)
    low, high = pr.CVaR(level).interval(losses)
    assert high - low == pytest.approx(2.0 * -np.log(0.025) / (DRAWS * (1.0 - level)) * 0.4, rel=0.01)
    assert low < 0.4 < high


def test_a_constant_sample_of_enough_draws_is_itself():
    np.testing.assert_allclose(pr.CVaR(0.9).interval(np.full(DRAWS, 3.0)), 3.0, rtol=1e-14)


@pytest.mark.parametrize(
    "risk",
    [pr.WorstCase(), pr.TotalVariationBall(0.1), pr.Envelope(lambda xi, p: [xi <= 2.0]), pr.KullbackLeiblerBall(4.0)],
    ids=lambda risk: type(risk).__name__,
)
def test_where_there_is_no_standard_error_there_is_no_interval(risk):
    losses = np.random.default_rng(3).normal(size=30)
    assert np.all(np.isnan(risk.interval(losses)))
    assert np.all(np.isnan(risk.difference_interval(losses, 2.0 * losses)))


@pytest.mark.parametrize("factor", [1e-290, 1e-12, 1e12, 1e290])
def test_an_interval_scales_with_the_losses(factor):
    losses = np.random.default_rng(3).gamma(2.0, size=DRAWS)
    for risk in (pr.Expectation(), pr.CVaR(0.9), pr.EntropicVaR(0.5)):
        plain, scaled = risk.interval(losses), risk.interval(factor * losses)
        np.testing.assert_allclose(np.array(scaled) / factor, plain, rtol=1e-9)
        assert risk.standard_error(factor * losses) / factor == pytest.approx(risk.standard_error(losses), rel=1e-9)


def test_weights_of_draws_count_as_importance_weights():
    """Draws from a uniform distribution, weighed so as to stand for a triangular one of mean 2 / 3."""
    rng, held = np.random.default_rng(0), 0
    for _ in range(300):
        draws = rng.uniform(size=DRAWS)
        low, high = pr.Expectation().interval(draws, draws / draws.sum())
        held += low <= 2.0 / 3.0 <= high
    assert FEW <= held / 300 <= MANY


@pytest.mark.parametrize(
    ("weights", "probabilities", "count"),
    [
        (np.ones(50), None, 50.0),
        ([0.0, 0.0, 5.0], None, 1.0),
        ([1.0, 1.0], [0.9, 0.1], 1.0 / 0.82),
        ([1e-200, 1e-200], [0.5, 0.5], 2.0),
    ],
)
def test_effective_draws_are_counted(weights, probabilities, count):
    assert effective_draws(weights, probabilities) == pytest.approx(count, rel=1e-12)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95, "high"])
def test_a_confidence_that_is_none_is_refused(confidence):
    with pytest.raises(pr.InputError, match=r"confidence must (lie|be one number) in \(0, 1\), got"):
        pr.CVaR(0.5).interval([1.0, 2.0, 3.0, 4.0], confidence=confidence)


def test_a_difference_of_unequal_samples_is_refused():
    with pytest.raises(pr.InputError, match="got 3 and 4"):
        pr.CVaR(0.5).difference_interval(np.ones(3), np.ones(4))
