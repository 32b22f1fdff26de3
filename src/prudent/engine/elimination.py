"""Gaussian elimination of tiny models by NumPy: nothing is imported or compiled for it.

Every operation works on one entry of all models at once, so that many models take hardly longer than one. Rows of
`I - discount P_pi` are strictly diagonally dominant, so that elimination needs no pivots.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from .base import Factors, Method, SolvedFactors, for_each_model
from .layout import Order, elimination_order, is_dense
from .models import ModelBatch


class Elimination(Method):
    """Factorise `M = L U` of all models side by side.

    >>> import prudent as pr
    >>> method = pr.Elimination.of(pr.envs.frozen_lake().support)
    >>> method.reach[:5].tolist()  # one row of the lake on either side, not all 25 states
    [6, 7, 8, 9, 10]

    Attributes:
        place: `[S]` the position of each state in the order of elimination.
        reach: `[S]` one past the last position that rows and columns up to each position touch.
    """

    place: Int[np.ndarray, " S"]
    reach: Int[np.ndarray, " S"]

    @staticmethod
    def of(support: Any) -> Elimination:
        """Return the elimination of models along a support."""
        return Elimination(*elimination_order(support.index()))

    @property
    def in_cache(self) -> bool:
        """Whether many models fit the cache: they do."""
        return True

    def fits(self, successor: Any) -> bool:
        """Return whether no successor is farther than the elimination reaches."""
        return Order(self.place, self.reach).covers(successor)

    def model_bytes(self) -> int:
        """Return the size of one matrix."""
        return 8 * len(self.place) ** 2

    def factor(self, models: ModelBatch, policy: Float[np.ndarray, "S A N"]) -> Factors:
        """Return `L U` of each model, without the ones on the diagonal of L."""
        policy = for_each_model(policy, models)
        states, actions, successors = models.successor.shape
        matrix = np.zeros((states, states, models.size))
        dense, own = is_dense(models.successor), np.arange(states)
        for a in range(actions):
            flow = (-models.discount * policy[:, a])[:, None] * models.probability[models.row[:, a]]
            if dense:
                matrix += flow
                continue
            for b in range(successors):
                matrix[self.place, self.place[models.successor[:, a, b]]] += flow[:, b]
        matrix[own, own] += 1.0
        for k, end in enumerate(self.reach):
            matrix[k + 1 : end, k] /= matrix[k, k]
            matrix[k + 1 : end, k + 1 : end] -= matrix[k + 1 : end, k, None] * matrix[k, k + 1 : end]
        return Eliminated(models, policy, self, matrix)


@dataclasses.dataclass(frozen=True)
class Eliminated(SolvedFactors):
    """Models whose matrices are `[S, S, N]` in the order of elimination."""

    models: ModelBatch
    policy: Float[np.ndarray, "S A N"]
    method: Elimination
    matrix: Float[np.ndarray, "S S N"]

    def solve_visits(self, begin: Float[np.ndarray, "S N"]) -> Float[np.ndarray, "S N"]:
        """Return the solution of `M^T mu = begin`."""
        matrix, place, reach = self.matrix, self.method.place, self.method.reach
        rest = np.empty(begin.shape)
        rest[place] = begin
        for k, end in enumerate(reach):
            rest[k] /= matrix[k, k]
            rest[k + 1 : end] -= matrix[k, k + 1 : end] * rest[k]
        for k in range(len(reach) - 1, -1, -1):
            rest[k] -= (matrix[k + 1 : reach[k], k] * rest[k + 1 : reach[k]]).sum(axis=0)
        return rest[place]

    def solve_values(self, paid: Float[np.ndarray, "S N"]) -> Float[np.ndarray, "S N"]:
        """Return the solution of `M V = paid`."""
        matrix, place, reach = self.matrix, self.method.place, self.method.reach
        rest = np.empty(paid.shape)
        rest[place] = paid
        for k, end in enumerate(reach):
            rest[k + 1 : end] -= matrix[k + 1 : end, k] * rest[k]
        for k in range(len(reach) - 1, -1, -1):
            rest[k] -= (matrix[k, k + 1 : reach[k]] * rest[k + 1 : reach[k]]).sum(axis=0)
            rest[k] /= matrix[k, k]
        return rest[place]
