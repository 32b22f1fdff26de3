"""Parametrisations: the simplex against a quadratic program's optimality, networks against exact planning."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import prudent as pr
from prudent.arrays import in_float64
from prudent.parameter_sets import projected
from prudent.records import tree_leaves

project = in_float64(projected)
TABLES = st.lists(st.lists(st.floats(-5.0, 5.0), min_size=3, max_size=3), min_size=4, max_size=4).map(np.array)


@pytest.mark.parametrize("floor", [0.0, 0.1])
@given(table=TABLES, other=TABLES)
def test_the_simplex_projection_is_the_nearest_table(floor, table, other):
    simplex = pr.Simplex(floor)
    nearest, elsewhere = project(simplex, table), project(simplex, other)
    assert np.all(nearest >= floor - 1e-12)
    np.testing.assert_allclose(nearest.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    # The projection's variational inequality: no point of the set lies beyond the tangent plane.
    assert np.all(((table - nearest) * (elsewhere - nearest)).sum(axis=1) <= 1e-9)
    np.testing.assert_allclose(project(simplex, nearest), nearest, rtol=0, atol=1e-12)


def test_a_direct_policy_plans_as_well_as_policy_iteration():
    lake = pr.envs.frozen_lake("SFF\nFHF\nFFG")
    truth = (0.3, 0.1)
    settings = pr.BRPG(samples=1, iterations=300, step=0.05, evaluation=1)
    solution = pr.solve(lake, pr.Point(truth), risk=pr.Expectation(), policy=pr.Direct(), solver=settings)
    best = pr.plan(lake.at(truth)).policy
    assert pr.loss_at(solution.policy, lake, truth) <= 1.001 * pr.loss_at(best, lake, truth)
    assert (np.asarray(solution.policy.probabilities) == 0).any(), "no action was given up"


def test_a_floor_keeps_every_action_possible():
    lake = pr.envs.frozen_lake("SF\nHG")
    policy = pr.Direct(within=pr.Simplex(floor=0.05))
    settings = pr.BRPG(samples=5, iterations=50, step=0.1, evaluation=1)
    table = np.asarray(pr.solve(lake, lake.prior, policy=policy, solver=settings).policy.probabilities)
    assert table.min() >= 0.05 - 1e-12
    assert table.min() <= 0.05 + 1e-9


def lake_features(lake):
    """Where a state is, scaled to about 1, and what kind of tile it has."""
    height, width = len(lake.tiles), len(lake.tiles[0])
    row, column = np.divmod(np.arange(height * width), width)
    return np.column_stack([row / (height - 1) * 2 - 1, column / (width - 1) * 2 - 1, lake.hole, lake.goal])


def test_a_neural_policy_reaches_the_tabular_optimum_of_a_small_lake():
    lake, truth = pr.envs.frozen_lake("SF\nHG"), (0.3, 0.02)
    settings = pr.BRPG(samples=1, iterations=150, step=optax.adam(0.05), evaluation=1)
    policy = pr.Neural(np.eye(4), width=8, depth=1)
    solution = pr.solve(lake, pr.Point(truth), risk=pr.Expectation(), policy=policy, solver=settings)
    best = pr.loss_at(pr.plan(lake.at(truth)).policy, lake, truth)
    assert best <= pr.loss_at(solution.policy, lake, truth) <= 1.01 * best


@pytest.mark.long
def test_a_neural_policy_reaches_the_tabular_optimum_on_the_lake():
    lake = pr.envs.frozen_lake()
    truth = (0.3, 0.02)
    settings = pr.BRPG(samples=1, iterations=300, step=optax.adam(0.01), evaluation=1)
    policy = pr.Neural(lake_features(lake), width=64)
    parameters = None
    # Plain descent ends 2.4 % above, whatever the network; a bonus for exploring, taken back, leads round it.
    for bonus in (20.0, 5.0, 1.0, 0.0):
        loss = pr.ExpectedCost() + bonus * pr.NegativeEntropy()
        solution = pr.solve(
            lake, pr.Point(truth), risk=pr.Expectation(), loss=loss, policy=policy, solver=settings, start=parameters
        )
        parameters = solution.parameters
    best = pr.loss_at(pr.plan(lake.at(truth)).policy, lake, truth)
    assert best <= pr.loss_at(solution.policy, lake, truth) <= 1.01 * best


@pytest.mark.long
def test_weights_of_a_network_stay_in_their_ball():
    lake = pr.envs.frozen_lake("SF\nHG")
    policy = pr.Neural(np.eye(4), width=8, depth=1, within=pr.Ball(1.0))
    settings = pr.BRPG(samples=5, iterations=20, step=1.0, evaluation=1)
    solution = pr.solve(lake, lake.prior, policy=policy, solver=settings)
    norm = np.sqrt(sum((leaf**2).sum() for leaf in tree_leaves(solution.parameters)))
    assert norm == pytest.approx(1.0, abs=1e-9)


def test_the_first_weights_follow_the_seed():
    first, again, other = (tree_leaves(pr.Neural(np.eye(3), width=4, seed=seed).initial(3, 2)) for seed in (1, 1, 2))
    assert all(leaf.dtype == np.float64 for leaf in first)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_a_policy_of_the_users_own_takes_any_pytree():
    lake = pr.envs.frozen_lake("SF\nHG")

    def blend(parameters):
        """A logistic mix of two fixed tables, and a tilt common to all states."""
        share = jax.nn.sigmoid(parameters["mix"])
        return jax.nn.softmax(jnp.log(share * first + (1 - share) * second) + parameters["tilt"], axis=1)

    random = np.random.default_rng(0)
    first, second = random.dirichlet(np.ones(4), size=(2, 4))
    policy = pr.Parametric(blend, start={"mix": 0.0, "tilt": np.zeros(4)}, within=pr.Box(-3.0, 3.0))
    settings = pr.BRPG(samples=10, iterations=30, step=0.5, evaluation=200)
    solution = pr.solve(lake, lake.prior, policy=policy, solver=settings)
    start = pr.evaluate((first + second) / 2, lake, lake.prior)
    assert solution.risk < start.risk
    assert sorted(solution.parameters) == ["mix", "tilt"]
