"""Refusals before anything is compiled: every part's type, and the models and loss at the start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ..arrays import require_distribution, require_finite
from ..errors import InputError
from ..gradients import Adjoint, Problem
from ..losses import Loss, check_loss_at
from ..models import MDP, AbstractFamily, TabularFamily
from ..occupancies import Exact, Truncated, occupancy
from ..policies import Parametrisation, TabularPolicy, action_table
from ..posteriors import Dirichlet, Posterior
from ..risks import Risk
from .brpg import BRPG

# Up to here the first occupancy is found by NumPy, which needs no compilation.
LARGEST_NUMPY_SOLVE = 1000


def check_parts(
    model: AbstractFamily,
    beliefs: Sequence[Posterior],
    risks: Sequence[Risk],
    loss: Loss,
    policy: Any,
    gradient: Any,
    settings: Any,
    method: Any,
) -> None:
    """Each part is of its kind, and the belief is about this model's theta."""
    if not isinstance(model, AbstractFamily):
        raise InputError(
            f"model must be a Family, got {type(model).__name__}; Family(...) or TabularFamily(...) makes one"
        )
    if not callable(loss):
        raise InputError(f"loss must be a function (occupancy, mdp) -> number, got {loss!r}")
    expected = (
        ("policy", policy, Parametrisation, "Softmax()"),
        ("gradient", gradient, Adjoint, "Adjoint()"),
        ("solver", settings, BRPG, "BRPG()"),
        ("occupancy", method, Exact | Truncated, "Exact() or Truncated(horizon)"),
        *(("belief", belief, Posterior, "a posterior such as family.prior.update(log)") for belief in beliefs),
        *(("risk", risk, Risk, "a risk such as CVaR(0.9)") for risk in risks),
    )
    for name, value, kind, example in expected:
        if not isinstance(value, kind):
            raise InputError(f"{name} must be {example}, got {value!r}")
    for risk in risks:
        if any(np.ndim(leaf) for leaf in jax.tree.leaves(risk)):
            raise InputError(f"{type(risk).__name__} holds an array; give one risk a level, as a list to solve_many")
    for belief in beliefs:
        if isinstance(belief, Dirichlet) and isinstance(model, TabularFamily):
            _check_same_support(model, belief)


def _check_same_support(model: TabularFamily, belief: Dirichlet) -> None:
    ours, theirs = model.support, belief.support
    if ours is theirs:
        return
    if ours.shape != theirs.shape or not np.array_equal(ours.index(), theirs.index()):
        raise InputError(
            f"the model and the posterior have different supports ({ours.shape} and {theirs.shape}, or other "
            "successors); build both from the same Support"
        )


def check_start(problem: Problem, initial: Any, thetas: np.ndarray) -> None:
    """The models at a few draws `[I, n, ...]` are proper MDPs, and the loss is a finite number there."""
    family = problem.family
    for belief, few in enumerate(thetas):
        for theta in few[: max(1, 8 // len(thetas))]:
            require_finite(f"a posterior draw of theta (belief {belief})", np.asarray(theta))
    mdp = _checked_model(family, thetas[0, 0])
    for theta in thetas[0, 1:4]:
        _checked_model(family, theta)
    probabilities = np.asarray(action_table(problem.policy, initial))
    if probabilities.shape != family.support.shape[:2]:
        raise InputError(f"the policy gives shape {probabilities.shape}, the model needs {family.support.shape[:2]}")
    table = TabularPolicy(probabilities)
    check_loss_at(problem.loss, _first_occupancy(mdp, table), mdp)


def _checked_model(family: AbstractFamily, theta: np.ndarray) -> MDP:
    try:
        mdp = family.at(theta)
    except InputError as error:
        raise InputError(f"at the posterior draw theta = {_short(theta)}: {error}") from None
    except (TypeError, ValueError, IndexError) as error:
        raise InputError(
            f"the family's functions fail on a posterior draw of shape {np.shape(theta)}: {error}; "
            "the belief must be about this family's theta"
        ) from error
    require_finite("cost", np.asarray(mdp.cost))
    require_distribution("transition probability", np.asarray(mdp.kernel.probability), ("state", "action"))
    return mdp


def _short(theta: np.ndarray) -> str:
    return np.array2string(np.asarray(theta), threshold=6, precision=4)


def _first_occupancy(mdp: MDP, policy: TabularPolicy) -> np.ndarray:
    states = mdp.kernel.support.states
    if states > LARGEST_NUMPY_SOLVE:
        return occupancy(mdp, policy)
    probabilities = np.asarray(policy.probabilities)
    chain = np.zeros((states, states))
    weights = np.asarray(mdp.kernel.probability) * probabilities[:, :, None]
    np.add.at(chain, (np.arange(states)[:, None, None], mdp.kernel.support.index()), weights)
    visits = np.linalg.solve(np.eye(states) - np.asarray(mdp.discount) * chain.T, np.asarray(mdp.start))
    return visits[:, None] * probabilities
