"""What every command shares: compiled code that is kept, errors that end with their message, a console for tables."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from ..files import cache_folder, is_safe
from ..interrupts import leave_if_limited

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from ..report import Difference, PolicyRecord


# As a process ends that writes to a pipe nobody reads.
BROKEN_PIPE = 141

# The most that is kept of compiled code; what was not used for longest goes first.
MOST_BYTES = 256 * 2**20

# What is wrong with a file may be as long as the file.
LONGEST_MESSAGE = 1500

NO_MEMORY = "there is not enough memory for this problem; list successors, or lower samples and evaluation"


@contextmanager
def clear_errors() -> Iterator[None]:
    """Bad input ends with its message and exit code 2, not with a traceback."""
    from ..errors import InputError

    try:
        yield
    except InputError as error:
        message = str(error)
    except BrokenPipeError:
        # Nobody reads any more; the work is done, and how the process ends says so.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise typer.Exit(BROKEN_PIPE) from None
    except OSError as error:
        message = f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
    except MemoryError:
        message = NO_MEMORY
    except RuntimeError as error:
        # The words of the system and of JAX for the same.
        if not any(words in str(error) for words in ("RESOURCE_EXHAUSTED", "start new thread", "bad_alloc")):
            raise
        message = NO_MEMORY
    else:
        return
    refuse(message)


def refuse(message: str) -> NoReturn:
    """End with a message and exit code 2."""
    words = shown(" ".join(message[:LONGEST_MESSAGE].splitlines()))
    typer.echo(f"error: {words}{'…' if len(message) > LONGEST_MESSAGE else ''}", err=True)
    if message == NO_MEMORY:
        leave_if_limited(2)
    raise typer.Exit(2)


def shown(text: object) -> str:
    r"""A text for the terminal: what cannot be printed, or could steer it, is shown as an escape, as Python writes it.

    Everything that comes from a file goes through here on its way to the screen.

    >>> shown("new\x1b[2J"), shown("\u202ebackwards"), shown("[red]worn")
    ('new\\x1b[2J', '\\u202ebackwards', '[red]worn')
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def say(text: object) -> None:
    """Print a line as it is, whatever is in it."""
    typer.echo(shown(text))


def say_json(value: Any) -> None:
    """Print a value, or a record, as JSON."""
    import json

    typer.echo(json.dumps(value.model_dump(mode="json") if hasattr(value, "model_dump") else value, indent=2))


def console(stderr: bool = False) -> Console:
    """The terminal; 120 columns where there is none, so that tables written to a file are not cut."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(width=None if stream.isatty() else 120, stderr=stderr)


def table(title: str, rows: Iterable[tuple[str, ...]], heads: tuple[str, ...] = (), left: int = 1) -> None:
    """A table below a title, its first columns set to the left; names from files are text, never markup."""
    from rich.table import Table
    from rich.text import Text

    # Of several columns on the left, the last is of words, the others of names.
    drawn, names = Table(show_header=bool(heads)), max(1, left - 1)
    for place, head in enumerate(heads):
        # A long word goes on below; it is not cut.
        side = "left" if place < left else "right"
        drawn.add_column(
            Text(shown(head)), justify=side, no_wrap=place < names, overflow="fold" if place else "ellipsis"
        )
    for row in rows:
        drawn.add_row(*(Text(shown(cell)) for cell in row))
    console().print(shown(title), markup=False, highlight=False)
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


def keep_compiled() -> None:
    """Tell JAX where to keep compiled code, unless the user has told it; nowhere where others could put code.

    JAX reads its settings from the environment when it is imported, which no command has done yet: so nothing is
    imported here for the commands that compile nothing, and processes that a command starts share the folder.
    """
    chosen = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if chosen is not None:
        # An address such as gs://bucket is no folder here, and nothing is none either.
        if chosen and "://" not in chosen and not is_safe(Path(chosen)):
            del os.environ["JAX_COMPILATION_CACHE_DIR"]
        return
    folder = cache_folder("compiled")
    if folder is None:
        return
    try:
        _repair(folder)
    except OSError:
        return
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    # Small functions, too: a small problem waits for many of them.
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_COMPILATION_CACHE_MAX_SIZE", str(MOST_BYTES))


def _repair(folder: Path) -> None:
    """Remove what a killed command left half-written, unless another command is writing now.

    JAX writes an entry and then, under the same lock, the time of its use: an entry without one is half of one, and
    would be read in vain for ever.
    """
    from filelock import FileLock, Timeout

    try:
        with FileLock(folder / ".lockfile", timeout=0):
            for entry in folder.glob("*-cache"):
                if not entry.with_name(entry.name.removesuffix("-cache") + "-atime").exists():
                    entry.unlink()
    except Timeout:
        return
