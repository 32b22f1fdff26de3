"""What every command shares: errors that end with their message, and a console wide enough for tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console


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
    typer.echo(f"error: {_printable(message)}", err=True)
    raise typer.Exit(2)


def _printable(message: str) -> str:
    """A message on one line whose characters cannot steer the terminal, whatever a file had in it."""
    return "".join(character if character.isprintable() else " " for character in message)


def console() -> Console:
    """The terminal; 120 columns where there is none, so that tables written to a file are not cut."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 120)
