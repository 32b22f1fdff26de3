"""Where a search begins: plans that would be right if theta were known, and a few points by chance."""

from __future__ import annotations

import itertools
import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from ..arrays import Array, as_float
from ..errors import InputError
from ..gradients import Problem, assessed, model_slopes
from ..losses import ConvexLoss, Loss
from ..models import MDP, AbstractFamily, models_at
from ..planning import plan, plan_many, robust_actions
from ..planning.convex import Search, searched
from ..planning.exact import LARGEST_DIRECT
from ..policies import LOWEST_LOGIT, Direct, Softmax
from ..posteriors import Posterior, WeightedDraws
from ..risks import Risk
from .descent import project_all
from .draws import Run

# A plan is mixed with this much of the uniform policy, where a step could not leave it or a loss has no slope there.
UNIFORM_SHARE = 0.1

# Starts that are left to chance, as a share of those that are not the run's own.
RANDOM_SHARE = 0.45

# So many deterministic policies are all tried.
FEW_POLICIES = 256

# Draws that are planned for.
PLANNED = 32

# Spread of random starts in parameters, where a policy cannot be told to begin at a plan.
SPREAD = 0.3

# Pairs up to which convex losses are planned for: each plan takes Newton steps of this dimension.
LARGEST_CONVEX = 400

# Accuracy of these plans, a share of the loss's spread, and their steps: they are where a search begins.
ROUGH, ROUGH_STEPS = 1e-2, 200


class Starts(NamedTuple):
    """Where a search begins.

    Attributes:
        parameters: with a leading axis.
        floor: about the risk if theta were told before acting; NaN where that would take too long to find. What a
            policy can gain is measured by it, so that tolerances do not depend on the level of the losses.
    """

    parameters: Any
    floor: float


def first_parameters(
    problem: Problem, run: Run, count: int, draws: WeightedDraws, pure: bool, random: np.random.Generator
) -> Starts:
    """The run's own start, then plans, then random ones; a start that was given, again.

    Args:
        problem: what is minimised.
        run: its own start, and its belief, asked for its mean and its maximum likelihood where it has them.
        count: how many.
        draws: to plan at.
        pure: whether plans may be starts as they are; else they are mixed with the uniform policy.
        random: for what plans leave open.
    """
    own = jax.tree.map(lambda leaf: np.asarray(leaf)[None], run.start)
    parts, floor = [own], float("nan")
    if count > 1:
        others, floor = _others(problem, run, count - 1, draws, pure, random)
        parts.append(others)
    parts += [own] if run.given else []
    return Starts(jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts), floor)


def _others(
    problem: Problem, run: Run, count: int, draws: WeightedDraws, pure: bool, random: np.random.Generator
) -> Starts:
    policy = problem.policy
    if not isinstance(policy, Softmax | Direct):
        starts = jax.tree.map(
            lambda leaf: np.asarray(leaf) + SPREAD * random.normal(size=(count, *np.shape(leaf))), run.start
        )
        return Starts(jax.tree.map(np.asarray, project_all(policy.within, starts)), float("nan"))
    shape = np.shape(run.start)
    tables, floor = _plans(problem, run, draws, count - int(RANDOM_SHARE * count))
    if not (pure and linear_cost(problem.loss, problem.family.at(draws.thetas[0])) is not None):
        tables = [(1.0 - UNIFORM_SHARE) * table + UNIFORM_SHARE / shape[1] for table in tables]
    while len(tables) < count:
        tables.append(random.dirichlet(np.ones(shape[1]), size=shape[0]))
    parameters = np.log(np.maximum(tables, np.exp(LOWEST_LOGIT))) if isinstance(policy, Softmax) else np.stack(tables)
    return Starts(np.asarray(project_all(policy.within, parameters)), floor)


def linear_cost(loss: Loss, mdp: MDP) -> Any:
    """The cost table of a loss that is linear in the occupancy; None for any other."""
    if not isinstance(loss, ConvexLoss) or jax.tree.leaves(jax.eval_shape(loss.image, mdp.cost, mdp)):
        return None
    return loss.linear(mdp)


