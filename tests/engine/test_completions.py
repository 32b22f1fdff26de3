"""Unseen shares that lead to the dearest visited state: against every target, differences and value iteration."""

import numpy as np
import pytest

import prudent as pr
from prudent.engine import (
    Banded,
    Elimination,
    Krylov,
    ModelBatch,
    TruncatedSum,
    action_futures,
    complete,
    losses_of_targets,
    plan,
    table_rows,
)

from .. import reference

METHODS = {
    "elimination": Elimination.of,
    "banded": Banded.of,
    "krylov": lambda support: Krylov.of(support, residual=1e-13),
}


def random_models(random, states, actions, successors, models, never=0.2, ties=False):
    """Return a support, models with unseen shares along it, and a policy of each."""
    support = pr.Support.lists(random.integers(0, states, (states, actions, successors)))
    rows = random.dirichlet(np.ones(successors), size=(states * actions, models)).transpose(0, 2, 1)
    unseen = random.beta(0.5, 3.0, size=(states, actions, models))
    unseen[random.random((states, actions)) < never] = 1.0
    unseen[random.random((states, actions)) < never] = 0.0
    known = rows * (1.0 - unseen.reshape(-1, 1, models))
    cost = random.integers(0, 2, (states, actions, 1)) * 1.0 if ties else random.normal(size=(states, actions, models))
    visited = random.random(states) < 0.7
    visited[random.integers(states)] = True
    start, discount = random.dirichlet(np.ones(states)), random.choice([0.0, 0.5, 0.9, 0.97])
    batch = ModelBatch(
        support.index(), table_rows(states, actions), known, cost, start, float(discount), unseen, visited
    )
    policy = random.dirichlet(np.ones(actions), size=(states, models)).transpose(0, 2, 1)
    return support, batch, policy


def table_with(models, target, n):
    """Return model n as a table `[S, A, S]` whose unseen shares lead to a target."""
    states, actions, _ = models.successor.shape
    table = np.zeros((states, actions, states))
    for s, a in np.ndindex(states, actions):
        np.add.at(table[s, a], models.successor[s, a], models.probability[models.row[s, a], :, n])
    table[:, :, target] += models.unseen[:, :, n]
    return table


def targets_of(models):
    """Return the states that unseen shares may lead to."""
    return np.flatnonzero(models.visited)


def brute_force(models, policy, cost, n):
    """Return the dearest loss of all targets, and the table that attains it."""
    found = []
    for target in targets_of(models):
        table = table_with(models, target, n)
        values = reference.values(table, cost[:, :, n], policy[:, :, n], models.discount)
        found.append((models.start @ values, values[target], target))
    dearest = max(found)
    # From any start the dearest target is one whose own value is largest.
    np.testing.assert_allclose(max(found, key=lambda each: each[1])[0], dearest[0], rtol=0, atol=1e-9)
    return dearest[0], table_with(models, dearest[2], n), max(each[1] for each in found)


@pytest.mark.parametrize("problem", range(200))
def test_the_target_is_the_dearest_of_all_visited_states(problem):
    random = np.random.default_rng(problem)
    states, actions = int(random.integers(1, 8)), int(random.integers(1, 4))
    support, models, policy = random_models(random, states, actions, 3, 3, ties=problem % 4 == 0)
    cost = np.broadcast_to(models.cost, policy.shape)
    name = list(METHODS)[problem % len(METHODS)]
    found = complete(METHODS[name](support).factor(models, policy), models.cost)
    visits, values = found.state_visits(), found.policy_values(models.cost)
    mass = 1.0 / (1.0 - models.discount)
    np.testing.assert_allclose(visits.sum(axis=0), mass, rtol=1e-9)
    gradient = found.policy_gradient(visits, models.cost)
    for n in range(models.size):
        loss, table, dearest = brute_force(models, policy, cost, n)
        near = {"rtol": 0, "atol": 1e-9 * mass**2}
        np.testing.assert_allclose(models.start @ values[:, n], loss, **near)
        np.testing.assert_allclose((visits[:, None] * policy * cost)[:, :, n].sum(), loss, **near)
        np.testing.assert_allclose(values[models.visited, n].max(), dearest, **near)
        if problem % 4:
            args = (table, policy[:, :, n], models.start, models.discount)
            np.testing.assert_allclose(visits[:, n], reference.state_visits(*args), **near)
            np.testing.assert_allclose(gradient[:, :, n], reference.loss_gradient(*args, cost[:, :, n]), **near)


@pytest.mark.parametrize("method", METHODS)
def test_the_gradient_is_that_of_differences(method):
    random = np.random.default_rng(7)
    support, models, policy = random_models(random, 6, 3, 2, 4)
    models = models._replace(discount=0.9)

    def losses(policy):
        found = complete(METHODS[method](support).factor(models, policy), models.cost)
        return np.einsum("s,sn->n", models.start, found.policy_values(models.cost)), found

    value, found = losses(policy)
    # Away from ties: every other target is cheaper by more than the steps can make up for.
    for n in range(models.size):
        own = [
            models.start @ reference.values(table_with(models, t, n), models.cost[:, :, n], policy[:, :, n], 0.9)
            for t in targets_of(models)
        ]
        assert np.sort(own)[-1] - np.sort(own)[-2] > 1e-3
    gradient = found.policy_gradient(found.state_visits(), models.cost)
    step = 1e-6
    for s, a in np.ndindex(6, 3):
        # Mass goes from the action to the next one, so that rows stay distributions.
        change = np.zeros(policy.shape)
        change[s, a], change[s, (a + 1) % 3] = step, -step
        slope = (losses(policy + change)[0] - losses(policy - change)[0]) / (2.0 * step)
        np.testing.assert_allclose(slope, gradient[s, a] - gradient[s, (a + 1) % 3], rtol=1e-5, atol=1e-6)
    assert np.all(np.isfinite(value))


