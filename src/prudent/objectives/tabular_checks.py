"""Refusals before anything is compiled: the models of a family at a few draws, the policy, and the loss."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from ..arrays import require_finite
from ..errors import InputError
from ..kernels import Kernel
from ..losses import ExpectedCost, Loss, check_loss_at, require_scalar
from ..models import MDP, AbstractFamily, TabularFamily, tables_at
from ..occupancies import Method, occupancy
from ..parameter_sets import projected
from ..policies import Parametrisation, TabularPolicy
from ..posteriors import AbstractTable

# Kernels looked at before the start.
CHECKED_BYTES = 16 * 2**20


def require_loss(loss: Any) -> Loss:
    """Refuse what cannot be called."""
    if not callable(loss):
        raise InputError(f"loss must be a function (occupancy, mdp) -> number, got {loss!r}")
    return loss


def require_same_support(model: TabularFamily, belief: AbstractTable) -> None:
    """Refuse a belief along other successors than the model's."""
    ours, theirs = model.support, belief.support
    if ours is theirs:
        return
    if ours.shape != theirs.shape or not np.array_equal(ours.index(), theirs.index()):
        raise InputError(
            f"the model and the posterior have different supports ({ours.shape} and {theirs.shape}, or other "
            "successors); build both from the same Support"
        )


def check_start(
    mdp: MDP, loss: Loss, policy: Parametrisation, method: Method, parameters: Any, differentiable: bool
) -> None:
    """The policy is a table, and the loss a number; at given parameters finite, with its derivative if asked."""
    if parameters is None:
        require_scalar(loss, np.ones(mdp.cost.shape), mdp)
        return
    table = check_policy(policy, parameters, mdp.cost.shape)
    first = occupancy(mdp, table, None if method.horizon is None else method)
    # Costs are finite; so the expected cost is, too, unless it is too large, and nothing has to be compiled.
    if not (isinstance(loss, ExpectedCost) and np.isfinite((first * mdp.cost).sum())):
        check_loss_at(loss, first, mdp, differentiable=differentiable)


def check_policy(policy: Parametrisation, initial: Any, shape: tuple[int, ...]) -> TabularPolicy:
    """The policy at its start; refused unless its rows are distributions there and at parameters nearby."""
    random, tables = np.random.default_rng(0), []
    nearby = projected(policy.within, jax.tree.map(lambda leaf: leaf + random.normal(size=np.shape(leaf)), initial))
    for where, parameters in (("its starting parameters", initial), ("parameters near its start", nearby)):
        try:
            probabilities = policy.tables(jax.tree.map(lambda leaf: np.asarray(leaf)[None], parameters))[0]
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
        probability, cost = tables_at(family, thetas)
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
    models = {}
    for k in [*_suspects(family, probability, cost), 0]:
        try:
            models[k] = MDP(Kernel(family.support, probability[k]), cost[k], family.start, family.discount)
        except InputError as error:
            raise InputError(f"at the posterior draw theta = {_short(thetas[k])}: {error}") from None
    return models[0]


def _suspects(family: AbstractFamily, probability: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Which models need a closer look: all that are refused are among them."""
    sound = np.isfinite(probability) & (probability >= 0)
    if family.support.listed is not None:
        sound &= np.asarray(family.support.listed) | (probability == 0)
    # Sums in another order may differ in their last digits.
    whole = np.abs(probability.sum(axis=-1) - 1.0) <= 0.99e-8
    rows = (sound.all(axis=-1) & whole, np.isfinite(cost))
    return np.flatnonzero(~np.all([part.reshape(len(cost), -1).all(axis=1) for part in rows], axis=0))


def _short(theta: np.ndarray) -> str:
    return " ".join(np.array2string(np.asarray(theta), threshold=6, precision=4).split())
