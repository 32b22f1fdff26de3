"""Prox-linear steps: the losses are linearised, the risk is kept, and a trust region bounds the step."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ..records import Record
from ..risks import weights_of
from .descent import ROUNDING, Iterates, Space, Step, TrialPoints
from .linear_model import MOST_PLANES, Improvement, Linearised, TrustRegion, along, improve
from .sample import Sample, Slopes

# The decrease that makes the trust region grow, as a share of the predicted one, and how it grows.
GOOD, GROW = 0.75, 2.0

# A rejected step is shortened to the minimum of a parabola, within these shares of its length.
SHORTEST, LONGEST = 0.1, 0.5


class Region(Record):
    """What K points remember: where they go next, how far, and what that is predicted to gain.

    Attributes:
        direction: change of the table at which the model is least within the radius.
        decrease: of the model there.
        most: no change within the radius decreases the model by more.
        radius: of the trust region, in the entries of the table.
        share: of the direction that is tried.
    """

    direction: Float[np.ndarray, "K S A"]
    decrease: Float[np.ndarray, " K"]
    most: Float[np.ndarray, " K"]
    radius: Float[np.ndarray, " K"]
    share: Float[np.ndarray, " K"]


class ProxLinear(Step):
    """Steps to the least risk of linearised losses within a trust region; backtracking where that was too far.

    The right step for a risk of smooth losses: at a kink of the risk, where the tail's last draws change places, a
    gradient sees one side only, and descent along it stalls. The model sees both. It needs the derivative of every
    draw's loss by the table, and for each step a few linear programs in the table's entries.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> solver = pr.SampleAverage(samples=32, largest=32, starts=1, step=pr.ProxLinear())
    >>> pr.solve(lake, lake.prior, risk=pr.CVaR(0.5), solver=solver).status.name
    'CONVERGED'
    """

    @property
    def keeps_risk(self) -> bool:
        """It does."""
        return True

    def blank(self, iterates: Iterates) -> Any:
        """The whole set of tables is the first trust region."""
        count = len(iterates.value)
        nothing = np.zeros(count)
        return Region(np.zeros(iterates.points.shape), nothing, nothing, np.ones(count), np.ones(count))

    def remember(self, space: Space, iterates: Iterates, sample: Sample, found: Slopes) -> Any:
        """The first models."""
        return _modelled(space, self.blank(iterates), sample, found, np.isfinite(found.value) & sample.active)

    def propose(self, space: Space, iterates: Iterates) -> Any:
        """A share of the direction."""
        region: Region = iterates.memory
        tables = np.asarray(iterates.points) + region.share[:, None, None] * region.direction
        return space.objective.from_point(np.maximum(tables, 0.0))

    def predicted_decrease(self, iterates: Iterates, moved: np.ndarray, points: np.ndarray) -> Float[np.ndarray, " K"]:
        """The model is convex, so a share of the step decreases it by at least that share."""
        return np.asarray(iterates.memory.share * iterates.memory.decrease)

    def learn(self, space: Space, iterates: Iterates, trial: TrialPoints) -> Any:
        """A new model where the step was accepted; a shorter share of the direction where it was not."""
        region: Region = iterates.memory
        sample, found, _, _, accept = trial
        predicted = region.share * region.decrease
        actual = iterates.value - np.where(np.isfinite(found.value), found.value, np.inf)
        whole = region.share == 1.0
        reached = region.share * np.abs(region.direction).max(axis=(1, 2))
        grown = np.where(actual > GOOD * predicted, GROW * region.radius, region.radius)
        radius = np.clip(np.where(whole, grown, reached), np.finfo(float).tiny, 1.0)
        excess = predicted - actual
        bent = np.isfinite(excess) & (excess > 0)
        parabola = np.where(bent, 0.5 * predicted / np.where(bent, excess, 1.0), 0.0)
        shorter = region.share * np.clip(parabola, SHORTEST, LONGEST)
        kept = Region(
            region.direction,
            region.decrease,
            region.most,
            np.where(accept, radius, region.radius),
            np.where(accept, 1.0, shorter),
        )
        return _modelled(space, kept, sample, found, accept)

    def stationarity_gap(self, space: Space, iterates: Iterates) -> Float[np.ndarray, " K"]:
        """The model is convex: over all tables it gains at most `1 / radius` times what it gains within the radius."""
        return np.asarray(iterates.memory.most / iterates.memory.radius)

    def stuck(self, iterates: Iterates) -> Bool[np.ndarray, " K"]:
        """Where the predicted decrease drowns in rounding."""
        return np.asarray(iterates.memory.share * iterates.memory.decrease <= ROUNDING * iterates.size)


def _modelled(space: Space, region: Region, sample: Sample, found: Slopes, renew: Bool[np.ndarray, " K"]) -> Region:
    """The region with the minimum of a new model at the points to renew."""
    direction, decrease, most = (np.array(part) for part in (region.direction, region.decrease, region.most))
    for k in np.flatnonzero(renew):
        direction[k], decrease[k], most[k] = minimum(space, sample, found, int(k), float(region.radius[k]))
    return Region(direction, decrease, most, region.radius, region.share)


def minimum(space: Space, sample: Sample, found: Slopes, k: int, radius: float) -> Improvement:
    """The least risk of the losses linearised at point k of a sample."""
    assert space.table is not None
    slopes, table = found.each[k], sample.points[k]
    reach = TrustRegion(table, space.table.rows, radius)
    if slopes is None:
        # Too many to be kept: along the slope of the risk alone.
        return along(found.slope[k], reach)
    return improve(linearised(sample, table, found.losses[k], slopes), reach)


class _Density(NamedTuple):
    sample: Sample

    def __call__(self, losses: np.ndarray) -> np.ndarray:
        probabilities = self.sample.draws.probabilities
        return probabilities * weights_of(self.sample.risk, losses, probabilities)


def linearised(sample: Sample, table: np.ndarray, losses: np.ndarray, slopes: np.ndarray) -> Linearised:
    """The losses of one table on a sample, linearised, with the sample's risk."""
    return Linearised(table, losses, slopes, _Density(sample), MOST_PLANES if sample.risk.coherent else 1)
