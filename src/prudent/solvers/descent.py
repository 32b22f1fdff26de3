"""Deterministic descent on a fixed sample: the iteration, written once for every kind of step.

Every iteration evaluates the losses and their derivatives at the trial points of K starts, accepts those whose merit
fell by enough of the predicted decrease, and lets the step propose the next trial. The merit is the risk; limits add
the price of each breach. No step length has to be chosen: the merit is the same function in every iteration, so a step
that was too long is seen and shortened.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..arrays import to_numpy
from ..objectives import Objective
from ..parameter_sets import project_all
from ..records import Record, tree_map
from .linear_model import KEPT, raise_prices
from .question import Found, Question
from .space import Space, flat

# Why a point no longer moves. Where the policy has no table of its own, its gradient vanishing is all that is known.
# A point that is held is a start that was given: it never moves, and competes with the others as it is.
# One that is dropped has a better one that stands in for it, or too many that are better.
# One that is unfinished was left behind by a larger sample before it had converged.
GOING, CONVERGED, STALLED, NON_FINITE, DROPPED, VANISHED, HELD, UNFINISHED = range(8)

# A step is accepted if the merit fell by this share of the predicted decrease, or by less than rounding.
SUFFICIENT, ROUNDING = 0.1, 1e-12

# On the atoms of a posterior, where nothing is left to chance, points go on to this share of the tolerance if they can.
BEYOND = 1e-4

# Predicted decreases below this share of the size of the losses drown in the error of iterative solves.
NOISE = 1e-9

# Evaluations without a fall of a tenth of the tolerance, after which a run has stalled.
PATIENCE = 25


class Iterates(Record):
    """K points on their way down one merit; all arrays begin with the axis K.

    Attributes:
        parameters, points: the current ones.
        values: `[K, G]` the risks there.
        prices: `[K, L]` what a breach of each limit costs.
        spread: of the objective's losses over the draws, or what there is to gain, whichever is larger; tolerances are
            relative to it, never to the level, so that a constant added to all costs changes nothing.
        size: of the losses and of what could be lost, to which rounding is relative.
        slopes, visits: `[K, G, ...]` derivatives of the risks by the point, and what their metric is made of.
        shares: `[K, G]` derivatives of the merit by the risks.
        value: the merit.
        gradient: its derivative by the parameters, flat.
        norm: length of the projected gradient of a unit step.
        gap: at most this is gained by any change of the policy, to first order, or at all where that is proven.
        memory: what the step remembers.
        trial: the parameters to evaluate next.
        length: of the newest accepted move.
        anchor, idle: the merit at the last notable fall, and evaluations since.
        finished: why a point no longer moves, or `GOING`.
        rounds: evaluations made.
    """

    parameters: Any
    points: Float[np.ndarray, "K ..."]
    values: Float[np.ndarray, "K G"]
    prices: Float[np.ndarray, "K L"]
    spread: Float[np.ndarray, " K"]
    size: Float[np.ndarray, " K"]
    slopes: Float[np.ndarray, "K G ..."]
    visits: Float[np.ndarray, "K G S"]
    shares: Float[np.ndarray, "K G"]
    value: Float[np.ndarray, " K"]
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

    @property
    def slope(self) -> Float[np.ndarray, "K ..."]:
        """Return the derivative of the merit by the points."""
        return combine(self.slopes, self.shares)

    @property
    def metric(self) -> Float[np.ndarray, "K S"]:
        """Return what the metric of a natural step is made of, for the merit."""
        return combine(self.visits, self.shares)


def combine(parts: Float[np.ndarray, "K G ..."], shares: Float[np.ndarray, "K G"]) -> Float[np.ndarray, "K ..."]:
    """Return the sum over the losses under their shares; of one loss alone, which has the share 1, no copy."""
    return parts[:, 0] if shares.shape[1] == 1 else np.einsum("kg...,kg->k...", parts, shares)


class TrialPoints(NamedTuple):
    """What was found at the trial points of K iterates, which are still at the points before them.

    Attributes:
        question: that was asked there.
        points: the trial points.
        found: there.
        slope, metric: of the merit there.
        moved: change of the parameters.
        gradient: by the parameters.
        accept: where the trial takes the place of the point.
    """

    question: Question
    points: Float[np.ndarray, "K ..."]
    found: Found
    slope: Float[np.ndarray, "K ..."]
    metric: Float[np.ndarray, "K S"]
    moved: Float[np.ndarray, "K D"]
    gradient: Float[np.ndarray, "K D"]
    accept: Bool[np.ndarray, " K"]


Learned = tuple[Any, Float[np.ndarray, "K L"]]
"""What a step remembers, and the prices of limits after it."""


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
    def blank(self, space: Space, iterates: Iterates) -> Any:
        """Return a memory of the right shapes, with nothing in it."""

    @abc.abstractmethod
    def remember(self, space: Space, iterates: Iterates, trial: TrialPoints) -> Learned:
        """Return what there is to remember at the first points; all that were sound are accepted."""

    @abc.abstractmethod
    def propose(self, space: Space, iterates: Iterates) -> Any:
        """Return the next trial parameters."""

    @abc.abstractmethod
    def predicted_decrease(
        self, iterates: Iterates, moved: Float[np.ndarray, "K D"], points: np.ndarray
    ) -> Float[np.ndarray, " K"]:
        """Return the decrease of the merit that is predicted for a trial."""

    @abc.abstractmethod
    def learn(self, space: Space, iterates: Iterates, trial: TrialPoints) -> Learned:
        """Return the memory after trial points were judged."""

    def stationarity_gap(self, space: Space, iterates: Iterates) -> Float[np.ndarray, " K"]:
        """Return what any change of the policy gains at most, to first order; 0 at a stationary point.

        `<slope, pi> - min_pi' <slope, pi'>`, which is what is gained where there is no kink; without a table the norm
        of the projected gradient.
        """
        if space.table is None:
            return np.asarray(iterates.norm)
        return space.table.rows.gain(iterates.points, iterates.slope)

    def stuck(self, iterates: Iterates) -> Bool[np.ndarray, " K"]:
        """Return where no trial is left that could be told from the point itself; nowhere, if steps only shorten."""
        return np.zeros(len(iterates.value), bool)


def gradients_of(objective: Objective, parameters: Any, slopes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return gradients by the parameters as rows, and the norms of their projected unit steps."""
    gradient = objective.pull_back(parameters, slopes)
    rows = flat(gradient)
    if objective.within.free:
        return rows, np.linalg.norm(rows, axis=1)
    nearest = to_numpy(project_all(objective.within, tree_map(np.subtract, parameters, gradient)))
    return rows, np.linalg.norm(flat(parameters) - flat(nearest), axis=1)


