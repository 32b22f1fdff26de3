"""The variational and zeroth-order estimators against the adjoint, and every part with every other."""

import jax.numpy as jnp
import numpy as np
import pytest

import prudent as pr
from prudent.gradients import SampledRisk
from prudent.solvers.draws import stacked

from .marks import short

STATES, ACTIONS, DRAWS, MDPS = 5, 3, 4, 20
SUPPORT = pr.Support.dense(STATES, ACTIONS)


def user_function(occupancy, mdp):
    """A convex loss of a user's own, with neither a conjugate nor a linear part split off."""
    share = (1.0 - mdp.discount) * occupancy
    return jnp.log(jnp.exp(4.0 * share).sum()) + (share * mdp.cost).sum()


def table(random):
    return random.dirichlet(np.ones(STATES * ACTIONS)).reshape(STATES, ACTIONS)


LOSSES = {
    "kl of states": lambda random: pr.Imitation(random.dirichlet(np.ones(STATES))),
    "kl of state-actions": lambda random: pr.Imitation(
        random.dirichlet(np.ones(STATES * ACTIONS)).reshape(-1, ACTIONS)
    ),
    "quadratic": lambda random: pr.QuadraticDistance(table(random)),
    "linear": lambda random: pr.ExpectedCost(),
    "sum": lambda random: 0.1 * pr.ExpectedCost() + 2.0 * pr.NegativeEntropy(),
    "user's": lambda random: user_function,
}


def gradients(estimator, problems, words=None):
    """The estimate for each of many problems."""
    words = np.zeros((len(problems), 1, 2), np.uint32) if words is None else words[:, None]
    return np.stack([estimator(*problem, own)[1][0] for problem, own in zip(problems, words, strict=True)])


def random_problems(name):
    """Twenty problems with their own costs, discounts, losses, risk levels, policies and posterior draws."""
    random = np.random.default_rng(len(name))
    problems = []
    for _ in range(MDPS):
        cost = random.uniform(size=(STATES, ACTIONS))
        family = pr.TabularFamily(SUPPORT, cost, random.dirichlet(np.ones(STATES)), random.uniform(0.5, 0.97))
        risk = stacked([pr.CVaR(random.uniform(0.0, 0.9))])
        objective, logits = family.objective(loss=LOSSES[name](random)), random.normal(size=(1, STATES, ACTIONS))
        drawn = random.dirichlet(np.ones(STATES), size=(1, DRAWS, STATES, ACTIONS))
        problems.append((SampledRisk(objective, risk, drawn, np.full((1, DRAWS), 1.0 / DRAWS)), logits))
    return problems


@pytest.mark.parametrize("name", short(["kl of states", "linear", "user's"], LOSSES))
def test_the_variational_gradient_is_the_adjoints(name):
    problems = random_problems(name)
    exact, found = gradients(pr.Adjoint(), problems), gradients(pr.Variational(), problems)
    error = np.linalg.norm(found - exact, axis=(1, 2)) / np.linalg.norm(exact, axis=(1, 2))
    assert error.max() <= (1e-12 if name == "linear" else 1e-6)


def test_a_short_ascent_is_noticeably_wrong():
    """The test above can fail: after two alternations the saddle point is not reached."""
    problems = random_problems("sum")
    exact = gradients(pr.Adjoint(), problems)
    found = gradients(pr.Variational(iterations=1, descent=0.5), problems)
    error = np.linalg.norm(found - exact, axis=(1, 2)) / np.linalg.norm(exact, axis=(1, 2))
    assert np.median(error) > 1e-3


def squared_errors(estimator, copies=100):
    """Of one problem many times, along independent directions."""
    problems = random_problems("kl of states")[:1]
    words = np.random.default_rng(0).integers(2**32, size=(copies, 2), dtype=np.uint32)
    exact, found = gradients(pr.Adjoint(), problems)[0], gradients(estimator, problems * copies, words)
    return exact, found, ((found - exact) ** 2).sum(axis=(1, 2)) / (exact**2).sum()


def test_the_zeroth_order_gradient_is_unbiased_and_its_error_falls_with_the_directions():
    exact, found, few = squared_errors(pr.ZerothOrder(directions=8, radius=1e-4))
    spread = found.std(axis=0) / np.sqrt(len(found))
    assert np.abs((found.mean(axis=0) - exact) / spread).max() < 4.5
    _, _, many = squared_errors(pr.ZerothOrder(directions=128, radius=1e-4))
    # Var of 1/m sum (g.u) u is (d + 1) |g|^2 / m; d = 15.
    assert few.mean() == pytest.approx((STATES * ACTIONS + 1) / 8, rel=0.2)
    assert few.mean() / many.mean() == pytest.approx(16.0, rel=0.2)


def test_a_large_radius_smooths_the_gradient_away():
    _, _, near = squared_errors(pr.ZerothOrder(directions=128, radius=1e-3))
    _, _, far = squared_errors(pr.ZerothOrder(directions=128, radius=10.0))
    assert far.mean() > 3.0 * near.mean()
