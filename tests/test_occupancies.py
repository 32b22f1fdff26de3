"""Occupancies: the definition, flow balance, every solver against NumPy, truncation and its bound."""

import dataclasses

import equinox as eqx
import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import prudent as pr
from prudent.occupancies import measure

from .marks import short
from .problems import densified, numpy_occupancy, random_mdp, random_policy


def solver_methods(support):
    """Every way to the exact occupancy on a support."""
    return {
        "on the host": None,
        "chosen by size": pr.Exact(),
        "elimination": pr.Exact(pr.Elimination.of(support)),
        "banded": pr.Exact(pr.Banded.of(support)),
        "banded, without loops": pr.Exact(dataclasses.replace(pr.Banded.of(support), reach=None)),
        "krylov": pr.Exact(pr.Krylov.of(support)),
        "fixed point only": pr.Exact(pr.Krylov(support.is_dense, sweeps=0)),
    }


DIRECT = ["elimination", "banded", "banded, without loops"]
NAMES = ["on the host", "chosen by size", *DIRECT, "krylov", "fixed point only"]
SIZES = [(1, 1, 1), (2, 2, 2), (6, 3, 2), (13, 2, 13), (23, 3, 4)]


EVERY = [(name, size, dense) for name in NAMES for size in SIZES for dense in (False, True)]
FEW = [(name, *(((6, 3, 2), False), ((13, 2, 13), True))[number % 2]) for number, name in enumerate(NAMES)]


@pytest.mark.parametrize("case", short(FEW, EVERY), ids=str)
def test_every_solver_agrees_with_numpy(case):
    name, size, dense = case
    random = np.random.default_rng(0)
    mdp = random_mdp(random, *size, discount=0.95)
    policy = random_policy(random, *size[:2])
    expected = numpy_occupancy(mdp.kernel.table(), policy, mdp.start, 0.95)
    mdp = densified(mdp) if dense else mdp
    found = pr.occupancy(mdp, policy, solver_methods(mdp.kernel.support)[name])
    tolerance = 1e-12 if name in ("on the host", "chosen by size", *DIRECT) else 1e-8
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * expected.max())


@pytest.mark.parametrize("name", [*DIRECT, "krylov"])
@pytest.mark.parametrize("islands", short([[3, 5, 2, 6]], [[1] * 7, [1] * 10, [5, 3], [3, 5, 2, 6]]))
def test_states_that_fall_apart_into_islands(islands, name):
    """No state of one island reaches another: windows of the elimination end with their block."""
    random = np.random.default_rng(6)
    successor, first = [], 0
    for size in islands:
        successor += [[[first + int(k) for k in random.integers(size, size=2)] for _ in range(2)] for _ in range(size)]
        first += size
    support = pr.Support.lists(successor)
    kernel = pr.Kernel(support, random.dirichlet(np.ones(2), size=(first, 2)))
    mdp = pr.MDP(kernel, random.uniform(size=(first, 2)), random.dirichlet(np.ones(first)), 0.9)
    policy = random_policy(random, first, 2)
    expected = numpy_occupancy(kernel.table(), policy, mdp.start, 0.9)
    found = pr.occupancy(mdp, policy, solver_methods(support)[name])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8)


def test_a_hub_and_padded_lists_on_the_iterative_path():
    """A state that every other falls back to, and lists of different lengths."""
    random = np.random.default_rng(8)
    states = 70
    successor = [[[0, (s + 1) % states], [0, s, (s + 7) % states]] for s in range(states)]
    probability = np.zeros((states, 2, 3))
    probability[:, 0, :2], probability[:, 1] = (random.dirichlet(np.ones(n), states) for n in (2, 3))
    kernel = pr.Kernel(pr.Support.lists(successor), probability)
    assert kernel.support.graph.incoming is None
    mdp = pr.MDP(kernel, np.ones((states, 2)), 3, 0.95)
    policy = random_policy(random, states, 2)
    expected = numpy_occupancy(kernel.table(), policy, mdp.start, 0.95)
    for method in (None, pr.Exact()):
        np.testing.assert_allclose(pr.occupancy(mdp, policy, method), expected, rtol=0, atol=1e-8)


def test_a_plan_for_another_support_is_refused():
    corridor = pr.envs.frozen_lake("S" + 23 * "F" + "G")
    lake = pr.envs.frozen_lake()
    with pytest.raises(pr.InputError, match="another support"):
        pr.occupancy(lake.at((0.3, 0.1)), np.full((25, 4), 0.25), pr.Exact(pr.Elimination.of(corridor.support)))


