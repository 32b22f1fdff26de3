"""Boxes of linear losses by compiled sweeps, one box at a time; see `box_sweeps`."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from ..arrays import Array
from ..occupancies import Elimination
from . import box_sweeps
from .boxes import Boxes, Relaxed, Tolls
from .tabular_boxes import EPSILON, MOST_IMPROVEMENTS, RESIDUAL, LinearBoxes, hidden

# Residual of tolls below which no improvement is made, as a share of the largest cost; what is left is taken off.
TOLL_RESIDUAL = 1e-5


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

    def tolls(
        self, low: Array, high: Array, values: Array, state: Array, counted: Array, paid: Array | None = None
    ) -> Tolls:
        """By policy iteration on what is paid, one for each set of states, begun at the draws' own rows."""
        low, high, values = (np.ascontiguousarray(part, dtype=float) for part in (low, high, values))
        count, places = state.shape
        most, sets = MOST_IMPROVEMENTS if paid is None else 0, 2**places - 1
        paid = np.zeros((count, sets, *values.shape[1:])) if paid is None else np.array(paid, dtype=float)
        largest = np.abs(self.cost).max(axis=(0, 1))
        slack = hidden(self.plain.models.support, np.abs(values).max(axis=1) + largest)
        toll, residual = np.zeros((count, places, values.shape[2])), np.zeros((count, sets, values.shape[2]))
        box_sweeps.charge_counted(
            *self._models, self.cost, self.place, self.reach, low, high, values, np.asarray(state, dtype=np.int64),
            np.asarray(counted), slack, TOLL_RESIDUAL * largest.max(), most, toll, paid, residual,
        )  # fmt: skip
        # What a row costs above the values is at most so large.
        size = 2.0 * (np.abs(values).max(axis=1) + largest) + toll.max(axis=1)
        flat = (paid.reshape(-1, *paid.shape[2:]), (residual - slack[:, None]).reshape(-1, residual.shape[2]))
        least = self._bound(*flat, size.repeat(sets, axis=0)).reshape(residual.shape)
        return Tolls(_visits(toll, np.maximum(least, 0.0)), paid)

    def listed(self) -> dict[str, np.ndarray]:
        """As plain."""
        return self.plain.listed()

    def proved(self, low: Array, high: Array, values: Array) -> tuple[Array, Array]:
        """As plain."""
        return self.plain.proved(low, high, values)

    def _bound(
        self, values: Float[np.ndarray, "N S R"], residual: Float[np.ndarray, "N R"], cost: Float[np.ndarray, ...]
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


def _visits(toll: Float[np.ndarray, "N K R"], least: Float[np.ndarray, "N V R"]) -> Float[np.ndarray, "N K R"]:
    """Visits whose tolls are no more than the least of any set: those of single states, less where sets ask for it."""
    places = toll.shape[1]
    alone = np.stack([least[:, (1 << k) - 1] for k in range(places)], axis=1)
    share = np.ones(least[:, 0].shape)
    for u in range(1, least.shape[1] + 1):
        total = sum(alone[:, k] for k in range(places) if u >> k & 1)
        share = np.minimum(share, np.where(total > 0.0, least[:, u - 1] / np.where(total > 0.0, total, 1.0), 1.0))
    few = (1.0 - 8 * EPSILON * places) * share[:, None] * alone
    return np.where(toll > 0.0, few / np.where(toll > 0.0, toll, 1.0), 0.0)
