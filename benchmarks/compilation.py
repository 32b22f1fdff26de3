"""What the first call costs: seconds and number of compilations, and that later calls compile nothing."""

from __future__ import annotations

import time

import jax

import prudent as pr

from .measuring import console, report


class Compilations:
    """Counts what XLA compiles and how long it takes, through JAX's own monitoring."""

    def __init__(self) -> None:
        self.count, self.seconds = 0, 0.0
        jax.monitoring.register_event_duration_secs_listener(self._note)

    def _note(self, event: str, duration: float, **_: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            self.count += 1
            self.seconds += duration


def run(rounds: int) -> None:
    del rounds
    seen = Compilations()
    lake = pr.envs.frozen_lake(discount=0.96)
    belief = lake.prior.update(lake.trials(n=5, truth=(0.3, 0.02), seed=0))
    settings = pr.BRPG(samples=29)  # a shape no other part has compiled
    other = lake.prior.update(lake.trials(n=50, truth=(0.3, 0.02), seed=1))
    calls = {
        "first solve on the lake": lambda: pr.solve(lake, belief, risk=pr.CVaR(0.9), solver=settings),
        "same again": lambda: pr.solve(lake, belief, risk=pr.CVaR(0.9), solver=settings),
        "other data, level and seed": lambda: pr.solve(lake, other, risk=pr.CVaR(0.2), solver=settings, seed=5),
        "other discount": lambda: pr.solve(
            pr.envs.frozen_lake(discount=0.9), belief, risk=pr.CVaR(0.9), solver=settings
        ),
    }
    rows = []
    for name, call in calls.items():
        count, compiling, clock = seen.count, seen.seconds, time.perf_counter()
        call()
        rows.append(
            (
                name,
                f"{time.perf_counter() - clock:.2f}",
                f"{seen.seconds - compiling:.2f}",
                str(seen.count - count),
            )
        )
    report("Compilation", ("call", "seconds", "of which in the compiler", "compilations"), rows)
    console.print()
