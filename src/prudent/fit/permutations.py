"""Permutation tests within cells: does what happened go with something that, given its cell, should not matter?

Under the model, outcomes of one cell (a pair of state and action, or a law that pairs share) are draws from one
distribution, whatever came before. So they may be exchanged within the cell. Each statistic is computed for the rows as
they are and for many exchanges; it is as rare as its rank among them. Sparse tables need no other care.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

#: From a permutation `[N]` of the rows, within cells, to a number that is large where the model is wrong.
Statistic = Callable[[np.ndarray], float]


class Cells(NamedTuple):
    """Rows in cells.

    Attributes:
        cell: `[N]` numbers of cells.
        label: `[N]` what happened: a number, the same for the same outcome of a cell.
        value: `[N]` what happened as a number on a scale; None where outcomes have no order.
    """

    cell: np.ndarray
    label: np.ndarray
    value: np.ndarray | None

    def __len__(self) -> int:
        return len(self.cell)

    def only(self, kept: np.ndarray) -> Cells:
        """Some of the rows."""
        return Cells(self.cell[kept], self.label[kept], None if self.value is None else self.value[kept])


def compact(*keys: np.ndarray) -> np.ndarray:
    """`[N]` numbers from 0 for the distinct combinations of keys."""
    whole = np.zeros(len(keys[0]), np.int64)
    for key in keys:
        _, number = np.unique(key, return_inverse=True)
        whole = whole * (int(number.max(initial=0)) + 1) + number
        _, whole = np.unique(whole, return_inverse=True)
    return whole


def telling(cells: Cells, *others: np.ndarray) -> np.ndarray:
    """`[N]` rows of cells in which outcomes differ and so does one of the others; no other row tells anything."""
    cell = compact(cells.cell)
    varied = np.zeros(len(cell), bool)
    for other in others:
        varied |= _several(cell, other)[cell]
    return varied & _several(cell, cells.label)[cell]


def _several(cell: np.ndarray, key: np.ndarray) -> np.ndarray:
    """By cell, whether it has several keys."""
    pairs = np.unique(np.column_stack([cell, compact(key)]), axis=0)
    return np.bincount(pairs[:, 0], minlength=int(cell.max(initial=-1)) + 1) > 1


def centred(cell: np.ndarray, value: np.ndarray) -> np.ndarray:
    """A value less the mean of its cell."""
    cell = compact(cell)
    return value - (np.bincount(cell, value) / np.bincount(cell))[cell]


def by_table(cells: Cells, group: np.ndarray) -> Statistic:
    """Pearson's statistic of the tables group by outcome, summed over cells."""
    row, column = compact(cells.cell, group), compact(cells.cell, cells.label)
    local = column - _first(cells.cell, column)
    width = int(local.max(initial=0)) + 1
    in_row, in_column, in_cell = (np.bincount(each)[each].astype(float) for each in (row, column, compact(cells.cell)))
    size = (int(row.max(initial=0)) + 1) * width
    weight = in_cell / in_row

    def statistic(order: np.ndarray) -> float:
        place = row * width + local[order]
        seen = np.bincount(place, minlength=size)
        return float((seen[place] * weight / in_column[order]).sum())

    return statistic


def _first(cell: np.ndarray, column: np.ndarray) -> np.ndarray:
    """`[N]` the least number of a column in the cell; columns of a cell have numbers next to one another."""
    cell = compact(cell)
    least = np.full(int(cell.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, cell, column)
    return least[cell]


def by_trend(cells: Cells, scale: np.ndarray) -> Statistic:
    """How closely the value goes along with a scale, over all cells, to either side."""
    assert cells.value is not None
    value, along = centred(cells.cell, cells.value), centred(cells.cell, scale)
    return lambda order: abs(float(value[order] @ along))


def by_slopes(cells: Cells, scale: np.ndarray) -> Statistic:
    """How much the share of each outcome of each cell rises or falls along a scale, by itself."""
    cell, column = compact(cells.cell), compact(cells.cell, cells.label)
    along = centred(cell, scale)
    spread = np.bincount(cell, along**2)[cell]
    along = along / np.sqrt(np.where(spread > 0, spread, np.inf))
    weight = 1.0 / np.bincount(column)
    return lambda order: float((np.bincount(column[order], along) ** 2 * weight).sum())


def by_group(cells: Cells, group: np.ndarray) -> Statistic:
    """How far the mean values of groups lie apart, over all cells together."""
    assert cells.value is not None
    value, group = centred(cells.cell, cells.value), compact(group)
    weight = 1.0 / np.bincount(group)
    return lambda order: float((np.bincount(group, value[order]) ** 2 * weight).sum())


def by_break(cells: Cells, time: np.ndarray) -> Statistic:
    """How far values before and after one moment lie apart, at the worst moment."""
    assert cells.value is not None
    value, when = centred(cells.cell, cells.value), np.argsort(time, kind="stable")
    place = np.arange(1, len(time)) / len(time)
    weight = 1.0 / np.sqrt(place * (1.0 - place))
    # The first and last twentieth are too few rows to stand for a side.
    inside = (place >= 0.05) & (place <= 0.95)
    return lambda order: float(np.max(np.abs(np.cumsum(value[order][when])[:-1] * weight)[inside], initial=0.0))


def by_run(cells: Cells, previous: np.ndarray) -> Statistic:
    """How closely a row's value goes along with that of the row before it, where there is one (else -1)."""
    assert cells.value is not None
    value, has = centred(cells.cell, cells.value), previous >= 0
    here, there = np.flatnonzero(has), previous[has]
    return lambda order: abs(float(value[order][here] @ value[order][there]))


def exchanged(cell: np.ndarray, times: int, generator: np.random.Generator) -> Iterator[np.ndarray]:
    """So many permutations `[N]` of the rows within their cells."""
    cell = compact(cell)
    # Of equal cells the order stays as it was: the k-th place of a cell gets the k-th of its rows after the exchange.
    within = np.argsort(cell, kind="stable")
    for _ in range(times):
        order = np.empty_like(within)
        order[within] = np.argsort(cell + generator.random(len(cell)))
        yield order


def chance(cell: np.ndarray, statistics: Sequence[Statistic], exchanges: int, generator: np.random.Generator) -> float:
    """How often exchanges within cells make one of the statistics as rare as it is: one p value for all of them.

    Every statistic has a rank among its own values; the rarest of the ranks is ranked in turn. Ties are broken at
    random, so that under the model the p value is uniform on its steps.
    """
    orders = chain([np.arange(len(cell))], exchanged(cell, exchanges, generator))
    values = np.array([[statistic(order) for statistic in statistics] for order in orders])
    ranks = np.column_stack([_ranks(column, generator) for column in values.T])
    return float(_ranks(ranks.max(axis=1), generator, descending=True)[0]) / (exchanges + 1)


def _ranks(values: np.ndarray, generator: np.random.Generator, descending: bool = False) -> np.ndarray:
    """Ranks from 1, of the smallest unless descending; equal values, up to rounding, in random order."""
    rounded = np.round(values / max(float(np.abs(values).max()), 1e-300), 10)
    order = np.lexsort((generator.random(len(values)), -rounded if descending else rounded))
    ranks = np.empty(len(values), np.int64)
    ranks[order] = np.arange(1, len(values) + 1)
    return ranks
