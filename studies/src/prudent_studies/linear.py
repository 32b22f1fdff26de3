"""The three-state system of Dean et al. from little data: certainty equivalence against the Bayesian-risk gain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from prudent import (
    CutOff,
    CVaR,
    Draws,
    LinearFamily,
    LinearGaussianPolicy,
    SampleAverage,
    VectorLog,
    evaluate,
    linear_plan,
    loss_at,
    robust_gain,
    solve,
)
from prudent.arrays import in_float64

from .theory import errors_on, interpolated, norms_on, rate_records

# Usual level of the CVaR, share of the posterior that is kept, and standard deviation of the prior's entries.
LEVEL, KEPT, SPREAD = 0.9, 0.95, 10.0

# Transitions of the logs, in walks of so many steps with actions of variance 1.
SIZES, STEPS = (24, 60, 240), 6

SOLVER = SampleAverage(samples=256, largest=1024, starts=4)

# Of the rates: transitions of the log, the gain at which the gradient is estimated and runs begin, the length of their
# steps, which is below two over the curvature there, and draws behind the gradient that is taken for exact.
RATES_SIZE, RATES_GAIN, RATES_STEP, RATES_REFERENCE = 240, -0.5, 1e-3, 2**17


class LinearRun(NamedTuple):
    """One log.

    Attributes:
        risks: of certainty equivalence, of the cautious gain in closed form, and ours, on the same fresh draws.
        bound: below the risk of every policy on these draws; NaN where our risk is infinite.
        unstable: shares of the fresh draws at which their closed loops are unstable.
        truths: their costs at the truth.
        seconds: of the solution.
        status: of the solution.
    """

    risks: tuple[float, float, float]
    bound: float
    unstable: tuple[float, float, float]
    truths: tuple[float, float, float]
    seconds: float
    status: str


def dean() -> tuple[LinearFamily, np.ndarray]:
    """The family, and the truth."""
    family = LinearFamily(np.eye(3), np.eye(3), noise=np.eye(3), discount=0.98)
    return family, family.theta(1.01 * np.eye(3) + 0.01 * (np.eye(3, k=1) + np.eye(3, k=-1)), np.eye(3))


def logged(size: int, seed: int) -> VectorLog:
    """A log of so many transitions at the truth."""
    family, truth = dean()
    explore = LinearGaussianPolicy(np.zeros((3, 3)), covariance=np.eye(3))
    return family.simulate(truth, explore, steps=STEPS, rollouts=size // STEPS, seed=seed)


def run_one(size: int, seed: int, level: float = LEVEL) -> LinearRun:
    """A log of so many transitions, three gains."""
    family, truth = dean()
    log = logged(size, seed)
    belief = CutOff(family.prior(spread=SPREAD).update(log), credible=KEPT)
    solution = solve(family, belief, risk=CVaR(level), solver=SOLVER, seed=seed, progress=False)
    policies = [linear_plan(family, log.least_squares()).policy, robust_gain(family, belief), solution.policy]
    fresh = Draws(solution.thetas)
    judged = [evaluate(policy, family, fresh, risk=CVaR(level)) for policy in policies]
    first, second, ours = (float(one.risk) for one in judged)
    shares = [float(one.notes.unstable.value) for one in judged]
    truths = loss_at(policies, family, truth)
    bound = np.nan if solution.certificate is None else float(solution.certificate.lower_bound)
    return LinearRun(
        (first, second, ours),
        bound,
        (shares[0], shares[1], shares[2]),
        (float(truths[0]), float(truths[1]), float(truths[2])),
        solution.seconds,
        solution.status.name,
    )


class LinearRow(NamedTuple):
    """All logs of a size.

    Attributes:
        size, logs: transitions of a log, and how many logs there are.
        finite: in how many certainty equivalence, the cautious gain and ours have a finite risk.
        risks, bound, gap: means over logs in which certainty equivalence and ours both have one; the gap is a share.
        worse: in how many logs our risk is above that of certainty equivalence, an infinite one counted as such.
        unstable: mean shares of draws at which the closed loops are unstable, over all logs.
        truths: mean costs at the truth, over all logs; infinite where one is.
        best: the least cost at the truth.
        seconds: the longest solution but the first, which compiles.
    """

    size: int
    logs: int
    finite: tuple[int, int, int]
    risks: tuple[float, float]
    bound: float
    gap: float
    worse: int
    unstable: tuple[float, float, float]
    truths: tuple[float, float, float]
    best: float
    seconds: float


def summarised(size: int, runs: list[LinearRun]) -> LinearRow:
    """The row of a size."""
    family, truth = dean()
    risks, unstable, truths = (
        np.array([getattr(run, name) for run in runs]) for name in ("risks", "unstable", "truths")
    )
    bounds = np.array([run.bound for run in runs])
    both = np.isfinite(risks[:, 0]) & np.isfinite(risks[:, 2])
    nan = float("nan")
    means = risks[both].mean(axis=0) if both.any() else np.full(3, nan)
    bound = float(bounds[both].mean()) if both.any() else nan
    kept = np.isfinite(risks).sum(axis=0)
    shares, costs = unstable.mean(axis=0), truths.mean(axis=0)
    return LinearRow(
        size,
        len(runs),
        (int(kept[0]), int(kept[1]), int(kept[2])),
        (float(means[0]), float(means[2])),
        bound,
        float((1.0 - bounds[both] / risks[both, 2]).mean()) if both.any() else nan,
        int((risks[:, 2] > risks[:, 0]).sum()),
        (float(shares[0]), float(shares[1]), float(shares[2])),
        (float(costs[0]), float(costs[1]), float(costs[2])),
        float(linear_plan(family, truth).cost),
        max((run.seconds for run in runs[1:]), default=runs[0].seconds),
    )


def compare(
    sizes: tuple[int, ...] = SIZES, replications: int = 20, seed: int = 0, level: float = LEVEL
) -> Iterator[LinearRow]:
    """Each size in turn; log i of a size has the seed `seed + i`."""
    for size in sizes:
        yield summarised(size, [run_one(size, seed + number, level) for number in range(replications)])


@in_float64
def rates(seed: int = 0, replications: int = 20) -> list[dict[str, Any]]:
    """How the error of the gradient falls with r, and the norm of the gradient with T and r, as on the lake."""
    family, _ = dean()
    belief = CutOff(family.prior(spread=SPREAD).update(logged(RATES_SIZE, seed)), credible=KEPT)
    random, objective, gain = np.random.default_rng(seed), family.objective(), RATES_GAIN * np.eye(3)
    errors = errors_on(objective, belief, gain, belief.draw(random, RATES_REFERENCE), random)
    reference = belief.draw(random, RATES_REFERENCE // 32)
    norms = norms_on(objective, belief, reference, seed, replications, interpolated(), RATES_STEP, gain)
    return rate_records(errors, norms)
