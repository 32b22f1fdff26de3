"""The rivals of `solve`: each plans in another way, and is judged on the very draws that `solve` is judged on.

A baseline's answer is a `Solution` like any other. Its risk is that of its policy over fresh draws of the belief,
whatever it was planned for, and under one seed these draws are those of `solve`: solutions of the same belief can
be compared draw by draw, `ours.losses - theirs.losses`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any, TypedDict, Unpack

import numpy as np
from jaxtyping import Float
from scipy import special

from .. import engine
from ..arrays import as_float, in_float64, require_kind, require_size
from ..errors import InputError
from ..evaluation import USUAL_DRAWS, check_question, judge, usual_draws
from ..kernels import Support
from ..losses import ExpectedCost, Loss, as_convex
from ..models import MDP, AbstractFamily, TriedFamily
from ..occupancies import Horizon
from ..planning import plan, plan_convex, plan_of
from ..policies import TabularPolicy
from ..posteriors import Dirichlet, Point, Pooled, Posterior, WithCosts
from ..risks import CVaR, Expectation, Risk, check_envelope
from ..seeds import Seed, as_seed
from ..solvers import BRPG, History, Optimiser, Solution, SolveRequest, Status, fresh_draws, solve
from ..tabular import TabularObjective, linear_cost
from .nested_planner import nested_plan
from .robust_planner import robust_plan


class JudgedOn(TypedDict, total=False):
    """What the policy of a rival is judged on; `Bench` has the defaults."""

    loss: Loss | None
    occupancy: Horizon | None
    evaluation: int | None
    seed: Seed


class Judging(JudgedOn, total=False):
    """What it is judged on, and by which risk."""

    risk: Risk | None


@in_float64
def plug_in(
    model: AbstractFamily,
    belief: Posterior,
    theta: Any = None,
    *,
    planner: BRPG | None = None,
    **judging: Unpack[Judging],
) -> Solution:
    """Plan as if theta were known, `min_pi F(lambda, P_theta)`, and judge the policy under the belief.

    Of a `TriedFamily` it is the best policy against the dearest state that unseen shares may lead to at that theta.
    A linear loss is planned by `plan`, any other convex one by `plan_convex`, whose certificate is in the
    solution's `plan`; the status is `UNCERTIFIED` if the certificate is not within its tolerance.

    Args:
        model: the family of MDPs.
        belief: posterior of theta.
        theta: what to take for known, such as `belief.maximum_likelihood()`; the posterior mean when left out.
        loss: `(occupancy, mdp) -> scalar`, convex in the occupancy; expected discounted cost when left out.
        risk: what the policy is judged by, not planned for; `CVaR(0.9)` when left out.
        planner: gradient steps in the place of exact planning, as `solve` makes them; at one theta all draws are
            alike, so that one is made an iteration, whatever `planner.samples` says.
        occupancy: `Exact()` or `Truncated(horizon)`, for gradient steps and for the judgement.
        evaluation: fresh posterior draws on which the risk is reported, as in `SampleAverage`.
        seed: of these draws; give that of `solve`.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SFF\\nHFG")
    >>> belief = lake.prior.update(lake.trials(n=5, truth=(0.3, 0.1), seed=0))
    >>> rival = pr.plug_in(lake, belief, belief.maximum_likelihood())
    >>> rival.status.name, len(rival.losses)
    ('PLANNED', 1000)
    >>> pr.plug_in(lake, belief, planner=pr.BRPG(iterations=20)).status.name
    'ITERATION_LIMIT'
    """
    bench = Bench(model, belief, **judging)
    theta, mdp = bench.known(theta)
    if planner is not None:
        require_kind("planner", planner, BRPG, "BRPG(...), or left out for exact planning")
        # Two draws to report on: of one there is no standard error, by which a diverged run is told.
        single = dataclasses.replace(planner, samples=1, evaluation=2)
        quiet: dict[str, Any] = {"solver": single, "seed": bench.seed, "progress": False, "certify": False}
        return bench.verdict_on(solve(bench.objective, Point(theta), risk=Expectation(), **quiet))
    family = bench.objective.family
    if isinstance(family, TriedFamily):
        models = family.models(theta[None])
        found = engine.plan(models, as_convex(bench.objective.loss).cost_tables(models))
        exact = plan_of(found, float(family.discount), family.support)
        return bench.verdict(exact.policy, Status.PLANNED, exact.iterations, plan=exact)
    cost = linear_cost(bench.objective.loss, mdp)
    if cost is None:
        best = plan_convex(mdp, bench.objective.loss)
        status = Status.PLANNED if best.status.ok else Status.UNCERTIFIED
        return bench.verdict(best.policy, status, best.iterations, plan=best)
    exact = plan(dataclasses.replace(mdp, cost=cost))
    return bench.verdict(exact.policy, Status.PLANNED, exact.iterations, plan=exact)


@in_float64
def robust(
    model: AbstractFamily,
    belief: Posterior,
    radius: Any,
    theta: Any = None,
    **judging: Unpack[Judging],
) -> Solution:
    """The best policy against the worst kernel in KL balls around the one at theta, by `robust_plan`.

    It plans for expected discounted cost. Radius 0 is `plug_in` at the same theta, up to ties between actions.

    Args:
        model: the family of MDPs.
        belief: posterior of theta; the plan knows only its mean, or theta.
        radius: of the balls, in nats: one number or `[S, A]`.
        theta: where the nominal kernel is; the posterior mean when left out.
        loss: what the policy is judged by, not planned for; expected discounted cost when left out.
        risk: the same; `CVaR(0.9)` when left out.
        occupancy: `Exact()` or `Truncated(horizon)`, for the judgement.
        evaluation: fresh posterior draws on which the risk is reported, as in `SampleAverage`.
        seed: of these draws; give that of `solve`.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SFF\\nHFG")
    >>> rival = pr.robust(lake, lake.prior, radius=0.1, theta=(0.3, 0.5))
    >>> rival.status.name, bool(lake.start @ rival.plan.values > lake.start @ pr.plan(lake.at((0.3, 0.5))).values)
    ('PLANNED', True)
    """
    bench = Bench(model, belief, **judging)
    best = robust_plan(bench.known(theta)[1], radius)
    status = Status.PLANNED if best.converged else Status.UNCERTIFIED
    return bench.verdict(best.policy, status, best.iterations, plan=best)


@in_float64
def nested(
    model: AbstractFamily,
    belief: Posterior,
    risk: Risk,
    horizon: int,
    *,
    samples: int = 1000,
    static_risk: Risk | None = None,
    **judged_on: Unpack[JudgedOn],
) -> Solution:
    """The policy of the first stage of `nested_plan`, used at every stage: the risk is taken again at each.

    It plans for expected discounted cost, on posterior draws that are not those it is judged on.

    Args:
        model: the family of MDPs.
        belief: posterior of theta.
        risk: taken over the draws at every stage, for every pair.
        horizon: stages; the policy is used for ever, so take a few times `1 / (1 - discount)`.
        samples: posterior draws of the plan.
        loss: what the policy is judged by, not planned for; expected discounted cost when left out.
        static_risk: the risk of the loss that is reported, as `solve` minimises it; `risk` itself when left out.
        occupancy: `Exact()` or `Truncated(horizon)`, for the judgement.
        evaluation: fresh posterior draws on which the risk is reported, as in `SampleAverage`.
        seed: of all draws; give that of `solve`.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SFF\\nHFG")
    >>> rival = pr.nested(lake, lake.prior, pr.CVaR(0.9), horizon=50, samples=100)
    >>> rival.status.name, rival.plan.values.shape
    ('PLANNED', (50, 6))
    """
    require_kind("risk", risk, Risk, "a risk such as CVaR(0.9)")
    bench = Bench(model, belief, risk=risk if static_risk is None else static_risk, **judged_on)
    best = nested_plan(model, belief, risk, horizon, samples=samples, seed=bench.seed)
    return bench.verdict(best.policy, Status.PLANNED, len(best.actions), plan=best)


class Bench:
    """The judgement common to all baselines: the parts, checked, and the fresh draws of the belief."""

    def __init__(
        self,
        model: AbstractFamily,
        belief: Posterior,
        *,
        loss: Loss | None = None,
        risk: Risk | None = None,
        occupancy: Horizon | None = None,
        evaluation: int | None = None,
        seed: Seed = 0,
    ):
        self.clock, self.seed = time.perf_counter(), seed
        self.belief = belief
        self.risk = risk = CVaR(0.9) if risk is None else risk
        require_kind("model", model, AbstractFamily, "a family of MDPs, made by Family(...) or TabularFamily(...)")
        self.objective: TabularObjective = model.objective(loss=loss, occupancy=occupancy)
        check_question(self.objective, [belief], [risk])
        if evaluation is not None:
            require_size("evaluation, the number of fresh draws,", evaluation)
        check_envelope(risk, evaluation or USUAL_DRAWS)
        count = evaluation or usual_draws(self.objective, risk)
        self.draws = fresh_draws(belief, as_seed(seed), count)
        self.objective.check(self.draws.thetas[:4])

    def known(self, theta: Any) -> tuple[np.ndarray, MDP]:
        """Theta, the posterior mean when None, and the model there."""
        shape = self.draws.thetas.shape[1:]
        name = "theta"
        if theta is None:
            mean = getattr(self.belief, "mean", None)
            if mean is None:
                raise InputError(
                    f"a {type(self.belief).__name__} has no mean() to plan at; give theta=, for example "
                    "belief.sample(0, 10_000).mean(axis=0)"
                )
            theta, name = mean(), "the posterior mean"
        theta = np.asarray(as_float(theta, name))
        if theta.shape != shape:
            raise InputError(f"{name} must have the shape {shape} of the belief's draws, got {theta.shape}")
        try:
            return theta, self.objective.family.at(theta)
        except InputError as error:
            text = " ".join(np.array2string(theta, threshold=6, precision=4).split())
            raise InputError(f"there is no model at {name} = {text}: {error}") from None

    def verdict(
        self,
        policy: TabularPolicy,
        status: Status,
        iterations: int,
        parameters: Any = None,
        history: History | None = None,
        plan: Any = None,
    ) -> Solution:
        """The solution that the policy makes."""
        judged = judge(self.objective, self.risk, np.asarray(policy.probabilities), self.draws)
        return Solution(
            status=status if judged.finite() else Status.NON_FINITE,
            policy=policy,
            evaluation=judged,
            history=History(*np.empty((3, 0))) if history is None else history,
            iterations=iterations,
            seconds=time.perf_counter() - self.clock,
            parameters=policy.probabilities if parameters is None else parameters,
            checkpoint=None,
            plan=plan,
            asked=SolveRequest(self.objective, self.belief, self.risk, as_seed(self.seed)),
        )

    def verdict_on(self, run: Solution) -> Solution:
        """The policy of a run of `solve` for another risk or belief, judged as a rival."""
        verdict = self.verdict(run.policy, run.status, run.iterations, run.parameters, run.history)
        return dataclasses.replace(verdict, seconds=run.seconds)


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
    if not (isinstance(bench.risk, Expectation) or (isinstance(bench.risk, CVaR) and float(bench.risk.level) == 0.0)):
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
