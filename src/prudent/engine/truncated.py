"""Occupancies cut after a horizon K, and their derivative, which depends on time.

With the mass `m_t` of each state at step t, `discount^t` included, and the cost to go of j more steps `V_j = z_pi +
discount P_pi V_{j-1}`, `V_{-1} = 0`, a loss F of `lambda(s, a) = sum_{t <= K} m_t(s) pi(a | s)` with `z = dF / dlambda`
has

    dF / dpi(a | s) = sum_{t <= K} m_t(s) (z(s, a) + discount sum_t' P(t' | s, a) V_{K-t-1}(t')).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ..records import field
from .base import Factors, Method, for_each_model
from .chains import PolicyChain, chain_of
from .layout import merged_neighbours
from .models import ModelBatch


class TruncatedSum(Method):
    """The terms `t = 0..horizon` of the occupancy.

    Attributes:
        index: `[S, W]` the states that one step can lead to from each; None where that is every state.
        slot: `[S, A, B]` where each successor is among them; None likewise.
        shape: S, A and B.
        horizon: K.
    """

    index: Int[np.ndarray, "S W"] | None
    slot: Int[np.ndarray, "S A B"] | None
    shape: tuple[int, int, int] = field(static=True)
    horizon: int = field(static=True)

    @staticmethod
    def of(support: Any, horizon: int) -> TruncatedSum:
        """Return the method for models along a support."""
        index, slot = (None, None) if support.is_dense else merged_neighbours(support.index())
        return TruncatedSum(index, slot, support.shape, horizon)

    @property
    def solves_from_anywhere(self) -> bool:
        """Not from any distribution."""
        return False

    def fits(self, successor: Any) -> bool:
        """Return whether the sizes are the same."""
        return successor.shape == self.shape

    def model_bytes(self) -> int:
        """Return the size of one chain and of the values at all times."""
        width = self.shape[0] if self.index is None else self.index.shape[1]
        return 8 * self.shape[0] * (2 * width + self.horizon)

    def factor(self, models: ModelBatch, policy: Float[np.ndarray, "S A N"]) -> Factors:
        """Return the chain of each model under its policy."""
        policy = for_each_model(policy, models)
        return Followed(models, policy, self, chain_of(models, policy, self.index, self.slot))


@dataclasses.dataclass(frozen=True)
class Followed(Factors):
    """Models whose chains are followed step by step."""

    models: ModelBatch
    policy: Float[np.ndarray, "S A N"]
    method: TruncatedSum
    chain: PolicyChain

    def state_visits(self) -> Float[np.ndarray, "S N"]:
        """Return `sum_t m_t`."""
        mass = np.repeat(self.models.start[:, None], self.models.size, axis=1)
        visits = mass.copy()
        for _ in range(self.method.horizon):
            mass = self.chain.push(mass)
            visits += mass
        return visits

    def solve_values(self, paid: Float[np.ndarray, "S N"]) -> Float[np.ndarray, "S N"]:
        """Return `V_K`, the cost to go of the whole horizon."""
        values = np.array(paid)
        for _ in range(self.method.horizon):
            values = paid + self.chain.pull(values)
        return values

    def policy_gradient(
        self, visits: Float[np.ndarray, "S N"], slope: Float[np.ndarray, "S A N"]
    ) -> Float[np.ndarray, "S A N"]:
        """Return the derivative of a loss by the policy."""
        models, index = self.models, self.method.index
        slope = np.broadcast_to(slope, self.policy.shape)
        found = visits[:, None] * slope
        if not self.method.horizon:
            return found
        paid = (self.policy * slope).sum(axis=1)
        to_go = [paid]
        for _ in range(self.method.horizon - 1):
            to_go.append(paid + self.chain.pull(to_go[-1]))
        masses = [np.repeat(models.start[:, None], models.size, axis=1)]
        for _ in range(self.method.horizon - 1):
            masses.append(self.chain.push(masses[-1]))
        if index is None:
            together = np.stack(masses).transpose(2, 1, 0) @ np.stack(to_go[::-1]).transpose(2, 0, 1)
            onward = np.moveaxis(together, 0, -1)  # [S, S, N]: mass at s times the cost to go from t, of all times
        else:
            onward = np.zeros((*index.shape, models.size))
            for mass, values in zip(masses, to_go[::-1], strict=True):
                onward += mass[:, None] * values[index]
        own = np.arange(len(onward))
        for b in range(models.successor.shape[2]):
            place = models.successor[:, :, b] if self.method.slot is None else self.method.slot[:, :, b]
            found += models.discount * models.probability[models.row, b] * onward[own[:, None], place]
        return found
