"""The frontier of mean loss against tail loss: what caution costs, and what it buys."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ..arrays import Array, in_float64, require_kind
from ..baselines import plug_in, robust
from ..errors import InputError
from ..evaluation import judged, usual_draws
from ..losses import Loss
from ..models import AbstractFamily
from ..objectives import Objective, losses_on
from ..occupancies import Horizon
from ..policies import Parametrisation
from ..posteriors import Posterior, WeightedDraws
from ..records import Record, field
from ..risks import CVaR, Expectation, Risk
from ..seeds import Seed, as_seed, child
from ..solvers import (
    Job,
    JobDraws,
    SampleAverage,
    Solution,
    certify,
    least_losses,
    solve,
    solve_many,
)

# Draws on which the policies of all risks compete for each risk.
COMPETITION = 2000


class FrontierPoint(Record):
    """One policy on the axes of a frontier, over draws common to all points.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> solver = pr.SampleAverage(samples=32, largest=32, starts=2)
    >>> curve = pr.frontier(lake, lake.prior, [pr.CVaR(0.0), pr.CVaR(0.9)], solver=solver)
    >>> [point.name for point in curve.points]
    ['CVaR(level=0)', 'CVaR(level=0.9)']

    Attributes:
        name: of the risk or rival.
        mean, mean_standard_error: posterior mean of the loss and its Monte-Carlo error.
        tail, tail_standard_error: the tail risk of the loss and its error.
        losses: `[M]` at each draw.
        solution: behind the point; None for the point that knows theta.
    """

    name: str = field(static=True)
    mean: float
    mean_standard_error: float
    tail: float
    tail_standard_error: float
    losses: Float[Array, " M"]
    solution: Solution | None


class Frontier(Record):
    """Mean loss against tail loss of the best policies for several risks, with rivals on the same axes.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> solver = pr.SampleAverage(samples=32, largest=32, starts=2)
    >>> curve = pr.frontier(lake, lake.prior, [pr.CVaR(0.0), pr.CVaR(0.9)], solver=solver)
    >>> print("\\n".join(line.split("  ")[0] for line in str(curve).splitlines()[1:]))
    CVaR(level=0)
    CVaR(level=0.9)
    plug-in
    robust
    theta known

    Attributes:
        points: one for each risk, in the order given.
        rivals: the plug-in and robust plans, and the bound of a policy that knows theta.
        tail: the risk on the tail axis.
    """

    points: tuple[FrontierPoint, ...]
    rivals: tuple[FrontierPoint, ...]
    tail: Risk

    def rows(self) -> list[tuple[str, ...]]:
        """The table: name, mean loss, tail loss, each with its error, and the gap of the risk's own certificate."""
        table: list[tuple[str, ...]] = [
            ("policy", "mean loss", "s.e.", risk_words(self.tail), "s.e.", "gap of its own risk")
        ]
        for point in (*self.points, *self.rivals):
            certificate = None if point.solution is None else point.solution.certificate
            gap = "" if certificate is None or certificate.gap is None else f"{certificate.gap:.4f}"
            numbers = (point.mean, point.mean_standard_error, point.tail, point.tail_standard_error)
            table.append((point.name, *(f"{number:.4f}" for number in numbers), gap))
        return table

    def __str__(self) -> str:
        return in_table(self.rows())


