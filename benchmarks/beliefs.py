"""Draws and fit of rows that learn from one another, beside independent rows."""

from __future__ import annotations

import time

import numpy as np

import prudent as pr

from .measuring import ratio, report, side_by_side, verdict

STATES, ACTIONS, ROWS, MANY_ROWS, DRAWS = 40, 10, 4_000, 100_000, 256
MOST_RATIO, MOST_SECONDS = 2.0, 2.0


def _log(rows: int) -> pr.Transitions:
    random = np.random.default_rng(0)
    table = np.cumsum(random.dirichlet(np.full(STATES, 0.2), size=(STATES, ACTIONS)), axis=2)
    state, action = random.integers(STATES, size=rows), random.integers(ACTIONS, size=rows)
    following = np.minimum((table[state, action] < random.random((rows, 1))).sum(axis=1), STATES - 1)
    return pr.Transitions.from_records(np.stack([state, action, following], axis=1), states=STATES, actions=ACTIONS)


def run(rounds: int) -> None:
    """400 pairs with 40 successors each."""
    support = pr.Support.dense(STATES, ACTIONS)
    log, many = _log(ROWS), _log(MANY_ROWS)
    beliefs = {"independent": pr.Dirichlet.symmetric(support).update(log), "pooled": pr.Pooled(support).update(log)}
    seconds = side_by_side({name: lambda b=belief: b.sample(0, DRAWS) for name, belief in beliefs.items()}, rounds)
    times = ratio(seconds["pooled"], seconds["independent"])
    clock = time.perf_counter()
    pr.Pooled(support).update(many)
    fit = time.perf_counter() - clock
    report(
        f"Beliefs of {STATES * ACTIONS} pairs with {STATES} successors each",
        ("", "measured", "limit"),
        [
            (f"{DRAWS} draws, pooled rows against independent ones", f"{times:.2f}x", verdict(times, MOST_RATIO)),
            (f"fit of pooled rows to {MANY_ROWS:,} rows, seconds", f"{fit:.2f}", verdict(fit, MOST_SECONDS)),
        ],
    )
