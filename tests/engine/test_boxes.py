"""Plans in boxes of policies against all corners of the boxes, and the rows that they are made of."""

import numpy as np
import pytest

from prudent.engine import BoxModels, ModelBatch, cheapest_rows, nearest_rows, plan_in_boxes, table_rows, visits_of_rows

from .. import reference

BOXES, MODELS, DISCOUNT = 6, 5, 0.9


def random_boxes(random, states, actions):
    """Return bounds `[M, S, A]` that some row reaches; the last box holds one policy."""
    centre = random.dirichlet(np.ones(actions), size=(BOXES, states))
    width = random.uniform(size=centre.shape)
    width[-1] = 0.0
    low, high = np.maximum(centre - width, 0.0), np.minimum(centre + width, 1.0)
    above, below = 1.0 - (low.sum(axis=2, keepdims=True) - low), 1.0 - (high.sum(axis=2, keepdims=True) - high)
    return np.maximum(low, below), np.minimum(high, above)


def random_models(random, states, actions, ring):
    """Return a batch with its tables `[N, S, A, S]`: dense, or a ring of shuffled states."""
    if ring:
        names = random.permutation(states)
        place = np.argsort(names)
        near = np.stack([names[place - 1], np.arange(states), names[(place + 1) % states]], axis=1)
        successor = np.broadcast_to(near[:, None], (states, actions, 3)).astype(np.int32)
    else:
        successor = np.broadcast_to(np.arange(states, dtype=np.int32), (states, actions, states))
    count = successor.shape[2]
    probability = np.moveaxis(random.dirichlet(np.ones(count), size=(states * actions, MODELS)), 1, 2)
    tables = np.zeros((MODELS, states, actions, states))
    for s, a, b in np.ndindex(*successor.shape):
        tables[:, s, a, successor[s, a, b]] += probability[s * actions + a, b]
    start, cost = random.dirichlet(np.ones(states)), random.normal(size=(states, actions, MODELS))
    return ModelBatch(successor, table_rows(states, actions), probability, cost, start, DISCOUNT), tables


@pytest.mark.parametrize("ring", [False, True])
@pytest.mark.parametrize("own_costs", [False, True])
def test_the_least_cost_of_a_box_is_that_of_its_best_corner(ring, own_costs):
    random = np.random.default_rng(1 + ring)
    states, actions = (7, 2) if ring else (3, 3)
    models, tables = random_models(random, states, actions, ring)
    low, high = random_boxes(random, states, actions)
    cost = random.normal(size=(BOXES, states, actions, MODELS)) if own_costs else models.cost[None]
    prepared = BoxModels.of(models)
    if ring:
        assert prepared.place.tolist() != list(range(states))
    nothing = np.zeros((BOXES, states, MODELS))
    found = plan_in_boxes(prepared, low, high, cost, nothing)
    unimproved = plan_in_boxes(prepared, low, high, cost, nothing, improvements=0)
    for m in range(BOXES):
        own = cost[m % len(cost)]
        corners = reference.corners_of_box(low[m], high[m])
        for n in range(MODELS):
            best = reference.expected_cost(tables[n], own[:, :, n], corners, models.start, DISCOUNT).min()
            assert best - 1e-7 <= found.least[m, n] <= best + 1e-10  # corners are rounded
            assert unimproved.least[m, n] <= best + 1e-10
            rows = found.rows[m, :, :, n]
            values = reference.values(tables[n], own[:, :, n], rows, DISCOUNT)
            np.testing.assert_allclose(found.values[m, :, n], values, atol=1e-7)
            quality = reference.action_values(tables[n], own[:, :, n], values, DISCOUNT)
            np.testing.assert_allclose(found.quality[m, :, :, n], quality, atol=1e-7)
            visits = reference.state_visits(tables[n], rows, models.start, DISCOUNT)
            np.testing.assert_allclose(found.visits[m, :, n], visits, atol=1e-10)
        assert np.all(found.rows[m] >= low[m, :, :, None] - 1e-15)
        assert np.all(found.rows[m] <= high[m, :, :, None] + 1e-15)
        np.testing.assert_allclose(found.rows[m].sum(axis=1), 1.0, atol=1e-14)


