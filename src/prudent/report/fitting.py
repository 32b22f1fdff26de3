"""How well the model fits the log: its record, its words, its figures."""

from __future__ import annotations

from typing import Any, Literal

from ..problems import Fit
from .page import NEUTRAL, TAIL, axis, blank, faded, figure_html, named_places, plan_colour
from .parts import Count, MaybeShare, Part, Several
from .words import figure_text, number, percent

QUESTIONS = {
    "order": "is the state enough?",
    "time": "do the laws stay the same?",
    "unit": "are the units alike?",
    "cost": "does the model explain the costs?",
}
GOOD = {
    "order": "no sign that the step before matters",
    "time": "no sign of a change over time",
    "unit": "no sign that units differ",
    "cost": "no sign that costs go by time, unit or what came before",
}
BAD = {
    "order": "no: where a step leads also depends on the step before; add to the state what carries over",
    "time": "no: where steps lead changes over time; use the recent part of the log, or add to the state what changed",
    "unit": "no: where steps lead depends on the unit; add its kind to the state, or plan for the kinds apart",
    "cost": "no: the same move costs more or less by time, by unit or after other steps; add to the state what costs "
    "go by",
}
BANDS = {
    "time": ("over time", "Steps by time"),
    "unit": ("by unit", "Steps by unit"),
    "order": ("by the step before", "Steps by what came before"),
}
MEASURES = {"level": "levels farther than expected", "surprise": "more surprising than expected, in nats"}


class QuestionRecord(Part):
    """One question to the log: see `LogTest`; `answer` is in words."""

    name: Literal["order", "time", "unit", "cost"]
    answer: str
    fails: bool
    p: MaybeShare
    adjusted: MaybeShare
    rows: Count
    strength: MaybeShare


class BandRecord(Part):
    """Groups of steps, what happened in each and where the belief puts it; see `Band`."""

    name: Literal["time", "unit", "order"]
    labels: Several[str]
    rows: Several[Count]
    observed: Several[float]
    low: Several[float]
    high: Several[float]

    @property
    def outside(self) -> int:
        """How many groups lie outside of their band."""
        return sum(not low <= seen <= high for seen, low, high in zip(self.observed, self.low, self.high, strict=True))


class FitRecord(Part):
    """How well the model fits the log.

    Attributes:
        tests: the four questions.
        when: how the time of a row is known.
        measure: what the bands are of.
        bands: what the belief foretells of groups of steps, and what happened.
        seen_part: rows that all this is of, where the log has more; None where it is of all.
    """

    tests: Several[QuestionRecord]
    when: str
    measure: Literal["level", "surprise"]
    bands: Several[BandRecord]
    seen_part: Count | None = None


def fit_record(fit: Fit | None) -> FitRecord | None:
    """A fit with its answers in words."""
    if fit is None:
        return None
    tests = tuple(QuestionRecord.of(test, answer=_answer(test)) for test in fit.tests)
    bands = tuple(BandRecord.of(band, name=name) for name, band in fit.bands.items())
    return FitRecord.of(fit, tests=tests, bands=bands)


def _answer(test: Any) -> str:
    if test.fails or test.p is not None:
        return (BAD if test.fails else GOOD)[test.name]
    thin = f" ({test.rows} rows tell anything)" if test.rows > 0 else ""
    return f"not tested: {test.reason}{thin}"


def fit_words(record: FitRecord) -> list[tuple[str, str, str]]:
    """By question: its answer, and the p value with what it rests on."""
    answers = {test.answer for test in record.tests}
    if len(answers) == 1 and record.tests[0].p is None:
        return [("all questions", answers.pop(), "")]
    lines = []
    for test in record.tests:
        tested = "" if test.p is None else f"p {p_value(test.adjusted)}, {test.rows:,} rows"
        if test.fails and test.strength is not None:
            tested += f", explains {percent(test.strength)}"
        lines.append((QUESTIONS[test.name], test.answer, tested))
    return lines


def p_value(p: float | None) -> str:
    """A p value without digits that mean nothing."""
    return "" if p is None else "below 0.005" if p < 0.005 else f"{p:.2f}"


def band_figure(record: FitRecord, band: BandRecord) -> Any:
    """Groups as bars of what the belief foretells, with a dot for what happened, red outside of its bar."""
    title = MEASURES[record.measure]
    many = len(band.labels)
    places, left = named_places(band.labels)
    figure = blank(60 + 16 * many, left=left)
    colours = [
        plan_colour(0) if low <= seen <= high else TAIL
        for seen, low, high in zip(band.observed, band.low, band.high, strict=True)
    ]
    position, lengths = list(range(many)), [high - low for low, high in zip(band.low, band.high, strict=True)]
    figure.add_bars(lengths, position, faded(NEUTRAL, 0.35), base=list(band.low), orientation="h", width=0.7)
    groups = zip(band.labels, band.observed, band.low, band.high, band.rows, strict=True)
    hover = [
        f"{figure_text(label)}: {number(seen, 3)}<br>foretold {number(low, 3)} to {number(high, 3)}<br>{n:,} rows"
        for label, seen, low, high, n in groups
    ]
    figure.add_dots(list(band.observed), position, {"color": colours, "size": 8}, hover)
    figure.update_layout(xaxis=axis(title), yaxis=places)
    return figure


def fit_figures(record: FitRecord | None) -> list[tuple[str, str, Any]]:
    """Heading, sentence and figure of each band."""
    found = []
    if record is None:
        return found
    for band in record.bands:
        how, heading = BANDS[band.name]
        expected = 0.1 * len(band.labels)
        said = f"{band.outside} of {len(band.labels)} groups lie outside; about {expected:.0f} would by chance."
        found.append((heading, said, figure_html(band_figure(record, band), f"steps {how}: foretold and seen")))
    return found
