"""Nested Bayesian-risk dynamic programming: the risk is taken again at every stage."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from ..arrays import Array, in_float64, require_size
from ..engine import ModelBatch, next_values
from ..errors import InputError
from ..evaluation import check_question
from ..models import AbstractFamily, TriedFamily
from ..objectives import objective_of
from ..policies import TabularPolicy
from ..posteriors import Posterior
from ..records import Record
from ..risks import Risk, assess_sample, check_envelope
from ..seeds import Seed
from ..tabular import check_models


class NestedPlan(Record):
    """The best policy for a risk that is taken again at every stage.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> plan = pr.nested_plan(lake, lake.prior, pr.CVaR(0.5), horizon=20, samples=50)
    >>> plan.actions.shape, plan.policy.probabilities.shape
    ((20, 4), (4, 4))

    Attributes:
        policy: the first stage's, to be used at every stage when the horizon is long.
        actions: `[T, S]` the best action of each stage.
        values: `[T, S]` nested risk of the cost from each stage on.
        quality: `[S, A]` the same for an action of the first stage.
        thetas: `[M, ...]` the posterior draws.
    """

    policy: TabularPolicy
    actions: Int[Array, "T S"]
    values: Float[Array, "T S"]
    quality: Float[Array, "S A"]
    thetas: Float[Array, "M ..."]


@in_float64
def nested_plan(
    family: AbstractFamily,
    belief: Posterior,
    risk: Risk,
    horizon: int,
    *,
    samples: int = 1000,
    seed: Seed = 0,
) -> NestedPlan:
    """Dynamic programming for the nested risk of expected discounted cost over a finite horizon.

    `V_T = 0`, `Q_t(s, a) = rho_theta( c_theta(s, a) + discount sum_s' P_theta(s' | s, a) V_{t+1}(s') )` and
    `V_t = min_a Q_t`, over posterior draws theta. The posterior is held: the same draws serve every stage, and
    what would be learned on the way is left out of account.

    `solve` minimises the static risk, `rho_theta` of the *total* cost, for one theta that stays. Nesting takes
    the risk as if theta were drawn again at every stage, the worst part of it each time: stages cannot make up
    for one another, and caution compounds. With a known kernel the nested risk of a policy is never below its
    static risk. For the expectation it is the cost in the model with the mean kernel and mean cost.

    Below, theta is the cost of a first step and `1 - theta` that of the second: together close to 1 whatever
    theta is, so that the static CVaR prefers them to a sure 1.2. Nesting adds the two risks up.

    >>> import jax.numpy as jnp, numpy as np, prudent as pr
    >>> ends = pr.Support.lists([[[1], [2]], [[2], [2]], [[2], [2]]])
    >>> def cost(theta):  # first step or the sure cost; second step; the end
    ...     return jnp.stack([theta[0], 1.2, 1 - theta[0], 1 - theta[0], 0.0, 0.0]).reshape(3, 2)
    >>> steps = pr.Family(ends, np.ones((3, 2, 1)), cost, start=0, discount=0.99)
    >>> belief, risk = pr.Beta.uniform(1), pr.CVaR(0.9)
    >>> plan = pr.nested_plan(steps, belief, risk, horizon=2)
    >>> plan.quality[0].round(1).tolist()
    [1.9, 1.2]
    >>> hedge, sure = (pr.TabularPolicy.deterministic([a, 0, 0], 2) for a in (0, 1))
    >>> [round(float(pr.evaluate(policy, steps, belief, risk=risk).risk), 1) for policy in (hedge, sure)]
    [1.0, 1.2]

    Args:
        family: the models; those of all draws are held, `S A B samples` numbers.
        belief: posterior of theta.
        risk: taken over the draws at every stage, for every pair.
        horizon: stages T.
        samples: posterior draws.
        seed: of the draws, a whole number.
    """
    check_question(objective_of(family), [belief], [risk])
    if isinstance(family, TriedFamily):
        raise InputError(
            "a TriedFamily has no nested plan, because its rows are not whole; use solve(...) or plug_in(...)"
        )
    horizon = require_size("horizon, the number of stages,", horizon)
    check_envelope(risk, require_size("the number of draws", samples))
    thetas = np.asarray(belief.sample(seed, samples))
    check_models(family, thetas)
    actions, values, quality = _backward(family.models(thetas), risk, horizon)
    support = family.support
    policy = TabularPolicy.deterministic(np.asarray(actions)[0], support.actions).named(support.labels)
    return NestedPlan(policy, actions, values, quality[0], thetas)


def _backward(models: ModelBatch, risk: Risk, horizon: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Actions, values and quality of all stages, the first stage first."""
    values, stages = np.zeros((len(models.successor), models.size)), []
    weights = np.full(models.size, 1.0 / models.size)
    for _ in range(horizon):
        outcomes = models.cost + models.discount * next_values(models, values)
        quality = assess_sample(risk, outcomes, weights)[0]
        best = quality.min(axis=1)
        stages.append((quality.argmin(axis=1), best, quality))
        values = np.repeat(best[:, None], models.size, axis=1)
    chosen, least, quality = (np.stack(part[::-1]) for part in zip(*stages, strict=True))
    return chosen, least, quality
