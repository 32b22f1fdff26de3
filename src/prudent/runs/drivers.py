"""Which unknowns drive the tail: where the draws that make up the risk differ from all draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..problems import Case

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


def drivers_of(case: Case, thetas: np.ndarray, weights: np.ndarray) -> list[Driver]:
    """The unknowns whose xi*-weighted mean is off their posterior mean by more than chance, the furthest first."""
    flat = thetas.reshape(len(thetas), -1)
    plain, weighted = flat.mean(axis=0), weights @ flat / len(flat)
    deviation = flat.std(axis=0)
    # The effective number of draws behind the weighted mean, against those behind the plain one.
    noise = np.sqrt(np.mean((weights - 1.0) ** 2) / len(flat))
    free = deviation > 1e-12
    shift = np.where(free, (weighted - plain) / np.where(free, deviation, 1.0), 0.0)
    wanted = np.abs(shift) > CHANCE * noise
    name = _tabular(case, thetas.shape[1:], wanted, shift) if case.family is None else _parametric(thetas.shape[1:])
    order = np.argsort(-np.abs(np.where(wanted, shift, 0.0)), kind="stable")[:MOST_DRIVERS]
    return [Driver(name(int(k)), float(plain[k]), float(weighted[k]), float(shift[k])) for k in order if wanted[k]]


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


def _tabular(case: Case, shape: tuple[int, ...], wanted: np.ndarray, shift: np.ndarray) -> Any:
    """Names of the entries of a table; of two that sum to 1 only the one that grows is wanted."""
    assert case.successors is not None
    index, listed, (states, actions, width) = case.successors
    length = np.full((states, actions), width) if listed is None else listed.sum(axis=2)
    two = np.broadcast_to((length == 2)[:, :, None], shape).ravel()
    wanted &= ~(two & (shift < 0))

    def name(k: int) -> str:
        state, action, slot = (int(i) for i in np.unravel_index(k, shape))
        follower = slot if index is None else int(index[state, action, slot])
        return f"{case.facts.pair(state, action)} -> {case.facts.states[follower]}"

    return name
