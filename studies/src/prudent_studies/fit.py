"""The tests of `prudent check` on simulated logs: false alarms where the model is right, power where it is not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from prudent import InputError
from prudent.fit import LEVEL, log_tests, outcomes_of
from prudent.tables import Rows

NAMES = ("order", "time", "unit", "cost")

# Fewer exchanges than `prudent check` makes: the level is the same, the power a little less.
EXCHANGES = 199


class Kind(NamedTuple):
    """A kind of log: sizes, and by which share of its weight a law departs from the model's.

    Attributes:
        states, actions, steps, units: of the log; steps are over all units.
        ordered: whether the tests may use the order of the states.
        order: share of the law that goes by the state before.
        time: share of the law at the end that is another one; it grows from 0.
        unit: share of the law that is the unit's own.
        cost: size of a slow hidden swing in the costs, in units of their noise.
    """

    states: int = 6
    actions: int = 2
    steps: int = 300
    units: int = 10
    ordered: bool = True
    order: float = 0.0
    time: float = 0.0
    unit: float = 0.0
    cost: float = 0.0


KINDS = {
    "right: 300 steps, 10 units": Kind(),
    "right: 300 steps, no order": Kind(ordered=False),
    "right: 100 steps, 5 units": Kind(steps=100, units=5),
    "right: 60 steps of one unit, 3 states": Kind(states=3, steps=60, units=1),
    "order, a quarter": Kind(order=0.25),
    "order, half": Kind(order=0.5),
    "time, half": Kind(time=0.5),
    "time, all": Kind(time=1.0),
    "unit, a quarter": Kind(unit=0.25),
    "unit, half": Kind(unit=0.5),
    "cost, half the noise": Kind(cost=0.5),
    "cost, as the noise": Kind(cost=1.0),
}


def simulated(kind: Kind, seed: int) -> Rows:
    """A log of a random model and a random policy, both new for each seed."""
    generator = np.random.default_rng([seed, kind.steps, kind.states])
    states, actions, units = kind.states, kind.actions, kind.units

    def laws(*more: int) -> np.ndarray:
        return generator.dirichlet(np.full(states, 0.4), size=(*more, states, actions))

    plain, later, after, own = laws(), laws(), laws(states), laws(units)
    policy = generator.dirichlet(np.ones(actions), size=states)
    rows, each = [], kind.steps // units
    for unit in range(units):
        state, before, swing = int(generator.integers(states)), -1, 0.0
        for step in range(each):
            action = int(generator.choice(actions, p=policy[state]))
            parts = [(kind.unit, own[unit]), (kind.time * step / each, later)]
            parts += [(kind.order, after[before])] if before >= 0 else []
            law = plain[state, action]
            for share, other in parts:
                law = (1.0 - share) * law + share * other[state, action]
            following = int(generator.choice(states, p=law / law.sum()))
            swing = 0.9 * swing + math.sqrt(1.0 - 0.81) * generator.normal()
            rows.append((state, action, following, unit, state + generator.normal() + kind.cost * swing))
            state, before = following, state
    found = np.array(rows)
    numbers = found[:, :4].astype(np.int64)
    state, action, following, unit = numbers.T
    return Rows(state, action, following, found[:, 4], unit if units > 1 else None, None)


def shares(kind: Kind, logs: int, seed: int) -> list[float]:
    """Share of logs in which each test has a p value of at most 5 %, and in which any fails when adjusted."""
    said = []
    for k in range(logs):
        rows = simulated(kind, seed + k)
        tests = log_tests(rows, outcomes_of(rows, kind.ordered), seed + k, EXCHANGES)
        single = [math.nan if test.p is None else float(test.p <= LEVEL) for test in tests]
        said.append([*single, float(any(test.fails for test in tests))])
    columns = np.array(said).T
    return [float(np.nanmean(column)) if np.isfinite(column).any() else math.nan for column in columns]


def compare(logs: int, seed: int, only: str = "") -> Iterator[tuple[str, list[float]]]:
    """The shares of every kind of log whose name begins so, as they are found."""
    kinds = [name for name in KINDS if name.startswith(only)]
    if not kinds:
        raise InputError(f"no kind of log begins with {only!r}; there are {'; '.join(KINDS)}")
    for name in kinds:
        yield name, shares(KINDS[name], logs, seed)
