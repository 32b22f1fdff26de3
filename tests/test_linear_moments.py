"""Moments, losses, gradients and plans of linear systems against long sums, complex steps and SciPy."""

import jax
import numpy as np
import pytest
from scipy.linalg import solve_discrete_are

import prudent as pr
from prudent.linear import lyapunov
from prudent.objectives import slopes_on

from .marks import short

SYSTEMS, EACH = 100, 10


def random_case(seed):
    """A family with all that a cost can have, a system that is unstable by itself, and a gain that stabilises it."""
    random = np.random.default_rng(seed)
    n, m = int(random.integers(1, 9)), int(random.integers(1, 5))
    root = random.normal(size=(n + m, n + m))
    weight = root @ root.T / (n + m) + 0.1 * np.eye(n + m)

    def covariance(size):
        factor = random.normal(size=(size, size))
        return factor @ factor.T / size

    family = pr.LinearFamily(
        weight[:n, :n],
        weight[n:, n:],
        cross_cost=weight[:n, n:],
        state_target=random.normal(size=n),
        action_target=random.normal(size=m),
        start_mean=random.normal(size=n),
        start_covariance=covariance(n),
        noise=covariance(n),
        action_noise=0.1 * covariance(m),
        discount=float(random.uniform(0.5, 0.97)),
    )
    state_matrix = random.normal(size=(n, n)) * 1.05 / np.sqrt(n)
    action_matrix = random.normal(size=(n, m))
    theta = family.theta(state_matrix, action_matrix)
    plan = pr.linear_plan(family, theta)
    gain = plan.policy.gain + 0.02 * random.normal(size=(m, n))
    policy = pr.LinearGaussianPolicy(gain, plan.policy.bias + 0.1 * random.normal(size=m))
    if np.sqrt(family.discount) * family.at(theta).radius(policy) > 0.985:
        policy = plan.policy
    return family, theta, policy


def summed(family, theta, gains, biases, horizon):
    """First and second moments of (s, a) as a plain sum over time, of several gains; complex ones pass through."""
    n, gamma = family.states, float(family.discount)
    state_matrix, action_matrix = theta[:, :n], theta[:, n:]
    loops, drifts = state_matrix + action_matrix @ gains, biases @ action_matrix.T
    noise = family.noise + action_matrix @ family.action_noise @ action_matrix.T
    across, back = np.swapaxes(gains, 1, 2), np.swapaxes(loops, 1, 2)
    means = np.broadcast_to(family.start_mean + 0j, (len(gains), n))
    spreads, weight = np.broadcast_to(family.start_covariance + 0j, (len(gains), n, n)), 1.0
    first, second = 0.0, 0.0
    for _ in range(horizon + 1):
        actions = (gains @ means[..., None])[..., 0] + biases
        whole = np.concatenate([means, actions], axis=1)
        cross = spreads @ across
        below = np.concatenate([np.swapaxes(cross, 1, 2), gains @ cross + family.action_noise], axis=2)
        block = np.concatenate([np.concatenate([spreads, cross], axis=2), below], axis=1)
        first = first + weight * whole
        second = second + weight * (block + whole[:, :, None] * whole[:, None, :])
        means = (loops @ means[..., None])[..., 0] + drifts
        spreads, weight = loops @ spreads @ back + noise, weight * gamma
    return first, second


def cost_of(family, first, second, horizon=None):
    gamma, off = float(family.discount), family.target
    mass = (1.0 - (0.0 if horizon is None else gamma ** (horizon + 1))) / (1.0 - gamma)
    linear = (family.weight * second).sum(axis=(1, 2)) - 2.0 * first @ family.weight @ off
    return linear + mass * (off @ family.weight @ off)


def terms_for(family, theta, policy):
    """So many that what is left out is below rounding."""
    rate = np.sqrt(float(family.discount)) * max(1.0, family.at(theta).radius(policy))
    return int(np.ceil(np.log(1e-19) / np.log(rate) / 2.0)) + 60


BLOCKS = [range(3), range(3, EACH), *(range(first, first + EACH) for first in range(EACH, SYSTEMS, EACH))]


@pytest.mark.parametrize("seeds", short(BLOCKS[:1], BLOCKS), ids=str)
def test_moments_losses_and_gradients_of_random_systems(seeds):
    for seed in seeds:
        family, theta, policy = random_case(seed)
        occupancy = pr.linear_occupancy(family.at(theta), policy)
        objective = family.objective(policy=pr.LinearGain(bias=True))
        point = objective.point_from(policy)
        found = slopes_on(objective, point[None], theta[None], np.zeros(1, int), np.zeros(1, int))
        # The gain itself, and a complex step along each of its entries.
        steps = 1e-30j * np.concatenate([np.zeros((1, point.size)), np.eye(point.size)])
        moved = point + steps.reshape(-1, *point.shape)
        first, second = summed(family, theta, moved[:, :, 1:], moved[:, :, 0], terms_for(family, theta, policy))
        size = np.abs(second).max()
        np.testing.assert_allclose(occupancy.first, first[0].real, rtol=1e-8, atol=1e-8 * size)
        np.testing.assert_allclose(occupancy.second, second[0].real, rtol=1e-8, atol=1e-8 * size)
        costs = cost_of(family, first, second)
        np.testing.assert_allclose(found.losses[0], costs[0].real, rtol=1e-8)
        slope = costs[1:].imag.reshape(point.shape) / 1e-30
        np.testing.assert_allclose(found.slopes[0], slope, rtol=1e-8, atol=1e-8 * np.abs(slope).max())


