"""The example that `prudent init --linear` writes: a cart on a rail that is to stay in its place."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..files import write_files

PROBLEM = """\
# Keep a cart in its place on a rail that shakes. Solve it with: prudent solve problem.toml
# The next state is A s + B a + noise, and [A B] is learned from the log.

kind = "linear"
title = "A cart on a rail"
discount = 0.97          # what a cost of the next step weighs today
seed = 0                 # the same seed gives the same bits

[data]
log = "log.csv"          # also .tsv, .parquet, .jsonl
states = ["position", "speed"]   # columns; the next state is that of the row below
actions = ["force"]
episode = "walk"         # which rows follow on one another

[units]                  # shown in tables and figures
position = "m"
speed = "m/s"
force = "N"

[cost]                   # weight times the square of what is off its target, at each step
states = { position = 1.0, speed = 0.1 }
actions = { force = 0.05 }
# targets = { position = 0.5 }

[start]
mean = { position = 1.0 }
deviation = { position = 0.1, speed = 0.1 }

[noise]                  # what shaking adds in a step, as a guess that the log corrects
deviation = { position = 0.02, speed = 0.2 }
# known = true

[belief]                 # what is believed of [A B] before the log
around = "persistence"   # a state stays as it is, and actions do nothing
spread = 10.0            # standard deviation of the entries, in units of the noise
credible = 0.95          # share of the belief that is kept: beyond, some system is unstable under any policy

[risk]                   # what is minimised over the belief
kind = "cvar"            # the mean of the worst tenth; "expectation" for the plain mean
level = 0.9

[solver]
samples = 256
largest = 1024
starts = 4
"""


def write_linear_example(folder: str | Path = ".", force: bool = False) -> tuple[Path, ...]:
    """Write a commented example of a linear system that solves as it is: `problem.toml`, `log.csv`.

    Args:
        folder: made if there is none.
        force: replace files of these names; refused otherwise.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in pr.write_linear_example(folder)]
    ['problem.toml', 'log.csv']
    """
    return write_files(folder, {"problem.toml": PROBLEM, "log.csv": _log()}, force)


def _log() -> str:
    """Four walks of ten steps of a cart whose rail pushes it outwards a little, under forces by chance."""
    random = np.random.default_rng(5)
    lines = ["walk,position,speed,force"]
    for walk in range(1, 5):
        state = np.array([random.normal(), 0.0])
        for step in range(11):
            force = random.normal(scale=2.0) if step < 10 else 0.0
            lines.append(f"{walk},{state[0]:.4f},{state[1]:.4f},{force:.4f}")
            push = 0.1 * state[0] - 0.05 * state[1] + 0.3 * force + 0.2 * random.normal()
            state = np.array([state[0] + 0.1 * state[1] + 0.02 * random.normal(), state[1] + push])
    return "\n".join(lines) + "\n"
