"""Policies as CSV files, by name."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from ..errors import InputError
from ..tables import Names, entries_of, read_table

# Probabilities written with a few digits sum to 1 only about.
ROUNDING = 1e-6


def policy_text(probabilities: np.ndarray, states: tuple[str, ...], actions: tuple[str, ...]) -> str:
    """`state,action,probability`, a row for each pair; the numbers read back to the bit."""
    rows = (
        (s, a, repr(float(p)))
        for s, row in zip(states, probabilities, strict=True)
        for a, p in zip(actions, row, strict=True)
    )
    return csv_text(("state", "action", "probability"), rows)


def deterministic_text(probabilities: np.ndarray, states: tuple[str, ...], actions: tuple[str, ...]) -> str:
    """`state,action`, of a policy that is certain of its action in each state."""
    return csv_text(("state", "action"), zip(states, (actions[a] for a in probabilities.argmax(axis=1)), strict=True))


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Rows under a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def read_policy(path: str | Path, states: Names, actions: Names) -> np.ndarray:
    """`[S, A]` from a file with `state`, `action` and `probability`; without the last, each action is certain."""
    table = read_table(path, {"state": states, "action": actions}, ["probability"], ["probability"])
    place = entries_of(table, ("state", "action"), (len(states), len(actions)))
    probability = table.numbers.get("probability", np.ones(len(place)))
    bad = (probability < 0) | (probability > 1 + ROUNDING)
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(f"{table.place(row)}: probability {probability[row]:g} lies outside [0, 1]")
    policy = np.zeros((len(states), len(actions)))
    policy.ravel()[place] = probability
    total = policy.sum(axis=1)
    off = np.abs(total - 1.0) > ROUNDING
    if off.any():
        state = int(np.argmax(off))
        what = "has no row" if total[state] == 0 else f"has probabilities that sum to {total[state]:.9g}, not to 1"
        raise InputError(f"{table.source}: state {states[state]} {what}{_others(int(off.sum()))}")
    # Only what is off is divided: a policy written by prudent comes back to the bit.
    exact = np.abs(total - 1.0) <= 1e-9
    return np.where(exact[:, None], policy, policy / total[:, None])


def _others(number: int) -> str:
    return f" (nor have {number - 1} more states)" if number > 1 else ""
