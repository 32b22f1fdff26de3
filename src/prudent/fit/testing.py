"""Does the model fit the log? Questions to its rows, answered by permutation tests; what the belief foretells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..arrays import in_float64
from ..models import AbstractFamily, tables_at
from ..posteriors import Posterior
from ..tables import Rows
from .permutations import (
    Cells,
    Statistic,
    by_break,
    by_group,
    by_run,
    by_slopes,
    by_table,
    by_trend,
    centred,
    chance,
    compact,
    exchanged,
    telling,
)

LEVEL = 0.05
EXCHANGES = 999

# Fewer rows that tell anything are not tested: nothing but the grossest misfit would show.
FEWEST = 30

# More are not needed to see what matters; so many are taken at random.
MOST = 20_000

# Rows follow one another if at least this share of those that could do.
IN_ORDER = 0.5

BLOCKS = 5


class LogTest(NamedTuple):
    """One question to a log.

    Attributes:
        name: `order`, `time`, `unit` or `cost`.
        p: how often a log as unlike the model comes by chance; None where it was not tested.
        adjusted: the same with all questions of the log in mind (Holm); None where it was not tested.
        rows: how many rows tell anything of it.
        reason: why it was not tested; empty where it was.
        strength: share of what the model leaves open that the question's answer explains, with what chance explains
            taken off; None where outcomes are on no scale, or the p value is above the level.
    """

    name: str
    p: float | None
    adjusted: float | None
    rows: int
    reason: str = ""
    strength: float | None = None

    @property
    def fails(self) -> bool:
        """Whether the log speaks against the model."""
        return self.adjusted is not None and self.adjusted <= LEVEL


class Exchangeable(NamedTuple):
    """What the model takes for exchangeable: outcomes of pairs, or of laws that pairs share.

    Attributes:
        cells: of the rows.
        before: `[N]` what happened at the step before, where it is on record, for the test of order: the state it came
            from or, for outcomes of shared laws, the outcome.
        scale: whether `before` is on a scale.
    """

    cells: Cells
    before: np.ndarray
    scale: bool


def outcomes_of(
    rows: Rows, ordered: bool, law: np.ndarray | None = None, outcome: np.ndarray | None = None
) -> Exchangeable:
    """The cells of a log.

    Args:
        rows: the log.
        ordered: whether the numbers of states (or of outcomes) are in an order that means something.
        law: `[N]` the law of the pair, where pairs share laws; -1 where the outcome is not known from where it led.
        outcome: `[N]` the outcome.
    """
    pair = rows.state * (int(rows.action.max(initial=0)) + 1) + rows.action
    previous = rows.previous()
    if law is None or outcome is None:
        value = rows.next_state.astype(float) if ordered else None
        return Exchangeable(Cells(pair, rows.next_state, value), rows.state[previous], ordered)
    tied = law >= 0
    cell = np.where(tied, law, int(law.max(initial=0)) + 1 + pair)
    label = np.where(tied, outcome, rows.next_state)
    return Exchangeable(Cells(cell, label, label.astype(float) if ordered else None), label[previous], ordered)


def log_tests(
    rows: Rows | None, outcomes: Exchangeable | None, seed: int = 0, exchanges: int = EXCHANGES
) -> tuple[LogTest, ...]:
    """The four tests of a log.

    Args:
        rows: in order; None where they were not kept.
        outcomes: their cells.
        seed: of the exchanges.
        exchanges: how many; p values are multiples of 1 / (exchanges + 1).
    """
    names = ("order", "time", "unit", "cost")
    if rows is None or outcomes is None or rows.counted:
        why = "there is no log" if rows is None else "rows with a count above 1 have no order; give a row for each step"
        return tuple(LogTest(name, None, None, 0, why) for name in names)
    streams = np.random.SeedSequence([seed, len(rows)]).spawn(len(names))
    made = (_order(rows, outcomes), _time(rows, outcomes), _unit(rows, outcomes), _cost(rows))
    found = [
        (asked if isinstance(asked, LogTest) else asked.answered(np.random.default_rng(stream), exchanges))
        for asked, stream in zip(made, streams, strict=True)
    ]
    return _adjusted([test._replace(name=name) for name, test in zip(names, found, strict=True)])


class _Question(NamedTuple):
    """Rows, and from the cells of those kept and their numbers the statistics, and groups for the strength."""

    cells: Cells
    kept: np.ndarray
    statistics: Callable[[Cells, np.ndarray], tuple[list[Statistic], np.ndarray]]
    thin: str

    def answered(self, generator: np.random.Generator, exchanges: int) -> LogTest:
        number = int(self.kept.sum())
        if number < FEWEST:
            return LogTest("", None, None, number, self.thin)
        kept = np.flatnonzero(self.kept)
        if number > MOST:
            kept = np.sort(generator.choice(kept, MOST, replace=False))
        cells = self.cells.only(kept)
        made, group = self.statistics(cells, kept)
        p = chance(cells.cell, made, exchanges, generator)
        return LogTest("", p, None, number, "", _strength(cells, group, generator) if p <= LEVEL else None)


def _strength(cells: Cells, group: np.ndarray, generator: np.random.Generator) -> float | None:
    """Share of the values' variance within cells that lies between groups, less what it is by chance."""
    if cells.value is None:
        return None
    whole, statistic = float((centred(cells.cell, cells.value) ** 2).sum()), by_group(cells, group)
    if not whole > 0.0:
        return None
    usual = float(np.mean([statistic(order) for order in exchanged(cells.cell, 50, generator)])) / whole
    return max(0.0, (statistic(np.arange(len(cells))) / whole - usual) / max(1.0 - usual, 1e-12))


