"""Files are written whole or not at all: to a neighbour first, flushed to the disk, then renamed."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

# Held while files change: who ends the process on a signal takes it first, and so never comes between two renames.
uninterrupted = threading.RLock()


def write_whole(path: str | Path, content: bytes | str | Callable[[BinaryIO], object]) -> Path:
    """Replace a file by new content in one step; after a crash it holds the old or the new, never a part.

    Args:
        path: its folder is made if there is none.
        content: bytes, text (UTF-8), or a function that writes to an open file.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(pathlib.Path(folder) / "new" / "note.txt", "whole").read_text()
    'whole'
    """
    path, data = Path(path), as_bytes(content)
    with uninterrupted:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = partial_of(path, secrets.token_hex(8))
        try:
            write_new(partial, data)
            os.replace(partial, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(partial)
            raise
        flush_folder(path.parent)
    return path


def as_bytes(content: bytes | str | Callable[[BinaryIO], object]) -> bytes:
    """What is to be written, before anything is."""
    if callable(content):
        memory = io.BytesIO()
        content(memory)
        return memory.getvalue()
    return content.encode() if isinstance(content, str) else content


def partial_of(path: Path, token: str) -> Path:
    """The neighbour that a file is written to first."""
    return path.with_name(f".{path.name}.{token}.partial")


def write_new(path: Path, data: bytes) -> None:
    """Write a file that was not there, and flush it to the disk.

    New and never through a link: a folder that came from someone else may hold links to files elsewhere under any name
    that can be guessed.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o666)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(handle, rest) :]
        os.fsync(handle)
    except OSError as error:
        raise _named(error, path) from None
    finally:
        os.close(handle)


def _named(error: OSError, path: Path) -> OSError:
    """The same error with the file it was met at: systems tell it of names, not of open files."""
    return OSError(error.errno, error.strerror, str(path)) if error.filename is None and error.errno else error


def twice(change: Callable[[], None]) -> None:
    """Try once more where it fails: what was to take effect has done so, and what is left is names."""
    try:
        change()
    except FileNotFoundError:
        raise
    except OSError:
        change()


def flush_folder(folder: Path) -> None:
    """A rename itself reaches the disk; some systems cannot open a folder, and then it is up to them."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
