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
from .krylov import Krylov
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


def complete(factors: Factors, cost: Float[np.ndarray, "S A n"]) -> Completed:
    """Return models whose unseen shares lead to the visited state that is dearest for this cost.

    Args:
        factors: of models with unseen shares, under policies of their own.
        cost: of each pair; the last axis may have length 1.
    """
    models = factors.models
    if models.unseen is None or models.visited is None:
        raise ValueError("the models have no unseen shares")
    if not isinstance(factors, SolvedFactors):
        raise InputError("rows with unseen shares are evaluated by factors alone; leave occupancy= out, or use Exact()")
    share = np.einsum("san,san->sn", factors.policy, models.unseen)
    response = models.discount * factors.solve_values(share)
    values = factors.policy_values(cost) / (1.0 - response)
    target = np.where(models.visited[:, None], values, -np.inf).argmax(axis=0)
    return Completed(models, factors.policy, factors, share, response, target)


def dearest_futures(models: ModelBatch, values: Float[np.ndarray, "S N"]) -> Float[np.ndarray, "S A N"]:
    """Return the expected values of the next state of each pair if the unseen share leads to the dearest visited."""
    assert models.unseen is not None
    return next_values(models, values) + models.unseen * values[models.visited].max(axis=0)


def whole_rows(models: ModelBatch) -> Float[np.ndarray, "P K N"]:
    """Return the rows of all pairs with their unseen shares behind them; each sums to 1."""
    assert models.unseen is not None
    shares = models.unseen.reshape(-1, 1, models.size)
    return np.concatenate([models.probability[models.row.ravel()], shares], axis=1)


def iterate_policies(
    models: ModelBatch, cost: Float[np.ndarray, "S A n"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the best policies against the dearest target: actions, values, residuals and improvements of N models.

    Each policy is evaluated with its own dearest target, so that values only fall from one policy to the next. What
    is left after the last improvement shows in the residual.

    Args:
        models: N models with unseen shares.
        cost: of each pair; the last axis may have length 1.
    """
    states, actions, _ = models.successor.shape
    method = choose_method(Support(models.successor, None, *models.successor.shape))
    tie = max(TIE, 10.0 * method.residual) if isinstance(method, Krylov) else TIE
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
            found = complete(method.factor(few, policy), paid).policy_values(paid)
            quality = paid + models.discount * dearest_futures(few, found)
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
