"""Deterministic descent on a fixed posterior sample: the iteration, written once for every kind of step.

Every iteration evaluates objective and gradient of the trial points of K starts, accepts those whose objective fell
as far as their slope foresaw, and lets the step propose the next trial. No step length has to be chosen: the
objective is the same function in every iteration, so a step that was too long is seen and shortened.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from ..arrays import Array, to_numpy
from ..gradients import Sample, Slopes, pulled_back
from ..policies import Everywhere, ParameterSet, Parametrisation, Softmax, action_tables

# Why a point no longer moves. Where the policy has no table of its own, its gradient vanishing is all that is known.
# A point that is held is a start that was given: it never moves, and competes with the others as it is.
# One that is unfinished was left behind by a larger sample before it had converged.
GOING, CONVERGED, STALLED, NON_FINITE, MERGED, VANISHED, HELD, UNFINISHED = range(8)

# A step is accepted if the objective fell by this share of the predicted decrease, or by less than rounding.
SUFFICIENT, ROUNDING = 0.1, 1e-12

# Predicted decreases below this share of the size of the losses drown in the error of iterative solves.
NOISE = 1e-9

# Evaluations without a fall of a tenth of the tolerance, after which a run has stalled.
PATIENCE = 25


class Climb(eqx.Module):
    """K points on their way down one objective; all arrays begin with the axis K.

    Attributes:
        parameters, tables: the current points.
        value: their objectives.
        spread: of the losses behind them over the draws, or what there is to gain, whichever is larger; tolerances are
            relative to it, never to the level, so that a constant added to all costs changes nothing.
        size: the largest of the losses, to which rounding is relative.
        slope, visits: derivative by the table and its metric.
        gradient: derivative by the parameters, flat.
        norm: length of the projected gradient of a unit step.
        left: the predicted decrease: at most this is gained by any change of the table, to first order.
        memory: what the step remembers.
        trial: the parameters to look at next.
        length: of the newest accepted move.
        anchor, idle: the objective at the last notable fall, and evaluations since.
        finished: why a point no longer moves, or `GOING`.
        rounds: evaluations made.
    """

    parameters: Any
    tables: Float[np.ndarray, "K S A"]
    value: Float[np.ndarray, " K"]
    spread: Float[np.ndarray, " K"]
    size: Float[np.ndarray, " K"]
    slope: Float[np.ndarray, "K S A"]
    visits: Float[np.ndarray, "K S"]
    gradient: Float[np.ndarray, "K D"]
    norm: Float[np.ndarray, " K"]
    left: Float[np.ndarray, " K"]
    memory: Any
    trial: Any
    length: Float[np.ndarray, " K"]
    anchor: Float[np.ndarray, " K"]
    idle: Int[np.ndarray, " K"]
    finished: Int[np.ndarray, " K"]
    rounds: int


class Descent(eqx.Module):
    """A kind of step: it proposes trial points and learns from what was found there."""

    @abc.abstractmethod
    def blank(self, climb: Climb) -> Any:
        """A memory of the right shapes, with nothing in it."""

    @abc.abstractmethod
    def remember(self, policy: Parametrisation, climb: Climb, sample: Sample, found: Slopes) -> Any:
        """What there is to remember at the first points, of which this was found."""

    @abc.abstractmethod
    def propose(self, policy: Parametrisation, climb: Climb) -> Any:
        """The next trial parameters."""

    @abc.abstractmethod
    def predicted(self, climb: Climb, moved: Float[np.ndarray, "K D"], tables: np.ndarray) -> Float[np.ndarray, " K"]:
        """The decrease of the objective that is predicted for a trial."""

    @abc.abstractmethod
    def learn(
        self,
        policy: Parametrisation,
        climb: Climb,
        moved: Float[np.ndarray, "K D"],
        sample: Sample,
        found: Slopes,
        gradient: np.ndarray,
        accept: Any,
    ) -> Any:
        """The memory after trial points were judged; the climb is still at the points before them."""

    @abc.abstractmethod
    def left(self, policy: Parametrisation, climb: Climb) -> Float[np.ndarray, " K"]:
        """At most this is gained by any change of the policy, to first order; 0 at a stationary point."""

    @abc.abstractmethod
    def stuck(self, climb: Climb) -> Bool[np.ndarray, " K"]:
        """Where there is no trial left that could be told from the point itself."""


def flat(tree: Any) -> Float[np.ndarray, "K D"]:
    """K parameter sets as rows."""
    return np.concatenate([np.asarray(leaf).reshape(len(leaf), -1) for leaf in jax.tree.leaves(tree)], axis=1)


def unflat(rows: Float[np.ndarray, "K D"], like: Any) -> Any:
    """Rows as K parameter sets shaped like `like`."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([int(np.prod(np.shape(leaf)[1:])) for leaf in leaves])
    pieces = np.split(rows, ends[:-1], axis=1)
    return structure.unflatten([piece.reshape(np.shape(leaf)) for piece, leaf in zip(pieces, leaves, strict=True)])


