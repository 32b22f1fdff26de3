"""What every command shares: errors that end with their message, and a console wide enough for tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from ..report import Difference
    from ..runs import View


@contextmanager
def clear_errors() -> Iterator[None]:
    """Bad input ends with its message and exit code 2, not with a traceback."""
    from ..errors import InputError

    try:
        yield
    except InputError as error:
        message = str(error)
    except OSError as error:
        message = f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
    except MemoryError:
        message = "there is not enough memory for this problem; list successors, or lower samples and evaluation"
    else:
        return
    refuse(message)


def refuse(message: str) -> NoReturn:
    """End with a message and exit code 2."""
    typer.echo(f"error: {_printable(message)}", err=True)
    raise typer.Exit(2)


def _printable(message: str) -> str:
    """A message on one line whose characters cannot steer the terminal, whatever a file had in it."""
    return "".join(character if character.isprintable() else " " for character in message)


def console() -> Console:
    """The terminal; 120 columns where there is none, so that tables written to a file are not cut."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 120)


def over(view: View) -> str:
    """What a policy was judged on."""
    count = f"{len(view.losses):,}"
    return f"over all {count} points of the posterior" if view.exact else f"over {count} fresh posterior draws"


def short(value: float) -> str:
    """A number with five digits."""
    from ..report.words import number

    return number(value, 5)


def with_error(value: float, error: float, exact: bool) -> str:
    """A number with its standard error, which there is none of where the posterior is used whole."""
    from ..report.words import with_error

    if exact:
        return short(value)
    return f"{short(value)} ± unknown" if error != error else with_error(value, error)


def apart(difference: Difference | None) -> str:
    """A difference with its 95 % interval."""
    if difference is None:
        return "–"
    value, low, high = difference.value, difference.low, difference.high
    if value == low == high:
        return _signed(value)
    return f"{_signed(value)} ± unknown" if low != low else f"{_signed(value)} ({_signed(low)} to {_signed(high)})"


def _signed(value: float) -> str:
    from ..report.words import number

    return ("+" if value > 0 else "") + number(value, 3)


def meaning(exact: bool) -> str:
    """What the signs in a table of risks mean."""
    if exact:
        return "exact: the posterior is used whole, and nothing is sampled"
    return "± one standard error of the draws; in brackets 95 % confidence intervals"
