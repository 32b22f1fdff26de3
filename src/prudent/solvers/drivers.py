"""Which unknowns drive the risk: those whose distribution the weights xi* change by more than chance.

Only what the policy meets is looked at: a row of a table counts if the policy spends a noticeable share of its
discounted time there, on average over the posterior or over the draws that make up the risk.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Bool, Float
from scipy import special

from ..objectives import Objective
from ..posteriors import WeightedDraws
from ..records import Record, field

# Chance that any driver is named at all if theta has nothing to do with the loss.
CHANCE = 0.05

# Only what moves by this many standard errors is worth ranking; it can but lower the number of drivers.
WORTH_RANKING = 2.0

# Without sampling error, what moves by less than this many standard deviations is not called a driver.
NOTICEABLE = 0.1


class Driver(Record):
    """A part of theta that the risk's weights pull away from where the posterior has it, by more than chance.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> solution = pr.solve(lake, lake.prior, risk=pr.CVaR(0.9), solver=pr.BRPG(iterations=20))
    >>> sorted(driver.place for driver in solution.certificate.drivers)  # slip is coordinate 0, escape is 1
    [(0,), (1,)]

    Attributes:
        place: index of the coordinate of theta; of a tabular family, state, action and place in the list of successors.
        shift: xi*-weighted mean less plain mean, in posterior standard deviations.
        standard_error: of the shift by chance alone, were this part of theta independent of the loss; 0 where the draws
            are the whole posterior.
        name: what it is called, such as `slip` or `worn, run → broken`.
    """

    place: tuple[int, ...] = field(static=True)
    shift: float
    standard_error: float
    name: str = field(static=True, default="")


def drivers_of(
    objective: Objective, point: np.ndarray, draws: WeightedDraws, weights: Float[np.ndarray, " M"]
) -> tuple[tuple[Driver, ...], int]:
    """The drivers of a policy's risk, the farthest pulled first, and how many unknowns were looked at.

    Args:
        objective: what knows which parts of theta a policy meets.
        point: the policy's.
        draws: of the posterior.
        weights: the density xi* that attains the risk on them.
    """
    thetas, shares, exact, _ = draws
    met = objective.met(point, thetas, np.stack([shares, shares * weights]))
    found, considered = drivers(thetas, weights, shares, met, exact)
    named = (dataclasses.replace(each, name=objective.name_of(each.place, thetas.shape[1:])) for each in found)
    return tuple(named), considered


def drivers(
    thetas: Float[np.ndarray, "M ..."],
    weights: Float[np.ndarray, " M"],
    probabilities: Float[np.ndarray, " M"],
    met: Bool[np.ndarray, "S A"] | None = None,
    exact: bool = False,
) -> tuple[tuple[Driver, ...], int]:
    """The drivers among the coordinates of theta, or among the rows met of a table, and how many were looked at.

    Were theta independent of the loss, each coordinate's ranks would be in random order along the weights. Normal
    scores of the ranks are tested against that, by Holm's rule, so that the chance to name any driver is at most 5 %.
    The chance is known whatever the coordinate's distribution, and for tails of few draws.
    """
    rows = np.argwhere(np.ones(1, bool) if met is None else met)
    pull = probabilities * (weights - 1.0)
    error = 0.0 if exact else float(np.sqrt((pull**2).sum()))
    found, chances, looked_at, known = [], [], 0, set()
    for row in rows:
        place = () if met is None else tuple(int(i) for i in row)
        entries = thetas[(slice(None), *place)].reshape(len(thetas), -1)
        # Rows that are tied are the same unknowns, shown by the first of them.
        if (values := hash(entries.tobytes())) in known:
            continue
        known.add(values)
        shift, free = _shifts(entries, pull, probabilities)
        # Two probabilities that sum to 1 are one unknown, shown by the one that grows.
        pair = met is not None and len(free) == 2
        looked_at += 1 if pair else len(free)
        slots = free[[int(shift[free].argmax())]] if pair else free
        shape = thetas.shape[1:] if met is None else thetas.shape[3:]
        chance = _chances(entries, pull, shift, error, slots)
        # Of a row, the successor that is pulled farthest.
        keep = slots if met is None else slots[np.argsort(-np.abs(shift[slots]))[:1]]
        for slot in keep:
            where = (*place, *(int(i) for i in np.unravel_index(slot, shape)))
            found.append(Driver(where, float(shift[slot]), error))
            chances.append(chance[slot])
    named = _holm(np.array(chances), looked_at)
    return tuple(sorted((found[k] for k in named), key=lambda driver: -abs(driver.shift))), looked_at


def _shifts(entries: np.ndarray, pull: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How far each entry's mean is pulled, in standard deviations, and which entries are not known."""
    centred = entries - probabilities @ entries
    spread = np.sqrt(probabilities @ centred**2)
    free = spread > 1e-12 * (1.0 + np.abs(entries).max(axis=0))
    return np.where(free, pull @ centred / np.where(free, spread, 1.0), 0.0), np.flatnonzero(free)


def _chances(entries: np.ndarray, pull: np.ndarray, shift: np.ndarray, error: float, slots: np.ndarray) -> np.ndarray:
    """Of each entry, the chance of scores pulled as far if the weights told nothing; 1 where it is not looked into."""
    chance = np.ones(len(shift))
    if error == 0.0:
        chance[slots] = np.where(np.abs(shift[slots]) >= NOTICEABLE, 0.0, 1.0)
        return chance
    moved = slots[np.abs(shift[slots]) >= WORTH_RANKING * error]
    if len(moved):
        ranks = np.stack([_ranks(entries[:, slot]) for slot in moved], axis=1)
        scores = special.ndtri(ranks / (len(entries) + 1.0))
        sizes = pull @ scores / (error * scores.std(axis=0, ddof=1))
        chance[moved] = 2.0 * special.ndtr(-np.abs(sizes))
    return chance


def _ranks(entries: np.ndarray) -> np.ndarray:
    """Ranks from 1 on, equal entries having their mean; SciPy's are in a package that takes a second to import."""
    _, places, counts = np.unique(entries, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - 0.5 * (counts - 1.0))[places]


def _holm(chances: np.ndarray, looked_at: int) -> list[int]:
    """Which of several tests, of so many that were made, hold at `CHANCE` together."""
    named: list[int] = []
    for k in np.argsort(chances, kind="stable"):
        if chances[k] > CHANCE / max(1, looked_at - len(named)):
            break
        named.append(int(k))
    return named
