"""The frontier of a limit: what each level of it costs, down to where no policy keeps it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays import require_finite, require_size
from ..errors import InputError
from ..evaluation import judged
from ..objectives import losses_on, objective_of
from ..posteriors import Posterior
from ..records import Record, changed
from ..risks import Risk
from ..seeds import Seed, as_seed
from ..solvers import Limit, Solution, checked_limits, level_shown, limit_answer, solve
from .frontier import in_table


class LimitPoint(Record):
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


class LimitFrontier(Record):
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
    seed: Seed = 0,
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
    asked |= {"solver": solver, "seed": as_seed(seed)}
    objective = objective_of(model, limit.loss, policy, occupancy)

    def at(level: float) -> Limit:
        return changed(limit, at_most=np.asarray(level))

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
        return f"{found}: there is nothing between them to vary (levels of your own: at_most= in Python)"
    return (
        f"{found}, which draws like these would show to be below {begin:.6g}: they cannot tell the two apart; solve "
        "with more draws (solver.evaluation in the problem file, evaluation= of the solver in Python), or in Python "
        "name the levels with at_most="
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
