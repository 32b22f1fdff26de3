"""What a record says of limits and their price: kept or not, what each level or caution costs, what to measure next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from ..solvers import price_words
from .parts import Array, Count, MaybeShare, Number, Part, Several, Share, Two
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
        verdict=answer.verdict.name.lower(),
        upper=answer.upper if limit.chance is None else None,
        confidence=limit.confidence or 0.95,
        worst_violation=float(answer.violation.max()),
        plans=tuple(PlanLimitRecord.of(each, name=name, verdict=each.verdict.name.lower()) for name, each in plans),
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


class CautionRecord(Part):
    """One policy of a frontier of mean against tail: its risk or rival's name, both numbers with their errors."""

    name: str
    mean: Number
    mean_standard_error: Number
    tail: Number
    tail_standard_error: Number


class LevelRecord(Part):
    """The answer at one level of a limit.

    Attributes:
        at_most: the level; the last one is such that the best policy without the limit can be shown to keep it.
        status: how it was solved.
        kept: whether every limit is shown to be kept.
        risk, interval: of the policy, and its 95 % confidence interval.
        multiplier: of the limit there.
        prices: what one unit more saves there and one unit less costs; None where it is not known.
        chance: posterior probability that the limit's loss is within the level.
    """

    at_most: float
    status: str
    kept: bool
    risk: Number
    interval: Two[Number]
    multiplier: Number
    prices: Two[Number] = (None, None)
    chance: MaybeShare = None


class FrontierRecord(Part):
    """A frontier: of mean against tail, or of a limit against the risk.

    Attributes:
        limit: the name of the limit that was varied; empty for a frontier of mean against tail.
        unit: of the limit.
        tail_name: the risk on the tail axis.
        caution: the policies of a frontier of mean against tail.
        levels: those of a limit, from the tightest on.
        least: below this level no policy keeps the limit; None where that is not known.
        exact: whether that is proved on all atoms, or shown with 95 % confidence.
    """

    limit: str = ""
    unit: str = ""
    tail_name: str = ""
    caution: Several[CautionRecord] = ()
    levels: Several[LevelRecord] = ()
    least: Number = None
    exact: bool = False


class WorthRowRecord(Part):
    """What more observations of one thing are worth, with the standard error."""

    name: str
    worth: Number
    standard_error: Number


class WorthRecord(Part):
    """What to measure next: by how much each kind of observation is expected to lower the risk, the most first."""

    observations: Count
    risk: Number
    rows: Several[WorthRowRecord]


def frontier_record(curve: Any, tail_name: str) -> FrontierRecord:
    """A frontier of mean against tail as a record."""
    points = tuple(CautionRecord.of(point) for point in (*curve.points, *curve.rivals))
    return FrontierRecord(tail_name=tail_name, caution=points)


def limit_frontier_record(curve: Any, place: int) -> FrontierRecord:
    """A frontier of a limit as a record."""
    return FrontierRecord(
        limit=curve.limit.called(place),
        unit=curve.limit.unit,
        least=curve.least,
        exact=all(point.solution.exact for point in curve.points),
        levels=tuple(
            LevelRecord.of(
                point,
                status=point.solution.status.name,
                risk=point.solution.risk,
                interval=point.solution.interval,
                multiplier=point.answer.multiplier,
                prices=point.answer.prices,
                chance=point.answer.kept,
            )
            for point in curve.points
        ),
    )


def frontier_rows(record: FrontierRecord) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """A frontier as a table: its head and its rows."""
    if record.limit:
        head = (f"{record.limit}, at most", "risk", "95 % interval", "one more saves", "kept with", "status")
        return head, [
            (
                number(level.at_most, 4),
                number(level.risk, 5),
                f"{number(level.interval[0], 5)} to {number(level.interval[1], 5)}",
                number(level.prices[0], 3),
                "–" if level.chance is None else percent(level.chance),
                level.status.lower().replace("_", " "),
            )
            for level in record.levels
        ]
    head = ("plan", "mean", "s.e.", record.tail_name, "s.e.")
    return head, [
        (
            f"{place} {each.name}",
            number(each.mean, 5),
            number(each.mean_standard_error, 2),
            number(each.tail, 5),
            number(each.tail_standard_error, 2),
        )
        for place, each in enumerate(record.caution, 1)
    ]


def worth_rows(record: WorthRecord) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Worth as a table."""
    head = (f"{record.observations:,} more of", "lowers the risk by", "s.e.")
    return head, [(row.name, number(row.worth, 3), number(row.standard_error, 2)) for row in record.rows]


def worth_record(found: Any, names: list[str]) -> WorthRecord:
    """The worth of data as a record; names belong to its rows, in their order."""
    rows = tuple(WorthRowRecord.of(row, name=name) for name, row in zip(names, found.rows, strict=True))
    return WorthRecord.of(found, rows=rows)


def frontier_notes(record: FrontierRecord, loss_name: str) -> list[str]:
    """What is to be said beside the table."""
    if not record.limit:
        return [
            "a line named after a risk is the best policy that was found for that risk; theta known is what one who "
            "learns theta before acting would lose; all are judged on the same draws"
        ]
    unit = f" {record.unit}" if record.unit else ""
    one = f"one unit ({record.unit})" if record.unit else "one unit"
    notes = [f"one more saves: what the risk of the {loss_name} falls by for {one} more, to first order"]
    if record.least is not None:
        sure = "" if record.exact else " (95 % confidence)"
        notes.append(f"below {number(record.least, 4)}{unit} no policy keeps the limit, even if theta were known{sure}")
    notes.append("the last line is the best policy found without the limit")
    return notes


def worth_notes(record: WorthRecord) -> list[str]:
    """What is to be said beside the table."""
    best = record.rows[0] if record.rows else None
    first = ["expected falls of the least risk, limits left out; what is below two standard errors may be nothing"]
    if best is None or best.worth is None or best.standard_error is None:
        return first
    if best.worth <= 2.0 * best.standard_error:
        return [*first, "none of these is clearly worth anything"]
    return first
