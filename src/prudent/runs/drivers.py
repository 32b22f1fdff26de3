"""Which unknowns drive the risk, by name: where the draws that make up the risk differ from all draws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..problems import Case
from ..report.data import Driver
from .view import View

if TYPE_CHECKING:
    from ..solvers import Solution

MOST_DRIVERS = 20


def drivers_of(case: Case, solution: Solution, view: View) -> list[Driver]:
    """The parts of theta that the certificate calls drivers, by name, those pulled farthest first."""
    thetas = np.asarray(solution.thetas)
    share, weights = view.draw_probabilities, view.weights
    named = _names_by_place(case, thetas.shape[1:])
    found = []
    for driver in () if solution.certificate is None else solution.certificate.drivers[:MOST_DRIVERS]:
        entry = thetas[(slice(None), *driver.place)]
        plain, weighted = float(share @ entry), float((share * weights) @ entry)
        found.append(Driver(named(*driver.place), plain, weighted, driver.shift, driver.standard_error))
    return found


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