@pytest.mark.parametrize("case", short([(3, 0), (14, 1), (25, 30)], [(s, t) for s in (3, 14, 25) for t in (0, 1, 30)]))
def test_a_finite_horizon_is_the_finite_sum_and_its_plan_is_not_beaten(case):
    seed, horizon = case
    family, theta, policy = random_case(seed)
    first, second = summed(family, theta, np.asarray(policy.gain)[None], np.asarray(policy.bias)[None], horizon)
    cut = pr.Truncated(horizon)
    loss = float(pr.loss_at(policy, family, theta, occupancy=cut))
    np.testing.assert_allclose(loss, cost_of(family, first, second, horizon)[0].real, rtol=1e-10)
    objective = family.objective(occupancy=cut)
    draws = pr.Draws(theta[None]).as_atoms()
    least, _ = objective.plans().least(draws, objective.point_from(policy))
    assert least[0] <= loss * (1 + 1e-9)
    if horizon == 0:  # the start is given, and one action is chosen for each state: minimised by hand
        n, weight, off = family.states, family.weight, family.target
        inverse = np.linalg.inv(weight[n:, n:])
        schur = weight[:n, :n] - weight[:n, n:] @ inverse @ weight[n:, :n]
        shift = family.start_mean - off[:n]
        by_hand = shift @ schur @ shift + (schur * family.start_covariance).sum()
        by_hand += (weight[n:, n:] * family.action_noise).sum()
        np.testing.assert_allclose(least[0], by_hand, rtol=1e-8)


@pytest.mark.parametrize("seed", short([0, 12, 48], range(0, 60, 6)))
def test_the_plan_is_scipys(seed):
    family, theta, _ = random_case(seed)
    n, gamma = family.states, float(family.discount)
    root = np.sqrt(gamma)
    state_matrix, action_matrix = np.zeros((n + 1, n + 1)), np.zeros((n + 1, family.actions))
    state_matrix[0, 0], state_matrix[1:, 1:], action_matrix[1:] = 1.0, theta[:, :n], theta[:, n:]
    shifted = np.concatenate([-family.target[:, None], np.eye(len(family.target))], axis=1)
    cost = shifted.T @ family.weight @ shifted
    value = solve_discrete_are(
        root * state_matrix,
        root * action_matrix,
        cost[: n + 1, : n + 1],
        cost[n + 1 :, n + 1 :],
        s=cost[: n + 1, n + 1 :],
    )
    start = np.concatenate([[1.0], family.start_mean])
    moments = np.outer(start, start)
    moments[1:, 1:] += family.start_covariance
    noise = family.noise + theta[:, n:] @ family.action_noise @ theta[:, n:].T
    each = gamma * (value[1:, 1:] * noise).sum() + (family.weight[n:, n:] * family.action_noise).sum()
    least = (value * moments).sum() + each / (1.0 - gamma)
    plan = pr.linear_plan(family, theta)
    np.testing.assert_allclose(plan.cost, least, rtol=1e-8)
    np.testing.assert_allclose(pr.loss_at(plan.policy, family, theta), least, rtol=1e-8)


def test_the_equation_knows_a_stable_matrix_from_one_that_is_not():
    with jax.enable_x64(True):
        for radius, stable in ((0.0, True), (0.999999, True), (1.0, False), (1.3, False)):
            matrix = np.array([[radius, 5.0], [0.0, radius]])
            solution, said = lyapunov(matrix, np.eye(2))
            assert bool(said) is stable
            assert np.all(np.isfinite(solution))


def test_an_unstable_gain_loses_infinitely_much_and_has_no_slope():
    family = pr.LinearFamily([[1.0]], [[1.0]], noise=[[1.0]], discount=0.9)
    objective = family.objective()
    points = np.array([[[0.0, 0.5]], [[0.0, -0.5]]])
    found = slopes_on(objective, points, np.array([[[1.0, 1.0]]]), np.array([0, 1]), np.zeros(2, int))
    assert found.losses[0] == np.inf
    assert np.all(found.slopes[0] == 0.0)
    assert np.isfinite(found.losses[1])


@pytest.mark.parametrize("states", short([1, 2], [1, 2, 7]))
def test_the_mean_of_a_function_under_the_occupancy(states):
    random = np.random.default_rng(states)
    family = pr.LinearFamily(
        np.eye(states),
        [[1.0]],
        noise=0.3 * np.eye(states),
        start_mean=np.ones(states),
        discount=0.9,
        action_noise=[[0.2]],
    )
    theta = family.theta(0.5 * np.eye(states) + 0.05 * random.normal(size=(states, states)), np.ones((states, 1)))
    occupancy = pr.linear_occupancy(family.at(theta), pr.LinearGaussianPolicy(np.full((1, states), -0.1), bias=[0.3]))
    square = occupancy.expect(lambda state, action: (state @ state) + action[0] ** 2)
    # Quadratic functions are exact by the rule, and near by points at random.
    np.testing.assert_allclose(square, np.trace(occupancy.second), rtol=1e-8 if states < 7 else 2e-2)
    # E[cos(a)] of a Gaussian is exp(-v / 2) cos(mean), summed over a long simulation-free series.
    gain, bias = np.full((1, states), -0.1), np.array([0.3])
    mean, spread, total = np.ones(states), np.zeros((states, states)), 0.0
    loop = theta[:, :states] + theta[:, states:] @ gain
    noise = 0.3 * np.eye(states) + 0.2 * np.ones((states, states))
    for t in range(400):
        acted, variance = (gain @ mean + bias)[0], (gain @ spread @ gain.T)[0, 0] + 0.2
        total += 0.9**t * np.exp(-variance / 2.0) * np.cos(acted)
        mean, spread = loop @ mean + theta[:, states:] @ bias, loop @ spread @ loop.T + noise
    found = occupancy.expect(lambda state, action: jax.numpy.cos(action[0]))
    np.testing.assert_allclose(found, total, rtol=1e-6 if states < 7 else 2e-2)
