"""Where a search begins: plans that would be right if theta were known, and a few points by chance."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..arrays import Array, as_float
from ..errors import InputError
from ..gradients import Problem
from ..losses import ConvexLoss, Loss
from ..models import MDP, AbstractFamily, models_at
from ..planning import plan, plan_convex, plan_many, robust_actions
from ..planning.exact import LARGEST_DIRECT
from ..policies import Direct, Softmax
from ..posteriors import Posterior
from .descent import project_all

# A plan is mixed with this much of the uniform policy, so that a search can leave it.
UNIFORM_SHARE = 0.1

# Spread of random starts in parameters, where a policy cannot be told to begin at a plan.
SPREAD = 0.3

# Pairs up to which convex losses are planned for: each plan takes Newton steps of this dimension.
LARGEST_CONVEX = 400


def first_parameters(
    problem: Problem, belief: Posterior, own: Any, count: int, thetas: np.ndarray, random: np.random.Generator
) -> Any:
    """`count` starts with a leading axis: the run's own, then plans, then random ones.

    Args:
        problem: what is minimised.
        belief: asked for its mean and its maximum likelihood, where it has them.
        own: the parameters the run was told to begin with.
        count: how many.
        thetas: `[N, ...]` posterior draws to plan at.
        random: for what plans leave open.
    """
    if count == 1:
        return jax.tree.map(lambda leaf: np.asarray(leaf)[None], own)
    if isinstance(problem.policy, Softmax | Direct):
        shape = np.shape(own)
        tables = _plans(problem, belief, thetas, count - 1)
        while len(tables) < count - 1:
            tables.append(random.dirichlet(np.ones(shape[1]), size=shape[0]))
        mixed = (1.0 - UNIFORM_SHARE) * np.stack(tables) + UNIFORM_SHARE / shape[1]
        others = np.log(mixed) if isinstance(problem.policy, Softmax) else mixed
        starts = np.concatenate([np.asarray(own)[None], others])
    else:
        starts = jax.tree.map(
            lambda leaf: np.asarray(leaf) + SPREAD * _but_first(random.normal(size=(count, *np.shape(leaf)))), own
        )
    return jax.tree.map(np.asarray, project_all(problem.policy.within, starts))


def _but_first(noise: np.ndarray) -> np.ndarray:
    noise[0] = 0.0
    return noise


def linear_cost(loss: Loss, mdp: MDP) -> Any:
    """The cost table of a loss that is linear in the occupancy; None for any other."""
    if not isinstance(loss, ConvexLoss) or jax.tree.leaves(jax.eval_shape(loss.image, mdp.cost, mdp)):
        return None
    return loss.linear(mdp)


def _plans(problem: Problem, belief: Posterior, thetas: np.ndarray, most: int) -> list[np.ndarray]:
    """Different tables: the plans of the mean, of the maximum likelihood, against all draws, of single draws."""
    family = problem.family
    centres = [model for model in (_model_at(family, theta) for theta in _centres(belief, thetas)) if model is not None]
    states, actions = family.support.shape[:2]
    first = family.at(thetas[0])
    if linear_cost(problem.loss, first) is None:
        if not isinstance(problem.loss, ConvexLoss) or states * actions > LARGEST_CONVEX:
            return []
        models = [*centres, first][: min(3, most)]
        return [np.asarray(plan_convex(mdp, problem.loss, tolerance=1e-2).policy.probabilities) for mdp in models]
    if states > LARGEST_DIRECT:
        plans = [plan(eqx.tree_at(lambda m: m.cost, mdp, linear_cost(problem.loss, mdp))) for mdp in centres[:1]]
        return [np.asarray(best.policy.probabilities) for best in plans]
    probability, cost = linear_models(family, problem.loss, thetas)
    discount = float(family.discount)
    chosen = [robust_actions(family.support, probability, cost, discount)]
    if centres:
        tables = np.stack([np.asarray(mdp.kernel.probability) for mdp in centres])
        costs = np.stack([np.asarray(linear_cost(problem.loss, mdp)) for mdp in centres])
        chosen += list(plan_many(family.support, tables, costs, discount).action)
    chosen += list(plan_many(family.support, probability, cost, discount).action)
    different = list({row.tobytes(): row for row in chosen}.values())[:most]
    return [np.eye(actions)[row] for row in different]


def _centres(belief: Posterior, thetas: np.ndarray) -> list[np.ndarray]:
    """The posterior mean, of the draws if need be, and the maximum likelihood if the belief knows it."""
    found = []
    for name in ("mean", "maximum_likelihood"):
        try:
            centre = np.asarray(as_float(getattr(belief, name)()))
        except (AttributeError, InputError):
            continue
        if centre.shape == thetas.shape[1:] and np.all(np.isfinite(centre)):
            found.append(centre)
    return found or [thetas.mean(axis=0)]


def _model_at(family: AbstractFamily, theta: np.ndarray) -> MDP | None:
    """The model, or None where the family has none: a mean need not be a possible theta."""
    try:
        return family.at(theta)
    except InputError:
        return None


def linear_models(family: AbstractFamily, loss: Loss, thetas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Kernels `[N, S, A, B]` and the cost tables `[N, S, A]` of a linear loss, at each theta."""
    probability, cost = _linear_models(family, loss, thetas)
    return np.asarray(probability), np.asarray(cost)


@eqx.filter_jit
def _linear_models(family: AbstractFamily, loss: Loss, thetas: Array) -> tuple[Array, Array]:
    from ..kernels import Kernel

    probability, cost = models_at(family, thetas, 0)

    def table(probability: Array, cost: Array) -> Array:
        return linear_cost(loss, MDP(Kernel(family.support, probability), cost, family.start, family.discount))

    return probability, jax.vmap(table)(probability, cost)
