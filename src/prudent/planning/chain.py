"""One model under one policy, for models too large for a matrix: visits and Q by iterative solves."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Float

from ..arrays import Array
from ..kernels import pull_batch
from ..models import MDP
from ..occupancies import Krylov


def chain_solver(mdp: MDP) -> Krylov:
    """The iterative solver for one model."""
    # Tighter than elsewhere: near the optimum the loss changes by less than the usual residual.
    return Krylov(dense=mdp.kernel.support.is_dense, residual=1e-13)


class Chain(eqx.Module):
    """The model under one policy: its occupancy, and the Q of any cost table."""

    solver: Krylov
    mdp: MDP
    policy: Float[Array, "S A"]
    prepared: Any

    @staticmethod
    def of(solver: Krylov, mdp: MDP, policy: Array) -> Chain:
        kernel, axis = mdp.kernel, solver.axis()
        probability, table = jnp.expand_dims(kernel.probability, axis), jnp.expand_dims(policy, axis)
        prepared = solver.prepare(kernel.support, probability, table, jnp.asarray(mdp.discount))
        return Chain(solver, mdp, policy, prepared)

    def visits(self) -> Float[Array, " S"]:
        axis = self.solver.axis()
        visits = self.solver.forward(self.prepared, jnp.expand_dims(jnp.asarray(self.mdp.start), axis)).squeeze(axis)
        # An iterative solve may leave states that are hardly visited a rounding below zero.
        return jnp.maximum(visits, 0.0)

    def quality(self, cost: Float[Array, "S A"]) -> Float[Array, "S A"]:
        axis, kernel = self.solver.axis(), self.mdp.kernel
        values = self.solver.adjoint(self.prepared, jnp.expand_dims((self.policy * cost).sum(axis=1), axis))
        onward = pull_batch(kernel.support, jnp.asarray(kernel.probability), values.squeeze(axis))
        return cost + self.mdp.discount * onward


@eqx.filter_jit
def chain_visits(solver: Krylov, mdp: MDP, policy: Array) -> Array:
    """`[S]` discounted visits under a policy."""
    return Chain.of(solver, mdp, policy).visits()