def begin(space: Space, parameters: Any, prices: Float[np.ndarray, " L"] | None = None) -> Iterates:
    """Return K points of which nothing is known yet."""
    shape, limits = space.shape(parameters), 0 if prices is None else len(prices)
    count, size = flat(parameters).shape
    nothing, losses = np.full(count, np.nan), 1 + limits
    return Iterates(
        parameters=parameters,
        points=np.zeros((count, *shape)),
        values=np.full((count, losses), np.nan),
        prices=np.zeros((count, 0)) if prices is None else np.repeat(prices[None], count, axis=0),
        spread=nothing,
        size=nothing,
        slopes=np.zeros((count, losses, *shape)),
        visits=np.zeros((count, losses, space.width(shape))),
        shares=np.ones((count, losses)),
        value=nothing,
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


def advance(
    step: Step,
    space: Space,
    iterates: Iterates,
    question: Question,
    points: Float[np.ndarray, "K ..."],
    found: Found,
    tolerance: float,
) -> Iterates:
    """Return the points after one iteration: trial points are judged by what was found there, the next are proposed."""
    first, going = iterates.rounds == 0, iterates.finished == GOING
    shares, value = question.shares(found.values, iterates.prices), question.merit(found.values, iterates.prices)
    slope, metric = combine(found.slopes, shares), combine(_visits(space, found), shares)
    gradient, norm = gradients_of(space.objective, iterates.trial, slope)
    moved = flat(iterates.trial) - flat(iterates.parameters)
    spread, size = measure_losses(space, question, points, found)
    if first:
        accept = np.isfinite(found.values).all(axis=1) & np.isfinite(norm)
    else:
        predicted = step.predicted_decrease(iterates, moved, points)
        enough = iterates.value - SUFFICIENT * np.maximum(predicted, 0.0) + ROUNDING * iterates.size
        # A trial whose merit is no number is only a step too far.
        accept = going & np.isfinite(norm) & (value <= enough)
    trial = TrialPoints(question, points, found, slope, metric, moved, gradient, accept)
    # Of first points whatever was found is kept.
    take = np.ones(len(accept), bool) if first else accept
    news = {
        "parameters": iterates.trial,
        "points": points,
        "values": found.values,
        "spread": spread,
        "size": size,
        "slopes": found.slopes,
        "visits": _visits(space, found),
        "shares": shares,
        "gradient": gradient,
        "norm": norm,
    }
    changed = {name: choose(take, new, getattr(iterates, name)) for name, new in news.items()}
    memory, prices = None, iterates.prices
    if not first:
        # The step learns from where the points were.
        memory, prices = step.learn(space, iterates, trial)
        memory, prices = choose(going, memory, iterates.memory), choose(going, prices, iterates.prices)
    length = np.where(accept & (not first), np.linalg.norm(moved, axis=1), 0.0)
    now = dataclasses.replace(iterates, **changed, length=length, rounds=iterates.rounds + 1)
    if first:
        now = dataclasses.replace(now, value=question.merit(now.values, now.prices))
        memory, prices = step.remember(space, now, trial)
    now = dataclasses.replace(now, memory=memory)
    now = reprice(space, question, now, prices)
    if first:
        ended = np.where(accept, GOING, NON_FINITE)
        return _propose(step, space, now, question, now.value, now.idle, ended, tolerance)
    notable = 0.1 * allowed(now, BEYOND * tolerance if question.draws.exact else tolerance)
    dearer = (prices > iterates.prices).any(axis=1)
    with np.errstate(invalid="ignore"):  # of points that were infinite from the first
        fell = going & ((now.value < now.anchor - notable) | dearer)
    idle = np.where(fell, 0, now.idle + going)
    ended = np.where(idle >= PATIENCE, STALLED, GOING)
    return _propose(step, space, now, question, np.where(fell, now.value, now.anchor), idle, ended, tolerance)


def reprice(space: Space, question: Question, iterates: Iterates, prices: Float[np.ndarray, "K L"]) -> Iterates:
    """Return the points at other prices of a breach."""
    value = question.merit(iterates.values, prices)
    if np.array_equal(prices, iterates.prices):
        return dataclasses.replace(iterates, value=value)
    now = dataclasses.replace(iterates, prices=prices, shares=question.shares(iterates.values, prices), value=value)
    gradient, norm = gradients_of(space.objective, now.parameters, now.slope)
    return dataclasses.replace(now, gradient=gradient, norm=norm)


def _visits(space: Space, found: Found) -> Float[np.ndarray, "K G S"]:
    """Return what the metric of a natural step is made of; empty without one."""
    shape = found.slopes.shape
    width = space.width(shape[2:])
    return found.visits if found.visits.shape[2] == width else np.zeros((*shape[:2], width))


def _propose(
    step: Step,
    space: Space,
    iterates: Iterates,
    question: Question,
    anchor: np.ndarray,
    idle: np.ndarray,
    ended: np.ndarray,
    tolerance: float,
) -> Iterates:
    gap = step.stationarity_gap(space, iterates)
    if question.proven:
        gap = np.fmin(gap, np.maximum(iterates.value - question.floor, 0.0))
    code = VANISHED if space.table is None else CONVERGED
    ended = np.where((ended == GOING) & step.stuck(iterates), STALLED, ended)
    close = gap <= allowed(iterates, tolerance)
    beyond = question.draws.exact and not question.proven
    there = gap <= allowed(iterates, BEYOND * tolerance) if beyond else close
    done = ((ended == GOING) & there) | ((ended == STALLED) & close)
    if question.limits and not step.keeps_risk:
        # A step that sees the merit alone ends where a breach is too cheap.
        broken = question.breach(iterates.values) > KEPT * question.units[1:]
        prices = raise_prices(question, broken & (done | (ended == STALLED))[:, None], iterates.prices)
        dearer = (prices > iterates.prices).any(axis=1)
        if dearer.any():
            iterates = reprice(space, question, iterates, prices)
            anchor, idle = np.where(dearer, iterates.value, anchor), np.where(dearer, 0, idle)
            done, ended = done & ~dearer, np.where(dearer, GOING, ended)
    ended = np.where(done, code, ended)
    finished = np.where(iterates.finished == GOING, ended, iterates.finished)
    iterates = dataclasses.replace(iterates, gap=gap, anchor=anchor, idle=idle, finished=finished.astype(np.int64))
    return dataclasses.replace(iterates, trial=to_numpy(step.propose(space, iterates)))


def allowed(iterates: Iterates, tolerance: float) -> Float[np.ndarray, " K"]:
    """Return the predicted decrease below which a point has converged: a share of the spread, or rounding."""
    return np.asarray(tolerance * iterates.spread + NOISE * iterates.size)


def measure_losses(
    space: Space, question: Question, points: np.ndarray, found: Found
) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
    """Return spread and size of the objective's losses of each policy.

    Where a policy makes the losses of all draws alike, as against the worst case, the spread is what it leaves to gain.
    Where it makes them all 0, their size is what could be lost.
    """
    losses = found.losses[:, 0]
    with np.errstate(invalid="ignore"):  # where losses are infinite
        spread = np.fmax(np.ptp(losses, axis=1), found.values[:, 0] - question.floor)
    spread = np.fmax(spread, question.units[0])
    size = np.abs(losses).max(axis=1) + np.finfo(float).tiny
    if space.table is None:
        return spread, size
    return spread, size + np.nan_to_num(space.table.rows.gain(points, -found.slopes[:, 0]))


def merged(iterates: Iterates, tolerance: float) -> Iterates:
    """Return points of which those whose merit is that of a better one, to a tenth of the tolerance, are dropped."""
    finished = np.array(iterates.finished)
    alive = np.flatnonzero(~np.isin(finished, (NON_FINITE, DROPPED, HELD)))
    order = alive[np.argsort(iterates.value[alive], kind="stable")]
    near = 0.1 * allowed(iterates, tolerance)
    for worse, better in zip(order[1:], order[:-1], strict=True):
        if iterates.value[worse] - iterates.value[better] <= near[better]:
            finished[worse] = DROPPED
    return dataclasses.replace(iterates, finished=finished)


def halved(iterates: Iterates) -> Iterates:
    """Return points of which the worse half of those that are left, by their merit, is dropped; two stay anyhow."""
    finished = np.array(iterates.finished)
    left = np.flatnonzero(~np.isin(finished, (NON_FINITE, DROPPED, HELD)))
    order = left[np.argsort(iterates.value[left], kind="stable")]
    finished[order[max(2, -(-len(order) // 2)) :]] = DROPPED
    return dataclasses.replace(iterates, finished=finished)


def choose(accept: Bool[np.ndarray, " K"], yes: Any, no: Any) -> Any:
    """Return, leaf by leaf, row k of `yes` where `accept[k]`, of `no` elsewhere."""
    return tree_map(lambda a, b: np.where(accept.reshape(-1, *[1] * (np.ndim(a) - 1)), a, b), yes, no)
