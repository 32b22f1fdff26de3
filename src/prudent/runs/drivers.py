"""Which unknowns drive the tail: where the draws that make up the risk differ from all draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..problems import Case

if TYPE_CHECKING:
    from ..solvers import Solution

MOST_DRIVERS = 20

# A shift smaller than this many standard errors is chance.
CHANCE = 2.0


@dataclass(frozen=True)
class Driver:
    """An unknown: its posterior mean, its mean under xi*, and their difference in posterior standard deviations."""

    name: str
    plain: float
    weighted: float
    shift: float


def drivers_of(case: Case, solution: Solution) -> list[Driver]:
    """The parts of theta that the certificate names, by more than chance, the furthest first.

    A row of a table is shown by the successor that the risk's weights pull farthest; of two, which sum to 1, by the
    one that grows.
    """
    thetas, weights = np.asarray(solution.thetas), np.asarray(solution.weights)
    named = _names_by_place(case, thetas.shape[1:])
    found = []
    for driver in () if solution.certificate is None else solution.certificate.drivers[:MOST_DRIVERS]:
        entries = thetas[(slice(None), *driver.place)].reshape(len(thetas), -1)
        plain, weighted, deviation = entries.mean(axis=0), weights @ entries / len(entries), entries.std(axis=0)
        free = deviation > 1e-12
        shift = np.where(free, (weighted - plain) / np.where(free, deviation, 1.0), 0.0)
        pulled = np.abs(shift)
        slot = int(shift.argmax()) if free.sum() == 2 else int(pulled.argmax())
        if pulled[slot] > CHANCE * driver.standard_error:
            name = named(*driver.place, slot)
            found.append(Driver(name, float(plain[slot]), float(weighted[slot]), float(shift[slot])))
    return sorted(found, key=lambda driver: -abs(driver.shift))


def unknowns(case: Case, shape: tuple[int, ...]) -> dict[str, int]:
    """Names of the numbers theta is made of that are not known, and their places in a flattened theta."""
    if case.family is not None:
        name = _parametric(shape)
        return {name(k): k for k in range(int(np.prod(shape)))}
    assert case.successors is not None
    index, listed, _ = case.successors
    entry = np.ones(shape, dtype=bool) if listed is None else listed
    free = np.argwhere(entry & (entry.sum(axis=2, keepdims=True) > 1))
    facts = case.facts
    named = {}
    for state, action, slot in free:
        follower = int(slot if index is None else index[state, action, slot])
        name = f"P({facts.states[follower]} | {facts.states[state]}, {facts.actions[action]})"
        named[name] = int(np.ravel_multi_index((state, action, slot), shape))
    return named


def _parametric(shape: tuple[int, ...]) -> Any:
    def name(k: int) -> str:
        return f"theta{[int(i) for i in np.unravel_index(k, shape)]}"

    return name


def _names_by_place(case: Case, shape: tuple[int, ...]) -> Any:
    if case.family is not None or case.successors is None:
        return lambda *place: f"theta{[int(i) for i in place[: len(shape)]]}"
    index = case.successors.next_state

    def name(state: int, action: int, slot: int) -> str:
        follower = slot if index is None else int(index[state, action, slot])
        facts = case.facts
        return f"{facts.states[state]}, {facts.actions[action]} → {facts.states[follower]}"

    return name
