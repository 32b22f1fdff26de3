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
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    except OSError as error:
        typer.echo(f"error: {error.strerror}: {error.filename}", err=True)
        raise typer.Exit(2) from None


def console() -> Console:
    """The terminal; 120 columns where there is none, so that tables written to a file are not cut."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 120)
