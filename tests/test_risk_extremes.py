"""Risks where numbers are hard: ties to rounding, tiny weights, extreme scales and shifts, one draw."""

import functools
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest

import prudent as pr
from prudent.risks import assess_each
from prudent.solvers.draws import stacked

from .catalogue import PERCENTILE, RISKS
from .marks import short

CASES = (*RISKS, PERCENTILE)
NAMES = [case.name for case in CASES]
LEVELS = np.array([0.0, 1e-6, 0.3, 0.83, 0.999])

# One draw, pairs that are compared, and many that are sorted; a sample of each has no more than two of positive weight.
SIZES = (1, 12, 70)


@functools.cache
def every_risk() -> Any:
    """Values and weights of every risk of the table for rows of (level, losses, weights of the draws)."""

    def every(levels, losses, weights):
        found = [assess_each(stacked([case.build(level) for level in levels]), losses, weights) for case in CASES]
        values, densities = zip(*found, strict=True)
        return np.stack(values, axis=1), np.stack(densities, axis=1)

    return every


def samples(size: int, number: int) -> list[np.ndarray]:
    """Losses of every hard kind, of an ordinary size."""
    rng = np.random.default_rng([size, number])
    plain, some = rng.normal(size=size), rng.integers(1, size + 1)
    tied, near = plain.copy(), plain.copy()
    tied[:some] = plain.max() * (1.0 + 2.3e-16 * rng.integers(0, 4, some))
    near[:some] = plain.max() - 10.0 ** rng.uniform(-16, -6, some)
    far, deep = plain.copy(), plain.copy()
    far[0], deep[0] = 1e12, -1e12
    flat = np.full(size, plain[0])
    return [plain, tied, near, far, deep, flat, flat * (1.0 + 2.3e-16 * rng.integers(0, 3, size)), plain + 1e6]


