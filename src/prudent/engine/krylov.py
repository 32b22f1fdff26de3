"""Iterative solves of larger models: BiCGSTAB for all models of a batch side by side, and never a factor.

BiCGSTAB can stall; the fixed point `x <- b + discount P x` cannot, because it contracts by the discount. So the fixed
point takes over whatever BiCGSTAB leaves unfinished; usually that is nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ..errors import InputError
from ..records import field
from .banded import compiled_gradient
from .base import Factors, Method, SolvedFactors, for_each_model
from .chains import PolicyChain, chain_of
from .layout import merged_neighbours
from .models import ModelBatch

# BiCGSTAB starts again so often before the fixed point takes over.
RESTARTS = 5

# Room for rounding between the recursive and the true residual, both squared.
CLOSE = 4.0


class Krylov(Method):
    """BiCGSTAB, and the fixed point for what it leaves unfinished.

    >>> import prudent as pr
    >>> pr.Krylov.of(pr.envs.frozen_lake().support, residual=1e-12).residual
    1e-12

    Attributes:
        index: `[S, W]` the states that one step can lead to from each; None where that is every state.
        slot: `[S, A, B]` where each successor is among them; None likewise.
        shape: S, A and B.
        residual: a solve ends when `|b - M x| <= residual |b|` in every model.
        sweeps: BiCGSTAB iterations before the fixed point takes over.
    """

    index: Int[np.ndarray, "S W"] | None
    slot: Int[np.ndarray, "S A B"] | None
    shape: tuple[int, int, int] = field(static=True)
    residual: float = field(static=True, default=1e-10)
    sweeps: int = field(static=True, default=500)

    def __check_init__(self) -> None:
        if not (0.0 < self.residual < 1.0 and self.sweeps >= 0):
            raise InputError(f"Krylov needs 0 < residual < 1 and sweeps >= 0, got {self.residual} and {self.sweeps}")

    @staticmethod
    def of(support: Any, residual: float = 1e-10, sweeps: int = 500) -> Krylov:
        """Return the method for models along a support."""
        successor = support.index()
        index, slot = (None, None) if support.is_dense else merged_neighbours(successor)
        return Krylov(index, slot, successor.shape, residual, sweeps)

    @property
    def residual_bound(self) -> float:
        """Relative residual at which its solves end."""
        return self.residual

    def fits(self, successor: Any) -> bool:
        """Return whether the neighbours are those of these successors."""
        if self.index is None or self.slot is None:
            return successor.shape == self.shape
        return successor.shape == self.shape and bool(
            np.all(self.index[np.arange(len(successor))[:, None, None], self.slot] == successor)
        )

    def model_bytes(self) -> int:
        """Return the size of one chain."""
        return 8 * self.shape[0] * (self.shape[0] if self.index is None else self.index.shape[1])

    def factor(self, models: ModelBatch, policy: Float[np.ndarray, "S A N"]) -> Factors:
        """Return the chain of each model under its policy."""
        policy = for_each_model(policy, models)
        return Iterated(models, policy, self, chain_of(models, policy, self.index, self.slot))


@dataclasses.dataclass(frozen=True)
class Iterated(SolvedFactors):
    """Models whose chains are applied to vectors."""

    models: ModelBatch
    policy: Float[np.ndarray, "S A N"]
    method: Krylov
    chain: PolicyChain

    def solve_visits(self, begin: Float[np.ndarray, "S N"]) -> Float[np.ndarray, "S N"]:
        """Return the solution of `M^T mu = begin`."""
        return self._solve(self.chain.push, np.ascontiguousarray(begin))

    def solve_values(self, paid: Float[np.ndarray, "S N"]) -> Float[np.ndarray, "S N"]:
        """Return the solution of `M V = paid`."""
        return self._solve(self.chain.pull, np.ascontiguousarray(paid))

    def gradient_at(
        self,
        visits: Float[np.ndarray, "S N"],
        values: Float[np.ndarray, "S N"],
        slope: Float[np.ndarray, "S A N"],
    ) -> Float[np.ndarray, "S A N"]:
        """Return `visits (slope + discount P values)`."""
        if self.method.index is None:
            return super().gradient_at(visits, values, slope)
        return compiled_gradient(self, visits, values, slope)

    def _solve(
        self, move: Callable[[np.ndarray], np.ndarray], right: Float[np.ndarray, "S N"]
    ) -> Float[np.ndarray, "S N"]:
        limit = self.method.residual**2 * _square(right)
        x, residual = np.zeros_like(right), right.copy()
        for _ in range(RESTARTS):
            if not np.any(_square(residual) > CLOSE * limit):
                return x
            tried = x + bicgstab(move, residual, limit, self.method.sweeps)
            # The recursive residual can part from the true one by any amount; only a smaller true one counts.
            left = right - tried + move(tried)
            better = _square(left) < _square(residual)
            x[:, better], residual[:, better] = tried[:, better], left[:, better]
        # Twice the sweeps that the rate needs pay for the constant of the norm.
        rate = math.log(min(max(self.models.discount, 1e-3), 1.0 - 1e-12))
        for _ in range(math.ceil(2.0 * math.log(self.method.residual) / rate)):
            if not np.any(_square(residual) > CLOSE * limit):
                break
            x += residual
            residual = right - x + move(x)
        return x


def _square(vectors: Float[np.ndarray, "S N"]) -> Float[np.ndarray, " N"]:
    return np.einsum("sn,sn->n", vectors, vectors)


def _ratio(top: Float[np.ndarray, " N"], bottom: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Return `top / bottom`, and 0 where BiCGSTAB has broken down or is done."""
    return np.divide(top, bottom, out=np.zeros_like(top), where=bottom != 0)


def bicgstab(
    move: Callable[[np.ndarray], np.ndarray],
    right: Float[np.ndarray, "S N"],
    limit: Float[np.ndarray, " N"],
    sweeps: int,
    size: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Float[np.ndarray, "S N"]:
    """Solve `x - move(x) = right` from 0, all systems side by side; return the best iterate of each.

    Args:
        move: applies `discount P_pi` or its transpose.
        right: the right-hand sides.
        limit: sizes of the residuals that are small enough.
        sweeps: iterations at most.
        size: of residuals; squared norms when left out.
    """
    size = _square if size is None else size
    residual = right.copy()
    x, direction, image = np.zeros_like(right), np.zeros_like(right), np.zeros_like(right)
    rho, alpha, omega = np.ones((3, right.shape[1]))
    best, least = x.copy(), size(residual)
    for _ in range(sweeps):
        rho_next = np.einsum("sn,sn->n", right, residual)
        beta = _ratio(rho_next, rho) * _ratio(alpha, omega)
        direction -= omega * image
        direction *= beta
        direction += residual
        image = direction - move(direction)
        rho, alpha = rho_next, _ratio(rho_next, np.einsum("sn,sn->n", right, image))
        residual -= alpha * image
        turn = residual - move(residual)
        omega = _ratio(np.einsum("sn,sn->n", turn, residual), _square(turn))
        x += alpha * direction
        x += omega * residual
        residual -= omega * turn
        now = size(residual)
        better = now < least
        least = np.minimum(now, least)
        if better.all():
            best[:] = x
        else:
            best[:, better] = x[:, better]
        if not np.any(least > limit):
            break
    return best
