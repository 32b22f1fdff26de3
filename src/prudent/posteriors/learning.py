"""How alike the rows of a table are, learned from their counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse
from scipy.special import digamma, gammaln

from ..kernels import Support
from .pools import Pool, grids_of, move_pools, pools_of

# How many observations a row's base may count for.
CONCENTRATIONS = (0.5, 2.0, 8.0, 32.0, 128.0)

# Pairs are alike and not the same: n observations of a law that they share count n / (FOR_ONE + n / MOST).
FOR_ONE, MOST = 4.0, 30.0

# How many observations, all laws alike, what is expected before any counts for.
EXPECTED = 1.0

# How many rows of each kind are expected before any is seen.
EVEN = 0.3

# Draws of the chances of kinds that a belief is made of; every other one of a chain, without its beginning.
CHANCES, THINNING, BURN_IN, SEED = 64, 2, 20, 0

# Kinds of a row that are less likely than its likeliest by this factor are left out.
NEGLIGIBLE = 1e-3

# A share of its mean that every weight of a law keeps.
TINY = 1e-9

# How much of a count speaks of a law before it is known how closely rows keep to it.
MOST_TOLD = 4.0

# Rounds in which weights and laws are found in turn, and steps of the weights in each.
ROUNDS, STEPS = 6, 20


@dataclass(frozen=True, eq=False)
class Learned:
    """What the rows of a table have taught about one another.

    Attributes:
        pools: the K ways in which pairs may be alike.
        laws: `[J]` for each, the parameters of the Dirichlet that its law has.
        weights: `[P, K, C]` the chance of each base and concentration, row by row, over all draws of the chances.
        kinds: `[U]` the bases and concentrations, numbered together, that some row may have.
        chances: `[M, U]` draws of their chances for a row without counts; a belief takes one of them for all its rows.
        likelihood: `[P, U]` of each row's counts under each, as a share of the largest; 0 where it is negligible.
        allowed: `[P, B]` where a row may lead.
        sums: `[H, J]` of all pools, for all laws one behind the other.
        index: `[K, P, B]` which weight of all laws, or from J on which sum, each entry of the table has.
    """

    pools: tuple[Pool, ...]
    laws: tuple[Float[np.ndarray, " _"], ...]
    weights: Float[np.ndarray, "P K C"]
    kinds: Int[np.ndarray, " U"]
    chances: Float[np.ndarray, "M U"]
    likelihood: Float[np.ndarray, "P U"]
    allowed: Bool[np.ndarray, "P B"]
    sums: sparse.csr_matrix
    index: Int[np.ndarray, "K P B"]

    @property
    def free(self) -> Bool[np.ndarray, " P"]:
        """Rows that may lead to more than one state."""
        return self.allowed.sum(axis=1) > 1

    def drawn(self, which: Float[np.ndarray, " N"], uniforms: Float[np.ndarray, "N P"]) -> Int[np.ndarray, "N P"]:
        """The base and concentration, numbered together, that uniform numbers stand for; `which` picks the chances."""
        chances = self.chances[np.minimum((which * len(self.chances)).astype(int), len(self.chances) - 1)]
        # A product of matrices this small would be spent on waking the threads of BLAS.
        bar = uniforms * np.einsum("nu,pu->np", chances, self.likelihood)
        upto, number = np.zeros_like(bar), np.zeros(bar.shape, dtype=np.int8)
        for chance, likelihood in zip(chances.T[:-1], self.likelihood.T[:-1], strict=True):
            upto += chance[:, None] * likelihood
            number += bar >= upto
        return self.kinds[number]

    def shapes(self, laws: Float[np.ndarray, "N J"], kinds: Int[np.ndarray, "N P"]) -> Float[np.ndarray, "N P B"]:
        """`c base_k` of each row, where the laws of all pools, one behind the other, and the rows' kinds were drawn."""
        # A law may vanish wherever a row can lead; its mean then stands in.
        laws = laws + (TINY * np.concatenate(self.laws)).astype(laws.dtype)
        parts = np.concatenate([laws, (self.sums @ laws.T).T], axis=1)
        pool, concentration = np.divmod(kinds, len(CONCENTRATIONS))
        rows, width = self.index.shape[1:]
        index, shapes = self.index.reshape(-1, width), np.empty((*kinds.shape, width), parts.dtype)
        # One table after the other: what it needs stays in the processor's cache.
        for part, row, made in zip(parts, rows * pool + np.arange(rows), shapes, strict=True):
            part.take(index.take(row, axis=0), out=made, mode="clip")
        total = np.einsum("npb->np", shapes)
        scale = np.array(CONCENTRATIONS, parts.dtype)[concentration] / np.where(total > 0, total, 1.0)
        shapes *= scale.astype(parts.dtype)[..., None]
        return shapes


