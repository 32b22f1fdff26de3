"""Logs that are known again by their rows in their order, whatever format or order of columns these came in."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .names import Names

# First rows by which it is judged whether two logs are alike by chance.
MOST_JUDGED = 2**16


@dataclass(frozen=True)
class RowDigests:
    """By what the rows of a log are known again.

    Attributes:
        rows: how many there are; of consecutive steps, how many transitions.
        whole: a digest of all of them, in their order.
        first: digests of the first 1, 2, 4, ... of them.
    """

    rows: int
    whole: str
    first: tuple[str, ...]


class RowOrder:
    """Takes digests of the rows of a log as it is read, and finds how many of the first ones other logs had.

    >>> states = Names("state", 3)
    >>> def read(numbers, *held):
    ...     order = RowOrder(held)
    ...     _ = order.add({"state": (states, np.array(numbers))}, {})
    ...     return order
    >>> first, second = read([0, 1]).digests(), read([2]).digests()
    >>> read([0, 1, 2, 2], first, second).repeated, read([0, 2], first, second).repeated
    (3, 0)

    Args:
        held: other logs. Their rows are found one log behind the other, in this order; logs may be missing.
        skip: how many of the first rows are to be left out.

    Attributes:
        rows: how many were read.
        repeated: how many of the first rows are those of other logs.
        of: which logs these are.
    """

    def __init__(self, held: Sequence[RowDigests] = (), skip: int = 0):
        self.held, self.skip = held, skip
        self.rows = self.repeated = 0
        self.of: tuple[int, ...] = ()
        self.first: list[str] = []
        # By where it begins a digest, and the logs that came before.
        self._running: dict[int, tuple[Any, tuple[int, ...]]] = {0: (_digest(), ())}
        self._names: dict[str, np.ndarray] = {}
        self._judged: list[np.ndarray] = []

    def add(self, names: Mapping[str, tuple[Names, np.ndarray]], numbers: Mapping[str, np.ndarray | None]) -> int:
        """Add rows, and return how many of them are to be left out.

        Args:
            names: by column the names, and their numbers in the rows.
            numbers: other columns; None for one that is not there.
        """
        words = np.uint64(0)
        for column, (known, which) in names.items():
            words = words + self._words(column, known, which)[which]
        for column, values in numbers.items():
            if values is not None:
                # Formats differ in the last digits of a number, and in the sign of zero.
                with np.errstate(over="ignore"):
                    bits = (values + 0.0).astype(np.float32).view(np.uint32).astype(np.uint64)
                words = words + bits * (_word(column) | np.uint64(1))
        assert isinstance(words, np.ndarray)
        left_out = min(len(words), max(0, self.skip - self.rows))
        if self.rows < MOST_JUDGED:
            self._judged.append(words[: MOST_JUDGED - self.rows])
        while len(words):
            stop = min(self._stops()) - self.rows
            part, words = words[:stop], words[stop:]
            for digest, _ in self._running.values():
                digest.update(part)
            self.rows += len(part)
            self._compare()
        return left_out

    def digests(self) -> RowDigests:
        """Of the rows that were added."""
        return RowDigests(self.rows, self._running[0][0].hexdigest(), tuple(self.first))

    def shared(self, other: RowDigests) -> int:
        """A number of first rows that both logs have: the largest that is a power of two, or 0."""
        same = [ours == theirs for ours, theirs in zip(self.first, other.first, strict=False)]
        return 2 ** (sum(same) - 1) if any(same) else 0

    def chance(self, rows: int) -> float:
        """How likely another log begins with the same rows, if each is drawn by itself with the shares of this log."""
        _, count = np.unique(np.concatenate(self._judged)[:rows], return_counts=True)
        return float(np.sum((count / count.sum()) ** 2) ** rows)

    def _words(self, column: str, names: Names, which: np.ndarray) -> np.ndarray:
        """A word for each name that was met; rows of two logs have the same where they have the same names."""
        words = self._names.get(column, np.zeros(0, np.uint64))
        if len(words) < len(names):
            words = self._names[column] = np.append(words, np.zeros(len(names) - len(words), np.uint64))
        new = which[words[which] == 0]
        for number in np.unique(new).tolist() if len(new) else ():
            words[number] = _word(f"{column}={names[number]}")
        return words

    def _stops(self) -> list[int]:
        """Numbers of rows at which digests are compared."""
        ends = [start + self.held[k].rows for start, (_, path) in self._running.items() for k in self._after(path)]
        return [2 ** len(self.first), *(end for end in ends if end > self.rows)]

    def _after(self, path: tuple[int, ...]) -> range:
        return range(path[-1] + 1 if path else 0, len(self.held))

    def _compare(self) -> None:
        if self.rows == 2 ** len(self.first):
            self.first.append(self._running[0][0].hexdigest())
        for start, (digest, path) in list(self._running.items()):
            ends = {k: start + self.held[k].rows for k in self._after(path)}
            for k, end in ends.items():
                if end == self.rows and digest.hexdigest() == self.held[k].whole:
                    self.repeated, self.of = self.rows, (*path, k)
                    self._running.setdefault(self.rows, (_digest(), self.of))
                    break
            if start and max(ends.values(), default=0) <= self.rows:
                del self._running[start]


def _digest() -> Any:
    return hashlib.blake2b(digest_size=16)


def _word(text: str) -> np.uint64:
    return np.frombuffer(hashlib.blake2b(text.encode(), digest_size=8).digest(), np.uint64)[0]
