"""What every method of evaluating policies answers, and its gradient.

With `M = I - discount P_pi` of each model, the visits mu solve `M^T mu = start`, the values V of a cost c solve
`M V = c_pi`, and a loss F of the occupancy `lambda(s, a) = mu(s) pi(a | s)` with `z = dF / dlambda` has

    dF / dpi(a | s) = mu(s) (z(s, a) + discount sum_t P(t | s, a) V(t)),   M V = z_pi.
"""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
from jaxtyping import Float

from ..records import Record
from .models import ModelBatch, next_values


class Factors(abc.ABC):
    """A batch of models under policies of their own, prepared for solves.

    Attributes:
        models: N models.
        policy: `[S, A, N]` the policy of each.
    """

    models: ModelBatch
    policy: Float[np.ndarray, "S A N"]

    @abc.abstractmethod
    def state_visits(self) -> Float[np.ndarray, "S N"]:
        """Return the discounted visits of each state; they sum to `1 / (1 - discount)`."""

    @abc.abstractmethod
    def solve_values(self, paid: Float[np.ndarray, "S N"]) -> Float[np.ndarray, "S N"]:
        """Return `V` with `V = paid + discount P_pi V`, from the cost that the policy pays in each state."""

    def policy_values(self, cost: Float[np.ndarray, "S A N"]) -> Float[np.ndarray, "S N"]:
        """Return the discounted cost from each state, of costs of pairs."""
        return self.solve_values(np.einsum("san,san->sn", self.policy, np.broadcast_to(cost, self.policy.shape)))

    def policy_gradient(
        self, visits: Float[np.ndarray, "S N"], slope: Float[np.ndarray, "S A N"]
    ) -> Float[np.ndarray, "S A N"]:
        """Return the derivative of a loss by the policy.

        Args:
            visits: what `state_visits` returned.
            slope: `z`, the derivative of the loss by the occupancy; its last axis may have length 1.
        """
        return self.gradient_at(visits, self.policy_values(slope), slope)

    def gradient_at(
        self,
        visits: Float[np.ndarray, "S N"],
        values: Float[np.ndarray, "S N"],
        slope: Float[np.ndarray, "S A N"],
    ) -> Float[np.ndarray, "S A N"]:
        """Return `visits (slope + discount P values)`."""
        onward = next_values(self.models, values)
        onward *= self.models.discount
        onward += slope
        onward *= visits[:, None]
        return onward


class SolvedFactors(Factors):
    """A batch of models prepared for solves from any distribution."""

    def state_visits(self) -> Float[np.ndarray, "S N"]:
        """Return the solution of `M^T mu = start`."""
        return self.solve_visits(np.repeat(self.models.start[:, None], self.models.size, axis=1))

    @abc.abstractmethod
    def solve_visits(self, begin: Float[np.ndarray, "S N"]) -> Float[np.ndarray, "S N"]:
        """Return the solution of `M^T mu = begin`."""


class Method(Record):
    """A way to evaluate policies in batches of models with the same successors."""

    @abc.abstractmethod
    def fits(self, successor: Any) -> bool:
        """Return whether the method was prepared for successors like these, `[S, A, B]`."""

    @abc.abstractmethod
    def factor(self, models: ModelBatch, policy: Float[np.ndarray, "S A N"]) -> Factors:
        """Return the models prepared for solves under a policy `[S, A, N]`, or `[S, A, 1]` for all."""

    @abc.abstractmethod
    def model_bytes(self) -> int:
        """Return the memory that one model takes."""

    @property
    def solves_from_anywhere(self) -> bool:
        """Whether its factors are `SolvedFactors`, which models with unseen shares need."""
        return True

    @property
    def residual_bound(self) -> float:
        """Relative residual at which its solves end; 0 for a direct method."""
        return 0.0

    @property
    def in_cache(self) -> bool:
        """Whether many models fit the processor's cache, so that small batches are faster."""
        return False


def for_each_model(policy: Float[np.ndarray, "S A N"], models: ModelBatch) -> Float[np.ndarray, "S A N"]:
    """Return the policy of each model in one piece of memory."""
    return np.ascontiguousarray(np.broadcast_to(policy, (*policy.shape[:2], models.size)))
