"""The rows behind a belief, and other priors for them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..kernels import Graph, Support
from ..models import AbstractFamily, TabularFamily
from ..posteriors import Dirichlet, OutcomeLaws, Pooled, Posterior, Sobol, WithCosts

# A pseudo-count that draws nothing.
NEVER = 1e-9


class Ground(NamedTuple):
    """What a belief stands on.

    Attributes:
        family: the models along all successors that may be possible.
        rows: `[S, A]` how often each pair was seen; of pairs that are tied or share a law, all of them together.
        open: `[S, A]` pairs of which more than one thing may come.
        beliefs: by name, what careful readers of the same rows might believe.
    """

    family: AbstractFamily
    rows: Float[np.ndarray, "S A"]
    open: Bool[np.ndarray, "S A"]
    beliefs: dict[str, Dirichlet | Pooled | OutcomeLaws]


class _Counts(NamedTuple):
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

    def ground(self) -> Ground:
        """These counts under several priors."""
        seen = self.counts > 0
        shown = np.where(seen.any(axis=2, keepdims=True), seen, self.allowed)
        spread = self.allowed / self.allowed.sum(axis=2, keepdims=True)
        priors = {"seen successors only, a row each": shown * 1.0, "one row spread over all successors": spread}
        beliefs: dict[str, Dirichlet | Pooled | OutcomeLaws] = {
            name: Dirichlet(self.support, prior, self._own(), self.tied) for name, prior in priors.items()
        }
        if self.tied is None and np.array_equal(self.allowed, self.support.allowed()):
            own = self.pooled or Pooled(self.support, self.counts)
            beliefs["pairs that learn from one another"] = own
        return Ground(self.family, self.rows, self.allowed.sum(axis=2) > 1, beliefs)

    def _own(self) -> Float[np.ndarray, "S A B"]:
        """Counts of which those of tied rows, which are together in each of them, are in the first alone."""
        if self.tied is None:
            return self.counts
        _, first = np.unique(self.tied.ravel(), return_index=True)
        own = np.zeros((self.tied.size, self.support.successors))
        own[first] = self.counts.reshape(own.shape)[first]
        return own.reshape(self.counts.shape)


def ground_of(family: AbstractFamily, belief: Posterior) -> Ground | str:
    """The rows that a belief was made from; or, in words, why they are not known."""
    while isinstance(belief, Sobol | WithCosts):
        if isinstance(belief, WithCosts):
            # What is open is where pairs lead: costs are at their means.
            cost = np.asarray(belief.cost)
            cost = cost[..., 0] if cost.shape[2] == 1 else cost
            family = TabularFamily(belief.support, cost, family.start, family.discount)
        belief = belief.posterior
    if isinstance(belief, OutcomeLaws):
        return _ground_of_laws(family, belief)
    if not isinstance(belief, Dirichlet | Pooled):
        return f"the {type(belief).__name__} belief does not say how often each state-action pair was seen"
    counts, allowed, tied = np.asarray(belief.counts), belief.support.allowed(), None
    if isinstance(belief, Dirichlet):
        tied = None if belief.tied is None else np.asarray(belief.tied)
        counts = counts if tied is None else _together(counts, tied)
        allowed = allowed & ((np.asarray(belief.prior) > 0) | (counts > 0))
    found = _Counts(belief.support, counts, allowed, tied, family, belief if isinstance(belief, Pooled) else None)
    if belief.support.observed and tied is None and isinstance(family, TabularFamily):
        found = _widened(found)
    return found.ground()


def _ground_of_laws(family: AbstractFamily, belief: OutcomeLaws) -> Ground:
    """What was seen of laws, under several priors of their outcomes."""
    allowed, index = belief.support.allowed(), belief.support.index()
    own = np.asarray(belief.prior) > 0
    priors = {
        "seen outcomes only, a row each": np.where(belief.shown(), 1.0, NEVER * own),
        "one row spread over all outcomes": own / own.sum(axis=1, keepdims=True),
    }
    beliefs: dict[str, Dirichlet | Pooled | OutcomeLaws] = {
        name: OutcomeLaws(belief.support, belief.law, prior, belief.counts, belief.seen)
        for name, prior in priors.items()
    }
    open_ = allowed.sum(axis=2) > 1
    if isinstance(family, TabularFamily):
        # Outcomes that lead to one state at one cost are one.
        cost = np.asarray(family.costs)
        differ = [index, cost] if cost.ndim == 3 else [index]
        first = [np.take_along_axis(each, allowed.argmax(axis=2)[..., None], axis=2) for each in differ]
        apart = [(each != one) & allowed for each, one in zip(differ, first, strict=True)]
        open_ = np.any(apart, axis=(0, 3))
    return Ground(family, belief.rows(), open_, beliefs)


def _together(counts: Float[np.ndarray, "S A B"], tied: Int[np.ndarray, "S A"]) -> Float[np.ndarray, "S A B"]:
    """Counts of tied rows, added up in each of them."""
    _, place = np.unique(tied.ravel(), return_inverse=True)
    rows = counts.reshape(len(place), -1)
    total = np.zeros((place.max() + 1, rows.shape[1]))
    np.add.at(total, place, rows)
    return total[place].reshape(counts.shape)


def _widened(ground: _Counts) -> _Counts:
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
    return _Counts(wide, counts, wide.allowed(), None, family)
