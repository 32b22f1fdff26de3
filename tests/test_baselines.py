"""Exact planning against a linear program, and evaluation against NumPy."""

import dataclasses

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import csr_matrix, identity
from scipy.sparse.linalg import spsolve

import prudent as pr
from prudent.engine import LARGEST_DIRECT

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


@pytest.mark.parametrize("seed", range(100))
def test_policy_iteration_agrees_with_a_linear_program(seed):
    random = np.random.default_rng(seed)
    states, actions = int(random.integers(1, 15)), int(random.integers(1, 5))
    mdp = random_mdp(random, states, actions, int(random.integers(1, states + 1)), discount=random.uniform(0, 0.99))
    mdp = densified(mdp) if seed % 2 else mdp
    plan = pr.plan(mdp)
    np.testing.assert_allclose(plan.values, linear_program_values(mdp), rtol=0, atol=1e-8)
    assert plan.residual < 1e-9
    occupancy = numpy_occupancy(mdp.kernel.table(), plan.policy.probabilities, mdp.start, float(mdp.discount))
    assert (occupancy * mdp.cost).sum() == pytest.approx(mdp.start @ plan.values, rel=1e-9)


def sparse_values(mdp, action):
    """A deterministic policy's values, by sparse LU."""
    states, _, successors = mdp.kernel.support.shape
    rows = np.arange(states)
    entries = (np.repeat(rows, successors), mdp.kernel.support.index()[rows, action].ravel())
    chain = csr_matrix((np.asarray(mdp.kernel.probability)[rows, action].ravel(), entries), shape=(states, states))
    return spsolve((identity(states) - float(mdp.discount) * chain).tocsc(), np.asarray(mdp.cost)[rows, action])


def bellman(mdp, values):
    """`[S, A]` one step of each action and these values from then on."""
    onward = (np.asarray(mdp.kernel.probability) * values[mdp.kernel.support.index()]).sum(axis=2)
    return np.asarray(mdp.cost) + float(mdp.discount) * onward


def large_lake(discount, side=40):
    tile = np.where(np.random.default_rng(0).random((side, side)) < 0.1, "H", "F")
    tile[0, 0], tile[-1, -1] = "S", "G"
    return pr.envs.frozen_lake("\n".join("".join(row) for row in tile), discount).at((0.3, 0.02))


def loosely_linked(discount=0.9999, leak=1e-5):
    """Two clusters that hardly ever meet, one far cheaper: the plain sweeps would need tens of thousands."""
    random = np.random.default_rng(1)
    states, actions = 600, 3
    successor = random.integers(states // 2, size=(states, actions, 3))
    successor[states // 2 :] += states // 2
    successor[:, :, 2] = random.integers(states, size=(states, actions))
    chance = random.dirichlet(np.ones(2), size=(states, actions)) * (1 - leak)
    probability = np.concatenate([chance, np.full((states, actions, 1), leak)], axis=2)
    cost = random.uniform(size=(states, actions))
    cost[: states // 2] -= 2.0
    return pr.MDP(pr.Kernel(pr.Support.lists(successor), probability), cost, 0, discount)


LARGE = {
    "lake": lambda: large_lake(0.97),
    "lake, far-sighted": lambda: large_lake(0.9999),
    "loosely linked": loosely_linked,
    "dense": lambda: densified(random_mdp(np.random.default_rng(3), 420, 3, 30, discount=0.95)),
    "many actions": lambda: random_mdp(np.random.default_rng(4), 450, 30, 5, discount=0.9),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_models_agree_with_sparse_elimination_and_certify_it(name):
    mdp = LARGE[name]()
    assert mdp.kernel.support.states > LARGEST_DIRECT
    discount = float(mdp.discount)
    plan = pr.plan(mdp, tolerance=1e-6)
    bound = plan.residual / (1.0 - discount)
    assert bound <= 1e-5
    quality = bellman(mdp, plan.values)
    violation, rounding = np.abs(quality.min(axis=1) - plan.values).max(), 1e-13 * np.abs(plan.values).max()
    assert violation <= plan.residual <= violation + 10 * rounding
    action = plan.policy.greedy()
    assert np.all(quality[np.arange(len(action)), action] <= quality.min(axis=1) + rounding)
    # Policy iteration by sparse LU from the plan's policy ends at the optimum.
    for _ in range(20):
        exact = sparse_values(mdp, action)
        onward = bellman(mdp, exact)
        gain = onward[np.arange(len(action)), action] - onward.min(axis=1) > 1e-11 * (1 + np.abs(exact))
        if not gain.any():
            break
        action = np.where(gain, onward.argmin(axis=1), action)
    slack = 1e-11 * np.abs(exact).max() / (1.0 - discount)
    assert np.abs(plan.values - exact).max() <= bound + slack
    assert plan.iterations < 300


def test_ties_go_to_the_first_action_at_every_size():
    for states in (5, 600):
        successor = np.broadcast_to(np.arange(states)[:, None, None], (states, 3, 3))
        cost = np.tile([[1.0, 0.3, 0.3]], (states, 1))
        mdp = pr.MDP(pr.Kernel(pr.Support.lists(successor), np.full((states, 3, 3), 1 / 3)), -cost, 0, 0.9)
        assert set(pr.plan(mdp).policy.greedy()) == {0}
        mdp = pr.MDP(mdp.kernel, cost, 0, 0.9)
        assert set(pr.plan(mdp).policy.greedy()) == {1}
        np.testing.assert_allclose(pr.plan(mdp).values, 3.0, rtol=1e-12)


@pytest.mark.parametrize("tolerance", [0.0, -1.0, float("nan"), float("inf"), "tight"])
def test_a_tolerance_that_means_nothing_is_refused(tolerance):
    with pytest.raises(pr.InputError, match=r"tolerance.* must (lie|be one number) in \(0, inf\)"):
        pr.plan(random_mdp(np.random.default_rng(0), 3), tolerance=tolerance)


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
    assert result.under(pr.WorstCase()).risk == result.losses.max()
    assert "mean loss" in str(result)


def test_long_samples_are_evaluated_in_chunks_with_the_same_answer(monkeypatch):
    from prudent.objectives import chunks

    lake = pr.envs.frozen_lake("SF\nHG")
    policy = np.full((4, 4), 0.25)
    whole = pr.evaluate(policy, lake, lake.prior, samples=333).losses
    monkeypatch.setattr(chunks, "CHUNK_MODELS", 100)
    np.testing.assert_allclose(pr.evaluate(policy, lake, lake.prior, samples=333).losses, whole, rtol=1e-12)


def test_changing_cost_or_discount_does_not_revalidate_the_kernel(monkeypatch):
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
