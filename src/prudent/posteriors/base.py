"""What every posterior is."""

from __future__ import annotations

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from ..arrays import Array, generator, require_finite, require_size
from ..errors import InputError

# A posterior of up to this many atoms is used whole, not sampled.
MOST_ATOMS = 4096


class WeightedDraws(NamedTuple):
    """Points that stand for a posterior.

    Attributes:
        thetas: the points.
        probabilities: positive, summing to 1; equal for draws.
        exact: whether the points are the whole posterior, not a sample of it.
    """

    thetas: Float[np.ndarray, "M ..."]
    probabilities: Float[np.ndarray, " M"]
    exact: bool

    def __len__(self) -> int:
        return len(self.probabilities)

    def first(self, count: int) -> WeightedDraws:
        """The first few, as a sample of their own."""
        if count >= len(self):
            return self
        share = self.probabilities[:count]
        return WeightedDraws(self.thetas[:count], share / share.sum(), False)


def equally_weighted(thetas: Float[np.ndarray, "M ..."]) -> WeightedDraws:
    """A sample of independent draws."""
    return WeightedDraws(thetas, np.full(len(thetas), 1.0 / len(thetas)), False)


class Posterior(eqx.Module):
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

    def sample(self, key: jax.Array | int, n: int) -> Float[np.ndarray, "N ..."]:
        """`n` draws from a random key (`jax.random.key`, or a whole number); the same key, the same draws."""
        return self.draw(generator(key), require_size("the number of draws", n))


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
