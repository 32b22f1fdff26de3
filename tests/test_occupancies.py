"""Occupancies: the definition, flow balance, every solver against NumPy, truncation and its bound."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import prudent as pr

from .marks import short
from .problems import densified, numpy_occupancy, random_mdp, random_policy


def solver_methods(support):
    """Every way to the exact occupancy on a support."""
    return {
        "chosen by size": None,
        "elimination": pr.Exact(pr.Elimination.of(support)),
        "banded": pr.Exact(pr.Banded.of(support)),
        "krylov": pr.Exact(pr.Krylov.of(support)),
        "fixed point only": pr.Exact(pr.Krylov.of(support, sweeps=0)),
    }


DIRECT = ["elimination", "banded"]
NAMES = ["chosen by size", *DIRECT, "krylov", "fixed point only"]
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
    tolerance = 1e-12 if name in ("chosen by size", *DIRECT) else 1e-8
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
