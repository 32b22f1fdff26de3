"""A problem with limits on a fixed sample: several losses of one policy at the same draws, and where policies live."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float
from scipy import sparse

from ...arrays import to_numpy
from ...objectives import Objective, losses_on, slopes_on
from ...parameter_sets import Box, RowSet
from ...posteriors import WeightedDraws
from ...risks import Risk, risk_value
from ..descent import flat, project_all, unflat


def assessed(risk: Risk, losses: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Value and xi* of one sample; a program asks for thousands of them, so the call itself has to be cheap."""
    leaves, structure = jax.tree.flatten(risk)
    numbers = all(isinstance(leaf, np.ndarray | float | int | jax.Array) for leaf in leaves)
    value, weights = (_quickly if numbers else _slowly)(leaves, structure, losses, probabilities)
    return np.asarray(value), np.asarray(weights)


def _slowly(leaves: list[Any], structure: Any, losses: Any, probabilities: Any) -> tuple[Any, Any]:
    return risk_value(jax.tree.unflatten(structure, leaves), losses, probabilities)


_quickly = jax.jit(_slowly, static_argnums=1)


class LimitLosses(NamedTuple):
    """The losses of one policy at R draws: G of them, the objective's first, then the limits'."""

    losses: Float[np.ndarray, "G R"]
    slopes: Float[np.ndarray, "G R N"]
    values: Float[np.ndarray, " G"]


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
        return self.draws.probabilities * assessed(self.risks[g], losses, self.draws.probabilities)[1]

    def value(self, g: int, losses: Float[np.ndarray, " R"]) -> float:
        """One of the risks."""
        return float(assessed(self.risks[g], losses, self.draws.probabilities)[0])

    def values(self, points: Float[np.ndarray, "K ..."]) -> Float[np.ndarray, "K G"]:
        """All risks of K points."""
        found = [losses_on(objective, points, self.draws.thetas) for objective in self.objectives]
        return np.array([[self.value(g, each[k]) for g, each in enumerate(found)] for k in range(len(points))])

    def breach(self, values: Float[np.ndarray, "*K G"]) -> Float[np.ndarray, "*K L"]:
        """By how much each limit's risk is above its aim."""
        return np.maximum(values[..., 1:] - self.aims, 0.0)


