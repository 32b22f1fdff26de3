"""What a search with limits asks next: larger samples, then aims and levels with which fresh draws show limits kept.

A policy that just keeps a limit on the draws it was fitted to breaks it on others as often as not. So aims are moved
below the limits until held-out draws show them kept with as much to spare as chance may take away. A limit with a
chance is searched for by CVaR, whose level is then lowered as far as held-out draws still show the chance reached.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float

from ...evaluation import Evaluation
from ...records import Record
from .answer import particle_errors, particle_margin, to_spare
from .limit import Limit

# What the points descend for.
FIRST, LARGER, AIMS, ELSEWHERE, LEVELS, SETTLED = range(6)

# Rounds in which aims are moved, and levels of one CVaR that are tried between two that are known.
MOST_AIMS, MOST_LEVELS = 8, 7

# A breach on the sample below this share of a unit is none.
BROKEN = 1e-3


class Adjustment(Record):
    """How far aims and levels have been adjusted.

    Attributes:
        task: what the points descend for.
        aims: `[L]` what each limit's risk is to be at most on the sample.
        levels: `[L]` of the CVaR that stands in for each limit's chance; NaN without one.
        tried: how often within the task.
        elsewhere: whether other starts have been tried, too.
        limit: whose level is adjusted.
        low, high: levels between which the least that will do is looked for; NaN before they are known.
    """

    task: int
    aims: Float[np.ndarray, " L"]
    levels: Float[np.ndarray, " L"]
    tried: int = 0
    elsewhere: bool = False
    limit: int = 0
    low: float = float("nan")
    high: float = float("nan")


def first_adjustment(limits: tuple[Limit, ...], bounds: Float[np.ndarray, " L"]) -> Adjustment:
    """Return aims at the limits, and levels at the chances."""
    levels = np.array([np.nan if limit.chance is None else limit.chance for limit in limits])
    return Adjustment(FIRST, bounds, levels)


class Shown(Record):
    """What held-out draws show of a policy that was fitted with certain aims and levels.

    Attributes:
        short: `[L]` what each limit lacks there, its margin included; at most 0 where it is kept.
        risk: of the objective there.
        breach: `[L]` by how much limits are above their aims on the sample, in units.
        binding: `[L]` whether a limit has a multiplier on the sample.
        aims, levels: it was fitted with.
    """

    short: Float[np.ndarray, " L"]
    risk: float
    breach: Float[np.ndarray, " L"]
    binding: np.ndarray
    aims: Float[np.ndarray, " L"]
    levels: Float[np.ndarray, " L"]

    def rank(self, units: Float[np.ndarray, " L"]) -> tuple[bool, float, float]:
        """Return what orders policies: kept before broken, then by the risk, or by what is lacking."""
        lacking = float(np.maximum(self.short / units, 0.0).sum())
        return lacking > 0.0, lacking, self.risk if lacking == 0.0 else 0.0


def lacking(limit: Limit, bound: float, held: Evaluation) -> float:
    """Return what a limit lacks: in its unit, or for a chance in probability, by the unit of its loss."""
    if limit.chance is not None:
        spared = 0.0 if limit.confidence is None else particle_margin(limit.confidence) * particle_errors(held)
        kept = float(np.asarray(held.probabilities)[np.asarray(held.losses) + spared <= bound].sum())
        short = limit.chance + to_spare(limit, held) - kept
        return short if short > 1e-12 else 0.0
    return held.risk + to_spare(limit, held) - bound if np.isfinite(held.risk) else np.inf


def next_adjustment(
    limits: tuple[Limit, ...],
    bounds: Float[np.ndarray, " L"],
    units: Float[np.ndarray, " L"],
    now: Adjustment,
    shown: Shown,
    best: Shown,
    exact: bool,
) -> Adjustment:
    """Return what is asked next, after held-out draws were looked at.

    Args:
        limits: that are to be kept.
        bounds: what they are at most, on the scale of the search.
        units: what they are measured in.
        now: what the newest policy was fitted for.
        shown: what held-out draws show of it.
        best: what they show of the best policy so far.
        exact: whether the sample is the whole posterior.
    """
    task, tried = now.task, now.tried
    if task in (FIRST, LARGER, ELSEWHERE, SETTLED):
        task, tried = AIMS, 0
    if task == AIMS:
        wanted = _next_aims(limits, bounds, units, shown, exact) if tried < MOST_AIMS else None
        if wanted is not None:
            return dataclasses.replace(now, task=AIMS, aims=wanted, tried=tried + 1)
        if best.rank(units)[0] and not now.elsewhere:
            return dataclasses.replace(now, task=ELSEWHERE, aims=shown.aims, tried=0, elsewhere=True)
        now = dataclasses.replace(now, task=LEVELS, limit=-1)
        return _next_limit(limits, now, best)
    return _next_level(limits, now, shown, best)


def _next_aims(
    limits: tuple[Limit, ...], bounds: np.ndarray, units: np.ndarray, shown: Shown, exact: bool
) -> Float[np.ndarray, " L"] | None:
    """Return aims that would just do; None where these do, within what is worth another descent."""
    aims = np.array(shown.aims)
    for j, limit in enumerate(limits):
        short, unit = float(shown.short[j]), float(units[j])
        if limit.chance is not None or not np.isfinite(short):
            continue
        if exact:
            aims[j] -= 1.5 * max(short, 0.0)
        elif limit.confidence is None or shown.breach[j] > BROKEN:
            # An aim that is out of reach on the sample: one below it would be, too.
            continue
        elif short > 0.0:
            aims[j] -= 1.05 * short + 0.5e-4 * unit
        elif short < -0.25 * abs(bounds[j] - aims[j]) - 1e-4 * unit and shown.binding[j]:
            aims[j] = min(aims[j] - 0.9 * short, bounds[j] + unit)
    return aims if np.any(aims != shown.aims) else None


def _next_limit(limits: tuple[Limit, ...], now: Adjustment, best: Shown) -> Adjustment:
    """Return the adjustment of the next limit that has a chance: lower levels are cheaper, higher ones safer."""
    for j in range(now.limit + 1, len(limits)):
        chance = limits[j].chance
        if chance is None:
            continue
        now = dataclasses.replace(now, limit=j, tried=0, aims=best.aims, levels=best.levels)
        if best.short[j] > 0.0:
            return _at_level(dataclasses.replace(now, low=np.nan, high=np.nan), _probes(chance)[0])
        now = dataclasses.replace(now, low=0.0, high=chance)
        return _at_level(now, 0.5 * chance)
    return dataclasses.replace(now, task=SETTLED, aims=best.aims, levels=best.levels)


def _probes(chance: float) -> tuple[float, ...]:
    """Return levels that are tried where the chance itself as a level does not do."""
    levels = (0.5 * (1.0 + chance), 0.25 + 0.75 * chance, 0.9 * chance, 0.6 * chance)
    return tuple(min(level, 0.999) for level in levels)


def _next_level(limits: tuple[Limit, ...], now: Adjustment, shown: Shown, best: Shown) -> Adjustment:
    """Return the next level of the CVaR that stands in for a chance: by bisection once one is known that will do."""
    j, chance = now.limit, limits[now.limit].chance
    assert chance is not None
    level, kept, tried = float(now.levels[j]), bool(shown.short[j] <= 0.0), now.tried + 1
    now = dataclasses.replace(now, tried=tried, aims=best.aims)
    if np.isnan(now.low):
        probes = _probes(chance)
        if kept:
            low, high = (chance, level) if level > chance else (0.0, level)
            now = dataclasses.replace(now, tried=0, low=low, high=high)
        elif tried < len(probes):
            return _at_level(now, probes[tried])
        else:
            return _next_limit(limits, now, best)
    else:
        low, high = (now.low, level) if kept else (level, now.high)
        now = dataclasses.replace(now, low=low, high=high)
    if now.tried >= MOST_LEVELS:
        return _next_limit(limits, now, best)
    return _at_level(now, 0.5 * (now.low + now.high))


def _at_level(now: Adjustment, level: float) -> Adjustment:
    levels = np.array(now.levels)
    levels[now.limit] = level
    return dataclasses.replace(now, levels=levels)
