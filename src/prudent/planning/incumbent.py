"""What is known while a convex loss is minimised: the best occupancy so far, and a bound below every other.

A gradient z of a convex loss at any point bounds it from below everywhere, by the cut `F(l') >= F(l) + <z, l' - l>`.
So does every average of cuts, and the least value of an average over all occupancies is exact planning with its
slope as cost. The methods that look for the optimum only propose; value and bound come from here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import sparse

from .. import engine
from ..engine import EPSILON, Krylov, ModelBatch, choose_method, level_of, row_error
from ..losses import Loss, as_loss, batch_of
from ..models import MDP

# State-action pairs up to which Newton's matrix is built: its solve takes about a second at this size.
LARGEST_NEWTON = 1500

# The largest gap when no tolerance is given, as a share of the loss's spread.
ACCURACY = 1e-7


class Centred(NamedTuple):
    """`(F - level - slope (sum lambda - 1 / (1 - discount))) / scale`, and F itself.

    The sum of every occupancy is `1 / (1 - discount)`, so this has the minimisers of F; level, slope and scale make
    its values and gradients of the order of 1, whatever the unit of the loss.
    """

    loss: Any
    level: float
    slope: float
    scale: float

    def evaluate(
        self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch
    ) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"], Float[np.ndarray, "S A N"]]:
        """Return the centred losses, the losses, and the gradients of the first."""
        whole, gradient = self.loss.value_and_gradient(occupancy, models)
        excess = occupancy.sum(axis=(0, 1)) - 1.0 / (1.0 - models.discount)
        return (whole - self.level - self.slope * excess) / self.scale, whole, (gradient - self.slope) / self.scale


class Cut(NamedTuple):
    """`intercept + <slope, lambda>`, nowhere above the centred loss."""

    intercept: float
    slope: Float[np.ndarray, "S A"]


class ConvexSearch:
    """The best occupancy found so far and the best lower bound; the two need not belong together.

    Value, bound, gap and tolerance are in the unit of the loss; cuts and gradients are those of the centred loss.
    """

    def __init__(self, mdp: MDP, loss: Loss, tolerance: float | None, accuracy: float = ACCURACY):
        self.mdp, self.tolerance, self.accuracy, self.begun = mdp, tolerance, accuracy, time.perf_counter()
        self.models, method = batch_of(mdp), choose_method(mdp.kernel.support)
        # Tighter than elsewhere: near the optimum the loss changes by less than the usual residual.
        self.method = Krylov.of(mdp.kernel.support, residual=1e-13) if isinstance(method, Krylov) else method
        self.loss = Centred(as_loss(loss), 0.0, 0.0, 1.0)
        self.value, self.lower_bound = np.inf, -np.inf
        self.cuts: list[Cut] = []
        self.flow = balance(mdp).toarray() if mdp.cost.size <= LARGEST_NEWTON else None
        self.occupancy = self.of_policy(np.full(mdp.cost.shape, 1.0 / mdp.cost.shape[1]))

    @property
    def gap(self) -> float:
        return self.value - self.lower_bound

    @property
    def finished(self) -> bool:
        return self.tolerance is not None and self.gap <= self.tolerance

    @property
    def noise(self) -> float:
        """Return what rounding makes of a centred value."""
        discount, loss = self.models.discount, self.loss
        size = 1.0 + (abs(loss.level) + abs(loss.slope) / (1.0 - discount)) / loss.scale
        return EPSILON * (16.0 + self.mdp.cost.size**0.5) * float(size)

    def of_policy(self, policy: np.ndarray) -> np.ndarray:
        """Return the policy's occupancy."""
        # An iterative solve may leave states that are hardly visited a rounding below zero.
        visits = np.maximum(self.method.factor(self.models, policy[:, :, None]).state_visits(), 0.0)
        return visits * policy

    def slope(self, occupancy: np.ndarray) -> tuple[float, float, np.ndarray]:
        """Return the centred loss, the loss, and the gradient of the first."""
        value, whole, slope = self.loss.evaluate(occupancy[:, :, None], self.models)
        return float(value[0]), float(whole[0]), slope[:, :, 0]

    def begin(self) -> np.ndarray:
        """Centre the loss, on the uniform policy and the best and worst plans for its gradient; the dual values `[S]`.

        The differences among the three are the loss's spread, and a plan may be the optimum itself: it is, for linear
        losses, whose gradient is the same everywhere.
        """
        uniform = self.occupancy
        value, _, slope = self.slope(uniform)
        if not (np.isfinite(value) and np.all(np.isfinite(slope))):
            return np.zeros(len(slope))
        actions = [engine.plan(self.models, cost[:, :, None]).action[:, 0] for cost in (slope, -slope)]
        corners = [self.of_policy(np.eye(slope.shape[1])[action]) for action in actions]
        values = [value, *(found for found in (self.slope(corner)[0] for corner in corners) if np.isfinite(found))]
        spread = max(values) - min(values)
        if not spread > 64.0 * EPSILON * abs(value):
            spread = abs(value) or 1.0
        self.loss = Centred(self.loss.loss, value, float(level_of(slope)), spread)
        if self.tolerance is None:
            self.tolerance = max(self.accuracy, 16.0 * self.noise) * spread
        dual = self.certify(uniform)
        for corner in corners:
            self.propose(corner)
        return dual

    def certify(self, proposal: np.ndarray) -> np.ndarray:
        """Improve the value and the bound by an occupancy near the proposal; returns the dual values `[S]`."""
        cut = self.propose(self.of_policy(row_policy(proposal)))
        return np.zeros(len(proposal)) if cut is None else self.support([cut], np.ones(1))

    def propose(self, occupancy: np.ndarray) -> Cut | None:
        """Take the occupancy if it is the best so far; the cut there, None where there is none."""
        value, whole, slope = self.slope(occupancy)
        if whole < self.value:
            self.occupancy, self.value = occupancy, whole
        terms = slope * occupancy
        error = self.noise * (1.0 + abs(value) + float(np.abs(terms).sum()))
        cut = Cut(value - float(terms.sum()) - error, slope)
        if not (np.isfinite(cut.intercept) and np.all(np.isfinite(slope))):
            return None
        self.cuts.append(cut)
        return cut

    def support(self, cuts: Sequence[Cut], weights: Float[np.ndarray, " J"]) -> np.ndarray:
        """Raise the bound to the least value of an average of cuts; returns the dual values `[S]`."""
        discount, loss = self.models.discount, self.loss
        mean = np.asarray(sum(weight * cut.slope for cut, weight in zip(cuts, weights, strict=True)))
        intercepts = np.array([cut.intercept for cut in cuts])
        aim = None if self.tolerance is None else 0.01 * self.tolerance / loss.scale
        best = engine.plan(self.models, mean[:, :, None], aim)
        dual = best.values[:, 0]
        # What planning and rounding may be off by is taken off the bound, so that it stays one.
        size = float(np.abs(intercepts).max() + np.abs(mean).max() / (1.0 - discount))
        low = float(weights @ intercepts) + float(best.low[0]) - EPSILON * (len(dual) + len(cuts)) * size
        error = EPSILON * (abs(loss.level) + abs(loss.scale * low)) + abs(loss.slope) * self._drift()
        self.lower_bound = max(self.lower_bound, loss.level + loss.scale * low - 4.0 * error)
        return dual

    def _drift(self) -> float:
        """Return how far the sum of an occupancy may be off `1 / (1 - discount)`, as rows need not sum to 1."""
        discount = self.models.discount
        return float(row_error(self.models.probability).max() * discount / (1.0 - discount) ** 2)


def row_policy(occupancy: np.ndarray) -> np.ndarray:
    """Return rows of an occupancy, normalised; uniform where a state is never visited."""
    visits = occupancy.sum(axis=1, keepdims=True)
    shares = occupancy / np.where(visits > 0.0, visits, 1.0)
    return np.where(visits > 0.0, shares, 1.0 / occupancy.shape[1])


def balance(mdp: MDP) -> sparse.csr_matrix:
    """Return `[S, S A]` what each pair's mass adds to each state's balance."""
    states, actions, successors = mdp.kernel.support.shape
    shape = (states, states * actions)
    own = sparse.kron(sparse.identity(states), np.ones((1, actions)))
    pair = np.repeat(np.arange(states * actions), successors)
    entries = (np.asarray(mdp.kernel.probability).ravel(), (mdp.kernel.support.index().ravel(), pair))
    return sparse.csr_matrix(own - float(mdp.discount) * sparse.csr_matrix(entries, shape=shape))
