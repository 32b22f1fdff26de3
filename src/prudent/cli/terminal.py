"""What every command shares: errors that end with their message, and a console wide enough for tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from ..report import Difference, PolicyRecord


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


def console(stderr: bool = False) -> Console:
    """The terminal; 120 columns where there is none, so that tables written to a file are not cut."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(width=None if stream.isatty() else 120, stderr=stderr)


def table(title: str, rows: Iterable[tuple[str, ...]], heads: tuple[str, ...] = (), left: int = 1) -> None:
    """A table below a title, its first columns set to the left; names from files are text, never markup."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table(show_header=bool(heads))
    for place, head in enumerate(heads):
        drawn.add_column(Text(head), justify="left" if place < left else "right", no_wrap=place == 0)
    for row in rows:
        drawn.add_row(*map(Text, row))
    console().print(title, markup=False, highlight=False)
    console().print(drawn)


def over(policy: PolicyRecord) -> str:
    """What a policy was judged on."""
    count = f"{policy.draws:,}"
    return f"over all {count} points of the posterior" if policy.exact else f"over {count} fresh posterior draws"


def apart(difference: Difference | None) -> str:
    """A difference with its 95 % interval."""
    if difference is None:
        return "–"
    value, low, high = difference.value, difference.low, difference.high
    if value == low == high:
        return _signed(value)
    if low is None or high is None:
        return f"{_signed(value)} ± unknown"
    return f"{_signed(value)} ({_signed(low)} to {_signed(high)})"


def _signed(value: float | None) -> str:
    from ..report import number

    return ("+" if value is not None and value > 0 else "") + number(value, 3)


def meaning(exact: bool, differences: Iterable[Difference | None]) -> str:
    """What the signs in a table of risks mean."""
    if exact:
        return "exact: the posterior is used whole, and nothing is sampled"
    # Where few draws are in a tail, each of them says so.
    few = dict.fromkeys(each.confidence for each in differences if each is not None and "nominally" in each.confidence)
    intervals = f"confidence intervals ({'; '.join(few)})" if few else "95 % confidence intervals"
    return f"± one standard error of the draws; in brackets {intervals}"
