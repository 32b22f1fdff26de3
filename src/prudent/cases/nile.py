"""A reservoir on the Nile: a hundred years of inflow at Aswan, and how much to let through each year.

Amounts are in steps of ten cubic kilometres. A state is the water at hand once the year's flood has come in, an action
how much is let through; both are known, and so is what is left. What is unknown is the law of the inflow, one for all
years: every year tells of it, whatever was at hand.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ..kernels import Support
from ..models import TabularFamily
from ..posteriors import OutcomeLaws
from .held_out import HeldOutOutcome, column, held_out, plans_of, splits_of

STEP = 100  # of the file's unit, 1e8 cubic metres: ten cubic kilometres
LEAST, MOST = 4, 15  # inflows that are thought possible, in steps
HOLDS = 12  # what the reservoir can keep for the next year
RELEASES = (6, 7, 8, 9, 10, 11, 12)
DEMAND, SAFE = 9, 12  # below the first fields are dry, above the second banks are flooded
DROUGHT, FLOOD = 1.0, 2.0  # cost of a step below or above, by its square
NOT_THERE = 0.01  # cost of a step that is to be let through and is not there, so that rules name amounts that are
DISCOUNT = 0.95
PRIOR = 0.25  # pseudo-count of each inflow: three years' worth in all
BEFORE_THE_BREAK = 28  # years to 1898

STATES = HOLDS + MOST + 1
START = HOLDS // 2 + DEMAND


def inflows() -> tuple[np.ndarray, np.ndarray]:
    """Years, and the inflow of each in steps."""
    year, volume = column("nile.csv", "year"), column("nile.csv", "volume")
    return year.astype(int), np.clip(np.round(volume / STEP).astype(int), LEAST, MOST)


def kept(state: int, action: int) -> int:
    """What is left in the reservoir after a release."""
    return min(max(state - RELEASES[action], 0), HOLDS)


def costs() -> Float[np.ndarray, "S A"]:
    """Squares of what is missing below the demand and of what runs above the banks, with water that does not fit."""
    table = np.zeros((STATES, len(RELEASES)))
    for state in range(STATES):
        for action, release in enumerate(RELEASES):
            through = min(release, state)
            flow = through + max(state - through - HOLDS, 0)
            table[state, action] = DROUGHT * max(DEMAND - through, 0) ** 2 + FLOOD * max(flow - SAFE, 0) ** 2
            table[state, action] += NOT_THERE * (release - through)
    return table


def reservoir(years: Sequence[int] | np.ndarray) -> tuple[TabularFamily, OutcomeLaws]:
    """The model, and the belief after these inflows."""
    lists = [[[kept(s, a) + w for w in range(LEAST, MOST + 1)] for a in range(len(RELEASES))] for s in range(STATES)]
    support = Support.lists(lists)
    seen = np.bincount(np.asarray(years) - LEAST, minlength=MOST - LEAST + 1)[None].astype(float)
    law = np.zeros((STATES, len(RELEASES)), int)
    belief = OutcomeLaws(support, law, PRIOR, seen=seen)
    return TabularFamily(support, costs(), START, DISCOUNT), belief


def log_of(years: np.ndarray, inflow: np.ndarray) -> list[tuple[int, int, int, int]]:
    """Rows `time, state, action, next_state` of letting the demand through, year by year."""
    rows, state = [], START
    for year, water in zip(years, inflow, strict=True):
        action = RELEASES.index(DEMAND)
        following = kept(state, action) + int(water)
        rows.append((int(year), state, RELEASES[action], following))
        state = following
    return rows


def replayed(table: Float[np.ndarray, "S A"], inflow: np.ndarray) -> Float[np.ndarray, " Y"]:
    """`[Y]` discounted cost of a plan that starts in each of the years and meets the inflows from there, in a ring.

    Nobody's release changes the rain, so any plan can be played on the record as it was. What a plan leaves to chance
    is followed with its probabilities.
    """
    years, horizon = len(inflow), int(np.ceil(np.log(1e-3) / np.log(DISCOUNT)))
    place = np.array([[kept(s, a) for a in range(len(RELEASES))] for s in range(STATES)])
    paid = (table * costs()).sum(axis=1)
    held = np.zeros((years, STATES))
    held[:, START] = 1.0
    total = np.zeros(years)
    for step in range(horizon):
        total += DISCOUNT**step * held @ paid
        water = inflow[(np.arange(years) + step) % years]
        moved = np.zeros((years, HOLDS + 1))
        for action in range(len(RELEASES)):
            np.add.at(moved.T, place[:, action], (held * table[:, action]).T)
        held = np.zeros((years, STATES))
        for year in range(years):
            held[year, water[year] : water[year] + HOLDS + 1] = moved[year]
    return total


def rule_of(table: Float[np.ndarray, "S A"]) -> str:
    """The mean release with little, some and much water at hand."""
    mean = table @ np.array(RELEASES)
    return "/".join(f"{mean[state]:.3g}" for state in (DEMAND, START, HOLDS + DEMAND))


def outcomes(sizes: Sequence[int] = (10, 30), splits: int = 3, seed: int = 0) -> list[HeldOutOutcome]:
    """Plans from some years held against the others: at random, and before the break against after."""
    years, inflow = inflows()
    found = []
    for size in sizes:
        for split, (part, rest) in enumerate(splits_of(len(years), size, splits, seed)):
            found += _held(f"{size} years", split, inflow[part], inflow[rest])
    first = slice(0, BEFORE_THE_BREAK)
    return found + _held(f"{years[0]}–{years[BEFORE_THE_BREAK - 1]}", 0, inflow[first], inflow[BEFORE_THE_BREAK:])


def _held(label: str, split: int, part: np.ndarray, rest: np.ndarray) -> list[HeldOutOutcome]:
    model, belief = reservoir(part)
    counts = np.full((STATES, len(RELEASES)), float(len(part)))
    losses = lambda table: replayed(table, rest)  # noqa: E731
    again = lambda picked, each: float(each[picked].mean())  # noqa: E731
    return held_out(label, split, plans_of(model, belief, counts, split), losses, again, rule_of, block=10)
