"""Where points live: what parameters stand for, and how a search moves them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..arrays import to_numpy
from ..objectives import Objective, Table
from ..parameter_sets import Box, ParameterSet, project_all
from ..records import tree_leaves, tree_map
from .linear_model import BoxRegion, Region, TrustRegion


class Space(NamedTuple):
    """What is searched: tables whose rows can be chosen one by one, or parameters of any kind.

    A choice x is what a step with a model moves: the entries of the table, or all parameters, flat.

    Attributes:
        objective: of the points.
        table: the rows there are; None where points are no tables, or not free.
        metric: without a table, how many numbers the metric of a natural step is made of; 0 where none is asked for.
    """

    objective: Objective
    table: Table | None
    metric: int = 0

    @property
    def within(self) -> ParameterSet:
        """Return the set the parameters are kept in."""
        return self.objective.within

    def shape(self, parameters: Any) -> tuple[int, ...]:
        """Return the shape of the point of each of K parameter sets."""
        return self.objective.point_shape(tree_map(lambda leaf: np.asarray(leaf)[0], parameters))

    def width(self, shape: tuple[int, ...]) -> int:
        """Return how many numbers the metric is made of, for points of a shape."""
        return self.metric if self.table is None else shape[0]

    def region(self, parameters: Any, table: np.ndarray, k: int, radius: float) -> Region:
        """Return the changes of choice k within a radius."""
        if self.table is not None:
            return TrustRegion(table, self.table.rows, min(radius, 1.0))
        x = flat(parameters)[k]
        low, high = np.full(len(x), -radius), np.full(len(x), radius)
        if isinstance(self.within, Box):
            low, high = np.maximum(low, self.within.low - x), np.minimum(high, self.within.high - x)
        return BoxRegion(low, high)

    def by_choice(self, parameters: Any, k: int, slopes: Float[np.ndarray, "R ..."]) -> Float[np.ndarray, "R N"]:
        """Return derivatives by choice k, from those of R draws by its point."""
        if self.table is not None:
            return slopes.reshape(len(slopes), -1)
        each = tree_map(lambda leaf: np.repeat(np.asarray(leaf)[k : k + 1], len(slopes), axis=0), parameters)
        return flat(to_numpy(self.objective.pull_back(each, slopes)))

    def move(self, parameters: Any, points: np.ndarray, changes: Float[np.ndarray, "K N"]) -> Any:
        """Return the parameters of K choices after changes."""
        if self.table is None:
            return project_all(self.within, unflat(flat(parameters) + changes, parameters))
        return to_numpy(self.objective.from_point(np.maximum(points + changes.reshape(points.shape), 0.0)))

    def parameters_of(self, points: Float[np.ndarray, "K ..."]) -> Any | None:
        """Return the parameters of what the policy class makes of points; None where it cannot be told."""
        found = self.objective.from_point(points)
        return None if found is None else to_numpy(project_all(self.within, to_numpy(found)))

    @property
    def widest(self) -> float:
        """Return the radius within which all choices are."""
        return np.inf if self.table is None else 1.0


def space_of(objective: Objective, theta: np.ndarray, with_metric: bool = False) -> Space:
    """Return the space of an objective's points, as one draw of theta tells it."""
    table = objective.table(theta)
    if table is not None and table.free:
        return Space(objective, table)
    return Space(objective, None, objective.metric() if with_metric else 0)


def flat(tree: Any) -> Float[np.ndarray, "K D"]:
    """Return K parameter sets as rows."""
    return np.concatenate([np.asarray(leaf).reshape(len(leaf), -1) for leaf in tree_leaves(tree)], axis=1)


def unflat(rows: Float[np.ndarray, "K D"], like: Any) -> Any:
    """Return rows as K parameter sets shaped like `like`, which has any number of them."""
    ends = np.cumsum([int(np.prod(np.shape(leaf)[1:])) for leaf in tree_leaves(like)])
    pieces = iter(np.split(rows, ends[:-1], axis=1))
    return tree_map(lambda leaf: next(pieces).reshape(len(rows), *np.shape(leaf)[1:]), like)


def select(parameters: Any, rows: Any) -> Any:
    """Return some of K parameter sets, the axis K kept."""
    return tree_map(lambda leaf: np.asarray(leaf)[rows], parameters)
