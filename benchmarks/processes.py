"""200 runs of `solve_many` on two worker processes, against one process: the numbers are the same, the time is not."""

from __future__ import annotations

import time

import joblib
import numpy as np

import prudent as pr

from .measuring import report

RUNS, PROCESSES = 200, 2


def run(rounds: int) -> None:
    """A lake of four states, which waits for Python more than for the compiled part; `rounds` is not used."""
    del rounds
    lake = pr.envs.frozen_lake("SF\nHG")
    beliefs = [lake.prior.update(lake.trials(n=5, truth=(0.3, 0.1), seed=seed)) for seed in range(RUNS)]
    solver = pr.SampleAverage(samples=16, largest=16, starts=2, evaluation=64)

    def risks(count: int) -> list[float]:
        grid = pr.solve_many(lake, beliefs[:count], [pr.CVaR(0.5)], solver=solver, certify=False)
        return [row[0].risk for row in grid]

    seconds, found = [], []
    for processes in (1, PROCESSES):
        with joblib.parallel_config("loky", n_jobs=processes):
            # Workers that have started and compiled.
            risks(32 * processes)
            clock = time.perf_counter()
            found.append(risks(RUNS))
            seconds.append(time.perf_counter() - clock)
    same = "the same numbers" if np.array_equal(*found) else "OTHER NUMBERS"
    rows = [
        ("one process", f"{seconds[0]:.1f}", "1"),
        (f"{PROCESSES} processes", f"{seconds[1]:.1f}", f"{seconds[1] / seconds[0]:.2f}, {same}"),
    ]
    report(f"solve_many, {RUNS} runs, once", ("", "seconds", "share"), rows)
