"""Whether a problem's model fits its log: the tests of the rows, and what the belief foretells of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError
from ..fit import (
    EXCHANGES,
    Band,
    Exchangeable,
    LogTest,
    along_scale,
    blocks,
    log_tests,
    moments,
    outcomes_of,
    replays,
    surprise,
)
from ..tables import Rows
from .tabular_case import Case

# Groups of a figure.
PARTS, UNITS, BEFORE = 20, 60, 40


class Fit(NamedTuple):
    """How well a problem's model fits its log.

    Attributes:
        tests: order, time, unit, cost.
        when: how the time of a row is known.
        measure: what the bands are of: `level`, how far steps lead, or `surprise`.
        bands: by `time`, `unit` and `order`, where there is something to show.
        seen_part: how many rows were kept for all this, where there are more.
    """

    tests: tuple[LogTest, ...]
    when: str
    measure: str
    bands: dict[str, Band]
    seen_part: int | None


def fit_of(case: Case, bands: bool = True, exchanges: int = EXCHANGES) -> Fit | None:
    """Test a problem's log, and draw its steps again from the belief; None without the rows of a log.

    Args:
        case: the problem.
        bands: whether the steps are to be drawn again.
        exchanges: of each test.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     case = pr.read_problem(pr.write_example(folder)[0])
    >>> [test.name for test in fit_of(case, bands=False).tests]
    ['order', 'time', 'unit', 'cost']
    """
    rows = case.facts.rows
    if rows is None:
        return None
    outcomes, slot = _outcomes(case, rows)
    tests = log_tests(rows, outcomes, case.facts.file.seed, exchanges)
    when, how = moments(rows)
    ordered = outcomes.scale
    found = {} if not bands or rows.counted else _bands(case, rows, outcomes, slot, when)
    part = None if rows.complete else len(rows)
    return Fit(tests, how, "level" if ordered else "surprise", found, part)


def _outcomes(case: Case, rows: Rows) -> tuple[Exchangeable, np.ndarray]:
    """What is exchangeable, and the entry of its pair's list that each row is; -1 where that is not known."""
    index, allowed = case.support.index(), case.support.allowed()
    place = rows.state, rows.action
    match = (index[place] == rows.next_state[:, None]) & allowed[place]
    slot = np.where(match.any(axis=1), match.argmax(axis=1), -1)
    if case.layout is None:
        return outcomes_of(rows, case.facts.ordered), slot
    # A pair in which outcomes lead to the same state is by itself: which of them it was is not on record.
    merged = np.array(
        [[_merges(index[s, a][allowed[s, a]]) for a in range(case.shape[1])] for s in range(case.shape[0])]
    )
    law = np.where(merged[place], -1, case.layout.law[place])
    assert case.facts.outcomes is not None
    ordered = _numeric(case.facts.outcomes.outcomes.all())
    return outcomes_of(rows, ordered, law, slot), slot


def _merges(successors: np.ndarray) -> bool:
    return len(np.unique(successors)) < len(successors)


def _numeric(names: tuple[str, ...]) -> bool:
    """Whether outcomes are named by numbers, which come in their order."""
    return all(name.isascii() and name.isdigit() for name in names)


def _bands(case: Case, rows: Rows, outcomes: Exchangeable, slot: np.ndarray, when: np.ndarray) -> dict[str, Band]:
    arguments = case.arguments()
    measure: Any = surprise
    if outcomes.scale:
        scale = case.support.index() if case.layout is None else np.broadcast_to(np.arange(case.shape[2]), case.shape)
        measure = along_scale(scale.astype(float))
    try:
        drawn = replays(arguments["model"], arguments["belief"], rows.state, rows.action, slot, measure)
    except (AttributeError, InputError):
        # A model of the user's own may have no table, or a belief that is not of its theta.
        return {}
    if drawn is None:
        return {}
    found = {}
    part = blocks(when, max(1, min(PARTS, len(rows) // 10)))
    if len(np.unique(part)) > 1:
        found["time"] = drawn.band(part, {int(k): _span(when[part == k], rows) for k in np.unique(part)})
    if rows.unit is not None and len(np.unique(rows.unit)) > 1:
        found["unit"] = drawn.band(rows.unit, {int(k): rows.units[k] for k in _commonest(rows.unit, UNITS)})
    previous = rows.previous()
    before = np.where(previous >= 0, outcomes.before, -1)
    one_law = case.layout is None or len(case.layout.names) <= 2
    if one_law and (previous >= 0).sum() >= max(len(rows) // 2, 1):
        names: tuple[str, ...] = case.states if case.layout is None else next(iter(case.layout.names))
        common = [k for k in _commonest(before[before >= 0], BEFORE) if k < len(names)]
        found["order"] = drawn.band(before, {int(k): names[int(k)] for k in common})
    return found


def _span(when: np.ndarray, rows: Rows) -> str:
    """The times of a group in words: of dates the middle, of numbers the first and the last."""
    if rows.dated:
        return str(np.datetime64(int(np.median(when)), "us").astype("datetime64[D]"))
    first, last = f"{when.min():g}", f"{when.max():g}"
    return first if first == last else f"{first} to {last}"


def _commonest(group: np.ndarray, most: int) -> np.ndarray:
    """The groups with the most rows, in their order."""
    number, count = np.unique(group, return_counts=True)
    return np.sort(number[np.argsort(-count, kind="stable")[:most]])
