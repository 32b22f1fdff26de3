"""Tables of transition probabilities whose rows learn from one another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import special

from ..arrays import Array, as_float, is_traced, require_kind, require_size
from ..errors import InputError
from ..kernels import Support
from ..records import field
from ..transitions import Log, Transitions
from .base import BLOCK, AbstractTable, in_blocks, require_counts, require_table
from .conjugate import frequencies, sticks, sum_counts, unbroken
from .learning import CONCENTRATIONS, TINY, Learned, learn, likely_grid

# A gamma variate below exp(-8) may be 0: that of shape a from a uniform number u is, where u + VANISHING a <= 1.
VANISHING = np.float32(8.5)

# Keeps logarithms finite.
SMALLEST = np.float32(1e-8)


class Pooled(AbstractTable):
    """Rows of a transition table that learn from one another; theta is the table `[S, A, B]`.

    Each row is `Dirichlet(c base_k + counts)`. Which base it has, and how closely the row keeps to it, is not known:
    `(k, c)` is drawn for each row by how well it foretells the row's counts from those of the *other* rows. The bases
    come from laws that pairs share: the moves of the action along the numbered states (to the border, or not at all,
    where they would leave the range), the same among states with near numbers, the moves of any action, where the
    action leads from anywhere, and what the other actions of the state do. Each law is drawn, too,
    `Dirichlet(counts w + expected)`, once for all rows: what is not known of a law is wrong everywhere at once. There
    `w = 1 / (4 + n / 30)` for a law of `n` observations, because pairs are alike and not the same.

    The laws' parameters are fitted to all counts whenever a belief is made, and the chances of `(k, c)` for a row
    without counts are drawn given all counts, by a fixed number of steps from a fixed seed: the same counts, the same
    belief. Each table takes one draw of the chances for all its rows. So the belief after more data is not the one
    before it conditioned on them, and what `worth_of_data` expects to gain need not be above 0.

    >>> import prudent as pr
    >>> log = pr.Transitions.from_records([(0, 0, 1), (1, 0, 2), (1, 0, 2), (2, 0, 3)], states=5, actions=1)
    >>> belief = pr.Pooled(pr.Support.dense(5, 1)).update(log)
    >>> belief.mean()[3, 0].argmax().item()  # never seen; the others lead one state on
    4

    Attributes:
        support: allowed successors; a transition outside it is refused.
        counts: `[S, A, B]` observed counts.
        grid: how many states there are along each axis that they are numbered by; the one or two axes that suit the
            counts best when left out.
        learned: what was fitted to the counts.
    """

    support: Support
    counts: Float[Array, "S A B"]
    grid: tuple[int, ...] | None = field(static=True)
    learned: Learned = field(static=True, repr=False)

    def __init__(self, support: Support, counts: Any = None, grid: Sequence[int] | None = None):
        require_kind("support", support, Support, "a Support, such as Support.dense(states, actions)")
        self.support = support
        self.grid = _sizes(grid, support.states)
        self.counts = as_float(np.zeros(support.shape) if counts is None else counts, "counts")
        if is_traced(self.counts):
            raise InputError("a Pooled belief is fitted to its counts, so they cannot be traced; make it outside")
        require_table("Pooled counts", support, self.counts)
        require_counts("Pooled counts", self.counts)
        counts = np.asarray(self.counts)
        self.learned = learn(support, counts, self.grid or likely_grid(support, counts))

    def update(self, log: Transitions | Log) -> Pooled:
        """Add the counts of a log, and learn again how alike the pairs are."""
        return Pooled(self.support, sum_counts(self.support, self.counts, log), self.grid)

    def mean(self) -> Float[np.ndarray, "S A B"]:
        """Posterior mean of the table."""
        learned, counts = self.learned, self._flat_counts()
        total = counts.sum(axis=1, keepdims=True)
        mean = np.zeros_like(counts)
        for k, pool in enumerate(learned.pools):
            base = _normalised(pool.base(learned.laws[k]), learned.allowed)
            for j, c in enumerate(CONCENTRATIONS):
                mean += learned.weights[:, k, j, None] * (c * base + counts) / (c + total)
        return mean.reshape(self.support.shape)

    def maximum_likelihood(self, unseen: Any = None) -> Float[np.ndarray, "S A B"]:
        """Observed frequencies; `unseen` is a table whose rows stand in for pairs without data."""
        return frequencies(np.asarray(self.counts), unseen)

    def draw(self, generator: np.random.Generator, n: int) -> Float[np.ndarray, "N S A B"]:
        """`n` tables `[n, S, A, B]`."""
        learned, counts = self.learned, self._flat_counts().astype(np.float32)
        expected = np.concatenate(learned.laws).astype(np.float32)

        def make(first: int, last: int) -> np.ndarray:
            laws = _gamma(generator, np.tile(expected, (last - first, 1)))
            chances = generator.random((last - first, len(counts)), dtype=np.float32)
            shapes = learned.shapes(laws, learned.drawn(generator.random(last - first), chances))
            shapes += counts
            rows = _gamma(generator, shapes).astype(np.float64)
            total = np.einsum("npb->np", rows)[..., None]
            if not total.all():
                draw, row = np.nonzero(total[..., 0] == 0)
                # All variates vanished: the row leads to one of its successors, as likely as its parameters say.
                rows[draw, row] = _one(generator, shapes[draw, row])
                total[draw, row] = 1.0
            rows *= 1.0 / total
            return rows.reshape(-1, *self.support.shape)

        block = max(1, BLOCK // max(counts.size, expected.size))
        return in_blocks(self.support.allowed(), n, make, block)

    def _flat_counts(self) -> Float[np.ndarray, "P B"]:
        return np.asarray(self.counts).reshape(-1, self.support.successors)

    @property
    def uniform_dimension(self) -> int:
        """One for the chances of kinds, one for each thing that can happen under a law, each row's kind and stick."""
        learned = self.learned
        return 1 + sum(map(len, learned.laws)) + int(learned.free.sum()) + int(sticks(learned.allowed * 1.0).sum())

    def from_uniform(self, uniforms: Float[np.ndarray, "N K"]) -> Float[np.ndarray, "N S A B"]:
        """Chances of kinds, laws by inverse gamma CDFs, then kinds, then rows by breaking sticks."""
        allowed = self.support.allowed()
        return in_blocks(allowed, len(uniforms), lambda *ends: self._from_uniform(uniforms[slice(*ends)]))

    def _from_uniform(self, uniforms: Float[np.ndarray, "N K"]) -> Float[np.ndarray, "N S A B"]:
        learned, which, uniforms = self.learned, uniforms[:, 0], uniforms[:, 1:]
        expected = np.concatenate(learned.laws)
        first = len(expected)
        laws = special.gammaincinv(expected, uniforms[:, :first])
        chances = np.zeros((len(uniforms), len(learned.allowed)))
        chances[:, learned.free] = uniforms[:, first : first + int(learned.free.sum())]
        first += int(learned.free.sum())
        shapes = learned.shapes(laws, learned.drawn(which, chances)) + self._flat_counts()
        shapes = np.where(learned.allowed, np.maximum(shapes, TINY), 0.0)
        return unbroken(shapes, uniforms[:, first:]).reshape(-1, *self.support.shape)