def _order(rows: Rows, outcomes: Exchangeable) -> _Question | LogTest:
    previous, cells = rows.previous(), outcomes.cells
    could = len(rows) - 1 if rows.unit is None else int((rows.unit[1:] == rows.unit[:-1]).sum())
    # By chance, too, rows seem to follow one another.
    sizes = int(max(rows.state.max(initial=0), rows.next_state.max(initial=0))) + 1
    shares = [np.bincount(each, minlength=sizes) / max(len(rows), 1) for each in (rows.state, rows.next_state)]
    by_chance = float(shares[0] @ shares[1])
    follows = int((previous >= 0).sum())
    if follows < IN_ORDER * could or follows < (by_chance + 0.5 * (1.0 - by_chance)) * could or not could:
        return LogTest("", None, None, follows, "rows do not follow one another; sort them by time, and name the unit")
    action = rows.action[previous]
    kept = (previous >= 0) & telling(cells.only(previous >= 0), outcomes.before[previous >= 0], action[previous >= 0])[
        np.cumsum(previous >= 0) - 1
    ]

    def statistics(cells: Cells, kept: np.ndarray) -> tuple[list[Statistic], np.ndarray]:
        before, by = outcomes.before[kept], action[kept]
        found = [by_table(cells, before)]
        if len(np.unique(by)) > 1:
            found.append(by_table(cells, by))
        if outcomes.scale and cells.value is not None:
            found.append(by_trend(cells, before.astype(float)))
        return found, before

    return _Question(cells, kept, statistics, "too few steps were taken again after others")


def moments(rows: Rows) -> tuple[np.ndarray, str]:
    """`[N]` when a row happened, and how that is known."""
    if rows.time is not None:
        return rows.time, "the column time"
    if rows.unit is None:
        return np.arange(len(rows), dtype=float), "the order of the rows"
    first = np.concatenate([[True], rows.unit[1:] != rows.unit[:-1]])
    start = np.maximum.accumulate(np.where(first, np.arange(len(rows)), 0))
    return (np.arange(len(rows)) - start).astype(float), "the number of steps of the unit"


