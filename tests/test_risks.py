"""Risk measures against linear programs, the coherence axioms, and differences."""

import functools

import jax
import numpy as np
import pytest
from hypothesis import Phase, assume, example, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import prudent as pr
from prudent.records import tree_map
from prudent.risks import LARGEST_PAIRWISE, assess_each, assess_sample

from .catalogue import PERCENTILE, RISKS, RiskCase
from .marks import short

each_risk = pytest.mark.parametrize("case", RISKS, ids=lambda case: case.name)


def call(risk: pr.Risk, *sample: np.ndarray) -> pr.Assessment:
    return risk(*sample)


def stacked(risks: list[pr.Risk]) -> pr.Risk:
    """A batch of risks of one kind, as the solver makes it."""
    return tree_map(lambda *leaves: np.stack(leaves), *risks)


def distribution(rng: np.random.Generator, size: int) -> np.ndarray:
    return rng.dirichlet(np.ones(size))


# ---------------------------------------------------------------- CVaR against a linear program

# (draws, samples): the 200 samples lie on both sides of the switch from comparing pairs to sorting.
SIZES = {1: 10, 7: 50, 30: 40, LARGEST_PAIRWISE: 30, LARGEST_PAIRWISE + 1: 30, 90: 40}


class Sample:
    """One weighted sample, by turns with equal weights, ties, zero weights, and a whole or fractional tail."""

    def __init__(self, size: int, number: int):
        rng = np.random.default_rng([size, number])
        tied, equal, zeros, whole = (bool(number >> bit & 1) for bit in range(4))
        self.losses = rng.integers(0, 4, size).astype(float) if tied else rng.normal(size=size)
        self.weights = np.full(size, 1.0 / size) if equal else distribution(rng, size)
        if zeros and size > 1:
            self.weights[rng.permutation(size)[: size // 3 + 1]] = 0.0
            self.weights /= self.weights.sum()
        self.level = 1.0 - rng.integers(1, size + 1) / size if whole else rng.uniform(0.0, 0.98)
        self.distinct = np.unique(self.losses).size == size


@functools.cache
def samples(size: int) -> list[Sample]:
    return [Sample(size, number) for number in range(SIZES[size])]


@functools.cache
def assessed(size: int) -> pr.Assessment:
    """The library's value and weights of every sample of this size, from one call."""
    losses, weights, levels = (
        np.stack([getattr(sample, name) for sample in samples(size)]) for name in ("losses", "weights", "level")
    )
    return pr.Assessment(*assess_each(stacked([pr.CVaR(level) for level in levels]), losses, weights))


def worst_density(sample: Sample) -> tuple[float, np.ndarray]:
    """The linear program `max sum p xi C` over `0 <= xi <= 1 / (1 - level)`, `sum p xi = 1`."""
    result = linprog(
        -sample.weights * sample.losses,
        A_eq=sample.weights[None, :],
        b_eq=[1.0],
        bounds=(0.0, 1.0 / (1.0 - sample.level)),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert result.status == 0, result.message
    return -result.fun, result.x


@pytest.mark.parametrize("size", SIZES)
def test_cvar_solves_its_linear_program(size):
    for sample, value, density in zip(samples(size), *assessed(size), strict=True):
        expected, optimum = worst_density(sample)
        np.testing.assert_allclose(value, expected, rtol=0, atol=1e-9)
        assert np.all((density >= 0) & (density <= 1.0 / (1.0 - sample.level) + 1e-9))
        assert abs(sample.weights @ density - 1.0) <= 1e-9
        assert abs((sample.weights * density) @ sample.losses - expected) <= 1e-9
        if sample.distinct:
            carried = sample.weights > 0
            np.testing.assert_allclose(density[carried], optimum[carried], rtol=0, atol=1e-9)


def test_the_linear_programs_cover_what_they_are_meant_to():
    drawn = [sample for size in SIZES for sample in samples(size)]
    assert len(drawn) == 200
    tails = np.array([len(sample.losses) * (1.0 - sample.level) for sample in drawn])
    whole = np.abs(tails - np.round(tails)) < 1e-9
    for several in (whole, ~whole, [not s.distinct for s in drawn], [np.any(s.weights == 0) for s in drawn]):
        assert np.sum(several) >= 40


def test_equal_losses_share_their_weight_alike():
    result = pr.CVaR(0.5)([1.0, 2.0, 2.0, 2.0, 0.0], [0.2, 0.1, 0.3, 0.3, 0.1])
    np.testing.assert_allclose(result.weights, [0.0, 10 / 7, 10 / 7, 10 / 7, 0.0], rtol=0, atol=1e-12)


# ---------------------------------------------------------------- coherence

DRAWS = 12
HUNDRED = settings(max_examples=100, deadline=None, database=None, derandomize=True)
THOUSAND = settings(HUNDRED, max_examples=1000)


def numbers(low: float, high: float) -> st.SearchStrategy[np.ndarray]:
    """Twelve numbers on a coarse grid (many ties) or a fine one, out of one block of bytes."""

    def scaled(kind: type, block: bytes) -> np.ndarray:
        return low + (high - low) * np.frombuffer(block, kind) / float(np.iinfo(kind).max)

    return st.one_of(
        st.binary(min_size=DRAWS, max_size=DRAWS).map(lambda block: scaled(np.uint8, block)),
        st.binary(min_size=4 * DRAWS, max_size=4 * DRAWS).map(lambda block: scaled(np.uint32, block)),
    )


def weighed(counts: bytes) -> np.ndarray:
    # Small counts: draws of weight 0, equal weights and tails that end exactly at a draw are all common.
    weights = np.frombuffer(counts, np.uint8) // 32
    assume(weights.any())
    return weights / weights.sum()


losses = numbers(-10.0, 10.0)
weights = st.binary(min_size=DRAWS, max_size=DRAWS).map(weighed)
levels = st.one_of(st.floats(0.0, 0.99), st.sampled_from([0.0, 0.25, 0.5, 0.75, 0.9, 0.99]))
sample = {"level": levels, "one": losses, "weights": weights}
LARGER = sample | {"more": numbers(0.0, 5.0)}
SPREAD = sample | {"other": losses, "share": st.floats(0.0, 1.0)}
SCALED = sample | {"factor": st.floats(0.0, 100.0)}
SURE = sample | {"sure": st.floats(-100.0, 100.0)}
EQUAL = np.full(DRAWS, 1.0 / DRAWS)
ROUNDING = 1e-9

# Each example is put to every risk of the table.
every_risk = pytest.mark.parametrize("cases", [RISKS], ids=["every_risk"])
monotone_risks = pytest.mark.parametrize("cases", [(*RISKS, PERCENTILE)], ids=["every_monotone_risk"])


def rho(cases: tuple[RiskCase, ...], level: float, losses: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The value of each risk of the table."""
    return np.stack([case.build(level)(losses, weights).value for case in cases])


def at_most(cases: tuple[RiskCase, ...], low: np.ndarray, high: np.ndarray) -> None:
    broken = [case.name for case, holds in zip(cases, low <= high + ROUNDING, strict=True) if not holds]
    assert not broken, (low, high)


def same(cases: tuple[RiskCase, ...], one: np.ndarray, other: np.ndarray) -> None:
    at_most(cases, np.abs(one - other), np.full(len(cases), 100 * ROUNDING))


@monotone_risks
@HUNDRED
@given(**LARGER)
def test_a_larger_loss_in_every_draw_is_no_less_risky(cases, level, one, more, weights):
    at_most(cases, rho(cases, level, one, weights), rho(cases, level, one + more, weights))


@every_risk
@HUNDRED
@given(**SPREAD)
@example(level=0.5, one=np.arange(12.0), other=np.arange(12.0)[::-1], share=0.5, weights=EQUAL)
def test_spreading_over_two_losses_is_no_more_risky(cases, level, one, other, share, weights):
    first, second = (rho(cases, level, loss, weights) for loss in (one, other))
    at_most(cases, rho(cases, level, one + other, weights), first + second)
    mixed = rho(cases, level, share * one + (1.0 - share) * other, weights)
    at_most(cases, mixed, share * first + (1.0 - share) * second)


@monotone_risks
@HUNDRED
@given(**SCALED)
def test_scaling_the_losses_scales_the_risk(cases, level, one, factor, weights):
    same(cases, rho(cases, level, factor * one, weights), factor * rho(cases, level, one, weights))


@monotone_risks
@HUNDRED
@given(**SURE)
def test_a_sure_cost_adds_itself(cases, level, one, sure, weights):
    same(cases, rho(cases, level, one + sure, weights), rho(cases, level, one, weights) + sure)


@pytest.mark.long
@pytest.mark.parametrize(
    ("law", "drawn", "cases"),
    [
        (test_a_larger_loss_in_every_draw_is_no_less_risky, LARGER, (*RISKS, PERCENTILE)),
        (test_spreading_over_two_losses_is_no_more_risky, SPREAD, RISKS),
        (test_scaling_the_losses_scales_the_risk, SCALED, (*RISKS, PERCENTILE)),
        (test_a_sure_cost_adds_itself, SURE, (*RISKS, PERCENTILE)),
    ],
    ids=["monotonicity", "convexity", "homogeneity", "translation"],
)
def test_each_axiom_holds_in_a_thousand_examples(law, drawn, cases):
    @THOUSAND
    @given(st.fixed_dictionaries(drawn))
    def holds(example):
        law.hypothesis.inner_test(cases=cases, **example)

    holds()


class Median(pr.Risk):
    """Not coherent: the value at risk of level one half is not convex."""

    def density(self, losses, probabilities):
        middle = losses == jax.numpy.sort(losses)[DRAWS // 2]
        return middle / jax.numpy.maximum((probabilities * middle).sum(), 1e-6)


class Deviation(pr.Risk):
    """Not coherent: the mean plus three standard deviations is not monotone."""

    def density(self, losses, probabilities):
        mean = (probabilities * losses).sum()
        spread = jax.numpy.sqrt((probabilities * (losses - mean) ** 2).sum() + 1e-12)
        return 1.0 + 3.0 * (losses - mean) / spread


class Entropic(pr.Risk):
    """Not coherent: exponential tilting is not positively homogeneous."""

    def density(self, losses, probabilities):
        tilt = jax.numpy.exp(0.1 * losses)
        return tilt / (probabilities * tilt).sum()


class TooHeavy(pr.Risk):
    """Not coherent: weights that sum to 1.01 do not pass a sure cost on."""

    def density(self, losses, probabilities):
        return jax.numpy.full_like(losses, 1.01)


@pytest.mark.parametrize(
    ("broken", "law", "drawn"),
    [
        (Deviation, test_a_larger_loss_in_every_draw_is_no_less_risky, LARGER),
        (Median, test_spreading_over_two_losses_is_no_more_risky, SPREAD),
        (Entropic, test_scaling_the_losses_scales_the_risk, SCALED),
        (TooHeavy, test_a_sure_cost_adds_itself, SURE),
    ],
    ids=["monotonicity", "convexity", "homogeneity", "translation"],
)
def test_each_axiom_notices_a_measure_that_breaks_it(broken, law, drawn):
    cases = (RiskCase(broken.__name__, lambda level: broken()),)

    @settings(THOUSAND, phases=[Phase.generate])
    @given(st.fixed_dictionaries(drawn))
    def search(example):
        law.hypothesis.inner_test(cases=cases, **example)

    with pytest.raises(AssertionError, match=broken.__name__):
        search()


class LessTail(pr.Risk):
    """Twice the mean less the tail: not monotone, and says so."""

    monotone = False

    def density(self, losses, probabilities):
        return 2.0 - pr.CVaR(0.5).density(losses, probabilities)


def test_a_risk_says_whether_it_is_monotone():
    """A bound made of the least losses needs no more than that; a quantile has it, though it is not coherent."""
    assert all(case.build(0.5).monotone for case in (*RISKS, PERCENTILE))
    assert (0.5 * pr.CVaR(0.9) + 0.5 * pr.SmoothedVaR(0.9)).monotone
    assert not LessTail().monotone
    assert not (0.5 * pr.CVaR(0.9) + 0.5 * LessTail()).monotone


# ---------------------------------------------------------------- limits and code paths


def random_sample(size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([size, seed])
    return rng.normal(size=size), distribution(rng, size)


@pytest.mark.parametrize("size", [1, 12, 90])
def test_cvar_at_level_0_is_the_expectation(size):
    losses, weights = random_sample(size)
    result = call(pr.CVaR(0.0), losses, weights)
    np.testing.assert_allclose(result.value, weights @ losses, rtol=0, atol=1e-12)
    np.testing.assert_allclose(result.weights, 1.0, rtol=0, atol=1e-9)
    np.testing.assert_allclose(result.value, call(pr.Expectation(), losses, weights).value, rtol=0, atol=1e-12)


@pytest.mark.parametrize("level", [1.0 - 1e-3, 1.0 - 1e-9, 1.0 - 2.0**-53])
@pytest.mark.parametrize("size", [12, 90])
def test_cvar_near_level_1_is_the_worst_case(size, level):
    losses = random_sample(size)[0]
    losses[[3, 7]] = losses.max() + 1.0
    limit = call(pr.WorstCase(), losses)
    result = call(pr.CVaR(level), losses)
    np.testing.assert_allclose(result.value, limit.value, rtol=0, atol=1e-9)
    np.testing.assert_allclose(result.weights, limit.weights, rtol=0, atol=1e-9)


def test_the_worst_case_leaves_out_draws_of_weight_0():
    result = pr.WorstCase()([9.0, 1.0, 4.0, 4.0], [0.0, 0.5, 0.1, 0.4])
    assert result.value == pytest.approx(4.0, abs=1e-12)
    np.testing.assert_allclose(result.weights, [0.0, 0.0, 2.0, 2.0], rtol=0, atol=1e-12)


@each_risk
@pytest.mark.parametrize("size", [60])
def test_comparing_pairs_and_sorting_agree(case, size, monkeypatch):
    losses, weights = random_sample(size)
    losses[: size // 2] = np.round(losses[: size // 2])
    weights[::7] = 0.0
    weights /= weights.sum()
    results = []
    for largest in (0, size):
        monkeypatch.setattr("prudent.risks.quantiles.LARGEST_PAIRWISE", largest)
        risks = stacked([case.build(level) for level in (0.0, 0.3, 0.77, 0.9)])
        results.append(assess_each(risks, *(np.tile(part, (4, 1)) for part in (losses, weights))))
    (sorting, sorting_density), (pairs, pairs_density) = results
    np.testing.assert_allclose(sorting, pairs, rtol=0, atol=1e-12)
    carried = weights > 0
    np.testing.assert_allclose(sorting_density[:, carried], pairs_density[:, carried], rtol=0, atol=1e-9)


def test_the_sample_can_be_given_in_any_order():
    losses, weights = random_sample(70)
    order = np.random.default_rng(5).permutation(70)
    there, here = call(pr.CVaR(0.8), losses[order], weights[order]), call(pr.CVaR(0.8), losses, weights)
    np.testing.assert_allclose(there.value, here.value, rtol=0, atol=1e-12)
    np.testing.assert_allclose(there.weights, here.weights[order], rtol=0, atol=1e-9)


# ---------------------------------------------------------------- derivatives and vmap

# On both sides of the switch from comparing pairs to sorting, which the test above says agree.
each_risk_and_size = pytest.mark.parametrize(
    ("case", "size"),
    [
        pytest.param(case, size, marks=[] if size == 12 or case.name == "cvar" else [pytest.mark.long])
        for case in RISKS
        for size in (12, 70)
    ],
    ids=lambda value: getattr(value, "name", value),
)


@each_risk_and_size
def test_the_gradient_is_the_attaining_weights_and_the_difference_quotient(case, size):
    losses, weights = random_sample(size)
    assert np.diff(np.sort(losses)).min() > 1e-4
    step = 1e-6
    moves = losses + step * np.concatenate([np.eye(size), -np.eye(size)])

    _, density = assess_sample(case.build(0.83), losses, weights)
    above, below = np.split(assess_sample(case.build(0.83), moves, weights)[0], 2)
    np.testing.assert_allclose(weights * density, (above - below) / (2 * step), rtol=0, atol=1e-8)


@each_risk_and_size
def test_a_loss_that_is_not_finite_is_never_hidden(case, size):
    """Not even where its weight in the risk is 0: the solver must stop, not go on without that draw."""
    sound = random_sample(size)[0]
    spoilt = np.repeat(sound[None], 3 * size, axis=0)
    spoilt[np.arange(3 * size), np.tile(np.arange(size), 3)] = np.repeat([np.nan, np.inf, -np.inf], size)
    risks = stacked([case.build(0.83)] * (3 * size))
    shares = np.full(spoilt.shape, 1.0 / size)
    value, _ = assess_each(risks, spoilt, shares)
    assert not np.any(np.isfinite(value))
    whole = np.repeat(sound[None], 3 * size, axis=0)
    assert np.all(np.isfinite(assess_each(risks, whole, shares)[0]))


BATCHED = [case for case in RISKS if case.name in ("cvar", "spectral", "entropic_var", "mixture")]


@pytest.mark.parametrize("case", short(BATCHED, RISKS), ids=lambda case: case.name)
@pytest.mark.parametrize("size", [12])
def test_levels_can_be_batched(case, size):
    levels = np.array([0.0, 0.2, 0.5, 0.9, 0.99])
    losses, weights = random_sample(size)
    together = assess_each(
        stacked([case.build(level) for level in levels]), *(np.tile(part, (5, 1)) for part in (losses, weights))
    )
    for j, (value, density) in enumerate(zip(*together, strict=True)):
        expected = call(case.build(levels[j]), losses, weights)
        np.testing.assert_allclose(value, expected.value, rtol=0, atol=1e-12)
        np.testing.assert_allclose(density, expected.weights, rtol=0, atol=1e-12)
