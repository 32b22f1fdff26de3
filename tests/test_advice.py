"""The frontier and the worth of data, against closed forms and theory."""

from math import comb

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import beta

import prudent as pr
from prudent.advice.worth import outcome_chances
from prudent.plots import frontier_figure

from .sound_parts import table

LAKE = pr.envs.frozen_lake("SF\nHG")
BELIEF = LAKE.prior.update(LAKE.trials(n=5, truth=(0.3, 0.1), seed=0))
SMALL = pr.SampleAverage(samples=64, largest=64, starts=3, evaluation=400)
LEVELS = (0.0, 0.5, 0.9)


@pytest.fixture(scope="module")
def curve():
    return pr.frontier(LAKE, BELIEF, [pr.CVaR(level) for level in LEVELS], solver=SMALL)


def test_a_frontier_is_ordered_as_theory_says(curve):
    own = [float(pr.CVaR(level)(point.losses).value) for level, point in zip(LEVELS, curve.points, strict=True)]
    assert own == [pytest.approx(point.solution.risk) for point in curve.points]
    assert own[0] <= own[1] <= own[2]
    # The first minimises the mean, the last the tail; the draws leave some chance.
    assert curve.points[0].mean <= curve.points[2].mean + 2 * curve.points[0].mean_standard_error
    assert curve.points[2].tail <= curve.points[0].tail + 2 * curve.points[2].tail_standard_error


def test_who_knows_theta_is_below_everyone_on_both_axes(curve):
    names = [point.name for point in curve.rivals]
    assert names == ["plug-in", "robust", "theta known"]
    known = curve.rivals[-1]
    for point in (*curve.points, *curve.rivals[:-1]):
        assert np.array_equal(point.losses >= known.losses - 1e-9, np.ones(400, bool))
        assert known.mean <= point.mean
        assert known.tail <= point.tail + 1e-9


