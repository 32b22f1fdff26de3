"""Refusals before anything is compiled: every part's type, and the models and loss at the start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from ..arrays import Array, as_float, require_finite, require_kind, to_numpy
from ..errors import InputError
from ..gradients import GradientEstimator, Problem, ZerothOrder
from ..kernels import Kernel
from ..losses import Loss, check_loss_at
from ..models import MDP, AbstractFamily, TabularFamily, models_at
from ..occupancies import Exact, Method, Truncated, occupancy
from ..policies import Parametrisation, TabularPolicy, action_table, projected
from ..posteriors import AbstractTable, Posterior, Sobol, WithCosts, WithinBox
from ..risks import Risk, check_envelope
from .optimiser import Optimiser

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
        while isinstance(belief, Sobol | WithinBox | WithCosts):
            belief = belief.posterior
        if isinstance(belief, AbstractTable) and isinstance(model, TabularFamily):
            _check_same_support(model, belief)
    for risk in risks:
        require_kind("risk", risk, Risk, "a risk such as CVaR(0.9)")


def check_method(
    policy: Parametrisation, gradient: GradientEstimator, settings: Optimiser, risks: Sequence[Risk]
) -> None:
    """The parts of a solver are of their kinds, and the risks exist on samples of its size."""
    require_kind("policy", policy, Parametrisation, "a parametrisation such as Softmax()")
    require_kind("gradient", gradient, GradientEstimator, "Adjoint(), Variational() or ZerothOrder()")
    require_kind("solver", settings, Optimiser, "SampleAverage(...) or BRPG(...)")
    settings.check(policy, gradient)
    for risk in risks:
        for draws in settings.sizes():
            check_envelope(risk, draws)


def _check_same_support(model: TabularFamily, belief: AbstractTable) -> None:
    ours, theirs = model.support, belief.support
    if ours is theirs:
        return
    if ours.shape != theirs.shape or not np.array_equal(ours.index(), theirs.index()):
        raise InputError(
            f"the model and the posterior have different supports ({ours.shape} and {theirs.shape}, or other "
            "successors); build both from the same Support"
        )


def check_start(
    problem: Problem, initial: Any, thetas: Float[np.ndarray, "N ..."], gradient: GradientEstimator
) -> None:
    """The models at a few draws of every run are proper MDPs, and the loss is a finite number at the first.

    So is its derivative, unless the estimator uses values alone.
    """
    family = problem.family
    mdp = check_models(family, thetas)
    policy = _check_policy(problem.policy, initial, family.support.shape[:2])
    visits = _first_occupancy(mdp, policy, problem.occupancy)
    check_loss_at(problem.loss, visits, mdp, differentiable=not isinstance(gradient, ZerothOrder))


def start_at(start: Any, initial: Any, policy: Parametrisation) -> Any:
    """Parameters given by the user, projected; refused unless finite and shaped like the policy's own."""
    start = jax.tree.map(as_float, start)
    same = jax.tree.structure(start) == jax.tree.structure(initial) and all(
        np.shape(ours) == np.shape(theirs)
        for ours, theirs in zip(jax.tree.leaves(start), jax.tree.leaves(initial), strict=True)
    )
    if not same:
        shapes = jax.tree.map(np.shape, initial, is_leaf=lambda leaf: isinstance(leaf, np.ndarray))
        raise InputError(
            f"start must be parameters of this policy, shaped {shapes}, got {jax.tree.map(np.shape, start)}; "
            "use solution.parameters of a run with the same model and policy"
        )
    for leaf in jax.tree.leaves(start):
        require_finite("start", np.asarray(leaf))
    return to_numpy(projected(policy.within, start))


def _check_policy(policy: Parametrisation, initial: Any, shape: tuple[int, ...]) -> TabularPolicy:
    """The policy at its start; refused unless its rows are distributions there and at parameters nearby."""
    random, tables = np.random.default_rng(0), []
    nearby = projected(policy.within, jax.tree.map(lambda leaf: leaf + random.normal(size=np.shape(leaf)), initial))
    for where, parameters in (("its starting parameters", initial), ("parameters near its start", nearby)):
        try:
            probabilities = np.asarray(action_table(policy, parameters))
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"the policy could not be evaluated at {where}: {error}") from error
        if probabilities.shape != shape:
            raise InputError(f"the policy gives shape {probabilities.shape}, the model needs {shape}")
        try:
            tables.append(TabularPolicy(probabilities))
        except InputError as error:
            raise InputError(
                f"at {where}, {error}; make its rows probabilities for all parameters, for example by a softmax"
            ) from None
    return tables[0]


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
