"""Several files of a folder that change together: a manifest with the digests of all, written last, is what counts.

New files are written beside the old ones, then the manifest is replaced, which is the moment they take effect, then
they are renamed. Killed before that moment, the folder is as it was; killed after it, a file that has not got its name
yet is read from where it waits, and the next process that changes the folder renames it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import InputError
from .locks import locked
from .whole import flush_folder, partial_of, twice, uninterrupted, write_new, write_whole

MANIFEST = "manifest.json"
KIND = "prudent run, version 1"
LARGEST_MANIFEST = 2**16
LARGEST_NUMBER = 2**53

# A file that is only compared with its digest is read in a few seconds.
LARGEST_BESIDE = 2**30

# How often a folder is looked at that changes while it is read.
MOST_TRIES = 20
TOKEN = re.compile(r"[0-9a-f]{16}")
DIGEST = re.compile(r"[0-9a-f]{64}")

# Checks a file's size and beginning before it is read whole, and raises `InputError` if it cannot be what it should.
FileCheck = Callable[[BinaryIO, int], None]


@dataclass(frozen=True)
class Manifest:
    """What makes a folder a run.

    Attributes:
        files: size and SHA-256 of each, by name.
        token: part of the names that the files of the last change waited under.
        process: that made the last change.
        note: what its writer wanted to be known without opening a file: whole numbers by name.
    """

    files: dict[str, tuple[int, str]] = field(default_factory=dict)
    token: str = ""
    process: int = 0
    note: dict[str, int] = field(default_factory=dict)

    def text(self) -> str:
        """As it is written."""
        files = {name: {"bytes": size, "sha256": digest} for name, (size, digest) in sorted(self.files.items())}
        said = {"kind": KIND, "token": self.token, "process": self.process, "note": self.note, "files": files}
        return json.dumps(said, indent=2) + "\n"


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder, None where there is none; a damaged one, or of another version, is refused."""
    path = folder / MANIFEST
    try:
        handle = _open_file(path)
    except FileNotFoundError:
        return None
    with handle as file:
        data = file.read(LARGEST_MANIFEST + 1)
    try:
        said = json.loads(data) if len(data) <= LARGEST_MANIFEST else None
        if not isinstance(said, dict):
            raise ValueError
    except (ValueError, RecursionError):
        raise InputError(f"{path}: is damaged; solve again") from None
    if said.get("kind") != KIND:
        raise InputError(f"{path}: is not of {KIND!r}; solve again with this version of prudent")
    try:
        files = {
            name: (_whole(entry["bytes"]), _match(DIGEST, entry["sha256"])) for name, entry in said["files"].items()
        }
        note = {name: _whole(number) for name, number in said["note"].items()}
        if not files:
            raise ValueError
        return Manifest(files, _match(TOKEN, said["token"]), _whole(said["process"]), note)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError(f"{path}: is damaged; solve again") from None


def _whole(number: Any) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= LARGEST_NUMBER:
        raise ValueError
    return number


def _match(pattern: re.Pattern[str], text: Any) -> str:
    if not pattern.fullmatch(text):
        raise ValueError
    return text


def commit(
    folder: Path,
    contents: Mapping[str, bytes],
    known: Collection[str],
    *,
    keep: Collection[str] = (),
    note: Mapping[str, int] | None = None,
) -> None:
    """Change files of a folder together; the caller holds its lock and has settled it.

    Args:
        folder: of the run.
        contents: the new files by name, what matters most first.
        known: all names that a run may have; those that are neither new nor kept are removed.
        keep: files to leave as they are.
        note: see `Manifest`.
    """
    token = secrets.token_hex(8)
    before = read_manifest(folder) or Manifest()
    files = {name: entry for name, entry in before.files.items() if name in keep}
    files |= {name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in contents.items()}
    manifest = partial_of(folder / MANIFEST, token)
    with uninterrupted:
        try:
            for name, data in contents.items():
                write_new(partial_of(folder / name, token), data)
            write_new(manifest, Manifest(files, token, os.getpid(), dict(note or {})).text().encode())
            flush_folder(folder)
            os.replace(manifest, folder / MANIFEST)
        except BaseException:
            for path in (*(partial_of(folder / name, token) for name in contents), manifest):
                with contextlib.suppress(OSError):
                    os.unlink(path)
            raise
        flush_folder(folder)
        settle(folder, known)


def settle(folder: Path, known: Collection[str]) -> None:
    """Bring a folder in line with its manifest: what waits gets its name, what is not of the run goes.

    The caller holds the lock.
    """
    found = read_manifest(folder)
    manifest = found or Manifest()
    with uninterrupted:
        for name, entry in manifest.files.items():
            waiting = partial_of(folder / name, manifest.token)
            if name in known and _fits(waiting, entry):
                twice(lambda waiting=waiting, name=name: os.replace(waiting, folder / name))
        stale = [] if found is None else [name for name in known if name not in manifest.files]
        for name in stale:
            _removed(folder / name)
        clear_partials(folder, (*known, MANIFEST))
        flush_folder(folder)