def test_a_guess_of_no_improvement_proves_no_more_than_it_does():
    """With the optimal values as the guess, the bound without an improvement is the least cost; shifted, it is not."""
    random = np.random.default_rng(5)
    models, _ = random_models(random, 3, 3, False)
    low, high = random_boxes(random, 3, 3)
    prepared, cost = BoxModels.of(models), models.cost[None]
    found = plan_in_boxes(prepared, low, high, cost, np.zeros((BOXES, 3, MODELS)))
    again = plan_in_boxes(prepared, low, high, cost, found.values, improvements=0)
    np.testing.assert_allclose(again.least, found.least, atol=1e-7)
    np.testing.assert_array_equal(again.values, found.values)
    higher = plan_in_boxes(prepared, low, high, cost, found.values + 1.0, improvements=0)
    np.testing.assert_allclose(higher.least, found.least, atol=1e-6)
    uneven = plan_in_boxes(prepared, low, high, cost, found.values + np.array([0.0, 0.5, 1.0])[:, None], improvements=0)
    assert np.all(uneven.least < found.least - 1e-3)


def test_visits_of_rows_are_those_of_every_model():
    random = np.random.default_rng(2)
    models, tables = random_models(random, 5, 2, True)
    rows = np.moveaxis(random.dirichlet(np.ones(2), size=(3, 5, MODELS)), 2, 3)
    visits = visits_of_rows(BoxModels.of(models), rows)
    for m, n in np.ndindex(3, MODELS):
        expected = reference.state_visits(tables[n], rows[m, :, :, n], models.start, DISCOUNT)
        np.testing.assert_allclose(visits[m, :, n], expected, atol=1e-11)


def test_nearest_rows_cannot_be_brought_nearer():
    """Along every exchange of two probabilities that the bounds allow, the distance grows."""
    random = np.random.default_rng(3)
    low, high = random_boxes(random, 4, 4)
    rows = random.normal(scale=3.0, size=(BOXES, 4, 4, MODELS))
    found = nearest_rows(rows, low, high)
    np.testing.assert_allclose(found.sum(axis=2), 1.0, atol=1e-12)
    assert np.all(found >= low[..., None] - 1e-12) and np.all(found <= high[..., None] + 1e-12)
    away = rows - found
    for a, b in np.ndindex(4, 4):
        able = (found[:, :, a] < high[:, :, a, None] - 1e-9) & (found[:, :, b] > low[:, :, b, None] + 1e-9)
        assert np.all((away[:, :, a] - away[:, :, b])[able] <= 1e-9)
    inside = np.moveaxis(np.stack([low + (high - low) * 0.5] * MODELS), 0, -1)
    inside /= inside.sum(axis=2, keepdims=True)
    kept = np.all((inside >= low[..., None]) & (inside <= high[..., None]), axis=2)
    assert kept.any()
    np.testing.assert_allclose(np.abs(nearest_rows(inside, low, high) - inside).max(axis=2)[kept], 0.0, atol=1e-12)


def test_rows_far_from_their_bounds_have_nearest_rows_all_the_same():
    """At a distance of 1e18 a shift cannot tell probabilities apart."""
    random = np.random.default_rng(6)
    low, high = random_boxes(random, 4, 4)
    for size in (1e6, 1e12, 1e18):
        found = nearest_rows(size * random.normal(size=(BOXES, 4, 4, MODELS)), low, high)
        np.testing.assert_allclose(found.sum(axis=2), 1.0, atol=1e-12)
    whole = nearest_rows(1e18 * random.normal(size=(1, 5, 4, 3)), np.zeros((1, 5, 4)), np.ones((1, 5, 4)))
    np.testing.assert_allclose(whole.sum(axis=2), 1.0, atol=1e-12)


def test_cheapest_rows_are_the_best_corners_and_ties_go_to_the_first():
    random = np.random.default_rng(4)
    low, high = random_boxes(random, 3, 4)
    cost = random.normal(size=low.shape)
    rows = cheapest_rows(cost, low, high)
    for m, s in np.ndindex(BOXES, 3):
        corners = reference.corners_of_box(low[m, [s]], high[m, [s]])[:, 0]
        assert rows[m, s] @ cost[m, s] == pytest.approx((corners @ cost[m, s]).min(), abs=1e-9)
        assert rows[m, s].sum() == pytest.approx(1.0, abs=1e-12)
    tied = cheapest_rows(np.zeros((1, 1, 3)), np.zeros((1, 1, 3)), np.array([[[0.5, 1.0, 1.0]]]))
    np.testing.assert_array_equal(tied, [[[0.5, 0.5, 0.0]]])
