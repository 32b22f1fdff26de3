"""Random outcomes whose law many pairs share: where each of them leads, as a table of the user's says."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError
from ..kernels import Support
from ..tables import LARGEST_COST, Names, RowOrder, SmallTable, entries_of, read_batches, read_table
from .memory import require_fit


class Outcomes(NamedTuple):
    """Where outcomes lead.

    Attributes:
        moves: `[K, 5]` state, action, outcome, next state and law of every row of the table, in order.
        seen: `[M, 3]` law, outcome and count of what was seen of outcomes as such; None if nothing was.
        outcomes, laws: their names.
        costs: `[K]` of every row of the table; None where costs do not go by the outcome.
    """

    moves: np.ndarray
    seen: np.ndarray | None
    outcomes: Names
    laws: Names
    costs: np.ndarray | None = None


def read_outcomes(given: Any, seen: Any, names: dict[str, Names], folder: Path, order: RowOrder) -> Outcomes:
    """The tables of outcomes; states and actions in the numbers they were met with, outcomes and laws settled."""
    outcomes, laws = Names("outcome"), Names("law")
    columns = {"state": names["state"], "action": names["action"], "outcome": outcomes}
    every = columns | {"next_state": names["state"], "law": laws}
    table = read_table(given, every, ["cost"], ["law", "cost"], folder)
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
    costs = table.numbers.get("cost")
    large = np.zeros(rows, dtype=bool) if costs is None else np.abs(costs) > LARGEST_COST
    if costs is not None and large.any():
        row = int(np.argmax(large))
        raise InputError(f"{table.place(row)}: cost {costs[row]:g} is too large; change the unit of the costs")
    known = Outcomes(moves, None, outcomes, laws, costs)
    return known if seen is None else known._replace(seen=read_seen(seen, known, names, order, folder))


def tells_outcomes(source: Any) -> bool:
    """Whether a table has a column `outcome`."""
    both = ("state", "outcome")
    return any("outcome" in batch.columns for batch in islice(read_batches(source, both, (), both), 1))


def read_seen(
    source: Any, known: Outcomes, names: dict[str, Names], order: RowOrder, folder: Path | None = None
) -> np.ndarray:
    """`[M, 3]` law, outcome and count of what a table tells of outcomes; names as they are numbered in `known`."""
    moves, laws, outcomes = known.moves, known.laws, known.outcomes
    columns = {"outcome": outcomes, "law": laws, **{name: names[name] for name in ("state", "action", "next_state")}}
    optional = [name for name in (*columns, "count") if name != "outcome"]
    counted = read_table(source, columns, ["count"], optional, folder)
    which = _laws_of(counted, moves, names, laws)
    count = counted.numbers.get("count", np.ones(len(counted)))
    if np.any((count < 0) | (count != np.floor(count))):
        row = int(np.argmax((count < 0) | (count != np.floor(count))))
        raise InputError(f"{counted.place(row)}: count {count[row]:g} is not a whole number >= 0")
    listed = np.isin(which * len(outcomes) + counted.indices["outcome"], moves[:, 4] * len(outcomes) + moves[:, 2])
    if not listed.all():
        row = int(np.argmin(listed))
        name = laws[which[row]]
        raise InputError(f"{counted.place(row)}: {name} has no outcome {outcomes[counted.indices['outcome'][row]]}")
    outcome = counted.indices["outcome"]
    first = order.add({"law": (laws, which), "outcome": (outcomes, outcome)}, {"count": count})
    return _added_up(np.column_stack([which, outcome, count])[first:])


def seen_together(tables: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """What several tables tell of outcomes."""
    there = [table for table in tables if table is not None]
    return _added_up(np.concatenate(there)) if there else None


def _added_up(rows: np.ndarray) -> np.ndarray:
    both, place = np.unique(rows[:, :2], axis=0, return_inverse=True)
    return np.column_stack([both, np.bincount(place.ravel(), rows[:, 2])])


def _laws_of(counted: SmallTable, moves: np.ndarray, names: dict[str, Names], laws: Names) -> np.ndarray:
    """The law that each outcome was drawn from: that of the pair it was seen in, or as a column says.

    Where a row has a pair and a next state, the outcome has to lead there.
    """
    if "state" in counted.indices and "action" in counted.indices:
        sizes = len(names["state"]), len(names["action"]), int(moves[:, 2].max()) + 1
        columns = [counted.indices[name] for name in ("state", "action", "outcome")]
        code = np.asarray(np.ravel_multi_index(columns, sizes))
        there = np.asarray(np.ravel_multi_index(tuple(moves[:, :3].T), sizes))
        order = np.argsort(there)
        place = order[np.minimum(np.searchsorted(there[order], code), len(order) - 1)]
        stray = there[place] != code
        if stray.any():
            row = int(np.argmax(stray))
            state, action = (names[name][counted.indices[name][row]] for name in ("state", "action"))
            raise InputError(
                f"{counted.place(row)}: posterior.outcomes does not say where this outcome leads from state {state}, "
                f"action {action}; say it there, or correct the row"
            )
        led = moves[place, 3]
        wrong = led != counted.indices.get("next_state", led)
        if wrong.any():
            row = int(np.argmax(wrong))
            said, seen = (names["state"][to[row]] for to in (led, counted.indices["next_state"]))
            raise InputError(
                f"{counted.place(row)}: the outcome leads to state {said}, as posterior.outcomes says, the row to "
                f"state {seen}; correct one of them"
            )
        return moves[place, 4]
    if "law" in counted.indices:
        return counted.indices["law"]
    if len(laws) > 1:
        raise InputError(
            f"{counted.source}: there are {len(laws)} laws; say in a column law, or in state and action, which one an "
            "outcome was drawn from"
        )
    return np.zeros(len(counted), np.int64)


class OutcomeLayout(NamedTuple):
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


def lay_out_outcomes(facts: Any, terminal: np.ndarray) -> OutcomeLayout:
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
    support = Support(index, listed, states, actions, width)
    names = tuple(tuple(known.outcomes[w] for w in np.flatnonzero(row)) for row in used)
    return OutcomeLayout(support, pairs, slot, (*names, ("",)))


def costs_by_outcome(facts: Any, layout: OutcomeLayout, terminal: np.ndarray) -> np.ndarray:
    """`[S, A, B]` what each outcome costs, 0 of terminal states."""
    known: Outcomes = facts.outcomes
    assert known.costs is not None
    here = ~terminal[known.moves[:, 0]]
    state, action, outcome, _, law = known.moves[here].T
    cost = np.zeros(layout.support.shape)
    cost[state, action, layout.slot[law, outcome]] = known.costs[here]
    return cost
