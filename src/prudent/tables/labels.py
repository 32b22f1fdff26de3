"""Names of states and actions as records carry them: fixed, and shared by everything made of one log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..errors import InputError
from .names import Names, as_name, suggest


@dataclass(frozen=True, eq=False)
class Labels:
    """Names by number; what has no names goes by its numbers, and then only how many there are is kept.

    >>> labels = Labels.of(["new", "worn"], 3)
    >>> labels.state("worn"), labels.name("state", 1), labels.name("action", 2)
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
        # Found once: labels are part of what compiled functions are looked up by.
        known = self.__dict__.get("_hash")
        if known is None:
            known = hash((self.states, self.actions))
            object.__setattr__(self, "_hash", known)
        return known

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Labels) and (self.states, self.actions) == (other.states, other.actions)

    @property
    def shape(self) -> tuple[int, int]:
        """How many states and actions there are."""
        states, actions = (each if isinstance(each, int) else len(each) for each in (self.states, self.actions))
        return states, actions

    def all(self, kind: Literal["state", "action"]) -> tuple[str, ...]:
        """Every name, in order."""
        names = self.states if kind == "state" else self.actions
        return tuple(map(str, range(names))) if isinstance(names, int) else names

    def name(self, kind: Literal["state", "action"], number: Any) -> str:
        """The name of a number."""
        names = self.states if kind == "state" else self.actions
        return str(int(number)) if isinstance(names, int) else names[int(number)]

    def state(self, which: Any) -> int:
        """The number of a state, by name or number."""
        return self.number("state", which)

    def number(self, kind: Literal["state", "action"], which: Any) -> int:
        """The number of a state or action, by name or number; one that is not there is refused."""
        names = self.states if kind == "state" else self.actions
        size = names if isinstance(names, int) else len(names)
        if isinstance(which, np.ndarray) and which.ndim == 0:
            which = which.item()
        if isinstance(which, int | np.integer) and not isinstance(which, bool):
            if 0 <= which < size:
                return int(which)
            raise InputError(f"{kind} {int(which)} is unknown: there are {size}, numbered 0 to {size - 1}")
        name = as_name(which) if isinstance(which, str) else None
        if name is None:
            raise InputError(f"a {kind} is given by its name or its number, got {which!r}")
        found = self.all(kind).index(name) if name in self._known(kind) else None
        if found is None:
            few = self.all(kind)[:6] if not isinstance(names, int) else (f"0 to {size - 1}",)
            there = f"; there are {', '.join(few)}{', ...' if len(few) < size and not isinstance(names, int) else ''}"
            raise InputError(f"{kind} {name!r} is unknown{suggest(name, self.all(kind)) or there}")
        return found

    def _known(self, kind: Literal["state", "action"]) -> frozenset[str]:
        key = f"_{kind}s"
        if key not in self.__dict__:
            object.__setattr__(self, key, frozenset(self.all(kind)))
        return self.__dict__[key]


def _kept(kind: str, names: Sequence[str] | int) -> tuple[str, ...] | int:
    if isinstance(names, int | np.integer) and not isinstance(names, bool):
        return len(Names(kind, int(names)))
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise InputError(f"names of {kind}s are a list of texts, or how many there are, got {names!r}")
    known = Names(kind, [str(name) for name in names]).all()
    return len(known) if known == tuple(map(str, range(len(known)))) else known