def batch_of_measures(sizes, count, seed):
    """Occupancies of many random MDPs of one shape in one compiled call, for laws over many examples."""
    states, actions, successors = sizes
    random = np.random.default_rng(seed)
    support = random_mdp(random, *sizes).kernel.support
    probability = random.dirichlet(np.ones(successors) * 0.3, size=(count, states, actions))
    policy = random.dirichlet(np.ones(actions) * 0.3, size=(count, states))
    start = random.dirichlet(np.ones(states))
    return support, probability, policy, start


def run_measure(method, support, probability, policy, start, discount):
    method = method.resolve(support)
    axis = method.solver.axis() if isinstance(method, pr.Exact) else pr.Krylov.of(support).axis()
    move = (lambda x: x) if axis == 0 else (lambda x: np.moveaxis(x, 0, -1))
    with jax.enable_x64(True):
        out = eqx.filter_jit(measure)(method, support, move(probability), move(policy), start, np.float64(discount))
    return np.moveaxis(np.asarray(out), axis, 0)


@pytest.mark.parametrize("discount", [0.0, 0.5, 0.9, 0.99, 0.9999])
@pytest.mark.parametrize("sizes", [(2, 3, 2), (12, 3, 4), (12, 3, 12), (60, 2, 4)])
def test_mass_and_flow_balance(sizes, discount):
    """To 1e-10 as they stand up to a discount of 0.99; beyond it relative to the mass, which grows without bound."""
    support, probability, policy, start = batch_of_measures(sizes, 100, seed=1)
    occupancy = run_measure(pr.Exact(), support, probability, policy, start, discount)
    mass = 1.0 / (1.0 - discount)
    tolerance = 1e-10 * (mass if discount > 0.99 else 1.0)
    np.testing.assert_allclose(occupancy.sum(axis=(1, 2)), mass, rtol=0, atol=tolerance)
    inflow = np.zeros((100, sizes[0]))
    np.add.at(
        inflow,
        (np.arange(100)[:, None, None, None], support.index()[None]),
        occupancy[..., None] * probability,
    )
    np.testing.assert_allclose(
        occupancy.sum(axis=2) - discount * inflow, np.tile(start, (100, 1)), rtol=0, atol=tolerance
    )


def test_dense_and_successor_list_paths_agree():
    support, probability, policy, start = batch_of_measures((11, 3, 4), 200, seed=2)
    table = np.zeros((200, 11, 3, 11))
    n, s, a = np.ogrid[:200, :11, :3]
    np.add.at(table, (n[..., None], s[..., None], a[..., None], support.index()[None]), probability)
    sparse = run_measure(pr.Exact(), support, probability, policy, start, 0.97)
    dense = run_measure(pr.Exact(), pr.Support.dense(11, 3), table, policy, start, 0.97)
    np.testing.assert_allclose(sparse, dense, rtol=0, atol=1e-12)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.1, 0.8, 0.97]))
def test_occupancy_is_a_measure_with_the_policy_as_its_conditional(seed, discount):
    random = np.random.default_rng(seed)
    mdp = random_mdp(random, 6, 3, 2, discount=discount)
    policy = random_policy(random, 6, 3)
    occupancy = pr.occupancy(mdp, policy)
    assert np.all(occupancy >= 0)
    np.testing.assert_allclose(occupancy.sum() * (1 - discount), 1.0, atol=1e-10)
    np.testing.assert_allclose(occupancy, occupancy.sum(axis=1, keepdims=True) * policy, atol=1e-10)


@pytest.mark.parametrize("sizes", short([(8, 2, 3), (70, 2, 3)], [(8, 2, 3), (8, 2, 8), (70, 2, 3)]))
def test_truncation_is_the_partial_sum_and_its_bound_holds(sizes):
    random = np.random.default_rng(3)
    mdp = random_mdp(random, *sizes, discount=0.9)
    policy = random_policy(random, *sizes[:2])
    exact = numpy_occupancy(mdp.kernel.table(), policy, mdp.start, 0.9)
    chain = np.einsum("sa,sat->st", policy, mdp.kernel.table())
    now, total = np.array(mdp.start), np.array(mdp.start)
    for horizon in range(1, 31):
        now = 0.9 * now @ chain
        total = total + now
        if horizon in (1, 7, 30):
            method = pr.Truncated(horizon)
            found = pr.occupancy(mdp, policy, method)
            np.testing.assert_allclose(found, total[:, None] * policy, rtol=0, atol=1e-12)
            missing = np.abs(exact - found).sum()
            # All of the missing mass is on one side, so the bound is met with equality.
            np.testing.assert_allclose(missing, method.error_bound(0.9), rtol=1e-9)
    np.testing.assert_allclose(pr.occupancy(mdp, policy, pr.Truncated(0)), np.array(mdp.start)[:, None] * policy)


