"""Random streams: a seed to the words of a key, and keys and names to generators of NumPy."""

from __future__ import annotations

import enum
import os
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np

from .deferred import float64, jax, jnp, loaded
from .errors import InputError

Key: TypeAlias = tuple[int, ...]
"""The words of a random key, as `jax.random.key_data` gives them."""

if TYPE_CHECKING:
    Seed: TypeAlias = int | jax.Array | Key
    """A whole number, a `jax.random.key` or the words of one."""
else:
    Seed = int | Key | Any


# The kind of a key of so many words.
WORDS = {2: "threefry2x32", 4: "rbg"}


class Stream(enum.IntEnum):
    """Names of the independent random streams under one key; `Posterior.sample` uses the unnamed one."""

    ITERATION = 1
    HELD_OUT = 2
    EVALUATION = 3
    TRIALS = 4
    WORLD = 5
    SCALES = 6
    SAMPLE = 7
    OTHERS = 8
    CHOICE = 9


def is_jax_key(value: Any) -> TypeGuard[jax.Array]:
    """Whether `value` is a `jax.random.key` (or an array of them)."""
    return loaded() and isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def as_key(seed: Seed) -> Key:
    """The words of a random key, from a whole number or a `jax.random.key`; words as they are."""
    if isinstance(seed, tuple):
        if len(seed) in WORDS and all(type(word) is int and 0 <= word < 2**32 for word in seed):
            return seed
        raise InputError(f"seed as words must be 2 or 4 whole numbers in [0, 2^32), got {seed!r}; or use one number")
    if loaded() and isinstance(seed, jax.Array):
        if not is_jax_key(seed):
            raise InputError(
                "seed must be a whole number or a jax.random.key; got a plain array, use jax.random.key(n)"
            )
        if seed.shape != ():
            raise InputError(f"seed must be one jax.random.key, got an array of {seed.size}")
        return _words(seed)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**63:
        raise InputError(f"seed must be a whole number >= 0 (below 2^63) or a jax.random.key, got {seed!r}")
    if _default_kind() == "threefry2x32":
        # Its words are the halves of the seed, for which JAX is not needed.
        return int(seed) >> 32, int(seed) % 2**32
    # In float64 mode seeds keep all their bits; otherwise the upper half would be dropped.
    with float64():
        return _words(jax.random.key(int(seed)))


def _default_kind() -> str:
    """The kind of random keys that JAX makes, unless it is told otherwise."""
    if loaded():
        return jax.config.jax_default_prng_impl  # pyright: ignore[reportAttributeAccessIssue]
    return os.environ.get("JAX_DEFAULT_PRNG_IMPL", "threefry2x32")


def jax_key(seed: Seed) -> jax.Array:
    """The `jax.random.key` of a seed, for whoever takes no other."""
    words = as_key(seed)
    return seed if is_jax_key(seed) else wrapped_key(jnp.asarray(words, jnp.uint32))


def wrapped_key(words: Any) -> jax.Array:
    """The `jax.random.key` of that many words, whichever kind is JAX's default; traced."""
    return jax.random.wrap_key_data(words, impl=WORDS[words.shape[-1]])


def _words(key: jax.Array) -> Key:
    return tuple(int(word) for word in np.asarray(jax.random.key_data(key)).ravel())


# Of Threefry (Salmon and others, 2011) with two words of 32 bits: how far words are turned, and a word of the schedule.
TURNS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


def fold_in(key: Key, number: int) -> Key:
    """Another key, for each number its own: the words of `jax.random.fold_in(key, number)`, Threefry's or RBG's."""
    return sum((_folded(key[i : i + 2], int(number)) for i in range(0, len(key), 2)), ())


def _folded(pair: Key, number: int) -> Key:
    words = (*pair, pair[0] ^ pair[1] ^ PARITY)
    one, two = words[0], (number + words[1]) % 2**32
    for group in range(5):
        for turn in TURNS[group % 2]:
            one = (one + two) % 2**32
            two = ((two << turn) | (two >> (32 - turn))) % 2**32 ^ one
        one = (one + words[(group + 1) % 3]) % 2**32
        two = (two + words[(group + 2) % 3] + group + 1) % 2**32
    return one, two


def generator(seed: Seed, *path: int) -> np.random.Generator:
    """A NumPy generator from a random key; `path` names independent streams under the same key."""
    return stream(as_key(seed), *path)


def stream(words: tuple[int, ...], *path: int) -> np.random.Generator:
    """The generator of one named stream under any words, a key's or others.

    The path goes into the spawn key: appended to the words, a path of zeros would be no path at all.
    """
    return np.random.default_rng(np.random.SeedSequence(words, spawn_key=path))
