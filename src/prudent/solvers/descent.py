"""Deterministic descent on a fixed posterior sample: the iteration, written once for every kind of step.

Every iteration evaluates the risk and its derivative at the trial points of K starts, accepts those whose risk fell by
enough of the predicted decrease, and lets the step propose the next trial. No step length has to be chosen: the
objective is the same function in every iteration, so a step that was too long is seen and shortened.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..arrays import to_numpy
from ..objectives import Objective, Table
from ..parameter_sets import ParameterSet, project_all
from ..records import Record, tree_leaves, tree_map
from .sample import Sample, Slopes

# Why a point no longer moves. Where the policy has no table of its own, its gradient vanishing is all that is known.
# A point that is held is a start that was given: it never moves, and competes with the others as it is.
# One that is dropped has a better one that stands in for it, or too many that are better.
# One that is unfinished was left behind by a larger sample before it had converged.
GOING, CONVERGED, STALLED, NON_FINITE, DROPPED, VANISHED, HELD, UNFINISHED = range(8)

# A step is accepted if the objective fell by this share of the predicted decrease, or by less than rounding.
SUFFICIENT, ROUNDING = 0.1, 1e-12

# On the atoms of a posterior, where nothing is left to chance, points go on to this share of the tolerance if they can.
BEYOND = 1e-4

# Predicted decreases below this share of the size of the losses drown in the error of iterative solves.
NOISE = 1e-9

# Evaluations without a fall of a tenth of the tolerance, after which a run has stalled.
PATIENCE = 25


class Space(NamedTuple):
    """Where points live: what makes them of parameters, and their rows where these can be chosen one by one.

    Attributes:
        objective: of the points.
        table: their rows; None where points are no tables, or not free.
        metric: without a table, how many numbers the metric of a natural step is made of; 0 where none is asked for.
    """

    objective: Objective
    table: Table | None
    metric: int = 0

    @property
    def within(self) -> ParameterSet:
        """The set the parameters are kept in."""
        return self.objective.within

    def shape(self, parameters: Any) -> tuple[int, ...]:
        """Of the point of each of K parameter sets."""
        one = tree_map(lambda leaf: np.asarray(leaf)[0], parameters)
        return self.objective.point_shape(one)

    def visits(self, found: Slopes) -> Float[np.ndarray, "K S"]:
        """What the metric of a natural step is made of; empty without one."""
        width = self.width(found.slope.shape[1:])
        return found.visits if found.visits.shape[1] == width else np.zeros((len(found.value), width))

    def width(self, shape: tuple[int, ...]) -> int:
        """How many numbers that is for points of a shape."""
        return self.metric if self.table is None else shape[0]


class Iterates(Record):
    """K points on their way down one objective; all arrays begin with the axis K.

    Attributes:
        parameters, points: the current ones.
        value: their objectives.
        spread: of the losses behind them over the draws, or what there is to gain, whichever is larger; tolerances are
            relative to it, never to the level, so that a constant added to all costs changes nothing.
        size: of the losses and of what could be lost, to which rounding is relative.
        slope, visits: derivative by the point, and what its metric is made of.
        gradient: derivative by the parameters, flat.
        norm: length of the projected gradient of a unit step.
        gap: at most this is gained by any change of the policy, to first order, or at all where that is proven.
        memory: what the step remembers.
        trial: the parameters to evaluate next.
        length: of the newest accepted move.
        anchor, idle: the objective at the last notable fall, and evaluations since.
        finished: why a point no longer moves, or `GOING`.
        rounds: evaluations made.
    """

    parameters: Any
    points: Float[np.ndarray, "K ..."]
    value: Float[np.ndarray, " K"]
    spread: Float[np.ndarray, " K"]
    size: Float[np.ndarray, " K"]
    slope: Float[np.ndarray, "K ..."]
    visits: Float[np.ndarray, "K S"]
    gradient: Float[np.ndarray, "K D"]
    norm: Float[np.ndarray, " K"]
    gap: Float[np.ndarray, " K"]
    memory: Any
    trial: Any
    length: Float[np.ndarray, " K"]
    anchor: Float[np.ndarray, " K"]
    idle: Int[np.ndarray, " K"]
    finished: Int[np.ndarray, " K"]
    rounds: int


class TrialPoints(NamedTuple):
    """What was found at the trial points of K iterates, which are still at the points before them.

    Attributes:
        sample: the trial points and the draws they were judged on.
        found: there.
        moved: change of the parameters.
        gradient: by the parameters.
        accept: where the trial takes the place of the point.
    """

    sample: Sample
    found: Slopes
    moved: Float[np.ndarray, "K D"]
    gradient: Float[np.ndarray, "K D"]
    accept: Bool[np.ndarray, " K"]


class Step(Record):
    """A kind of step: it proposes trial points and learns from what was found there."""

    @property
    def needs_table(self) -> bool:
        """Whether it moves the rows of a table."""
        return True

    @property
    def takes_metric(self) -> bool:
        """Whether the objective's own metric will do where there is no table."""
        return False

    @property
    def keeps_risk(self) -> bool:
        """Whether it keeps the risk and linearises the losses alone, so that it ends at kinks of the risk, too."""
        return False

    @abc.abstractmethod
    def blank(self, iterates: Iterates) -> Any:
        """A memory of the right shapes, with nothing in it."""

    @abc.abstractmethod
    def remember(self, space: Space, iterates: Iterates, sample: Sample, found: Slopes) -> Any:
        """What there is to remember at the first points, of which this was found."""

    @abc.abstractmethod
    def propose(self, space: Space, iterates: Iterates) -> Any:
        """The next trial parameters."""

    @abc.abstractmethod
    def predicted_decrease(
        self, iterates: Iterates, moved: Float[np.ndarray, "K D"], points: np.ndarray
    ) -> Float[np.ndarray, " K"]:
        """The decrease of the objective that is predicted for a trial."""

    @abc.abstractmethod
    def learn(self, space: Space, iterates: Iterates, trial: TrialPoints) -> Any:
        """The memory after trial points were judged."""

    def stationarity_gap(self, space: Space, iterates: Iterates) -> Float[np.ndarray, " K"]:
        """At most this is gained by any change of the policy, to first order; 0 at a stationary point.

        `<slope, pi> - min_pi' <slope, pi'>`, which is what is gained where there is no kink; without a table the norm
        of the projected gradient.
        """
        if space.table is None:
            return np.asarray(iterates.norm)
        return space.table.rows.gain(iterates.points, iterates.slope)

    def stuck(self, iterates: Iterates) -> Bool[np.ndarray, " K"]:
        """Where there is no trial left that could be told from the point itself; nowhere, if steps only shorten."""
        return np.zeros(len(iterates.value), bool)


