"""The least loss of each draw over the tables of a box: of linear losses by plans in boxes, of convex ones by tangents.

A convex loss has `F(m) >= F(l) + <z, m - l>` with `z = F'(l)`. So a box's least loss is at least a constant more than
the least cost of a model with cost z, whatever l is; projected gradient steps bring l near the least loss, where the
bound is tight.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from ..engine import (
    EPSILON,
    BoxModels,
    BoxPlans,
    ModelBatch,
    bound_deviation_costs,
    nearest_rows,
    plan_in_boxes,
    visits_of_rows,
)
from ..losses import as_convex
from ..objectives import Boxes, DeviationBounds

# States up to which tables are split into boxes.
LARGEST_BOXES = 48

# Residual of tolls below which no improvement is made, as a share of the largest cost; what is left is taken off.
TOLL_RESIDUAL = 1e-5

# Tangents of a convex loss in one relaxation at most, the gap at which no more are made, as a share of the loss, and
# the shares of a step that are tried between two of them.
CUTS, CONVEX_GAP = 60, 1e-5
STEPS = 0.5 ** np.arange(6.0)


class LinearBoxes(Boxes):
    """Boxes of a loss that is linear in the occupancy."""

    models: BoxModels
    cost: Float[np.ndarray, "S A R"]

    @staticmethod
    def of(models: ModelBatch, loss: Any) -> LinearBoxes:
        """Return the boxes of a linear loss in these models."""
        return LinearBoxes(BoxModels.of(models), _cost_of_each(as_convex(loss).cost_tables(models), models))

    def relaxed(
        self, low: Float[np.ndarray, "N S A"], high: Float[np.ndarray, "N S A"], values: Float[np.ndarray, "N S R"]
    ) -> BoxPlans:
        """Return the least losses by policy iteration in every box."""
        return plan_in_boxes(self.models, low, high, self.cost[None], values)

    def followed(
        self, tables: Float[np.ndarray, "N S A"]
    ) -> tuple[Float[np.ndarray, "N R"], Float[np.ndarray, "N S R"]]:
        """Return losses and visits of N tables at every draw."""
        visits = visits_of_rows(self.models, np.repeat(tables[..., None], self.cost.shape[2], axis=3))
        return np.einsum("nsr,nsa,sar->nr", visits, tables, self.cost, optimize=True), visits

    def tolls(
        self,
        low: Float[np.ndarray, "N S A"],
        high: Float[np.ndarray, "N S A"],
        values: Float[np.ndarray, "N S R"],
        state: Int[np.ndarray, "N K"],
        counted: Bool[np.ndarray, "N R"],
        paid: Float[np.ndarray, "N V S R"] | None = None,
    ) -> DeviationBounds:
        """Return tolls by policy iteration on what is paid, for each set of states, begun at the draws' own rows."""
        low, high, values = (np.ascontiguousarray(part, dtype=float) for part in (low, high, values))
        largest = np.abs(self.cost).max(axis=(0, 1))
        slack = self.models.hidden(np.abs(values).max(axis=1) + largest)
        tolerance = TOLL_RESIDUAL * largest.max()
        toll, paid, residual = bound_deviation_costs(
            self.models, self.cost, low, high, values, state, counted, slack, tolerance, paid
        )
        sets = paid.shape[1]
        # What a row costs above the values is at most so large.
        size = 2.0 * (np.abs(values).max(axis=1) + largest) + toll.max(axis=1)
        flat = (paid.reshape(-1, *paid.shape[2:]), (residual - slack[:, None]).reshape(-1, residual.shape[2]))
        least = self.models.bound(*flat, size.repeat(sets, axis=0)).reshape(residual.shape)
        return DeviationBounds(_least_visits(toll, np.maximum(least, 0.0)), paid)

    def listed(self) -> dict[str, np.ndarray]:
        """Return successors, probabilities and costs with the models in front, start and discount."""
        models = self.models
        return {
            "successor": models.successor.astype(np.int32),
            "probability": np.moveaxis(models.probability[models.row], -1, 0),
            "cost": np.moveaxis(self.cost, -1, 0),
            "start": models.start,
            "discount": np.asarray(models.discount),
        }

    def proved(
        self, low: Float[np.ndarray, "N S A"], high: Float[np.ndarray, "N S A"], values: Float[np.ndarray, "N S R"]
    ) -> tuple[Float[np.ndarray, "N R"], Float[np.ndarray, "N S A R"]]:
        """Return what these values prove as they are, without any improvement."""
        found = plan_in_boxes(self.models, low, high, self.cost[None], values, improvements=0)
        return found.least, found.quality


def _least_visits(toll: Float[np.ndarray, "N K R"], least: Float[np.ndarray, "N V R"]) -> Float[np.ndarray, "N K R"]:
    """Return visits whose tolls are no more than the least of any set.

    They are those of single states, less where sets ask for it.
    """
    places = toll.shape[1]
    alone = np.stack([least[:, (1 << k) - 1] for k in range(places)], axis=1)
    share = np.ones(least[:, 0].shape)
    for u in range(1, least.shape[1] + 1):
        total = sum(alone[:, k] for k in range(places) if u >> k & 1)
        share = np.minimum(share, np.where(total > 0.0, least[:, u - 1] / np.where(total > 0.0, total, 1.0), 1.0))
    few = (1.0 - 8 * EPSILON * places) * share[:, None] * alone
    return np.where(toll > 0.0, few / np.where(toll > 0.0, toll, 1.0), 0.0)


