"""Names and numbers as a reader sees them."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence

from .parts import Difference, EvidenceRecord, PriorRecord

# Characters that reorder what stands around them; a name may not do that to the page.
REORDERING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def clean(text: str) -> str:
    """A text without characters that no page can show: control characters, halves of characters, reordering marks."""
    text = " ".join(text.split()) if any(character in text for character in "\n\r\t") else text
    return "".join(
        "\ufffd" if character in REORDERING or unicodedata.category(character) in ("Cc", "Cs") else character
        for character in text
    )


def shorten(text: str, length: int, tail: int = 0) -> str:
    """A text cut to a length, with an ellipsis for what is gone; so many characters are kept of its end.

    >>> shorten("a long way", 6), shorten("a long way", 6, tail=3), shorten("short", 6)
    ('a lon…', 'a …way', 'short')
    """
    if len(text) <= length:
        return text
    return f"{text[: length - tail - 1]}…{text[len(text) - tail :]}"


def short_names(names: Sequence[str], length: int) -> list[str]:
    """Names cut for an axis: at the end, or in the middle where that keeps more of them apart.

    >>> short_names(["state one of ten", "state two of ten"], 10)
    ['state one…', 'state two…']
    >>> short_names(["worn, run → new", "worn, run → old"], 11)
    ['worn, … new', 'worn, … old']
    """
    names = [clean(name) for name in names]
    # Full-width characters take the room of two.
    length -= min(length // 2, max((sum(map(_is_wide, name[:length])) for name in names), default=0) // 2)
    ends = [shorten(name, length) for name in names]
    middles = [shorten(name, length, tail=2 * length // 5) for name in names]
    return middles if len(set(middles)) > len(set(ends)) else ends


def in_lines(text: str, length: int) -> list[str]:
    """A text in one line, or in two of which the first ends where a word does if that leaves both short enough.

    >>> in_lines("worn, run → broken", 23), in_lines("a rather long name of a state", 23)
    (['worn, run → broken'], ['a rather long name of a', 'state'])
    """
    if len(text) <= length:
        return [text]
    space = text.rfind(" ", max(0, len(text) - length - 1), length + 1)
    cut = space if space > 0 else length
    return [text[:cut], text[cut:].strip()]


def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in "WF"


def figure_text(text: str, length: int = 1000) -> str:
    """A text for a figure; plotly reads tags and entities in labels, so here they are written as entities."""
    short = shorten(clean(text), length)
    return short.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def number(value: float | None, digits: int = 4) -> str:
    """A number with so many significant digits, without an exponent where it is readable without.

    >>> number(1234.5678), number(0.00001234), number(None)
    ('1235', '1.234e-05', 'not known')
    """
    if value is None or not math.isfinite(value):
        return "not known"
    if value == 0:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    text = f"{value:.{digits - 1}e}" if decimals > digits + 3 or decimals < -5 else f"{value:.{max(decimals, 0)}f}"
    return text.replace("-", "−", 1) if text.startswith("-") else text


def with_error(value: float | None, error: float | None, digits: int = 4) -> str:
    """A number with its standard error, which has two digits, and the number ends where the error does.

    Nothing stands behind a number without error, which gets so many digits.

    >>> with_error(12.3456, 0.0789), with_error(3.0, 0.0), with_error(3.0, None), with_error(None, None)
    ('12.346 ± 0.079', '3.000', '3.000 ± unknown', 'not known')
    """
    if value is None or (error is not None and error <= 1e-12 * abs(value)):
        return number(value, digits)
    if error is None:
        return f"{number(value, digits)} ± unknown"
    decimals = 1 - math.floor(math.log10(error))
    if decimals > 8 or decimals < -5:
        return f"{number(value)} ± {number(error, 2)}"
    decimals = max(decimals, 0)
    return f"{value:.{decimals}f} ± {error:.{decimals}f}".replace("-", "−", 1)


def between(low: float | None, high: float | None, confidence: str, digits: int = 3) -> str:
    """A confidence interval, with what it holds.

    >>> between(1.0, 2.0, "95 %"), between(None, None, "95 %")
    ('95 % interval 1.00 to 2.00', 'interval not known')
    >>> between(1.0, 2.0, "95 % nominally: only 7 draws in the tail")
    'interval 1.00 to 2.00, 95 % nominally: only 7 draws in the tail'
    """
    if low is None or high is None:
        return "interval not known"
    ends = f"interval {number(low, digits)} to {number(high, digits)}"
    return f"{confidence} {ends}" if confidence.endswith("%") else f"{ends}, {confidence}"


def nominally(confidence: str) -> str:
    """What is to be said behind "95 % confidence".

    >>> nominally("95 %"), nominally("95 % nominally: only 7 draws in the tail")
    ('', ' (nominally: only 7 draws in the tail)')
    """
    rest = confidence.removeprefix("95 %").strip()
    return f" ({rest})" if rest else ""


def compared(difference: Difference | None) -> str:
    """How one risk compares with another on the same draws, in words that hold whatever the numbers.

    >>> def apart(value, error, low, high):
    ...     return compared(Difference(value=value, standard_error=error, low=low, high=high))
    >>> apart(0.5, 0.1, 0.3, 0.7), apart(-0.5, 0.0, -0.5, -0.5)
    ('0.500 more (95 % interval 0.300 to 0.700)', '0.500 less (exact)')
    >>> apart(0.02, 0.1, -0.18, 0.22), apart(0.0, 0.0, 0.0, 0.0)
    ('not clearly different (0.0200 more on these draws, 95 % interval −0.180 to 0.220)', 'the same')
    """
    if difference is None:
        return "not compared"
    value, low, high = difference.value, difference.low, difference.high
    if value is None:
        return "not comparable"
    size = f"{number(abs(value), 3)} {'more' if value > 0 else 'less'}"
    if value == low == high:
        return f"{size} (exact)" if value else "the same"
    if low is None or high is None:
        return f"{size} on these draws, with an error that is not known" if value else "the same on these draws"
    interval = between(low, high, difference.confidence)
    return f"{size} ({interval})" if difference.clear else f"not clearly different ({size} on these draws, {interval})"


def percent(share: float) -> str:
    """A share as a percentage; never 0 % for what is not nothing, nor 100 % for what is not all.

    >>> percent(0.1234), percent(0.0), percent(0.0001), percent(0.9999), percent(1.0)
    ('12 %', '0 %', 'under 0.1 %', 'over 99.9 %', '100 %')
    """
    hundred = 100.0 * share
    if 0 < hundred < 0.1:
        return "under 0.1 %"
    if 99.9 < hundred < 100.0 - 1e-7:
        return "over 99.9 %"
    fine = 0 < hundred < 9.95 or 99.0 < hundred <= 99.9
    return f"{hundred:.1f} %" if fine else f"{hundred:.0f} %"


def evidence_words(evidence: EvidenceRecord, risk_name: str) -> list[tuple[str, str]]:
    """What a risk stands on, as (label, text).

    >>> evidence_words(EvidenceRecord(word=None, message="no counts", few=5), "CVaR 0.9")
    [('evidence', 'not judged: no counts')]
    """
    if evidence.word is None or evidence.time is None or evidence.tail_time is None:
        return [("evidence", f"not judged: {evidence.message}")]
    leans = f"{percent(evidence.time)} of its discounted time, {percent(evidence.tail_time)} in the tail of the risk"
    named = [f"{each.state}/{each.action} ({several(round(each.rows), 'row')})" for each in evidence.pairs[:4]]
    more = len(evidence.pairs) - len(named) + evidence.pairs_left_out
    named += [f"{more:,} more"] if more else []
    return [
        ("evidence", f"{evidence.word}: {evidence.message}"),
        *(("other prior", f"{other.name}: {under_prior(other, risk_name)}") for other in evidence.others),
        (f"under {evidence.few} rows", leans + (f": {', '.join(named)}" if named else "")),
    ]


def under_prior(other: PriorRecord, risk_name: str) -> str:
    """The answer under another prior.

    >>> under_prior(PriorRecord(name="seen successors only", risk=12.0, exceeded=0.25, gain=None), "CVaR 0.9")
    'CVaR 0.9 12.00, loss above the stated risk in 25 % of its draws'
    """
    gain = "" if other.gain is None else f", a plan for its mean loses {number(other.gain, 3)} less there"
    return (
        f"{risk_name} {number(other.risk)}, loss above the stated risk in {percent(other.exceeded)} of its draws{gain}"
    )


def several(count: int, noun: str) -> str:
    """A count with its noun.

    >>> several(1, "state"), several(1200, "state")
    ('1 state', '1,200 states')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def seconds(value: float) -> str:
    """A duration.

    >>> seconds(0.25), seconds(75.0), seconds(7260.0)
    ('0.250 s', '1 min 15 s', '2 h 1 min')
    """
    if value < 60:
        return f"{number(value, 3)} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
