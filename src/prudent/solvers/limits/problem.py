"""A problem with limits on a fixed sample: several losses of one policy at the same draws, and where policies live."""

from __future__ import annotations

import abc
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float

from ...arrays import to_numpy
from ...objectives import Objective, losses_on
from ...parameter_sets import Box, RowSet
from ...posteriors import WeightedDraws
from ...programs import CutProgram
from ...records import AbstractVar, Record, field, tree_map
from ...risks import Risk, assess_sample, weights_of
from ..descent import flat, project_all, unflat
from ..linear_model import TrustRegion
from ..polish import free_entries, row_basis, slopes_at


class LimitLosses(NamedTuple):
    """A choice x and its losses at R draws: G of them, the objective's first, then the limits'."""

    x: Float[np.ndarray, " N"]
    losses: Float[np.ndarray, "G R"]
    slopes: Float[np.ndarray, "G R N"]
    values: Float[np.ndarray, " G"]

    @property
    def finite(self) -> bool:
        """Whether all losses and slopes are numbers."""
        return bool(np.all(np.isfinite(self.losses)) and np.all(np.isfinite(self.slopes)))


class LimitQuestion(NamedTuple):
    """What is asked on a sample.

    Attributes:
        objectives: of the loss that is minimised, then of each limit.
        risks: of each.
        draws: the sample.
        aims: `[G - 1]` what each limit's risk is to be at most.
        units: `[G]` what each loss is measured in, so that none drowns beside another.
    """

    objectives: tuple[Objective, ...]
    risks: tuple[Risk, ...]
    draws: WeightedDraws
    aims: Float[np.ndarray, " L"]
    units: Float[np.ndarray, " G"]

    @property
    def limits(self) -> int:
        """How many."""
        return len(self.objectives) - 1

    def weights(self, g: int, losses: Float[np.ndarray, " R"]) -> Float[np.ndarray, " R"]:
        """`p xi*` of one of the risks."""
        return self.draws.probabilities * weights_of(self.risks[g], losses, self.draws.probabilities)

    def risks_of(self, losses: Iterable[Float[np.ndarray, " R"]]) -> Float[np.ndarray, " G"]:
        """All risks, of all losses."""
        pairs = zip(self.risks, losses, strict=True)
        return np.array([float(assess_sample(risk, each, self.draws.probabilities)[0]) for risk, each in pairs])

    def values(self, points: Float[np.ndarray, "K ..."]) -> Float[np.ndarray, "K G"]:
        """All risks of K points."""
        found = [losses_on(objective, points, self.draws.thetas) for objective in self.objectives]
        return np.array([self.risks_of(losses) for losses in zip(*found, strict=True)])

    def breach(self, values: Float[np.ndarray, "*K G"]) -> Float[np.ndarray, "*K L"]:
        """By how much each limit's risk is above its aim."""
        return np.maximum(values[..., 1:] - self.aims, 0.0)


class BoxReach(NamedTuple):
    """Changes of N numbers, each between its own ends: what `TrustRegion` is to the entries of a table."""

    low: Float[np.ndarray, " N"]
    high: Float[np.ndarray, " N"]
    extra: int = 0
    closed: bool = True

    def bounds(self) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]:
        """The least and the largest change of each."""
        return self.low, self.high

    def lowest(self, plane: Float[np.ndarray, " N"]) -> tuple[Float[np.ndarray, " N"], float]:
        """The change along which a linear function falls most, and its fall there."""
        change = np.where(plane > 0, self.low, self.high)
        return change, float((plane * change).sum())

    def program(self, cost: Float[np.ndarray, " V"], low: Float[np.ndarray, " V"]) -> CutProgram:
        """Over the changes, followed by V variables of these costs and least values."""
        cost = np.concatenate([np.zeros(len(self.low)), cost])
        return CutProgram(cost, np.concatenate([self.low, low]), np.concatenate([self.high, np.full(len(low), np.inf)]))


