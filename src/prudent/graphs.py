"""Directed graphs of states; imports neither JAX nor, before it is needed, SciPy."""

from __future__ import annotations

import numpy as np


def reachable(source: np.ndarray, target: np.ndarray, start: np.ndarray) -> np.ndarray:
    """`[S]` whether a node can be reached along edges `source[k] -> target[k]` from where `start`, `[S]`, is not 0.

    >>> reachable(np.array([0, 1]), np.array([1, 0]), np.array([1.0, 0.0, 0.0])).tolist()
    [True, True, False]
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import breadth_first_order

    nodes, first = len(start), np.flatnonzero(start)
    # One more node leads to every possible first one.
    source, target = np.concatenate([source, np.full(len(first), nodes)]), np.concatenate([target, first])
    graph = csr_matrix((np.ones(len(source), np.int8), (source, target)), shape=(nodes + 1, nodes + 1))
    # Edges that are there several times add up, and may come to 0.
    graph.data[:] = 1
    mask = np.zeros(nodes + 1, dtype=bool)
    mask[breadth_first_order(graph, nodes, return_predecessors=False)] = True
    return mask[:nodes]
