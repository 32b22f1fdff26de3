"""Whether limits are kept by the truth: over truths drawn from the prior, beside the plan that trusts its estimate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import prudent as pr

# Enough for a share of truths, at a fraction of what a single answer is worth.
SOLVER = pr.SampleAverage(samples=128, largest=512, starts=4, evaluation=2000)


class Setting(NamedTuple):
    """A problem with something to limit.

    Attributes:
        name: of the problem.
        family: the models.
        limited: the loss that is limited.
        unit: of it.
        data: trials or demands seen of each truth.
    """

    name: str
    family: Any
    limited: Any
    unit: str
    data: int


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


def maintenance() -> Setting:
    """A machine whose breakdowns are limited: periods broken in 52."""
    family = pr.envs.machine_replacement(broken=3.0)
    return Setting("maintenance", family, pr.Visits([4], per=52), "periods broken a year", 10)


def shop() -> Setting:
    """An inventory whose stock-outs are limited: share of periods with unmet demand."""
    family = pr.envs.inventory(shortage=3.0)
    return Setting("inventory", family, pr.Visits(range(family.most_demand), per=1), "share of periods", 10)


SETTINGS = {"maintenance": maintenance, "inventory": shop}


def outcomes(setting: Setting, truths: int, chance: float = 0.95, seed: int = 0) -> Iterator[Outcome]:
    """For each truth drawn from the prior: a log, a limit, and both policies judged at the truth.

    The limit lies halfway between the quantile of the loss under the plan that lowers it most and under the plan that
    does not know of it, both for the posterior mean; a log after which these are alike is drawn again.
    """
    found, number = 0, 0
    while found < truths:
        number += 1
        random = np.random.default_rng([seed, number])
        truth = np.asarray(setting.family.prior.draw(random, 1)[0])
        truth = truth[0, 0] if truth.ndim == 3 else truth
        belief = setting.family.prior.update(setting.family.trials(n=setting.data, truth=truth, seed=number))
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
        limit = pr.Limit(setting.limited, at_most, chance=chance)
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
