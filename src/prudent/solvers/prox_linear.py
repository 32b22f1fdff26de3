"""Prox-linear steps: the losses are linearised, risks and limits are kept, and a trust region bounds the step."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from ..records import Record
from .descent import ROUNDING, Iterates, Learned, Step, TrialPoints
from .linear_model import LinearModel, Minimum, Plane
from .question import Found, Question
from .space import Space, flat

# The decrease that makes the trust region grow, as a share of the predicted one, and how it grows.
GOOD, GROW = 0.75, 2.0

# A rejected step is shortened to the minimum of a parabola, within these shares of its length.
SHORTEST, LONGEST = 0.1, 0.5

# The first radius for parameters of any kind, as a share of one more than the largest of them.
FIRST_RADIUS = 0.1


class StepMemory(Record):
    """What K points remember: where they go next, how far, and what that is predicted to gain.

    Attributes:
        direction: change of the choice at which the model is least within the radius.
        decrease: of the model there.
        most: no change within the radius decreases the model by more.
        radius: of the trust region, in each entry of the choice.
        share: of the direction that is tried.
    """

    direction: Float[np.ndarray, "K N"]
    decrease: Float[np.ndarray, " K"]
    most: Float[np.ndarray, " K"]
    radius: Float[np.ndarray, " K"]
    share: Float[np.ndarray, " K"]


class ProxLinear(Step):
    """Steps to the least risk of linearised losses within a trust region; backtracking where that was too far.

    The right step for a risk of smooth losses: at a kink of the risk, where the tail's last draws change places, a
    gradient sees one side only, and descent along it stalls. The model sees both. It needs the derivative of every
    draw's loss by the table, or by the parameters of another policy, and for each step a few linear programs in them.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> solver = pr.SampleAverage(samples=32, largest=32, starts=1, step=pr.ProxLinear())
    >>> pr.solve(lake, lake.prior, risk=pr.CVaR(0.5), solver=solver).status.name
    'CONVERGED'
    """

    @property
    def needs_table(self) -> bool:
        """No: it moves parameters of any kind."""
        return False

    @property
    def keeps_risk(self) -> bool:
        """It does."""
        return True

    def blank(self, space: Space, iterates: Iterates) -> StepMemory:
        """Return the first trust regions: all tables, or a share of the parameters' size."""
        count, nothing = len(iterates.value), np.zeros(len(iterates.value))
        if space.table is not None:
            return StepMemory(
                np.zeros((count, iterates.points[0].size)), nothing, nothing, nothing + 1.0, nothing + 1.0
            )
        x = flat(iterates.parameters)
        radius = FIRST_RADIUS * (1.0 + np.abs(x).max(axis=1, initial=0.0))
        return StepMemory(np.zeros(x.shape), nothing, nothing, radius, nothing + 1.0)

    def remember(self, space: Space, iterates: Iterates, trial: TrialPoints) -> Learned:
        """Return the first models."""
        return _model(space, iterates.parameters, self.blank(space, iterates), trial, trial.accept, iterates.prices)

    def propose(self, space: Space, iterates: Iterates) -> Any:
        """Return the points after a share of the direction."""
        memory: StepMemory = iterates.memory
        return space.move(iterates.parameters, iterates.points, memory.share[:, None] * memory.direction)

    def predicted_decrease(self, iterates: Iterates, moved: np.ndarray, points: np.ndarray) -> Float[np.ndarray, " K"]:
        """Return the same share of the model's decrease: the model is convex, and gains at least that."""
        return np.asarray(iterates.memory.share * iterates.memory.decrease)

    def learn(self, space: Space, iterates: Iterates, trial: TrialPoints) -> Learned:
        """Return a new model where the step was accepted; a shorter share of the direction where it was not."""
        memory: StepMemory = iterates.memory
        predicted = memory.share * memory.decrease
        after = trial.question.merit(trial.found.values, iterates.prices)
        actual = iterates.value - np.where(np.isfinite(after), after, np.inf)
        whole = memory.share == 1.0
        reached = memory.share * np.abs(memory.direction).max(axis=1)
        grown = np.where(actual > GOOD * predicted, GROW * memory.radius, memory.radius)
        radius = np.clip(np.where(whole, grown, reached), np.finfo(float).tiny, space.widest)
        excess = predicted - actual
        bent = np.isfinite(excess) & (excess > 0)
        parabola = np.where(bent, 0.5 * predicted / np.where(bent, excess, 1.0), 0.0)
        shorter = memory.share * np.clip(parabola, SHORTEST, LONGEST)
        kept = StepMemory(
            memory.direction,
            memory.decrease,
            memory.most,
            np.where(trial.accept, radius, memory.radius),
            np.where(trial.accept, 1.0, shorter),
        )
        return _model(space, iterates.trial, kept, trial, trial.accept, iterates.prices)

    def stationarity_gap(self, space: Space, iterates: Iterates) -> Float[np.ndarray, " K"]:
        """Return what the convex model gains over all tables, at most `1 / radius` times its gain within the radius.

        Of parameters that may be anywhere, over a radius of 1.
        """
        memory: StepMemory = iterates.memory
        return np.asarray(memory.most * np.maximum(1.0, 1.0 / memory.radius))

    def stuck(self, iterates: Iterates) -> Bool[np.ndarray, " K"]:
        """Return where the predicted decrease drowns in rounding."""
        return np.asarray(iterates.memory.share * iterates.memory.decrease <= ROUNDING * iterates.size)


def _model(
    space: Space, parameters: Any, memory: StepMemory, trial: TrialPoints, renew: np.ndarray, prices: np.ndarray
) -> Learned:
    """Return the memory with the minimum of a new model at the points to renew, and the prices it took."""
    direction, decrease, most = (np.array(part) for part in (memory.direction, memory.decrease, memory.most))
    prices = np.array(prices)
    for k in np.flatnonzero(renew):
        found = minimise_model(space, trial, parameters, int(k), float(memory.radius[k]), prices[k])
        direction[k], decrease[k], most[k], prices[k] = found.change, found.decrease, found.most, found.prices
    return StepMemory(direction, decrease, most, memory.radius, memory.share), prices


def minimise_model(
    space: Space, trial: TrialPoints, parameters: Any, k: int, radius: float, prices: Float[np.ndarray, " L"]
) -> Minimum:
    """Return the least of the linearised merit within a radius of trial point k."""
    found = trial.found
    region = space.region(parameters, trial.points[k], k, radius)
    if not found.each:
        # Too many to be kept: along the slope of the merit alone.
        slope = space.by_choice(parameters, k, trial.slope[k][None])[0]
        return minimise_slope(slope, region, prices)
    return linear_model(space, trial.question, found, parameters, k, region).minimise_feasibly(prices)


def minimise_slope(slope: Float[np.ndarray, " N"], region: Any, prices: Float[np.ndarray, " L"]) -> Minimum:
    """Return the least of a linear function within a region."""
    change, value = region.lowest(slope)
    plane = Plane(0, slope, 0.0, np.zeros(0))
    return Minimum(change, np.full(1 + len(prices), value), -value, -value, prices, [(plane, 1.0)])


def linear_model(space: Space, question: Question, found: Found, parameters: Any, k: int, region: Any) -> LinearModel:
    """Return the model at point k, the slopes of whose draws were kept."""
    slopes = tuple(space.by_choice(parameters, k, each[found.place[k]]) for each in found.each)
    return LinearModel(question, found.losses[k], slopes, region)
