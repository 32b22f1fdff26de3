"""Names of states and actions, and the numbers they stand for: collected from a log, and as records carry them."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..errors import InputError

# Three indices of a transition share one 63-bit number.
INDEX_BITS = 21
MOST_NAMES = 2**INDEX_BITS
LONGEST_NAME = 200

Kind = Literal["state", "action"]
KINDS: tuple[Kind, ...] = ("state", "action")

# Comparing a misspelt name with more names than this would take longer than the user would wait.
MOST_COMPARED = 20_000


def suggest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'worn'?`, or nothing where no known word is near.

    >>> suggest("wron", ["new", "worn"])
    "; did you mean 'worn'?"
    """
    near = _nearest(word, known)
    return "" if near is None else f"; did you mean {near!r}?"


def suggest_file(name: str, known: Iterable[str]) -> str:
    """The same for a file; the ends of names, which files of a folder share, do not make them alike.

    >>> suggest_file("lgo.csv", ["costs.csv", "log.csv"]), suggest_file("log.csv", ["costs.csv"])
    ("; did you mean 'log.csv'?", '')
    """
    stems = {each.partition(".")[0]: each for each in known}
    near = _nearest(name.partition(".")[0], stems)
    return "" if near is None else f"; did you mean {stems[near]!r}?"


def _nearest(word: str, known: Iterable[str]) -> str | None:
    few = [name for name, _ in zip(known, range(MOST_COMPARED), strict=False)]
    near = difflib.get_close_matches(word[:LONGEST_NAME], few, n=1, cutoff=0.6)
    near = near or [name for name in few if name.casefold() == word.casefold()]
    return near[0] if near else None


def few_of(names: Sequence[str]) -> str:
    """The first of many names, for a message."""
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")


