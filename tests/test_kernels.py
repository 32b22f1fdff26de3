"""Kernels: push and pull against the full table, ragged lists, hubs, and nothing silently dense."""

import numpy as np
import pytest

import prudent as pr

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


def test_ragged_lists_are_padded_with_zero_probability():
    support = pr.Support.lists([[[0, 1, 2]], [[2]], [[0, 2]]])
    kernel = pr.Kernel(support, [[[0.2, 0.3, 0.5]], [[1.0, 0.0, 0.0]], [[0.4, 0.6, 0.0]]])
    assert kernel.support.allowed().sum() == 6
    np.testing.assert_allclose(kernel.table()[1, 0], [0, 0, 1])
    np.testing.assert_allclose(kernel.table()[2, 0], [0.4, 0, 0.6])
