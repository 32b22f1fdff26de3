"""How much memory a problem's arrays will take, estimated before any of them is made."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..evaluation import CHEAP_DRAWS, CHEAP_KERNELS, USUAL_DRAWS
from ..solvers import SampleAverage

# The largest sample takes no more than this where the file does not say how large it may get. It depends on the
# problem alone and not on the machine, since the answer depends on it.
SAMPLE_BYTES = 2**30

# Copies of the evaluation's and of an iteration's kernels that are alive at once, by measurement. A growing sample goes
# through in chunks: 1.2 copies of it and a third for the smaller ones before it.
EVALUATION_COPIES, SAMPLE_COPIES, GROWING_COPIES, TABLE_COPIES = 4, 6, 2, 12

V1_NAMES = ("memory.limit_in_bytes", "memory.usage_in_bytes")


def available_memory() -> int:
    """Bytes that this process can still get, as far as the system says: memory, control groups, limits of the shell."""
    known = [limit for limit in (_meminfo(), _control_groups(), _address_space()) if limit is not None]
    if known:
        return max(0, min(known))
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 8 * 2**30


def _meminfo() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None


def _control_groups(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int | None:
    """The least that the process's control group, or one above it, still allows; version 2 or 1."""
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return None
    free: list[int] = []
    for _, controllers, path in (line for line in lines if len(line) == 3):
        if controllers not in ("", "memory"):
            continue
        base = root if controllers == "" else root / "memory"
        names = ("memory.max", "memory.current") if controllers == "" else V1_NAMES
        # Inside a container the path is the host's, and the group's own files are at the root.
        inside = [part for part in Path(path).parts if part not in ("/", "..")]
        for depth in range(len(inside) + 1):
            try:
                limit, used = ((base.joinpath(*inside[:depth]) / name).read_text().strip() for name in names)
                if limit != "max":
                    free.append(int(limit) - int(used))
            except (OSError, ValueError):
                continue
    return min(free, default=None)


def _address_space() -> int | None:
    """What `ulimit -v` leaves of it."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit == resource.RLIM_INFINITY:
            return None
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        return limit - pages * resource.getpagesize()
    except (ImportError, OSError, ValueError, IndexError):
        return None


def largest_sample(shape: tuple[int, int, int], solver: Any) -> int:
    """Most draws of a sample that grows, for a kernel of `[S, A, B]` and a file's `[solver]`."""
    if solver.largest is not None:
        return solver.largest
    fit = SAMPLE_BYTES // max(1, 8 * math.prod(shape))
    return max(solver.samples, min(SampleAverage().largest, fit))


def estimate(shape: tuple[int, int, int], solver: Any, costs: int = 0) -> int:
    """Bytes that solving will take at its peak, for a kernel of `[S, A, B]` and a file's `[solver]`.

    `costs` are those of each pair that are drawn with its probabilities, because they are noisy.
    """
    if solver.grows:
        # Answers of a growing sample are compared on held-out draws.
        samples = GROWING_COPIES * largest_sample(shape, solver) + USUAL_DRAWS
    else:
        samples = SAMPLE_COPIES * solver.samples
    states, actions, successors = shape
    drawn = 8 * states * actions * (successors + costs)
    evaluated = solver.evaluation or max(USUAL_DRAWS, min(CHEAP_DRAWS, CHEAP_KERNELS // drawn))
    return drawn * (EVALUATION_COPIES * evaluated + samples + TABLE_COPIES)


def require_fit(shape: tuple[int, int, int], solver: Any, costs: int = 0) -> int:
    """The estimate, refused if there is not that much memory."""
    need, have = estimate(shape, solver, costs), available_memory()
    if need > have:
        states, actions, successors = shape
        size = "largest" if solver.grows else "samples"
        raise InputError(
            f"{states:,} states, {actions:,} actions and {successors:,} successors a pair"
            f"{', with noisy costs,' if costs else ''} need about "
            f"{in_words(need)} of memory, and {in_words(have)} are free; list the successors of each pair "
            f'(posterior.support = "listed"), or lower solver.evaluation and solver.{size}'
        )
    return need


def in_words(size: int) -> str:
    """A number of bytes for people.

    >>> in_words(3 * 2**30)
    '3.0 GiB'
    """
    for unit, scale in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20)):
        if size >= scale:
            return f"{size / scale:,.1f} {unit}"
    return f"{size / 1024:.0f} KiB"
