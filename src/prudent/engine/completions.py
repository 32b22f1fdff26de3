"""Models of which a share of each row is not known: it leads to the dearest state that may follow.

A row is `P(. | s, a)`, which sums to `1 - u(s, a)`, and the unseen share `u(s, a)`, which leads to one visited state w,
the same for all rows of a model. Under a policy, with `M = I - discount P_pi` of the known part and a cost c,

    V = M^-1 c_pi + V(w) h,    h = discount M^-1 u_pi,    V(w) = (M^-1 c_pi)(w) / (1 - h(w)).

`h <= discount` because rows and unseen shares sum to 1. So two solves give `V(w)` for every target w. From any
distribution of the first state the cost grows with `V(w)`, and the dearest target is the state of the largest `V(w)`.
With it no visited state is dearer than w: a target that each row chooses by itself, at every step, costs no more.

The derivative by the policy is that with the target held fixed (the envelope theorem). Where two targets tie it is the
derivative of one of them.

For a known model the best policy against the dearest target solves

    V(s) = min_a c(s, a) + discount (sum_t P(t | s, a) V(t) + u(s, a) max_w V(w)),

whose right-hand side is monotone and contracts by the discount, so that the residual of any V bounds its error.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float, Int

from ..errors import InputError
from ..kernels import Support
from .base import Factors, SolvedFactors
from .choosing import choose_method
from .models import ModelBatch, next_values

# Memory of the factors that a plan holds.
FACTOR_BYTES = 64 * 2**20

# Differences of this share of the largest value are rounding; policy iteration ends after a handful of improvements.
TIE, MOST_IMPROVEMENTS = 1e-12, 200


@dataclasses.dataclass(frozen=True)
class Completed(Factors):
    """Models whose unseen shares lead to a target state of each.

    Attributes:
        known: the factors of the known part.
        share: `u_pi`, the unseen share of each state under the policy.
        response: `h`, what a state's value gains for each unit of the target's.
        target: the state that the unseen shares of each model lead to.
    """

    models: ModelBatch
    policy: Float[np.ndarray, "S A N"]
    known: SolvedFactors
    share: Float[np.ndarray, "S N"]
    response: Float[np.ndarray, "S N"]
    target: Int[np.ndarray, " N"]

    def state_visits(self) -> Float[np.ndarray, "S N"]:
        """Return the discounted visits of each state; they sum to `1 / (1 - discount)`."""
        each, discount = np.arange(self.models.size), self.models.discount
        visits = self.known.state_visits()
        # Discounted mass that takes an unseen step, those behind the target's own included.
        unseen = np.einsum("sn,sn->n", visits, self.share) / (1.0 - self.response[self.target, each])
        begin = np.zeros(visits.shape)
        begin[self.target, each] = discount * unseen
        return visits + self.known.solve_visits(begin)

    def solve_values(self, paid: Float[np.ndarray, "S N"]) -> Float[np.ndarray, "S N"]:
        """Return `V` with `V = paid + discount (P_pi V + u_pi V(target))`."""
        values, each = self.known.solve_values(paid), np.arange(self.models.size)
        dearest = values[self.target, each] / (1.0 - self.response[self.target, each])
        return values + dearest * self.response

    def gradient_at(
        self,
        visits: Float[np.ndarray, "S N"],
        values: Float[np.ndarray, "S N"],
        slope: Float[np.ndarray, "S A N"],
    ) -> Float[np.ndarray, "S A N"]:
        """Return `visits (slope + discount (P values + u values(target)))`."""
        assert self.models.unseen is not None
        found = self.known.gradient_at(visits, values, slope)
        dearest = self.models.discount * values[self.target, np.arange(self.models.size)]
        found += (visits * dearest)[:, None] * self.models.unseen
        return found


def complete(
    factors: Factors,
    cost: Float[np.ndarray, "S A n"],
    beside: Float[np.ndarray, "S N"] | None = None,
    target: Int[np.ndarray, " N"] | None = None,
) -> Completed:
    """Return models whose unseen shares lead to the visited state that is dearest for this cost.

    Args:
        factors: of models with unseen shares, under policies of their own.
        cost: of each pair; the last axis may have length 1.
        beside: what is taken off the cost from the start if unseen shares lead to each state; nothing when left out.
        target: where they lead, in place of the dearest state.
    """
    known, share, response = _respond(factors)
    models = known.models
    if target is None:
        paid = known.policy_values(cost)
        found = paid / (1.0 - response)
        if beside is not None:
            found = _from_start(models, paid, response) - beside
        return Completed(models, known.policy, known, share, response, largest_visited(models, found))
    return Completed(models, known.policy, known, share, response, target)


def largest_visited(models: ModelBatch, values: Float[np.ndarray, "S N"]) -> Int[np.ndarray, " N"]:
    """Return the visited state of the largest value in each model, the first where several tie."""
    assert models.visited is not None
    return np.where(models.visited[:, None], values, -np.inf).argmax(axis=0)


def losses_of_targets(factors: Factors, cost: Float[np.ndarray, "S A n"]) -> Float[np.ndarray, "S N"]:
    """Return the cost from the start if unseen shares lead to each state."""
    known, _, response = _respond(factors)
    return _from_start(known.models, known.policy_values(cost), response)


def _respond(factors: Factors) -> tuple[SolvedFactors, Float[np.ndarray, "S N"], Float[np.ndarray, "S N"]]:
    """Return the factors, `u_pi` and `h`."""
    models = factors.models
    if not isinstance(factors, SolvedFactors):
        raise InputError("rows with unseen shares are evaluated by factors alone; leave occupancy= out, or use Exact()")
    assert models.unseen is not None
    share = np.einsum("san,san->sn", factors.policy, models.unseen)
    return factors, share, models.discount * factors.solve_values(share)


def _from_start(
    models: ModelBatch, paid: Float[np.ndarray, "S N"], response: Float[np.ndarray, "S N"]
) -> Float[np.ndarray, "S N"]:
    """Return the cost from the start for each target, of `M^-1 c_pi` and `h`."""
    return models.start @ paid + (models.start @ response) * paid / (1.0 - response)


def futures_of(
    models: ModelBatch, values: Float[np.ndarray, "S N"], target: Int[np.ndarray, " N"] | None = None
) -> Float[np.ndarray, "S A N"]:
    """Return the expected values of the next state of each pair.

    The unseen share leads to a target of each model, or to the dearest visited state.
    """
    assert models.unseen is not None
    there = values[models.visited].max(axis=0) if target is None else values[target, np.arange(models.size)]
    return next_values(models, values) + models.unseen * there


def whole_rows(models: ModelBatch) -> Float[np.ndarray, "P K N"]:
    """Return the rows of all pairs with their unseen shares behind them; each sums to 1."""
    assert models.unseen is not None
    shares = models.unseen.reshape(-1, 1, models.size)
    return np.concatenate([models.probability[models.row.ravel()], shares], axis=1)


def iterate_policies(
    models: ModelBatch, cost: Float[np.ndarray, "S A n"], target: Int[np.ndarray, " N"] | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the best policies against the dearest target: actions, values, residuals and improvements of N models.

    Each policy is evaluated with its own dearest target, so that values only fall from one policy to the next. What
    is left after the last improvement shows in the residual.

    Args:
        models: N models with unseen shares.
        cost: of each pair; the last axis may have length 1.
        target: where the unseen shares of each model lead, in place of the dearest visited state.
    """
    states, actions, _ = models.successor.shape
    method = choose_method(Support(models.successor, None, *models.successor.shape))
    tie = max(TIE, 10.0 * method.residual_bound)
    block = max(1, FACTOR_BYTES // method.model_bytes())
    every = np.broadcast_to(cost, (states, actions, models.size))
    action = np.array(every.argmin(axis=1))
    values, residual = np.zeros((states, models.size)), np.zeros(models.size)
    improvements = np.zeros(models.size, int)
    for begin in range(0, models.size, block):
        changing = np.arange(begin, min(begin + block, models.size))
        for improvement in range(MOST_IMPROVEMENTS):
            few, paid = models.select(changing), every[:, :, changing]
            policy = np.moveaxis(np.eye(actions)[action[:, changing]], 2, 1)
            fixed = None if target is None else target[changing]
            found = complete(method.factor(few, policy), paid, target=fixed).policy_values(paid)
            quality = paid + models.discount * futures_of(few, found, fixed)
            best = quality.min(axis=1)
            chosen = np.take_along_axis(quality, action[:, changing][:, None], axis=1)[:, 0]
            # Only a real gain changes an action: ties decided by rounding could cycle for ever.
            gain = chosen - best > tie * (np.abs(found).max(axis=0) + np.abs(paid).max(axis=(0, 1)))
            values[:, changing], residual[changing] = found, np.abs(best - found).max(axis=0)
            action[:, changing] = np.where(gain, quality.argmin(axis=1), action[:, changing])
            improvements[changing] = improvement
            changing = changing[gain.any(axis=0)]
            if not changing.size:
                break
    return action, values, residual, improvements