def blocks(when: np.ndarray, number: int = BLOCKS) -> np.ndarray:
    """`[N]` which of so many parts of the time, of about as many rows each, a row is in."""
    edges = np.quantile(when, np.linspace(0.0, 1.0, number + 1)[1:-1])
    return np.searchsorted(edges, when, side="right")


def _time(rows: Rows, outcomes: Exchangeable) -> _Question | LogTest:
    when, _ = moments(rows)
    kept = telling(outcomes.cells, when)

    def statistics(cells: Cells, kept: np.ndarray) -> tuple[list[Statistic], np.ndarray]:
        part = blocks(when[kept])
        found = [by_slopes(cells, when[kept]), by_table(cells, part)]
        if cells.value is not None:
            found += [by_trend(cells, when[kept]), by_break(cells, when[kept])]
        return found, part

    return _Question(outcomes.cells, kept, statistics, "too few steps were taken again at another time")


def _unit(rows: Rows, outcomes: Exchangeable) -> _Question | LogTest:
    if rows.unit is None or len(np.unique(rows.unit)) < 2:
        why = "the log has no column unit" if rows.unit is None else "the log is of one unit"
        return LogTest("", None, None, 0, why)

    units = rows.unit

    def statistics(cells: Cells, kept: np.ndarray) -> tuple[list[Statistic], np.ndarray]:
        unit = units[kept]
        found = [by_table(cells, unit)]
        return (found if cells.value is None else [*found, by_group(cells, unit)]), unit

    return _Question(
        outcomes.cells, telling(outcomes.cells, units), statistics, "too few steps were taken by several units"
    )


def _cost(rows: Rows) -> _Question | LogTest:
    if rows.cost is None:
        return LogTest("", None, None, 0, "the log has no column cost")
    cell = compact(rows.state, rows.action, rows.next_state)
    cells = Cells(cell, compact(rows.cost), rows.cost)
    when, previous = moments(rows)[0], rows.previous()
    kept = telling(cells, np.arange(len(rows)))
    if not kept.any():
        again = len(cell) > int(cell.max()) + 1
        why = "costs are the same whenever a move was seen again" if again else "no move was seen again"
        return LogTest("", None, None, 0, why)

    def statistics(cells: Cells, kept: np.ndarray) -> tuple[list[Statistic], np.ndarray]:
        place = np.full(len(rows), -1)
        place[kept] = np.arange(len(kept))
        before = np.where(previous[kept] >= 0, place[previous[kept]], -1)
        found = [by_trend(cells, when[kept]), by_break(cells, when[kept])]
        if (before >= 0).any():
            found.append(by_run(cells, before))
            found.append(by_group(cells, np.where(previous[kept] >= 0, rows.state[previous[kept]], -1)))
        if rows.unit is not None:
            found.append(by_group(cells, rows.unit[kept]))
        return found, blocks(when[kept]) if rows.unit is None else rows.unit[kept]

    return _Question(cells, kept, statistics, "too few moves were seen again")


def _adjusted(tests: list[LogTest]) -> tuple[LogTest, ...]:
    """With Holm's adjustment: the chance that any question is answered wrongly by chance is at most the level."""
    asked = sorted((test.p, k) for k, test in enumerate(tests) if test.p is not None)
    found, least = {}, 0.0
    for rank, (p, k) in enumerate(asked):
        least = max(least, min(1.0, p * (len(asked) - rank)))
        found[k] = least
    return tuple(test._replace(adjusted=found.get(k)) for k, test in enumerate(tests))


DRAWS = 200
ROWS = 5000

# Numbers held at once: draws times the entries of the kernel, and rows times successors.
MOST_ENTRIES, MOST_PLACES = 20_000_000, 20_000_000
FEWEST_DRAWS = 50