def in_table(rows: Sequence[tuple[str, ...]], left: int = 1) -> str:
    """Rows as lines, the first columns to the left and the others to the right."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    cells = ((f"{cell:{'<' if k < left else '>'}{widths[k]}}" for k, cell in enumerate(row)) for row in rows)
    return "\n".join("  ".join(row).rstrip() for row in cells)


def risk_words(risk: Risk) -> str:
    """A risk in a few words: its kind and its numbers."""
    numbers = [
        f"{field.name}={float(getattr(risk, field.name)):g}"
        for field in dataclasses.fields(risk)
        if isinstance(getattr(risk, field.name), int | float | np.ndarray) and np.ndim(getattr(risk, field.name)) == 0
    ]
    return f"{type(risk).__name__}({', '.join(numbers)})"


@in_float64
def frontier(
    model: AbstractFamily,
    belief: Posterior,
    risks: Sequence[Risk],
    *,
    tail: Risk | None = None,
    loss: Loss | None = None,
    policy: Parametrisation | None = None,
    solver: SampleAverage | None = None,
    occupancy: Horizon | None = None,
    radius: float | None = 0.05,
    seed: Seed = 0,
) -> Frontier:
    """The best policies for several risks, judged by their mean and their tail on the same draws.

    All risks are solved side by side. Then the policies of all risks compete for each: a risk for which another one's
    policy is better begins again there, and keeps the best. So where one risk is below another for every loss, as CVaR
    at a lower level is, its optimum on the draws of the competition is below, too.

    Args:
        model: the family of MDPs.
        belief: posterior of theta.
        risks: such as `[CVaR(b) for b in (0.0, 0.5, 0.9)]`.
        tail: the risk on the tail axis; `CVaR(0.9)` when left out.
        loss: expected discounted cost when left out.
        policy: tabular softmax when left out.
        solver: `SampleAverage()` when left out.
        occupancy: `Exact()` or `Truncated(horizon)`.
        radius: of the robust plan's Kullback-Leibler balls; None leaves it out.
        seed: of all draws.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> solver = pr.SampleAverage(samples=32, largest=32, starts=2)
    >>> curve = pr.frontier(lake, lake.prior, [pr.CVaR(0.0), pr.CVaR(0.9)], solver=solver)
    >>> curve.points[1].tail <= curve.points[0].tail + 0.1
    True
    """
    require_kind("risks", risks, Sequence, "a list of risks, such as [CVaR(b) for b in (0.0, 0.5, 0.9)]")
    if len(risks) == 0:
        raise InputError("frontier needs at least one risk, got an empty list")
    solver = SampleAverage() if solver is None else solver
    require_kind("solver", solver, SampleAverage, "SampleAverage(...)")
    tail = CVaR(0.9) if tail is None else tail
    require_kind("tail", tail, Risk, "a risk such as CVaR(0.9)")
    seed = as_seed(seed)
    parts: dict[str, Any] = {"loss": loss, "policy": policy, "occupancy": occupancy}
    require_kind("model", model, AbstractFamily, "a family of MDPs, whose plans the frontier is compared with")
    objective: Objective = model.objective(**parts)
    if solver.evaluation is None:
        most = max(usual_draws(objective, risk) for risk in [*risks, tail])
        solver = dataclasses.replace(solver, evaluation=most)
    solutions = solve_many(model, [belief], risks, solver=solver, seed=seed, **parts)[0]
    own = child(seed, 0)
    solutions = _competed(objective, model, belief, risks, solutions, solver, own, parts)
    known, draws = solutions[0], solutions[0].evaluation.draws
    points = tuple(
        _point(risk_words(risk), run.losses, tail, run, draws) for risk, run in zip(risks, solutions, strict=True)
    )
    judging: dict[str, Any] = {"loss": loss, "occupancy": occupancy, "evaluation": solver.evaluation, "seed": own}
    runs = {}
    if hasattr(belief, "mean"):
        # Rivals plan at the mean.
        runs["plug-in"] = plug_in(model, belief, **judging)
        if radius is not None:
            runs["robust"] = robust(model, belief, radius=radius, **judging)
    rivals = [_point(name, run.losses, tail, run, draws) for name, run in runs.items()]
    lows, _ = least_losses(objective, Expectation(), draws, np.asarray(known.policy.probabilities))
    if lows is not None and len(lows) == len(draws):
        rivals.append(_point("theta known", lows, tail, None, draws))
    return Frontier(points, tuple(rivals), tail)


def _competed(
    objective: Objective,
    model: AbstractFamily,
    belief: Posterior,
    risks: Sequence[Risk],
    solutions: list[Solution],
    solver: SampleAverage,
    seed: Seed,
    parts: dict[str, Any],
) -> list[Solution]:
    """For each risk the best policy of all, after a warm start where another risk's policy was better."""
    pool = list(solutions)
    draws = JobDraws([Job(belief, risks[0], seed, None)]).held_out(COMPETITION)[0]

    def losses(run: Solution) -> np.ndarray:
        return losses_on(objective, objective.point_from(run.policy)[None], draws.thetas)[0]

    def ahead(j: int) -> tuple[Solution, float]:
        """The best policy for a risk, and by how much it is better than the risk's own."""
        values = [float(risks[j](row, draws.probabilities).value) for row in scores]
        best = int(np.argmin(values))
        return pool[best], values[j] - values[best]

    scores = [losses(run) for run in pool]
    again = dataclasses.replace(solver, starts=1)
    for j, risk in enumerate(risks):
        best, better = ahead(j)
        if better > 1e-6 * float(np.ptp(scores[j])):
            pool.append(solve(model, belief, risk=risk, solver=again, seed=seed, start=best.parameters, **parts))
            scores.append(losses(pool[-1]))
    leaders = [ahead(j) for j in range(len(risks))]
    return [
        _under(objective, best, risk) if better > 0 else own
        for own, risk, (best, better) in zip(solutions, risks, leaders, strict=True)
    ]


def _under(objective: Objective, run: Solution, risk: Risk) -> Solution:
    """Another risk's solution, its risk and certificate restated for this one."""
    answer = run.evaluation.under(risk)
    certificate = certify(objective, objective.point_from(run.policy), answer, risk, None, float("nan"))
    return dataclasses.replace(run, evaluation=answer, certificate=certificate, checkpoint=None)


@in_float64
def _point(name: str, losses: Any, tail: Risk, solution: Solution | None, draws: WeightedDraws) -> FrontierPoint:
    losses = np.asarray(losses)
    mean, worst = (judged(risk, losses, draws) for risk in (Expectation(), tail))
    return FrontierPoint(
        name, mean.risk, mean.risk_standard_error, worst.risk, worst.risk_standard_error, losses, solution
    )