class Variables(eqx.Module):
    """What is moved: numbers x in a polytope, and the points they stand for."""

    @abc.abstractmethod
    def points(self, x: Float[np.ndarray, "K N"]) -> Float[np.ndarray, "K ..."]:
        """The points of K choices."""

    @abc.abstractmethod
    def slopes(self, x: Float[np.ndarray, " N"], slopes: Float[np.ndarray, "R ..."]) -> Float[np.ndarray, "R N"]:
        """Derivatives by x, from those by the point."""

    @abc.abstractmethod
    def bounds(self, x: Float[np.ndarray, " N"], radius: float) -> tuple[np.ndarray, np.ndarray]:
        """The least and the largest change of each number within a radius."""

    @abc.abstractmethod
    def equations(self) -> Any | None:
        """A matrix whose product with a change is 0, or None."""

    def ratios(self, x: Float[np.ndarray, " N"]) -> tuple[Any, Any, np.ndarray] | None:
        """More inequalities `A change + B extra <= c` with extra variables in [0, 1], or None."""
        del x
        return None

    @abc.abstractmethod
    def moved(self, x: Float[np.ndarray, " N"], change: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
        """`x + change`, in the set to the last digit."""

    @abc.abstractmethod
    def parameters(self, x: Float[np.ndarray, " N"]) -> Any:
        """The policy's parameters."""

    @abc.abstractmethod
    def from_points(self, points: Float[np.ndarray, "K ..."]) -> Float[np.ndarray, "K N"] | None:
        """The choices that stand for points, or None."""

    @property
    def widest(self) -> float:
        """The largest radius."""
        return np.inf

    def free(self, x: np.ndarray, slope: np.ndarray) -> Float[np.ndarray, "F N"] | None:
        """Directions along which x can move both ways at an optimum with this slope; None where they are not known."""
        del slope
        return np.eye(len(x))


class TableVariables(Variables):
    """The entries of a table whose rows are chosen one by one."""

    objective: Objective
    rows: RowSet
    shape: tuple[int, int] = eqx.field(static=True)

    def points(self, x: Float[np.ndarray, "K N"]) -> Float[np.ndarray, "K S A"]:
        """The tables."""
        return x.reshape(-1, *self.shape)

    def slopes(self, x: Float[np.ndarray, " N"], slopes: Float[np.ndarray, "R S A"]) -> Float[np.ndarray, "R N"]:
        """The same numbers."""
        return slopes.reshape(len(slopes), -1)

    def bounds(self, x: Float[np.ndarray, " N"], radius: float) -> tuple[np.ndarray, np.ndarray]:
        """Entries stay probabilities."""
        low, high = self.rows.bounds(x.reshape(self.shape), radius)
        return low.ravel() - x, high.ravel() - x

    def equations(self) -> Any | None:
        """Rows keep their sum."""
        return sparse.kron(sparse.eye(self.shape[0]), np.ones((1, self.shape[1]))).tocsr()

    def ratios(self, x: Float[np.ndarray, " N"]) -> tuple[Any, Any, np.ndarray] | None:
        """Rows whose largest entry is at most `ratio` times the least m: `m <= pi + d <= ratio m`."""
        if np.isinf(self.rows.ratio):
            return None
        entries = sparse.eye(len(x))
        leasts = sparse.kron(sparse.eye(self.shape[0]), np.ones((self.shape[1], 1)))
        changes = sparse.vstack([-entries, entries]).tocsr()
        return changes, sparse.vstack([leasts, -self.rows.ratio * leasts]).tocsr(), np.concatenate([x, -x])

    def moved(self, x: Float[np.ndarray, " N"], change: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
        """Entries at least the floor, rows summing to 1."""
        table = np.maximum((x + change).reshape(self.shape), self.rows.floor)
        if self.rows.floor == 0.0:
            return (table / table.sum(axis=1, keepdims=True)).ravel()
        over = table - self.rows.floor
        room = 1.0 - self.shape[1] * self.rows.floor
        return (self.rows.floor + room * over / over.sum(axis=1, keepdims=True)).ravel()

    def parameters(self, x: Float[np.ndarray, " N"]) -> Any:
        """Of the table."""
        found = to_numpy(self.objective.from_point(x.reshape(1, *self.shape)))
        return jax.tree.map(lambda leaf: np.asarray(leaf)[0], to_numpy(project_all(self.objective.within, found)))

    def from_points(self, points: Float[np.ndarray, "K S A"]) -> Float[np.ndarray, "K N"]:
        """The tables' entries, after what the policy class makes of them."""
        parameters = project_all(self.objective.within, self.objective.from_point(points))
        return np.asarray(self.objective.points(to_numpy(parameters))).reshape(len(points), -1)

    @property
    def widest(self) -> float:
        """All tables."""
        return 1.0

    def free(self, x: np.ndarray, slope: np.ndarray) -> Float[np.ndarray, "F N"] | None:
        """From the first free entry of each row to each other one."""
        if np.isfinite(self.rows.ratio):
            return None
        table, slope, floor = x.reshape(self.shape), slope.reshape(self.shape), self.rows.floor
        away = table > floor + NEAR
        level = np.where(away, slope, -np.inf).max(axis=1, keepdims=True)
        # An entry at its least value stays there unless leaving it costs nothing.
        loose = away | (slope - level <= COSTLY * np.abs(slope).max())
        first = np.eye(self.shape[1], dtype=bool)[np.where(loose, table, -1.0).argmax(axis=1)]
        moving = np.argwhere(loose & ~first)
        basis = np.zeros((len(moving), *self.shape))
        basis[np.arange(len(moving)), moving[:, 0], moving[:, 1]] = 1.0
        return (basis - basis.sum(axis=2, keepdims=True) * first).reshape(len(moving), len(x))


# Entries this close to their least value may be there; they stay if leaving costs more than this share of the slope.
NEAR, COSTLY = 1e-6, 1e-6


class ParameterVariables(Variables):
    """The parameters of any other policy, flat."""

    objective: Objective
    like: Any

    def points(self, x: Float[np.ndarray, "K N"]) -> Float[np.ndarray, "K ..."]:
        """As the objective makes them."""
        return np.asarray(self.objective.points(self._tree(x)))

    def slopes(self, x: Float[np.ndarray, " N"], slopes: Float[np.ndarray, "R ..."]) -> Float[np.ndarray, "R N"]:
        """Pulled back, draw by draw."""
        return flat(to_numpy(self.objective.pull_back(self._tree(np.repeat(x[None], len(slopes), axis=0)), slopes)))

    def bounds(self, x: Float[np.ndarray, " N"], radius: float) -> tuple[np.ndarray, np.ndarray]:
        """The radius, and the box that the parameters are kept in."""
        within = self.objective.within
        low, high = (within.low - x, within.high - x) if isinstance(within, Box) else (-np.inf, np.inf)
        return np.maximum(np.full(len(x), -radius), low), np.minimum(np.full(len(x), radius), high)

    def equations(self) -> Any | None:
        """None."""
        return None

    def moved(self, x: Float[np.ndarray, " N"], change: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
        """Projected."""
        return flat(to_numpy(project_all(self.objective.within, self._tree((x + change)[None]))))[0]

    def parameters(self, x: Float[np.ndarray, " N"]) -> Any:
        """As the policy has them."""
        return jax.tree.map(lambda leaf: np.asarray(leaf)[0], self._tree(x[None]))

    def from_points(self, points: Float[np.ndarray, "K ..."]) -> Float[np.ndarray, "K N"] | None:
        """Where the objective can be told to be a point."""
        found = self.objective.from_point(points)
        return None if found is None else flat(to_numpy(project_all(self.objective.within, found)))

    def _tree(self, x: Float[np.ndarray, "K N"]) -> Any:
        like = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (len(x), *np.shape(leaf))), self.like)
        return unflat(x, like)


def variables_of(objective: Objective, theta: np.ndarray) -> Variables:
    """What is moved: the table's entries where its rows are free, else the parameters."""
    table = objective.table(theta)
    if table is not None and table.free:
        shape = tuple(jax.eval_shape(objective.point, objective.initial()).shape)
        return TableVariables(objective, table.rows, shape)  # pyright: ignore[reportArgumentType]
    return ParameterVariables(objective, to_numpy(objective.initial()))


def losses_at(question: LimitQuestion, variables: Variables, x: Float[np.ndarray, "K N"]) -> list[LimitLosses]:
    """All losses of K choices with their derivatives, each loss in one stream of models."""
    points, draws = variables.points(x), question.draws
    which, place = np.divmod(np.arange(len(x) * len(draws)), len(draws))
    parts = []
    for objective in question.objectives:
        losses, slopes, _ = slopes_on(objective, points, draws.thetas, which, place)
        parts.append((losses.reshape(len(x), -1), slopes.reshape(len(x), len(draws), *points.shape[1:])))
    found = []
    for k in range(len(x)):
        losses = np.stack([part[0][k] for part in parts])
        slopes = np.stack([variables.slopes(x[k], part[1][k]) for part in parts])
        values = np.array([question.value(g, losses[g]) for g in range(len(parts))])
        found.append(LimitLosses(losses, slopes, values))
    return found
