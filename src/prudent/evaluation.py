"""How good a policy is, at a known theta and over fresh posterior draws."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from .arrays import Array, as_float, as_key, in_float64
from .errors import InputError
from .gradients import Problem, losses_on
from .losses import ExpectedCost, Loss, require_scalar
from .models import AbstractFamily
from .occupancies import Exact, Method
from .policies import Softmax, TabularPolicy, action_probabilities
from .posteriors import Posterior
from .risks import CVaR, Expectation, Risk
from .solvers.checks import check_models, check_parts
from .solvers.solution import truncation_text, with_error


class Evaluation(eqx.Module):
    """A policy's loss over posterior draws.

    >>> import numpy as np, prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> result = pr.evaluate(np.full((4, 4), 0.25), lake, pr.Point([0.3, 0.1]), samples=10)
    >>> result.quantile([0.5, 0.95]).round(3).tolist()
    [22.523, 22.523]

    Attributes:
        losses: `[M]` loss at each draw.
        thetas: `[M, ...]` the draws.
        mean, mean_standard_error: posterior mean of the loss and its Monte-Carlo error.
        risk, risk_standard_error: the risk asked for and its Monte-Carlo error.
        weights: `[M]` the density xi* that attains the risk.
        truncation: mass of the occupancy a truncated method may leave out, 0 for an exact one.
    """

    losses: Float[Array, " M"]
    thetas: Float[Array, "M ..."]
    mean: float
    mean_standard_error: float
    risk: float
    risk_standard_error: float
    weights: Float[Array, " M"]
    truncation: float

    def quantile(self, levels: Any) -> np.ndarray:
        """Quantiles of the loss distribution, the value at risk of each level."""
        return np.quantile(np.asarray(self.losses), levels, method="inverted_cdf")

    def assess(self, risk: Risk) -> tuple[float, float]:
        """Any other risk on the same draws: its value and standard error."""
        return float(risk(self.losses).value), float(risk.standard_error(self.losses))

    def __str__(self) -> str:
        low, middle, high = self.quantile([0.05, 0.5, 0.95])
        return (
            f"mean loss  {with_error(self.mean, self.mean_standard_error)}\n"
            f"risk       {with_error(self.risk, self.risk_standard_error)}\n"
            f"5 %, 50 %, 95 %  {low:.4f}, {middle:.4f}, {high:.4f}  ({len(self.losses)} draws)"
            + (f"\ntruncation  {truncation_text(self.truncation)}" if self.truncation else "")
        )


@in_float64
def evaluate(
    policy: TabularPolicy | Array | Any,
    model: AbstractFamily,
    belief: Posterior,
    *,
    risk: Risk | None = None,
    loss: Loss | None = None,
    occupancy: Method | None = None,
    samples: int = 1000,
    seed: int | jax.Array = 1,
) -> Evaluation:
    """The loss distribution of a policy over fresh posterior draws.

    Args:
        policy: a `TabularPolicy` or an array `[S, A]`; the user's own included.
        model: the family of MDPs.
        belief: posterior of theta.
        risk: `CVaR(0.9)` when left out.
        loss: expected discounted cost when left out.
        occupancy: `Exact()` or `Truncated(horizon)`.
        samples: number of draws.
        seed: policies evaluated under one seed meet the same draws, so their differences are sharp.

    >>> import numpy as np, prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> result = pr.evaluate(np.full((4, 4), 0.25), lake, lake.prior, samples=200)
    >>> bool(result.risk > result.mean)
    True
    """
    problem = _problem(model, [belief], loss, CVaR(0.9) if risk is None else risk, occupancy)
    probabilities = action_probabilities(policy, *model.support.shape[:2])
    thetas = belief.sample(as_key(seed), samples)
    require_scalar(problem.loss, probabilities, check_models(model, thetas))
    losses = losses_on(problem, probabilities[None], thetas[None])[0]
    if not np.all(np.isfinite(losses)):
        worst = int(np.argmax(~np.isfinite(losses)))
        raise InputError(f"the loss is {losses[worst]} at the posterior draw theta = {thetas[worst]}; check the loss")
    mean, risk_value = Expectation()(losses), problem.risk(losses)
    return Evaluation(
        losses=losses,
        thetas=thetas,
        mean=float(mean.value),
        mean_standard_error=float(Expectation().standard_error(losses)),
        risk=float(risk_value.value),
        risk_standard_error=float(problem.risk.standard_error(losses)),
        weights=np.asarray(risk_value.weights),
        truncation=problem.occupancy.error_bound(float(model.discount)),
    )


@in_float64
def loss_at(
    policies: Any,
    model: AbstractFamily,
    theta: Any,
    *,
    loss: Loss | None = None,
    occupancy: Method | None = None,
) -> Any:
    """The loss of a policy at one known theta, for example the truth.

    Args:
        policies: one policy, or a list of them (then an array comes back, from one compiled call).
        model: the family of MDPs.
        theta: the parameter.
        loss: expected discounted cost when left out.
        occupancy: `Exact()` or `Truncated(horizon)`.

    >>> import numpy as np, prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> round(float(pr.loss_at(np.full((4, 4), 0.25), lake, (0.3, 0.1))), 3)
    22.523
    """
    many = isinstance(policies, list | tuple)
    if many and not policies:
        raise InputError("loss_at needs at least one policy, got an empty list")
    problem = _problem(model, [], loss, Expectation(), occupancy)
    table = np.stack([action_probabilities(p, *model.support.shape[:2]) for p in (policies if many else [policies])])
    require_scalar(problem.loss, table[0], model.at(theta))
    thetas = np.broadcast_to(np.asarray(as_float(theta)), (len(table), 1, *np.shape(theta)))
    losses = losses_on(problem, table, thetas)[:, 0]
    return losses if many else losses[0]


def _problem(
    model: AbstractFamily, beliefs: list[Posterior], loss: Loss | None, risk: Risk, occupancy: Method | None
) -> Problem:
    loss = ExpectedCost() if loss is None else loss
    method = Exact() if occupancy is None else occupancy
    check_parts(model, beliefs, [risk], loss, method)
    return Problem(model, loss, risk, Softmax(), method.resolve(model.support))
