"""Boxes of linear losses by compiled sweeps, one box at a time; see `box_sweeps`."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from ..occupancies import Elimination
from . import box_sweeps
from .base import Boxes, Relaxed
from .tabular_boxes import MOST_IMPROVEMENTS, RESIDUAL, LinearBoxes, hidden


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
        touched[place[np.arange(support.states)][:, None, None], place[successor]] = True
        last = [np.flatnonzero(row).max() + 1 for row in touched | touched.T]
        numbers = (np.ascontiguousarray(part, dtype=float) for part in (plain.models.probability, plain.cost))
        return SweptBoxes(plain, np.ascontiguousarray(successor), *numbers, place, np.maximum.accumulate(last))

    def relaxed(self, low: np.ndarray, high: np.ndarray, values: np.ndarray) -> Relaxed:
        """Each box until its own policy iteration has settled."""
        values = np.array(values, dtype=float)
        quality, rows = (np.empty((len(low), *self.cost.shape)) for _ in range(2))
        residual, visits = np.empty((len(low), self.cost.shape[2])), np.empty(values.shape)
        largest = np.abs(self.cost).max() / (1.0 - self._discount)
        box_sweeps.relax(
            *self._models, self.cost, self._start, self.place, self.reach, low, high, RESIDUAL * largest,
            MOST_IMPROVEMENTS, values, quality, rows, residual, visits,
        )  # fmt: skip
        return Relaxed(
            self._proved(values, residual, np.abs(self.cost).max(axis=(0, 1))), values, rows, quality, visits
        )

    def followed(self, tables: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """By one solve each."""
        tables = np.ascontiguousarray(tables, dtype=float)
        visits = np.empty((len(tables), self.cost.shape[0], self.cost.shape[2]))
        box_sweeps.follow(*self._models, self._start, self.place, self.reach, tables, visits)
        return np.einsum("nsr,nsa,sar->nr", visits, tables, self.cost, optimize=True), visits

    def listed(self) -> dict[str, np.ndarray]:
        """As plain."""
        return self.plain.listed()

    def proved(self, low: np.ndarray, high: np.ndarray, values: np.ndarray) -> Float[np.ndarray, "N R"]:
        """As plain."""
        return np.asarray(self.plain.proved(low, high, values))

    def _proved(self, values: np.ndarray, residual: np.ndarray, cost: np.ndarray | float) -> np.ndarray:
        """Bounds `[..., R]` that values `[..., S, R]` and their residuals prove, rounding taken off."""
        rounding = hidden(self.plain.models.support, np.abs(values).max(axis=-2) + cost)
        met = np.einsum("s,...sr->...r", self._start, values)
        return met + (np.minimum(residual, 0.0) - rounding) / (1.0 - self._discount)

    @property
    def _models(self) -> tuple[np.ndarray, np.ndarray, float]:
        return self.successor, self.probability, self._discount

    @property
    def _discount(self) -> float:
        return float(self.plain.models.discount)

    @property
    def _start(self) -> np.ndarray:
        return np.asarray(self.plain.models.start, dtype=float)
