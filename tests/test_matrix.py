"""Every risk with every loss, every policy and every estimator: three steps down on a fixed sample."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

import prudent as pr
from prudent.gradients import SampledRisk
from prudent.solvers.draws import stacked

from .catalogue import RISKS, losses

STATES, ACTIONS, DRAWS, STEP = 3, 2, 5, 1e-3
SUPPORT = pr.Support.dense(STATES, ACTIONS)
RANDOM = np.random.default_rng(5)
TABLES = RANDOM.dirichlet(np.ones(STATES), size=(DRAWS, STATES, ACTIONS))
TARGET = RANDOM.dirichlet(2 * np.ones(STATES * ACTIONS)).reshape(STATES, ACTIONS)
FAMILY = pr.TabularFamily(SUPPORT, RANDOM.uniform(size=(STATES, ACTIONS)), 0, 0.8)
LEVEL = 0.6


class FixedSample(pr.Posterior):
    """The same draws in every iteration, so that objectives can be compared."""

    def draw(self, generator, n):
        return np.resize(TABLES, (n, *TABLES.shape[1:]))


ALL = [case.build(LEVEL) for case in RISKS]

LOSSES = losses(TARGET, RANDOM.uniform(size=(4, STATES, ACTIONS))) | {
    "user's": pr.Numerical(lambda occupancy, mdp: jnp.log(jnp.exp(occupancy - mdp.cost).sum())),
}


def users_own(parameters):
    weights = 1.5 + jnp.tanh(parameters)
    return weights / weights.sum(axis=1, keepdims=True)


POLICIES = {
    "softmax": pr.Softmax(within=pr.Ball(50.0)),
    "direct": pr.Direct(),
    "user's": pr.Parametric(users_own, start=np.full((STATES, ACTIONS), 0.5), within=pr.Box(-1.0, 1.0)),
    "neural": pr.Neural(np.eye(STATES), width=4, depth=1),
}
ENVELOPE = pr.Envelope(lambda xi, p: [xi <= 2.5])
ESTIMATORS = {"adjoint": pr.Adjoint(), "variational": pr.Variational(), "zeroth order": pr.ZerothOrder(20, 1e-4)}


# Every table meets every estimator in some short test, every loss one of these pairs; the derivatives of all losses are
# held against differences above. All three together, and networks, in the long ones.
TRIPLES = [
    pytest.param(loss, policy, estimator, marks=[] if (j, k) == (i % 3, i // 3 % 3) else [pytest.mark.long])
    for i, loss in enumerate(LOSSES)
    for j, policy in enumerate(POLICIES)
    for k, estimator in enumerate(ESTIMATORS)
]


@functools.cache
def objectives(loss, policy, estimator):
    """`[risk, 4]` the objective on the fixed sample before each of four steps."""
    solutions = pr.solve_many(
        FAMILY,
        [FixedSample()],
        ALL,
        loss=LOSSES[loss],
        policy=POLICIES[policy],
        gradient=ESTIMATORS[estimator],
        solver=pr.BRPG(samples=DRAWS, iterations=4, step=STEP, evaluation=DRAWS),
        progress=False,
        certify=False,
    )[0]
    return np.stack([solution.history.objective for solution in solutions])


@pytest.mark.parametrize("loss", LOSSES)
def test_the_gradient_of_every_risk_of_a_loss_agrees_with_differences(loss):
    """Along random directions, at a random policy."""
    random = np.random.default_rng(len(loss))
    objective, logits = FAMILY.objective(loss=LOSSES[loss]), random.normal(size=(1, STATES, ACTIONS))
    shares = np.full((1, DRAWS), 1.0 / DRAWS)
    for risk in ALL:
        sampled = SampledRisk(objective, stacked([risk]), TABLES[None], shares)
        exact = pr.Adjoint()(sampled, logits)[1]
        for _ in range(3):
            direction = random.normal(size=(STATES, ACTIONS))
            ahead, behind = (sampled.at(logits + h * direction).value[0] for h in (1e-5, -1e-5))
            scale = np.linalg.norm(exact) * np.linalg.norm(direction)
            assert abs((ahead - behind) / 2e-5 - (exact * direction).sum()) <= 1e-6 * scale + 1e-10, risk


@pytest.mark.long
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("loss", LOSSES)
def test_three_iterations_lower_the_objective_of_an_envelope(loss, policy, estimator):
    """The general envelope, solved by a convex program in every iteration."""
    solution = pr.solve(
        FAMILY,
        FixedSample(),
        risk=ENVELOPE,
        loss=LOSSES[loss],
        policy=POLICIES[policy],
        gradient=ESTIMATORS[estimator],
        solver=pr.BRPG(samples=DRAWS, iterations=4, step=STEP, evaluation=DRAWS),
        progress=False,
    )
    values = solution.history.objective
    slack = 1e-3 * abs(values[0]) if estimator == "zeroth order" else 1e-7
    assert np.all(np.isfinite(values))
    assert values[3] <= values[0] + slack


@pytest.mark.parametrize(("loss", "policy", "estimator"), TRIPLES)
def test_three_iterations_lower_the_objective(loss, policy, estimator):
    values = objectives(loss, policy, estimator)
    assert np.all(np.isfinite(values))
    fall = values[:, 0] - values[:, 3]
    noise = 0.0
    if estimator == "zeroth order":
        # Values alone give a noisy direction; it may rise by no more than the exact one falls.
        exact = objectives(loss, policy, "adjoint")
        noise = exact[:, 0] - exact[:, 3]
    broken = [case.name for case, ok in zip(RISKS, fall >= -noise - 1e-10, strict=True) if not ok]
    assert not broken, fall
    assert fall.max() > 1e-8, "nothing moved"
