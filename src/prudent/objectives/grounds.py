"""The counts behind a belief, and other priors for them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..kernels import Graph, Support
from ..models import AbstractFamily, TabularFamily
from ..posteriors import Dirichlet, Pooled, Posterior, Sobol, WithCosts


class Ground(NamedTuple):
    """The counts behind a belief, laid out along all successors that may be possible.

    Attributes:
        support: these successors.
        counts: `[S, A, B]`, of tied rows together.
        allowed: `[S, A, B]` where a row may lead.
        tied: `[S, A]` labels of rows that are one, or None.
        family: the models along the support.
        pooled: the belief itself, where its rows learn from one another.
    """

    support: Support
    counts: Float[np.ndarray, "S A B"]
    allowed: Bool[np.ndarray, "S A B"]
    tied: Int[np.ndarray, "S A"] | None
    family: AbstractFamily
    pooled: Pooled | None = None

    @property
    def rows(self) -> Float[np.ndarray, "S A"]:
        """How often each pair was seen."""
        return self.counts.sum(axis=2)

    @property
    def open(self) -> Bool[np.ndarray, "S A"]:
        """Pairs that may lead to more than one state."""
        return self.allowed.sum(axis=2) > 1

    def beliefs(self) -> dict[str, Dirichlet | Pooled]:
        """Priors that careful readers of the same counts might hold, by name."""
        seen = self.counts > 0
        shown = np.where(seen.any(axis=2, keepdims=True), seen, self.allowed)
        spread = self.allowed / self.allowed.sum(axis=2, keepdims=True)
        priors = {"seen successors only, a row each": shown * 1.0, "one row spread over all successors": spread}
        beliefs: dict[str, Dirichlet | Pooled] = {
            name: Dirichlet(self.support, prior, self._own(), self.tied) for name, prior in priors.items()
        }
        if self.tied is None and np.array_equal(self.allowed, self.support.allowed()):
            own = self.pooled or Pooled(self.support, self.counts)
            beliefs["pairs that learn from one another"] = own
        return beliefs

    def _own(self) -> Float[np.ndarray, "S A B"]:
        """Counts of which those of tied rows, which are together in each of them, are in the first alone."""
        if self.tied is None:
            return self.counts
        _, first = np.unique(self.tied.ravel(), return_index=True)
        own = np.zeros((self.tied.size, self.support.successors))
        own[first] = self.counts.reshape(own.shape)[first]
        return own.reshape(self.counts.shape)


def ground_of(family: AbstractFamily, belief: Posterior) -> Ground | str:
    """The counts that a belief was made from; or, in words, why there are none."""
    while isinstance(belief, Sobol | WithCosts):
        if isinstance(belief, WithCosts):
            # What is open is where pairs lead: costs are at their means.
            cost = np.asarray(belief.cost)
            cost = cost[..., 0] if cost.shape[2] == 1 else cost
            family = TabularFamily(belief.support, cost, family.start, family.discount)
        belief = belief.posterior
    if not isinstance(belief, Dirichlet | Pooled):
        return f"the belief ({type(belief).__name__}) does not say how often each state-action pair was seen"
    counts, allowed, tied = np.asarray(belief.counts), belief.support.allowed(), None
    if isinstance(belief, Dirichlet):
        tied = None if belief.tied is None else np.asarray(belief.tied)
        counts = counts if tied is None else _together(counts, tied)
        allowed = allowed & ((np.asarray(belief.prior) > 0) | (counts > 0))
    ground = Ground(belief.support, counts, allowed, tied, family, belief if isinstance(belief, Pooled) else None)
    if belief.support.observed and tied is None and isinstance(family, TabularFamily):
        return _widened(ground)
    return ground


def _together(counts: Float[np.ndarray, "S A B"], tied: Int[np.ndarray, "S A"]) -> Float[np.ndarray, "S A B"]:
    """Counts of tied rows, added up in each of them."""
    _, place = np.unique(tied.ravel(), return_inverse=True)
    rows = counts.reshape(len(place), -1)
    total = np.zeros((place.max() + 1, rows.shape[1]))
    np.add.at(total, place, rows)
    return total[place].reshape(counts.shape)


def _widened(ground: Ground) -> Ground:
    """Lists that only say what was seen, made wide enough for what was not: any state may follow an open pair.

    A pair whose only successor was never seen is one that cannot be left, as in a terminal state. A transition
    without a cost of its own costs what its pair costs on average over the list.
    """
    support, shape = ground.support, (*ground.support.shape[:2], ground.support.states)
    closed = (ground.allowed.sum(axis=2) == 1) & (ground.rows == 0)
    index = np.broadcast_to(np.arange(shape[2], dtype=np.int32), shape).copy()
    index[closed] = support.index()[closed][ground.allowed[closed]][:, None]
    listed = ~closed[:, :, None] | (np.arange(shape[2]) == 0)
    wide = Support(index, listed, Graph.of(index, listed), *shape) if closed.any() else Support.dense(*shape[:2])
    state, action, slot = np.nonzero(ground.allowed & ~closed[:, :, None])
    place = state, action, support.index()[state, action, slot]
    counts = np.zeros(shape)
    counts[place] = ground.counts[state, action, slot]
    assert isinstance(ground.family, TabularFamily)
    cost = np.asarray(ground.family.costs)
    if cost.ndim == 3:
        usual = np.where(ground.allowed, cost, 0.0).sum(axis=2, keepdims=True) / ground.allowed.sum(
            axis=2, keepdims=True
        )
        every = np.where(listed, usual, 0.0)
        every[place] = cost[state, action, slot]
        cost = every
    family = TabularFamily(wide, cost, ground.family.start, ground.family.discount)
    return Ground(wide, counts, wide.allowed(), None, family)
