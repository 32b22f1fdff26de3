"""Refusals before anything is compiled: every part's type, and the models and loss at the start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from ..arrays import Array, require_finite, require_kind
from ..errors import InputError
from ..gradients import Adjoint, Problem
from ..kernels import Kernel
from ..losses import Loss, check_loss_at
from ..models import MDP, AbstractFamily, TabularFamily, models_at
from ..occupancies import Exact, Method, Truncated, occupancy
from ..policies import Parametrisation, TabularPolicy, action_table
from ..posteriors import Dirichlet, Posterior
from ..risks import Risk
from .brpg import BRPG

# Kernels looked at before the start.
CHECKED_BYTES = 16 * 2**20

# Up to here the first occupancy is found by NumPy, which needs no compilation.
LARGEST_NUMPY_SOLVE = 1000


def check_parts(
    model: AbstractFamily, beliefs: Sequence[Posterior], risks: Sequence[Risk], loss: Loss, method: Method
) -> None:
    """What every question has: each part is of its kind, and the belief is about this model's theta."""
    require_kind("model", model, AbstractFamily, "a family of MDPs, made by Family(...) or TabularFamily(...)")
    if not callable(loss):
        raise InputError(f"loss must be a function (occupancy, mdp) -> number, got {loss!r}")
    require_kind("occupancy", method, Exact | Truncated, "Exact() or Truncated(horizon)")
    for belief in beliefs:
        require_kind("belief", belief, Posterior, "a posterior such as family.prior.update(log)")
        if isinstance(belief, Dirichlet) and isinstance(model, TabularFamily):
            _check_same_support(model, belief)
    for risk in risks:
        require_kind("risk", risk, Risk, "a risk such as CVaR(0.9)")
        if any(np.ndim(leaf) for leaf in jax.tree.leaves(risk)):
            raise InputError(f"{type(risk).__name__} holds an array; give one risk a level, as a list to solve_many")


def check_method(policy: Parametrisation, gradient: Adjoint, settings: BRPG) -> None:
    """The parts of a solver are of their kinds."""
    require_kind("policy", policy, Parametrisation, "a parametrisation such as Softmax()")
    require_kind("gradient", gradient, Adjoint, "Adjoint()")
    require_kind("solver", settings, BRPG, "BRPG(...)")


def _check_same_support(model: TabularFamily, belief: Dirichlet) -> None:
    ours, theirs = model.support, belief.support
    if ours is theirs:
        return
    if ours.shape != theirs.shape or not np.array_equal(ours.index(), theirs.index()):
        raise InputError(
            f"the model and the posterior have different supports ({ours.shape} and {theirs.shape}, or other "
            "successors); build both from the same Support"
        )


def check_start(problem: Problem, initial: Any, thetas: Float[np.ndarray, "G N ..."]) -> None:
    """The models at a few draws of every run are proper MDPs, and the loss is a finite number at the first."""
    family = problem.family
    mdp = check_models(family, thetas.reshape(-1, *thetas.shape[2:]))
    probabilities = np.asarray(action_table(problem.policy, initial))
    if probabilities.shape != family.support.shape[:2]:
        raise InputError(f"the policy gives shape {probabilities.shape}, the model needs {family.support.shape[:2]}")
    check_loss_at(problem.loss, _first_occupancy(mdp, TabularPolicy(probabilities), problem.occupancy), mdp)


def check_models(family: AbstractFamily, thetas: Float[np.ndarray, "N ..."]) -> MDP:
    """Refuse a family that is not an MDP at one of these draws (or as many of them as fit); the first model."""
    require_finite("a posterior draw of theta", thetas)
    thetas = thetas[: max(1, CHECKED_BYTES // (8 * int(np.prod(family.support.shape))))]
    try:
        probability, cost = (np.asarray(part) for part in _models_at(family, thetas))
    except InputError as error:
        raise InputError(f"at the posterior draw theta = {_short(thetas[0])}: {error}") from None
    except Exception as error:
        raise InputError(
            f"the family's functions fail on a posterior draw of shape {thetas.shape[1:]}: {error}; "
            "the belief must be about this family's theta"
        ) from error
    if probability.shape[1:] != family.support.shape:
        raise InputError(
            f"the family gives probabilities of shape {probability.shape[1:]} at a posterior draw of shape "
            f"{thetas.shape[1:]}, its support has {family.support.shape}; the belief must be about this family's theta"
        )
    for theta, table, costs in zip(thetas, probability, cost, strict=True):
        try:
            MDP(Kernel(family.support, table), costs, family.start, family.discount)
        except InputError as error:
            raise InputError(f"at the posterior draw theta = {_short(theta)}: {error}") from None
    return MDP(Kernel(family.support, probability[0]), cost[0], family.start, family.discount)


@eqx.filter_jit
def _models_at(family: AbstractFamily, thetas: Array) -> tuple[Array, Array]:
    return models_at(family, thetas, 0)


def _short(theta: np.ndarray) -> str:
    return " ".join(np.array2string(np.asarray(theta), threshold=6, precision=4).split())


def _first_occupancy(mdp: MDP, policy: TabularPolicy, method: Method) -> np.ndarray:
    states = mdp.kernel.support.states
    if isinstance(method, Truncated) or states > LARGEST_NUMPY_SOLVE:
        return occupancy(mdp, policy, method)
    probabilities = np.asarray(policy.probabilities)
    chain = np.zeros((states, states))
    weights = np.asarray(mdp.kernel.probability) * probabilities[:, :, None]
    np.add.at(chain, (np.arange(states)[:, None, None], mdp.kernel.support.index()), weights)
    visits = np.linalg.solve(np.eye(states) - np.asarray(mdp.discount) * chain.T, np.asarray(mdp.start))
    return visits[:, None] * probabilities
