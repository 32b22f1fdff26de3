"""The gradient of the composed objective against central differences computed by NumPy alone."""

import jax.numpy as jnp
import numpy as np
import pytest

import prudent as pr
from prudent.gradients import Adjoint, SampledRisk
from prudent.solvers.draws import stacked

from .marks import short
from .problems import numpy_occupancy, softmax

DRAWS = 6
ACTIONS = 3
MDPS_A_CASE = 20
RISKS = {"expectation": pr.Expectation(), "cvar": pr.CVaR(0.6), "worst case": pr.WorstCase()}


def spread(occupancy, mdp):
    """A convex, nonlinear loss that also looks at the model: entropy, a quadratic and the cost."""
    share = (1.0 - mdp.discount) * occupancy
    return (share * jnp.log(share)).sum() + 2.0 * (share**2).sum() + (share * mdp.cost).sum()


def numpy_losses(name, occupancy, cost, discount):
    if name == "linear":
        return (occupancy * cost).sum(axis=(-2, -1))
    share = (1.0 - discount) * occupancy
    return (share * np.log(share) + 2.0 * share**2 + share * cost).sum(axis=(-2, -1))


def numpy_risk(name, losses):
    """Along the last axis; CVaR 0.6 of 6 draws takes the worst 2.4 of them."""
    ordered = np.sort(losses, axis=-1)[..., ::-1]
    if name == "expectation":
        return ordered.mean(axis=-1)
    if name == "worst case":
        return ordered[..., 0]
    return (ordered[..., 0] + ordered[..., 1] + 0.4 * ordered[..., 2]) / 2.4


def numpy_objective(loss, risk, logits, tables, cost, start, discount):
    """`logits [..., S, A]`, `tables [R, S, A, S]` to the objective `[...]`."""
    policy = softmax(logits)[..., None, :, :]
    chain = np.einsum("...rsa,rsat->...rst", np.broadcast_to(policy, (*policy.shape[:-3], *tables.shape[:3])), tables)
    matrix = np.eye(len(start)) - discount * np.swapaxes(chain, -1, -2)
    right = np.broadcast_to(start[:, None], (*matrix.shape[:-1], 1))
    visits = np.linalg.solve(matrix, right)
    return numpy_risk(risk, numpy_losses(loss, visits * policy, cost, discount))


def differences(loss, risk, logits, *arguments, width=1e-5):
    shifts = width * np.eye(logits.size).reshape(-1, *logits.shape)
    up = numpy_objective(loss, risk, logits + shifts, *arguments)
    down = numpy_objective(loss, risk, logits - shifts, *arguments)
    return ((up - down) / (2 * width)).reshape(logits.shape)


def all_gradients(objectives, logits, probability):
    out, shares = {}, np.full((1, DRAWS), 1.0 / DRAWS)
    for loss_name, objective in objectives.items():
        for risk_name, risk in RISKS.items():
            sampled = SampledRisk(objective, stacked([risk]), probability[None], shares)
            result, gradient = Adjoint()(sampled, logits[None])
            out[loss_name, risk_name] = (result.value[0], gradient[0])
    return out


def well_separated(tables, logits, cost, start, discount):
    """No two losses so close that a difference step could swap them."""
    for loss in ("linear", "nonlinear"):
        policy = softmax(logits)
        occupancy = np.stack([numpy_occupancy(table, policy, start, discount) for table in tables])
        if np.diff(np.sort(numpy_losses(loss, occupancy, cost, discount))).min() < 1e-3:
            return False
    return True


def full_tables(support, probability):
    """`[R, S, A, B]` along the support to `[R, S, A, S]`."""
    tables = np.zeros((*probability.shape[:3], support.states))
    r, s, a = (axis[..., None] for axis in np.ogrid[tuple(slice(size) for size in probability.shape[:3])])
    np.add.at(tables, (r, s, a, support.index()[None]), probability)
    return tables


def supports(states):
    """Dense, and lists of three (or all) distinct successors."""
    order = np.argsort(np.random.default_rng(states).random((states, ACTIONS, states)), axis=2)
    return {True: pr.Support.dense(states, ACTIONS), False: pr.Support.lists(order[:, :, :3])}


SIZES = [(states, dense) for states in (2, 3, 5, 8, 12) for dense in (True, False)]


