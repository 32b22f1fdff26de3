"""Folders that compiled code is kept in and loaded from: only where nobody but the user can put a file."""

from __future__ import annotations

import functools
import logging
import os
import stat
from pathlib import Path

logger = logging.getLogger("prudent")

# In the mode of a folder: the group or all others may write to it.
SHARED = stat.S_IWGRP | stat.S_IWOTH


def cache_folder(name: str, variable: str = "") -> Path | None:
    """A private folder for code of one kind, made if there is none; None where there can be no such one.

    Who can write to such a folder can run code as its user. So the folder belongs to the user and is open to nobody
    else, and `is_safe` holds of it. Nothing is kept where `PRUDENT_NO_CACHE` is set.

    Args:
        name: of the folder, below `prudent` in the user's cache.
        variable: of the environment, by which the user can name another place than `prudent` in the user's cache.
    """
    if os.environ.get("PRUDENT_NO_CACHE"):
        return None
    from platformdirs import user_cache_path  # few commands need it

    chosen = os.environ.get(variable)
    folder = (Path(chosen) if chosen else user_cache_path("prudent", appauthor=False)) / name
    try:
        if not is_safe(folder):
            return None
        if not folder.is_dir():
            for each in (*reversed(folder.parents), folder):
                if not each.exists():
                    each.mkdir(mode=0o700, exist_ok=True)
            # Another user may have made one of them meanwhile.
            if not is_safe(folder):
                return None
        if not os.access(folder, os.W_OK | os.X_OK):
            return None
        if hasattr(os, "geteuid") and stat.S_IMODE(folder.stat().st_mode) != 0o700:
            folder.chmod(0o700)
        return folder
    except OSError:
        return None


def is_safe(folder: Path) -> bool:
    """Whether nobody but the user and root can put a file into a folder, or another folder in its place.

    A folder that is not there yet is safe where it could be made. One that is not safe is named in a warning.
    """
    fault = _fault(folder)
    if not fault and folder.exists() and hasattr(os, "geteuid") and folder.stat().st_mode & SHARED:
        fault = f"other users can write to {folder}"
    if fault:
        _warn(fault)
    return not fault


def _fault(place: Path) -> str:
    """What lets others change where a path leads: of each folder and link on the way to it, up to the root.

    A sticky folder of root or the user, such as `/tmp`, lets others add names but not exchange those of the user.
    """
    if not place.is_absolute():
        return f"{place} is relative to the working directory, which may be someone else's"
    if not hasattr(os, "geteuid"):  # Windows, where what is below the user's folder is the user's
        return ""
    try:
        status = place.lstat()
    except FileNotFoundError:
        return _fault(place.parent)
    if status.st_uid not in (0, os.geteuid()):
        return f"{place} belongs to another user"
    if stat.S_ISLNK(status.st_mode):
        return _fault(place.parent) or _fault(place.parent / place.readlink())
    if status.st_mode & SHARED and not status.st_mode & stat.S_ISVTX:
        return f"other users can write to {place}"
    return "" if place == place.parent else _fault(place.parent)


@functools.cache
def _warn(fault: str) -> None:
    """Once in a process."""
    logger.warning(
        "compiled code is neither kept nor loaded: %s. Set XDG_CACHE_HOME to a folder that only you can write to, or "
        "PRUDENT_NO_CACHE=1",
        fault,
    )
