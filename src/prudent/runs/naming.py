"""The unknown numbers of a problem by name: those that drive the risk, and the columns of `weights.csv`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..problems import Case
from ..report import DriverRecord
from ..solvers import Solution

MOST_DRIVERS = 20

Naming = Callable[..., str]


def driver_records(solution: Solution, name: Naming | None = None) -> tuple[DriverRecord, ...]:
    """The parts of theta that the certificate calls drivers, by name, those pulled farthest first."""
    thetas, share = np.asarray(solution.thetas), np.asarray(solution.probabilities)
    pulled = share * np.asarray(solution.weights)
    found = () if solution.certificate is None else solution.certificate.drivers[:MOST_DRIVERS]
    return tuple(
        DriverRecord(
            name=driver.name if name is None else name(*driver.place),
            plain=float(share @ thetas[(slice(None), *driver.place)]),
            weighted=float(pulled @ thetas[(slice(None), *driver.place)]),
            shift=driver.shift,
            standard_error=driver.standard_error,
        )
        for driver in found
    )


def driver_names(case: Case) -> Naming | None:
    """Names of drivers: the move that a probability or a cost belongs to; None where a family names its own."""
    if case.family is not None:
        return None
    width = case.shape[2]

    def name(state: int, action: int, slot: int) -> str:
        if case.laid is not None and slot < width:
            return _outcome(case, state, action, slot)
        follower = _follower(case, state, action, slot)
        move = f"{case.facts.states[state]}, {case.facts.actions[action]}" + (f" → {follower}" if follower else "")
        return move if slot < width else f"cost of {move}"

    return name


def unknowns(case: Case, shape: tuple[int, ...]) -> dict[str, int]:
    """Names of the numbers theta is made of that are not known, and their places in a flattened theta."""
    if case.family is not None:
        places = (tuple(int(i) for i in np.unravel_index(k, shape)) for k in range(int(np.prod(shape))))
        return {case.family.model.name_of(place, shape): k for k, place in enumerate(places)}
    own, entry = case.shape, case.support.allowed()
    free = entry & (entry.sum(axis=2, keepdims=True) > 1)
    if case.costs is not None and case.costs.spread is not None:
        free = np.concatenate([free, (case.costs.spread > 0).reshape(*own[:2], -1)], axis=2)
    facts = case.facts
    named = {}
    for state, action, slot in np.argwhere(free).tolist():
        if case.laid is not None and slot < own[2]:
            named.setdefault(f"P({_outcome(case, state, action, slot)})", _place(state, action, slot, shape))
            continue
        pair, follower = f"{facts.states[state]}, {facts.actions[action]}", _follower(case, state, action, slot)
        if slot < own[2]:
            name = f"P({follower} | {pair})"
        else:
            name = f"cost({pair})" if follower is None else f"cost({pair}, {follower})"
        named[name] = _place(state, action, slot, shape)
    return named


def _place(state: int, action: int, slot: int, shape: tuple[int, ...]) -> int:
    return int(np.ravel_multi_index((state, action, slot), shape))


def _outcome(case: Case, state: int, action: int, slot: int) -> str:
    """What an entry of a law is the chance of, with the law's name where there are several."""
    assert case.laid is not None and case.facts.outcomes is not None
    law, laws = int(case.laid.law[state, action]), case.facts.outcomes.laws
    outcome = case.follower(state, action, slot)
    return f"outcome {outcome}" if len(laws) < 2 or law >= len(laws) else f"{laws[law]} → {outcome}"


def _follower(case: Case, state: int, action: int, slot: int) -> str | None:
    """The state that an entry of a pair's row is about, probabilities before costs; None for the cost of the pair."""
    assert case.costs is not None
    width = case.shape[2]
    if slot >= width:
        if case.costs.mean.ndim == 2:
            return None
        slot -= width
    return case.follower(state, action, slot)