@pytest.mark.parametrize("problem", range(30))
def test_the_plan_is_that_of_value_iteration_and_its_bounds_hold(problem):
    random = np.random.default_rng(1000 + problem)
    states, actions = (1, 1) if problem == 0 else (int(random.integers(1, 30)), int(random.integers(1, 4)))
    _, models, _ = random_models(random, states, actions, 2, 3, ties=problem % 3 == 0)
    models = models._replace(cost=models.cost + (1e4 if problem % 5 == 0 else 0.0))
    found = plan(models)
    values = np.zeros((states, models.size))
    for _ in range(int(np.ceil(30.0 / (1.0 - models.discount)))):
        values = (models.cost + models.discount * action_futures(models, values)).min(axis=1)
    exact = models.start @ values
    size = 1.0 + np.abs(values).max()
    np.testing.assert_allclose(found.values, values, rtol=0, atol=1e-10 * size)
    assert np.all(found.low <= exact + 1e-12 * size)
    assert np.all(exact <= found.high + 1e-12 * size)
    # No policy does better against its own dearest target, and the plan attains its value.
    for n in range(models.size):
        cost = np.broadcast_to(models.cost, (states, actions, models.size))
        own = np.eye(actions)[found.action]
        policy = np.moveaxis(own, 2, 1)
        np.testing.assert_allclose(brute_force(models, policy, cost, n)[0], exact[n], rtol=0, atol=1e-8 * size)
        for _ in range(5):
            other = random.dirichlet(np.ones(actions), size=states)[:, :, None].repeat(models.size, axis=2)
            assert brute_force(models, other, cost, n)[0] >= found.low[n]


@pytest.mark.parametrize("problem", range(20))
def test_a_bound_for_any_one_target_is_below_that_for_the_dearest(problem):
    random = np.random.default_rng(2000 + problem)
    _, models, _ = random_models(random, 6, 3, 2, 1)
    low = plan(models).low[0]
    for target in targets_of(models):
        table = table_with(models, target, 0)
        known = pr.MDP(pr.Kernel.dense(table), models.cost[:, :, 0], models.start, models.discount)
        assert models.start @ pr.plan(known).values <= low + 1e-8


@pytest.mark.parametrize("problem", range(40))
def test_what_is_taken_off_for_each_target_moves_the_target(problem):
    random = np.random.default_rng(3000 + problem)
    support, models, policy = random_models(random, int(random.integers(1, 7)), 2, 2, 3)
    other = random.dirichlet(np.ones(2), size=len(models.successor))[:, :, None]
    cost = np.broadcast_to(models.cost, policy.shape)
    beside = losses_of_targets(Elimination.of(support).factor(models, other), models.cost)
    found = complete(Elimination.of(support).factor(models, policy), models.cost, beside)
    losses = np.einsum("s,sn->n", models.start, found.policy_values(models.cost))
    for n in range(models.size):
        differences = {}
        for target in targets_of(models):
            table = table_with(models, target, n)
            pair = (policy[:, :, n], other[:, :, 0])
            ours, theirs = (
                models.start @ reference.values(table, cost[:, :, n], each, models.discount) for each in pair
            )
            np.testing.assert_allclose(beside[target, n], theirs, rtol=0, atol=1e-9)
            differences[target] = ours - theirs
        dearest = max(differences.values())
        np.testing.assert_allclose(differences[found.target[n]], dearest, rtol=0, atol=1e-9)
        np.testing.assert_allclose(losses[n] - beside[found.target[n], n], dearest, rtol=0, atol=1e-9)


@pytest.mark.parametrize("problem", range(20))
def test_a_plan_for_a_target_is_that_of_the_known_model(problem):
    random = np.random.default_rng(4000 + problem)
    _, models, _ = random_models(random, int(random.integers(1, 9)), 3, 2, 4)
    target = random.integers(0, len(models.successor), models.size)
    found = plan(models, target=target)
    for n in range(models.size):
        known = pr.MDP(
            pr.Kernel.dense(table_with(models, target[n], n)),
            models.cost[:, :, n % models.cost.shape[2]],
            models.start,
            models.discount,
        )
        np.testing.assert_allclose(found.values[:, n], pr.plan(known).values, rtol=0, atol=1e-9)


def test_nothing_unseen_is_the_known_model():
    random = np.random.default_rng(3)
    support, models, policy = random_models(random, 8, 2, 3, 5)
    models = models._replace(unseen=np.zeros_like(models.unseen), probability=models.probability)
    rows = models.probability / models.probability.sum(axis=1, keepdims=True).clip(1e-300)
    models = models._replace(probability=np.where(models.probability.sum(axis=1, keepdims=True) > 0, rows, 1.0 / 3.0))
    whole = models._replace(unseen=None, visited=None)
    factors = Elimination.of(support).factor(whole, policy)
    found = complete(Elimination.of(support).factor(models, policy), models.cost)
    np.testing.assert_array_equal(found.state_visits(), factors.state_visits())
    np.testing.assert_array_equal(found.policy_values(models.cost), factors.policy_values(models.cost))
    np.testing.assert_allclose(plan(models).values, plan(whole).values, rtol=0, atol=1e-10)


def test_a_cut_occupancy_is_refused():
    support, models, policy = random_models(np.random.default_rng(0), 4, 2, 2, 2)
    with pytest.raises(pr.InputError, match=r"leave occupancy= out"):
        complete(TruncatedSum.of(support, 10).factor(models, policy), models.cost)
