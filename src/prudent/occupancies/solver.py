"""What a linear solver of the occupancy offers: prepare once, then one forward and one adjoint solve."""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx

from ..arrays import Array
from ..kernels import Support


class Solver(eqx.Module):
    """Solves with `M = I - discount P_pi` and its transpose, for a batch of models that share a support."""

    @abc.abstractmethod
    def axis(self) -> int:
        """Where arrays keep the batch of models: last (-1) or first (0)."""

    @abc.abstractmethod
    def prepare(self, support: Support, probability: Array, policy: Array, discount: Array) -> Any:
        """What both solves share: a factorisation, or the chain `P_pi` itself."""

    @abc.abstractmethod
    def forward(self, prepared: Any, start: Array) -> Array:
        """Solve `M^T mu = start`."""

    @abc.abstractmethod
    def adjoint(self, prepared: Any, values: Array) -> Array:
        """Solve `M V = values`."""
