"""Folders of the user's cache that code is loaded from."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(name: str) -> Path | None:
    """A folder that nobody but the user may write to, made if there is none; None where there can be no such one."""
    from platformdirs import user_cache_path  # few commands need it

    folder = user_cache_path("prudent", appauthor=False) / name
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        own = not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()
        return folder if own and os.access(folder, os.W_OK | os.X_OK) else None
    except OSError:
        return None
