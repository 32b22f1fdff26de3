"""Posteriors drawn in another way: cut off at the sides of a box, or driven by Sobol points."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import special

from ..arrays import Array, as_float, is_concrete, require_kind
from ..errors import InputError
from ..records import Record, field
from .base import AbstractTable, Invertible, Posterior, updated
from .conjugate import Beta, Dirichlet

# Rejection gives up after this many proposals for a draw; below an acceptance of about 1 % it will.
ROUNDS = 1000


class WithinBox(Invertible):
    """A posterior given that `low <= theta <= high`: bounds known beforehand, or a compact set of parameters.

    The density is the posterior's within the box, scaled up to 1, and 0 outside. Draws of a `Beta` come from
    its inverse CDF; those of any other posterior are drawn until they fall within the box (each row of a
    `Dirichlet` table by itself, padding of any table left alone). Cutting off and updating may come in either order.

    >>> import prudent as pr
    >>> belief = pr.WithinBox(pr.Beta.uniform(2).update(pr.Trials([[2, 3], [0, 5]])), low=0.05, high=0.6)
    >>> belief.mean().round(3).tolist()
    [0.372, 0.183]
    >>> bool(belief.sample(0, 1000).min() >= 0.05)
    True

    Attributes:
        posterior: what is cut off.
        low, high: the sides, numbers or arrays that broadcast to theta's shape.
    """

    posterior: Posterior
    low: Float[Array, ...] = field(converter=as_float)
    high: Float[Array, ...] = field(converter=as_float)

    def __check_init__(self) -> None:
        require_kind("posterior", self.posterior, Posterior, "a posterior such as family.prior.update(log)")
        if not (is_concrete(self.low) and is_concrete(self.high)):
            return
        try:
            low, high = np.broadcast_arrays(self.low, self.high)
        except ValueError:
            raise InputError(
                f"low and high must broadcast, got shapes {self.low.shape} and {self.high.shape}"
            ) from None
        if not np.all(low < high):
            where = tuple(int(i) for i in np.argwhere(~(low < high))[0])
            raise InputError(f"low must be below high, got {low[where]} and {high[where]} at index {where}")
        if isinstance(self.posterior, Beta):
            mass = _Cut.of(self.posterior, self.low, self.high).mass
            if np.any(mass <= 0):
                raise InputError(
                    f"the box holds none of the posterior's mass along coordinate {int(np.argmax(mass <= 0))}; widen it"
                )

    def update(self, log: Any) -> WithinBox:
        """The updated posterior within the same box."""
        return WithinBox(updated(self.posterior, log, "cut off a Beta or Dirichlet"), self.low, self.high)

    def mean(self) -> Float[np.ndarray, ...]:
        """Mean within the box, for a `Beta`; of other posteriors only an average over draws is known."""
        if not isinstance(self.posterior, Beta):
            raise InputError(
                f"the mean of a {type(self.posterior).__name__} within a box has no closed form; "
                "use posterior.sample(0, 100_000).mean(axis=0)"
            )
        return _Cut.of(self.posterior, self.low, self.high).mean()

    def draw(self, generator: np.random.Generator, n: int) -> Float[np.ndarray, "N ..."]:
        """`n` draws within the box."""
        if isinstance(self.posterior, Beta):
            return self.from_uniform(generator.random((n, self.uniform_dimension)))
        return self._reject(generator, n)

    @property
    def uniform_dimension(self) -> int:
        """`D` for a `Beta`; other posteriors within a box are not functions of uniform numbers."""
        return self._beta().uniform_dimension

    def from_uniform(self, uniforms: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
        """The quantile of each coordinate within the box, for a `Beta`."""
        return np.clip(_Cut.of(self._beta(), self.low, self.high).quantile(uniforms), self.low, self.high)

    def _beta(self) -> Beta:
        if not isinstance(self.posterior, Beta):
            raise InputError(
                f"draws of a {type(self.posterior).__name__} within a box are made by rejection, not from uniform "
                "numbers, so Sobol points cannot drive them; use WithinBox without Sobol"
            )
        return self.posterior

    def _reject(self, generator: np.random.Generator, n: int) -> np.ndarray:
        drawn = np.array(self.posterior.draw(generator, n), dtype=np.float64)
        shape = drawn.shape[1:]
        try:
            low, high = np.broadcast_to(self.low, shape), np.broadcast_to(self.high, shape)
        except ValueError:
            raise InputError(
                f"low and high have shapes {self.low.shape} and {self.high.shape}, theta has {shape}; "
                "give numbers, or arrays that broadcast to it"
            ) from None
        block, free = _blocks(self.posterior, shape)

        def outside(theta: np.ndarray) -> np.ndarray:
            """`[n, blocks]` whether an entry of the block is off the box."""
            off = np.argwhere((((theta < low) | (theta > high)) & free).reshape(len(theta), -1))
            bad = np.zeros((len(theta), int(block.max()) + 1), dtype=bool)
            bad[off[:, 0], block[off[:, 1]]] = True
            return bad

        bad = outside(drawn)
        tried, kept = bad.size, bad.size - bad.sum()
        for _ in range(ROUNDS):
            rows = np.flatnonzero(bad.any(axis=1))
            if not rows.size:
                return drawn
            proposed = np.asarray(self.posterior.draw(generator, len(rows)))
            accepted = bad[rows] & ~outside(proposed)
            tried, kept = tried + bad[rows].sum(), kept + accepted.sum()
            take = accepted[:, block].reshape(len(rows), *shape)
            drawn[rows] = np.where(take, proposed, drawn[rows])
            bad[rows] &= ~accepted
        entry = int(np.flatnonzero(block == np.argwhere(bad)[0, 1])[0])
        where = tuple(int(i) for i in np.unravel_index(entry, shape))
        raise InputError(
            f"only {kept / tried:.2g} of the posterior's draws fall within the box ({ROUNDS} were tried for each one "
            f"wanted, in vain at index {where} of theta); widen the box, or use Grid(family, low, high, log)"
        )


def _blocks(posterior: Posterior, shape: tuple[int, ...]) -> tuple[Int[np.ndarray, " E"], Bool[np.ndarray, ...]]:
    """Which entries of theta are drawn together, by number, and which are not fixed by the posterior's support."""
    if not isinstance(posterior, Dirichlet):
        free = posterior.support.allowed() if isinstance(posterior, AbstractTable) else np.ones(shape, dtype=bool)
        return np.zeros(int(np.prod(shape)), dtype=int), free
    pairs = shape[0] * shape[1]
    label = np.arange(pairs) if posterior.tied is None else np.asarray(posterior.tied).ravel()
    place = np.unique(label, return_inverse=True)[1]
    return np.repeat(place, shape[2]), posterior.support.allowed()


