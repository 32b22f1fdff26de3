"""Limits on two problems: what they cost, and whether the truth keeps them, beside plans that trust their estimate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import prudent as pr
from prudent.autodiff import jnp
from prudent.plots import finish, pyplot

# Enough for a share of truths, at a fraction of what a single answer is worth.
SOLVER = pr.SampleAverage(samples=128, largest=512, starts=4, evaluation=2000)

# Of the example, whose answers are printed one by one.
CLOSER = pr.SampleAverage(samples=128, largest=1024, starts=4, evaluation=4000)

# Truths drawn from the belief, at which plans are judged.
JUDGED = 10_000

# Levels of a limit on its curve, the last of them none.
POINTS = 5


class Setting(NamedTuple):
    """A problem with something to limit.

    Attributes:
        name: of the problem.
        family: the models.
        prior: of theta.
        limited: the loss that is limited.
        limit_name, unit: what it is called, and what it is counted in.
        data: trials of each unknown, or demands, seen of a truth.
        truth: that the log of the example comes from.
        at_most: the limit of the example.
        states, actions: their names.
        trials: a log of so many, of a truth, by a seed.
    """

    name: str
    family: Any
    prior: Any
    limited: Any
    limit_name: str
    unit: str
    data: int
    truth: Any
    at_most: float
    states: Sequence[str]
    actions: Sequence[str]
    trials: Callable[[int, Any, int], Any]

    def limit(self, at_most: float, chance: float) -> pr.Limit:
        """The limit, asked for with a chance."""
        return pr.Limit(self.limited, at_most, chance=chance, name=self.limit_name, unit=self.unit)


class Outcome(NamedTuple):
    """One truth: the limit, and what each policy makes of it there.

    Attributes:
        at_most: the limit.
        promised: the posterior chance on fresh draws.
        status: how the solve ended.
        ours, plug_in: the limited loss at the truth, under each policy.
        cost, plug_in_cost: what they cost there.
    """

    at_most: float
    promised: float
    status: str
    ours: float
    plug_in: float
    cost: float
    plug_in_cost: float


# Ages of a machine in months, from which it may fail; what replacing costs, and a failure beside it.
AGES, REPLACE, FAILURE = 4, 3.0, 4.0


def maintenance() -> Setting:
    """Age replacement: theta is the chance to fail in a month at each age; failures a year are limited.

    States are ages, of which the last stays, and failed. Replaced before a month, or after a failure, it is new.
    """
    successors = [[[min(age + 1, AGES - 1), AGES], [1, AGES]] for age in range(AGES)] + [[[1, AGES], [1, AGES]]]
    own = np.array([[age, 0] for age in range(AGES)] + [[0, 0]])
    cost = np.array([[0.0, REPLACE]] * AGES + [[REPLACE + FAILURE] * 2])
    family = pr.Family(
        pr.Support.lists(successors),
        lambda theta: jnp.stack([1.0 - theta[own], theta[own]], axis=-1),
        lambda theta: jnp.asarray(cost),
        0,
        0.97,
    )
    prior = pr.Beta(np.array([[1.0, 24.0], [1.0, 12.0], [1.0, 5.0], [1.0, 2.0]]), np.zeros((AGES, 2)))

    def trials(n: int, truth: Any, seed: int) -> pr.Trials:
        failed = np.random.default_rng([seed, 1]).binomial(n, truth)
        return pr.Trials(np.stack([failed, n - failed], axis=1))

    return Setting(
        "maintenance",
        family,
        prior,
        pr.Visits([AGES], per=12),
        "failures",
        "failures a year",
        40,
        (0.03, 0.07, 0.15, 0.35),
        1.5,
        [f"{age} months" if age < AGES - 1 else f"{age} months or more" for age in range(AGES)] + ["failed"],
        ["run", "replace"],
        trials,
    )


class DemandLost(pr.LinearLoss):
    """Demand that is not met, in per cent of all demand: 100 less the fill rate.

    Attributes:
        lost: `[S, A, B]` units not met with each demand.
        per: 100.
    """

    lost: np.ndarray
    per: float

    def table(self, mdp: pr.MDP) -> Any:
        """The mean of what is lost, by the mean of what is asked for."""
        demand = mdp.kernel.probability
        asked = demand[0, 0] @ jnp.arange(demand.shape[-1])
        return (demand * self.lost).sum(axis=-1) / asked


def shop() -> Setting:
    """An inventory: theta is the law of demand; the share of demand that is not met is limited."""
    family = pr.envs.inventory(capacity=3, most_demand=4, shortage=4.0, truth=(0.3, 0.3, 0.2, 0.15, 0.05))
    most = family.most_demand
    stock = np.maximum(np.arange(family.support.states) - most, 0)
    filled = np.minimum(stock[:, None] + np.arange(family.support.actions), stock.max())
    lost = np.maximum(np.arange(most + 1) - filled[..., None], 0).astype(float)
    return Setting(
        "inventory",
        family,
        family.prior,
        DemandLost(lost=lost, per=100.0),
        "demand not met",
        "% of demand",
        20,
        family.truth,
        12.0,
        [str(left) if left >= 0 else f"0, {-left} lost" for left in range(-most, stock.max() + 1)],
        [f"order {units}" for units in range(family.support.actions)],
        lambda n, truth, seed: family.trials(n=n, truth=truth, seed=seed),
    )


SETTINGS = {"maintenance": maintenance, "inventory": shop}


class Judged(NamedTuple):
    """A plan at truths drawn from the belief: risk, mean cost and limited loss; how often it breaks the limit."""

    name: str
    risk: float
    mean: float
    limited: float
    broken: float
    low: float
    high: float


class Example(NamedTuple):
    """A limit on one log: the policy, the curve, and plans beside it at so many truths drawn from the belief."""

    solution: pr.Solution
    curve: Any
    plans: list[Judged]
    truths: int = JUDGED


def example(setting: Setting, chance: float = 0.95, seed: int = 1, points: int = POINTS) -> Example:
    """The limit of a setting on one log, its curve, and what plans that trust their estimate make of it."""
    belief = setting.prior.update(setting.trials(setting.data, setting.truth, seed))
    limit = setting.limit(setting.at_most, chance)
    run = pr.solve(setting.family, belief, subject_to=[limit], solver=CLOSER, seed=seed)
    curve = pr.limit_frontier(setting.family, belief, [limit], points=points, solver=CLOSER, seed=seed)
    plain = pr.plug_in(setting.family, belief, evaluation=2)
    mean = pr.Point(belief.mean())
    known = pr.Limit(setting.limited, setting.at_most, pr.Expectation(), name=setting.limit_name, unit=setting.unit)
    aware = pr.solve(setting.family, mean, risk=pr.Expectation(), subject_to=[known], seed=seed)
    plans = [("with the limit", run), ("plug-in", plain), ("plug-in with the limit", aware)]
    return Example(run, curve, [judged(name, plan.policy, setting, belief, seed + 1) for name, plan in plans])


def judged(name: str, policy: Any, setting: Setting, belief: Any, seed: int) -> Judged:
    """A policy at truths drawn from the belief, which no solve has seen."""
    cost = pr.evaluate(policy, setting.family, belief, samples=JUDGED, seed=seed)
    limited = pr.evaluate(policy, setting.family, belief, loss=setting.limited, samples=JUDGED, seed=seed)
    # Met to the last digits is kept.
    broken = float(np.mean(np.asarray(limited.losses) > setting.at_most * (1.0 + 1e-9)))
    return Judged(name, cost.risk, cost.mean, limited.mean, broken, *pr.share_interval(broken, JUDGED))


def outcomes(setting: Setting, truths: int, chance: float = 0.95, seed: int = 1) -> Iterator[Outcome]:
    """For each truth drawn from the prior: a log, a limit, and both policies judged at the truth.

    The limit lies halfway between the quantile of the loss under the plan that lowers it most and under the plan that
    does not know of it, both for the posterior mean; a log after which these are alike is drawn again.
    """
    found, number = 0, 0
    while found < truths:
        number += 1
        random = np.random.default_rng([seed, number])
        truth = np.asarray(setting.prior.draw(random, 1)[0])
        truth = truth[0, 0] if truth.ndim == 3 else truth
        belief = setting.prior.update(setting.trials(setting.data, truth, number))
        plain = pr.plug_in(setting.family, belief, evaluation=2)
        careful = pr.plug_in(setting.family, belief, loss=setting.limited, evaluation=2)
        ends = [
            pr.evaluate(plan.policy, setting.family, belief, loss=setting.limited, samples=2000).quantile(chance)
            for plan in (careful, plain)
        ]
        if not ends[1] > 1.05 * ends[0]:
            continue
        found += 1
        at_most = float(np.mean(ends))
        limit = setting.limit(at_most, chance)
        run = pr.solve(setting.family, belief, subject_to=[limit], solver=SOLVER, seed=number, certify=False)
        policies = [run.policy, plain.policy]
        ours, theirs = pr.loss_at(policies, setting.family, truth, loss=setting.limited)
        costs = pr.loss_at(policies, setting.family, truth)
        yield Outcome(
            at_most, run.limits[0].kept, run.status.name, float(ours), float(theirs), float(costs[0]), float(costs[1])
        )


def summary(found: list[Outcome], chance: float = 0.95) -> dict[str, float]:
    """Shares of truths in which a limit was kept, of those whose answer shows it kept, with what that costs."""
    shown = [each for each in found if pr.Status[each.status].ok]
    kept = float(np.mean([each.ours <= each.at_most for each in shown])) if shown else float("nan")
    low, high = pr.share_interval(kept, len(shown)) if shown else (float("nan"), float("nan"))
    return {
        "truths": len(found),
        "shown to be kept": len(shown),
        "asked for": chance,
        "promised, mean": float(np.mean([each.promised for each in shown])) if shown else float("nan"),
        "kept by the truth": kept,
        "from": low,
        "to": high,
        "kept by the plug-in plan": float(np.mean([each.plug_in <= each.at_most for each in shown])),
        "mean cost at the truth": float(np.mean([each.cost for each in shown])),
        "of the plug-in plan": float(np.mean([each.plug_in_cost for each in shown])),
    }


def limit_frontier_figure(curve: pr.LimitFrontier, path: str | Path) -> None:
    """What each level of a limit costs, with intervals; its price as the slope; what no policy keeps is shaded.

    Args:
        curve: from `limit_frontier(...)`.
        path: where to write a PNG.
    """
    figure, panel = pyplot().subplots(figsize=(7.0, 4.5), layout="constrained")
    good = [point for point in curve.points if point.kept]
    levels, risks = [point.at_most for point in good], [point.solution.risk for point in good]
    ends = [np.nan_to_num(np.asarray(point.solution.interval), nan=point.solution.risk) for point in good]
    bars = [[max(risk - low, 0.0) for risk, (low, _) in zip(risks, ends, strict=True)]]
    bars.append([max(high - risk, 0.0) for risk, (_, high) in zip(risks, ends, strict=True)])
    panel.errorbar(levels, risks, yerr=bars, color="#2e5c8a", marker="o", markersize=5, elinewidth=0.7, zorder=2)
    reach = 0.3 * float(np.median(np.diff(levels))) if len(levels) > 1 else 0.0
    for point in good:
        for side, price in zip((reach, -reach), point.answer.prices, strict=True):
            if np.isfinite(price) and price > 0:
                to = [point.solution.risk, point.solution.risk - side * price]
                panel.plot([point.at_most, point.at_most + side], to, color="0.4", linestyle=":", zorder=3)
    bad = [point for point in curve.points if not point.kept]
    panel.plot([p.at_most for p in bad], [p.solution.risk for p in bad], "x", color="#b03a2e", zorder=2)
    left = min(point.at_most for point in curve.points)
    left -= 0.15 * (max(point.at_most for point in curve.points) - left or 1.0)
    if curve.least > left:
        panel.axvspan(left, curve.least, color="#b03a2e", alpha=0.12, linewidth=0)
    panel.set_xlim(left=left)
    panel.set_xlabel(f"{curve.limit.name or 'limit'}, at most" + (f" ({curve.limit.unit})" if curve.limit.unit else ""))
    panel.set_ylabel("risk")
    panel.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"What a limit on {curve.limit.name or 'it'} costs", fontsize=11)
    finish(figure, path)
