"""Boxes of linear losses by compiled sweeps, one box at a time; see `box_sweeps`."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from ..arrays import Array
from ..occupancies import Elimination
from . import box_sweeps
from .boxes import Boxes, Relaxed
from .tabular_boxes import MOST_IMPROVEMENTS, RESIDUAL, LinearBoxes, hidden

# Residual of visits below which no improvement is made; what is left of it is taken off.
VISIT_RESIDUAL = 1e-4


class SweptBoxes(Boxes):
    """The same relaxations as `LinearBoxes`, several times as fast."""

    plain: LinearBoxes
    successor: Int[np.ndarray, "S A B"]
    probability: Float[np.ndarray, "S A B R"]
    cost: Float[np.ndarray, "S A R"]
    place: Int[np.ndarray, " S"]
    reach: Int[np.ndarray, " S"]

    @staticmethod
    def of(plain: LinearBoxes) -> SweptBoxes:
        """The order of elimination, and what it fills, are found once."""
        support = plain.models.support
        successor = np.broadcast_to(support.index(), support.shape).astype(np.int64)
        place = np.argsort(Elimination.of(support).order)
        touched = np.eye(support.states, dtype=bool)
        touched[place[:, None, None], place[successor]] = True
        last = [np.flatnonzero(row).max() + 1 for row in touched | touched.T]
        return SweptBoxes(
            plain=plain,
            successor=np.ascontiguousarray(successor),
            probability=np.ascontiguousarray(plain.models.probability, dtype=float),
            cost=np.ascontiguousarray(plain.cost, dtype=float),
            place=place,
            reach=np.maximum.accumulate(last),
        )

    def relaxed(self, low: Array, high: Array, values: Array) -> Relaxed:
        """Each box until its own policy iteration has settled."""
        low, high = (np.ascontiguousarray(end, dtype=float) for end in (low, high))
        values = np.array(values, dtype=float)
        quality, rows = (np.empty((len(low), *self.cost.shape)) for _ in range(2))
        residual, visits = np.empty((len(low), self.cost.shape[2])), np.empty(values.shape)
        largest = np.abs(self.cost).max() / (1.0 - self._discount)
        box_sweeps.relax(
            *self._models, self.cost, self._start, self.place, self.reach, low, high, RESIDUAL * largest,
            MOST_IMPROVEMENTS, values, quality, rows, residual, visits,
        )  # fmt: skip
        least = self._bound(values, residual, np.abs(self.cost).max(axis=(0, 1)))
        return Relaxed(least, values, rows, quality, visits)

    def followed(self, tables: Array) -> tuple[np.ndarray, np.ndarray]:
        """By one solve each."""
        tables = np.ascontiguousarray(tables, dtype=float)
        visits = np.empty((len(tables), self.cost.shape[0], self.cost.shape[2]))
        box_sweeps.follow(*self._models, self._start, self.place, self.reach, tables, visits)
        return np.einsum("nsr,nsa,sar->nr", visits, tables, self.cost, optimize=True), visits

    def met(self, low: Array, high: Array, target: Array, values: Array | None = None) -> tuple[Array, Array]:
        """By policy iteration on a cost of 1 in that state."""
        low, high = (np.ascontiguousarray(end, dtype=float) for end in (low, high))
        shape, most = (len(low), self.cost.shape[0], self.cost.shape[2]), MOST_IMPROVEMENTS if values is None else 0
        values = np.zeros(shape) if values is None else np.array(values, dtype=float)
        residual = np.empty((len(low), shape[2]))
        box_sweeps.meet(
            *self._models, self.place, self.reach, low, high, np.asarray(target), VISIT_RESIDUAL, most, values, residual
        )
        return np.maximum(self._bound(values, residual, np.ones(shape[2])), 0.0), values

    def listed(self) -> dict[str, np.ndarray]:
        """As plain."""
        return self.plain.listed()

    def proved(self, low: Array, high: Array, values: Array) -> tuple[Array, Array]:
        """As plain."""
        return self.plain.proved(low, high, values)

    def _bound(
        self, values: Float[np.ndarray, "N S R"], residual: Float[np.ndarray, "N R"], cost: Float[np.ndarray, " R"]
    ) -> np.ndarray:
        """The bound that values and their residual prove, rounding taken off; costs are at most so large."""
        rounding = hidden(self.plain.models.support, np.abs(values).max(axis=1) + cost)
        paid = np.einsum("s,nsr->nr", self._start, values)
        return paid + (np.minimum(residual, 0.0) - rounding) / (1.0 - self._discount)

    @property
    def _models(self) -> tuple[np.ndarray, np.ndarray, float]:
        return self.successor, self.probability, self._discount

    @property
    def _discount(self) -> float:
        return float(self.plain.models.discount)

    @property
    def _start(self) -> np.ndarray:
        return np.asarray(self.plain.models.start, dtype=float)