class Band(NamedTuple):
    """Groups of rows: what happened in each, and where the belief puts it.

    Attributes:
        labels: of the groups.
        rows: how many each has.
        observed: mean of what was measured.
        low, high: where it lies with a probability of 90 % under the belief.
    """

    labels: tuple[str, ...]
    rows: tuple[int, ...]
    observed: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def outside(self) -> int:
        """How many groups lie outside."""
        return sum(not low <= seen <= high for seen, low, high in zip(self.observed, self.low, self.high, strict=True))


class Replays(NamedTuple):
    """The steps of a log and, for draws of the belief, the steps that could have been in their place.

    Attributes:
        seen: `[N]` what was measured of the steps that happened.
        drawn: `[M, N]` the same of those drawn.
        kept: `[N]` which rows of the log they are.
    """

    seen: Float[np.ndarray, " N"]
    drawn: Float[np.ndarray, "M N"]
    kept: np.ndarray

    def band(self, group: np.ndarray, labels: dict[int, str]) -> Band:
        """Means by group, for the groups that have a label; `group` is of all rows of the log."""
        mine = group[self.kept]
        numbers = [number for number in labels if np.any(mine == number)]
        found = []
        for inside in (mine == number for number in numbers):
            # With the distribution of the replays, not of the mean: the group may be a row or two.
            low, high = np.quantile(self.drawn[:, inside].mean(axis=1), [0.05, 0.95])
            found.append((int(inside.sum()), float(self.seen[inside].mean()), float(low), float(high)))
        rows, seen, lows, highs = zip(*found, strict=True) if found else ((),) * 4
        return Band(tuple(labels[number] for number in numbers), rows, seen, lows, highs)


@in_float64
def replays(
    model: AbstractFamily,
    belief: Posterior,
    state: np.ndarray,
    action: np.ndarray,
    slot: np.ndarray,
    measure: Any,
    seed: int = 0,
) -> Replays | None:
    """Draw every step of a log again from the belief; None where the kernel is too large for it.

    Args:
        model: the family.
        belief: after the log.
        state: `[N]`, of the rows.
        action: `[N]`, of the rows.
        slot: `[N]` the entry of the pair's successor list that happened; -1 where it is not there.
        measure: from the mean kernel `[S, A, B]` to what is measured of each entry, `[S, A, B]`.
        seed: of all draws.
    """
    shape = model.support.shape
    number = min(DRAWS, MOST_ENTRIES // int(np.prod(shape)))
    kept = np.flatnonzero(slot >= 0)
    generator = np.random.default_rng([seed, len(state)])
    most = min(ROWS, MOST_PLACES // shape[2])
    if number < FEWEST_DRAWS or most < FEWEST_DRAWS or not len(kept):
        return None
    if len(kept) > most:
        kept = np.sort(generator.choice(kept, most, replace=False))
    thetas = np.asarray(belief.sample(seed, number))
    tables, _ = tables_at(model, thetas)
    measured = np.asarray(measure(tables.mean(axis=0)))
    place = state[kept], action[kept]
    drawn = np.empty((number, len(kept)))
    for k, table in enumerate(tables):
        steps = np.cumsum(table[place], axis=1)
        chosen = (generator.random(len(kept))[:, None] * steps[:, -1:] >= steps).sum(axis=1)
        drawn[k] = measured[(*place, np.minimum(chosen, shape[2] - 1))]
    return Replays(measured[(*place, slot[kept])], drawn, kept)


def along_scale(scale: Float[np.ndarray, "S A B"]) -> Any:
    """Measures how far a step leads, less what is expected of it."""

    def measure(mean: np.ndarray) -> np.ndarray:
        return scale - (mean * scale).sum(axis=2, keepdims=True)

    return measure


def surprise(mean: Float[np.ndarray, "S A B"]) -> Float[np.ndarray, "S A B"]:
    """Measures how surprising a step is, in nats, less what is expected of it."""
    nats = -np.log(np.maximum(mean, 1e-12))
    return nats - (mean * nats).sum(axis=2, keepdims=True)
