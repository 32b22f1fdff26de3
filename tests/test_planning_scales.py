"""Planning does not change when costs are scaled or shifted, and its bounds hold to the last digit.

Held against policy iteration in long double on the very costs that the planners are given.
"""

import dataclasses

import numpy as np
import pytest

import prudent as pr
from prudent.engine import LARGEST_DIRECT, ModelBatch, plan, plans, table_rows
from prudent.losses import batch_of
from prudent.planning import least_costs, robust_actions

from .problems import densified, random_mdp

LONG = np.longdouble

SCALES = [(scale, shift) for scale in (1e-12, 1.0, 1e12) for shift in (0.0, 1e3, -1e6, 1e6)] + [(1e-15, 0.0)]


def long_values(table, cost, action, discount):
    """A deterministic policy's values, by refinement of a solve in double precision."""
    rows = np.arange(len(action))
    matrix = np.eye(len(action), dtype=LONG) - LONG(discount) * table[rows, action].astype(LONG)
    paid, inverse = cost[rows, action].astype(LONG), np.linalg.inv(matrix.astype(float)).astype(LONG)
    values = inverse @ paid
    for _ in range(6):
        values = values + inverse @ (paid - matrix @ values)
    return values


def optimum(mdp):
    """`[S]` optimal values and `[S, A]` qualities in long double."""
    table, cost, discount = mdp.kernel.table(), np.asarray(mdp.cost), float(mdp.discount)
    action = cost.argmin(axis=1)
    while True:
        values = long_values(table, cost, action, discount)
        quality = cost.astype(LONG) + LONG(discount) * (table.astype(LONG) @ values)
        gain = quality[np.arange(len(action)), action] - quality.min(axis=1) > 1e-17 * np.abs(values).max()
        if not gain.any():
            return values, quality
        action = np.where(gain, quality.argmin(axis=1), action)


def rescaled(mdp, scale, shift):
    """Costs `scale (c + shift)`; the random costs have a spread of 1."""
    return dataclasses.replace(mdp, cost=scale * (np.asarray(mdp.cost) + shift))


def problem(seed, states):
    """A model whose best action is unique in every state by far more than rounding."""
    random = np.random.default_rng(seed)
    while True:
        discount = float(random.choice([0.0, 0.5, 0.9, 0.99, 0.9999]))
        mdp = random_mdp(random, states, int(random.integers(2, 5)), int(random.integers(1, 6)), discount)
        mdp = densified(mdp) if random.random() < 0.5 else mdp
        quality = optimum(mdp)[1]
        ordered = np.sort(quality, axis=1)
        if (ordered[:, 1] - ordered[:, 0]).min() > 1e-6:
            return mdp, quality.argmin(axis=1)


@pytest.mark.parametrize("seed", range(8))
def test_small_models_keep_their_plan_at_every_scale_and_level(seed):
    mdp, action = problem(seed, 7)
    discount, start = float(mdp.discount), np.asarray(mdp.start)
    for scale, shift in SCALES:
        same = rescaled(mdp, scale, shift)
        values, _ = optimum(same)
        found = pr.plan(same)
        np.testing.assert_array_equal(found.policy.greedy(), action)
        assert np.abs(found.values - values).max() <= found.residual / (1 - discount)
        tight = 1e-12 * (1.0 + abs(shift)) * scale / (1 - discount) ** 2
        assert found.residual <= tight
        many, best = plan(batch_of(same)), start.astype(LONG) @ values
        np.testing.assert_array_equal(many.action[:, 0], action)
        assert np.abs(many.values[:, 0] - values).max() <= many.error[0]
        assert best - 2 * tight / (1 - discount) <= many.low[0] <= best <= many.high[0]


@pytest.mark.parametrize("most", [0, 1_000_000])
def test_large_models_keep_their_plan_at_every_scale_and_level(most, monkeypatch):
    """All states at once, and state after state."""
    mdp, action = problem(1, LARGEST_DIRECT + 10)
    discount, begun, whole = float(mdp.discount), [], plans.plan_by_sweeps
    monkeypatch.setattr(plans, "MOST_SWEEPS", most)
    monkeypatch.setattr(plans, "plan_by_sweeps", lambda *given: begun.append(1) or whole(*given))
    for scale, shift in SCALES[::6]:
        same = rescaled(mdp, scale, shift)
        values, _ = optimum(same)
        found = pr.plan(same)
        np.testing.assert_array_equal(found.policy.greedy(), action)
        error, spread = float(np.abs(found.values - values).max()), float(np.ptp(values))
        assert error <= found.residual / (1 - discount)
        # The default tolerance, and what rounding leaves of costs a million times their spread.
        assert error <= 1e-10 * spread + 1e-14 * np.abs(values).max() / (1 - discount)
        bounds = plan(batch_of(same))
        best = np.asarray(same.start).astype(LONG) @ values
        slack = 2 * found.residual / (1 - discount) + 1e-12 * abs(best)
        assert best - slack <= bounds.low[0] <= best <= bounds.high[0] <= best + slack
    assert bool(begun) == bool(most)