@pytest.mark.parametrize("size", short([(8, False)], SIZES))
def test_adjoint_gradient_agrees_with_central_differences(size):
    """200 MDPs: 5 sizes x dense and lists x 20, discounts 0.5 to 0.99, three risks, two losses."""
    states, dense = size
    random = np.random.default_rng(states)
    support = supports(states)[dense]
    worst = 0.0
    checked = 0
    while checked < MDPS_A_CASE:
        discount = random.uniform(0.5, 0.99)
        start, cost = random.dirichlet(np.ones(states)), random.uniform(size=(states, ACTIONS))
        probability = random.dirichlet(np.full(support.successors, 0.7), size=(DRAWS, states, ACTIONS))
        tables = full_tables(support, probability)
        logits = random.normal(size=(states, ACTIONS))
        if not well_separated(tables, logits, cost, start, discount):
            continue
        family = pr.TabularFamily(support, cost, start, discount)
        losses = {"linear": pr.ExpectedCost(), "nonlinear": spread}
        objectives = {name: family.objective(loss=loss) for name, loss in losses.items()}
        found = all_gradients(objectives, logits, probability)
        for (loss, risk), (value, gradient) in found.items():
            arguments = (tables, cost, start, discount)
            np.testing.assert_allclose(value, numpy_objective(loss, risk, logits, *arguments), rtol=1e-10)
            expected = differences(loss, risk, logits, *arguments)
            worst = max(worst, np.abs(gradient - expected).max() / np.abs(expected).max())
        checked += 1
    assert worst <= 1e-6, worst


def large_supports():
    """Beyond the direct solver: dense, lists that merge or not, and a hub whose transpose is not padded."""
    states = 60
    near = (np.arange(states)[:, None, None] + np.array([[[0, 1], [1, 2], [2, 0]]])) % states
    far = np.argsort(np.random.default_rng(1).random((states, ACTIONS, states)), axis=2)[:, :, :4]
    hub = near.copy()
    hub[:, :, 0] = 0
    hub[0] = [[0, 1], [0, 2], [0, 3]]
    return {
        "dense": pr.Support.dense(states, ACTIONS),
        "merged": pr.Support.lists(near),
        "not merged": pr.Support.lists(far),
        "hub": pr.Support.lists(hub),
    }


@pytest.mark.parametrize("name", short(["merged", "hub"], ["dense", "merged", "not merged", "hub"]))
def test_gradient_of_the_iterative_solver_along_random_directions(name):
    support = large_supports()[name]
    states = support.states
    random = np.random.default_rng(11)
    probability = random.dirichlet(np.ones(support.successors), size=(DRAWS, states, ACTIONS))
    cost, start, discount = random.uniform(size=(states, ACTIONS)), random.dirichlet(np.ones(states)), 0.95
    family = pr.TabularFamily(support, cost, start, discount)
    objective, risk = family.objective(loss=spread), stacked([pr.CVaR(0.6)])
    logits = random.normal(size=(states, ACTIONS))
    sampled = SampledRisk(objective, risk, probability[None], np.full((1, DRAWS), 1.0 / DRAWS))
    _, gradient = Adjoint()(sampled, logits[None])
    tables = full_tables(support, probability)
    for _ in range(5):
        direction = random.normal(size=logits.shape)
        ends = [
            numpy_objective("nonlinear", "cvar", logits + sign * 1e-5 * direction, tables, cost, start, discount)
            for sign in (1, -1)
        ]
        np.testing.assert_allclose((np.asarray(gradient[0]) * direction).sum(), (ends[0] - ends[1]) / 2e-5, rtol=1e-6)


def test_batched_gradients_are_the_single_ones():
    lake = pr.envs.frozen_lake("SFF\nFHF\nFFG")
    random = np.random.default_rng(0)
    logits, thetas = random.normal(size=(4, 9, 4)), random.uniform(size=(4, 5, 2))
    levels = np.array([0.0, 0.3, 0.6, 0.9])
    objective = lake.objective()

    def gradient(levels, logits, thetas):
        risks = stacked([pr.CVaR(level) for level in levels])
        return Adjoint()(SampledRisk(objective, risks, thetas, np.full((len(levels), 5), 0.2)), logits)

    together, slopes = gradient(levels, logits, thetas)
    for g in range(4):
        alone, slope = gradient(levels[g : g + 1], logits[g : g + 1], thetas[g : g + 1])
        np.testing.assert_allclose(alone.value[0], together.value[g], rtol=1e-13)
        np.testing.assert_allclose(slope[0], slopes[g], rtol=0, atol=1e-12)
        np.testing.assert_allclose(np.mean(together.weights[g]), 1.0, rtol=1e-12)
