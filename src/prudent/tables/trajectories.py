"""Rows that are consecutive steps: the next state of one is the state of the row behind it, within an episode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import InputError
from .reading import Batch
from .rows import TIME, UNIT

EPISODE = "episode"


class Steps:
    """Joins rows to transitions, batch by batch; the last row of an episode says where the step before it led.

    Its own action and cost, which may be empty, belong to a step whose end was not seen, and are left out.
    """

    def __init__(self) -> None:
        self.state: int | None = None
        self.action, self.cost, self.place = -1, float("nan"), ""
        self.episode: Any = None
        self.met: set[Any] = set()
        self.last: dict[str, pa.Array] = {}

    def transitions(
        self, batch: Batch, state: np.ndarray, action: np.ndarray, cost: np.ndarray | None
    ) -> tuple[Batch, np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        """States, actions, next states and costs of the steps that end in this batch, and their units and times.

        Args:
            batch: for the column `episode`, and for places in messages.
            state: numbers.
            action: numbers, -1 where the cell is empty.
            cost: numbers, NaN where the cell is empty; None without a column.
        """
        episodes = self._episodes(batch, len(state))
        first = self.state is None
        before = (np.array([-1 if first else self.state]), np.array([self.action]), np.array([self.cost]))
        states, actions = np.concatenate([before[0], state]), np.concatenate([before[1], action])
        costs = np.concatenate([before[2], np.full(len(state), np.nan) if cost is None else cost])
        same = np.concatenate([[not first and self.episode == episodes[0]], episodes[1:] == episodes[:-1]])
        step = np.flatnonzero(same)
        for what, bad in (("action", actions[step] < 0), ("cost", np.isnan(costs[step]) & (cost is not None))):
            if bad.any():
                row = int(step[int(np.argmax(bad))])
                where = self.place if row == 0 else batch.place(row - 1)
                raise InputError(f"{where}: {what} is empty, and the episode goes on behind it; give one")
        beside = Batch(batch.source, batch.first, self._beside(batch, step))
        self.state, self.action, self.cost = int(state[-1]), int(action[-1]), float(costs[-1])
        self.episode, self.place = episodes[-1], batch.place(len(state) - 1)
        return beside, states[step], actions[step], states[step + 1], None if cost is None else costs[step]

    def _beside(self, batch: Batch, step: np.ndarray) -> dict[str, pa.Array]:
        """Units and times of the rows that steps begin in, the last row of the batch before among them."""
        found = {}
        for name in (UNIT, TIME):
            if name in batch.columns:
                array = batch.columns[name]
                array = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
                whole = pa.concat_arrays([self.last.get(name, array.slice(0, 1)), array])
                found[name], self.last[name] = whole.take(pa.array(step)), array.slice(len(array) - 1)
        return found

    def _episodes(self, batch: Batch, rows: int) -> np.ndarray:
        """The episode of each row, or its unit; one that begins again after another is refused."""
        column = EPISODE if EPISODE in batch.columns else UNIT
        if column not in batch.columns:
            return np.zeros(rows, np.int64)
        values, which = batch.labels(column)
        names = np.array([str(value) for value in values], dtype=object)[which]
        change = np.flatnonzero(np.concatenate([[True], names[1:] != names[:-1]]))
        for row in change:
            name = names[row]
            if row == 0 and name == self.episode:
                continue
            if name in self.met:
                again = f"{column} {name!r} goes on after another began"
                raise InputError(f"{batch.place(int(row))}: {again}; sort the rows by {column} and time")
            self.met.add(name)
        return names
