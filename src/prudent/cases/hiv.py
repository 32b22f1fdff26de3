"""Treatment of HIV (trial ACTG 175): which of four therapies for whom, by the CD4 count before it.

2,139 patients were given one of four therapies at random. CD4 counts were taken before, after 20 weeks and after 96. A
state is a band of counts; after the first weeks it also holds the therapy, because nobody changed it: the one choice is
that at the start. The outcome after 96 weeks is a band, or an event before (AIDS, death, or half of the count lost).
Who was not counted after 96 weeks and had no event until then is lost, and only the first step is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..kernels import Support
from ..models import TabularFamily
from ..posteriors import OutcomeLaws
from .held_out import HeldOutOutcome, column, held_out, plans_of, splits_of

THERAPIES = ("zidovudine", "zidovudine and didanosine", "zidovudine and zalcitabine", "didanosine")
SHORT = ("zdv", "zdv+ddi", "zdv+ddc", "ddi")
EDGES = (250, 350, 450)
BANDS = ("below 250", "250 to 349", "350 to 449", "450 and more")
EVENT = len(BANDS)
WEEK_96 = 96 * 7

# What an outcome costs, from none to all of a good life lost: ours, to be changed in costs.csv.
COSTS = (0.6, 0.3, 0.1, 0.0, 1.0)
DISCOUNT = 0.99
PRIOR = 0.5

ARMS = len(THERAPIES)
FIRST, LATER, LAST = 0, len(BANDS), len(BANDS) * (1 + ARMS)
STATES = LAST + EVENT + 1


class Patients(NamedTuple):
    """Those of the trial.

    Attributes:
        arm: `[P]` the therapy.
        before: `[P]` band at the start.
        after: `[P]` band after 20 weeks.
        outcome: `[P]` band after 96 weeks, 4 for an event; -1 for those lost.
    """

    arm: np.ndarray
    before: np.ndarray
    after: np.ndarray
    outcome: np.ndarray

    def only(self, which: np.ndarray) -> Patients:
        """Some of them."""
        return Patients(*(each[which] for each in self))

    def __len__(self) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        return len(self.arm)


def patients() -> Patients:
    """All of them, in the order of the file."""
    arm, event, days = (column("hiv.csv", name) for name in ("arm", "event", "days"))
    weeks = [column("hiv.csv", f"week{week}") for week in (0, 20, 96)]
    bands = [np.digitize(each, EDGES) for each in weeks]
    lost = np.isnan(weeks[2])
    outcome = np.where(lost, -1, bands[2])
    # An event counts where it came first, whether or not a count was taken afterwards.
    outcome = np.where((event == 1) & (days <= WEEK_96), EVENT, outcome)
    return Patients(arm.astype(int), bands[0], bands[1], outcome)


def state_names() -> list[str]:
    """By number."""
    later = [f"week 20: {band}, {therapy}" for therapy in SHORT for band in BANDS]
    return [f"start: {band}" for band in BANDS] + later + [f"week 96: {band}" for band in BANDS] + ["event"]


def later(band: np.ndarray, arm: np.ndarray) -> np.ndarray:
    """The state after 20 weeks."""
    return LATER + len(BANDS) * arm + band


def moves() -> list[tuple[int, int, int, int, int]]:
    """Where outcomes lead: state, action, outcome, next state, law; after 20 weeks the law is that of the therapy."""
    found = []
    for band in range(len(BANDS)):
        for arm in range(ARMS):
            for outcome in range(len(BANDS)):
                following = int(later(np.array(outcome), np.array(arm)))
                found.append((band, arm, outcome, following, band * ARMS + arm))
            state = int(later(np.array(band), np.array(arm)))
            law = len(BANDS) * ARMS + band * ARMS + arm
            found += [
                (state, any_, outcome, LAST + outcome, law) for any_ in range(ARMS) for outcome in range(EVENT + 1)
            ]
    return found


def model_of(before: np.ndarray) -> tuple[TabularFamily, OutcomeLaws]:
    """The model of patients who begin in these bands, and the belief before any of them was seen."""
    width = EVENT + 1
    index = np.broadcast_to(np.arange(STATES)[:, None, None], (STATES, ARMS, width)).copy()
    sizes, law = np.ones((STATES, ARMS), int), np.full((STATES, ARMS), 2 * len(BANDS) * ARMS)
    cost = np.zeros((STATES, ARMS, width))
    for state, action, outcome, following, which in moves():
        index[state, action, outcome], law[state, action] = following, which
        sizes[state, action] = max(sizes[state, action], outcome + 1)
        cost[state, action, outcome] = COSTS[outcome] if following >= LAST else 0.0
    lists = [[index[s, a, : sizes[s, a]].tolist() for a in range(ARMS)] for s in range(STATES)]
    support = Support.lists(lists)
    start = np.zeros(STATES)
    start[: len(BANDS)] = np.bincount(before, minlength=len(BANDS)) / len(before)
    return TabularFamily(support, cost[:, :, : support.successors], start, DISCOUNT), OutcomeLaws(support, law, PRIOR)


def believed(prior: OutcomeLaws, of: Patients) -> OutcomeLaws:
    """The belief after some patients; of those lost the first step alone."""
    seen = np.zeros(prior.seen.shape)
    np.add.at(seen, (of.before * ARMS + of.arm, of.after), 1.0)
    told = of.outcome >= 0
    second = len(BANDS) * ARMS + of.after[told] * ARMS + of.arm[told]
    np.add.at(seen, (second, of.outcome[told]), 1.0)
    return OutcomeLaws(prior.support, prior.law, prior.prior, seen=seen)


def log_of(of: Patients) -> list[tuple[int, int, int, int, int]]:
    """Rows `unit, time, state, action, next_state`."""
    rows = []
    for patient, (arm, before, after, outcome) in enumerate(zip(*of, strict=True)):
        middle = int(later(after, arm))
        rows.append((patient, 0, int(before), int(arm), middle))
        if outcome >= 0:
            rows.append((patient, 20, middle, int(arm), LAST + int(outcome)))
    return rows


def means_by_arm(of: Patients, lost_as: float | None = None) -> Float[np.ndarray, "4 4"]:
    """`[band, arm]` mean cost of the patients who began in a band and were given an arm.

    Chance gave the arm, so these means are of the therapy and of nothing else. Those lost are stood for by those of
    the same band after 20 weeks and the same arm who were not: each counts so often more. With `lost_as` they count as
    this cost.
    """
    cost = np.append(COSTS, np.nan)[of.outcome]
    weight = np.ones(len(of))
    told = of.outcome >= 0
    if lost_as is None:
        cell = of.after * ARMS + of.arm
        share = np.bincount(cell, told, len(BANDS) * ARMS) / np.maximum(
            np.bincount(cell, minlength=len(BANDS) * ARMS), 1
        )
        weight = np.where(told, 1.0 / np.maximum(share[cell], 1e-9), 0.0)
    cost = np.where(told, cost, 0.0 if lost_as is None else lost_as)
    place = of.before * ARMS + of.arm
    total, number = (np.bincount(place, each, len(BANDS) * ARMS) for each in (weight * cost, weight))
    return (DISCOUNT * total / np.maximum(number, 1e-9)).reshape(len(BANDS), ARMS)


def value(table: Float[np.ndarray, "S A"], of: Patients, lost_as: float | None = None) -> float:
    """The mean cost of a plan on patients who were treated at random."""
    share = np.bincount(of.before, minlength=len(BANDS)) / len(of)
    return float(share @ (table[: len(BANDS)] * means_by_arm(of, lost_as)).sum(axis=1))


def rule_of(table: Float[np.ndarray, "S A"]) -> str:
    """The likeliest therapy of each band."""
    return " ".join(SHORT[int(arm)] for arm in np.argmax(table[: len(BANDS)], axis=1))


def outcomes(sizes: Sequence[int] = (100, 400), splits: int = 3, seed: int = 0) -> list[HeldOutOutcome]:
    """Plans from some patients, held against the others."""
    everyone, found = patients(), []
    for size in sizes:
        for split, (part, rest) in enumerate(splits_of(len(everyone), size, splits, seed)):
            some, others = everyone.only(part), everyone.only(rest)
            model, prior = model_of(some.before)
            belief = believed(prior, some)
            counts = np.zeros((STATES, ARMS))
            for _, _, state, action, _ in log_of(some):
                counts[state, action if state < LATER else slice(None)] += 1.0
            made = plans_of(model, belief, counts, split)
            again = lambda picked, table, others=others: value(table, others.only(picked))  # noqa: E731
            more = {"units": len(others), "draws": 200}
            found += held_out(f"{size} patients", split, made, lambda table: table, again, rule_of, **more)
    return found