def test_a_given_tolerance_is_an_error_of_values_in_the_unit_of_the_costs():
    mdp, _ = problem(1, LARGEST_DIRECT + 10)
    for scale, tolerance in ((1.0, 1e-2), (1e-6, 1e-9)):
        same = rescaled(mdp, scale, 3.0)
        values, _ = optimum(same)
        plan = pr.plan(same, tolerance=tolerance)
        assert np.abs(plan.values - values).max() <= plan.residual / (1 - float(mdp.discount)) <= 1.001 * tolerance


def test_ties_stay_ties_at_every_level():
    """The lake is symmetric: whatever is added to its costs, of two ways as good as each other it is the first."""
    mdp = pr.envs.frozen_lake("FFF\nFSF\nFFG").at((0.3, 0.1))
    first = pr.plan(mdp).policy.greedy()
    for scale, shift in SCALES:
        np.testing.assert_array_equal(pr.plan(rescaled(mdp, scale, shift)).policy.greedy(), first)


def test_a_forbidding_cost_does_not_blur_the_others():
    """Costs of 1 beside one of 1e12 that is never paid: the differences among the small ones still count."""
    mdp, _ = problem(3, 7)
    cost = np.asarray(mdp.cost).copy()
    forbidden = (np.arange(7), np.full(7, cost.shape[1]))
    kernel = np.concatenate([mdp.kernel.table(), np.broadcast_to(np.eye(7)[:, None], (7, 1, 7))], axis=1)
    cost = np.concatenate([cost, np.full((7, 1), 1e12)], axis=1)
    assert cost[forbidden].min() == 1e12
    plan = pr.plan(pr.MDP(pr.Kernel.dense(kernel), cost, mdp.start, mdp.discount))
    np.testing.assert_array_equal(plan.policy.greedy(), pr.plan(mdp).policy.greedy())
    np.testing.assert_allclose(plan.values, pr.plan(mdp).values, rtol=1e-12)


def test_the_robust_start_keeps_its_actions():
    random = np.random.default_rng(0)
    models = [random_mdp(random, 6, 3, 6, 0.9) for _ in range(5)]
    probability = np.stack([mdp.kernel.table().reshape(18, 6) for mdp in models], axis=-1)
    cost = np.stack([np.asarray(mdp.cost) for mdp in models], axis=-1)
    dense = pr.Support.dense(6, 3).index()
    batch = ModelBatch(dense, table_rows(6, 3), probability, cost, np.asarray(models[0].start), 0.9)
    expected = robust_actions(batch, cost)
    for scale, shift in SCALES:
        np.testing.assert_array_equal(robust_actions(batch, scale * (cost + shift)), expected)


def test_robust_plans_keep_their_actions_and_shift_their_values():
    mdp = random_mdp(np.random.default_rng(2), 6, 3, 4, 0.95)
    first = pr.robust_plan(mdp, 0.1)
    margin = np.diff(np.sort(first.quality, axis=1), axis=1)[:, 0].min()
    assert margin > 1e-4
    for scale, shift in SCALES:
        same = pr.robust_plan(rescaled(mdp, scale, shift), 0.1)
        assert same.converged
        np.testing.assert_array_equal(same.policy.greedy(), first.policy.greedy())
        np.testing.assert_allclose(
            same.values, scale * (first.values + shift / 0.05), rtol=1e-13, atol=1e-9 * scale * (1 + abs(shift) / 1e3)
        )


def test_the_least_cost_of_a_horizon_is_a_bound():
    random = np.random.default_rng(5)
    for _ in range(30):
        mdp = random_mdp(random, 6, 3, 4, 0.95)
        for scale, shift in SCALES:
            same = rescaled(mdp, scale, shift)
            values = np.zeros(6, dtype=LONG)
            table, cost = mdp.kernel.table().astype(LONG), np.asarray(same.cost).astype(LONG)
            for _ in range(13):
                values = (cost + LONG(0.95) * (table @ values)).min(axis=1)
            best = np.asarray(mdp.start).astype(LONG) @ values
            batch = batch_of(same)
            least = least_costs(batch, batch.cost, horizon=12)[0]
            assert best - 1e-13 * np.abs(cost).max() * 13 <= least <= best


@pytest.mark.long
@pytest.mark.parametrize("discount", [0.9999, 0.999999])
def test_far_sighted_models_settle(discount):
    for seed in range(20):
        random = np.random.default_rng(seed)
        mdp = random_mdp(random, 30, 4, int(random.integers(1, 5)), discount)
        for scale, shift in SCALES:
            assert pr.plan(rescaled(mdp, scale, shift)).iterations < 30
