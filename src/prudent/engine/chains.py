"""The chain `discount P_pi` of each model, applied step by step: what iterative solves and cut horizons are made of."""

from __future__ import annotations

import dataclasses
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from .models import ModelBatch


@runtime_checkable
class PolicyChain(Protocol):
    """`discount P_pi` of N models; vectors are `[S, N]`."""

    def pull(self, values: Float[np.ndarray, "S N"]) -> Float[np.ndarray, "S N"]:
        """Return `discount P_pi values`."""
        ...

    def push(self, mass: Float[np.ndarray, "S N"]) -> Float[np.ndarray, "S N"]:
        """Return `discount P_pi^T mass`."""
        ...


@dataclasses.dataclass(frozen=True)
class SparseChain:
    """A chain along the neighbours of each state, or rows of pairs along their successors, to pull alone."""

    index: Int[np.ndarray, "S W"]
    weight: Float[np.ndarray, "S W N"]

    def pull(self, values: Float[np.ndarray, "S N"]) -> Float[np.ndarray, "S N"]:
        """Return `discount P_pi values`."""
        from . import band_loops  # Numba is slow to import

        found = np.empty((len(self.index), values.shape[1]))
        if values.shape[1] == 1:
            band_loops.pull_one(self.index, self.weight[:, :, 0], values[:, 0], found[:, 0])
        else:
            band_loops.pull(self.index, self.weight, values, found)
        return found

    def push(self, mass: Float[np.ndarray, "S N"]) -> Float[np.ndarray, "S N"]:
        """Return `discount P_pi^T mass`."""
        from . import band_loops

        found = np.empty_like(mass)
        band_loops.push(self.index, self.weight, mass, found)
        return found


@dataclasses.dataclass(frozen=True)
class DenseChain:
    """A chain of full matrices, one behind the other, which BLAS multiplies by."""

    matrix: Float[np.ndarray, "N S S"]

    def pull(self, values: Float[np.ndarray, "S N"]) -> Float[np.ndarray, "S N"]:
        """Return `discount P_pi values`."""
        return np.ascontiguousarray((self.matrix @ values.T[:, :, None])[:, :, 0].T)

    def push(self, mass: Float[np.ndarray, "S N"]) -> Float[np.ndarray, "S N"]:
        """Return `discount P_pi^T mass`."""
        return np.ascontiguousarray((mass.T[:, None] @ self.matrix)[:, 0].T)


def chain_of(
    models: ModelBatch,
    policy: Float[np.ndarray, "S A N"],
    index: Int[np.ndarray, "S W"] | None,
    slot: Int[np.ndarray, "S A B"] | None,
) -> PolicyChain:
    """Return the chains of models under policies of their own.

    Args:
        models: N models.
        policy: of each.
        index: the neighbours of each state; None where every state can follow.
        slot: where each successor is among them.
    """
    states, actions, _ = models.successor.shape
    if index is None or slot is None:
        by_model = np.moveaxis(models.probability, -1, 0)  # as a table family has it, so that nothing moves
        matrix = np.zeros((models.size, states, states))
        for a in range(actions):
            matrix += (models.discount * policy[:, a].T)[:, :, None] * by_model[:, models.row[:, a]]
        return DenseChain(matrix)
    from . import band_loops

    weight = np.zeros((*index.shape, models.size))
    probability = np.ascontiguousarray(models.probability)
    band_loops.chain(slot, models.row, probability, policy, models.discount, weight)
    return SparseChain(index, weight)
