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
    own, entry = case.shape, case.support.allowed()
    free = entry & (entry.sum(axis=2, keepdims=True) > 1)
    if case.costs is not None and case.costs.spread is not None:
        free = np.concatenate([free, (case.costs.spread > 0).reshape(*own[:2], -1)], axis=2)
    facts = case.facts
    named = {}
    for state, action, slot in np.argwhere(free).tolist():
        pair, follower = f"{facts.states[state]}, {facts.actions[action]}", _follower(case, state, action, slot)
        if slot < own[2]:
            name = f"P({follower} | {pair})"
        else:
            name = f"cost({pair})" if follower is None else f"cost({pair}, {follower})"
        named[name] = int(np.ravel_multi_index((state, action, slot), shape))
    return named


def _follower(case: Case, state: int, action: int, slot: int) -> str | None:
    """The state that an entry of a pair's row is about, probabilities before costs; None for the cost of the pair."""
    assert case.costs is not None
    width = case.shape[2]
    if slot >= width:
        if case.costs.mean.ndim == 2:
            return None
        slot -= width
    return case.follower(state, action, slot)


def _parametric(shape: tuple[int, ...]) -> Any:
    def name(k: int) -> str:
        return f"theta{[int(i) for i in np.unravel_index(k, shape)]}"

    return name


def _names_by_place(case: Case, shape: tuple[int, ...]) -> Any:
    if case.family is not None:
        return lambda *place: f"theta{[int(i) for i in place[: len(shape)]]}"
    width = case.shape[2]

    def name(state: int, action: int, slot: int) -> str:
        follower = _follower(case, state, action, slot)
        move = f"{case.facts.states[state]}, {case.facts.actions[action]}" + (f" → {follower}" if follower else "")
        return move if slot < width else f"cost of {move}"

    return name
