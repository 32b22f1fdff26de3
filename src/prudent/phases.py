"""What is being done, as one line of the terminal: the phase, how long so far, and how long still where that is known.

Whoever begins a piece of work names it; whoever shows a line opens it around everything it shall show. Where none is
open, naming a phase does nothing.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

# What is over sooner shows no line.
QUIET_SECONDS = 0.3
REFRESHES = 4

_open: ContextVar[Line | None] = ContextVar("line", default=None)


@contextmanager
def status_line(show: bool | None) -> Iterator[None]:
    """One line on the standard error stream while the block runs, gone when it ends.

    Args:
        show: whether there is one; None for where that is a terminal. One that is open goes on, and where False is
            given inside it, with the words it has.

    >>> with status_line(False):
    ...     phase("reading")
    """
    wanted = sys.stderr.isatty() if show is None else show
    if wanted and _open.get() is not None:
        yield
        return
    opened = Line() if wanted else None
    before = _open.set(opened)
    try:
        yield
    finally:
        _open.reset(before)
        if opened is not None:
            opened.close()


def phase(name: str, detail: str = "", left: float | None = None) -> None:
    """What begins, or goes on, now.

    Args:
        name: in a word.
        detail: how far it has come.
        left: seconds that it takes at most, as far as can be foretold.
    """
    here = _open.get()
    if here is not None:
        here.say(name, detail, left)


class Line:
    """A line that appears after a moment and is drawn by a thread of its own, whatever the others wait for."""

    def __init__(self) -> None:
        self.words, self.left = "", None
        self.began = self.said = time.monotonic()
        self.live: Any = None
        self.lock, self.closed = threading.Lock(), False
        self.timer = threading.Timer(QUIET_SECONDS, self._appear)
        self.timer.daemon = True
        self.timer.start()

    def say(self, name: str, detail: str, left: float | None) -> None:
        """Other words from now on."""
        self.words, self.left, self.said = f"{name}  {detail}".strip(), left, time.monotonic()

    def text(self) -> str:
        """The line as it is now."""
        now = time.monotonic()
        left = "" if self.left is None else f", about {_clock(max(0.0, self.left - (now - self.said)))} left at most"
        return f"{self.words}  {_clock(now - self.began)}{left}"

    def close(self) -> None:
        """Take it away."""
        self.timer.cancel()
        with self.lock:
            self.closed = True
            if self.live is not None:
                self.live.stop()

    def _appear(self) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner
        from rich.text import Text

        spinner = Spinner("dots")

        def drawn() -> Spinner:
            spinner.update(text=Text(self.text(), overflow="ellipsis", no_wrap=True))
            return spinner

        with self.lock:
            if self.closed:
                return
            # Asked for by name, it is drawn even where the terminal cannot be recognised.
            console = Console(stderr=True, force_terminal=True)
            self.live = Live(get_renderable=drawn, console=console, refresh_per_second=REFRESHES, transient=True)
            self.live.start()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