def _plans(problem: Problem, run: Run, draws: WeightedDraws, most: int) -> tuple[list[np.ndarray], float]:
    """The best of different tables: plans of the mean, of the maximum likelihood, against all draws, of single draws.

    And the risk if each of these draws had its own plan, NaN where they are not planned for.
    """
    family, draws = problem.family, _heaviest(draws)
    thetas = draws.thetas
    centres = [
        model for model in (_model_at(family, theta) for theta in _centres(run.belief, draws)) if model is not None
    ]
    states, actions = family.support.shape[:2]
    first = family.at(thetas[0])
    if linear_cost(problem.loss, first) is None:
        if not isinstance(problem.loss, ConvexLoss) or states * actions > LARGEST_CONVEX:
            return [], float("nan")
        models = [*centres, first][: min(3, most)]
        searches = [Search(mdp, problem.loss, None, ROUGH) for mdp in models]
        plans = [searched(search, ROUGH_STEPS, time.perf_counter()) for search in searches]
        return [np.asarray(best.policy.probabilities) for best in plans], float("nan")
    if states > LARGEST_DIRECT:
        plans = [plan(eqx.tree_at(lambda m: m.cost, mdp, linear_cost(problem.loss, mdp))) for mdp in centres[:1]]
        return [np.asarray(best.policy.probabilities) for best in plans], float("nan")
    probability, cost = linear_models(family, problem.loss, thetas)
    discount = float(family.discount)
    chosen = [robust_actions(family.support, probability, cost, discount)]
    if centres:
        tables = np.stack([np.asarray(mdp.kernel.probability) for mdp in centres])
        costs = np.stack([np.asarray(linear_cost(problem.loss, mdp)) for mdp in centres])
        chosen += list(plan_many(family.support, tables, costs, discount).action)
    plans = plan_many(family.support, probability, cost, discount)
    chosen += list(plans.action)
    if actions**states <= FEW_POLICIES:
        chosen += [np.array(row) for row in itertools.product(range(actions), repeat=states)]
    different = {tuple(int(action) for action in row) for row in chosen}
    tables = np.eye(actions)[np.array(sorted(different))]
    best = list(tables[_order(problem, run.risk, tables, draws)[:most]])
    least = (plans.values @ np.asarray(family.start))[None]
    return best, float(assessed(run.risk, least, draws.probabilities)[0][0])


def _heaviest(draws: WeightedDraws) -> WeightedDraws:
    """As many of the draws as are planned for; of atoms, those of the largest probability."""
    if len(draws) <= PLANNED:
        return draws
    kept = np.sort(np.argsort(-draws.probabilities, kind="stable")[:PLANNED])
    share = draws.probabilities[kept]
    return WeightedDraws(draws.thetas[kept], share / share.sum(), False)


def _order(problem: Problem, risk: Risk, tables: np.ndarray, draws: WeightedDraws) -> np.ndarray:
    """Tables from the least risk on these draws to the largest."""
    which, place = np.divmod(np.arange(len(tables) * len(draws)), len(draws))
    losses = model_slopes(problem, tables, draws.thetas, which, place)[0].reshape(len(tables), -1)
    return np.argsort(assessed(risk, losses, draws.probabilities)[0], kind="stable")


def _centres(belief: Posterior, draws: WeightedDraws) -> list[np.ndarray]:
    """The posterior mean, of the draws if need be, and the maximum likelihood if the belief knows it."""
    found = []
    for name in ("mean", "maximum_likelihood"):
        try:
            centre = np.asarray(as_float(getattr(belief, name)()))
        except (AttributeError, InputError):
            continue
        if centre.shape == draws.thetas.shape[1:] and np.all(np.isfinite(centre)):
            found.append(centre)
    return found or [np.tensordot(draws.probabilities, draws.thetas, axes=1)]


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
