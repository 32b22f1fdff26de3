"""The main job on the built-in lake: five observations, three levels of caution, and the plug-in plan."""

from __future__ import annotations

import time

import equinox as eqx
import numpy as np

from ..baselines import plan
from ..envs import FrozenLake, frozen_lake
from ..evaluation import Evaluation, evaluate, loss_at
from ..policies import TabularPolicy
from ..posteriors import Beta
from ..risks import CVaR
from ..solvers import solve

TRUTH = (0.3, 0.02)
OBSERVATIONS = 5
LEVELS = (0.0, 0.5, 0.9)
REPORTED_LEVEL = 0.9


class DemoRow(eqx.Module):
    """One policy of the demo.

    Attributes:
        name: how it was found.
        policy: the policy.
        truth_loss: its loss under the true theta.
        evaluation: its losses over posterior draws common to all rows, with CVaR at `REPORTED_LEVEL`.
        seconds: time to find it.
    """

    name: str
    policy: TabularPolicy
    truth_loss: float
    evaluation: Evaluation
    seconds: float


def run_demo(seed: int = 0, samples: int = 5000) -> tuple[FrozenLake, Beta, list[DemoRow]]:
    """Solve the lake at each level and by exact planning at the maximum-likelihood theta."""
    lake = frozen_lake()
    belief = lake.prior.update(lake.trials(OBSERVATIONS, TRUTH, seed))
    found: list[tuple[str, TabularPolicy, float]] = []
    for level in LEVELS:
        solution = solve(lake, belief, risk=CVaR(level), seed=seed)
        found.append((f"least CVaR {level:g}", solution.policy, solution.seconds))
    clock = time.perf_counter()
    plug_in = plan(lake.at(belief.maximum_likelihood())).policy
    found.append(("plug-in plan", plug_in, time.perf_counter() - clock))
    rows = [
        DemoRow(
            name=name,
            policy=policy,
            truth_loss=float(loss_at(policy, lake, TRUTH)),
            evaluation=evaluate(policy, lake, belief, risk=CVaR(REPORTED_LEVEL), samples=samples),
            seconds=seconds,
        )
        for name, policy, seconds in found
    ]
    return lake, belief, rows


def marks(row: DemoRow) -> dict[str, float]:
    """What the figure marks in a row's panel."""
    return {"mean": row.evaluation.mean, f"CVaR {REPORTED_LEVEL:g}": row.evaluation.risk}


def summary(belief: Beta) -> str:
    """The data in words."""
    (slips, moves), (escapes, tries) = ((int(counts[0]), int(counts.sum())) for counts in np.asarray(belief.counts))
    return f"{slips} of {moves} moves slipped, {escapes} of {tries} tries escaped"
