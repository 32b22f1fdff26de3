"""What every posterior is."""

from __future__ import annotations

import abc
import importlib
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ..arrays import Array, is_placeholder, require_finite, require_indices, require_size, unwritten_zeros
from ..errors import InputError
from ..kernels import Support
from ..records import AbstractVar, Record
from ..seeds import Seed, generator

# A posterior of up to this many atoms is used whole, not sampled.
MOST_ATOMS = 4096

# Where fewer than this share of a table's entries are allowed, draws of it are kept without memory for the others.
MOSTLY_PADDING = 2 / 3

# Entries of draws that are made together: few enough for what is made on the way to stay in the processor's cache.
BLOCK = 1 << 19


class WeightedDraws(NamedTuple):
    """Points that stand for a posterior.

    Attributes:
        thetas: the points.
        probabilities: positive, summing to 1; equal for draws.
        exact: whether the points are the whole posterior, not a sample of it.
        behind: how many independent draws the posterior they were drawn from is itself made of.
    """

    thetas: Float[np.ndarray, "M ..."]
    probabilities: Float[np.ndarray, " M"]
    exact: bool
    behind: float = np.inf

    def __len__(self) -> int:
        return len(self.probabilities)

    def first(self, count: int) -> WeightedDraws:
        """The first few, as a sample of their own."""
        if count >= len(self):
            return self
        share = self.probabilities[:count]
        return WeightedDraws(self.thetas[:count], share / share.sum(), False, self.behind)

    @property
    def stretch(self) -> float:
        """How much larger errors are than those of independent draws: n drawn from m leave `1 / n + 1 / m`."""
        return float(np.sqrt(1.0 + len(self) / self.behind))


def equally_weighted(thetas: Float[np.ndarray, "M ..."], behind: float = np.inf) -> WeightedDraws:
    """A sample of independent draws, or of a posterior that is itself made of so many."""
    return WeightedDraws(thetas, np.full(len(thetas), 1.0 / len(thetas)), False, behind)


class Posterior(Record):
    """Anything that can be sampled. A concrete posterior supplies `draw`.

    Draws are made by NumPy on the host, between compiled blocks of iterations. So `draw` need not be
    traceable: a posterior may call any library, or resample draws made elsewhere.
    """

    @abc.abstractmethod
    def draw(self, generator: np.random.Generator, n: int) -> Float[np.ndarray, "N ..."]:
        """`n` independent draws of theta, batch axis first."""

    def as_atoms(self) -> WeightedDraws | None:
        """All of a posterior that is a few points: it is then used whole and nothing is sampled; None for others."""
        return None

    @property
    def behind(self) -> float:
        """How many independent draws this posterior is itself made of: no error is below theirs."""
        return float("inf")

    def sample(self, key: Seed, n: int) -> Float[np.ndarray, "N ..."]:
        """`n` draws from a seed, a whole number; the same seed, the same draws."""
        return self.draw(generator(key), require_size("the number of draws", n))

    def by_chain(self) -> Float[np.ndarray, "C N ..."] | None:
        """The draws of a posterior that chains made, chain by chain; None for others, which are drawn from."""
        return None

    def to_arviz(self, samples: int = 1000, seed: Seed = 0, name: str = "theta") -> Any:
        """The belief as ArviZ's `InferenceData` (extra `arviz`), with `theta` in its group `posterior`.

        >>> import prudent as pr
        >>> data = pr.Beta.uniform(2).to_arviz(samples=50)  # doctest: +SKIP
        >>> dict(data.posterior["theta"].sizes)  # doctest: +SKIP
        {'chain': 1, 'draw': 50, 'theta_dim_0': 2}

        Args:
            samples: draws to make; of a posterior that is draws of chains already, those are given.
            seed: of the draws.
            name: of the variable.
        """
        try:
            with warnings.catch_warnings():
                # It tells every importer once a day that another version is coming.
                warnings.simplefilter("ignore", FutureWarning)
                # By name: the checker of types need not have it, as on Python 3.11, where no version is pinned.
                arviz = importlib.import_module("arviz")
        except ImportError:
            raise InputError("ArviZ needs the extra arviz: pip install 'prudent[arviz]'") from None
        chains = self.by_chain()
        chains = self.sample(seed, samples)[None] if chains is None else chains
        posterior = {name: np.asarray(chains)}
        # Before version 1 groups were arguments.
        old = arviz.__version__.startswith("0.")
        return arviz.from_dict(posterior if old else {"posterior": posterior})


