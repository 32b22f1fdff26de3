"""The command `prudent`: what must hold before anything else is imported, then the command line."""

from __future__ import annotations

import gc
import os
import sys
from typing import NoReturn

from . import interrupts

# New objects between two searches for garbage; Python's 700 are for programs that import less.
BETWEEN_SEARCHES = 50_000

# Files that Numba and Matplotlib read their settings from where the working directory has them.
SETTINGS = (".numba_config.yaml", "matplotlibrc")

# As a process ends that writes to a pipe nobody reads.
BROKEN_PIPE = 141


def main() -> NoReturn:
    """Run the command line."""
    # First the streams: what the handler opens must not take the numbers of those that are closed.
    _open_streams()
    interrupts.install()
    _pass_over_working_directory()
    # Libraries make a million objects that stay, and a short command would look through them again and again.
    gc.set_threshold(BETWEEN_SEARCHES, *gc.get_threshold()[1:])
    code: int | str | None = 0
    try:
        from .cli import app

        app()
    except SystemExit as ended:
        # Rich and typer end with 1 where nobody reads what they print.
        code = BROKEN_PIPE if isinstance(ended.__context__, BrokenPipeError) else ended.code
    except MemoryError:
        _refuse_memory()
    except ImportError as error:
        # A library that does not fit under the limit of the shell says so in the linker's words.
        if not any(word in str(error) for word in ("failed to map", "annot allocate memory")):
            raise
        _refuse_memory()
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(BROKEN_PIPE)
    if isinstance(code, int):
        interrupts.leave_if_limited(code)
    # What is left goes with the process; looking through it for garbage first would take half a second.
    gc.freeze()
    sys.exit(code)


def _open_streams() -> None:
    """Open what was closed: a file of ours must never become the output that others write their messages to."""
    for number, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)
    for name, number in (("stdout", 1), ("stderr", 2)):
        # Python has none for what was closed when it began.
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8"))
        # Where the encoding lacks a character, escapes.
        getattr(sys, name).reconfigure(errors="backslashreplace")


def _pass_over_working_directory() -> None:
    """Have libraries find no settings in the working directory, and processes that they begin no modules.

    It may be someone else's folder. Neither library can be told to look elsewhere: both ask `os.path.exists`, Numba at
    each compilation again. The process is the command's alone, so that nobody else is told less.
    """
    exists = os.path.exists
    os.path.exists = lambda path: path not in SETTINGS and exists(path)
    # Joblib begins its workers by `python -m`.
    os.environ.setdefault("PYTHONSAFEPATH", "1")


def _refuse_memory() -> NoReturn:
    os.write(2, b"error: there is not enough memory to start; raise the limit of the shell (ulimit -v)\n")
    os._exit(2)


if __name__ == "__main__":
    main()
