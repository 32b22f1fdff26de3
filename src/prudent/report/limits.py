"""What a record says of limits: kept or not, how surely, what each costs, and what the other plans make of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from ..solvers import price_words
from .parts import Array, MaybeShare, Number, Part, Several, Share, Two
from .words import number, percent


class PlanLimitRecord(Part):
    """A limit under another plan, on the same draws.

    Attributes:
        name: of the plan.
        value: the risk of the limit's loss; with a chance, its quantile there.
        kept: posterior probability that the loss itself is within the limit.
        verdict: `kept`, `broken` or `open`.
    """

    name: str
    value: Number
    kept: Share
    verdict: Literal["kept", "broken", "open"]


class LimitRecord(Part):
    """One limit of a run.

    Attributes:
        name, unit: what a reader calls it, and what it is counted in; the unit may be empty.
        at_most: the limit.
        measure: what is kept below it, such as "CVaR 0.9", or the chance that was asked for.
        chance: the probability that was asked for; None for a limit in a risk.
        level: of the CVaR by which a limit with a chance was searched for.
        verdict: `kept`, `broken` or `open`: neither is shown.
        value: the risk of the limit's loss; with a chance, its quantile there.
        upper: one-sided confidence limit of the risk; the risk itself where it is exact.
        confidence: of `upper`, and with which the verdict holds.
        slack: what is left of the limit, below 0 where it is broken.
        kept, kept_interval: posterior probability that the loss itself is within the limit; exact binomial of 95 %.
        mean_violation, worst_violation: by how much the loss is above the limit, on average and at the worst draw.
        multiplier: of the limit; None where no policy that keeps the limits was found.
        prices: what one unit more saves and one unit less costs, to first order; the second is None where no policy
            near by keeps a tighter limit.
        least: what no policy gets the measure below on the draws; with a chance, the most probability any policy could
            have.
        proved: whether it is proved that no policy keeps it.
        plans: what the other plans make of it.
        losses: `[M]` the limit's loss at each draw.
    """

    name: str
    unit: str = ""
    at_most: float
    measure: str
    chance: MaybeShare = None
    level: MaybeShare = None
    verdict: Literal["kept", "broken", "open"]
    value: Number
    upper: Number
    confidence: Annotated[float, Field(ge=0.5, lt=1.0)]
    slack: Number
    kept: Share
    kept_interval: Two[Share]
    mean_violation: Number
    worst_violation: Number
    multiplier: Number
    prices: Two[Number] = (None, None)
    least: Number
    proved: bool
    plans: Several[PlanLimitRecord] = ()
    losses: Array


VERDICTS: dict[str, Any] = {"KEPT": "kept", "BROKEN": "broken", "OPEN": "open"}


def limit_record(answer: Any, place: int, measure: str, plans: Sequence[tuple[str, Any]]) -> LimitRecord:
    """A limit's answer as a record.

    Args:
        answer: a `LimitAnswer`.
        place: its place in the list of limits.
        measure: its risk in words.
        plans: other plans by name, each with its own `LimitAnswer`.
    """
    limit = answer.limit
    told = {name: getattr(limit, name) for name in ("unit", "chance")}
    return LimitRecord.of(
        answer,
        **told,
        name=limit.called(place),
        at_most=float(limit.at_most),
        measure=measure,
        verdict=VERDICTS[answer.verdict.name],
        upper=answer.upper if limit.chance is None else None,
        confidence=limit.confidence or 0.95,
        worst_violation=float(answer.violation.max()),
        plans=tuple(PlanLimitRecord.of(each, name=name, verdict=VERDICTS[each.verdict.name]) for name, each in plans),
        losses=np.asarray(answer.evaluation.losses),
    )


def limit_words(limit: LimitRecord, exact: bool, loss_name: str) -> list[str]:
    """A limit in sentences."""
    unit = f" {limit.unit}" if limit.unit else ""
    sure = f"{100.0 * limit.confidence:.4g} % confidence"
    said = {
        "kept": "kept" if exact else f"kept ({sure}, on fresh draws)",
        "broken": "broken" if exact else f"broken ({sure}, on fresh draws)",
        "open": "neither shown to be kept nor to be broken by these draws",
    }[limit.verdict]
    low, high = limit.kept_interval
    held = percent(limit.kept) + (" exactly" if exact else f" (95 % interval {percent(low)} to {percent(high)})")
    if limit.chance is None:
        reached = f"{limit.measure} {number(limit.value, 5)} of at most {number(limit.at_most, 5)}{unit}"
        if not exact and limit.upper is not None:
            reached += f", at most {number(limit.upper, 5)} with {sure}"
        words = [f"{said}: {reached}", f"the posterior probability that it is within the limit is {held}"]
    else:
        asked = f"at most {number(limit.at_most, 5)}{unit} with a probability of {percent(limit.chance)}"
        words = [f"{said}: asked for {asked}; reached is {held}"]
        if limit.level is not None:
            words.append(f"it was searched for by CVaR at level {number(limit.level, 3)}")
    if limit.mean_violation:
        most, mean = number(limit.worst_violation, 3), number(limit.mean_violation, 3)
        where = "atom" if exact else "draw"
        words.append(f"above the limit by {mean}{unit} on average over all {where}s, by {most} at the worst {where}")
    price = price_words(limit.multiplier, limit.prices, limit.unit, lambda each: number(each, 3))
    if price is not None:
        stands = "; by the CVaR that stands in for the chance" if limit.chance is not None else ""
        words.append(f"{price}, in the {loss_name}'s risk{stands}")
    if limit.proved:
        known = f"{number(limit.least, 5)}{unit}" if limit.chance is None else percent(limit.least or 0.0)
        best = f"even if theta were told before acting, the best would be {known}"
        words.append(f"{best}: no policy keeps it" + ("" if exact else ", with 95 % confidence"))
    return words
