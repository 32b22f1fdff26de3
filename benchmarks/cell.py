"""One cell of the paper's tables: 50 data sets x 100 iterations x 30 draws on the 25-state lake."""

from __future__ import annotations

import numpy as np

import prudent as pr

from .lapack_floor import make_floor
from .measuring import console, ratio, report, side_by_side, verdict
from .numpy_loop import iterations

REPLICATIONS, ITERATIONS, SAMPLES = 50, 100, 30
FRACTION = 5  # iterations of one data set the NumPy loop is timed on


def run(rounds: int) -> None:
    lake = pr.envs.frozen_lake()
    beliefs = [lake.prior.update(lake.trials(n=5, truth=(0.3, 0.02), seed=s)) for s in range(REPLICATIONS)]
    settings = pr.BRPG(samples=SAMPLES, iterations=ITERATIONS, step=1.0, evaluation=1)
    random = np.random.default_rng(0)
    batch = REPLICATIONS * SAMPLES
    seconds = side_by_side(
        {
            "prudent": lambda: pr.solve_many(lake, beliefs, [pr.CVaR(0.5)], solver=settings, certify=False),
            "certified": lambda: pr.solve_many(lake, beliefs, [pr.CVaR(0.5)], solver=settings),
            "floor, 1 thread": make_floor(25, batch, ITERATIONS, threads=1),
            "floor, all threads": make_floor(25, batch, ITERATIONS),
            "NumPy loop": lambda: iterations(lake, beliefs[0], 0.5, FRACTION, SAMPLES, random),
        },
        rounds,
    )
    seconds["NumPy loop"] *= REPLICATIONS * ITERATIONS / FRACTION
    floor = np.minimum(seconds["floor, 1 thread"], seconds["floor, all threads"])
    against_floor, against_numpy = ratio(seconds["prudent"], floor), ratio(seconds["NumPy loop"], seconds["prudent"])
    rows = [
        ("prudent, solve_many after compilation", f"{np.median(seconds['prudent']):.2f}", "1", ""),
        (
            "the same with 50 certificates",
            f"{np.median(seconds['certified']):.2f}",
            f"{ratio(seconds['certified'], seconds['prudent']):.2f}",
            "",
        ),
        (
            "bare LAPACK floor (the faster of 1 and all threads)",
            f"{np.median(floor):.2f}",
            f"prudent takes {against_floor:.2f} of it",
            verdict(against_floor, 0.6),
        ),
        (
            f"NumPy loop ({FRACTION} iterations of one data set, scaled)",
            f"{np.median(seconds['NumPy loop']):.0f}",
            f"prudent is {against_numpy:.0f} times faster",
            verdict(against_numpy, 60, at_least=True),
        ),
    ]
    report(
        f"One BR-PG cell: {REPLICATIONS} data sets x {ITERATIONS} iterations x {SAMPLES} draws, median of {rounds}",
        ("", "seconds", "ratio", "aim"),
        rows,
    )
    console.print()