def flat(tree: Any) -> Float[np.ndarray, "K D"]:
    """K parameter sets as rows."""
    return np.concatenate([np.asarray(leaf).reshape(len(leaf), -1) for leaf in tree_leaves(tree)], axis=1)


def unflat(rows: Float[np.ndarray, "K D"], like: Any) -> Any:
    """Rows as K parameter sets shaped like `like`."""
    ends = np.cumsum([int(np.prod(np.shape(leaf)[1:])) for leaf in tree_leaves(like)])
    pieces = iter(np.split(rows, ends[:-1], axis=1))
    return tree_map(lambda leaf: next(pieces).reshape(np.shape(leaf)), like)


def gradients_of(objective: Objective, parameters: Any, slopes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gradients by the parameters as rows, and the norms of their projected unit steps."""
    gradient = objective.pull_back(parameters, slopes)
    rows = flat(gradient)
    if objective.within.free:
        return rows, np.linalg.norm(rows, axis=1)
    nearest = to_numpy(project_all(objective.within, tree_map(np.subtract, parameters, gradient)))
    return rows, np.linalg.norm(flat(parameters) - flat(nearest), axis=1)


def begin(space: Space, parameters: Any) -> Iterates:
    """K points of which nothing is known yet."""
    shape = space.shape(parameters)
    count, size = flat(parameters).shape
    nothing = np.full(count, np.nan)
    zeros = np.zeros((count, *shape))
    return Iterates(
        parameters=parameters,
        points=zeros,
        value=nothing,
        spread=nothing,
        size=nothing,
        slope=zeros,
        visits=np.zeros((count, space.width(shape))),
        gradient=np.zeros((count, size)),
        norm=nothing,
        gap=nothing,
        memory=None,
        trial=parameters,
        length=np.zeros(count),
        anchor=nothing,
        idle=np.zeros(count, np.int64),
        finished=np.zeros(count, np.int64),
        rounds=0,
    )


def advance(step: Step, space: Space, iterates: Iterates, sample: Sample, found: Slopes, tolerance: float) -> Iterates:
    """One iteration: judge the trial points by what was found there, and propose the next ones."""
    if iterates.rounds == 0:
        return _first(step, space, iterates, sample, found, tolerance)
    going = np.asarray(iterates.finished) == GOING
    gradient, norm = gradients_of(space.objective, iterates.trial, found.slope)
    moved = flat(iterates.trial) - flat(iterates.parameters)
    predicted = step.predicted_decrease(iterates, moved, sample.points)
    spread, size = sizes(space, sample, found)
    enough = iterates.value - SUFFICIENT * np.maximum(predicted, 0.0) + ROUNDING * iterates.size
    # A trial whose objective is no number is only a step too far.
    accept = going & np.isfinite(norm) & (found.value <= enough)
    memory = step.learn(space, iterates, TrialPoints(sample, found, moved, gradient, accept))
    iterates = dataclasses.replace(
        iterates,
        parameters=choose(accept, iterates.trial, iterates.parameters),
        points=choose(accept, sample.points, iterates.points),
        value=np.where(accept, found.value, iterates.value),
        spread=np.where(accept, spread, iterates.spread),
        size=np.where(accept, size, iterates.size),
        slope=choose(accept, found.slope, iterates.slope),
        visits=choose(accept, space.visits(found), iterates.visits),
        gradient=choose(accept, gradient, iterates.gradient),
        norm=np.where(accept, norm, iterates.norm),
        memory=choose(going, memory, iterates.memory),
        length=np.where(accept, np.linalg.norm(moved, axis=1), 0.0),
        rounds=iterates.rounds + 1,
    )
    notable = 0.1 * allowed(iterates, BEYOND * tolerance if sample.draws.exact else tolerance)
    with np.errstate(invalid="ignore"):  # of points that were infinite from the first
        fell = going & (iterates.value < iterates.anchor - notable)
    idle = np.where(fell, 0, iterates.idle + going)
    ended = np.where(idle >= PATIENCE, STALLED, GOING)
    return _proposed(
        step, space, iterates, np.where(fell, iterates.value, iterates.anchor), idle, ended, tolerance, sample
    )


def _first(step: Step, space: Space, iterates: Iterates, sample: Sample, found: Slopes, tolerance: float) -> Iterates:
    gradient, norm = gradients_of(space.objective, iterates.trial, found.slope)
    spread, size = sizes(space, sample, found)
    sound = np.isfinite(found.value) & np.isfinite(norm)
    iterates = dataclasses.replace(
        iterates,
        points=sample.points,
        value=np.where(sample.active, found.value, np.inf),
        spread=spread,
        size=size,
        slope=found.slope,
        visits=space.visits(found),
        gradient=gradient,
        norm=norm,
        rounds=1,
    )
    iterates = dataclasses.replace(iterates, memory=step.remember(space, iterates, sample, found))
    ended = np.where(sound, GOING, NON_FINITE)
    return _proposed(step, space, iterates, found.value, iterates.idle, ended, tolerance, sample)


def _proposed(
    step: Step,
    space: Space,
    iterates: Iterates,
    anchor: Any,
    idle: Any,
    ended: Any,
    tolerance: float,
    sample: Sample,
) -> Iterates:
    gap = step.stationarity_gap(space, iterates)
    if sample.proven:
        gap = np.fmin(gap, np.maximum(iterates.value - sample.floor, 0.0))
    code = VANISHED if space.table is None else CONVERGED
    ended = np.where((ended == GOING) & step.stuck(iterates), STALLED, ended)
    close = gap <= allowed(iterates, tolerance)
    beyond = sample.draws.exact and not sample.proven
    there = gap <= allowed(iterates, BEYOND * tolerance) if beyond else close
    ended = np.where(((ended == GOING) & there) | ((ended == STALLED) & close), code, ended)
    finished = np.where(np.asarray(iterates.finished) == GOING, ended, iterates.finished)
    iterates = dataclasses.replace(iterates, gap=gap, anchor=anchor, idle=idle, finished=finished.astype(np.int64))
    return dataclasses.replace(iterates, trial=to_numpy(step.propose(space, iterates)))


def allowed(iterates: Iterates, tolerance: float) -> Float[np.ndarray, " K"]:
    """The predicted decrease below which a point has converged: a share of the spread, or what drowns in rounding."""
    return np.asarray(tolerance * iterates.spread + NOISE * iterates.size)


def sizes(space: Space, sample: Sample, found: Slopes) -> tuple[np.ndarray, np.ndarray]:
    """Spread and size of the losses of each policy.

    Where a policy makes the losses of all draws alike, as against the worst case, the spread is what it leaves to gain.
    Where it makes them all 0, their size is what could be lost.
    """
    with np.errstate(invalid="ignore"):  # where losses are infinite
        spread = np.fmax(np.ptp(found.losses, axis=1), found.value - sample.floor)
    size = np.abs(found.losses).max(axis=1) + np.finfo(float).tiny
    if space.table is None:
        return spread, size
    return spread, size + np.nan_to_num(space.table.rows.gain(sample.points, -found.slope))


def merged(iterates: Iterates, tolerance: float) -> Iterates:
    """Points whose objective is that of a better one, within a tenth of the tolerance, go no further."""
    finished = np.array(iterates.finished)
    alive = np.flatnonzero(~np.isin(finished, (NON_FINITE, DROPPED, HELD)))
    order = alive[np.argsort(iterates.value[alive], kind="stable")]
    near = 0.1 * allowed(iterates, tolerance)
    for worse, better in zip(order[1:], order[:-1], strict=True):
        if iterates.value[worse] - iterates.value[better] <= near[better]:
            finished[worse] = DROPPED
    return dataclasses.replace(iterates, finished=finished)


def halved(iterates: Iterates) -> Iterates:
    """The worse half of the points that are left, by their objective, goes no further; two do in any case."""
    finished = np.array(iterates.finished)
    left = np.flatnonzero(~np.isin(finished, (NON_FINITE, DROPPED, HELD)))
    order = left[np.argsort(iterates.value[left], kind="stable")]
    finished[order[max(2, -(-len(order) // 2)) :]] = DROPPED
    return dataclasses.replace(iterates, finished=finished)


def only(iterates: Iterates, start: int) -> Any:
    """The parameters of one point, with the axis K kept."""
    return tree_map(lambda leaf: np.asarray(leaf)[start : start + 1], iterates.parameters)


def choose(accept: Bool[np.ndarray, " K"], yes: Any, no: Any) -> Any:
    """Leaf by leaf, row k of `yes` where `accept[k]`, of `no` elsewhere."""
    return tree_map(lambda a, b: np.where(accept.reshape(-1, *[1] * (np.ndim(a) - 1)), a, b), yes, no)