def _plain(policy: Parametrisation) -> bool:
    """Whether NumPy will do: for the commonest policy nothing has to be compiled."""
    return isinstance(policy, Softmax) and isinstance(policy.within, Everywhere)


def softmax(logits: Float[np.ndarray, "K S A"]) -> Float[np.ndarray, "K S A"]:
    """The tables of K sets of logits."""
    raised = np.exp(logits - logits.max(axis=2, keepdims=True))
    return raised / raised.sum(axis=2, keepdims=True)


@eqx.filter_jit
def project_all(within: ParameterSet, parameters: Any) -> Any:
    """The projections of K parameter sets."""
    return jax.vmap(within.project)(parameters)


@eqx.filter_jit
def _look(policy: Parametrisation, parameters: Any, slopes: Array) -> tuple[Any, Array]:
    """Gradients of K points by the parameters, and the lengths of their projected unit steps."""
    gradient = pulled_back(policy, parameters, slopes)
    nearest = jax.vmap(policy.within.project)(jax.tree.map(jnp.subtract, parameters, gradient))
    squares = [
        ((here - there) ** 2).reshape(here.shape[0], -1).sum(axis=1)
        for here, there in zip(jax.tree.leaves(parameters), jax.tree.leaves(nearest), strict=True)
    ]
    return gradient, jnp.sqrt(sum(squares[1:], squares[0]))