def test_a_frontier_is_a_table_and_a_figure(curve, tmp_path):
    lines = str(curve).splitlines()
    assert len(lines) == 1 + len(LEVELS) + 3
    assert f"{curve.points[0].mean:.4f}" in lines[1]
    frontier_figure(curve, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.long
def test_a_policy_of_another_risk_wins_where_it_is_better():
    """A single iteration leaves most risks worse off than the best of the pool; afterwards none is."""
    weak = pr.SampleAverage(samples=16, largest=16, starts=1, iterations=3, evaluation=400)
    risks = [pr.CVaR(0.0), pr.CVaR(0.3), pr.CVaR(0.6)]
    found = pr.frontier(LAKE, BELIEF, risks, solver=weak, radius=None)
    values = [float(risk(point.losses).value) for risk, point in zip(risks, found.points, strict=True)]
    assert values == sorted(values)
    assert [point.name for point in found.rivals] == ["plug-in", "theta known"]


def bandit(safe):
    """One state, two actions: a safe cost, or a cost of theta; trials of theta are coins."""
    return pr.Family(
        support=pr.Support.dense(1, 2),
        probability=np.ones((1, 2, 1)),
        cost=lambda theta: jnp.stack([jnp.asarray(safe), theta[0]])[None],
        start=0,
        discount=0.5,
    )


def test_the_worth_of_one_trial_is_the_textbooks():
    worth = pr.worth_of_data(
        bandit(0.45), pr.Beta.uniform(1), observations=1, replications=400, risk=pr.Expectation(), solver=SMALL
    )
    [row] = worth.rows
    # Before: min(1/2, 0.45); after: min(2/3, 0.45) or min(1/3, 0.45), each with probability one half.
    expected = (0.45 - 0.5 * (0.45 + 1 / 3)) / 0.5
    assert worth.risk == pytest.approx(0.45 / 0.5, rel=1e-3)
    assert row.worth == pytest.approx(expected, abs=3 * row.standard_error + 1e-3)
    assert row.standard_error < 0.2 * expected


def test_data_on_what_does_not_matter_is_worth_nothing():
    family = pr.Family(
        support=pr.Support.dense(1, 2),
        probability=np.ones((1, 2, 1)),
        cost=lambda theta: jnp.stack([jnp.asarray(0.45), theta[0]])[None],
        start=0,
        discount=0.5,
    )
    worth = pr.worth_of_data(
        family, pr.Beta.uniform(2), observations=20, replications=12, risk=pr.Expectation(), solver=SMALL
    )
    assert [row.place for row in worth.rows] == [(0,), (1,)]
    assert worth.rows[0].worth > 0.05
    assert worth.rows[1].worth == pytest.approx(0.0, abs=2e-3)
    assert str(worth).splitlines()[1].startswith("[0]")


@pytest.mark.long
def test_rows_of_a_table_are_candidates_too():
    support = pr.Support.dense(2, 2)
    family = pr.TabularFamily(support, [[1.0, 1.0], [0.0, 0.0]], start=0, discount=0.9)
    worth = pr.worth_of_data(
        family,
        pr.Dirichlet.symmetric(support),
        observations=50,
        replications=6,
        places=[(0, 0), (1, 0)],
        risk=pr.Expectation(),
        solver=SMALL,
    )
    assert {row.place for row in worth.rows} == {(0, 0), (1, 0)}
    assert worth.rows[0].worth > 0


@table(
    ("no risks", lambda: pr.frontier(LAKE, BELIEF, []), r"at least one risk"),
    ("one risk", lambda: pr.frontier(LAKE, BELIEF, pr.CVaR(0.5)), r"risks must be a list of risks"),
    (
        "the paper's",
        lambda: pr.frontier(LAKE, BELIEF, [pr.CVaR(0.5)], solver=pr.BRPG()),
        r"solver must be SampleAverage",
    ),
    ("a tail level", lambda: pr.frontier(LAKE, BELIEF, [pr.CVaR(0.5)], tail=0.9), r"tail must be a risk"),
    ("nothing to learn", lambda: pr.worth_of_data(LAKE, pr.Point([0.3, 0.1])), r"Point has no update"),
    ("no observation", lambda: pr.worth_of_data(LAKE, BELIEF, observations=0), r"observations must be"),
    ("no place", lambda: pr.worth_of_data(LAKE, BELIEF, places=[], solver=SMALL), r"places is empty"),
    ("no coordinate", lambda: pr.worth_of_data(LAKE, BELIEF, places=[(2,)], solver=SMALL), r"\(coordinate,\) below 2"),
)
def test_refusals(call, message):
    with pytest.raises(pr.InputError, match=message):
        call()


def test_the_chances_of_counts_are_integrals_over_the_belief():
    belief = pr.Beta([[0.5, 1.25]], [[2.0, 3.0]])
    chances = outcome_chances(belief, (0,), 5)
    nodes, weights = np.polynomial.legendre.leggauss(400)
    probability, weights = (nodes + 1) / 2, weights / 2
    density = probability**1.5 * (1 - probability) ** 3.25
    by_hand = [weights @ (density * stats.binom.pmf(k, 5, probability)) for k in range(6)] / (weights @ density)
    np.testing.assert_allclose(chances, by_hand, atol=1e-6)
    assert np.ptp(chances) > 0.1


def test_the_worth_of_a_coordinate_is_the_mean_fall_over_its_counts():
    """Against closed forms: the safe cost, or that of theta, whichever is less under the belief there then is."""
    belief = pr.Beta([[1.0, 1.0]], [[2.0, 1.0]])
    worth = pr.worth_of_data(bandit(0.5), belief, observations=3, risk=pr.Expectation(), solver=SMALL)
    chances = [comb(3, k) * beta(3 + k, 2 + 3 - k) / beta(3, 2) for k in range(4)]
    after = sum(chance * min(0.5, (3 + k) / 8) for k, chance in enumerate(chances))
    [row] = worth.rows
    # Discount 1/2: a cost paid for ever is twice itself. Sixty-four draws are what the rest is due to.
    assert row.worth == pytest.approx((min(0.5, 0.6) - after) / 0.5, abs=2e-3)


@pytest.mark.long
def test_simulated_observations_are_worth_what_all_outcomes_are():
    """The second call has fewer replications than outcomes, so that it simulates."""
    settings = {"observations": 60, "places": [(0,)], "risk": pr.Expectation(), "solver": SMALL}
    family, belief = bandit(0.45), pr.Beta.uniform(1)
    whole = pr.worth_of_data(family, belief, replications=61, **settings)
    simulated = pr.worth_of_data(family, belief, replications=60, **settings)
    [exact], [row] = whole.rows, simulated.rows
    assert 0.0 < exact.standard_error < 0.2 * row.standard_error < 0.05 * exact.worth
    assert row.worth == pytest.approx(exact.worth, abs=3 * row.standard_error)


def test_the_error_of_the_sample_is_in_the_standard_error():
    """All outcomes are gone through, so that the thetas' sample is all that seeds change."""
    one = pr.SampleAverage(samples=64, largest=64, starts=1, evaluation=1)
    settings = {"observations": 2, "risk": pr.CVaR(0.5), "solver": one}
    # One family: another one is compiled for again.
    family = bandit(0.6)
    rows = [pr.worth_of_data(family, pr.Beta.uniform(1), seed=seed, **settings).rows[0] for seed in range(6)]
    spread = np.std([row.worth for row in rows], ddof=1)
    told = np.sqrt(np.mean([row.standard_error**2 for row in rows]))
    assert min(row.standard_error for row in rows) > 0.0
    # Standard deviations of six, and of eight in each: the ratio is within a factor of 3 but for one in thousands.
    assert spread / 3.0 < told < 3.0 * spread


def test_an_error_is_printed_with_its_digits():
    rows = (pr.Worth((0,), 3.0e-7, 2.4e-9), pr.Worth((1,), 0.5, 0.0), pr.Worth((2,), 0.25, float("nan")))
    text = [line.split() for line in str(pr.WorthOfData(rows, 1.0, 1)).splitlines()]
    assert text[1:] == [["[0]", "3e-07", "2.4e-09"], ["[1]", "0.5", "0"], ["[2]", "0.25", "unknown"]]
