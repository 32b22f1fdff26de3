"""Exact planning against a linear program, and evaluation against NumPy."""

import numpy as np
import pytest
from scipy.optimize import linprog

import prudent as pr

from .problems import densified, numpy_occupancy, random_mdp, random_policy


def linear_program_values(mdp):
    """Optimal values: the largest v with `v <= c + discount P v`."""
    table, cost, discount = mdp.kernel.table(), np.asarray(mdp.cost), float(mdp.discount)
    states, actions = cost.shape
    rows = np.repeat(np.eye(states)[:, None], actions, axis=1) - discount * table
    result = linprog(
        -np.ones(states), A_ub=rows.reshape(-1, states), b_ub=cost.ravel(), bounds=(None, None), method="highs"
    )
    return result.x


@pytest.mark.parametrize("seed", range(20))
def test_policy_iteration_agrees_with_a_linear_program(seed):
    random = np.random.default_rng(seed)
    states, actions = int(random.integers(1, 15)), int(random.integers(1, 5))
    mdp = random_mdp(random, states, actions, int(random.integers(1, states + 1)), discount=random.uniform(0, 0.99))
    mdp = densified(mdp) if seed % 2 else mdp
    plan = pr.plan(mdp)
    np.testing.assert_allclose(plan.values, linear_program_values(mdp), rtol=0, atol=1e-7)
    assert plan.residual < 1e-9
    occupancy = numpy_occupancy(mdp.kernel.table(), plan.policy.probabilities, mdp.start, float(mdp.discount))
    assert (occupancy * mdp.cost).sum() == pytest.approx(mdp.start @ plan.values, rel=1e-9)


def test_evaluation_agrees_with_numpy_draw_by_draw():
    random = np.random.default_rng(0)
    lake = pr.envs.frozen_lake("SF\nHG")
    policy = random_policy(random, 4, 4)
    result = pr.evaluate(policy, lake, lake.prior, risk=pr.CVaR(0.8), samples=333, seed=4)
    for theta, loss in list(zip(result.thetas, result.losses, strict=True))[:20]:
        mdp = lake.at(theta)
        expected = (numpy_occupancy(mdp.kernel.table(), policy, mdp.start, 0.97) * mdp.cost).sum()
        assert loss == pytest.approx(expected, rel=1e-10)
    ordered = np.sort(result.losses)[::-1]
    whole = int(333 * 0.2)
    tail = 333 * 0.2
    assert result.risk == pytest.approx((ordered[:whole].sum() + (tail - whole) * ordered[whole]) / tail, rel=1e-10)
    assert result.mean == pytest.approx(result.losses.mean(), rel=1e-12)
    assert result.mean_standard_error == pytest.approx(result.losses.std() / np.sqrt(333), rel=1e-9)
    assert result.quantile(0.5) in result.losses
    assert result.assess(pr.WorstCase())[0] == result.losses.max()
    assert "mean loss" in str(result)


def test_long_samples_are_evaluated_in_chunks_with_the_same_answer(monkeypatch):
    from prudent import gradients

    lake = pr.envs.frozen_lake("SF\nHG")
    policy = np.full((4, 4), 0.25)
    whole = pr.evaluate(policy, lake, lake.prior, samples=333).losses
    monkeypatch.setattr(gradients, "CHUNK_BYTES", dict.fromkeys((True, False), 100 * 4 * 12 * 8))
    np.testing.assert_allclose(pr.evaluate(policy, lake, lake.prior, samples=333).losses, whole, rtol=1e-12)


def test_changing_cost_or_discount_does_not_revalidate_the_kernel(monkeypatch):
    import dataclasses

    from prudent.kernels import kernel

    mdp = random_mdp(np.random.default_rng(0), 4)
    monkeypatch.setattr(kernel, "require_distribution", lambda *_: pytest.fail("the kernel was looked at again"))
    cheaper = dataclasses.replace(mdp, cost=np.zeros((4, 3)), discount=0.5)
    assert cheaper.kernel is mdp.kernel
    assert float(cheaper.discount) == 0.5
    with pytest.raises(pr.InputError, match="discount"):
        dataclasses.replace(mdp, discount=1.0)


def test_a_family_takes_functions_arrays_and_costs_on_transitions():
    support = pr.Support.lists([[[0, 1]], [[1, 0]]])
    by_transition = np.array([[[1.0, 3.0]], [[0.0, 2.0]]])
    family = pr.Family(
        support,
        probability=lambda theta: (
            theta[0] * np.array([[[-1.0, 1.0]], [[0.0, 0.0]]]) + np.array([[[1.0, 0.0]], [[1.0, 0.0]]])
        ),
        cost=by_transition,
        start=[0.5, 0.5],
        discount=0.9,
    )
    mdp = family.at([0.25])
    np.testing.assert_allclose(mdp.cost, [[1.5], [0.0]])
    known = pr.Family(
        support, probability=mdp.kernel.probability, cost=lambda theta: theta * np.ones((2, 1)), start=0, discount=0.9
    )
    np.testing.assert_allclose(known.at(7.0).cost, [[7.0], [7.0]])