def learn(support: Support, counts: Float[np.ndarray, "S A B"], grid: Sequence[int]) -> Learned:
    """Weights and laws by expectation-maximisation, each row predicted by the others only."""
    counts = counts.reshape(-1, support.successors)
    allowed = support.allowed().reshape(counts.shape)
    # A row with one successor says nothing of others, and learns nothing.
    counts = np.where(allowed.sum(axis=1, keepdims=True) > 1, counts, 0.0)
    pools = pools_of(support, counts, grid)
    rows = CountedRows.of(counts)
    kinds = len(pools), len(CONCENTRATIONS)
    weights = np.full((len(counts), *kinds), 1.0 / np.prod(kinds))
    common = weights[0]
    shared = [0.5 * np.minimum(rows.count, 1.0) + 0.5 * np.minimum(rows.count, MOST_TOLD) for _ in pools]
    laws = [pool.first for pool in pools]
    likelihood = np.zeros(weights.shape)
    for turn in range(ROUNDS):
        for k, pool in enumerate(pools):
            mine = shared[k] * (weights[rows.row, k].sum(axis=1) if turn else 1.0)
            laws[k] = EXPECTED * pool.first + pool.happened(laws[k], rows.place, mine)
            predicted = rows.predicted_law(pool, laws[k], mine)
            for j, concentration in enumerate(CONCENTRATIONS):
                likelihood[:, k, j] = rows.log_likelihood(concentration * predicted, concentration)
            shared[k] = predicted
        weights, common = _weights(likelihood, rows.seen, common)
        shared = [rows.expected_shared_counts(predicted, weights[:, k]) for k, predicted in enumerate(shared)]
    final = [
        EXPECTED * pool.first
        + _discounted(pool, pool.happened(laws[k], rows.place, shared[k] * weights[rows.row, k].sum(axis=1)))
        for k, pool in enumerate(pools)
    ]
    scaled = _scaled(likelihood).reshape(len(counts), -1)
    chances = _chances(scaled[rows.seen], common.ravel())
    weights = _believed(scaled, chances)
    used = np.flatnonzero(weights.any(axis=0))
    scaled = np.where(weights > 0, scaled, 0.0)
    chances, scaled = (np.ascontiguousarray(part[:, used], dtype=np.float32) for part in (chances, scaled))
    weights = weights.reshape(len(counts), *kinds)
    return Learned(pools, tuple(final), weights, used, chances, scaled, allowed, *_joined(pools))


def _joined(pools: Sequence[Pool]) -> tuple[sparse.csr_matrix, Int[np.ndarray, "K P B"]]:
    """The sums of all pools in one matrix, and their indices as if the pools' laws were one."""
    sizes = np.array([len(pool.first) for pool in pools])
    sums = sparse.csr_matrix(sparse.block_diag([pool.sums for pool in pools]))
    before = np.cumsum(sizes) - sizes
    summed = np.array([pool.size for pool in pools]) - sizes
    behind = sizes.sum() + np.cumsum(summed) - summed - sizes
    both = zip(pools, sizes, before, behind, strict=True)
    index = [pool.index + np.where(pool.index < size, first, second) for pool, size, first, second in both]
    return sums, np.stack(index).astype(np.int32)


def likely_grid(support: Support, counts: Float[np.ndarray, "S A B"]) -> tuple[int, ...]:
    """The grid along which the states seem to be numbered: the one whose moves foretell the rows best."""
    counts = counts.reshape(-1, support.successors)
    counts = np.where(support.allowed().reshape(counts.shape).sum(axis=1, keepdims=True) > 1, counts, 0.0)
    rows = CountedRows.of(counts)
    if not rows.seen.any():
        return (support.states,)
    grids = grids_of(support, counts)
    return grids[int(np.argmax([_score(rows, move_pools(support, counts, grid)) for grid in grids]))]


def _score(rows: CountedRows, pools: Sequence[Pool]) -> float:
    """Log likelihood of the rows, each predicted by the others, with a base and a concentration for each row."""
    own = np.minimum(rows.count, MOST_TOLD)
    likelihood = []
    for pool in pools:
        law = EXPECTED * pool.first + pool.happened(pool.first, rows.place, own)
        predicted = rows.predicted_law(pool, law, own)
        likelihood += [rows.log_likelihood(c * predicted, c) for c in CONCENTRATIONS]
    return float(np.logaddexp.reduce(likelihood, axis=0).sum())