class ConvexBoxes(Boxes):
    """Boxes of a convex loss, bounded by tangents."""

    models: BoxModels
    batch: ModelBatch
    cost: Float[np.ndarray, "S A R"]
    loss: Any

    @staticmethod
    def of(models: ModelBatch, loss: Any) -> ConvexBoxes:
        """Return the boxes of a convex loss in these models."""
        return ConvexBoxes(BoxModels.of(models), models, _cost_of_each(models.cost, models), as_convex(loss))

    def relaxed(
        self, low: Float[np.ndarray, "N S A"], high: Float[np.ndarray, "N S A"], values: Float[np.ndarray, "N S R"]
    ) -> BoxPlans:
        """Return the best bound of the tangents met, and the table that they ended at."""
        found = plan_in_boxes(self.models, low, high, self.cost[None], values)
        occupancy = found.visits[:, :, None] * found.rows
        bound, length = np.full(found.least.shape, -np.inf), np.ones(found.least.shape)
        active = np.arange(len(low))
        for _ in range(CUTS):
            at, ends = occupancy[active], (low[active], high[active])
            value, slope = self._tangent(at)
            new = plan_in_boxes(self.models, *ends, slope, found.values[active])
            for whole, part in zip(found, new, strict=True):
                whole[active] = part
            bound[active] = np.maximum(bound[active], value - (slope * at).sum(axis=(1, 2)) + new.least)
            occupancy[active], length[active] = self._step(at, value, new, ends, length[active])
            active = active[np.any(value - bound[active] > CONVEX_GAP * np.abs(value), axis=1)]
            if not active.size:
                break
        visits, rows = _visits_and_rows(occupancy, found.rows)
        return found._replace(least=bound, rows=rows, visits=visits)

    def followed(
        self, tables: Float[np.ndarray, "N S A"]
    ) -> tuple[Float[np.ndarray, "N R"], Float[np.ndarray, "N S R"]]:
        """Return losses and visits of N tables at every draw."""
        visits = visits_of_rows(self.models, np.repeat(tables[..., None], self.cost.shape[2], axis=3))
        return self._losses(visits[:, :, None] * tables[..., None]), visits

    def _step(
        self,
        at: Float[np.ndarray, "N S A R"],
        value: Float[np.ndarray, "N R"],
        found: BoxPlans,
        ends: tuple[Float[np.ndarray, "N S A"], Float[np.ndarray, "N S A"]],
        length: Float[np.ndarray, "N R"],
    ) -> tuple[Float[np.ndarray, "N S A R"], Float[np.ndarray, "N R"]]:
        """Return occupancies of less loss, and the lengths of the next steps."""
        _, rows = _visits_and_rows(at, found.rows)
        # A gradient step on each row in units of what its actions differ by, and the least linear loss beside it.
        spread = np.ptp(found.quality, axis=2, keepdims=True)
        stepped = rows - length[:, None, None] * found.quality / np.where(spread > 0, spread, 1.0)
        stepped = nearest_rows(stepped, *ends)
        near = visits_of_rows(self.models, stepped)[:, :, None] * stepped
        far = found.visits[:, :, None] * found.rows
        tried = np.stack([self._losses(at + step * (to - at)) for to in (near, far) for step in STEPS])
        best = tried.argmin(axis=0)
        step = np.where(tried.min(axis=0) < value, STEPS[best % len(STEPS)], 0.0)
        to = np.where((best < len(STEPS))[:, None, None], near, far)
        # Accepted whole, a step may be longer; cut short or refused, it was too long.
        longer = np.where((best == 0) & (step > 0.0), 2.0, np.where(step < 0.5, 0.5, 1.0))
        return at + step[:, None, None] * (to - at), longer * length

    def _losses(self, occupancy: Float[np.ndarray, "N S A R"]) -> Float[np.ndarray, "N R"]:
        side_by_side, models = self._side_by_side(occupancy)
        return self.loss.value(side_by_side, models).reshape(len(occupancy), -1)

    def _tangent(
        self, occupancy: Float[np.ndarray, "N S A R"]
    ) -> tuple[Float[np.ndarray, "N R"], Float[np.ndarray, "N S A R"]]:
        side_by_side, models = self._side_by_side(occupancy)
        value, slope = self.loss.value_and_gradient(side_by_side, models)
        count, states, actions, draws = occupancy.shape
        slope = np.moveaxis(slope.reshape(states, actions, count, draws), 2, 0)
        return value.reshape(count, draws), np.ascontiguousarray(slope)

    def _side_by_side(self, occupancy: Float[np.ndarray, "N S A R"]) -> tuple[np.ndarray, ModelBatch]:
        """Return occupancies `[S, A, N R]` with their models."""
        count, states, actions, draws = occupancy.shape
        models = self.batch.select(np.tile(np.arange(draws), count))
        return np.moveaxis(occupancy, 0, 2).reshape(states, actions, count * draws), models


def _visits_and_rows(
    occupancy: Float[np.ndarray, "N S A R"], otherwise: Float[np.ndarray, "N S A R"]
) -> tuple[Float[np.ndarray, "N S R"], Float[np.ndarray, "N S A R"]]:
    """Return visits and rows of an occupancy; other rows of a state that is not visited."""
    visits = occupancy.sum(axis=2)
    visited = visits > 0
    return visits, np.where(visited[:, :, None], occupancy / np.where(visited, visits, 1.0)[:, :, None], otherwise)


def _cost_of_each(cost: Float[np.ndarray, "S A n"], models: ModelBatch) -> Float[np.ndarray, "S A N"]:
    return np.ascontiguousarray(np.broadcast_to(cost, (*cost.shape[:2], models.size)), dtype=float)
