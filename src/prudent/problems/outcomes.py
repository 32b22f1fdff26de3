"""Random outcomes whose law many pairs share: where each of them leads, as a table of the user's says."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError
from ..kernels import Graph, Support
from ..tables import Names, entries_of, read_table
from .memory import require_fit


class Outcomes(NamedTuple):
    """Where outcomes lead.

    Attributes:
        moves: `[K, 5]` state, action, outcome, next state and law of every row of the table, in order.
        seen: `[M, 3]` law, outcome and count of what was seen of outcomes as such; None if nothing was.
        outcomes, laws: their names.
    """

    moves: np.ndarray
    seen: np.ndarray | None
    outcomes: Names
    laws: Names


def read_outcomes(
    given: Any, seen: Any, names: dict[str, Names], folder: Path, source: Any
) -> tuple[np.ndarray, np.ndarray | None, Names, Names]:
    """The tables of outcomes; states and actions in the numbers they were met with, outcomes and laws settled."""
    outcomes, laws = Names("outcome"), Names("law")
    columns = {"state": names["state"], "action": names["action"], "outcome": outcomes}
    every = columns | {"next_state": names["state"], "law": laws}
    table = read_table(given, every, [], ["law"], folder)
    entries_of(table, list(columns), [len(each) for each in columns.values()])
    rows = len(table)
    law = table.indices["law"] if "law" in table.indices else np.full(rows, laws.number("the law"))
    outcomes, place = outcomes.settled()
    moves = np.stack([*(table.indices[name] for name in ("state", "action")), place[table.indices["outcome"]]], axis=1)
    moves = np.column_stack([moves, table.indices["next_state"], law])
    laws = Names("law", list(laws.all()))
    pair = moves[:, 0] * len(names["action"]) + moves[:, 1]
    first = np.full(pair.max() + 1, -1)
    first[pair[::-1]] = law[::-1]
    mixed = np.flatnonzero(law != first[pair])
    if mixed.size:
        raise InputError(f"{table.place(int(mixed[0]))}: the pair has another law above; a pair has one law")
    if seen is None:
        return moves, None, outcomes, laws
    counted = read_table(seen, {"outcome": outcomes, "law": laws}, ["count"], ["law"], folder)
    if "law" not in counted.indices and len(laws) > 1:
        raise InputError(f"{seen}: there are {len(laws)} laws; say in a column law which one an outcome was drawn from")
    which = counted.indices.get("law", np.zeros(len(counted), np.int64))
    count = counted.numbers["count"]
    if np.any((count < 0) | (count != np.floor(count))):
        row = int(np.argmax((count < 0) | (count != np.floor(count))))
        raise InputError(f"{counted.place(row)}: count {count[row]:g} is not a whole number >= 0")
    known = np.isin(which * len(outcomes) + counted.indices["outcome"], law * len(outcomes) + moves[:, 2])
    if not known.all():
        row = int(np.argmin(known))
        name = laws[which[row]]
        raise InputError(f"{counted.place(row)}: {name} has no outcome {outcomes[counted.indices['outcome'][row]]}")
    return moves, np.column_stack([which, counted.indices["outcome"], count]), outcomes, laws


class Laid(NamedTuple):
    """Outcomes along successor lists.

    Attributes:
        support: entry b of a pair is where outcome b of its law leads.
        law: `[S, A]` the law of a pair; the last one is that of pairs that lead nowhere else.
        slot: `[L, W]` the entry that an outcome has in a law, -1 for none.
        names: by law the names of its outcomes.
    """

    support: Support
    law: np.ndarray
    slot: np.ndarray
    names: tuple[tuple[str, ...], ...]


def laid_out(facts: Any, terminal: np.ndarray) -> Laid:
    """Successor lists by outcome; refuses a pair that lists some of its law's outcomes, or leads where nothing does."""
    known: Outcomes = facts.outcomes
    states, actions, laws = len(facts.states), len(facts.actions), len(known.laws)
    state, action, outcome, following, law = known.moves[~terminal[known.moves[:, 0]]].T
    used = np.zeros((laws, len(known.outcomes)), dtype=bool)
    used[law, outcome] = True
    slot = np.where(used, np.cumsum(used, axis=1) - 1, -1)
    sizes = used.sum(axis=1)
    width = max(1, int(sizes.max(initial=0)))
    require_fit((states, actions, width), facts.file.solver)
    pairs = np.full((states, actions), laws)
    pairs[state, action] = law
    index = np.repeat(np.repeat(np.arange(states, dtype=np.int32), actions), width).reshape(states, actions, width)
    number = np.zeros((states, actions), dtype=int)
    np.add.at(number, (state, action), 1)
    short = np.argwhere((number > 0) & (number != np.append(sizes, 0)[pairs]))
    if short.size:
        s, a = (int(i) for i in short[0])
        told = f"{number[s, a]} of the {sizes[pairs[s, a]]} outcomes of {known.laws[int(pairs[s, a])]}"
        raise InputError(
            f"{facts.source}: posterior.outcomes lists {told} for {facts.pair(s, a)}; say where each leads"
        )
    # Padding repeats the list's first entry, which has to be there before the others.
    first = slot[law, outcome] == 0
    index[state[first], action[first]] = following[first, None]
    index[state, action, slot[law, outcome]] = following
    length = np.append(sizes, 1)[pairs]
    listed = np.arange(width) < length[..., None]
    listed = None if listed.all() else listed
    support = Support(index, listed, Graph.of(index, listed), states, actions, width)
    names = tuple(tuple(known.outcomes[w] for w in np.flatnonzero(row)) for row in used)
    return Laid(support, pairs, slot, (*names, ("",)))