def _discounted(pool: Pool, happened: Float[np.ndarray, " J"]) -> Float[np.ndarray, " J"]:
    """What the observations of a law count for, where the law is to be believed."""
    return happened / (FOR_ONE + np.bincount(pool.law, happened)[pool.law] / MOST)


def _scaled(likelihood: Float[np.ndarray, "P K C"]) -> Float[np.ndarray, "P K C"]:
    """Likelihoods of each row as shares of its largest, from their logarithms."""
    return np.exp(likelihood - likelihood.max(axis=(1, 2), keepdims=True))


def _weights(
    likelihood: Float[np.ndarray, "P K C"], seen: Bool[np.ndarray, " P"], common: Float[np.ndarray, "K C"]
) -> tuple[Float[np.ndarray, "P K C"], Float[np.ndarray, "K C"]]:
    """The chance of each kind for each row, and for a row without counts."""
    scaled = _scaled(likelihood)
    for _ in range(STEPS):
        chance = scaled[seen] * common
        chance /= chance.sum(axis=(1, 2), keepdims=True)
        common = chance.sum(axis=0) + EVEN
        common /= common.sum()
    weights = scaled * common
    return weights / weights.sum(axis=(1, 2), keepdims=True), common


def _chances(
    scaled: Float[np.ndarray, "N Q"], common: Float[np.ndarray, " Q"], seed: int = SEED
) -> Float[np.ndarray, "M Q"]:
    """Draws of the chances of kinds: `Dirichlet(rows of each + EVEN)`, and the rows' kinds given these, in turn."""
    generator = np.random.default_rng(seed)
    chances, count = np.empty((CHANCES, len(common))), np.zeros(len(common))
    for turn in range(BURN_IN + THINNING * CHANCES):
        if len(scaled):
            upto = np.cumsum(scaled * common, axis=1)
            kind = (upto <= generator.random((len(scaled), 1)) * upto[:, -1:]).sum(axis=1)
            count = np.bincount(kind, minlength=len(common))
        common = generator.dirichlet(count + EVEN)
        chances[max(0, (turn - BURN_IN) // THINNING)] = common
    return chances


def _believed(scaled: Float[np.ndarray, "P Q"], chances: Float[np.ndarray, "M Q"]) -> Float[np.ndarray, "P Q"]:
    """The chance of each kind for each row, on average over draws of the chances; 0 where it is negligible."""
    weights = np.mean([row * scaled / (scaled @ row)[:, None] for row in chances], axis=0)
    weights = np.where(weights > NEGLIGIBLE * weights.max(axis=1, keepdims=True), weights, 0.0)
    return weights / weights.sum(axis=1, keepdims=True)


@dataclass(frozen=True, eq=False)
class CountedRows:
    """The counts that are not 0: row, place in `[P B]`, count; and of each row whether and how often it was seen."""

    row: np.ndarray
    place: np.ndarray
    count: np.ndarray
    total: np.ndarray
    width: int

    @staticmethod
    def of(counts: np.ndarray) -> CountedRows:
        place = np.flatnonzero(counts)
        return CountedRows(place // counts.shape[1], place, counts.ravel()[place], counts.sum(axis=1), counts.shape[1])

    @property
    def seen(self) -> np.ndarray:
        return self.total > 0

    def by_row(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(self.row, values, len(self.total))

    def predicted_law(self, pool: Pool, law: np.ndarray, own: np.ndarray) -> np.ndarray:
        """What the other rows make of each count's chance."""
        made = pool.base(law)
        total = made.sum(axis=1) - self.by_row(own)
        return (np.maximum(made.ravel()[self.place] - own, 0.0) + 1e-9) / (np.maximum(total, 0.0) + 1e-9 * self.width)[
            self.row
        ]

    def log_likelihood(self, shape: np.ndarray, concentration: float) -> np.ndarray:
        """Of each row's counts under a Dirichlet with these parameters, up to what does not depend on them."""
        whole = gammaln(concentration) - gammaln(concentration + self.total)
        return np.where(self.seen, whole + self.by_row(gammaln(shape + self.count) - gammaln(shape)), 0.0)

    def expected_shared_counts(self, predicted: np.ndarray, weights: Float[np.ndarray, "P C"]) -> np.ndarray:
        """How much of each count speaks of the law: `x (digamma(x + n) - digamma(x))`, all where a row keeps to it."""
        share = weights.sum(axis=1)
        mean = (weights @ np.log(CONCENTRATIONS)) / np.where(share > 0, share, 1.0)
        shape = np.maximum(np.exp(mean)[self.row] * predicted, 1e-10)
        return np.clip(shape * (digamma(shape + self.count) - digamma(shape)), 0.0, self.count)
