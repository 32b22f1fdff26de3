"""Drivers: shifts by hand, only of what the policy meets, and named by chance alone in no more than 5 % of cases."""

import numpy as np
import pytest

import prudent as pr
from prudent.arrays import in_float64
from prudent.objectives import chunks, losses_on
from prudent.posteriors import equally_weighted
from prudent.solvers.drivers import drivers, drivers_of
from prudent.tabular import objective as tabular

from .marks import short

LAKE = pr.envs.frozen_lake("SF\nHG")
BELIEF = LAKE.prior.update(LAKE.trials(n=5, truth=(0.3, 0.1), seed=0))


def tail_weights(losses, level):
    return np.asarray(pr.CVaR(level)(losses).weights)


def equal(draws):
    return np.full(draws, 1.0 / draws)


def test_a_driver_is_the_shift_of_the_weighted_mean_in_standard_deviations():
    random = np.random.default_rng(0)
    thetas = random.normal(size=(500, 3))
    thetas[:, 2] = 7.0
    weights = tail_weights(thetas[:, 0] - 0.5 * thetas[:, 1] + random.normal(size=500), 0.8)
    found, looked_at = drivers(thetas, weights, equal(500))
    expected = {
        (k,): (np.average(thetas[:, k], weights=weights) - thetas[:, k].mean()) / thetas[:, k].std() for k in (0, 1)
    }
    assert looked_at == 2, "what is known is not looked at"
    assert {driver.place: driver.shift for driver in found} == pytest.approx(expected)
    assert found[0].place == (0,)
    # The spread of the shift over permutations of the draws, which leave nothing but chance.
    shuffled = [weights[random.permutation(500)] @ thetas[:, 0] / 500 - thetas[:, 0].mean() for _ in range(2000)]
    assert found[0].standard_error == pytest.approx(np.std(shuffled) / thetas[:, 0].std(), rel=0.05)


def test_of_a_table_rows_are_named_by_the_successor_pulled_farthest():
    random = np.random.default_rng(1)
    tables = random.dirichlet(np.ones(3), size=(800, 2, 2))
    tables[:, 1, 0] = random.dirichlet(np.ones(2), size=800) @ np.eye(2, 3)
    weights = tail_weights(tables[:, 0, 0, 2] - tables[:, 1, 0, 0], 0.9)
    found, looked_at = drivers(tables, weights, equal(800), np.ones((2, 2), dtype=bool))
    assert [driver.place for driver in found] == [(0, 0, 2), (1, 0, 1)], "of two that sum to 1, the one that grows"
    assert all(driver.shift > 1.0 for driver in found)
    assert looked_at == 3 + 3 + 3 + 1
    met = np.array([[False, True], [True, True]])
    found, looked_at = drivers(tables, weights, equal(800), met)
    assert ([driver.place for driver in found], looked_at) == ([(1, 0, 1)], 7)


