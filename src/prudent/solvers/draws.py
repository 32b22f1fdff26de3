"""The random side of a job: posterior draws for its iterations, its output rule and its evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, UInt32

from ..arrays import as_float
from ..errors import InputError
from ..posteriors import Invertible, Posterior, Sobol, WeightedDraws, draw_sets, equally_weighted
from ..records import tree_map
from ..risks import Risk
from ..seeds import Seed, Stream, generator, halves, stream
from .solution import Solution

# Draws come in units of iterations, each with a stream of its own, and units in blocks.
# A unit depends on one run alone, so that a run's draws are the same in any batch.
UNIT_ITERATIONS, UNIT_BYTES = 8, 8 * 2**20
BLOCK_UNITS, BLOCK_BYTES = 4, 256 * 2**20

# Up to this many uniform numbers a draw, Sobol points spread better than independent ones.
LARGEST_SOBOL = 64


class Job(NamedTuple):
    """One belief and risk of a batch.

    Attributes:
        belief, risk: what is solved.
        seed: of its draws.
        start: its first parameters.
        given: whether the user chose them; then nothing worse on held-out draws is returned.
        before: the solution to go on from.
    """

    belief: Posterior
    risk: Risk
    seed: Seed
    start: Any
    given: bool = False
    before: Solution | None = None


class Randomness(NamedTuple):
    """Random numbers of T iterations of G runs besides their draws.

    Attributes:
        uniforms: in [0, 1), for the output rule.
        words: of a generator, for the gradient estimator.
    """

    uniforms: Float[np.ndarray, "T G"]
    words: UInt32[np.ndarray, "T G 2"]


class JobDraws:
    """Posterior draws for the jobs of a batch; jobs that share belief and seed share their draws.

    The beliefs of a batch have atoms all alike or not at all: atoms are used whole in the place of any draws.
    """

    def __init__(self, jobs: Sequence[Job]):
        self.jobs = jobs
        self.made: dict[tuple, WeightedDraws] = {}
        self.atoms = [job.belief.as_atoms() for job in jobs]
        shapes = {fresh_draws(job.belief, job.seed, 1).thetas.shape[1:] for job in jobs}
        if len(shapes) > 1:
            raise InputError(f"all beliefs must be about the same theta, got draws of shapes {sorted(shapes)}")
        self.shape = shapes.pop()

    def _each(self, make: Callable[[Posterior, np.random.Generator], Any], *path: int) -> list[Any]:
        made: dict[tuple, Any] = {}
        for job in self.jobs:
            name = (id(job.belief), job.seed)
            if name not in made:
                made[name] = make(job.belief, generator(job.seed, *path))
        return [made[id(job.belief), job.seed] for job in self.jobs]

    def _weighted(self, n: int, *path: int) -> list[WeightedDraws]:
        if self.atoms[0] is not None:
            return [atoms for atoms in self.atoms if atoms is not None]
        return self._each(lambda belief, random: equally_weighted(draw(belief, random, n)), *path)

    def first(self, n: int) -> Float[np.ndarray, "N ..."]:
        """A few draws of every run for the checks before the start."""
        return np.concatenate([draws.thetas[:n] for draws in self._weighted(n, Stream.ITERATION, 0)])

    def held_out(self, n: int) -> list[WeightedDraws]:
        """Draws of each run that no gradient sees, for the output rule; the atoms, where there are any."""
        return self._weighted(n, Stream.HELD_OUT)

    def evenly(self, job: Job, n: int, *path: int) -> WeightedDraws:
        """A sample that stays the same, by Sobol points where the belief is a function of few uniform numbers."""
        atoms = job.belief.as_atoms()
        if atoms is not None:
            return atoms
        name = (id(job.belief), job.seed, n, path)
        if name not in self.made:
            belief = job.belief
            if 0 < _uniform_numbers(belief) <= LARGEST_SOBOL:
                belief = Sobol(belief)
            self.made[name] = equally_weighted(draw(belief, generator(job.seed, *path), n))
        return self.made[name]

    def samples(self, wanted: int) -> int:
        """Draws of an iteration: those wanted, or all atoms where that is no more."""
        atoms = self.atoms[0]
        return len(atoms) if atoms is not None and self._whole(wanted) else wanted

    def shares(self, wanted: int) -> Float[np.ndarray, "G R"]:
        """Probabilities of an iteration's draws."""
        if self._whole(wanted):
            return np.stack([atoms.probabilities for atoms in self.atoms if atoms is not None])
        return np.full((len(self.jobs), wanted), 1.0 / wanted)

    def _whole(self, wanted: int) -> bool:
        return self.atoms[0] is not None and len(self.atoms[0]) <= wanted

    def sizes(self, wanted: int) -> tuple[int, int]:
        """Iterations in a unit, and units in a block."""
        size = 8 * self.samples(wanted) * int(np.prod(self.shape))
        unit = int(np.clip(UNIT_BYTES // size, 1, UNIT_ITERATIONS))
        return unit, int(np.clip(BLOCK_BYTES // (unit * size * len(self.jobs)), 1, BLOCK_UNITS))

    def block(self, wanted: int, first: int, start: int, end: int) -> tuple[Float[np.ndarray, "T G R ..."], Randomness]:
        """Draws and other random numbers of the block of iterations that begins at `first`.

        Only the units that hold iterations `start..end-1` are drawn; the others are left empty.
        """
        samples, whole = self.samples(wanted), self._whole(wanted)
        unit, units = self.sizes(wanted)
        thetas = np.zeros((units * unit, len(self.jobs), samples, *self.shape))
        chance = Randomness(
            np.zeros((units * unit, len(self.jobs))), np.zeros((units * unit, len(self.jobs), 2), np.uint32)
        )
        for number in range(units):
            begins = first + number * unit
            if begins >= end or begins + unit <= start:
                continue
            rows = slice(number * unit, (number + 1) * unit)
            drawn = self._each(
                lambda belief, random: (
                    None if whole else draw(belief, random, samples, unit),
                    random.random(unit),
                    random.integers(2**32, size=(unit, 2), dtype=np.uint32),
                ),
                Stream.ITERATION,
                begins // unit,
            )
            for g, (theta, uniform, words) in enumerate(drawn):
                atoms = self.atoms[g]
                thetas[rows, g] = (
                    atoms.thetas if whole and atoms is not None else theta.reshape(unit, samples, *self.shape)
                )
                chance.uniforms[rows, g] = uniform
                chance.words[rows, g] = words
        return thetas, chance


def _uniform_numbers(belief: Posterior) -> int:
    """Return how many uniform numbers a draw is a function of; 0 for a belief that is drawn in another way."""
    try:
        return belief.uniform_dimension if isinstance(belief, Invertible) else 0
    except InputError:
        # A box around a belief that is not a function of uniform numbers, which draws by rejection.
        return 0


def fresh_draws(belief: Posterior, seed: Seed, n: int, *more: int) -> WeightedDraws:
    """Draws that neither the gradients nor an output rule see; all atoms, where the belief is a few of them.

    `more` whole numbers tell several such samples under one seed apart.
    """
    atoms = belief.as_atoms()
    if atoms is not None:
        return atoms
    return equally_weighted(draw(belief, stream((*halves(seed), *more), Stream.EVALUATION), n), belief.behind)


def draw(belief: Posterior, random: np.random.Generator, n: int, sets: int = 1) -> np.ndarray:
    """`sets` samples of `n` draws, one behind the other."""
    drawn = np.asarray(as_float(draw_sets(belief, random, sets, n), "posterior draws"))
    n *= sets
    if drawn.shape[:1] != (n,):
        raise InputError(f"draw(generator, {n}) gave shape {drawn.shape}; it must give {n} draws, batch first")
    return drawn


def stacked(trees: Sequence[Any]) -> Any:
    """Records of the same shape as one record with a leading axis."""
    return tree_map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees)
