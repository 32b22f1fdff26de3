"""Files for the user to change: written to a folder that belongs to them, one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..errors import InputError
from .commits import clear_partials
from .locks import locked
from .whole import uninterrupted, write_whole


def write_files(folder: str | Path, texts: Mapping[str, str], force: bool) -> tuple[Path, ...]:
    """Write files by name, each whole or not at all; what a process that was killed has left of them is cleared.

    Args:
        folder: made if there is none.
        texts: by name.
        force: replace files of these names; refused otherwise, before any is written.
    """
    folder = Path(folder)
    for path in (folder / name for name in texts):
        if path.exists() and not force:
            raise InputError(f"{path}: is there already; use another folder, or --force to replace it")
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder), uninterrupted:
        clear_partials(folder, texts)
        return tuple(write_whole(folder / name, text) for name, text in texts.items())
