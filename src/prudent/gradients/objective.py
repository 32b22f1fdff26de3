"""The objective `G(alpha) = rho_theta(C(alpha, theta))` on a posterior sample."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..arrays import Array
from ..kernels import Support
from ..losses import Loss, loss_batch
from ..models import AbstractFamily, models_at
from ..occupancies import Elimination, Exact, Method, batch_axis, measure
from ..policies import Parametrisation
from ..risks import Risk, risk_value


class Problem(eqx.Module):
    """What is minimised: everything of `rho_theta(F(lambda, P_theta))` but the belief about theta.

    In a batch of G problems the arrays inside `risk` carry a leading axis G; the rest is shared. It is None where
    only losses are wanted.
    """

    family: AbstractFamily
    loss: Loss
    risk: Risk | Any
    policy: Parametrisation
    occupancy: Method


class Objective(NamedTuple):
    """G objectives on R draws each: the risk, the losses and the weights xi* behind it."""

    value: Float[Array, " G"]
    losses: Float[Array, "G R"]
    weights: Float[Array, "G R"]


def arrange(thetas: Float[Array, "G R ..."], problem: Problem) -> np.ndarray:
    """Draws as the compiled functions want them: one batch of G x R, along the axis where models keep theirs.

    Done once on the host, so that no kernel is ever moved around by the compiled program.
    """
    flat = np.asarray(thetas).reshape(-1, *thetas.shape[2:])
    if batch_axis(problem.occupancy, problem.family.support) == 0:
        return flat
    return np.ascontiguousarray(np.moveaxis(flat, 0, -1))


class Batch(NamedTuple):
    """N = G x R models under the policies of their groups, all with the batch along `axis`."""

    occupancies: Array
    probability: Array
    cost: Array
    axis: int

    def losses(self, loss: Loss, family: AbstractFamily) -> Float[Array, " N"]:
        """The loss of each model."""
        return loss_batch(loss, family, self.occupancies, self.probability, self.cost, self.axis)


def occupancies_of(problem: Problem, probabilities: Float[Array, "G S A"], thetas: Array) -> Batch:
    """The occupancies of all G x R models in one batch, at arranged draws."""
    family = problem.family
    axis = batch_axis(problem.occupancy, family.support)
    draws = thetas.shape[axis] // probabilities.shape[0]
    probability, cost = models_at(family, thetas, axis)
    policy = jnp.repeat(probabilities if axis == 0 else jnp.moveaxis(probabilities, 0, -1), draws, axis=axis)
    occupancies = measure(problem.occupancy, family.support, probability, policy, family.start, family.discount)
    return Batch(occupancies, probability, cost, axis)


def losses_of(problem: Problem, probabilities: Float[Array, "G S A"], thetas: Array) -> Float[Array, "G R"]:
    """`C(alpha_g, theta_gr)`: all G x R models in one batch, at arranged draws."""
    batch = occupancies_of(problem, probabilities, thetas)
    return batch.losses(problem.loss, problem.family).reshape(probabilities.shape[0], -1)


def objective(problem: Problem, parameters: Any, thetas: Array, shares: Float[Array, "G R"]) -> Objective:
    """The G objectives at parameters with leading axis G, on arranged draws with these probabilities."""
    probabilities = jax.vmap(problem.policy.probabilities)(parameters)
    losses = losses_of(problem, probabilities, thetas)
    value, weights = assess(problem.risk, losses, shares)
    return Objective(value, losses, weights)


_losses_of = eqx.filter_jit(losses_of)

# Working memory for a chunk of models when a long sample is evaluated: in cache for the direct solver.
CHUNK_BYTES = {True: 10 * 2**20, False: 128 * 2**20}


def is_direct(method: Method) -> bool:
    """Whether models are factorised."""
    return isinstance(method, Exact) and isinstance(method.solver, Elimination)


def model_bytes(method: Method, support: Support) -> int:
    """Size of one model's largest array: its kernel, or the matrix that is factorised."""
    states, actions, successors = support.shape
    return 8 * states * max(actions * successors, states if is_direct(method) else 1)


def losses_on(problem: Problem, probabilities: Float[Array, "G S A"], thetas: Float[Array, "G M ..."]) -> np.ndarray:
    """`losses_of` for long samples, `[G, M]`: in chunks of constant shape, so memory stays bounded."""
    groups, draws = thetas.shape[:2]
    size = groups * model_bytes(problem.occupancy, problem.family.support)
    chunk = max(1, min(draws, CHUNK_BYTES[is_direct(problem.occupancy)] // size))
    losses = np.empty((groups, draws))
    for first in range(0, draws, chunk):
        # The last chunk starts early enough to be full: a shorter one would compile anew.
        begin = max(0, min(first, draws - chunk))
        losses[:, begin : begin + chunk] = _losses_of(
            problem, probabilities, arrange(thetas[:, begin : begin + chunk], problem)
        )
    return losses


def equal_shares(groups: int, draws: int) -> Float[np.ndarray, "G R"]:
    """The probabilities of draws that count alike."""
    return np.full((groups, draws), 1.0 / draws)


def assess(
    risk: Risk, losses: Float[Array, "G R"], shares: Float[Array, "G R"]
) -> tuple[Float[Array, " G"], Float[Array, "G R"]]:
    """Risk and xi* of each row of weighted losses, under a risk whose arrays have a leading axis G."""
    return jax.vmap(risk_value)(risk, losses, jnp.asarray(shares))
