"""Cutting planes for a convex loss with kinks, such as a maximum of linear functions.

The largest of all cuts found so far is a model of the loss from below. Its minimiser over the occupancies is a linear
program: its weights on the cuts are those of the best average of cuts, so they raise the bound, and towards its
minimiser new cuts are made. For a loss of finitely many linear pieces this ends at the optimum.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from ..models import MDP
from .search import Cut, Search, row_policy

# State-action pairs up to which the linear programs are solved: one takes some seconds at this size.
LARGEST_CUTS = 5000

# New cuts are made at these shares of the way from the best occupancy to the model's minimiser. The minimiser itself
# ends the search where pieces are few; where they are many it lies far off, and cuts near the best occupancy tell more.
LENGTHS = (1.0, 0.3, 0.1, 0.03)

# Cuts that are kept whether they bind or not, the newest.
NEWEST = 300

# The linear program's tolerances: it proposes only, but a gap of a millionth needs weights that good.
PRECISION = 1e-9


def cutting_planes(search: Search) -> Iterator[int]:
    """One linear program after the other; each raises the bound, and makes cuts where it has its minimum."""
    flow = _flow(search.mdp)
    while (solved := _lowest(search.mdp, flow, search.cuts)) is not None:
        place, weights = solved
        search.support(search.cuts, weights)
        binding = [cut for cut, weight in zip(search.cuts[:-NEWEST], weights, strict=False) if weight > 0.0]
        search.cuts = [*binding, *search.cuts[-NEWEST:]]
        best = search.occupancy
        for length in LENGTHS:
            search.look(search.of_policy(row_policy(best + length * (place - best))))
        yield 1


def _lowest(mdp: MDP, flow: sparse.csr_matrix, cuts: list[Cut]) -> tuple[np.ndarray, np.ndarray] | None:
    """Where the largest cut is least, `[S, A]`, and the weights `[J]` of the cuts there; None if it is not found.

    The program is for `(1 - discount) lambda`, whose entries sum to 1.
    """
    rest, pairs = 1.0 - float(mdp.discount), mdp.cost.size
    slopes = np.stack([cut.slope.ravel() for cut in cuts]) / rest
    result = linprog(
        np.append(np.zeros(pairs), 1.0),
        A_ub=np.hstack([slopes, -np.ones((len(cuts), 1))]),
        b_ub=-np.array([cut.intercept for cut in cuts]),
        A_eq=sparse.hstack([flow, sparse.csr_matrix((len(mdp.cost), 1))]),
        b_eq=rest * np.asarray(mdp.start),
        bounds=[(0.0, None)] * pairs + [(None, None)],
        method="highs-ipm",
        options={"primal_feasibility_tolerance": PRECISION, "dual_feasibility_tolerance": PRECISION},
    )
    if not result.success:
        return None
    weights = np.maximum(-result.ineqlin.marginals, 0.0)
    place = np.maximum(result.x[:-1], 0.0).reshape(mdp.cost.shape) / rest
    return (place, weights / weights.sum()) if weights.sum() > 0.0 else None


def _flow(mdp: MDP) -> sparse.csr_matrix:
    """`[S, S A]` what each pair's mass adds to each state's balance."""
    states, actions, successors = mdp.kernel.support.shape
    shape = (states, states * actions)
    own = sparse.kron(sparse.identity(states), np.ones((1, actions)))
    pair = np.repeat(np.arange(states * actions), successors)
    entries = (np.asarray(mdp.kernel.probability).ravel(), (mdp.kernel.support.index().ravel(), pair))
    return sparse.csr_matrix(own - float(mdp.discount) * sparse.csr_matrix(entries, shape=shape))
