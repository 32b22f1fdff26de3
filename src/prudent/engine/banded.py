"""Elimination within a band, 64 models side by side, compiled by Numba.

Each entry of a matrix is a row of 64 numbers, one for each model, so that every inner loop is one vector loop over
models and the window of the band that a step touches stays in the cache. Rows of `I - discount P_pi` are strictly
diagonally dominant, so that elimination needs no pivots.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from .base import Factors, Method, SolvedFactors, for_each_model
from .layout import Order, elimination_order
from .models import ModelBatch

# Models that are factorised side by side.
LANES = 64


class Banded(Method):
    """Factorise `M = L U` within the band of an order of the states in which successors are near.

    >>> import prudent as pr
    >>> rows = ["S" + "F" * 9, *["F" * 10] * 8, "F" * 9 + "G"]
    >>> pr.Banded.of(pr.envs.frozen_lake("\\n".join(rows)).support).band  # little more than a row of the lake
    11

    Attributes:
        place: `[S]` the position of each state in the order of elimination.
        reach: `[S]` one past the last position that rows and columns up to each position touch.
    """

    place: Int[np.ndarray, " S"]
    reach: Int[np.ndarray, " S"]

    @staticmethod
    def of(support: Any) -> Banded:
        """Return the elimination of models along a support."""
        return Banded(*elimination_order(support.index()))

    @property
    def band(self) -> int:
        """Return how far from the diagonal an entry can be."""
        return Order(self.place, self.reach).band

    @property
    def in_cache(self) -> bool:
        """Whether many models fit the cache."""
        return self.model_bytes() <= 2**13

    def fits(self, successor: Any) -> bool:
        """Return whether no successor is farther than the elimination reaches."""
        return Order(self.place, self.reach).covers(successor)

    def model_bytes(self) -> int:
        """Return the size of one band."""
        return 8 * len(self.place) * (2 * self.band + 1)

    def factor(self, models: ModelBatch, policy: Float[np.ndarray, "S A N"]) -> Factors:
        """Return `L U` of each model, with the inverses of the pivots."""
        from . import band_loops  # Numba is slow to import, and tiny models do without

        policy, band = for_each_model(policy, models), self.band
        models = models._replace(probability=np.ascontiguousarray(models.probability))
        lanes = min(LANES, models.size)
        blocks = -(-models.size // lanes)
        column = self.place[models.successor] - self.place[:, None, None] + np.int32(band)
        matrix = np.zeros((blocks, len(self.place), 2 * band + 1, lanes))
        band_loops.factor(
            self.place, column, models.row, models.probability, policy, models.discount, self.reach, matrix
        )
        return BandFactors(models, policy, self, matrix)


@dataclasses.dataclass(frozen=True)
class BandFactors(SolvedFactors):
    """Models whose factors are `[blocks, S, band, lanes]`."""

    models: ModelBatch
    policy: Float[np.ndarray, "S A N"]
    method: Banded
    matrix: Float[np.ndarray, "G S W L"]

    def solve_visits(self, begin: Float[np.ndarray, "S N"]) -> Float[np.ndarray, "S N"]:
        """Return the solution of `M^T mu = begin`."""
        from . import band_loops

        visits = np.array(begin)
        band_loops.solve_transposed(self.matrix, self.method.place, self.method.reach, visits)
        return visits

    def solve_values(self, paid: Float[np.ndarray, "S N"]) -> Float[np.ndarray, "S N"]:
        """Return the solution of `M V = paid`."""
        from . import band_loops

        values = np.array(paid)
        band_loops.solve(self.matrix, self.method.place, self.method.reach, values)
        return values

    def gradient_at(
        self,
        visits: Float[np.ndarray, "S N"],
        values: Float[np.ndarray, "S N"],
        slope: Float[np.ndarray, "S A N"],
    ) -> Float[np.ndarray, "S A N"]:
        """Return `visits (slope + discount P values)`."""
        return compiled_gradient(self, visits, values, slope)


def compiled_gradient(
    factors: Factors,
    visits: Float[np.ndarray, "S N"],
    values: Float[np.ndarray, "S N"],
    slope: Float[np.ndarray, "S A N"],
) -> Float[np.ndarray, "S A N"]:
    """Return `visits (slope + discount P V)` by a compiled loop, for models with many successors."""
    from . import band_loops

    models, found = factors.models, np.empty(factors.policy.shape)
    successor, probability = map(np.ascontiguousarray, (models.successor, models.probability))
    slope = np.ascontiguousarray(np.broadcast_to(slope, found.shape))
    band_loops.gradient(successor, models.row, probability, models.discount, visits, values, slope, found)
    return found
