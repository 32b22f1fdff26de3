"""Logs from files, frames and datasets, with names for states and actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..tables import LogCounts, Names, count_log
from .log import Transitions


class Log(NamedTuple):
    """A log read from somewhere: the transitions in numbers, and the names behind the numbers.

    >>> import prudent as pr, pyarrow as pa
    >>> frame = pa.table({"state": ["new", "new"], "action": ["run", "run"], "next_state": ["worn", "new"]})
    >>> log = pr.read_log(frame)
    >>> log.states, len(log.transitions)
    (('new', 'worn'), 2)

    Attributes:
        transitions: each transition seen, with its count.
        states, actions: names by number.
        cost: `[S, A]` mean of the column `cost`, NaN for a pair without rows; None without such a column.
        rows: how many rows were read.
    """

    transitions: Transitions
    states: tuple[str, ...]
    actions: tuple[str, ...]
    cost: Float[np.ndarray, "S A"] | None
    rows: int


def read_log(source: Any, states: Sequence[str] | int | None = None, actions: Sequence[str] | int | None = None) -> Log:
    """Read and count a log with the columns `state`, `action`, `next_state`, and `count` and `cost` if it has them.

    Files are read in batches, so that memory grows with the distinct transitions and not with the rows.

    Args:
        source: a path to a CSV, TSV, Parquet or JSON-lines file; `minari:name` for a Minari dataset (extra `gym`);
            a frame of pandas, polars or pyarrow; or a list of any of these.
        states: the names in their order, or how many there are if they are numbers; a name that is not among
            them is refused. When left out, the names are those in the log: numbers in their order, others in the
            order of their first row.
        actions: the same for actions.

    >>> import pandas as pd, prudent as pr
    >>> frame = pd.DataFrame({"state": [0, 0, 1], "action": ["run", "run", "fix"], "next_state": [0, 1, 0]})
    >>> log = pr.read_log(frame, states=2, actions=["run", "fix"])
    >>> log.transitions.count.tolist()
    [1.0, 1.0, 1.0]
    """
    sources = source if isinstance(source, list | tuple) else [source]
    met = Names("state", states), Names("action", actions)
    counts = count_log(sources, *met)
    (known_states, state_places), (known_actions, action_places) = (names.settled() for names in met)
    return log_of(counts.renumbered(state_places, action_places), known_states, known_actions)


def log_of(counts: LogCounts, states: Names, actions: Names) -> Log:
    """The log that counts make."""
    shape = (len(states), len(actions))
    cost = None
    if np.any(counts.cost_count > 0):
        total, paid = np.zeros(shape), np.zeros(shape)
        np.add.at(total, (counts.state, counts.action), counts.cost_total)
        np.add.at(paid, (counts.state, counts.action), counts.cost_count)
        cost = np.where(paid > 0, total / np.where(paid > 0, paid, 1.0), np.nan)
    transitions = Transitions(counts.state, counts.action, counts.next_state, counts.count, *shape)
    return Log(transitions, states.all(), actions.all(), cost, counts.rows)
