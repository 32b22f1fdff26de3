"""Kernels: push and pull against the full table, ragged lists, hubs, and nothing silently dense."""

import jax
import numpy as np
import pytest

import prudent as pr
from prudent.kernels import on_graph

from .problems import random_kernel, random_policy

SHAPES = [(2, 1, 2), (5, 3, 2), (7, 2, 7), (12, 4, 3)]


@pytest.mark.parametrize("shape", SHAPES)
def test_push_and_pull_agree_with_the_full_table(shape):
    random = np.random.default_rng(0)
    kernel = random_kernel(random, *shape)
    values, mass = random.normal(size=shape[0]), random.uniform(size=shape[:2])
    np.testing.assert_allclose(pr.pull(kernel, values), kernel.table() @ values, rtol=0, atol=1e-14)
    np.testing.assert_allclose(pr.push(kernel, mass), np.einsum("sa,sat->t", mass, kernel.table()), rtol=0, atol=1e-14)


@pytest.mark.parametrize("shape", SHAPES)
def test_push_is_the_transpose_of_pull(shape):
    random = np.random.default_rng(1)
    kernel = random_kernel(random, *shape)
    values, mass = random.normal(size=shape[0]), random.uniform(size=shape[:2])
    np.testing.assert_allclose((mass * pr.pull(kernel, values)).sum(), pr.push(kernel, mass) @ values, rtol=1e-13)


@pytest.mark.parametrize("shape", SHAPES)
def test_dense_and_successor_list_kernels_agree(shape):
    random = np.random.default_rng(2)
    sparse = random_kernel(random, *shape)
    dense = pr.Kernel.dense(sparse.table())
    policy = random_policy(random, *shape[:2])
    for function in (pr.transition_matrix, lambda kernel, policy: pr.identity_minus(kernel, policy, 0.9)):
        np.testing.assert_allclose(function(sparse, policy), function(dense, policy), rtol=0, atol=1e-12)
    assert dense.support.successor is None
    assert sparse.probability.shape == shape


def test_the_state_graph_merges_parallel_moves_and_keeps_their_mass():
    # Both actions of state 0 lead to state 1, one of them twice over; merged, there is one entry for it.
    support = pr.Support.lists([[[1, 1], [1, 0]], [[1, 1], [1, 1]]])
    policy = np.array([[0.25, 0.75], [0.5, 0.5]])
    probability = np.array([[[0.4, 0.6], [0.9, 0.1]], [[1.0, 0.0], [0.3, 0.7]]])
    assert support.graph.successor.shape == (2, 1, 2)
    with jax.enable_x64(True):
        merged, ones = (np.asarray(part) for part in on_graph(support, probability, policy))
    full = np.zeros((2, 2))
    np.add.at(full, (np.arange(2)[:, None, None], support.graph.successor), merged * ones[:, :, None])
    np.testing.assert_allclose(full, pr.transition_matrix(pr.Kernel(support, probability), policy), atol=1e-15)


def test_lists_that_share_few_successors_are_not_merged():
    support = pr.Support.lists(np.arange(24).reshape(6, 2, 2) % 6)
    assert support.graph.slot is None
    assert support.graph.successor.shape == (6, 2, 2)


def test_ragged_lists_are_padded_with_zero_probability():
    support = pr.Support.lists([[[0, 1, 2]], [[2]], [[0, 2]]])
    kernel = pr.Kernel(support, [[[0.2, 0.3, 0.5]], [[1.0, 0.0, 0.0]], [[0.4, 0.6, 0.0]]])
    assert kernel.support.allowed().sum() == 6
    np.testing.assert_allclose(kernel.table()[1, 0], [0, 0, 1])
    np.testing.assert_allclose(kernel.table()[2, 0], [0.4, 0, 0.6])


def test_a_hub_state_does_not_blow_up_the_transpose():
    # Every state can fall back to state 0: padding the transpose would take S x S.
    states = 500
    successor = np.stack([np.zeros(states, int), (np.arange(states) + 1) % states], axis=1)[:, None]
    assert pr.Support.lists(successor).graph.incoming is None
    ring = np.stack([np.arange(states), (np.arange(states) + 1) % states], axis=1)[:, None]
    assert pr.Support.lists(ring).graph.incoming.shape[1] == 2


def test_values_come_back_along_long_lists_too():
    """Beyond a few dozen states the terms are added in a compiled loop, whose counter NumPy cannot index by."""
    random = np.random.default_rng(3)
    kernel = random_kernel(random, states=70, actions=2, successors=3)
    values = random.normal(size=70)
    expected = np.einsum("sat,t->sa", kernel.table(), values)
    np.testing.assert_allclose(pr.pull(kernel, values), expected, rtol=0, atol=1e-12)