def weighings(size: int, number: int) -> list[np.ndarray]:
    """Weights: equal, unequal, some 0, all but two 0, some of 1e-17, some down to 1e-290."""
    rng = np.random.default_rng([size, number, 1])
    unequal, half = rng.dirichlet(np.ones(size)), rng.permutation(size)[: size // 2]
    made = [np.full(size, 1.0 / size), unequal]
    made.append(np.where(np.arange(size) < 2, unequal, 0.0))
    for low in (0.0, 1e-17, 10.0 ** rng.uniform(-290, -3, half.size)):
        made.append(unequal.copy())
        made[-1][half] = low
    return [each / each.sum() for each in made]


@functools.cache
def hard(size: int) -> tuple[np.ndarray, ...]:
    """Rows of levels, losses and weights: all combinations, twice."""
    rows = [
        (level, losses, weights)
        for number in range(2)
        for losses in samples(size, number)
        for weights in weighings(size, number)
        for level in LEVELS
    ]
    return tuple(np.array(part) for part in zip(*rows, strict=True))


def assert_small(errors: np.ndarray, bound: Any) -> None:
    """Which risk breaks a law most, if one does."""
    assert not np.isnan(errors).any(), [NAMES[k] for k in np.flatnonzero(np.isnan(errors).any(axis=0))]
    broken = errors > bound
    assert not broken.any(), {NAMES[k]: float(errors[:, k].max()) for k in np.flatnonzero(broken.any(axis=0))}


def carried(losses: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The least and the largest loss of positive weight, and the largest in size, one a row."""
    least = np.where(weights > 0, losses, np.inf).min(axis=1, keepdims=True)
    most = np.where(weights > 0, losses, -np.inf).max(axis=1, keepdims=True)
    return least, most, np.maximum(np.abs(least), np.abs(most))


@pytest.mark.parametrize("size", short([70], SIZES))
def test_hard_samples_have_a_value_between_their_losses_and_weights_of_mass_one(size):
    levels, losses, weights = hard(size)
    values, densities = every_risk()(levels, losses, weights)
    least, most, largest = carried(losses, weights)
    assert_small(-densities.min(axis=2), 0.0)
    assert_small(np.abs((weights[:, None] * densities).sum(axis=2) - 1.0), 1e-12)
    assert_small(np.maximum(values - most, least - values) / largest, 1e-13)
    coherent = values[:, : len(RISKS)] - (weights * losses).sum(axis=1, keepdims=True)
    assert_small(-coherent / largest, 1e-12)


@pytest.mark.parametrize("size", short([12, 70], SIZES))
def test_hard_samples_scale_and_shift(size):
    levels, losses, weights = hard(size)
    values, _ = every_risk()(levels, losses, weights)
    least, most, largest = carried(losses, weights)
    for scale in (1e-280, 1e280):
        scaled, _ = every_risk()(levels, scale * losses, weights)
        assert_small(np.abs(scaled / scale - values) / largest, 1e-12)
    for share in (-1e6, 1.0, 1e6):
        shift = share * (most - least)
        moved, _ = every_risk()(levels, losses + shift, weights)
        # Adding the shift rounds the losses themselves.
        assert_small(np.abs(moved - shift - values) / (largest + np.abs(shift)), 1e-12)


@pytest.mark.parametrize("size", short([12, 70], SIZES))
@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_plain_samples_scale_as_far_as_numbers_go(size, scale):
    """Near ties and the smallest weights have no numbers left there."""
    rows = len(hard(size)[0])
    rng = np.random.default_rng(size)
    losses, weights = rng.normal(size=(rows, size)), rng.dirichlet(np.ones(size), size=rows)
    levels = np.resize(LEVELS, rows)
    values, scaled = (every_risk()(levels, factor * losses, weights)[0] for factor in (1.0, scale))
    assert_small(np.abs(scaled / scale - values), 1e-12)


# ---------------------------------------------------------------- balls against other arithmetic


def ball_sample(size: int, number: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Ties to rounding, near ties, extreme scales, many magnitudes, tiny weights."""
    rng = np.random.default_rng([size, number, 2])
    losses, some = rng.normal(size=size), rng.integers(1, size + 1)
    if number % 6 == 0:
        losses[:some] = losses.max() * (1.0 + 2.3e-16 * rng.integers(0, 4, some))
    elif number % 6 == 1:
        losses[:some] = losses.max() + 10.0 ** rng.uniform(-16, -6, some) * rng.integers(0, 2, some)
    elif number % 6 == 2:
        losses[:some] = losses.max() - 10.0 ** rng.uniform(-15, -1, some)
    elif number % 6 == 3:
        losses = losses * 10.0 ** rng.uniform(-290, 290)
    elif number % 6 == 4:
        losses = 10.0 ** rng.uniform(-10, 10, size)
    weights = rng.dirichlet(np.ones(size)) if number % 2 else np.full(size, 1.0 / size)
    if number % 5 == 0:
        weights = weights * 10.0 ** rng.uniform(-30, 0, size)
    elif number % 5 == 1:
        weights = np.where(rng.uniform(size=size) < 0.5, 1e-17, weights)
    elif number % 5 == 2:
        weights = weights * 10.0 ** rng.uniform(-250, 0, size)
    return losses, weights / weights.sum(), rng


def chosen_radius(rng: np.random.Generator, limit: float) -> float:
    """Small, large, within the sample's limit, or at its edge."""
    choices = (10.0 ** rng.uniform(-12, 1), limit * rng.uniform(), limit * (1.0 - 10.0 ** rng.uniform(-14, -2)), 1e-20)
    return max(0.0, float(choices[rng.integers(4)]))


def tilted_mean(losses: np.ndarray, weights: np.ndarray, radius: float) -> float:
    """The worst mean in a Kullback-Leibler ball, by bisection in extended precision."""
    p, x = weights[weights > 0].astype(np.longdouble), losses[weights > 0].astype(np.longdouble)
    p = p / p.sum()
    top, width = x.max(), x.max() - x.min()
    if radius == 0:
        return float(top + (p * (x - top)).sum())
    if width == 0 or radius >= -np.log(p[x == top].sum()):
        return float(top)
    y = (x - top) / width

    def at(log_tilt: np.longdouble) -> tuple[np.longdouble, np.longdouble]:
        logs = np.exp(log_tilt) * y
        logs = logs - np.log((p * np.exp(logs)).sum())
        xi = np.exp(logs)
        divergence = (p * (xi * logs - (np.expm1(logs) if log_tilt < 0 else 0.0))).sum()
        return divergence, top + width * (p * xi * y).sum()

    low, high = np.log(np.longdouble(8.0 * radius)) / 2 - 1, np.log(np.longdouble(1e24))
    for _ in range(120):
        middle = (low + high) / 2
        low, high = (middle, high) if at(middle)[0] < radius else (low, middle)
    return float(at(low)[1])


def squared_mean(losses: np.ndarray, weights: np.ndarray, radius: float) -> float:
    """The worst mean in a chi-square ball, by the active draws, in 600 digits."""
    with localcontext() as context:
        context.prec = 600
        x, p = ([Decimal(float(each)) for each in part[weights > 0]] for part in (losses, weights))
        total = sum(p)
        pairs, bound = [(loss, weight / total) for loss, weight in zip(x, p, strict=True)], 1 + Decimal(radius)

        def active(low: Decimal) -> bool:
            first = sum(weight * (loss - low) for loss, weight in pairs if loss > low)
            second = sum(weight * (loss - low) ** 2 for loss, weight in pairs if loss > low)
            return low == max(x) or second > bound * first**2

        pairs_in = [pair for pair in pairs if active(pair[0])]
        mass = sum(weight for _, weight in pairs_in)
        mean = sum(loss * weight for loss, weight in pairs_in) / mass
        variance = sum(weight * (loss - mean) ** 2 for loss, weight in pairs_in) / mass
        return float(mean + (max(Decimal(0), mass * bound - 1) * variance).sqrt())


BALLS = {
    "kullback_leibler": (pr.KullbackLeiblerBall, tilted_mean, lambda top: -np.log(top)),
    "chi_square": (pr.ChiSquareBall, squared_mean, lambda top: 1.0 / top - 1.0),
}


@pytest.mark.parametrize("name", BALLS)
@pytest.mark.parametrize("sizes", short([(8, 60), (70, 12)], [(8, 60), (70, 12), (2, 120), (8, 300), (70, 60)]))
def test_balls_are_right_on_hard_samples(name, sizes):
    size, count = sizes
    build, reference, limit = BALLS[name]
    rows = []
    for number in range(count):
        losses, weights, rng = ball_sample(size, number)
        rows.append((chosen_radius(rng, limit(weights[losses == losses.max()].sum())), losses, weights))
    columns = [np.array(part) for part in zip(*rows, strict=True)]
    radii, *samples = columns
    values, _ = assess_each(stacked([build(radius) for radius in radii]), *samples)
    assert not np.isnan(values).any()
    for value, (radius, losses, weights) in zip(values, rows, strict=True):
        spread, largest = np.ptp(losses[weights > 0]), np.abs(losses[weights > 0]).max()
        assert abs(value - reference(losses, weights, radius)) <= 2e-13 * spread + 1e-15 * largest


@pytest.mark.parametrize("risk", [pr.ChiSquareBall(0.0), pr.CVaR(0.0)], ids=["ball", "tail"])
def test_weights_off_one_by_what_the_check_lets_through_change_nothing(risk):
    rng = np.random.default_rng(0)
    losses, weights = rng.normal(size=12), rng.dirichlet(np.ones(12))
    for off in (1.0, 1.0 + 9e-9, 1.0 - 9e-9):
        value, density = risk(losses, off * weights)
        assert value == pytest.approx(weights @ losses, abs=1e-15)
        np.testing.assert_allclose(density, 1.0, rtol=1e-12)


# ---------------------------------------------------------------- weights of draws


def test_a_weight_counts_as_a_draw_repeated():
    """By which the density under any weights is right if that of equal ones is."""
    rows = len(hard(12)[0])
    rng = np.random.default_rng(0)
    losses, levels = rng.normal(size=(rows, 12)), np.resize(LEVELS, rows)
    losses[::2] = np.round(losses[::2], 1)
    counts = np.stack([rng.multinomial(70, rng.dirichlet(np.ones(12))) for _ in range(rows)])
    values, densities = every_risk()(levels, losses, counts / 70)
    repeated = np.stack([np.repeat(row, count) for row, count in zip(losses, counts, strict=True)])
    others, long = every_risk()(levels, repeated, np.full(repeated.shape, 1.0 / 70))
    np.testing.assert_allclose(values, others, rtol=0, atol=1e-12)
    for density, count, expected in zip(densities, counts, long, strict=True):
        np.testing.assert_allclose(np.repeat(density, count, axis=1), expected, rtol=0, atol=1e-8)


def test_weights_of_an_envelope_count_as_draws_repeated():
    losses, counts = np.array([3.0, 1.0, 2.0, 5.0]), np.array([1, 2, 4, 1])
    risk = pr.Envelope(lambda xi, p: [xi <= 2.0], norm_bound=1.2)
    one, other = risk.solve(losses, counts / 8), risk.solve(np.repeat(losses, counts))
    assert one.value == pytest.approx(other.value, abs=1e-7)
    np.testing.assert_allclose(np.repeat(one.weights, counts), other.weights, atol=1e-4)


@pytest.mark.parametrize("radius", [1e-6, 1e-3, 0.1, 0.24])
def test_a_loss_that_is_all_but_the_worst_counts_as_the_worst(radius):
    """Its excess squares to 0: a ball of a small radius once gave -0.5, below the mean."""
    losses = np.array([-1.0, 0.0, 0.0, 0.0, 1e-170])
    value, weights = pr.ChiSquareBall(radius)(losses)
    assert np.mean((weights - 1.0) ** 2) <= radius * (1.0 + 1e-9)
    # With the ties as one loss: mean and spread of -1 and four times 0.
    assert float(value) == pytest.approx(-0.2 + np.sqrt(radius * 0.16), rel=1e-12)


@pytest.mark.parametrize(
    "risk",
    [pr.ChiSquareBall(0.1), pr.EntropicVaR(0.5), pr.KullbackLeiblerBall(0.1), pr.MeanSemideviation(2.0)],
    ids=lambda risk: type(risk).__name__,
)
def test_losses_near_the_largest_number_are_those_of_a_plain_sample(risk):
    losses, plain = np.array([-1e307, 0.0, 1e307, 9e306]), np.array([-1.0, 0.0, 1.0, 0.9])
    (value, weights), (expected, same) = risk(losses), risk(plain)
    assert float(value) / 1e307 == pytest.approx(float(expected), rel=1e-12)
    assert np.allclose(weights, same, rtol=1e-9)
