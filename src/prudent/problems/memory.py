"""How much memory a problem's arrays will take, estimated before any of them is made."""

from __future__ import annotations

import math
import os
from pathlib import Path

from ..errors import InputError
from .schema import (
    BRPG,
    USUAL_EVALUATION,
    USUAL_FIRST,
    USUAL_LARGEST,
    USUAL_SAMPLES,
    SampleAverage,
)

# The largest sample takes no more than this where the file does not say how large it may get. It depends on the
# problem alone and not on the machine, since the answer depends on it.
SAMPLE_BYTES = 2**30

# Copies of the evaluation's and of an iteration's kernels that are alive at once, by measurement. A growing sample goes
# through in chunks: 1.2 copies of it and a third for the smaller ones before it.
EVALUATION_COPIES, SAMPLE_COPIES, GROWING_COPIES, TABLE_COPIES = 4, 6, 2, 12

# Draws on which the answers of a growing sample are compared.
HELD_OUT = 1000

# Most draws on which a risk is reported where the file does not say how many, and what their kernels take at most.
EVALUATED, DRAWN_BYTES = 100_000, 2**27


def available() -> int:
    """Bytes that this process can still get, as far as the system says."""
    limits = [_meminfo(), _control_group()]
    known = [limit for limit in limits if limit is not None]
    if known:
        return min(known)
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


def _control_group() -> int | None:
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text().strip()
        return None if limit == "max" else max(0, int(limit) - int(used))
    except (OSError, ValueError):
        return None


def largest_sample(shape: tuple[int, int, int], solver: SampleAverage) -> int:
    """Most draws of a sample of the default solver, for a kernel of `[S, A, B]`.

    >>> largest_sample((3, 2, 2), SampleAverage(kind="sample-average"))
    8192
    """
    if solver.largest is not None:
        return solver.largest
    fit = SAMPLE_BYTES // max(1, 8 * math.prod(shape))
    return max(solver.samples or USUAL_FIRST, min(USUAL_LARGEST, fit))


def estimate(shape: tuple[int, int, int], solver: SampleAverage | BRPG) -> int:
    """Bytes that solving will take at its peak, for a kernel of `[S, A, B]`.

    >>> estimate((3, 2, 2), BRPG(kind="brpg", samples=30, evaluation=1000)) < 2**20
    True
    """
    if isinstance(solver, SampleAverage):
        samples = GROWING_COPIES * largest_sample(shape, solver) + HELD_OUT
    else:
        samples = SAMPLE_COPIES * (solver.samples or USUAL_SAMPLES)
    draws = EVALUATION_COPIES * (solver.evaluation or _evaluated(shape)) + samples
    return 8 * math.prod(shape) * (draws + TABLE_COPIES)


def _evaluated(shape: tuple[int, int, int]) -> int:
    return max(USUAL_EVALUATION, min(EVALUATED, DRAWN_BYTES // (8 * math.prod(shape))))


def require_fit(shape: tuple[int, int, int], solver: SampleAverage | BRPG) -> int:
    """The estimate, refused if there is not that much memory."""
    need, have = estimate(shape, solver), available()
    if need > have:
        states, actions, successors = shape
        size = "largest" if isinstance(solver, SampleAverage) else "samples"
        raise InputError(
            f"{states:,} states, {actions:,} actions and {successors:,} successors a pair need about "
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