class Invertible(Posterior):
    """A posterior that is a known function of independent uniform numbers, as inverse CDFs give it.

    Such a posterior can be drawn with `Sobol` points in the place of random ones. A concrete one supplies
    `draw`, `uniform_dimension` and `from_uniform`.
    """

    @property
    @abc.abstractmethod
    def uniform_dimension(self) -> int:
        """How many uniform numbers one draw of theta is made of."""

    @abc.abstractmethod
    def from_uniform(self, uniforms: Float[np.ndarray, "N K"]) -> Float[np.ndarray, "N ..."]:
        """The draws of theta that points of the unit cube stand for, one for each row."""


class AbstractTable(Invertible):
    """A posterior of transition probabilities, whose theta is a table `[S, A, B]` along a support.

    Attributes:
        support: allowed successors.
    """

    support: AbstractVar[Support]


def in_blocks(
    allowed: Bool[np.ndarray, "S A B"],
    n: int,
    make: Callable[[int, int], Float[np.ndarray, "K S A B"]],
    block: int | None = None,
) -> Float[np.ndarray, "N S A B"]:
    """`n` tables, `make(first, last)` at a time; where few entries are allowed, only these are written to memory.

    When left out, a block is all of them, unless they are mostly padding and many. A few rows with many successors so
    take no memory from those with few: draws lie side by side in memory, and an entry that is padding in all of them is
    a page that was never written to.
    """
    sparse = allowed.mean() < MOSTLY_PADDING
    if block is None:
        block = max(1, BLOCK // allowed.size) if sparse else n
    if block >= n:
        return make(0, n)
    states, actions, entries = allowed.shape
    tables = np.empty((n, *allowed.shape))
    if sparse:
        tables = unwritten_zeros((entries, states, actions, n)).transpose(3, 1, 2, 0)
    where = (slice(None), *np.nonzero(allowed)) if sparse else slice(None)
    for first in range(0, n, block):
        last = min(first + block, n)
        tables[first:last][where] = make(first, last)[where]
    return tables


def as_labels(name: str) -> Callable[[Any], Any]:
    """Field converter: labels as whole numbers; None and placeholders are left as they are."""

    def convert(value: Any) -> Any:
        if value is None or is_placeholder(value):
            return value
        return require_indices(name, value, np.iinfo(np.int32).max)

    return convert


def updated(posterior: Posterior, log: Any, instead: str) -> Any:
    """A posterior after a log; one that does not learn is refused, with what to use instead."""
    update = getattr(posterior, "update", None)
    if update is None:
        raise InputError(f"{type(posterior).__name__} does not learn from a log; {instead}")
    return update(log)


def require_table(name: str, support: Support, *tables: Array) -> None:
    """Refuse tables that do not lie along a support, or have weight on its padding; and a successor listed twice."""
    shapes = [table.shape for table in tables]
    if any(shape != support.shape for shape in shapes):
        received = " and ".join(map(str, shapes))
        raise InputError(f"{name} need the support's shape {support.shape}, got {received}")
    stray = np.argwhere(~support.allowed() & np.any([np.asarray(table) > 0 for table in tables], axis=0))
    if len(stray):
        s, a, _ = (int(i) for i in stray[0])
        raise InputError(f"{name} have weight on padding of state {s}, action {a}; put 0 there")
    if support.is_dense:
        return
    index = np.where(support.allowed(), support.index(), -1 - np.arange(support.successors))
    ordered = np.sort(index, axis=-1)
    repeats = np.argwhere(ordered[..., 1:] == ordered[..., :-1])
    if repeats.size:
        s, a, _ = (int(i) for i in repeats[0])
        raise InputError(f"state {s}, action {a} lists a successor twice; a row of probabilities needs distinct ones")


def require_counts(name: str, counts: Array) -> None:
    """Refuse counts that are not finite numbers >= 0."""
    require_finite(name, np.asarray(counts))
    if np.any(counts < 0):
        raise InputError(f"{name} must be >= 0, got {counts.min()}")


def require_prior(name: str, prior: Array) -> None:
    """Refuse pseudo-counts that are not finite numbers >= 0."""
    require_finite(name, np.asarray(prior))
    if np.any(prior < 0):
        raise InputError(f"{name} must be positive, got {prior.min()}; 1 is the uniform prior")
