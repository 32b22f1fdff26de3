"""The plans that a policy is held against by default, in Python and in the report alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import numpy as np
from jaxtyping import Float
from scipy import special

from ..arrays import in_float64
from ..errors import InputError
from ..kernels import Support
from ..losses import ExpectedCost
from ..models import AbstractFamily
from ..posteriors import Dirichlet, Pooled, Posterior, WithCosts
from ..risks import CVaR, Expectation, Risk
from ..solvers import Optimiser, Solution, solve
from .judged_plans import Bench, Judging, plug_in, robust

# The robust plan's balls hold each row of the kernel with this probability, by the chi-square limit.
ROBUST_COVERAGE = 0.9


@in_float64
def rivals(
    model: AbstractFamily,
    belief: Posterior,
    *,
    radius: Any = None,
    solver: Optimiser | None = None,
    **judging: Unpack[Judging],
) -> dict[str, Solution]:
    """Four other ways to plan, each judged by the same risk on the fresh draws that `solve` is judged on.

    - `maximum-likelihood plan`: as if what was observed were the truth; unseen rows are at the posterior mean.
    - `posterior-mean plan`: as if the posterior mean were the truth.
    - `risk-neutral policy`: as if only the posterior mean of the loss counted, `solve` with `Expectation()`.
    - `robust plan`: as if each row of the kernel were the worst in a ball around the posterior mean's.

    One that cannot be made is left out: the belief knows no maximum likelihood, or no mean; the risk is the
    expectation itself; the loss is not expected cost, which is what the robust plan is for.

    Args:
        model: the family of MDPs.
        belief: posterior of theta.
        loss: expected discounted cost when left out.
        risk: what all are judged by; `CVaR(0.9)` when left out.
        radius: of the robust plan's balls, in nats: one number or `[S, A]`; when left out, of a `Dirichlet` one that
            holds each row with a probability of about 0.9, and no robust plan for any other belief.
        solver: of the risk-neutral policy; `SampleAverage()` when left out.
        occupancy: `Exact()` or `Truncated(horizon)`.
        evaluation: fresh posterior draws on which the risks are reported, as in `SampleAverage`.
        seed: of all draws; give that of `solve`.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SFF\\nHFG")
    >>> belief = lake.prior.update(lake.trials(n=5, truth=(0.3, 0.1), seed=0))
    >>> list(pr.rivals(lake, belief, solver=pr.SampleAverage(samples=32, largest=32, starts=2)))
    ['maximum-likelihood plan', 'posterior-mean plan', 'risk-neutral policy']
    """
    bench = Bench(model, belief, **judging)
    made = {
        "maximum-likelihood plan": _made(lambda: plug_in(model, belief, _likeliest(belief), **judging)),
        "posterior-mean plan": _made(lambda: plug_in(model, belief, **judging)),
    }
    if not _is_neutral(bench.risk):
        quiet: dict[str, Any] = {"solver": solver, "seed": bench.seed, "progress": False, "certify": False}
        made["risk-neutral policy"] = bench.verdict_on(solve(bench.objective, belief, risk=Expectation(), **quiet))
    radius = _radius(belief) if radius is None else radius
    if radius is not None and made["posterior-mean plan"] is not None and type(bench.objective.loss) is ExpectedCost:
        made["robust plan"] = robust(model, belief, radius, **judging)
    return {name: solution for name, solution in made.items() if solution is not None}


def _made(plan: Callable[[], Solution]) -> Solution | None:
    try:
        return plan()
    except InputError:
        return None


def _is_neutral(risk: Risk) -> bool:
    return isinstance(risk, Expectation) or (isinstance(risk, CVaR) and float(risk.level) == 0.0)


def _likeliest(belief: Any) -> Any:
    """Where the likelihood is largest; refused where the belief cannot tell, or nothing was observed."""
    if not hasattr(belief, "maximum_likelihood"):
        raise InputError(f"a {type(belief).__name__} has no maximum_likelihood()")
    if not isinstance(belief, Dirichlet | Pooled | WithCosts):
        return belief.maximum_likelihood()
    if not np.any(np.asarray(belief.counts) > 0):
        raise InputError("nothing was observed")
    return belief.maximum_likelihood(unseen=belief.mean())


def _radius(belief: Any) -> Float[np.ndarray, "S A"] | None:
    """Only of a Dirichlet it is known what each row's observations and prior count for."""
    belief = belief.posterior if isinstance(belief, WithCosts) else belief
    if not isinstance(belief, Dirichlet):
        return None
    return row_radius(belief.support, np.asarray(belief.prior + belief.counts).sum(axis=-1))


def row_radius(support: Support, observations: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S A"]:
    """Radius in nats of a ball that holds each row with `ROBUST_COVERAGE`, by the chi-square limit `quantile / (2 n)`.

    >>> import numpy as np, prudent as pr
    >>> row_radius(pr.Support.dense(2, 1), np.array([[10.0], [1000.0]])).round(5).tolist()
    [[0.13528], [0.00135]]
    """
    choices = support.allowed().sum(axis=-1)
    quantile = special.chdtri(np.maximum(choices - 1, 1), 1.0 - ROBUST_COVERAGE)
    return np.where(choices > 1, quantile / (2.0 * observations), 0.0)
