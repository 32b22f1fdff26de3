"""A run that is kept while it is solved: what has been found can be gone on with, whatever ends the process."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ..errors import InputError
from ..files import commit, read_manifest
from ..solvers import Solution
from . import folder as places

# At most this often, and at most this share of the time goes into it.
SECONDS, SHARE = 2.0, 0.05


class CheckpointWriter:
    """Writes a checkpoint after the first iteration, and now and then from there on.

    Args:
        target: folder of the run, whose lock the caller holds.
        state: the file of a solution, and of how many iterations are left.
        iterations: how many it makes at most in this call.
        resume: what it goes on from.
    """

    def __init__(
        self,
        target: Path,
        state: Callable[[Solution, int], bytes],
        iterations: int,
        resume: Solution | None,
    ):
        self.target, self.state = target, state
        self.end = iterations + (0 if resume is None else resume.iterations)
        self.next = 0.0

    def __call__(self, so_far: Callable[[], Solution]) -> None:
        """Keep the solution so far, if it is time."""
        began = time.monotonic()
        if began < self.next:
            return
        solution = so_far()
        left = max(0, self.end - solution.iterations)
        try:
            commit(
                self.target,
                {places.UNFINISHED: self.state(solution, left)},
                places.FILES,
                keep=places.FILES,
                note={"iterations": solution.iterations, "left": left},
            )
        except OSError as error:
            # The first tells before there is work to lose; what fails later is tried again, at the end at last.
            if self.next == 0.0:
                raise not_written(self.target, error, [places.UNFINISHED]) from error
        ended = time.monotonic()
        self.next = ended + max(SECONDS, (ended - began) / SHARE)


def not_written(target: Path, error: OSError, names: list[str]) -> InputError:
    """What is there and what is not, after a write that failed."""
    manifest = read_manifest(target)
    files = {} if manifest is None else manifest.files
    there = "nothing is there"
    if files:
        there = f"what was there is as it was ({', '.join(files)})"
    where = f" at {Path(error.filename).name}" if error.filename else ""
    said = f"{target}: {', '.join(names)} could not be written ({error.strerror}{where}); {there}"
    if places.UNFINISHED in files and manifest is not None:
        kept = f"iteration {manifest.note.get('iterations', 0)} is kept"
        return InputError(f"{said}, and {kept}: make room, then go on with prudent continue {target}")
    return InputError(f"{said}; make room, or choose another --out")
