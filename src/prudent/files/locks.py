"""One process at a time changes a folder; who comes second is told who is first."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from ..errors import InputError
from .whole import twice, uninterrupted

LOCK = ".lock"
LONGEST = 4096

# How often a lock is looked at that is waited for.
PAUSE = 0.05

_held_here: set[Path] = set()


@contextlib.contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """Hold a folder, which is there, while it is changed; the lock ends with the process, however that ends.

    Args:
        folder: of which no other process may change anything meanwhile.
        wait: until it is free; refused otherwise if another process holds it.
    """
    path, handle = folder / LOCK, _taken(folder, wait)
    try:
        yield
    finally:
        with uninterrupted:
            # Still held while it is removed: who opened it before finds, once it is theirs, that it is no longer there.
            with contextlib.suppress(OSError):
                twice(lambda: os.unlink(path))
            _held_here.discard(path)
            os.close(handle)


def remove_locks() -> None:
    """Remove the locks that this process holds, which is about to end without another word."""
    for path in tuple(_held_here):
        with contextlib.suppress(OSError):
            os.unlink(path)


def _taken(folder: Path, wait: bool) -> int:
    path = folder / LOCK
    while True:
        with uninterrupted:
            handle = _opened(path)
            try:
                if _held(handle):
                    if _is_there(path, handle):
                        _held_here.add(path)
                        # Tried before any work: where this cannot be written, nothing could.
                        _write_holder(handle, path)
                        return handle
                elif not wait:
                    raise InputError(
                        f"{folder}: is being changed by {_holder(handle)}; try later, or wait with --wait (wait=True)"
                    )
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)
        time.sleep(PAUSE)


def _opened(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        handle = os.open(path, flags, 0o666)
    except OSError as error:
        if path.is_symlink() or path.is_dir():
            raise InputError(f"{path}: is no lock that prudent has made; remove it") from None
        raise InputError(f"{path.parent}: cannot be written to ({error.strerror}); choose another --out") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise InputError(f"{path}: is no lock that prudent has made; remove it")
    return handle


def _held(handle: int) -> bool:
    """Whether the lock is ours now."""
    try:
        import fcntl
    except ImportError:  # pragma: no cover - systems without it promise no lock
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_there(path: Path, handle: int) -> bool:
    """Whether the file that is locked is the one in the folder, and not one that its holder has removed since."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


def _write_holder(handle: int, path: Path) -> None:
    command = " ".join(["prudent", *sys.argv[1:2]])
    said = {"process": os.getpid(), "machine": platform.node(), "command": command}
    said["since"] = time.strftime("%Y-%m-%d %H:%M:%S")
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(said).encode(), 0)
        os.fsync(handle)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(path)
        _held_here.discard(path)
        raise OSError(error.errno, error.strerror, str(path)) from None


def _holder(handle: int) -> str:
    """Who holds a lock, as far as it says; it may have been written by anyone."""
    for _ in range(20):
        try:
            said = json.loads(os.pread(handle, LONGEST, 0))
            process, machine, command, since = (said[name] for name in ("process", "machine", "command", "since"))
            return f"process {int(process)} on {str(machine)[:60]} ({str(command)[:60]}, since {str(since)[:30]})"
        except (ValueError, KeyError, TypeError, OSError, RecursionError):
            # It may be about to write it.
            time.sleep(0.01)
    return "another process"
