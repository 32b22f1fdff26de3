"""Natural gradient: for tables policy mirror descent, for gains the slope divided by the moments of the state.

The derivative of the objective by a table is `sum_k w_k mu_k(s) Q_k(s, a)` with `w_k = p_k xi*_k`. Divided by the
visits `sum_k w_k mu_k(s)` it is an average advantage, which says what an action is worth whether or not its state is
visited often; the plain gradient hardly moves states that are rarely met. Of a gain the rows are actions, and the
metric is the objective's own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from ..parameter_sets import LOWEST_LOGIT, project_all
from .descent import Iterates, Learned, Step, TrialPoints
from .space import Space, flat

# How a row's step grows where the slope still points the same way after a step, and shrinks where it has turned; the
# latter for steps that were accepted and for those that were not, and what a rejection costs the other rows.
GROW, TURNED, REJECTED, OTHERS = 2.0, 0.5, 0.25, 0.7
LONGEST = 1e12


class NaturalGradient(Step):
    """Multiplicative steps `pi(a|s) <- pi(a|s) exp(-eta_s A(s, a))` for `Softmax`, projected ones for `Direct`.

    `A` is the advantage averaged over posterior draws with weights `xi*_k mu_k(s)`. Each state has a step length of its
    own, which grows while the slope keeps its direction and shrinks when it turns; a step that does not lower the
    objective on the sample as predicted is taken back. There is nothing to tune.

    For the gain of a `LinearFamily` steps are `K <- K - eta Sigma G E[x x']^-1`, with the slope G, the moments of `x =
    (1, s)` under the occupancy averaged with weights `xi*_k`, and a length eta for each action: they do not depend on
    the coordinates of the state.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> solver = pr.SampleAverage(samples=32, largest=32, starts=1, step=pr.NaturalGradient())
    >>> pr.solve(lake, lake.prior, risk=pr.CVaR(0.5), solver=solver).status.ok
    True
    """

    @property
    def takes_metric(self) -> bool:
        """That of a gain."""
        return True

    def blank(self, space: Space, iterates: Iterates) -> Any:
        """Return step lengths `[K, S]`, of states or of the rows of a gain."""
        return np.ones(iterates.points.shape[:2])

    def remember(self, space: Space, iterates: Iterates, trial: TrialPoints) -> Learned:
        """Return step lengths with which the largest change of a logit is 1, or a gain could gain all there is."""
        return self._first(space, iterates), iterates.prices

    def _first(self, space: Space, iterates: Iterates) -> Float[np.ndarray, "K S"]:
        if space.table is None:
            gain = np.where(iterates.spread > 0, iterates.spread, iterates.size)
            slope = (iterates.gradient * flat(_natural(space, iterates))).sum(axis=1)
            # Where the losses are infinite, there is nothing to begin with.
            with np.errstate(divide="ignore", invalid="ignore"):
                first = np.nan_to_num(gain / slope, nan=1.0, posinf=1.0)
            return np.repeat(first[:, None], iterates.points.shape[1], axis=1)
        size = np.abs(advantage(iterates.points, iterates.slope, iterates.metric)).max(axis=(1, 2))
        first = 1.0 / np.where(size > 0, size, 1.0)
        return np.repeat(first[:, None], iterates.points.shape[1], axis=1)

    def propose(self, space: Space, iterates: Iterates) -> Any:
        """Return a step of each row's own length along the advantages, or along the natural slope of a gain."""
        if space.table is None:
            moved = iterates.parameters - iterates.memory[:, :, None] * _natural(space, iterates)
            return np.asarray(project_all(space.within, moved))
        moved = iterates.parameters - iterates.memory[:, :, None] * advantage(
            iterates.points, iterates.slope, iterates.metric
        )
        if space.within.free:
            return np.maximum(moved - moved.max(axis=2, keepdims=True), LOWEST_LOGIT)
        return np.asarray(project_all(space.within, moved))

    def predicted_decrease(self, iterates: Iterates, moved: np.ndarray, points: np.ndarray) -> Float[np.ndarray, " K"]:
        """Return `-<slope, change of the table>`."""
        return (iterates.slope * (iterates.points - points)).sum(axis=(1, 2))

    def learn(self, space: Space, iterates: Iterates, trial: TrialPoints) -> Learned:
        """Return longer steps where the slope still agrees with the move, shorter ones where it has turned."""
        there = trial.slope if space.table is None else advantage(trial.points, trial.slope, trial.metric)
        turned = ((trial.points - iterates.points) * there).sum(axis=2) > 0
        after = np.where(turned, TURNED, GROW)
        without = np.where(turned, REJECTED, OTHERS)
        lengths = np.minimum(iterates.memory * np.where(trial.accept[:, None], after, without), LONGEST)
        return lengths, iterates.prices


def _natural(space: Space, iterates: Iterates) -> Float[np.ndarray, "K m d"]:
    """Return the natural slope by the parameters, whose axes are those of the points, where there is no table."""
    return space.objective.natural(iterates.slope, iterates.metric)


def advantage(tables: np.ndarray, slope: np.ndarray, visits: np.ndarray) -> Float[np.ndarray, "K S A"]:
    """Return the average advantage of each action; 0 in states that are never visited."""
    met = visits[:, :, None]
    quality = np.where(met > 0, slope / np.where(met > 0, met, 1.0), 0.0)
    return quality - (tables * quality).sum(axis=2, keepdims=True)