def test_krylov_meets_its_residual_on_a_slow_chain():
    # A long corridor with a small chance to move: the hardest kind for an iterative method.
    states = 400
    successor = np.stack([np.arange(states), np.minimum(np.arange(states) + 1, states - 1)], axis=1)[:, None]
    kernel = pr.Kernel(pr.Support.lists(successor), np.broadcast_to([0.7, 0.3], (states, 1, 2)).copy())
    mdp = pr.MDP(kernel, np.ones((states, 1)), 0, 0.999)
    policy = np.ones((states, 1))
    found = pr.occupancy(mdp, policy)
    expected = numpy_occupancy(kernel.table(), policy, mdp.start, 0.999)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * expected.max())
    np.testing.assert_allclose(found.sum() * 0.001, 1.0, rtol=1e-8)


def test_elimination_reorders_only_when_that_saves_work():
    lake = pr.envs.frozen_lake()
    assert pr.Elimination.of(lake.support).order == tuple(range(25))
    shuffled = np.random.default_rng(0).permutation(40)
    position = np.argsort(shuffled)
    ring = np.stack([np.arange(40), (np.arange(40) + 1) % 40], axis=1)
    corridor = np.minimum(ring, 39)[:, None]
    scrambled = position[corridor][shuffled]
    plan = pr.Elimination.of(pr.Support.lists(scrambled))
    assert plan.order != tuple(range(40))
    assert max(end - 5 * step for step, end in enumerate(plan.reach)) < 15


@pytest.mark.parametrize("models", [3, 16, 21])
def test_loops_solve_any_number_of_models_each_its_own(models):
    """Models are worked on in groups of eight, the last of which may not be full."""
    pytest.importorskip("numba")
    random = np.random.default_rng(models)
    shuffled = random.permutation(30)
    near = np.clip(np.arange(30)[:, None, None] + random.integers(-4, 5, (30, 2, 3)), 0, 29)
    support = pr.Support.lists(np.argsort(shuffled)[near][shuffled])
    method = pr.Exact().resolve(support)
    assert isinstance(method.solver, pr.Banded) and method.solver.reach is not None
    probability = random.dirichlet(np.ones(3), size=(models, 30, 2))
    policy = random.dirichlet(np.ones(2), size=(models, 30))
    weights = random.normal(size=(30, 2, models))
    start = random.dirichlet(np.ones(30))

    def value(policy):
        found = measure(method, support, jax.numpy.moveaxis(probability, 0, -1), policy, start, np.asarray(0.99))
        return (weights * found).sum(), found

    with jax.enable_x64(True):
        slope, found = jax.jit(jax.grad(value, has_aux=True))(np.moveaxis(policy, 0, -1))
    for m in range(models):
        table = pr.Kernel(support, probability[m]).table()
        expected = numpy_occupancy(table, policy[m], start, 0.99)
        np.testing.assert_allclose(found[..., m], expected, rtol=0, atol=1e-12 * 100)
        system = np.eye(30) - 0.99 * np.einsum("sa,sat->st", policy[m], table)
        values = np.linalg.solve(system, (policy[m] * weights[..., m]).sum(axis=1))
        visits = expected.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(
            slope[..., m], visits * (weights[..., m] + 0.99 * table @ values), rtol=1e-9, atol=1e-9
        )


def test_a_band_is_used_where_there_is_one_and_found_where_it_is_hidden():
    random = np.random.default_rng(3)
    shuffled = random.permutation(90)
    corridor = np.minimum(np.stack([np.arange(90), np.arange(90) + 1], axis=1), 89)[:, None]
    hidden = pr.Support.lists(np.argsort(shuffled)[corridor][shuffled])
    solver = pr.Exact().resolve(hidden).solver
    assert isinstance(solver, pr.Banded) and solver.band == 4
    mdp = pr.MDP(pr.Kernel(hidden, random.dirichlet(np.ones(2), size=(90, 1))), np.ones((90, 1)), 5, 0.99)
    expected = numpy_occupancy(mdp.kernel.table(), np.ones((90, 1)), mdp.start, 0.99)
    np.testing.assert_allclose(pr.occupancy(mdp, np.ones((90, 1)), pr.Exact()), expected, rtol=0, atol=1e-12 * 100)
    scattered = pr.Support.lists(random.integers(90, size=(90, 1, 3)))
    assert isinstance(pr.Exact().resolve(scattered).solver, pr.Krylov)
    with pytest.raises(pr.InputError, match="another support"):
        pr.Exact(solver).resolve(scattered)
