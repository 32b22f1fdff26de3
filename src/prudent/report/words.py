"""Names and numbers as a reader sees them."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence

from .data import Difference, Standing, UnderPrior

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


def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in "WF"


def figure_text(text: str, length: int = 1000) -> str:
    """A text for a figure; plotly reads tags and entities in labels, so here they are written as entities."""
    short = shorten(clean(text), length)
    return short.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def number(value: float | None, digits: int = 4) -> str:
    """A number with so many significant digits, without an exponent where it is readable without.

    >>> number(1234.5678), number(0.00001234), number(float("inf")), number(None)
    ('1235', '1.234e-05', '∞', 'not known')
    """
    if value is None:
        return "not known"
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    text = f"{value:.{digits - 1}e}" if decimals > digits + 3 or decimals < -5 else f"{value:.{max(decimals, 0)}f}"
    return text.replace("-", "−", 1) if text.startswith("-") else text


def with_error(value: float | None, error: float | None) -> str:
    """A number with its standard error; the error has two digits, and the number ends where the error does.

    >>> with_error(12.3456, 0.0789), with_error(3.0, float("nan")), with_error(None, None)
    ('12.346 ± 0.079', '3.000', 'not known')
    """
    if value is None or error is None or not math.isfinite(value) or not math.isfinite(error):
        return number(value)
    if error <= 1e-12 * abs(value):
        return number(value)
    decimals = 1 - math.floor(math.log10(error))
    if decimals > 8 or decimals < -5:
        return f"{number(value)} ± {number(error, 2)}"
    decimals = max(decimals, 0)
    return f"{value:.{decimals}f} ± {error:.{decimals}f}".replace("-", "−", 1)


def compared(difference: Difference | None) -> str:
    """How one risk compares with another on the same draws, in words that hold whatever the numbers.

    >>> compared(Difference(0.5, 0.1, 0.3, 0.7)), compared(Difference(-0.5, 0.0, -0.5, -0.5))
    ('0.500 more (95 % interval 0.300 to 0.700)', '0.500 less (exact)')
    >>> compared(Difference(0.02, 0.1, -0.18, 0.22)), compared(Difference(0.0, 0.0, 0.0, 0.0))
    ('not clearly different (0.0200 more on these draws, 95 % interval −0.180 to 0.220)', 'the same')
    """
    if difference is None:
        return "not compared"
    value, low, high = difference.value, difference.low, difference.high
    if not math.isfinite(value):
        return "not comparable"
    size = f"{number(abs(value), 3)} {'more' if value > 0 else 'less'}"
    if value == low == high:
        return f"{size} (exact)" if value else "the same"
    if not (math.isfinite(low) and math.isfinite(high)):
        return f"{size} on these draws, with an error that is not known" if value else "the same on these draws"
    interval = f"95 % interval {number(low, 3)} to {number(high, 3)}"
    if is_clear(difference):
        return f"{size} ({interval})"
    return f"not clearly different ({size} on these draws, {interval})"


def is_clear(difference: Difference | None) -> bool:
    """Whether the interval of a difference leaves no doubt about its sign."""
    return difference is not None and bool(difference.low > 0.0 or difference.high < 0.0)


def percent(share: float) -> str:
    """A share as a percentage; never 0 % for what is not nothing, nor 100 % for what is not all.

    >>> percent(0.1234), percent(0.0), percent(0.0001), percent(0.9999), percent(1.0)
    ('12 %', '0 %', 'under 0.1 %', 'over 99.9 %', '100 %')
    """
    if not math.isfinite(share):
        return "an unknown share"
    hundred = 100.0 * share
    if 0 < hundred < 0.1:
        return "under 0.1 %"
    if 99.9 < hundred < 100.0 - 1e-7:
        return "over 99.9 %"
    fine = 0 < hundred < 9.95 or 99.0 < hundred <= 99.9
    return f"{hundred:.1f} %" if fine else f"{hundred:.0f} %"


def standing_words(standing: Standing, risk_name: str) -> list[tuple[str, str]]:
    """What an answer stands on, as (label, text).

    >>> standing_words(Standing(None, "no counts", 5, None, None, None, (), 0, ()), "CVaR 0.9")
    [('footing', 'not judged: no counts')]
    """
    if standing.word is None or standing.time is None or standing.tail_time is None:
        return [("footing", f"not judged: {standing.message}")]
    leans = f"{percent(standing.time)} of its discounted time, {percent(standing.tail_time)} in the tail"
    rows = [("footing", f"{standing.word}: {standing.message}")]
    rows += [("other prior", f"{other.name}: {under_prior(other, risk_name)}") for other in standing.others]
    rows.append((f"under {standing.few} rows", leans + (f": {_pairs(standing)}" if standing.pairs else "")))
    return rows


def under_prior(other: UnderPrior, risk_name: str) -> str:
    """The answer under another prior.

    >>> under_prior(UnderPrior("seen successors only", 12.0, 0.25, None), "CVaR 0.9")
    'CVaR 0.9 12.00, loss above the stated risk in 25 % of its draws'
    """
    gain = "" if other.gain is None else f", a plan for its mean loses {number(other.gain, 3)} less there"
    return (
        f"{risk_name} {number(other.risk)}, loss above the stated risk in {percent(other.exceeded)} of its draws{gain}"
    )


def _pairs(standing: Standing) -> str:
    named = [f"{each.state}/{each.action} ({several(round(each.rows), 'row')})" for each in standing.pairs[:4]]
    more = len(standing.pairs) - len(named) + standing.pairs_left_out
    return ", ".join(named) + (f", {more:,} more" if more else "")


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
    if not math.isfinite(value):
        return number(value)
    if value < 60:
        return f"{number(value, 3)} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
