"""Every method of the engine against the dense reference: visits, values and gradients of known and random models."""

import numpy as np
import pytest

import prudent as pr
from prudent.engine import Banded, Cut, Elimination, Krylov, ModelBatch, choose_method, next_values, table_rows

from .. import reference
from ..known_models import KNOWN

METHODS = {
    "elimination": Elimination.of,
    "banded": Banded.of,
    "krylov": lambda support: Krylov.of(support, residual=1e-13),
    "fixed point": lambda support: Krylov.of(support, residual=1e-13, sweeps=0),
}


def batch_of(model, dense):
    """Return the support and a batch of one known model."""
    kernel = model.mdp(dense).kernel
    states, actions, successors = kernel.support.shape
    rows = np.asarray(kernel.probability).reshape(states * actions, successors, 1)
    cost = np.asarray(model.cost, float)[:, :, None]
    return kernel.support, ModelBatch(
        kernel.support.index(), table_rows(states, actions), rows, cost, np.asarray(model.start), model.discount
    )


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("method", METHODS)
def test_known_models(method, name, dense):
    model = KNOWN[name]
    if method == "fixed point" and model.discount > 0.99:
        pytest.skip("takes 1e5 steps")
    support, models = batch_of(model, dense)
    factors = METHODS[method](support).factor(models, np.asarray(model.policy, float)[:, :, None])
    mass = 1.0 / (1.0 - model.discount)
    size = mass * np.abs(model.cost).max()
    near = 1e-9 if "krylov" in method or "fixed" in method else 1e-11
    visits, values = factors.state_visits()[:, 0], factors.policy_values(models.cost)[:, 0]
    expected = reference.state_visits(model.P, model.policy, model.start, model.discount)
    np.testing.assert_allclose(visits, expected, rtol=0, atol=near * mass)
    np.testing.assert_allclose(
        values, reference.values(model.P, model.cost, model.policy, model.discount), rtol=0, atol=near * mass * size
    )
    if model.visits is not None:
        np.testing.assert_allclose(visits, model.visits, rtol=0, atol=near * mass)
    if model.values is not None:
        np.testing.assert_allclose(values, model.values, rtol=0, atol=1e-9 * size + near * mass * size)
    gradient = factors.policy_gradient(factors.state_visits(), models.cost)[:, :, 0]
    slopes = reference.loss_gradient(model.P, model.policy, model.start, model.discount, model.cost)
    np.testing.assert_allclose(gradient, slopes, rtol=0, atol=near * mass**2 * size)


def random_batch(random, states, actions, successors, models, near=None, shared_cost=False):
    """Return a support, a batch of models along it, and a policy and a slope of each."""
    place = random.permutation(states)
    if near is None:
        successor = random.integers(0, states, (states, actions, successors))
    else:
        moved = np.arange(states)[:, None, None] + random.integers(-near, near + 1, (states, actions, successors))
        successor = place[np.clip(moved, 0, states - 1)][np.argsort(place)]
    support = pr.Support.lists(successor)
    probability = random.dirichlet(np.ones(successors), size=(states * actions, models)).transpose(0, 2, 1)
    cost = random.normal(size=(states, actions, 1 if shared_cost else models))
    start = random.dirichlet(np.ones(states))
    batch = ModelBatch(support.index(), table_rows(states, actions), probability, cost, start, 0.97)
    policy = random.dirichlet(np.ones(actions), size=(states, models)).transpose(0, 2, 1)
    policy[:, :, 0] = np.eye(actions)[random.integers(0, actions, states)]
    return support, batch, policy


def table_of(models, n):
    """Return model n as a table `[S, A, S]`."""
    states, actions, _ = models.successor.shape
    table = np.zeros((states, actions, states))
    for s, a in np.ndindex(states, actions):
        np.add.at(table[s, a], models.successor[s, a], models.probability[models.row[s, a], :, n])
    return table


