"""Frontiers: of mean loss against tail loss, what caution costs and buys; of a limit, what each level of it costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from ..arrays import Array, as_key, in_float64, key_words, require_finite, require_kind, require_size
from ..baselines import plug_in, robust
from ..errors import InputError
from ..evaluation import judged, usual_draws
from ..losses import Loss
from ..models import AbstractFamily
from ..objectives import Objective, losses_on, objective_of
from ..occupancies import Method
from ..policies import Parametrisation
from ..posteriors import Posterior, WeightedDraws
from ..risks import CVaR, Expectation, Risk
from ..solvers import (
    Job,
    JobDraws,
    Limit,
    SampleAverage,
    Solution,
    certify,
    checked_limits,
    least_losses,
    level_shown,
    limit_answer,
    solve,
    solve_many,
)

# Draws on which the policies of all risks compete for each risk.
COMPETITION = 2000


class FrontierPoint(eqx.Module):
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

    name: str = eqx.field(static=True)
    mean: float
    mean_standard_error: float
    tail: float
    tail_standard_error: float
    losses: Float[Array, " M"]
    solution: Solution | None


class Frontier(eqx.Module):
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
    occupancy: Method | None = None,
    radius: float | None = 0.05,
    seed: int | jax.Array = 0,
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
    key = as_key(seed)
    parts: dict[str, Any] = {"loss": loss, "policy": policy, "occupancy": occupancy}
    objective: Objective = model.objective(**parts)
    if solver.evaluation is None:
        most = max(usual_draws(objective, risk) for risk in [*risks, tail])
        solver = dataclasses.replace(solver, evaluation=most)
    solutions = solve_many(model, [belief], risks, solver=solver, seed=key, **parts)[0]
    own = jax.random.fold_in(key, 0)
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
    key: jax.Array,
    parts: dict[str, Any],
) -> list[Solution]:
    """For each risk the best policy of all, after a warm start where another risk's policy was better."""
    pool = list(solutions)
    draws = JobDraws([Job(belief, risks[0], key_words(key), None)]).held_out(COMPETITION)[0]

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
            pool.append(solve(model, belief, risk=risk, solver=again, seed=key, start=best.parameters, **parts))
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


class LimitPoint(eqx.Module):
    """The answer at one level of a limit.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> limit = pr.Limit(pr.Visits([2], per=1), at_most=0.1, risk=pr.Expectation())
    >>> curve = pr.limit_frontier(lake, pr.Point([0.3, 0.1]), [limit], points=2)
    >>> curve.points[0].at_most < curve.points[1].at_most
    True

    Attributes:
        at_most: the level.
        solution: there; of the last point, the one without the limit.
        answer: what the policy makes of the limit at this level, a `LimitAnswer`.
    """

    at_most: float
    solution: Solution
    answer: Any

    @property
    def kept(self) -> bool:
        """Whether the limit, and every other one, is shown to be kept."""
        return self.solution.status.ok


class LimitFrontier(eqx.Module):
    """What a limit costs, level by level, from the tightest to none.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> limit = pr.Limit(pr.Visits([2], per=1), at_most=0.1, risk=pr.Expectation(), name="hole")
    >>> curve = pr.limit_frontier(lake, pr.Point([0.3, 0.1]), [limit], points=3)
    >>> str(curve).splitlines()[0].split()[0]
    'at'

    Attributes:
        limit: that was varied.
        points: from the tightest level to the loosest.
        least: below this level no policy keeps the limit, proved on atoms and else with 95 % confidence; NaN where that
            is not known.
    """

    limit: Limit
    points: tuple[LimitPoint, ...]
    least: float

    def rows(self) -> list[tuple[str, ...]]:
        """The table: level, risk with its interval, what one unit more saves, the chance that it is kept, status."""
        table: list[tuple[str, ...]] = [("at most", "risk", "95 % interval", "one more saves", "kept with", "status")]
        for point in self.points:
            run, price = point.solution, point.answer.prices[0]
            low, high = run.interval
            known = "exact" if run.exact else f"{low:.4f} to {high:.4f}"
            table.append(
                (
                    f"{point.at_most:.4g}",
                    f"{run.risk:.4f}",
                    known,
                    f"{price:.4g}" if np.isfinite(price) else "",
                    f"{point.answer.kept:.2%}",
                    run.status.name.lower().replace("_", " "),
                )
            )
        return table

    def __str__(self) -> str:
        return in_table(self.rows(), left=0)


