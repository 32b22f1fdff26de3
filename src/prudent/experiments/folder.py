"""A run folder: what was asked for, and one record for each finished unit of work.

    manifest.json            config, versions, git state, map
    units/<unit>.json        what a unit of work gave, written whole or not at all
    <item>.json, .parquet    results, made of the units

A run that was stopped, however rudely, goes on from its records when it is asked for again.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InputError
from ..files import write_whole

VERSIONED = ("prudent", "jax", "jaxlib", "numpy", "scipy", "equinox", "optax")


class RunFolder(NamedTuple):
    """An open run folder: its place, and the digest of the config that its records belong to."""

    path: Path
    digest: str

    def record(self, unit: str) -> dict[str, Any] | None:
        """What a finished unit gave; None if it has not finished."""
        path = self._record_path(unit)
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        try:
            record = json.loads(text)
            if record["config"] == self.digest and isinstance(record["values"], dict):
                return record
        except (ValueError, KeyError, TypeError):
            pass
        raise InputError(f"{path} is not a record of this run; delete it and run the same command again")

    def values(self, unit: str) -> dict[str, Any]:
        """What a unit gave that must have finished."""
        record = self.record(unit)
        if record is None:
            raise InputError(f"{self._record_path(unit)} is missing; run the same command again to make it")
        return record["values"]

    def keep(self, unit: str, values: Mapping[str, Any], seconds: float) -> None:
        """Store what a unit gave. Floats are written with all their digits, so that reading repeats the bits."""
        record = {"unit": unit, "config": self.digest, "seconds": round(seconds, 3), "values": values}
        write_whole(self._record_path(unit), json.dumps(record, allow_nan=True))

    def write_results(self, item: str, records: list[dict[str, Any]]) -> None:
        """The records of an item as JSON and as Parquet; the same records give the same bytes."""
        write_whole(self.path / f"{item}.json", json.dumps(records, indent=1, allow_nan=False) + "\n")
        import pyarrow
        import pyarrow.parquet

        table = pyarrow.Table.from_pylist(records)
        write_whole(self.path / f"{item}.parquet", lambda file: pyarrow.parquet.write_table(table, file))

    def _record_path(self, unit: str) -> Path:
        return self.path / "units" / f"{unit}.json"


def open_folder(path: str | Path, config: Mapping[str, Any], about: Mapping[str, Any]) -> tuple[RunFolder, list[str]]:
    """Begin a run folder, or go on with one of the same config.

    Args:
        path: of the folder; made if there is none.
        config: everything the results depend on.
        about: what else the manifest says, such as the map.

    Returns:
        The folder, and warnings: versions that differ from those the folder was begun with.
    """
    path = Path(path)
    manifest_path = path / "manifest.json"
    path.mkdir(parents=True, exist_ok=True)
    config = json.loads(json.dumps(config))
    folder = RunFolder(path, hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest())
    _clear_leftovers(path)
    if not manifest_path.exists():
        if any(path.iterdir()):
            raise InputError(
                f"{path} holds files but no manifest.json, so it is not a run folder; choose another with --out"
            )
        manifest = {"config": config, "versions": versions(), "git": git_state(), **about}
        write_whole(manifest_path, json.dumps(manifest, indent=1) + "\n")
        return folder, []
    try:
        manifest = json.loads(manifest_path.read_text(encoding="utf-8"))
        before, known = manifest["config"], manifest["versions"]
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{manifest_path} is not a manifest of a run; choose another folder with --out") from None
    changed = _differences(before, config)
    if changed:
        raise InputError(
            f"{path} was begun with another config: {'; '.join(changed)}. Give the old values, or another folder "
            "with --out"
        )
    differing = [
        f"{name} is {now}, the folder was begun with {known.get(name)}: finished units are kept, the bits of new ones "
        "may differ"
        for name, now in versions().items()
        if known.get(name) != now
    ]
    return folder, differing


def versions() -> dict[str, str]:
    """Of Python and the libraries the numbers come from."""
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in VERSIONED}}


def git_state() -> dict[str, Any] | None:
    """The commit the package's source is at, and whether it has changes; None outside a repository."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return {"commit": git("rev-parse", "HEAD"), "changed": bool(git("status", "--porcelain", "--", "."))}
    return None


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """`name: old, now new` for every entry that is not the same."""
    names = [*before, *(name for name in now if name not in before)]
    return [
        f"{name} was {json.dumps(before.get(name))}, now {json.dumps(now.get(name))}"
        for name in names
        if before.get(name) != now.get(name)
    ]


def _clear_leftovers(path: Path) -> None:
    """Remove what killed processes left half-written; that of a living one is its own."""
    for partial in path.rglob(".*.partial"):
        process = partial.name.split(".")[-2]
        if process.isdigit() and not _alive(int(process)):
            partial.unlink(missing_ok=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
