"""Other questions about a run: how cautious to be, what a limit costs, what to measure next; kept in its record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..advice import frontier, limit_frontier, worth_of_data
from ..errors import InputError
from ..problems import Case, risk_name
from ..report import (
    FrontierRecord,
    SolutionRecord,
    WorthRecord,
    frontier_record,
    limit_frontier_record,
    worth_record,
)
from ..risks import CVaR
from .adding import added
from .checkpoint import Saved

# Levels of CVaR whose policies make a frontier of mean against tail.
LEVELS = (0.0, 0.5, 0.8, 0.9, 0.95)


def frontier_run(
    folder: str | Path,
    *,
    limit: str | None = None,
    points: int = 7,
    caution: bool = False,
    trust: bool = False,
    wait: bool = False,
) -> FrontierRecord:
    """What a limit of a run costs, level by level; without limits, what caution costs. It is added to the run's record.

    Args:
        folder: of the run.
        limit: the name of the limit that is varied; the first one when left out.
        points: how many levels of it.
        caution: whether the frontier of mean against tail is asked for, whatever limits there are.
        trust: import the code that the problem's `family` names.
        wait: until no other process changes the folder; refused otherwise if one does.

    >>> import prudent as pr
    >>> pr.frontier_run("no-such-folder")
    Traceback (most recent call last):
    prudent.errors.InputError: no-such-folder: there is no such folder; name the --out folder of prudent solve
    """

    def found(saved: Saved, arguments: dict[str, Any], _: SolutionRecord) -> FrontierRecord:
        limits = arguments.pop("subject_to", [])
        if caution or not limits:
            tail = arguments["risk"]
            parts = {name: arguments[name] for name in ("loss", "solver", "seed")}
            risks = [CVaR(level) for level in LEVELS]
            curve = frontier(arguments["model"], arguments["belief"], risks, tail=tail, radius=None, **parts)
            return frontier_record(curve, risk_name(saved.case.facts.file.risk))
        names = [each.called(place) for place, each in enumerate(limits)]
        if limit is not None and limit not in names:
            raise InputError(f"{folder}: has no limit {limit!r}; its limits are {', '.join(names)}")
        which = 0 if limit is None else names.index(limit)
        model, belief = arguments.pop("model"), arguments.pop("belief")
        curve = limit_frontier(model, belief, limits, which=which, points=points, **arguments)
        return limit_frontier_record(curve, which)

    return added(Path(folder), found, lambda curve: ({"frontier": curve}, {}), trust, wait)


def worth_run(
    folder: str | Path,
    *,
    observations: int = 10,
    pairs: int = 6,
    replications: int = 32,
    trust: bool = False,
    wait: bool = False,
) -> WorthRecord:
    """What more observations of the pairs that a run's policy meets most are worth; added to the run's record.

    Limits are left out of it: it is the fall of the least risk without them.

    Args:
        folder: of the run.
        observations: how many more of each pair.
        pairs: how many pairs are looked at, those with the most discounted time first.
        replications: simulated logs of each.
        trust: import the code that the problem's `family` names.
        wait: until no other process changes the folder; refused otherwise if one does.

    >>> import prudent as pr
    >>> pr.worth_run("no-such-folder")
    Traceback (most recent call last):
    prudent.errors.InputError: no-such-folder: there is no such folder; name the --out folder of prudent solve
    """

    def found(saved: Saved, arguments: dict[str, Any], record: SolutionRecord) -> WorthRecord:
        case = saved.case
        if case.family is not None and not hasattr(arguments["belief"], "update"):
            raise InputError(f"{folder}: its belief cannot be updated, so nothing can be said of more data")
        places = _met(record, case, pairs)
        worth = worth_of_data(
            arguments["model"],
            arguments["belief"],
            observations=observations,
            places=places,
            replications=replications,
            risk=arguments["risk"],
            loss=arguments["loss"],
            seed=arguments["seed"],
        )
        names = [", ".join(_place(case, row.place)) for row in worth.rows]
        return worth_record(worth, names)

    return added(Path(folder), found, lambda worth: ({"worth": worth}, {}), trust, wait)


def _place(case: Case, place: tuple[int, ...]) -> tuple[str, ...]:
    if len(place) == 2:
        return case.facts.states[place[0]], case.facts.actions[place[1]]
    return (f"theta{list(place)}",)


def _met(record: SolutionRecord, case: Case, most: int) -> list[tuple[int, ...]] | None:
    """The pairs with the most discounted time that lead to more than one state; None where theta is no table."""
    if record.occupancy is None or case.family is not None:
        return None
    open_ = case.support.allowed().sum(axis=2) > 1
    time = np.where(open_, record.occupancy, 0.0)
    order = np.argsort(-time.ravel(), kind="stable")[:most]
    chosen = [tuple(int(i) for i in np.unravel_index(k, time.shape)) for k in order if time.ravel()[k] > 0]
    if not chosen:
        raise InputError("the policy meets no pair that could lead to more than one state; there is nothing to observe")
    return chosen
