"""Who is told how a run gets on: a line of the terminal, or a function of the user's."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError
from ..phases import phase, status_line

# The line is given other words about this often.
REFRESH_SECONDS = 0.25


class RunState(NamedTuple):
    """How far a run has come, for `solve(..., progress=function)`.

    Attributes:
        iteration: how many were made, those of a run that is resumed among them.
        iterations: the most that are made.
        objective: risk on the sample in use; where several runs go side by side, the mean over them.
        gradient_norm: as in `solution.history`.
        step: as in `solution.history`.
        seconds: since the search began.

    >>> import prudent as pr
    >>> lake, states = pr.envs.frozen_lake("SF\\nHG"), []
    >>> solution = pr.solve(lake, lake.prior, solver=pr.BRPG(iterations=3), progress=states.append)
    >>> [(state.iteration, state.iterations) for state in states]
    [(1, 3), (2, 3), (3, 3)]
    >>> bool(states[-1].objective == solution.history.objective[-1])
    True
    """

    iteration: int
    iterations: int
    objective: float
    gradient_norm: float
    step: float
    seconds: float


# Whether to show a line, None for where there is a terminal; or who is told of every iteration.
Shown = bool | Callable[[RunState], Any] | None


def checked_progress(progress: Any) -> Shown:
    """What a user gave as `progress`; refused unless it can be one."""
    if progress is None or isinstance(progress, bool) or callable(progress):
        return progress
    raise InputError(f"progress must be True, False, None or a function of a RunState, got {progress!r}")


def shown_on(progress: Shown) -> bool | None:
    """What a line of the terminal is opened with: a function is told instead."""
    return False if callable(progress) else progress


class Progress:
    """Names phase, iteration and objective, tells whoever asked, and picks how many iterations run between updates."""

    def __init__(self, show: Shown, start: int, end: int, watched: bool = False, sure: bool = False):
        """For iterations after `start`, of which `end` is the last, or, unless that is sure, the last there may be."""
        self.told = show if callable(show) else None
        self.show = False if callable(show) else sys.stderr.isatty() if show is None else show
        self.watched = watched or self.told is not None
        self.end, self.sure = end, sure
        self.iteration = start
        self.line = status_line(shown_on(show))
        self.began = self.seen = time.perf_counter()
        # The first call is short so that a slow problem shows a sign of life soon; it changes no bits.
        self.stride = 1 if self.show or self.watched else end - start or 1

    def __enter__(self) -> Progress:
        self.line.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.line.__exit__(*exception)

    def advance(self, iteration: int, trace: np.ndarray, name: str = "searching") -> None:
        """Note that the run has reached `iteration`; `trace` is `[T, 3, G]`, its first column the objective.

        Args:
            iteration: how many were made.
            trace: the newest lines of the history.
            name: of the phase.
        """
        if not (self.show or self.watched):
            return
        now = time.perf_counter()
        if self.told is not None:
            made = iteration - self.iteration
            for number, line in zip(range(self.iteration + 1, iteration + 1), trace[-made:], strict=False):
                objective, norm, step = (float(value) for value in np.mean(line, axis=1))
                self.told(RunState(number, self.end, objective, norm, step, now - self.began))
        rate = (iteration - self.iteration) / max(now - self.seen, 1e-9)
        self.stride = max(1, int(rate * REFRESH_SECONDS))
        self.iteration, self.seen = iteration, now
        if self.show:
            objective = float(np.mean(trace[-1, 0])) if trace.size else float("nan")
            # A limit that a search seldom reaches says nothing of how long it takes.
            left = (self.end - iteration) / rate if self.sure and rate > 0 else None
            phase(name, f"iteration {iteration}, objective {objective:.4f}", left)
