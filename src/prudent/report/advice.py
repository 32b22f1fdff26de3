"""What a record says of other questions: how cautious to be, what a limit costs, what to measure next."""

from __future__ import annotations

from typing import Any

from .parts import Count, MaybeShare, Number, Part, Several, Two
from .words import number, percent


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
            "of least risk is the best policy that was found for that risk; theta known is one who learns theta before "
            "acting; all are judged on the same draws"
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
