"""A disk on which one operation fails, or during which the process is killed, without killing it."""

import contextlib
import errno
import os
from pathlib import Path

ERRORS = {"no space": errno.ENOSPC, "no permission": errno.EACCES, "interrupted": errno.EINTR}
KILLED = "killed"
FAULTS = (*ERRORS, KILLED)

BY_PATH = ("open", "replace", "unlink", "mkdir")
BY_HANDLE = ("write", "pwrite", "fsync", "ftruncate")


class Killed(BaseException):
    """What a process that was killed would not have lived to see."""


class Disk:
    """Counts the operations that change a folder; the one of number `at` meets its fault.

    After `KILLED` no operation has any effect, as none would from a process that is gone: nothing is cleaned up.
    """

    def __init__(self, folder, at=None, fault=KILLED):
        self.folder, self.at, self.fault = Path(folder).resolve(), at, fault
        self.count, self.dead, self.handles, self.met = 0, False, set(), ""
        self.real = {name: getattr(os, name) for name in (*BY_PATH, *BY_HANDLE, "close")}

    def __enter__(self):
        for name in BY_PATH:
            setattr(os, name, self._by_path(name))
        for name in BY_HANDLE:
            setattr(os, name, self._by_handle(name))
        os.close = self._close
        return self

    def __exit__(self, *exception):
        for name, function in self.real.items():
            setattr(os, name, function)
        for handle in self.handles:  # a lock ends with its process
            with contextlib.suppress(OSError):
                os.close(handle)

    def _within(self, path):
        # The folder may be a link, what is in it is taken as it is.
        path = Path(os.fspath(path))
        return self.folder in (path.parent.resolve(), *path.parent.resolve().parents) or path.resolve() == self.folder

    def _by_path(self, name):
        real = self.real[name]

        def operation(path, *arguments, **options):
            changes = name != "open" or arguments[0] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if isinstance(path, int) or not self._within(path):
                return real(path, *arguments, **options)
            if changes:
                self._turn(f"{name} {Path(path).name}")
            elif self.dead:
                raise Killed
            made = real(path, *arguments, **options)
            if name == "open":
                self.handles.add(made)
            return made

        return operation

    def _by_handle(self, name):
        real = self.real[name]

        def operation(handle, *arguments):
            if handle in self.handles:
                try:
                    self._turn(name)
                except BaseException:
                    if name == "write":  # a part may have got there
                        real(handle, bytes(arguments[0])[: len(arguments[0]) // 2])
                    raise
            return real(handle, *arguments)

        return operation

    def _close(self, handle):
        self.handles.discard(handle)
        self.real["close"](handle)

    def _turn(self, what):
        if self.dead:
            raise Killed
        self.count += 1
        if self.count - 1 == self.at:
            self.met = what
            if self.fault == KILLED:
                self.dead = True
                raise Killed
            raise OSError(ERRORS[self.fault], os.strerror(ERRORS[self.fault]))