def clear_partials(folder: Path, names: Collection[str]) -> None:
    """Remove what processes that were killed have left under temporary names; the caller holds the lock."""
    for entry in os.listdir(folder):
        found = re.fullmatch(r"\.(.+)\.[0-9a-f]{16}\.partial", entry)
        if found and found[1] in names:
            _removed(folder / entry)


def _removed(path: Path) -> None:
    """Remove a file or a link if it is there; a folder of the name is not ours to remove, and is refused."""
    if path.is_dir() and not path.is_symlink():
        raise InputError(f"{path}: is a folder where a file is to be written; remove it")
    with contextlib.suppress(FileNotFoundError):
        twice(lambda: os.unlink(path))


def _fits(path: Path, entry: tuple[int, str]) -> bool:
    try:
        with _open_file(path) as file:
            return os.fstat(file.fileno()).st_size == entry[0] and _digest(file) == entry[1]
    except (InputError, OSError):
        return False


def _digest(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while block := file.read(2**20):
        digest.update(block)
    return digest.hexdigest()


def _open_file(path: Path) -> BinaryIO:
    """A file opened to be read, and no link, pipe, device or folder, none of which a run has."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise
    except OSError as error:
        what = "is a link, and a run has none" if path.is_symlink() else f"cannot be read ({error.strerror})"
        raise InputError(f"{path}: {what}") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise InputError(f"{path}: is not a file")
    return open(path, "rb", opener=lambda *_: handle)


@dataclass(frozen=True)
class Reading:
    """Files of one state of a folder, whatever has happened to it since.

    Attributes:
        manifest: of that state.
        contents: the files that were asked for, by name.
    """

    manifest: Manifest
    contents: dict[str, bytes]


def read_members(
    folder: Path, checks: Mapping[str, FileCheck], beside: Collection[str], repair: Callable[[str], str]
) -> Reading:
    """Files of a run as its manifest has them, all of one state; refused where they do not fit it.

    Args:
        folder: of the run.
        checks: the files to read, each with its check; those that the manifest does not list are left out.
        beside: files that are not read, and have to fit all the same if they are there.
        repair: what to do about a file that does not fit, by its name, for the message.
    """
    for tries in range(MOST_TRIES):
        manifest = read_manifest(folder)
        if manifest is None:
            raise InputError(f"{folder}: holds no run; there is no {MANIFEST} in it")
        try:
            wanted = {name: check for name, check in checks.items() if name in manifest.files}
            found = {name: _read(folder, name, manifest, check, repair(name)) for name, check in wanted.items()}
            for name in beside:
                _check(folder, name, manifest, repair(name))
            return Reading(manifest, found)
        except InputError:
            # Another process may have changed the folder while it was read.
            if read_manifest(folder) == manifest or tries + 1 == MOST_TRIES:
                raise
    raise AssertionError


def _check(folder: Path, name: str, manifest: Manifest, repair: str) -> None:
    """Refuse a file that is there and is not what the manifest says, or that it does not know."""
    if not os.path.lexists(folder / name):
        return
    entry = manifest.files.get(name)
    if entry is None:
        raise InputError(f"{folder / name}: is not of this run; {repair}")
    if entry[0] > LARGEST_BESIDE:
        raise InputError(f"{folder / name}: is larger than any file of a run; {repair}")
    _open_file(folder / name).close()
    if not _fits(folder / name, entry) and not _fits(partial_of(folder / name, manifest.token), entry):
        raise InputError(f"{folder / name}: is damaged, or was changed after the run; {repair}")


def _read(folder: Path, name: str, manifest: Manifest, check: FileCheck, repair: str) -> bytes:
    size, digest = manifest.files[name]
    refusal: InputError | None = None
    for path in (folder / name, partial_of(folder / name, manifest.token)):
        try:
            file = _open_file(path)
        except FileNotFoundError:
            continue
        except InputError as error:
            refusal = refusal or error
            continue
        with file:
            if os.fstat(file.fileno()).st_size == size:
                check(file, size)
                file.seek(0)
                data = file.read(size)
                if hashlib.sha256(data).hexdigest() == digest:
                    return data
        refusal = refusal or InputError(f"{path}: is damaged, or was changed after the run; {repair}")
    raise refusal or InputError(f"{folder / name}: is missing; {repair}")


def write_files(folder: str | Path, texts: Mapping[str, str], force: bool) -> tuple[Path, ...]:
    """Write files for the user to change, each whole or not at all; what a killed process has left of them is cleared.

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
