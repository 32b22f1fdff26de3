"""Numbers that a part is given: declared with its class, checked when one is made, and read by problem files."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from .arrays import require_number, require_size


class Setting(NamedTuple):
    """What is known of a field that is one number.

    Attributes:
        allowed: the interval it lies in, such as "[0, 1)".
        means: a line on it for the manual.
        fix: what to do about a number outside.
        whole: whether it is a whole number.
        alone: whether a number that stands alone for the part, as in `--risk cvar:0.9`, is this one; else the first is.
        checked: whether it is checked here; a field that may be something else than a number is checked by its class.
    """

    allowed: str
    means: str = ""
    fix: str = ""
    whole: bool = False
    alone: bool = False
    checked: bool = True


def number(allowed: str, means: str, fix: str = "", *, alone: bool = False, checked: bool = True) -> dict[str, Setting]:
    """Metadata of a field that is one number of an interval.

    >>> from prudent.records import Record, field
    >>> class Scaled(Record):
    ...     factor: float = field(default=1.0, metadata=number("(0, inf)", "what losses are multiplied by"))
    >>> settings_of(Scaled)["factor"].allowed
    '(0, inf)'
    """
    return {"setting": Setting(allowed, means, fix, alone=alone, checked=checked)}


def whole(least: int, means: str) -> dict[str, Setting]:
    """Metadata of a field that is a whole number of at least `least`, or None."""
    return {"setting": Setting(f"[{least}, inf)", means, whole=True)}


def settings_of(kind: Any) -> dict[str, Setting]:
    """The settings of a class, or of a part of it, by field."""
    declared = {field.name: field.metadata.get("setting") for field in dataclasses.fields(kind)}
    return {name: setting for name, setting in declared.items() if setting is not None}


def check_settings(part: Any) -> None:
    """Refuse a number that its class does not allow; what is traced passes."""
    for name, setting in settings_of(part).items():
        value, called = getattr(part, name), f"{type(part).__name__} {name}"
        if not setting.checked or (setting.whole and value is None):
            continue
        if setting.whole:
            require_size(called, value, int(setting.allowed[1:].split(",")[0]))
        else:
            require_number(called, value, setting.allowed, setting.fix)
