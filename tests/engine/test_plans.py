"""Plans against a linear program, dense policy iteration and closed forms: small, dense, swept, and from the start."""

import numpy as np
import pytest

from prudent.engine import ModelBatch, plan, plans, table_rows

from .. import reference
from ..known_models import KNOWN, dense_random, each_known_model, sparse_random


def batch_of(models, dense):
    """Return known models of one shape as a batch."""
    states, actions = models[0].cost.shape
    if dense:
        successor = np.broadcast_to(np.arange(states, dtype=np.int32), (states, actions, states))
        rows = np.stack([model.P.reshape(-1, states) for model in models], axis=-1)
    else:
        successor, chance = models[0].successor_lists()
        rows = chance.reshape(-1, successor.shape[2])[:, :, None]
    cost = np.stack([np.asarray(model.cost, float) for model in models], axis=-1)
    start = np.asarray(models[0].start, float)
    return ModelBatch(successor, table_rows(states, actions), rows, cost, start, models[0].discount)


def policy_iteration(model):
    """Return optimal values, by dense policy iteration."""
    policy = np.eye(model.cost.shape[1])[np.asarray(model.cost).argmin(axis=1)]
    for _ in range(200):
        values = reference.values(model.P, model.cost, policy, model.discount)
        quality = reference.action_values(model.P, model.cost, values, model.discount)
        gain = (policy * quality).sum(axis=1) - quality.min(axis=1) > 1e-11 * (1.0 + np.abs(values).max())
        if not gain.any():
            return values
        policy[gain] = np.eye(model.cost.shape[1])[quality.argmin(axis=1)[gain]]
    raise AssertionError("policy iteration did not settle")


def check(found, model, near):
    """Values within their own error of the reference, bounds around the cost from the start, and a greedy policy."""
    best = policy_iteration(model)
    size = 1e-11 * (1.0 + np.abs(best).max()) / (1.0 - model.discount)
    if np.isfinite(found.error[0]):
        assert np.abs(found.values[:, 0] - best).max() <= found.error[0] + size
        np.testing.assert_allclose(found.values[:, 0], best, rtol=0, atol=near + size)
    least = np.asarray(model.start) @ best
    assert found.low[0] - size <= least <= found.high[0] + size
    assert found.high[0] - found.low[0] <= 2.0 * near + size
    policy = np.eye(model.cost.shape[1])[found.action[:, 0]]
    paid = reference.expected_cost(model.P, model.cost, policy, model.start, model.discount)
    assert paid <= least + 2.0 * near / (1.0 - model.discount) + size
    return best


@pytest.mark.parametrize("dense", [False, True])
@each_known_model
def test_small_models(model, dense):
    best = check(plan(batch_of([model], dense)), model, 0.0)
    np.testing.assert_allclose(
        best, reference.optimal_values(model.P, model.cost, model.discount), rtol=1e-6, atol=1e-6
    )
    if model.optimum is not None:
        np.testing.assert_allclose(best, model.optimum, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("most", [0, 1_000_000], ids=["Jacobi", "Gauss-Seidel"])
@each_known_model
def test_known_models_by_sweeps(model, most, monkeypatch):
    """Both kinds of sweeps, on models that are small enough for the reference."""
    if most and model.discount > 0.999:
        pytest.skip("takes 1e5 sweeps")
    monkeypatch.setattr(plans, "LARGEST_DIRECT", 0)
    monkeypatch.setattr(plans, "MOST_SWEEPS", most)
    spread = float(np.ptp(model.cost)) / (1.0 - model.discount) or 1.0
    check(plan(batch_of([model], False), tolerance=1e-7 * spread), model, 1e-7 * spread)


@pytest.mark.parametrize("name", [name for name, model in KNOWN.items() if model.discount < 0.999])
def test_from_the_start_alone(name):
    model = KNOWN[name]
    batch = batch_of([model], False)
    depth = np.full(len(model.P), -1, np.int32)
    reached, depth[model.start > 0], steps = model.start > 0, 0, 0
    while True:
        more = (reached @ (model.P.max(axis=1) > 0) > 0) & ~reached
        if not more.any():
            break
        steps += 1
        depth[more], reached = steps, reached | more
    spread = float(np.ptp(model.cost)) / (1.0 - model.discount) or 1.0
    found = plan(batch, tolerance=1e-6 * spread, depth=depth)
    assert np.isinf(found.error).all()
    check(found, model, 1e-6 * spread)


def test_large_models_of_every_kind():
    """Dense near discount 1, which lives on the constant shift, and irregular near and far from it."""
    for model, dense in (
        (dense_random(1, plans.LARGEST_DIRECT + 3, 2, 0.9999), True),
        (sparse_random(2, plans.LARGEST_DIRECT + 3, 2, 4, 0.9999), False),
        (sparse_random(3, plans.LARGEST_DIRECT + 3, 2, 4, 0.95), False),
    ):
        found = plan(batch_of([model], dense))
        assert found.improvements[0] < 60
        check(found, model, 1e-9 * (1.0 + np.ptp(found.values)))


def test_many_models_are_planned_each_for_itself(monkeypatch):
    """In blocks that begin at the values of the first, and with costs of their own or shared."""
    models = [dense_random(seed, 7, 3, 0.97) for seed in range(9)]
    batch = batch_of(models, True)
    for size in (4 * 8 * 49, 2**25):
        monkeypatch.setattr(plans, "SOLVE_BYTES", size)
        found = plan(batch)
        shared = plan(batch, models[0].cost[:, :, None])
        for n, model in enumerate(models):
            np.testing.assert_allclose(found.values[:, n], policy_iteration(model), rtol=1e-11)
            same = model._replace(cost=models[0].cost)
            np.testing.assert_allclose(shared.values[:, n], policy_iteration(same), rtol=1e-11)
            assert found.low[n] <= models[0].start @ policy_iteration(model) <= found.high[n]


def test_a_guess_changes_no_plan():
    model = KNOWN["grid"]
    batch = batch_of([model], False)
    plain = plan(batch)
    for guess in (plain.values, plain.values + 7.0, -plain.values):
        found = plan(batch, guess=guess)
        np.testing.assert_array_equal(found.action, plain.action)
        np.testing.assert_allclose(found.values, plain.values, rtol=1e-12)
    assert plan(batch, guess=plain.values).improvements[0] == 0 < plain.improvements[0]