KINDS = {
    "normal": lambda random, draws: random.normal(size=(draws, 40)),
    "skewed": lambda random, draws: random.beta(0.1, 3.0, size=(draws, 40)),
    "table": lambda random, draws: random.dirichlet([0.3, 0.3, 0.5], size=(draws, 4, 4)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", short([0.9], [0.5, 0.9, 0.99]))
def test_what_has_nothing_to_do_with_the_loss_is_rarely_named(kind, level):
    random = np.random.default_rng(7)
    draws, repeats = 400, 60
    named = 0
    for _ in range(repeats):
        thetas = KINDS[kind](random, draws)
        weights = tail_weights(random.gamma(2.0, size=draws), level)
        met = np.ones(thetas.shape[1:3], dtype=bool) if thetas.ndim == 4 else None
        named += bool(drivers(thetas, weights, equal(draws), met)[0])
    # 3 expected at most; 10 or more has a chance of 1 in 1000.
    assert named <= 9


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_a_true_driver_among_many_is_found_and_stands_first(level):
    random = np.random.default_rng(8)
    found_first = 0
    for _ in range(20):
        thetas = random.beta(2.0, 5.0, size=(1000, 200))
        weights = tail_weights(10.0 * thetas[:, 123] + 0.5 * random.normal(size=1000), level)
        found, _ = drivers(thetas, weights, equal(1000))
        found_first += bool(found) and found[0].place == (123,)
    assert found_first == 20


def test_points_used_whole_leave_nothing_to_chance():
    thetas = np.array([[0.0, 1.0], [1.0, 1.1], [2.0, 0.9]])
    share = np.array([0.5, 0.3, 0.2])
    weights = np.asarray(pr.CVaR(0.8)([1.0, 2.0, 3.0], share).weights)
    found, looked_at = drivers(thetas, weights, share, exact=True)
    mean = share @ thetas
    spread = np.sqrt(share @ (thetas - mean) ** 2)
    expected = {(k,): (2.0, 0.9)[k] - mean[k] for k in (0, 1)}
    assert {d.place: d.shift * spread[d.place[0]] for d in found} == pytest.approx(expected)
    assert {d.standard_error for d in found} == {0.0}
    assert looked_at == 2
    assert drivers(thetas, np.ones(3), share, exact=True) == ((), 2)


def queue(states=60):
    """A line of states with two actions; a policy that always goes left never leaves the first few."""
    lists = [[[max(s - 1, 0), s], [s, min(s + 1, states - 1)]] for s in range(states)]
    support = pr.Support.lists([[list(dict.fromkeys(row)) for row in pair] for pair in lists])
    cost = np.repeat(np.arange(states, dtype=float)[:, None], 2, axis=1)
    belief = pr.Dirichlet.symmetric(support, 1.0)
    return pr.TabularFamily(support, cost, start=3, discount=0.9), belief


@in_float64
def test_only_rows_that_the_policy_meets_are_looked_at():
    family, belief = queue()
    table = np.zeros((60, 2))
    table[:, 0] = 1.0
    table[5] = 0.5
    thetas = belief.sample(0, 300)
    objective = family.objective()
    losses = losses_on(objective, table[None], thetas)[0]
    found, looked_at = drivers_of(objective, table, equally_weighted(thetas), tail_weights(losses, 0.9))
    share = np.where(np.arange(300) < 20, 1 / 20, 0.0)
    visits = np.mean([pr.occupancy(family.at(theta), table) for theta in thetas[:20]], axis=0)
    np.testing.assert_allclose(objective.mean_occupancies(table, thetas, share[None])[0], visits, atol=1e-8)
    # Only states 1, 2 and 3 have an unknown that is met: state 0 stays where it is.
    assert looked_at == 3
    assert found
    assert {driver.place[:2] for driver in found} <= {(1, 0), (2, 0), (3, 0)}
    assert all(driver.place[2] == 1 for driver in found), "to stay is what drives the cost"


@in_float64
def test_a_row_that_only_the_bad_draws_meet_counts(monkeypatch):
    family, belief = queue(8)
    thetas = belief.sample(1, 200)
    table = np.full((8, 2), 0.5)
    objective = family.objective()
    worst = np.where(np.arange(200) == np.argmax(thetas[:, 6, 1, 1]), 200.0, 0.0)
    shares = np.stack([equal(200), equal(200) * worst])
    monkeypatch.setattr(chunks, "CHUNK_MODELS", 1)
    by_one = objective.mean_occupancies(table, thetas, shares)
    monkeypatch.undo()
    np.testing.assert_allclose(by_one, objective.mean_occupancies(table, thetas, shares), rtol=1e-12)
    plain, bad = (visits / visits.sum() for visits in by_one)
    pair = np.unravel_index(np.argmax(bad - plain), plain.shape)
    monkeypatch.setattr(tabular, "MET", float((plain[pair] + bad[pair]) / 2))
    assert objective.met(table, thetas, shares)[pair]
    assert not objective.met(table, thetas, shares[:1])[pair]


def test_the_drivers_of_a_solution_are_those_of_its_own_weights():
    few = pr.SampleAverage(samples=64, largest=64, starts=2, evaluation=1000)
    solution = pr.solve(LAKE, BELIEF, risk=pr.CVaR(0.9), solver=few)
    found = solution.certificate.drivers
    worst = solution.thetas[np.argsort(solution.losses)[-100:]]
    expected = (worst.mean(axis=0) - solution.thetas.mean(axis=0)) / solution.thetas.std(axis=0)
    assert found
    assert [driver.shift for driver in found] == pytest.approx([expected[driver.place] for driver in found])
    assert abs(found[0].shift) > 3 * found[0].standard_error
    assert solution.certificate.drivers_considered == 2


def test_rows_that_are_tied_are_one_unknown():
    generator = np.random.default_rng(0)
    law = generator.dirichlet(np.ones(3), size=500)
    thetas = np.broadcast_to(law[:, None, None], (500, 4, 2, 3))
    weights = np.where(law[:, 0] >= np.quantile(law[:, 0], 0.9), 10.0, 0.0)
    found, looked_at = drivers(thetas, weights, np.full(500, 1 / 500), np.ones((4, 2), bool))
    assert [driver.place for driver in found] == [(0, 0, 0)] and looked_at == 3
