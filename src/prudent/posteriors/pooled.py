"""Tables of transition probabilities whose rows learn from one another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jax.core import Tracer
from jaxtyping import Float
from scipy import special

from ..arrays import Array, as_float, require_kind, require_size
from ..errors import InputError
from ..kernels import Support
from ..transitions import Transitions
from .base import AbstractTable, require_counts, require_table
from .dirichlet import frequencies, sticks, sum_counts, unbroken
from .learning import CONCENTRATIONS, Learned, learn, likely_grid

# Draws whose rows are made together.
CHUNK = 32

# A gamma variate that is smaller than another one by a factor of exp(-VANISHING) is 0.
VANISHING = np.float32(8.0)

# A share of its mean that every weight of a law keeps.
TINY = 1e-9


class Pooled(AbstractTable):
    """Rows of a transition table that learn from one another; theta is the table `[S, A, B]`.

    Each row is `Dirichlet(c base_k + counts)`. Which base it has, and how closely the row keeps to it, is not known:
    `(k, c)` is drawn for each row by how well it foretells the row's counts from those of the *other* rows. The bases
    come from laws that pairs share: the moves of the action along the numbered states (to the border, or not at all,
    where they would leave the range), the same among states with near numbers, the moves of any action, where the
    action leads from anywhere, and what the other actions of the state do. Each law is drawn, too,
    `Dirichlet(counts w + expected)`, once for all rows: what is not known of a law is wrong everywhere at once. There
    `w = 1 / (4 + n / 30)` for a law of `n` observations, because pairs are alike and not the same.

    The laws' parameters and the chances of `(k, c)` are fitted to all counts whenever a belief is made, by a fixed
    number of steps: the same counts, the same belief. So the belief after more data is not the one before it
    conditioned on them, and what `worth_of_data` expects to gain need not be above 0.

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
    grid: tuple[int, ...] | None = eqx.field(static=True)
    learned: Learned = eqx.field(static=True, repr=False)

    def __init__(self, support: Support, counts: Any = None, grid: Sequence[int] | None = None):
        require_kind("support", support, Support, "a Support, such as Support.dense(states, actions)")
        self.support = support
        self.grid = _sizes(grid, support.states)
        self.counts = as_float(np.zeros(support.shape) if counts is None else counts, "counts")
        if isinstance(self.counts, Tracer):
            raise InputError("a Pooled belief is fitted to its counts, so they cannot be traced; make it outside")
        require_table("Pooled counts", support, self.counts)
        require_counts("Pooled counts", self.counts)
        counts = np.asarray(self.counts)
        self.learned = learn(support, counts, self.grid or likely_grid(support, counts))

    def update(self, log: Transitions) -> Pooled:
        """Add the counts of a log, and learn anew how alike the pairs are."""
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
        tables = np.empty((n, *self.learned.allowed.shape))
        for first in range(0, n, CHUNK):
            rows = tables[first : first + CHUNK]
            laws = [self._law(generator, k, len(rows)) for k in range(len(self.learned.laws))]
            kinds = self.learned.kinds(generator.random(rows.shape[:2]))
            rows[:] = _gamma(generator, self._shapes(laws, kinds))
            total = rows.sum(axis=2, keepdims=True)
            if not total.all():
                draw, row = np.nonzero(total[..., 0] == 0)
                # All variates vanished: the row leads to one of its successors, as likely as its parameters say.
                rows[draw, row] = _one(generator, self._shapes(laws, kinds)[draw, row])
                total[draw, row] = 1.0
            rows /= total
        return tables.reshape(n, *self.support.shape)

    def _law(self, generator: np.random.Generator, k: int, n: int) -> Float[np.ndarray, "N J"]:
        """Draws of one law, not normalised; its mean where no row has anything of it."""
        law = self.learned.laws[k].astype(np.float32)
        law = np.broadcast_to(law, (n, len(law)))
        return _gamma(generator, law) if self.learned.weights[:, k].any() else law

    def _flat_counts(self) -> Float[np.ndarray, "P B"]:
        return np.asarray(self.counts).reshape(-1, self.support.successors)

    def _shapes(self, laws: list[np.ndarray], kinds: np.ndarray) -> Float[np.ndarray, "N P B"]:
        """`c base_k + counts` of each row, where laws `[N, J]` and kinds `[N, P]` were drawn."""
        learned = self.learned
        # A law may vanish wherever a row can lead; its mean then stands in.
        both = zip(learned.pools, laws, learned.laws, strict=True)
        parts = np.concatenate([pool.parts(law + (TINY * mean).astype(law.dtype)) for pool, law, mean in both], axis=1)
        pool, concentration = np.divmod(kinds, len(CONCENTRATIONS))
        place = learned.index[pool, np.arange(kinds.shape[1])]
        place += (parts.shape[1] * np.arange(len(kinds), dtype=place.dtype))[:, None, None]
        shapes = parts.ravel().take(place)
        total = shapes.sum(axis=2)
        scale = np.array(CONCENTRATIONS, parts.dtype)[concentration] / np.where(total > 0, total, 1.0)
        shapes *= scale.astype(parts.dtype)[..., None]
        shapes += self._flat_counts().astype(parts.dtype)
        return shapes

    @property
    def uniform_dimension(self) -> int:
        """A number for each thing that can happen under each law, for each row's kind, and for each of its sticks."""
        learned = self.learned
        return sum(map(len, learned.laws)) + int(learned.free.sum()) + int(sticks(learned.allowed * 1.0).sum())

    def from_uniform(self, uniforms: Float[np.ndarray, "N K"]) -> Float[np.ndarray, "N S A B"]:
        """Laws by inverse gamma CDFs, then kinds, then rows by breaking sticks."""
        learned = self.learned
        laws, first = [], 0
        for law in learned.laws:
            laws.append(special.gammaincinv(law, uniforms[:, first : first + len(law)]))
            first += len(law)
        chances = np.zeros((len(uniforms), len(learned.allowed)))
        chances[:, learned.free] = uniforms[:, first : first + int(learned.free.sum())]
        first += int(learned.free.sum())
        shapes = np.where(learned.allowed, np.maximum(self._shapes(laws, learned.kinds(chances)), TINY), 0.0)
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


def _gamma(generator: np.random.Generator, shapes: np.ndarray) -> np.ndarray:
    """Gamma variates in single precision; one of a shape a below 1 is `Gamma(a + 1) U^(1 / a)`, U uniform."""
    uniform = generator.random(shapes.shape, dtype=np.float32)
    # Most of small shapes vanish, and need not be drawn.
    some = np.flatnonzero(uniform > np.exp(-VANISHING * shapes))
    shape, uniform = shapes.take(some), uniform.take(some)
    small = shape < 1.0
    drawn = generator.standard_gamma((shape + small).astype(np.float64)).astype(np.float32)
    drawn *= np.where(small, np.exp(np.log(uniform) / shape), np.float32(1.0))
    variates = np.zeros(shapes.size, np.float32)
    variates[some] = drawn
    return variates.reshape(shapes.shape)


def _one(generator: np.random.Generator, shapes: Float[np.ndarray, "M B"]) -> Float[np.ndarray, "M B"]:
    """Rows with all probability on one entry, which is as likely as its shape says."""
    cumulative = np.cumsum(shapes, axis=1)
    chosen = (cumulative <= generator.random((len(shapes), 1)) * cumulative[:, -1:]).sum(axis=1)
    return np.eye(shapes.shape[1])[chosen]
