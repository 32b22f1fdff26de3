"""How good a policy is, at a known theta and over fresh posterior draws."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from .arrays import Array, as_float, as_key, in_float64, require_size
from .errors import InputError
from .gradients import Problem, alone, losses_on
from .losses import ExpectedCost, Loss, require_scalar
from .models import AbstractFamily
from .occupancies import Exact, Method
from .policies import Softmax, TabularPolicy, action_probabilities
from .posteriors import Posterior, WeightedDraws, equally_weighted
from .risks import CVaR, Expectation, Risk
from .solvers.checks import check_models, check_parts
from .solvers.judging import judgement, usual_draws
from .solvers.solution import risk_rows, truncation_text, with_error


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
        probabilities: `[M]` of the draws: equal, or those of the posterior's atoms.
        exact: whether the draws are the whole posterior; then there is no Monte-Carlo error.
        mean, mean_standard_error: posterior mean of the loss and its Monte-Carlo error.
        mean_interval: its 95 % confidence interval.
        risk, risk_standard_error: the risk asked for and its Monte-Carlo error.
        interval: its 95 % confidence interval; NaN where none can be had.
        weights: `[M]` the density xi* that attains the risk.
        truncation: mass of the occupancy a truncated method may leave out, 0 for an exact one.
    """

    losses: Float[Array, " M"]
    thetas: Float[Array, "M ..."]
    probabilities: Float[Array, " M"]
    exact: bool = eqx.field(static=True)
    mean: float
    mean_standard_error: float
    mean_interval: tuple[float, float]
    risk: float
    risk_standard_error: float
    interval: tuple[float, float]
    weights: Float[Array, " M"]
    truncation: float

    def quantile(self, levels: Any) -> np.ndarray:
        """Quantiles of the loss distribution, the value at risk of each level."""
        shares = np.asarray(self.probabilities)
        return np.quantile(np.asarray(self.losses), levels, weights=shares, method="inverted_cdf")

    @in_float64
    def assess(self, risk: Risk) -> tuple[float, float]:
        """Any other risk on the same draws: its value and standard error."""
        judged = judgement(risk, np.asarray(self.losses), self._draws())
        return judged.risk, judged.standard_error

    def _draws(self) -> WeightedDraws:
        return WeightedDraws(np.asarray(self.thetas), np.asarray(self.probabilities), self.exact)

    def rows(self) -> list[tuple[str, str]]:
        """The lines of the printed summary, as (label, text)."""
        low, middle, high = self.quantile([0.05, 0.5, 0.95])
        mean = f"{self.mean:.4f}" if self.exact else with_error(self.mean, self.mean_standard_error)
        cut = [("truncation", truncation_text(self.truncation))] if self.truncation else []
        return [
            ("mean loss", mean),
            *risk_rows(self.risk, self.risk_standard_error, self.interval, len(self.losses), self.exact),
            ("5 %, 50 %, 95 %", f"{low:.4f}, {middle:.4f}, {high:.4f}"),
            *cut,
        ]

    def __str__(self) -> str:
        width = max(len(label) for label, _ in self.rows())
        return "\n".join(f"{label:<{width}}  {text}" for label, text in self.rows())


@in_float64
def evaluate(
    policy: TabularPolicy | Array | Any,
    model: AbstractFamily,
    belief: Posterior,
    *,
    risk: Risk | None = None,
    loss: Loss | None = None,
    occupancy: Method | None = None,
    samples: int | None = None,
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
        samples: number of draws; when left out, 1000, or as many as put a hundred into the risk's tail where that is
            cheap. The atoms of a posterior that is a few of them are used whole, whatever is said here.
        seed: policies evaluated under one seed meet the same draws, so their differences are sharp.

    >>> import numpy as np, prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> result = pr.evaluate(np.full((4, 4), 0.25), lake, lake.prior, samples=200)
    >>> bool(result.risk > result.mean)
    True
    """
    risk = CVaR(0.9) if risk is None else risk
    problem = _problem(model, [belief], loss, risk, occupancy)
    probabilities = action_probabilities(policy, *model.support.shape[:2])
    draws = belief.as_atoms()
    if draws is None:
        count = usual_draws(problem, risk) if samples is None else samples
        draws = equally_weighted(belief.sample(as_key(seed), count), belief.behind)
    elif samples is not None:
        require_size("the number of draws", samples)
    require_scalar(problem.loss, probabilities, check_models(model, draws.thetas))
    losses = losses_on(alone(problem), probabilities[None], draws.thetas[None])[0]
    if not np.all(np.isfinite(losses)):
        worst = int(np.argmax(~np.isfinite(losses)))
        where = draws.thetas[worst]
        raise InputError(f"the loss is {losses[worst]} at the posterior draw theta = {where}; check the loss")
    mean, judged = judgement(Expectation(), losses, draws), judgement(risk, losses, draws)
    return Evaluation(
        losses=losses,
        thetas=draws.thetas,
        probabilities=draws.probabilities,
        exact=draws.exact,
        mean=mean.risk,
        mean_standard_error=mean.standard_error,
        mean_interval=mean.interval,
        risk=judged.risk,
        risk_standard_error=judged.standard_error,
        interval=judged.interval,
        weights=judged.weights,
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
