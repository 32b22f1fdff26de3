"""Families whose theta is a few named probabilities, each learned from trials of its own."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..arrays import Stream, as_float, generator, require_size
from ..errors import InputError
from ..transitions import Trials

NUMBERS = {1: "one", 2: "two", 3: "three", 4: "four"}


def check_theta(theta: Any, names: tuple[str, ...], family: str) -> None:
    """Refuse a theta of another length: JAX clamps an index out of bounds, and would read an entry twice."""
    if jnp.shape(theta) != (len(names),):
        raise InputError(
            f"theta of {family} is ({', '.join(names)}), {NUMBERS[len(names)]} numbers; got shape {jnp.shape(theta)}"
        )


def check_truth(truth: Any, names: tuple[str, ...]) -> Float[np.ndarray, " D"]:
    """The true probabilities, one for each name."""
    array = np.asarray(as_float(truth, "truth"))
    if array.shape != (len(names),) or not np.all((array >= 0) & (array <= 1)):
        raise InputError(
            f"truth must be ({', '.join(names)}), {NUMBERS[len(names)]} probabilities, got {array.tolist()}"
        )
    return array


def coin_trials(n: Any, truth: Float[np.ndarray, " D"], seed: Any) -> Trials:
    """`n` trials of each coordinate."""
    n = require_size("n, the trials of each coordinate,", n)
    success = generator(seed, Stream.TRIALS).binomial(n, truth)
    return Trials(np.stack([success, n - success], axis=1))
