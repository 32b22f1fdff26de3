"""Random streams: a seed and the names of a stream to a generator of NumPy's."""

from __future__ import annotations

import enum
from typing import Any, TypeAlias

import numpy as np

from .errors import InputError

Seed: TypeAlias = int
"""A whole number in [0, 2^64)."""


class Stream(enum.IntEnum):
    """Names of the independent random streams under one seed; `Posterior.sample` uses the unnamed one."""

    ITERATION = 1
    HELD_OUT = 2
    EVALUATION = 3
    TRIALS = 4
    WORLD = 5
    SCALES = 6
    SAMPLE = 7
    OTHERS = 8
    CHOICE = 9


def as_seed(seed: Any) -> Seed:
    """A whole number as Python's own; anything else is refused."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**64:
        raise InputError(f"seed must be a whole number >= 0 (below 2^64), got {_shown(seed)}")
    return int(seed)


def _shown(seed: Any) -> str:
    if hasattr(seed, "dtype"):
        return f"{type(seed).__name__} of {seed.dtype}"
    return repr(seed)


# How far the halves of a seed are turned when they are mixed, and a word that they are mixed with.
TURNS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


def child(seed: Seed, number: int) -> Seed:
    """Another seed, for each number its own: its streams are independent of those of the seed and of its siblings.

    >>> child(0, 1) != child(0, 2) != child(1, 2)
    True
    """
    one, two = halves(seed)
    words = (one, two, one ^ two ^ PARITY)
    two = (int(number) + two) % 2**32
    for group in range(5):
        for turn in TURNS[group % 2]:
            one = (one + two) % 2**32
            two = ((two << turn) | (two >> (32 - turn))) % 2**32 ^ one
        one = (one + words[(group + 1) % 3]) % 2**32
        two = (two + words[(group + 2) % 3] + group + 1) % 2**32
    return one << 32 | two


def halves(seed: Seed) -> tuple[int, int]:
    """The upper and the lower 32 bits of a seed."""
    return as_seed(seed) >> 32, as_seed(seed) % 2**32


def generator(seed: Seed, *path: int) -> np.random.Generator:
    """A NumPy generator from a seed; `path` names independent streams under the same seed."""
    return stream(halves(seed), *path)


def stream(words: tuple[int, ...], *path: int) -> np.random.Generator:
    """The generator of one named stream under any words, a seed's halves or others.

    The path goes into the spawn key: appended to the words, a path of zeros would be no path at all.
    """
    return np.random.default_rng(np.random.SeedSequence(words, spawn_key=path))
