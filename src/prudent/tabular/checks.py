"""Refusals before anything is compiled: the models of a family at a few draws, the policy, and the loss."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float

from ..arrays import float64, in_float64, require_finite, to_numpy
from ..conformance import explained
from ..errors import InputError
from ..events import AbstractEventFamily, Engine, check_events
from ..kernels import Kernel
from ..losses import (
    ConvexLoss,
    ExpectedCost,
    LinearLoss,
    Loss,
    Scaled,
    Sum,
    UserLoss,
    as_loss,
    check_loss_at,
    require_finite_loss,
    require_scalar,
    split_models,
)
from ..models import MDP, AbstractFamily, Family, TabularFamily, TriedFamily, tables_at
from ..occupancies import Exact, Horizon, occupancy
from ..parameter_sets import projected
from ..policies import Parametrisation, TabularPolicy
from ..posteriors import AbstractTable, TriedRows
from ..records import tree_map

# Kernels looked at before the start.
CHECKED_BYTES = 16 * 2**20


def require_loss(loss: Any) -> ConvexLoss | UserLoss:
    """The loss, of a plain function a `UserLoss`; refuse what cannot be called."""
    if not callable(loss):
        raise InputError(f"loss must be a function (occupancy, mdp) -> number, got {loss!r}")
    return as_loss(loss)


def require_completable(loss: Any, occupancy: Horizon) -> None:
    """Refuse a loss, or an occupancy, for which no dearest state is found."""
    if not _is_made_of_costs(loss):
        raise InputError(
            "the loss of a TriedFamily must be linear in the occupancy, with costs that do not depend on "
            f"probabilities, got {type(loss).__name__}; use ExpectedCost(), CostTable(costs), Visits(states) "
            "or sums of these"
        )
    solver = occupancy.solver if isinstance(occupancy, Exact) else None
    if not isinstance(occupancy, Exact) or not (solver is None or solver.solves_from_anywhere):
        raise InputError(
            "a TriedFamily is evaluated over the infinite horizon, by elimination or iterations; leave occupancy= out"
        )


def _is_made_of_costs(loss: Any) -> bool:
    if isinstance(loss, Sum):
        return all(map(_is_made_of_costs, loss.terms))
    if isinstance(loss, Scaled):
        return _is_made_of_costs(loss.loss)
    # Tables that are made model by model may be made of a model's probabilities, and here rows are not whole.
    return isinstance(loss, LinearLoss) and type(loss).tables is not LinearLoss.tables


def require_same_support(model: TabularFamily | TriedFamily, belief: AbstractTable | TriedRows) -> None:
    """Refuse a belief along other successors than the model's."""
    ours, theirs = model.support, belief.support
    if ours is theirs:
        return
    same = ours.shape == theirs.shape and np.array_equal(ours.index(), theirs.index())
    # Of tried rows, what is not listed has not been seen.
    if not same or (isinstance(belief, TriedRows) and not np.array_equal(ours.allowed(), theirs.allowed())):
        raise InputError(
            f"the model and the posterior have different supports ({ours.shape} and {theirs.shape}, or other "
            "successors); build both from the same Support"
        )