def limit_frontier(
    model: Any,
    belief: Posterior,
    subject_to: Sequence[Limit],
    *,
    which: int = 0,
    at_most: Sequence[float] | None = None,
    points: int = 7,
    risk: Risk | None = None,
    loss: Any = None,
    policy: Any = None,
    solver: Any = None,
    occupancy: Any = None,
    seed: int | jax.Array = 0,
) -> LimitFrontier:
    """The least risk found at each of several levels of one limit, the others as they are.

    Levels are solved from the loosest to the tightest, each from the answer to the one before. A policy that keeps a
    tighter level keeps a looser one, so where it is also cheaper the looser one is solved again from there.

    Args:
        model: the family of models.
        belief: posterior of theta.
        subject_to: the limits.
        which: the one that is varied.
        at_most: its levels; when left out, from the least that the policy with the least of it could be shown to keep
            to what the best policy without the limit could.
        points: how many levels, where none are given.
        risk: of the loss; `CVaR(0.9)` when left out.
        loss: expected discounted cost when left out.
        policy: tabular softmax when left out.
        solver: `SampleAverage()` when left out.
        occupancy: `Exact()` or `Truncated(horizon)`.
        seed: of all draws.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> limit = pr.Limit(pr.Visits([2], per=1), at_most=0.1, risk=pr.Expectation())
    >>> curve = pr.limit_frontier(lake, pr.Point([0.3, 0.1]), [limit], points=3)
    >>> risks = [point.solution.risk for point in curve.points]
    >>> risks == sorted(risks, reverse=True)
    True
    """
    limits = checked_limits(subject_to)
    require_size("points", points, 2)
    if not 0 <= which < len(limits):
        raise InputError(f"which is {which}; there are {len(limits)} limits, numbered from 0")
    limit = limits[which]
    asked: dict[str, Any] = {"risk": risk, "loss": loss, "policy": policy, "occupancy": occupancy}
    asked |= {"solver": solver, "seed": as_key(seed)}
    objective = objective_of(model, limit.loss, policy, occupancy)

    def at(level: float) -> Limit:
        return eqx.tree_at(lambda each: each.at_most, limit, np.asarray(level))

    def solved(level: float, start: Solution) -> Solution:
        others = (*limits[:which], at(level), *limits[which + 1 :])
        return solve(model, belief, subject_to=others, start=start.parameters, **asked)

    free = solve(model, belief, subject_to=(*limits[:which], *limits[which + 1 :]), **asked)
    reached = _answered(objective, limit, free)
    if at_most is None:
        tight = solve(model, belief, **asked | {"loss": limit.loss, "risk": limit.risk}, certify=False)
        least = _answered(objective, limit, tight)
        # Levels that draws can show kept, of the policy that has the least of it and of the one that knows of no limit.
        begin, end = (level_shown(limit, each.evaluation) for each in (least, reached))
        # Levels that differ by rounding are one.
        if not end - begin > 1e-9 * max(abs(begin), abs(end)):
            raise InputError(_nothing_between(limit.called(which), least.value, reached, begin))
        levels = begin + (end - begin) * np.linspace(0.02, 1.0, points)[:-1]
    else:
        levels = np.sort(np.atleast_1d(np.asarray(at_most, float)))
        require_finite("at_most", levels)
        if not levels.size:
            raise InputError("at_most has no levels; leave it out to have them chosen")
    runs = _solved(levels[::-1], solved, free)[::-1]
    found = [LimitPoint(float(level), run, run.limits[which]) for level, run in zip(levels, runs, strict=True)]
    if at_most is None:
        last = level_shown(limit, reached.evaluation)
        found.append(LimitPoint(last, free, _answered(objective, at(last), free)))
    return LimitFrontier(limit, tuple(found), found[0].answer.unreachable)


def _answered(objective: Any, limit: Limit, run: Solution) -> Any:
    """What a policy that was found without a limit makes of it, on the draws it was judged on."""
    draws = run.evaluation.draws
    losses = losses_on(objective, objective.point_from(run.policy)[None], draws.thetas)[0]
    # Where there is no limit a looser one saves nothing.
    return limit_answer(limit, judged(limit.risk, losses, draws), multiplier=0.0, prices=(0.0, float("nan")))


def _nothing_between(name: str, least: float, free: Any, begin: float) -> str:
    """Why there are no levels to choose: the two are the same, or these draws cannot tell them apart."""
    unit = f" {free.limit.unit}" if free.limit.unit else ""
    found = (
        f"{name}: the best policy found without the limit has {free.value:.6g}{unit}, the least of it that was found "
        f"is {least:.6g}"
    )
    if free.evaluation.exact or not free.value > least:
        return f"{found}: there is nothing between them to vary; name the levels with at_most="
    return (
        f"{found}, which draws like these would show to be below {begin:.6g}: they cannot tell the two apart; use more "
        "draws (evaluation=), or name the levels with at_most="
    )


def _solved(levels: np.ndarray, solved: Callable[[float, Solution], Solution], free: Solution) -> list[Solution]:
    """From the loosest level on, each from the one before; again where a tighter one is better."""
    runs: list[Solution] = []
    for level in levels:
        runs.append(solved(level, runs[-1] if runs else free))

    def better(run: Solution, other: Solution) -> bool:
        return run.status.ok and (not other.status.ok or run.risk < other.risk)

    for k in range(len(runs) - 1, 0, -1):
        if better(runs[k], runs[k - 1]):
            again = solved(levels[k - 1], runs[k])
            runs[k - 1] = again if better(again, runs[k - 1]) else runs[k - 1]
    return runs
