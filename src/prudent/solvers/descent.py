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
from ..gradients import Slopes, pulled_back
from ..policies import Everywhere, ParameterSet, Parametrisation, Softmax, action_tables

GOING, CONVERGED, STALLED, NON_FINITE, MERGED = 0, 1, 2, 3, 4

# A step is accepted if the objective fell by this share of what its slope foresaw, or by less than rounding.
SUFFICIENT, ROUNDING = 0.1, 1e-12

# Evaluations without a fall of a tenth of the tolerance, after which a run has stalled.
PATIENCE = 25


class Climb(eqx.Module):
    """K points on their way down one objective; all arrays begin with the axis K.

    Attributes:
        parameters, tables: the current points.
        value: their objectives.
        scale: the size of the losses behind them, to which tolerances are relative.
        slope, visits: derivative by the table and its metric, at the point or blended from nearby points.
        gradient: derivative by the parameters, flat.
        norm: length of the projected gradient of a unit step.
        left: what a first-order model says can still be gained.
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
    scale: Float[np.ndarray, " K"]
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
    def remember(self, climb: Climb) -> Any:
        """What there is to remember at the first point."""

    @abc.abstractmethod
    def propose(self, policy: Parametrisation, climb: Climb) -> Any:
        """The next trial parameters."""

    @abc.abstractmethod
    def foreseen(self, climb: Climb, moved: Float[np.ndarray, "K D"], tables: np.ndarray) -> Float[np.ndarray, " K"]:
        """The change of the objective that the slope foresees for a trial."""

    @abc.abstractmethod
    def learn(
        self,
        climb: Climb,
        moved: Float[np.ndarray, "K D"],
        tables: np.ndarray,
        found: Slopes,
        gradient: np.ndarray,
        accept: Any,
    ) -> tuple[Any, np.ndarray, np.ndarray]:
        """The memory after a trial, and the slope and visits to go on with."""

    @abc.abstractmethod
    def left(
        self, policy: Parametrisation, tables: np.ndarray, slope: np.ndarray, norm: np.ndarray
    ) -> Float[np.ndarray, " K"]:
        """First-order measure of what is left to gain; 0 at a stationary point."""


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
        scale=nothing,
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
    step: Descent, policy: Parametrisation, climb: Climb, tables: np.ndarray, found: Slopes, tolerance: float
) -> Climb:
    """One iteration: judge the trial points by what was found there, and propose the next ones."""
    if climb.rounds == 0:
        return _first(step, policy, climb, tables, found, tolerance)
    going = np.asarray(climb.finished) == GOING
    gradient, norm = look(policy, climb.trial, found.slope)
    moved = flat(climb.trial) - flat(climb.parameters)
    foreseen = step.foreseen(climb, moved, tables)
    enough = climb.value + SUFFICIENT * np.minimum(foreseen, 0.0) + ROUNDING * climb.scale
    # A trial whose objective is no number is only a step too far.
    accept = going & np.isfinite(norm) & (found.value <= enough)
    memory, slope, visits = step.learn(climb, moved, tables, found, gradient, accept)
    climb = dataclasses.replace(
        climb,
        parameters=choose(accept, climb.trial, climb.parameters),
        tables=choose(accept, tables, climb.tables),
        value=np.where(accept, found.value, climb.value),
        scale=np.where(accept, _scale(found), climb.scale),
        slope=choose(going, slope, climb.slope),
        visits=choose(going, visits, climb.visits),
        gradient=choose(accept, gradient, climb.gradient),
        norm=np.where(accept, norm, climb.norm),
        memory=choose(going, memory, climb.memory),
        length=np.where(accept, np.linalg.norm(moved, axis=1), 0.0),
        rounds=climb.rounds + 1,
    )
    fell = going & (climb.value < climb.anchor - 0.1 * tolerance * climb.scale)
    idle = np.where(fell, 0, climb.idle + going)
    left = step.left(policy, climb.tables, climb.slope, climb.norm)
    done = np.where(left <= tolerance * climb.scale, CONVERGED, np.where(idle >= PATIENCE, STALLED, GOING))
    return _proposed(step, policy, climb, left, np.where(fell, climb.value, climb.anchor), idle, done)


def _first(
    step: Descent, policy: Parametrisation, climb: Climb, tables: np.ndarray, found: Slopes, tolerance: float
) -> Climb:
    gradient, norm = look(policy, climb.trial, found.slope)
    scale = _scale(found)
    left = step.left(policy, tables, found.slope, norm)
    going = np.asarray(climb.finished) == GOING
    sound = np.isfinite(found.value) & np.isfinite(norm)
    done = np.where(sound, np.where(left <= tolerance * scale, CONVERGED, GOING), NON_FINITE)
    climb = dataclasses.replace(
        climb,
        tables=tables,
        value=np.where(going, found.value, np.inf),
        scale=scale,
        slope=found.slope,
        visits=found.visits,
        gradient=gradient,
        norm=norm,
        rounds=1,
    )
    climb = dataclasses.replace(climb, memory=step.remember(climb))
    return _proposed(step, policy, climb, left, found.value, climb.idle, done)


def _proposed(
    step: Descent, policy: Parametrisation, climb: Climb, left: Any, anchor: Any, idle: Any, done: Any
) -> Climb:
    finished = np.where(np.asarray(climb.finished) == GOING, done, climb.finished)
    climb = dataclasses.replace(climb, left=left, anchor=anchor, idle=idle, finished=finished.astype(np.int64))
    return dataclasses.replace(climb, trial=to_numpy(step.propose(policy, climb)))


def merged(climb: Climb, tolerance: float) -> Climb:
    """Points whose objective is that of a better one, within a tenth of the tolerance, go no further."""
    finished = np.array(climb.finished)
    alive = np.flatnonzero((finished != NON_FINITE) & (finished != MERGED))
    order = alive[np.argsort(climb.value[alive], kind="stable")]
    for worse, better in zip(order[1:], order[:-1], strict=True):
        if climb.value[worse] - climb.value[better] <= 0.1 * tolerance * climb.scale[better]:
            finished[worse] = MERGED
    return dataclasses.replace(climb, finished=finished)


def _scale(found: Slopes) -> np.ndarray:
    return (found.weights * np.abs(found.losses)).mean(axis=1) + np.finfo(float).tiny


def only(climb: Climb, start: int) -> Any:
    """The parameters of one point, with the axis K kept."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[start : start + 1], climb.parameters)


def choose(accept: Bool[np.ndarray, " K"], yes: Any, no: Any) -> Any:
    """Leaf by leaf, row k of `yes` where `accept[k]`, of `no` elsewhere."""
    return jax.tree.map(lambda a, b: np.where(accept.reshape(-1, *[1] * (np.ndim(a) - 1)), a, b), yes, no)
