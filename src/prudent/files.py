"""Files are written whole or not at all: to a neighbour first, flushed to the disk, then renamed."""

from __future__ import annotations

import contextlib
import os
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
    # The process's own name for it: two processes that write the same file do not write into each other's.
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
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
