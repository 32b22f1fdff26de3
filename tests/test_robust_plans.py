"""Robust planning against a cone program, its limits and its own optimality conditions."""

import cvxpy as cp
import numpy as np
import pytest

import prudent as pr
from prudent.risks import worst_rows

from .problems import random_mdp


def rows_problem(nominal, values, radius):
    """Worst expectations and rows of `[N, B]` rows."""
    nominal, values, radius = nominal.T, values.T, np.broadcast_to(radius, len(nominal)).astype(float)
    worst = worst_rows(nominal, values, radius)
    return (worst * values).sum(axis=0), worst.T


def divergence(rows, nominal):
    ratio = np.where(rows > 0, rows, 1.0) / np.where(rows > 0, nominal, 1.0)
    return (rows * np.log(ratio)).sum(axis=-1)


def random_rows(random, count, successors):
    nominal = random.dirichlet(np.full(successors, 0.7), size=count)
    nominal[: count // 4, 0] = 0.0
    return nominal / nominal.sum(axis=1, keepdims=True), random.normal(size=(count, successors))


def test_rows_agree_with_a_cone_program():
    random = np.random.default_rng(0)
    nominal, values = random_rows(random, 40, 5)
    radius = random.choice([0.003, 0.05, 0.3, 1.0, 20.0], size=40)
    worst, rows = rows_problem(nominal, values, radius)
    row = cp.Variable(5, nonneg=True)
    for n in range(40):
        positive = nominal[n] > 0
        constraints = [cp.sum(row) == 1, cp.sum(cp.rel_entr(row[positive], nominal[n][positive])) <= radius[n]]
        if not positive.all():
            constraints.append(row[~positive] == 0)
        problem = cp.Problem(cp.Maximize(values[n] @ row), constraints)
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
        assert worst[n] == pytest.approx(problem.value, abs=1e-7)
    np.testing.assert_allclose((rows * values).sum(axis=1), worst, rtol=0, atol=1e-10)
    assert np.all(rows[nominal == 0] == 0)


def test_hard_rows_attain_their_value_inside_the_ball():
    random = np.random.default_rng(1)
    nominal, values = random_rows(random, 4000, 5)
    nominal = np.where(nominal > 0, np.maximum(nominal, 1e-9), 0.0)
    nominal /= nominal.sum(axis=1, keepdims=True)
    values[:1000] = np.round(values[:1000])  # ties
    values[1000:2000, 1] = values[1000:2000, 2] + random.choice([1e-3, 1e-6, 1e-9], size=1000)  # near ties
    values[2000:2500] *= 1e9
    top = np.where(nominal > 0, values, -np.inf).max(axis=1)
    largest = -np.log(np.where((values == top[:, None]) & (nominal > 0), nominal, 0.0).sum(axis=1))
    radius = largest * random.choice([1e-6, 1e-3, 0.1, 0.5, 0.9, 0.9999, 1.0, 2.0], size=4000)
    radius = np.maximum(radius, 0.0)
    worst, rows = rows_problem(nominal, values, radius)
    scale = np.abs(values).max(axis=1)
    assert np.all(np.abs((rows * values).sum(axis=1) - worst) <= 1e-9 * scale)
    assert np.all(divergence(rows, nominal) <= radius + 1e-9)
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    wider, _ = rows_problem(nominal, values, radius * 1.1 + 1e-6)
    assert np.all(wider >= worst - 1e-12 * scale)


@pytest.fixture(scope="module")
def mdp():
    return random_mdp(np.random.default_rng(3), 12, 3, 4, discount=0.9)


@pytest.fixture(scope="module")
def plans(mdp):
    return {radius: pr.robust_plan(mdp, radius) for radius in (0.0, 1e-8, 0.01, 0.1, 0.5, 1.0, 50.0, np.inf)}


def test_radius_zero_is_planning_at_the_nominal_kernel(mdp, plans):
    nominal = pr.plan(mdp)
    np.testing.assert_allclose(plans[0.0].values, nominal.values, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(plans[0.0].policy.probabilities, nominal.policy.probabilities)
    np.testing.assert_allclose(plans[0.0].kernel.probability, mdp.kernel.probability, rtol=0, atol=1e-12)
    assert np.abs(plans[1e-8].values - nominal.values).max() < 0.01


def test_a_large_radius_plans_against_the_worst_successor(mdp, plans):
    values = np.zeros(12)
    for _ in range(400):
        values = (mdp.cost + 0.9 * values[mdp.kernel.support.index()].max(axis=2)).min(axis=1)
    for radius in (50.0, np.inf):
        np.testing.assert_allclose(plans[radius].values, values, rtol=0, atol=1e-9)


def test_values_grow_with_the_radius(plans):
    values = np.stack([plan.values for plan in plans.values()])
    assert np.all(np.diff(values, axis=0) >= -1e-10)


@pytest.mark.parametrize("radius", [0.01, 0.1, 0.5, 1.0])
def test_the_plan_and_its_worst_kernel_are_a_saddle_point(mdp, plans, radius):
    plan = plans[radius]
    assert plan.converged and plan.residual <= 1e-10 and plan.error_bound == pytest.approx(9 * plan.residual)
    assert divergence(plan.kernel.probability, mdp.kernel.probability).max() <= radius + 1e-9
    against = pr.plan(pr.MDP(plan.kernel, mdp.cost, mdp.start, mdp.discount))
    np.testing.assert_allclose(against.values, plan.values, rtol=0, atol=1e-8)
    np.testing.assert_allclose(plan.quality.min(axis=1), plan.values, rtol=0, atol=0)
    ahead = plan.values[mdp.kernel.support.index()].reshape(-1, 4)
    worst, _ = rows_problem(mdp.kernel.probability.reshape(-1, 4), ahead, radius)
    np.testing.assert_allclose(plan.quality, mdp.cost + 0.9 * worst.reshape(12, 3), rtol=0, atol=1e-9)


@pytest.mark.parametrize("radius", [1.0, 20.0])
def test_of_actions_that_are_as_good_the_first_is_taken_whatever_rounding_says(radius):
    """On the lake half of the states have several in wide balls; the level of the costs moved their last digits."""
    mdp = pr.envs.frozen_lake().at((0.3, 0.06))
    plan = pr.robust_plan(mdp, radius)
    near = plan.quality < plan.quality.min(axis=1, keepdims=True) + 1e-8
    assert (near.sum(axis=1) > 1).sum() > 5
    np.testing.assert_array_equal(plan.policy.probabilities.argmax(axis=1), near.argmax(axis=1))
    for level in (1.0, 1 / 3, 1e3):
        moved = pr.robust_plan(pr.MDP(mdp.kernel, mdp.cost + level, mdp.start, mdp.discount), radius)
        np.testing.assert_array_equal(moved.policy.probabilities, plan.policy.probabilities)


def test_repeats_padding_and_zeros_change_nothing():
    plain = pr.Kernel(pr.Support.lists([[[0, 1]], [[1, 0]]]), [[[0.6, 0.4]], [[0.7, 0.3]]])
    lists = pr.Support.lists([[[0, 1, 1, 0]], [[1, 0]]])
    repeated = pr.Kernel(lists, [[[0.6, 0.1, 0.3, 0.0]], [[0.7, 0.3, 0.0, 0.0]]])
    one, other = (pr.robust_plan(pr.MDP(kernel, [[1.0], [0.0]], 0, 0.9), 0.2) for kernel in (plain, repeated))
    np.testing.assert_allclose(other.values, one.values, rtol=0, atol=1e-10)
    dense = pr.robust_plan(pr.MDP(pr.Kernel.dense(plain.table()), [[1.0], [0.0]], 0, 0.9), 0.2)
    np.testing.assert_allclose(dense.values, one.values, rtol=0, atol=1e-10)
    np.testing.assert_allclose(other.kernel.probability[0, 0, 1] / other.kernel.probability[0, 0, 2], 1 / 3)


def test_the_ball_keeps_an_unseen_move_unseen():
    lake = pr.envs.frozen_lake()
    nominal = lake.at((0.0, 0.5))
    radius = np.where(np.arange(25) % 2, 0.3, 5.0)[:, None] * np.ones(4)
    plan = pr.robust_plan(nominal, radius)
    assert np.all(plan.kernel.probability[~lake.hole, :, 1:] == 0)
    reached = divergence(plan.kernel.probability, nominal.kernel.probability)
    assert np.all(reached <= radius + 1e-9)
    assert reached[lake.hole].max() == pytest.approx(np.log(2))  # a hole that holds for good


@pytest.mark.parametrize(
    ("radius", "message"),
    [
        (-0.1, "got -0.1; 0 keeps"),
        (np.nan, "got nan"),
        ([0.1, 0.2], r"shape \(2, 1\), got shape \(2,\)"),
        ([[0.1], [-1.0]], "got -1.0 at state 1, action 0"),
        ("wide", "expected an array of numbers"),
    ],
)
def test_other_radii_are_refused(radius, message):
    mdp = pr.MDP(pr.Kernel.dense([[[0.5, 0.5]], [[0.0, 1.0]]]), [[1.0], [0.0]], 0, 0.9)
    with pytest.raises(pr.InputError, match=message):
        pr.robust_plan(mdp, radius)


def test_a_family_is_not_an_mdp():
    with pytest.raises(pr.InputError, match="got FrozenLake"):
        pr.robust_plan(pr.envs.frozen_lake(), 0.1)  # pyright: ignore
