"""Compiled code kept for the next command, by JAX's own persistent cache in the user's cache folder.

JAX reads its settings from the environment when it is imported, which no command has done yet: so nothing is imported
here for the commands that compile nothing, and processes that a command starts share the folder.
"""

from __future__ import annotations

import os
from pathlib import Path

# The most that is kept; what was not used for longest goes first.
MOST_BYTES = 256 * 2**20


def keep_compiled() -> None:
    """Tell JAX where to keep compiled code, unless the user has told it; nothing where nothing can be written."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    from platformdirs import user_cache_path

    folder = user_cache_path("prudent", appauthor=False) / "compiled"
    try:
        # Code is loaded from here: nobody else may write to it.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        own = not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()
        if not (own and os.access(folder, os.W_OK | os.X_OK)):
            return
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
