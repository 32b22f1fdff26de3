"""Files are written whole or not at all: to a neighbour first, flushed to the disk, then renamed."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


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
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # A name that nobody can foretell, new and never through a link: a folder that came from someone else may
    # hold links to files elsewhere under any name that can be guessed.
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    _flush_folder(path.parent)
    return path


def _flush_folder(folder: Path) -> None:
    """The rename itself reaches the disk; some systems cannot open a folder, and then it is up to them."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