def check_start(
    mdp: MDP, loss: Loss, policy: Parametrisation, method: Horizon, parameters: Any, differentiable: bool
) -> None:
    """The policy is a table, and the loss a number; at given parameters finite, with its derivative if asked."""
    if parameters is None:
        if not isinstance(loss, ExpectedCost):
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
    nearby = projected(policy.within, tree_map(lambda leaf: leaf + random.normal(size=np.shape(leaf)), initial))
    for where, parameters in (("its starting parameters", initial), ("parameters near its start", nearby)):
        with explained(lambda error, where=where: f"the policy could not be evaluated at {where}: {error}"):
            probabilities = policy.tables(tree_map(lambda leaf: np.asarray(leaf)[None], parameters))[0]
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
    states, start = family.support.shape[0], np.asarray(family.start)
    if start.shape != (states,) or start.dtype.kind != "f":
        raise InputError(
            f"start of {type(family).__name__} must be the probabilities of its {states} states, as floats, got "
            f"{start.dtype} of shape {start.shape}; for a state number s, use np.eye({states})[s]"
        )
    if isinstance(family, Family) and family.unknowns is not None and thetas.shape[1:] != (len(family.unknowns),):
        raise InputError(
            f"the family has {len(family.unknowns)} unknowns ({', '.join(family.unknowns)}), a draw the shape "
            f"{thetas.shape[1:]}; the belief must be about this family's theta"
        )
    if isinstance(family, TriedFamily):
        with _at_draw(thetas, 0):
            family.check(thetas[: max(1, CHECKED_BYTES // thetas[0].nbytes)])
        return family.at(thetas[0])
    thetas = thetas[: max(1, CHECKED_BYTES // (8 * int(np.prod(family.support.shape))))]
    with _at_draw(thetas, 0):
        probability, cost = tables_at(family, thetas)
    if probability.shape[1:] != family.support.shape:
        raise InputError(
            f"the family gives probabilities of shape {probability.shape[1:]} at a posterior draw of shape "
            f"{thetas.shape[1:]}, its support has {family.support.shape}; the belief must be about this family's theta"
        )
    models = {}
    for k in [*_suspects(family, probability, cost), 0]:
        with _at_draw(thetas, k):
            models[k] = MDP(Kernel(family.support, probability[k]), cost[k], family.start, family.discount)
    return models[0]


@contextlib.contextmanager
def _at_draw(thetas: Float[np.ndarray, "N ..."], k: int) -> Iterator[None]:
    """What is refused there is refused with its theta."""
    try:
        yield
    except InputError as error:
        raise InputError(f"at the posterior draw theta = {_short(thetas[k])}: {error}") from None
    except Exception as error:
        raise InputError(
            f"the family's functions fail on a posterior draw of shape {thetas.shape[1:]}: {error}; "
            "the belief must be about this family's theta"
        ) from error


def check_model(family: AbstractEventFamily, thetas: Float[np.ndarray, "N ..."]) -> None:
    """Refuse a family whose events are none at one of these draws, or whose costs are not finite at the first."""
    require_finite("a posterior draw of theta", thetas)
    with _at_draw(thetas, 0):
        events = [np.asarray(family.events(theta)) for theta in thetas]
        cost = np.asarray(family.cost(thetas[0]))
    for theta, table in zip(thetas, events, strict=True):
        check_events(table, f"at the posterior draw theta = {_short(theta)}")
    require_finite(f"at the posterior draw theta = {_short(thetas[0])}: cost", cost)


def _shapes_at(family: AbstractFamily, theta: np.ndarray) -> MDP:
    """Return a model that has the shapes of the one at theta, and no numbers."""
    from ..autodiff import jax

    def model(theta: Any) -> MDP:
        return MDP(Kernel(family.support, family.probability(theta)), family.cost(theta), family.start, family.discount)

    with float64():
        return to_numpy(jax.eval_shape(model, theta))


@in_float64
def check_large(
    family: AbstractEventFamily,
    loss: Loss,
    left_out: float,
    thetas: Float[np.ndarray, "N ..."],
    policy: Float[np.ndarray, "S A"] | None,
    differentiable: bool,
) -> None:
    """Refuse models that are none, and a loss that is no finite number, with its derivative, at a first policy."""
    check_model(family, thetas)
    states, actions, _ = family.support.shape
    own = as_loss(loss)
    if isinstance(own, UserLoss):
        first = _shapes_at(family, thetas[0]) if own.gradient is None else next(split_models(family.models(thetas[:1])))
        require_scalar(loss, np.ones((states, actions)), first)
    if policy is None:
        return
    losses, slope, _ = Engine(family, loss, left_out).derived(np.asarray(policy), thetas[:1], np.ones_like)
    require_finite_loss(losses[0], slope if differentiable else None)


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