class Variables(Record):
    """What is moved: numbers x in a polytope, and the points they stand for."""

    widest: ClassVar[float] = np.inf
    """The largest radius."""

    objective: AbstractVar[Objective]

    @abc.abstractmethod
    def points(self, x: Float[np.ndarray, "K N"]) -> Float[np.ndarray, "K ..."]:
        """The points of K choices."""

    @abc.abstractmethod
    def slopes(self, x: Float[np.ndarray, " N"], slopes: Float[np.ndarray, "R ..."]) -> Float[np.ndarray, "R N"]:
        """Derivatives by x, from those by the point."""

    @abc.abstractmethod
    def reach(self, x: Float[np.ndarray, " N"], radius: float) -> TrustRegion | BoxReach:
        """The changes within a radius."""

    @abc.abstractmethod
    def moved(self, x: Float[np.ndarray, " N"], change: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
        """`x + change`, in the set to the last digit."""

    @abc.abstractmethod
    def parameters(self, x: Float[np.ndarray, "K N"]) -> Any:
        """The policies' parameters."""

    @abc.abstractmethod
    def from_parameters(self, parameters: Any) -> Float[np.ndarray, "K N"]:
        """The choices that stand for parameters."""

    @abc.abstractmethod
    def free(self, x: np.ndarray, slope: np.ndarray) -> Float[np.ndarray, "F N"] | None:
        """Directions along which x can move both ways at an optimum with this slope; None where they are not known."""

    def from_points(self, points: Float[np.ndarray, "K ..."]) -> Float[np.ndarray, "K N"] | None:
        """The choices that stand for what the policy class makes of points; None where it cannot be told."""
        found = self.objective.from_point(points)
        return None if found is None else self.from_parameters(to_numpy(project_all(self.objective.within, found)))


class TableVariables(Variables):
    """The entries of a table whose rows are chosen one by one."""

    widest: ClassVar[float] = 1.0

    objective: Objective
    rows: RowSet
    shape: tuple[int, int] = field(static=True)

    def points(self, x: Float[np.ndarray, "K N"]) -> Float[np.ndarray, "K S A"]:
        """The tables."""
        return x.reshape(-1, *self.shape)

    def slopes(self, x: Float[np.ndarray, " N"], slopes: Float[np.ndarray, "R S A"]) -> Float[np.ndarray, "R N"]:
        """The same numbers."""
        return slopes.reshape(len(slopes), -1)

    def reach(self, x: Float[np.ndarray, " N"], radius: float) -> TrustRegion:
        """Entries stay probabilities, and rows keep their sum."""
        return TrustRegion(x.reshape(self.shape), self.rows, radius)

    def moved(self, x: Float[np.ndarray, " N"], change: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
        """Entries at least the floor, rows summing to 1."""
        floor = self.rows.floor
        over = np.maximum((x + change).reshape(self.shape), floor) - floor
        room = 1.0 - self.shape[1] * floor
        return (floor + room * over / over.sum(axis=1, keepdims=True)).ravel()

    def parameters(self, x: Float[np.ndarray, "K N"]) -> Any:
        """Of the tables."""
        return to_numpy(project_all(self.objective.within, to_numpy(self.objective.from_point(self.points(x)))))

    def from_parameters(self, parameters: Any) -> Float[np.ndarray, "K N"]:
        """The tables' entries."""
        points = np.asarray(self.objective.points(parameters))
        return points.reshape(len(points), -1)

    def free(self, x: np.ndarray, slope: np.ndarray) -> Float[np.ndarray, "F N"] | None:
        """From the largest free entry of each row to each other one."""
        if np.isfinite(self.rows.ratio):
            return None
        table = x.reshape(self.shape)
        loose = free_entries(table, slope.reshape(self.shape), self.rows.floor)
        first = np.eye(self.shape[1], dtype=bool)[np.where(loose, table, -1.0).argmax(axis=1)]
        return row_basis(loose, first).reshape(-1, len(x))


class ParameterVariables(Variables):
    """The parameters of any other policy, flat."""

    objective: Objective
    like: Any

    def points(self, x: Float[np.ndarray, "K N"]) -> Float[np.ndarray, "K ..."]:
        """As the objective makes them."""
        return np.asarray(self.objective.points(self.parameters(x)))

    def slopes(self, x: Float[np.ndarray, " N"], slopes: Float[np.ndarray, "R ..."]) -> Float[np.ndarray, "R N"]:
        """Pulled back, draw by draw."""
        each = self.parameters(np.repeat(x[None], len(slopes), axis=0))
        return flat(to_numpy(self.objective.pull_back(each, slopes)))

    def reach(self, x: Float[np.ndarray, " N"], radius: float) -> BoxReach:
        """The radius, and the box that the parameters are kept in."""
        within = self.objective.within
        low, high = (within.low - x, within.high - x) if isinstance(within, Box) else (-np.inf, np.inf)
        return BoxReach(np.maximum(np.full(len(x), -radius), low), np.minimum(np.full(len(x), radius), high))

    def moved(self, x: Float[np.ndarray, " N"], change: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
        """Projected."""
        return flat(to_numpy(project_all(self.objective.within, self.parameters((x + change)[None]))))[0]

    def parameters(self, x: Float[np.ndarray, "K N"]) -> Any:
        """As the policy has them."""
        like = tree_map(lambda leaf: np.broadcast_to(leaf, (len(x), *np.shape(leaf))), self.like)
        return unflat(x, like)

    def from_parameters(self, parameters: Any) -> Float[np.ndarray, "K N"]:
        """Side by side."""
        return flat(parameters)

    def free(self, x: np.ndarray, slope: np.ndarray) -> Float[np.ndarray, "F N"]:
        """All."""
        return np.eye(len(x))


def variables_of(objective: Objective, theta: np.ndarray) -> Variables:
    """What is moved: the table's entries where its rows are free, else the parameters."""
    table = objective.table(theta)
    if table is not None and table.free:
        shape = objective.point_shape(objective.initial())
        return TableVariables(objective, table.rows, shape)  # pyright: ignore[reportArgumentType]
    return ParameterVariables(objective, to_numpy(objective.initial()))


def losses_at(question: LimitQuestion, variables: Variables, x: Float[np.ndarray, "K N"]) -> list[LimitLosses]:
    """All losses of K choices with their derivatives, each loss in one stream of models."""
    points = variables.points(x)
    parts = [slopes_at(objective, points, question.draws.thetas) for objective in question.objectives]
    found = []
    for k, row in enumerate(x):
        losses = np.stack([losses[k] for losses, _ in parts])
        slopes = np.stack([variables.slopes(row, slopes[k]) for _, slopes in parts])
        found.append(LimitLosses(row, losses, slopes, question.risks_of(losses)))
    return found
