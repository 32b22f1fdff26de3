"""Nested risk against a loop in NumPy, against planning in the mean model, and against the static risk."""

import jax.numpy as jnp
import numpy as np
import pytest

import prudent as pr


def two_steps():
    """Two steps that cost theta and 1 - theta, or 1.2 at once."""

    def cost(theta):
        return jnp.stack([theta[0], 1.2, 1 - theta[0], 1 - theta[0], 0.0, 0.0]).reshape(3, 2)

    support = pr.Support.lists([[[1], [2]], [[2], [2]], [[2], [2]]])
    return pr.Family(support, np.ones((3, 2, 1)), cost, start=0, discount=0.99)


def backward(family, thetas, risk, horizon):
    """The definition, one state-action pair after the other."""
    models = [family.at(theta) for theta in thetas]
    states, actions = models[0].cost.shape
    values, chosen = np.zeros(states), []
    for _ in range(horizon):
        outcomes = np.stack([model.cost + float(family.discount) * model.kernel.table() @ values for model in models])
        quality = np.array(
            [[risk(outcomes[:, s, a]).value for a in range(actions)] for s in range(states)], dtype=float
        )
        values = quality.min(axis=1)
        chosen.append(quality.argmin(axis=1))
    return quality, values, np.array(chosen[::-1])


def test_nested_planning_agrees_with_a_loop():
    lake = pr.envs.frozen_lake("SF\nHG")
    plan = pr.nested_plan(lake, lake.prior, pr.CVaR(0.7), horizon=4, samples=25, seed=3)
    quality, values, actions = backward(lake, plan.thetas, pr.CVaR(0.7), 4)
    np.testing.assert_allclose(plan.quality, quality, rtol=0, atol=1e-10)
    np.testing.assert_allclose(plan.values[0], values, rtol=0, atol=1e-10)
    gap = np.sort(quality, axis=1)
    clear = gap[:, 1] - gap[:, 0] > 1e-9
    np.testing.assert_array_equal(plan.actions[0][clear], actions[0][clear])
    np.testing.assert_array_equal(plan.policy.greedy(), plan.actions[0])
    assert plan.actions.shape == plan.values.shape == (4, 4)


def test_the_expectation_plans_in_the_mean_model():
    support = pr.Support.dense(3, 2)
    belief = pr.Dirichlet.symmetric(support, 0.5)
    family = pr.TabularFamily(support, np.random.default_rng(0).uniform(size=(3, 2, 3)), start=0, discount=0.8)
    plan = pr.nested_plan(family, belief, pr.Expectation(), horizon=200, samples=20)
    mean = family.at(plan.thetas.mean(axis=0))
    np.testing.assert_allclose(plan.values[0], pr.plan(mean).values, rtol=0, atol=1e-10)
    np.testing.assert_array_equal(plan.policy.greedy(), pr.plan(mean).policy.greedy())


def test_static_and_nested_risk_choose_differently():
    family, belief, risk = two_steps(), pr.Beta.uniform(1), pr.CVaR(0.9)
    plan = pr.nested_plan(family, belief, risk, horizon=2)
    assert plan.policy.greedy()[0] == 1
    theta = plan.thetas[:, 0]
    nested = float(risk(theta).value + 0.99 * risk(1 - theta).value)
    np.testing.assert_allclose(plan.quality[0], [nested, 1.2], rtol=0, atol=1e-12)
    hedge, sure = (pr.TabularPolicy.deterministic([action, 0, 0], 2) for action in (0, 1))
    static = [float(pr.evaluate(policy, family, belief, risk=risk).risk) for policy in (hedge, sure)]
    assert static[0] <= 1.0 < static[1] == pytest.approx(1.2)
    assert nested > static[0] + 0.8
    assert pr.nested_plan(family, belief, pr.Expectation(), horizon=2).policy.greedy()[0] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"family": 3}, "a family of MDPs"),
        ({"belief": [0.5]}, "belief must be a posterior"),
        ({"belief": pr.Point([2.0])}, "theta"),
        ({"risk": 0.9}, "risk must be a risk such as CVaR"),
        ({"horizon": 0}, "horizon, the number of stages, must be a whole number >= 1, got 0"),
        ({"samples": 0}, "number of draws must be a whole number >= 1, got 0"),
    ],
)
def test_bad_input_is_refused(change, message):
    lake = pr.envs.frozen_lake("SF\nHG")
    call = {"family": lake, "belief": lake.prior, "risk": pr.CVaR(0.5), "horizon": 2, "samples": 5} | change
    with pytest.raises(pr.InputError, match=message):
        pr.nested_plan(**call)