class _Cut(Record):
    """Beta coordinates on intervals; those in an upper tail are mirrored, where the CDF would round to 1."""

    success: Float[np.ndarray, " D"]
    failure: Float[np.ndarray, " D"]
    low: Float[np.ndarray, " D"]
    high: Float[np.ndarray, " D"]
    mirrored: Bool[np.ndarray, " D"]

    @staticmethod
    def of(posterior: Beta, low: Array, high: Array) -> _Cut:
        total = np.asarray(posterior.prior + posterior.counts)
        success, failure = total.T
        try:
            low, high = (np.broadcast_to(np.clip(side, 0.0, 1.0), success.shape) for side in (low, high))
        except ValueError:
            raise InputError(
                f"low and high have shapes {np.shape(low)} and {np.shape(high)}, theta has {success.shape}; "
                "give numbers, or one for each coordinate"
            ) from None
        mirrored = special.betainc(success, failure, low) > 0.5
        return _Cut(
            np.where(mirrored, failure, success),
            np.where(mirrored, success, failure),
            np.where(mirrored, 1.0 - high, low),
            np.where(mirrored, 1.0 - low, high),
            mirrored,
        )

    @property
    def mass(self) -> Float[np.ndarray, " D"]:
        return self._mass(self.success)

    def _mass(self, success: np.ndarray) -> np.ndarray:
        return special.betainc(success, self.failure, self.high) - special.betainc(success, self.failure, self.low)

    def mean(self) -> Float[np.ndarray, " D"]:
        whole = self.success / (self.success + self.failure)
        return self._back(whole * self._mass(self.success + 1.0) / self.mass)

    def quantile(self, levels: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
        levels = np.where(self.mirrored, 1.0 - levels, levels)
        below = special.betainc(self.success, self.failure, self.low)
        return self._back(special.betaincinv(self.success, self.failure, below + levels * self.mass))

    def _back(self, theta: np.ndarray) -> np.ndarray:
        theta = np.clip(theta, self.low, self.high)
        return np.where(self.mirrored, 1.0 - theta, theta)