@pytest.mark.parametrize(("states", "near", "models"), [(9, None, 70), (30, 2, 1), (30, 2, 65), (40, None, 3)])
@pytest.mark.parametrize("method", METHODS)
def test_models_of_a_batch_are_solved_each_for_itself(method, states, near, models):
    """The last block of a batch need not be full, and successors may meet the same state twice."""
    random = np.random.default_rng(states + models)
    support, batch, policy = random_batch(random, states, 2, 3, models, near)
    slope = random.normal(size=policy.shape)
    factors = METHODS[method](support).factor(batch, policy)
    visits = factors.state_visits()
    gradient = factors.policy_gradient(visits, slope)
    for n in {0, models // 2, models - 1}:
        table = table_of(batch, n)
        expected = reference.state_visits(table, policy[:, :, n], batch.start, 0.97)
        np.testing.assert_allclose(visits[:, n], expected, rtol=0, atol=1e-8)
        slopes = reference.loss_gradient(table, policy[:, :, n], batch.start, 0.97, slope[:, :, n])
        np.testing.assert_allclose(gradient[:, :, n], slopes, rtol=0, atol=1e-7)


@pytest.mark.parametrize("method", METHODS)
def test_one_policy_and_one_cost_for_all_models(method):
    random = np.random.default_rng(3)
    support, batch, policy = random_batch(random, 12, 3, 2, 5, shared_cost=True)
    one = METHODS[method](support).factor(batch, policy[:, :, :1])
    several = METHODS[method](support).factor(batch, np.repeat(policy[:, :, :1], 5, axis=2))
    visits = one.state_visits()
    np.testing.assert_array_equal(visits, several.state_visits())
    slope = np.repeat(batch.cost, 5, axis=2)
    np.testing.assert_array_equal(one.policy_gradient(visits, batch.cost), several.policy_gradient(visits, slope))


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("horizon", [0, 1, 2, 9])
@pytest.mark.parametrize("name", ["one state", "two states", "cycle", "queue", "dense", "irregular"])
def test_a_cut_occupancy_and_its_gradient(name, horizon, dense):
    model = KNOWN[name]
    support, models = batch_of(model, dense)
    factors = Cut.of(support, horizon).factor(models, np.asarray(model.policy, float)[:, :, None])
    visits, given = factors.state_visits(), (model.P, model.policy, model.start, model.discount, horizon)
    np.testing.assert_allclose(visits[:, 0, None] * model.policy, reference.truncated_occupancy(*given), atol=1e-12)
    slopes = reference.truncated_gradient(*given, model.cost)
    np.testing.assert_allclose(factors.policy_gradient(visits, models.cost)[:, :, 0], slopes, rtol=1e-9, atol=1e-9)
    paid = model.start @ factors.policy_values(models.cost)[:, 0]
    np.testing.assert_allclose(paid, (visits[:, 0, None] * model.policy * model.cost).sum(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("horizon", [None, 6])
def test_gradients_are_differences(horizon):
    """The reference's derivative and the engine's are both compared with quotients of the engine's own losses."""
    random = np.random.default_rng(1)
    support, batch, policy = random_batch(random, 14, 3, 3, 2)
    method = choose_method(support) if horizon is None else Cut.of(support, horizon)
    slope = random.normal(size=policy.shape)

    def losses(policy):
        return np.einsum("sn,san,san->n", method.factor(batch, policy).state_visits(), policy, slope)

    factors = method.factor(batch, policy)
    gradient = factors.policy_gradient(factors.state_visits(), slope)
    for _ in range(5):
        direction = random.normal(size=policy.shape)
        quotient = (losses(policy + 1e-6 * direction) - losses(policy - 1e-6 * direction)) / 2e-6
        np.testing.assert_allclose((gradient * direction).sum(axis=(0, 1)), quotient, rtol=1e-6)


def test_classes_of_pairs_share_their_distributions():
    random = np.random.default_rng(2)
    support, batch, policy = random_batch(random, 20, 2, 3, 4)
    classes = random.integers(0, 5, (20, 2)).astype(np.int32)
    shared = batch._replace(row=classes, probability=batch.probability[:5])
    spread = batch._replace(probability=batch.probability[:5][classes.ravel()])
    for make in METHODS.values():
        one, other = (make(support).factor(models, policy) for models in (shared, spread))
        np.testing.assert_allclose(one.state_visits(), other.state_visits(), rtol=1e-12)
        visits = one.state_visits()
        np.testing.assert_allclose(
            one.policy_gradient(visits, batch.cost), other.policy_gradient(visits, batch.cost), rtol=1e-9, atol=1e-12
        )
    np.testing.assert_array_equal(
        next_values(shared, policy[:, 0]),
        np.einsum("sabn,sabn->san", spread.probability.reshape(20, 2, 3, 4), policy[:, 0][batch.successor]),
    )


def test_the_order_of_elimination_is_changed_where_that_saves_work():
    lake = pr.envs.frozen_lake()
    assert np.array_equal(Elimination.of(lake.support).place, np.arange(25))
    shuffled = np.random.default_rng(3).permutation(90)
    corridor = np.minimum(np.stack([np.arange(90), np.arange(90) + 1], axis=1), 89)[:, None]
    hidden = Banded.of(pr.Support.lists(np.argsort(shuffled)[corridor][shuffled]))
    assert hidden.band == 1 and not np.array_equal(hidden.place, np.arange(90))


@pytest.mark.parametrize(
    ("support", "kind"),
    [
        (pr.Support.dense(16, 2), Elimination),
        (pr.Support.dense(100, 2), Banded),
        (pr.Support.dense(101, 2), Krylov),
        (pr.Support.lists(np.clip(np.arange(300)[:, None, None] + [[-1, 0, 1]], 0, 299)), Banded),
        (pr.Support.lists(np.random.default_rng(0).integers(300, size=(300, 2, 3))), Krylov),
    ],
)
def test_the_method_follows_from_size_and_structure(support, kind):
    assert type(choose_method(support)) is kind


def test_a_method_for_another_support_does_not_fit():
    corridor, lake = pr.envs.frozen_lake("S" + 23 * "F" + "G").support, pr.envs.frozen_lake().support
    for kind in (Elimination, Banded, Krylov):
        assert kind.of(lake).fits(lake.index()) and not kind.of(corridor).fits(lake.index())


def test_bicgstab_meets_its_residual_on_a_slow_chain():
    """A long corridor with a small chance to move is the hardest kind for an iterative method."""
    states, rows = 400, np.arange(400)
    successor = np.stack([rows, np.minimum(rows + 1, states - 1)], axis=1)[:, None]
    support = pr.Support.lists(successor)
    probability = np.broadcast_to(np.array([0.7, 0.3])[None, :, None], (states, 2, 1))
    models = ModelBatch(
        support.index(), table_rows(states, 1), probability, np.ones((states, 1, 1)), np.eye(states)[0], 0.999
    )
    visits = Krylov.of(support).factor(models, np.ones((states, 1, 1))).state_visits()[:, 0]
    expected = reference.state_visits(table_of(models, 0), np.ones((states, 1)), models.start, 0.999)
    np.testing.assert_allclose(visits, expected, rtol=0, atol=1e-6 * expected.max())