def as_name(value: object) -> str | None:
    """A cell as a name: text without the spaces around it, a whole number in digits; None for anything else."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return None


# A spreadsheet takes a cell that begins so for a formula, and one that begins with an apostrophe for text.
FORMULA, TEXT = "=+-@", "'"


def guarded(name: str) -> str:
    """A name as a cell of a CSV file: one that a spreadsheet would take for a formula begins with an apostrophe.

    Numbers are left alone, and `unguarded` takes the apostrophe off, so that every name is read back as it was.

    >>> guarded("=1+1"), guarded("-1"), guarded("new"), unguarded(guarded("'=1"))
    ("'=1+1", '-1', 'new', "'=1")
    """
    return TEXT + name if name[:1] in (*FORMULA, TEXT) and not _is_number(name) else name


def unguarded(cell: str) -> str:
    """The name in a cell of a CSV file."""
    return cell[1:] if cell[:1] == TEXT and guarded(cell[1:]) != cell[1:] else cell


def _is_number(name: str) -> bool:
    return re.fullmatch(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", name, re.ASCII) is not None


def require_name(kind: str, name: str) -> str:
    """Refuse names that are empty, too long, or hold characters that cannot be printed."""
    if not name:
        raise InputError(f"a {kind} has an empty name; give every {kind} a name")
    if len(name) > LONGEST_NAME:
        raise InputError(f"{kind} {name[:40]!r}... has a name of {len(name)} characters; {LONGEST_NAME} are allowed")
    if not name.isprintable():
        raise InputError(f"{kind} {name!r} has a character in its name that cannot be printed; remove it")
    return name


class Names:
    """Names by number and numbers by name; either declared, or collected in the order they are met.

    >>> names = Names("state", ["new", "worn"])
    >>> names.number("worn"), names[0], len(names)
    (1, 'new', 2)

    Args:
        kind: what is named, `state` or `action`, for messages.
        names: the declared names; a whole number n for `0` to `n - 1`; None to collect them.
        codes: by name, what tables say in its place, such as numbers; a table says either the names or the codes.
    """

    def __init__(self, kind: str, names: Sequence[str] | int | None = None, codes: Mapping[str, str] | None = None):
        self.kind = kind
        self.declared = names is not None
        self._size = names if isinstance(names, int) else None
        self._names: list[str] = []
        self._number: dict[str, int] = {}
        if self._size is not None:
            if not 1 <= self._size <= MOST_NAMES:
                raise InputError(f"the number of {kind}s must lie in 1 to {MOST_NAMES:,}, got {self._size}")
        elif names is not None:
            assert not isinstance(names, int)
            for name in names:
                if name in self._number:
                    raise InputError(f"{kind} {name!r} is declared twice; remove one")
                self._add(name)
            if not self._names:
                raise InputError(f"no {kind} is declared; name at least one")
        for name, code in (codes or {}).items():
            if code in self._number and code != name:
                raise InputError(f"{code!r} is the name of one {kind} and stands for {kind} {name!r}; rename one")
        self.codes = dict(codes or {})
        self._number |= {code: self._number[name] for name, code in self.codes.items()}
        self._levels: dict[str, tuple[str, ...]] = {}

    def _add(self, name: str) -> int:
        if len(self._names) >= MOST_NAMES:
            raise InputError(f"there are more than {MOST_NAMES:,} {self.kind}s")
        self._number[require_name(self.kind, name)] = len(self._names)
        self._names.append(name)
        return len(self._names) - 1

    def __len__(self) -> int:
        return self._size if self._size is not None else len(self._names)

    def __getitem__(self, number: int | np.integer) -> str:
        return str(int(number)) if self._size is not None else self._names[int(number)]

    def all(self) -> tuple[str, ...]:
        """Every name, in order."""
        return tuple(map(str, range(self._size))) if self._size is not None else tuple(self._names)

    @property
    def numbered(self) -> bool:
        """Whether the names are the numbers themselves."""
        return self._size is not None

    def find(self, name: str) -> int | None:
        """The number of a name; one that is collected as it is met gets the next. None if it is not declared."""
        if self._size is not None:
            canonical = name.isascii() and name.isdigit() and (name == "0" or name[0] != "0") and len(name) < 20
            return int(name) if canonical and int(name) < self._size else None
        number = self._number.get(name)
        return self._add(name) if number is None and not self.declared else number

    def number(self, name: str, where: str = "") -> int:
        """The number of a name, or a refusal that says what is known."""
        number = self.find(name)
        if number is None:
            raise InputError(f"{where and where + ': '}{self.kind} {name!r} is not declared{self.hint(name)}")
        return number

    def hint(self, name: str) -> str:
        """What to do about a name that is not declared."""
        if self._size is not None:
            return f"; there are {self._size}, numbered 0 to {self._size - 1}"
        return suggest(name, self._names) or f"; there are {few_of(self._names)}"

    def product(self, cells: Sequence[object]) -> str:
        """The name that the cells of several columns make up together."""
        levels = [as_name(cell) for cell in cells]
        odd = next((cell for cell, level in zip(cells, levels, strict=True) if not level), None)
        if odd is not None:
            raise InputError(f"{self.kind} {odd!r} is neither a name nor a whole number")
        known = tuple(str(level) for level in levels)
        name = ", ".join(known)
        if self._levels.setdefault(name, known) != known:
            raise InputError(f"two {self.kind}s would be called {name!r}; use names without commas")
        return name

    def settled(self) -> tuple[Names, np.ndarray]:
        """The same names, declared from now on, and the new number of each old one.

        Collected names that are all whole numbers come in their order, not in the order they were met. Names made of
        several columns come in the order of the levels of the first column, then of the second, and so on.
        """
        if self.declared:
            return self, np.arange(len(self))
        order = list(range(len(self._names)))
        levels = [self._levels.get(name, (name,)) for name in self._names]
        # Other tables may have names that are not in the log, whose levels are not known.
        if len({len(each) for each in levels}) == 1:
            ranks = [_ranks(column) for column in zip(*levels, strict=True)]
            order.sort(key=lambda number: [rank[level] for rank, level in zip(ranks, levels[number], strict=True)])
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        return Names(self.kind, [self._names[number] for number in order]), place


def _ranks(levels: Sequence[str]) -> dict[str, int]:
    """The place of each level: whole numbers by size, others as they were met."""
    known = list(dict.fromkeys(levels))
    if all(name.isascii() and name.isdigit() and len(name) < 20 for name in known):
        known.sort(key=int)
    return {level: rank for rank, level in enumerate(known)}


@dataclass(frozen=True)
class Labels:
    """Names by number; what has no names goes by its numbers, and then only how many there are is kept.

    >>> labels = Labels.of(["new", "worn"], 3)
    >>> labels.number("state", "worn"), labels.name("state", 1), labels.name("action", 2)
    (1, 'worn', '2')

    Attributes:
        states: names, or how many there are.
        actions: the same for actions.
    """

    states: tuple[str, ...] | int
    actions: tuple[str, ...] | int

    @staticmethod
    def of(states: Sequence[str] | int, actions: Sequence[str] | int) -> Labels:
        """Checked names; numbers in their order, as text, are kept as how many there are."""
        return Labels(_kept("state", states), _kept("action", actions))

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        # Found once: labels are part of what compiled functions are looked up by.
        return hash((self.states, self.actions))

    @functools.cached_property
    def _numbers(self) -> dict[str, dict[str, int]]:
        return {kind: {name: k for k, name in enumerate(self.all(kind))} for kind in KINDS}

    @property
    def shape(self) -> tuple[int, int]:
        """How many states and actions there are."""
        states, actions = (each if isinstance(each, int) else len(each) for each in (self.states, self.actions))
        return states, actions

    def all(self, kind: Kind) -> tuple[str, ...]:
        """Every name, in order."""
        names = self._of(kind)
        return tuple(map(str, range(names))) if isinstance(names, int) else names

    def name(self, kind: Kind, number: Any) -> str:
        """The name of a number."""
        names = self._of(kind)
        return str(int(number)) if isinstance(names, int) else names[int(number)]

    def number(self, kind: Kind, which: Any) -> int:
        """The number of a state or action, by name or number; one that is not there is refused."""
        names, size = self._of(kind), self.shape[KINDS.index(kind)]
        if isinstance(which, np.ndarray) and which.ndim == 0:
            which = which.item()
        if isinstance(which, int | np.integer) and not isinstance(which, bool):
            if 0 <= which < size:
                return int(which)
            raise InputError(f"{kind} {int(which)} is unknown: there are {size}, numbered 0 to {size - 1}")
        if not isinstance(which, str):
            raise InputError(f"a {kind} is given by its name or its number, got {which!r}")
        name = which.strip()
        if name not in self._numbers[kind]:
            there = f"; there are {f'0 to {size - 1}' if isinstance(names, int) else few_of(names)}"
            raise InputError(f"{kind} {name!r} is unknown{suggest(name, self.all(kind)) or there}")
        return self._numbers[kind][name]

    def _of(self, kind: Kind) -> tuple[str, ...] | int:
        return self.states if kind == "state" else self.actions


def _kept(kind: str, names: Sequence[str] | int) -> tuple[str, ...] | int:
    if isinstance(names, int | np.integer) and not isinstance(names, bool):
        return len(Names(kind, int(names)))
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise InputError(f"names of {kind}s are a list of texts, or how many there are, got {names!r}")
    known = Names(kind, [str(name) for name in names]).all()
    return len(known) if known == tuple(map(str, range(len(known)))) else known
