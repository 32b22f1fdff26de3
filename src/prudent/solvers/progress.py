"""A progress bar that stays out of the way: none off a terminal, none for short runs."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

# A bar appears only for runs that outlast this, and is redrawn about this often.
QUIET_SECONDS = 1.0
REFRESH_SECONDS = 0.25


class Progress:
    """Shows iteration, objective and time left, and picks how many iterations run between updates."""

    def __init__(self, show: bool | None, start: int, end: int, watched: bool = False):
        self.show = sys.stderr.isatty() if show is None else show
        self.watched = watched
        self.end = end
        self.iteration = start
        self.bar: Any = None
        self.task: Any = None
        self.began = self.seen = time.perf_counter()
        # The first call is short so that a slow problem shows a sign of life soon; it changes no bits.
        self.stride = 1 if self.show or watched else end - start or 1

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def advance(self, iteration: int, trace: np.ndarray) -> None:
        """Note that the run has reached `iteration`; `trace` is `[T, 3, G]`, its first column the objective."""
        if not (self.show or self.watched):
            return
        now = time.perf_counter()
        rate = (iteration - self.iteration) / max(now - self.seen, 1e-9)
        self.stride = max(1, int(rate * REFRESH_SECONDS))
        self.iteration, self.seen = iteration, now
        if not self.show:
            return
        objective = float(np.mean(trace[-1, 0])) if trace.size else float("nan")
        if self.bar is None and now - self.began > QUIET_SECONDS and iteration < self.end:
            self._open(iteration, objective)
        if self.bar is not None:
            self.bar.update(self.task, completed=iteration, objective=objective)

    def _open(self, iteration: int, objective: float) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self.bar = RichProgress(
            TextColumn("optimising"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("objective {task.fields[objective]:.4f}"),
            TimeRemainingColumn(),
            # Asked for by name, the bar is drawn even where the terminal cannot be recognised.
            console=Console(stderr=True, force_terminal=True),
            transient=True,
        )
        self.task = self.bar.add_task("optimising", total=self.end, completed=iteration, objective=objective)
        self.bar.start()
