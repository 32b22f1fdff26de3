"""The default solver against the paper's algorithm on the lake's twelve cells, and what certificates cost."""

from __future__ import annotations

import time

import jax
import numpy as np

import prudent as pr
from prudent.objectives import losses_on, slopes_on
from prudent_studies.lake import LEVELS, SETTINGS
from prudent_studies.optimisers import FRUGAL

from .measuring import console, ratio, report, side_by_side, verdict

# Iterations after which the paper's algorithm is given up.
MOST = 1000
COMMON = 4096
WITHIN = 1.01


def run(rounds: int) -> None:
    lake = pr.envs.frozen_lake()
    rows, shares = [], []
    for setting in SETTINGS:
        belief = lake.prior.update(lake.trials(setting.n, setting.truth, seed=0))
        thetas = pr.Sobol(belief).sample(2**40, COMMON)
        for level in LEVELS:
            rows.append(_cell(lake, belief, thetas, (setting.escape, setting.n, level), shares))
    report(
        f"Seconds to within {WITHIN - 1:.0%} of the best objective, after compilation",
        (
            "escape, N, beta",
            "default",
            "natural, one start",
            "paper's algorithm",
            "ratio to the default",
            "certificate / solve",
        ),
        rows,
    )
    console.print(f"certificate / solve: largest {max(shares):.2f}, {verdict(max(shares), 1.0)}")
    _convex(lake)
    _adjoint(lake, rounds)
    console.print()


def _convex(lake) -> None:
    """Certificates where the bound is a convex program at each draw."""
    states = np.full(25, 1 / 25)
    losses = {
        "imitation of states": pr.Imitation(states),
        "negative entropy": pr.NegativeEntropy(),
        "cost and quadratic distance": pr.ExpectedCost() + 5.0 * pr.QuadraticDistance(states),
    }
    rows, shares = [], []
    for setting in (SETTINGS[0], SETTINGS[-1]):
        belief = lake.prior.update(lake.trials(setting.n, setting.truth, seed=0))
        for name, loss in losses.items():
            bare, share = _certificate(lake, belief, loss=loss)
            shares.append(share)
            rows.append((f"{setting.escape:g}, {setting.n}", name, f"{bare:.2f}", f"{share:.2f}"))
    report(
        "Certificates of convex losses, CVaR 0.9, medians of 3",
        ("escape, N", "loss", "solve", "certificate / solve"),
        rows,
    )
    console.print(f"certificate / solve: largest {max(shares):.2f}, {verdict(max(shares), 1.0)}")


def _certificate(lake, belief, **parts) -> tuple[float, float]:
    """Seconds of a solve without its certificate, and the certificate's as a share of them; medians of 3."""
    seconds = side_by_side(
        {
            "bare": lambda: pr.solve(lake, belief, certify=False, **parts),
            "certified": lambda: pr.solve(lake, belief, **parts),
        },
        3,
    )
    return float(np.median(seconds["bare"])), ratio(seconds["certified"], seconds["bare"]) - 1.0


def _cell(lake, belief, thetas, cell, shares) -> tuple[str, ...]:
    risk = pr.CVaR(cell[2])

    def objective(solution) -> float:
        return float(risk([*_losses(lake, solution, thetas)]).value)

    objective(pr.solve(lake, belief, risk=risk, certify=False))
    pr.solve(lake, belief, risk=risk, solver=FRUGAL, certify=False)
    clock = time.perf_counter()
    default = pr.solve(lake, belief, risk=risk, certify=False)
    seconds = time.perf_counter() - clock
    clock = time.perf_counter()
    frugal = pr.solve(lake, belief, risk=risk, solver=FRUGAL, certify=False)
    frugal_seconds = time.perf_counter() - clock
    best = min(objective(default), objective(frugal))
    shares.append(_certificate(lake, belief, risk=risk)[1])
    settings = pr.BRPG(samples=30, iterations=100, step=1.0, evaluation=1)
    pr.solve(lake, belief, risk=risk, solver=settings, certify=False)
    spent, solution = 0.0, None
    while solution is None or (objective(solution) > WITHIN * best and solution.iterations < MOST):
        clock = time.perf_counter()
        solution = pr.solve(lake, belief, risk=risk, solver=settings, certify=False, resume=solution)
        spent += time.perf_counter() - clock
    reached = objective(solution) <= WITHIN * best
    return (
        f"{cell[0]:g}, {cell[1]}, {cell[2]:g}",
        f"{seconds:.2f}" if objective(default) <= WITHIN * best else "not reached",
        f"{frugal_seconds:.2f}" if objective(frugal) <= WITHIN * best else "not reached",
        f"{spent:.2f}" if reached else f"not in {MOST} iterations ({objective(solution) / best - 1:+.1%})",
        f"{spent / seconds:.2f}" if reached else f"> {spent / seconds:.2f}",
        f"{shares[-1]:.2f}",
    )


def _losses(lake, solution, thetas) -> np.ndarray:
    with jax.enable_x64(True):
        table = np.asarray(solution.policy.probabilities)
        return losses_on(lake.objective(), table[None], thetas)[0]


def _adjoint(lake, rounds: int) -> None:
    """What the adjoint solve adds to a model: all that a second visit of the tail alone could save."""
    objective, thetas = lake.objective(), lake.prior.sample(0, 512)
    table = np.full((25, 4), 0.25)
    which, draws = np.zeros(512, int), np.arange(512)
    with jax.enable_x64(True):
        seconds = side_by_side(
            {
                "losses": lambda: losses_on(objective, table[None], thetas),
                "slopes": lambda: slopes_on(objective, table[None], thetas, which, draws),
            },
            rounds,
        )
    both = ratio(seconds["slopes"], seconds["losses"])
    console.print(f"losses and slopes of 512 models take {both:.2f} times the losses alone")
