"""Sets: W in the paper, that parameters are kept in, and the rows of probabilities that a policy class reaches."""

from __future__ import annotations

import abc
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float

from .arrays import in_float64, require_number
from .errors import InputError
from .records import Record, field, tree_leaves, tree_map

# Logits this far below the largest are as good as never.
LOWEST_LOGIT = -50.0


class ParameterSet(Record):
    """W in the paper: the set a gradient step is projected onto."""

    free: ClassVar[bool] = False
    """Whether every point is in the set, so that nothing has to be projected."""

    @abc.abstractmethod
    def project(self, parameters: Any) -> Any:
        """The nearest point of the set."""

    def tangent(self, direction: Any) -> Any:
        """The part of a direction that stays in the set's affine hull; all of it if the set has an interior."""
        return direction


class Everywhere(ParameterSet):
    """No restriction.

    >>> import prudent as pr
    >>> pr.Softmax().within.project(7.0)
    7.0
    """

    free: ClassVar[bool] = True

    def project(self, parameters: Any) -> Any:
        """The parameters as they are."""
        return parameters


class Box(ParameterSet):
    """Every parameter within `[low, high]`.

    >>> import prudent as pr
    >>> pr.Softmax(within=pr.Box(-5.0, 5.0)).within.high
    5.0
    """

    low: float = field(static=True)
    high: float = field(static=True)

    def __check_init__(self) -> None:
        require_number("Box low", self.low, "[-inf, inf)")
        require_number("Box high", self.high, f"({self.low}, inf]")

    def project(self, parameters: Any) -> Any:
        """Clip each parameter."""
        return tree_map(lambda leaf: np.clip(leaf, self.low, self.high), parameters)


class Ball(ParameterSet):
    """Euclidean norm of all parameters at most `radius`, the paper's `B_W`.

    >>> import prudent as pr
    >>> pr.Softmax(within=pr.Ball(10.0)).within.radius
    10.0
    """

    radius: float = field(static=True)

    def __check_init__(self) -> None:
        require_number("Ball radius", self.radius, "(0, inf]")

    def project(self, parameters: Any) -> Any:
        """Scale back onto the ball."""
        norm = np.sqrt(sum(float((leaf**2).sum()) for leaf in tree_leaves(parameters)))
        return parameters if norm <= self.radius else tree_map(lambda leaf: leaf * (self.radius / norm), parameters)


class Simplex(ParameterSet):
    """Tables whose rows are probabilities of at least `floor`: the set of direct policies.

    >>> import numpy as np, prudent as pr
    >>> pr.Simplex().project(np.array([[0.9, 0.5]])).round(6).tolist()
    [[0.7, 0.3]]
    """

    floor: float = field(static=True, default=0.0)

    def __check_init__(self) -> None:
        require_number("Simplex floor", self.floor, "[0, 1)")

    def project(self, parameters: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S A"]:
        """The nearest table, row by row."""
        actions = parameters.shape[-1]
        room = 1.0 - actions * self.floor
        if room <= 0:
            raise InputError(
                f"a floor of {self.floor} on each of {actions} actions leaves no choice; "
                f"use one below {1 / actions:.3g}"
            )
        above = (parameters - self.floor) / room
        # The entries that stay positive are the largest, those above what all of them are lowered by.
        ordered = -np.sort(-above, axis=-1)
        lowered = (np.cumsum(ordered, axis=-1) - 1.0) / np.arange(1, actions + 1)
        last = (ordered > lowered).sum(axis=-1, keepdims=True) - 1
        # Of numbers that are none nothing is above anything.
        shift = np.take_along_axis(lowered, np.maximum(last, 0), axis=-1)
        return self.floor + room * np.maximum(above - shift, 0.0)

    def tangent(self, direction: Float[np.ndarray, "*K S A"]) -> Float[np.ndarray, "*K S A"]:
        """Rows that sum to 0."""
        return direction - direction.mean(axis=-1, keepdims=True)


@in_float64  # for a set of the user's that is written with JAX
def projected(within: ParameterSet, parameters: Any) -> Any:
    """Return the nearest point of the set."""
    return within.project(parameters)


def project_all(within: ParameterSet, parameters: Any) -> Any:
    """Return the nearest points of K parameter sets, the leading axis."""
    if within.free:
        return parameters
    count = len(tree_leaves(parameters)[0])
    each = [projected(within, tree_map(lambda leaf, k=k: leaf[k], parameters)) for k in range(count)]
    return tree_map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *each)


class RowSet(NamedTuple):
    """Rows of probabilities of at least `floor`, the largest at most `ratio` times the least: a polytope.

    Logits within a box of width w give the ratio `exp(w)`. A linear function of a row has its least value at a vertex
    that is known in closed form, so what a change of the policy gains to first order needs no program.
    """

    floor: float = 0.0
    ratio: float = np.inf

    def vertex(self, slope: Float[np.ndarray, "*K S A"]) -> Float[np.ndarray, "*K S A"]:
        """The rows with the least `<slope, row>`."""
        actions = slope.shape[-1]
        order = np.argsort(slope, axis=-1, kind="stable")
        if np.isinf(self.ratio):
            share = np.zeros(actions)
            share[0] = 1.0
            rows = np.broadcast_to(self.floor + (1.0 - actions * self.floor) * share, slope.shape)
        else:
            # The j cheapest actions at `ratio` times the probability of the others, for the best j.
            ordered = np.take_along_axis(slope, order, axis=-1)
            high = np.tril(np.ones((actions, actions))) * (self.ratio - 1.0) + 1.0
            high /= high.sum(axis=1, keepdims=True)
            rows = high[(ordered[..., None, :] * high).sum(axis=-1).argmin(axis=-1)]
        found = np.empty_like(slope)
        np.put_along_axis(found, order, rows, axis=-1)
        return found

    def gain(self, table: Float[np.ndarray, "*K S A"], slope: Float[np.ndarray, "*K S A"]) -> Float[np.ndarray, "*K"]:
        """`<slope, table> - min <slope, table'>`: the most that a change of the table gains to first order."""
        return (slope * (table - self.vertex(slope))).sum(axis=(-2, -1))

    def near_vertex(
        self, table: Float[np.ndarray, "S A"], slope: Float[np.ndarray, "S A"], radius: float
    ) -> Float[np.ndarray, "S A"]:
        """The rows with the least `<slope, row>` whose entries move by at most `radius`; for an infinite ratio."""
        assert np.isinf(self.ratio) or radius >= 1.0
        if radius >= 1.0:
            return self.vertex(slope)
        low, high = self.bounds(table, radius)
        order = np.argsort(slope, axis=-1, kind="stable")
        room = np.take_along_axis(high - low, order, axis=-1)
        mass = 1.0 - low.sum(axis=-1, keepdims=True)
        before = np.concatenate([np.zeros((len(room), 1)), np.cumsum(room, axis=-1)[:, :-1]], axis=-1)
        found = np.empty_like(slope)
        np.put_along_axis(found, order, np.clip(mass - before, 0.0, room), axis=-1)
        return low + found

    def bounds(self, table: Float[np.ndarray, "S A"], radius: float) -> tuple[np.ndarray, np.ndarray]:
        """The least and the largest entries within `radius` of the table."""
        most = 1.0 - (table.shape[-1] - 1) * self.floor
        return np.maximum(table - radius, self.floor), np.minimum(table + radius, most)