def _sizes(grid: Sequence[int] | None, states: int) -> tuple[int, ...] | None:
    if grid is None:
        return None
    given = np.atleast_1d(np.asarray(grid, dtype=object))
    sizes = tuple(require_size("a size of the grid", size) for size in given)
    if int(np.prod(sizes)) != states:
        raise InputError(f"grid {sizes} does not hold the {states} states; its sizes must multiply to {states}")
    return sizes


def _normalised(base: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    total = base.sum(axis=1, keepdims=True)
    even = allowed / allowed.sum(axis=1, keepdims=True)
    return np.where(total > 0, base / np.where(total > 0, total, 1.0), even)


def _gamma(generator: np.random.Generator, shapes: np.ndarray) -> Float[np.ndarray, ...]:
    """Gamma variates in single precision; most of those of small shapes vanish and are not drawn."""
    flat = shapes.ravel()
    uniform = generator.random(flat.size, dtype=np.float32)
    bar = VANISHING * flat
    bar += uniform
    some = np.flatnonzero(bar > 1.0)
    shape, uniform = flat.take(some), uniform.take(some)
    drawn = np.empty_like(shape)
    small, large = np.flatnonzero(shape < 1.0), np.flatnonzero(shape >= 1.0)
    drawn[small] = _small_gamma(generator, shape.take(small), uniform.take(small))
    drawn[large] = _large_gamma(generator, shape.take(large))
    variates = np.zeros(flat.size, np.float32)
    variates[some] = drawn
    return variates.reshape(shapes.shape)


def _small_gamma(
    generator: np.random.Generator, shape: Float[np.ndarray, " M"], uniform: Float[np.ndarray, " M"]
) -> Float[np.ndarray, " M"]:
    """Gamma variates of shapes a below 1 by rejection, after Ahrens and Dieter (1974), from uniform numbers u.

    With `p = u (1 + a / e)`, the proposal is `p^(1 / a)` where p <= 1. It is below exp(-8) where `u + 8.5 a <= 1`.
    """
    height = np.float32(1.0 / np.e) * shape + np.float32(1.0)
    p = uniform * height
    proposed = np.exp(np.log(np.maximum(p, SMALLEST)) / shape)
    limit = proposed.copy()
    above = np.flatnonzero(p > 1.0)
    rest = np.maximum(height.take(above) - p.take(above), SMALLEST)
    proposed[above] = np.log(shape.take(above) / rest)
    limit[above] = (1.0 - shape.take(above)) * np.log(proposed.take(above))
    refused = np.flatnonzero(generator.random(len(shape), dtype=np.float32) > np.exp(-limit))
    shape = shape.take(refused)
    boost = np.exp(np.log(generator.random(len(refused), dtype=np.float32) + SMALLEST) / shape)
    proposed[refused] = boost * _large_gamma(generator, shape + np.float32(1.0))
    return proposed


def _large_gamma(generator: np.random.Generator, shape: Float[np.ndarray, " M"]) -> Float[np.ndarray, " M"]:
    """Gamma variates of shapes from 1 on, after Marsaglia and Tsang (2000): `d (1 + x / sqrt(9 d))^3`, x normal."""
    half = (len(shape) + 1) // 2
    uniforms = generator.random(2 * half + len(shape), dtype=np.float32)
    radius = np.sqrt(np.float32(-2.0) * np.log(np.float32(1.0) - uniforms[:half]))
    angle = np.float32(2.0 * np.pi) * uniforms[half : 2 * half]
    square = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[: len(shape)]
    d = shape - np.float32(1.0 / 3.0)
    cube = square / np.sqrt(np.float32(9.0) * d) + np.float32(1.0)
    cube = cube * cube * cube
    square *= square
    variates = d * cube
    # All but a few are accepted by a test that needs no logarithm.
    uniform = uniforms[2 * half :]
    unsure = np.flatnonzero((np.float32(0.0331) * square * square + uniform >= 1.0) | (cube <= 0.0))
    cubes = cube.take(unsure)
    above = np.maximum(cubes, SMALLEST)
    most = 0.5 * square.take(unsure) + d.take(unsure) * (1.0 - above + np.log(above))
    refused = unsure[(cubes <= 0.0) | (np.log(uniform.take(unsure) + SMALLEST) >= most)]
    variates[refused] = generator.standard_gamma(shape.take(refused), dtype=np.float32)
    return variates


def _one(generator: np.random.Generator, shapes: Float[np.ndarray, "M B"]) -> Float[np.ndarray, "M B"]:
    """Rows with all probability on one entry, which is as likely as its shape says."""
    cumulative = np.cumsum(shapes, axis=1)
    chosen = (cumulative <= generator.random((len(shapes), 1)) * cumulative[:, -1:]).sum(axis=1)
    return np.eye(shapes.shape[1])[chosen]
