"""Ctrl-C and SIGTERM at any moment: exit code 130, and one line that says what is kept and how to go on.

Python hears of a signal only between two of its own instructions, and an exception that is raised there while a
compiler works above it in the stack can end the process by a segmentation fault. So no exception is raised: a thread of
its own waits for the signal, waits until no file is half-way between two names, says what the folder holds, and ends
the process. What has been found is on the disk by then, for a run is kept while it is solved.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from pathlib import Path

from .errors import InputError
from .files import read_manifest, remove_locks, uninterrupted

EXIT_CODE = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM)

# A disk that does not answer is not waited for much longer.
SECONDS = 10.0

# Options that a command to go on with needs as well.
SHARED = ("--trust", "--no-report", "--quiet", "-q")


class _Work:
    """What the process is doing, for the message: the folder that it changes, if any."""

    folder: Path | None = None
    begun: bool = False


def working_on(folder: Path) -> None:
    """Say which run is about to be changed."""
    _Work.folder = folder


def has_begun() -> None:
    """Say that the command has written what it would refuse to write over: to start again it needs `--force`."""
    _Work.begun = True


def install() -> None:
    """From now on signals end the process as described; one that was ignored from the outside stays so."""
    if threading.current_thread() is not threading.main_thread():
        return
    heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    if not heard:
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_wait, args=(reading, heard), daemon=True).start()
    for number in heard:
        signal.signal(number, _nothing)


def _nothing(number: int, frame: object) -> None:
    """The signal is the thread's."""


def _wait(reading: int, heard: list[signal.Signals]) -> None:
    while True:
        if set(os.read(reading, 1)) & set(heard):
            break
    uninterrupted.acquire(timeout=SECONDS)
    remove_locks()
    # The cursor, which a progress bar may have hidden, and the line that it is on.
    screen = b"\r\x1b[K\x1b[?25h" if os.isatty(2) else b""
    try:
        said = message(_Work.folder, sys.argv[1:], _Work.begun)
        os.write(2, screen + said.encode("utf-8", "backslashreplace") + b"\n")
    finally:
        os._exit(EXIT_CODE)


def message(folder: Path | None, arguments: list[str], begun: bool = False) -> str:
    """What is kept, and the command to go on with."""
    forced = ["--force"] if begun and "--force" not in arguments else []
    again = shlex.join(["prudent", *arguments, *forced])
    if folder is None:
        return f"interrupted: no file is half-written; start again with: {again}"
    try:
        manifest = read_manifest(folder)
    except (InputError, OSError):
        manifest = None
    if manifest is None or manifest.process != os.getpid():
        return f"interrupted: {folder} is as it was; start again with: {again}"
    here = shlex.join([str(folder), *(option for option in SHARED if option in arguments)])
    if manifest.note:
        kept = manifest.note.get("iterations", 0)
        return f"interrupted: iteration {kept} is kept in {folder}; go on with: prudent continue {here}"
    return f"interrupted: the run in {folder} is whole; its page is made again with: prudent report {folder}"


def leave_if_limited(code: int) -> None:
    """End the process at once where the shell limits the addresses there are (`ulimit -v`).

    Under such a limit threads of some libraries crash while Python ends.
    """
    try:
        import resource
    except ImportError:  # not on Windows
        return
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
