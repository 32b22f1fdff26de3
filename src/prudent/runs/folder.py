"""The files of a run: their names, and the folder they may be written to."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import InputError

POLICY = "policy.csv"
DETERMINISTIC = "policy-deterministic.csv"
SOLUTION = "solution.json"
WEIGHTS = "weights.csv"
CHECKPOINT = "checkpoint.safetensors"
RECORD = "report.safetensors"
REPORT = "report.html"

# A run is written to this list of names and to no other.
FILES = (CHECKPOINT, POLICY, DETERMINISTIC, WEIGHTS, RECORD, REPORT, SOLUTION)


def require_free(folder: Path, force: bool) -> None:
    """Refuse what is not a folder, and a folder that holds another run."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is not a folder; choose another --out")
    there = [name for name in FILES if os.path.lexists(folder / name)]
    if there and not force:
        raise InputError(
            f"{folder}: holds another run ({there[0]}); choose another --out, go on with prudent continue, or replace "
            "it with --force"
        )
    for name in there:
        if (folder / name).is_dir() and not (folder / name).is_symlink():
            raise InputError(f"{folder / name}: is a folder where a file is to be written; remove it")


def prepare(folder: Path, force: bool) -> Path:
    """Make the folder; refuse one that cannot be written to, or that holds another run."""
    require_free(folder, force)
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{folder}: cannot be written to; choose another --out")
    return folder


def remove_stale(folder: Path, written: set[str]) -> None:
    """Remove what is left of a run that this one has replaced."""
    for name in FILES:
        if name not in written:
            (folder / name).unlink(missing_ok=True)


def require_run(folder: Path) -> Path:
    """The checkpoint of a run's folder."""
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder; name the --out folder of prudent solve")
    if not (folder / CHECKPOINT).is_file():
        raise InputError(f"{folder}: holds no run; there is no {CHECKPOINT} in it")
    return folder / CHECKPOINT
