"""The random side of a run: posterior draws for its iterations, its output rule and its evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, UInt32

from ..arrays import Array, Stream, as_float, stream
from ..errors import InputError
from ..posteriors import Posterior, draw_sets
from ..risks import Risk

# Draws come in units of iterations, each with a stream of its own, and units in blocks for the compiled
# loop. A unit depends on one run alone, so that a run's draws are the same in any batch.
UNIT_ITERATIONS, UNIT_BYTES = 8, 8 * 2**20
BLOCK_UNITS, BLOCK_BYTES = 4, 256 * 2**20


class Run(NamedTuple):
    """One run of a batch: its belief, its risk, the words of its random key and its first parameters."""

    belief: Posterior
    risk: Risk
    words: tuple[int, ...]
    start: Any


class Chance(NamedTuple):
    """Random numbers of T iterations of G runs besides their draws.

    Attributes:
        uniforms: in [0, 1), for the output rule.
        keys: words of a random key, for the gradient estimator.
    """

    uniforms: Float[Array, "T G"]
    keys: UInt32[Array, "T G 2"]


class Draws:
    """Posterior draws for the runs of a batch; runs that share belief and key share their draws."""

    def __init__(self, runs: Sequence[Run]):
        self.runs = runs
        self.shape = self.evaluation(1).shape[2:]

    def _each(self, make: Callable[[Posterior, np.random.Generator], Any], *path: int) -> list[Any]:
        made: dict[tuple, Any] = {}
        for run in self.runs:
            name = (id(run.belief), run.words)
            if name not in made:
                made[name] = make(run.belief, stream(run.words, *path))
        return [made[id(run.belief), run.words] for run in self.runs]

    def _thetas(self, n: int, *path: int) -> Float[np.ndarray, "G N ..."]:
        drawn = self._each(lambda belief, random: draw(belief, random, n), *path)
        shapes = {theta.shape for theta in drawn}
        if len(shapes) > 1:
            raise InputError(f"all beliefs must be about the same theta, got draws of shapes {sorted(shapes)}")
        return np.stack(drawn)

    def first(self, n: int) -> Float[np.ndarray, "G N ..."]:
        """A few draws for the checks before the start."""
        return self._thetas(n, Stream.ITERATION, 0)

    def held_out(self, n: int) -> Float[np.ndarray, "G N ..."]:
        """Draws that no gradient sees, for the output rule; none when `n` is 0."""
        return self._thetas(n, Stream.HELD_OUT) if n else np.zeros((len(self.runs), 0, 1))

    def evaluation(self, n: int) -> Float[np.ndarray, "G N ..."]:
        """Draws that neither the gradients nor the output rule see."""
        return self._thetas(n, Stream.EVALUATION)

    def sizes(self, samples: int) -> tuple[int, int]:
        """Iterations in a unit, and units in a block."""
        size = 8 * samples * int(np.prod(self.shape))
        unit = int(np.clip(UNIT_BYTES // size, 1, UNIT_ITERATIONS))
        return unit, int(np.clip(BLOCK_BYTES // (unit * size * len(self.runs)), 1, BLOCK_UNITS))

    def block(self, samples: int, first: int, start: int, end: int) -> tuple[Float[np.ndarray, "T G R ..."], Chance]:
        """Draws and other random numbers of the block of iterations that begins at `first`.

        Only the units that hold iterations `start..end-1` are drawn; the others are left empty.
        """
        unit, units = self.sizes(samples)
        thetas = np.zeros((units * unit, len(self.runs), samples, *self.shape))
        chance = Chance(
            np.zeros((units * unit, len(self.runs))), np.zeros((units * unit, len(self.runs), 2), np.uint32)
        )
        for number in range(units):
            begins = first + number * unit
            if begins >= end or begins + unit <= start:
                continue
            rows = slice(number * unit, (number + 1) * unit)
            drawn = self._each(
                lambda belief, random: (
                    draw(belief, random, samples, unit),
                    random.random(unit),
                    random.integers(2**32, size=(unit, 2), dtype=np.uint32),
                ),
                Stream.ITERATION,
                begins // unit,
            )
            for g, (theta, uniform, words) in enumerate(drawn):
                thetas[rows, g] = theta.reshape(unit, samples, *self.shape)
                chance.uniforms[rows, g] = uniform
                chance.keys[rows, g] = words
        return thetas, chance


def draw(belief: Posterior, random: np.random.Generator, n: int, sets: int = 1) -> np.ndarray:
    """`sets` samples of `n` draws, one behind the other."""
    drawn = np.asarray(as_float(draw_sets(belief, random, sets, n), "posterior draws"))
    n *= sets
    if drawn.shape[:1] != (n,):
        raise InputError(f"draw(generator, {n}) gave shape {drawn.shape}; it must give {n} draws, batch first")
    return drawn


def stacked(trees: Sequence[Any]) -> Any:
    """Records of the same shape as one record with a leading axis."""
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees)