def look(policy: Parametrisation, parameters: Any, slopes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gradients by the parameters as rows, and the norms of their projected unit steps."""
    if _plain(policy):
        tables = softmax(parameters)
        gradient = flat(tables * (slopes - (tables * slopes).sum(axis=2, keepdims=True)))
        return gradient, np.linalg.norm(gradient, axis=1)
    gradient, norm = to_numpy(_look(policy, parameters, slopes))
    return flat(gradient), norm


def begin(parameters: Any, states: int, actions: int) -> Climb:
    """K points of which nothing is known yet."""
    count, size = flat(parameters).shape
    nothing = np.full(count, np.nan)
    table = np.zeros((count, states, actions))
    return Climb(
        parameters=parameters,
        tables=table,
        value=nothing,
        spread=nothing,
        size=nothing,
        slope=table,
        visits=np.zeros((count, states)),
        gradient=np.zeros((count, size)),
        norm=nothing,
        left=nothing,
        memory=None,
        trial=parameters,
        length=np.zeros(count),
        anchor=nothing,
        idle=np.zeros(count, np.int64),
        finished=np.zeros(count, np.int64),
        rounds=0,
    )


def trial_tables(policy: Parametrisation, climb: Climb) -> Float[np.ndarray, "K S A"]:
    """The policies to evaluate next."""
    if _plain(policy):
        return softmax(climb.trial)
    return np.asarray(action_tables(policy, climb.trial))


def advance(
    step: Descent, policy: Parametrisation, climb: Climb, sample: Sample, found: Slopes, tolerance: float
) -> Climb:
    """One iteration: judge the trial points by what was found there, and propose the next ones."""
    if climb.rounds == 0:
        return _first(step, policy, climb, sample, found, tolerance)
    going = np.asarray(climb.finished) == GOING
    gradient, norm = look(policy, climb.trial, found.slope)
    moved = flat(climb.trial) - flat(climb.parameters)
    predicted = step.predicted(climb, moved, sample.tables)
    spread, size = sizes(sample, found)
    enough = climb.value - SUFFICIENT * np.maximum(predicted, 0.0) + ROUNDING * climb.size
    # A trial whose objective is no number is only a step too far.
    accept = going & np.isfinite(norm) & (found.value <= enough)
    memory = step.learn(policy, climb, moved, sample, found, gradient, accept)
    climb = dataclasses.replace(
        climb,
        parameters=choose(accept, climb.trial, climb.parameters),
        tables=choose(accept, sample.tables, climb.tables),
        value=np.where(accept, found.value, climb.value),
        spread=np.where(accept, spread, climb.spread),
        size=np.where(accept, size, climb.size),
        slope=choose(accept, found.slope, climb.slope),
        visits=choose(accept, found.visits, climb.visits),
        gradient=choose(accept, gradient, climb.gradient),
        norm=np.where(accept, norm, climb.norm),
        memory=choose(going, memory, climb.memory),
        length=np.where(accept, np.linalg.norm(moved, axis=1), 0.0),
        rounds=climb.rounds + 1,
    )
    fell = going & (climb.value < climb.anchor - 0.1 * allowed(climb, tolerance))
    idle = np.where(fell, 0, climb.idle + going)
    ended = np.where(idle >= PATIENCE, STALLED, GOING)
    return _proposed(step, policy, climb, np.where(fell, climb.value, climb.anchor), idle, ended, tolerance)


def _first(
    step: Descent, policy: Parametrisation, climb: Climb, sample: Sample, found: Slopes, tolerance: float
) -> Climb:
    gradient, norm = look(policy, climb.trial, found.slope)
    spread, size = sizes(sample, found)
    sound = np.isfinite(found.value) & np.isfinite(norm)
    climb = dataclasses.replace(
        climb,
        tables=sample.tables,
        value=np.where(sample.active, found.value, np.inf),
        spread=spread,
        size=size,
        slope=found.slope,
        visits=found.visits,
        gradient=gradient,
        norm=norm,
        rounds=1,
    )
    climb = dataclasses.replace(climb, memory=step.remember(policy, climb, sample, found))
    return _proposed(step, policy, climb, found.value, climb.idle, np.where(sound, GOING, NON_FINITE), tolerance)


def _proposed(
    step: Descent, policy: Parametrisation, climb: Climb, anchor: Any, idle: Any, ended: Any, tolerance: float
) -> Climb:
    left = step.left(policy, climb)
    code = VANISHED if policy.rows() is None else CONVERGED
    ended = np.where((ended == GOING) & step.stuck(climb), STALLED, ended)
    ended = np.where((ended != NON_FINITE) & (left <= allowed(climb, tolerance)), code, ended)
    finished = np.where(np.asarray(climb.finished) == GOING, ended, climb.finished)
    climb = dataclasses.replace(climb, left=left, anchor=anchor, idle=idle, finished=finished.astype(np.int64))
    return dataclasses.replace(climb, trial=to_numpy(step.propose(policy, climb)))


def allowed(climb: Climb, tolerance: float) -> Float[np.ndarray, " K"]:
    """The predicted decrease below which a point has converged: a share of the spread, or what drowns in rounding."""
    return np.asarray(tolerance * climb.spread + NOISE * climb.size)


def sizes(sample: Sample, found: Slopes) -> tuple[np.ndarray, np.ndarray]:
    """Spread and size of the losses of each policy.

    Where a policy makes the losses of all draws alike, as against the worst case, the spread is what it leaves to gain.
    """
    spread = np.fmax(np.ptp(found.losses, axis=1), found.value - sample.floor)
    return spread, np.abs(found.losses).max(axis=1) + np.finfo(float).tiny


def merged(climb: Climb, tolerance: float) -> Climb:
    """Points whose objective is that of a better one, within a tenth of the tolerance, go no further."""
    finished = np.array(climb.finished)
    alive = np.flatnonzero(~np.isin(finished, (NON_FINITE, MERGED, HELD)))
    order = alive[np.argsort(climb.value[alive], kind="stable")]
    near = 0.1 * allowed(climb, tolerance)
    for worse, better in zip(order[1:], order[:-1], strict=True):
        if climb.value[worse] - climb.value[better] <= near[better]:
            finished[worse] = MERGED
    return dataclasses.replace(climb, finished=finished)


def only(climb: Climb, start: int) -> Any:
    """The parameters of one point, with the axis K kept."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[start : start + 1], climb.parameters)


def choose(accept: Bool[np.ndarray, " K"], yes: Any, no: Any) -> Any:
    """Leaf by leaf, row k of `yes` where `accept[k]`, of `no` elsewhere."""
    return jax.tree.map(lambda a, b: np.where(accept.reshape(-1, *[1] * (np.ndim(a) - 1)), a, b), yes, no)
