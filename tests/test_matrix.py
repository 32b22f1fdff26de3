"""Every risk with every loss, every policy and every estimator: three steps down on a fixed sample.

Each kind of part is one union whose number is an array, so that a handful of compilations serve them all.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import prudent as pr
from prudent.gradients import SampledRisk
from prudent.parameter_sets import ParameterSet

from .catalogue import RISKS, losses

STATES, ACTIONS, DRAWS, STEP = 3, 2, 5, 1e-3
SUPPORT = pr.Support.dense(STATES, ACTIONS)
RANDOM = np.random.default_rng(5)
TABLES = RANDOM.dirichlet(np.ones(STATES), size=(DRAWS, STATES, ACTIONS))
TARGET = RANDOM.dirichlet(2 * np.ones(STATES * ACTIONS)).reshape(STATES, ACTIONS)
FAMILY = pr.TabularFamily(SUPPORT, RANDOM.uniform(size=(STATES, ACTIONS)), 0, 0.8)
LEVEL = 0.6


def among(number, functions, *arguments):
    """The value of the function with this number."""
    return lax.switch(number, [lambda *a, f=f: f(*a) for f in functions], *arguments)


class FixedSample(pr.Posterior):
    """The same draws in every iteration, so that objectives can be compared."""

    def draw(self, generator, n):
        return np.resize(TABLES, (n, *TABLES.shape[1:]))


class AnyRisk(pr.Risk):
    """The risk of the catalogue with this number."""

    number: jax.Array = eqx.field(converter=np.asarray)

    def density(self, losses, probabilities):
        return among(self.number, [case.build(np.float64(LEVEL)).density for case in RISKS], losses, probabilities)


LOSSES = losses(TARGET, RANDOM.uniform(size=(4, STATES, ACTIONS))) | {
    "user's": pr.Numerical(lambda occupancy, mdp: jnp.log(jnp.exp(occupancy - mdp.cost).sum())),
}


def one_loss(name):
    """All losses with the weights 0 and 1: the one named, through the structure that all share."""
    return sum(float(other == name) * loss for other, loss in LOSSES.items())


class AnySet(ParameterSet):
    number: jax.Array

    def project(self, parameters):
        sets = [pr.Ball(50.0), pr.Simplex(), pr.Box(-1.0, 1.0)]
        return among(self.number, [own.project for own in sets], parameters)

    def tangent(self, direction):
        return among(self.number, [lambda u: u, pr.Simplex().tangent, lambda u: u], direction)


class AnyTable(pr.Parametrisation):
    """Softmax, direct, and a user's own map, all with parameters `[S, A]`."""

    within: AnySet

    def initial(self, states, actions):
        return jnp.full((states, actions), jnp.array([0.0, 1.0 / actions, 0.5])[self.within.number])

    def probabilities(self, parameters):
        maps = [pr.Softmax().probabilities, pr.Direct().probabilities, users_own]
        return among(self.within.number, maps, parameters)


def users_own(parameters):
    weights = 1.5 + jnp.tanh(parameters)
    return weights / weights.sum(axis=1, keepdims=True)


POLICIES = {
    "softmax": AnyTable(AnySet(np.array(0))),
    "direct": AnyTable(AnySet(np.array(1))),
    "user's": AnyTable(AnySet(np.array(2))),
    "neural": pr.Neural(np.eye(STATES), width=4, depth=1),
}
ENVELOPE = pr.Envelope(lambda xi, p: [xi <= 2.5])
ESTIMATORS = {"adjoint": pr.Adjoint(), "variational": pr.Variational(), "zeroth order": pr.ZerothOrder(20, 1e-4)}


# Every table meets every estimator in some short test, every loss one of these pairs; the derivatives of all losses are
# held against differences above. All three together, and networks, whose estimators are compilations of their own, in
# the long ones.
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
        [AnyRisk(number) for number in range(len(RISKS))],
        loss=one_loss(loss),
        policy=POLICIES[policy],
        gradient=ESTIMATORS[estimator],
        solver=pr.BRPG(samples=DRAWS, iterations=4, step=STEP, evaluation=DRAWS),
        progress=False,
        certify=False,
    )[0]
    return np.stack([solution.history.objective for solution in solutions])


@eqx.filter_jit
def gradients(sampled, logits):
    return pr.Adjoint()(sampled, logits)[1]


@eqx.filter_jit
def values(sampled, logits):
    return sampled.at(logits).value


@pytest.mark.parametrize("loss", LOSSES)
def test_the_gradient_of_every_risk_of_a_loss_agrees_with_differences(loss):
    """Along random directions, at a random policy; risks in a batch."""
    random = np.random.default_rng(len(loss))
    risks = len(RISKS)
    tables = np.broadcast_to(TABLES, (risks, *TABLES.shape))
    sampled = SampledRisk.on(FAMILY.objective(loss=one_loss(loss)), AnyRisk(np.arange(risks)), tables)
    logits = np.broadcast_to(random.normal(size=(STATES, ACTIONS)), (risks, STATES, ACTIONS))
    with jax.enable_x64(True):
        exact = np.asarray(gradients(sampled, logits))
        for _ in range(3):
            direction = random.normal(size=(STATES, ACTIONS))
            ahead, behind = (np.asarray(values(sampled, logits + h * direction)) for h in (1e-5, -1e-5))
            slope = (exact * direction).sum(axis=(1, 2))
            scale = np.linalg.norm(exact, axis=(1, 2)) * np.linalg.norm(direction)
            np.testing.assert_array_less(np.abs((ahead - behind) / 2e-5 - slope), 1e-6 * scale + 1e-10)


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
        loss=one_loss(loss),
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
