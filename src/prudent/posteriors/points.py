"""Posteriors that are lists of points: draws made elsewhere, and one known theta."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from ..arrays import Array, as_float, is_concrete, require_finite
from ..errors import InputError
from .base import MOST_ATOMS, Posterior, WeightedDraws


class Draws(Posterior):
    """A posterior of finitely many points: a list of models, a sampler's export, an ensemble, a bootstrap.

    Chains come as one list: `thetas.reshape(-1, *thetas.shape[2:])` flattens `[chains, draws, ...]`. Up to 4,096 points
    are used whole with their weights: nothing is sampled, and risks and bounds are exact for these points. More are
    resampled.

    >>> import prudent as pr
    >>> belief = pr.Draws([[0.1, 0.4], [0.3, 0.2]], weights=[3, 1])
    >>> belief.mean().round(3).tolist()
    [0.15, 0.35]
    >>> belief.sample(0, 5).shape
    (5, 2)

    Attributes:
        thetas: `[M, ...]` the draws.
        weights: `[M]` how much each counts, >= 0, of any sum; alike when None.
    """

    thetas: Float[Array, "M ..."]
    weights: Float[Array, " M"] | None

    def __init__(self, thetas: Any, weights: Any = None):
        self.thetas = as_float(thetas, "thetas")
        self.weights = None if weights is None else as_float(weights, "weights")
        if not is_concrete(self.thetas):
            return
        if self.thetas.ndim == 0 or len(self.thetas) == 0:
            raise InputError(f"thetas must be draws, batch axis first, got shape {self.thetas.shape}")
        require_finite("thetas", np.asarray(self.thetas))
        if self.weights is None:
            return
        if self.weights.shape != self.thetas.shape[:1]:
            raise InputError(
                f"weights must have shape {self.thetas.shape[:1]}, one for each draw, got {self.weights.shape}; chains "
                "are flattened by thetas.reshape(-1, *thetas.shape[2:]) and weights.reshape(-1)"
            )
        require_finite("weights", np.asarray(self.weights))
        if np.any(self.weights < 0) or not np.any(self.weights > 0):
            raise InputError(
                f"weights must be >= 0 and not all 0, the smallest is {self.weights.min()}, the largest "
                f"{self.weights.max()}; from log-weights take exp(log_weights - log_weights.max())"
            )

    def mean(self) -> Float[Array, ...]:
        """The weighted average of the draws."""
        return np.average(np.asarray(self.thetas), axis=0, weights=self.weights)

    def as_atoms(self) -> WeightedDraws | None:
        """The points of positive weight, if there are at most 4,096."""
        weights = np.ones(len(self.thetas)) if self.weights is None else np.asarray(self.weights)
        kept = weights > 0
        if kept.sum() > MOST_ATOMS:
            return None
        # Divided twice: a weight may be as large or as small as a float can be.
        share = weights[kept] / weights.max()
        return WeightedDraws(np.asarray(self.thetas)[kept], share / share.sum(), True)

    def draw(self, generator: np.random.Generator, n: int) -> Float[np.ndarray, "N ..."]:
        """`n` of the draws with replacement, each as often as its weight says."""
        thetas = np.asarray(self.thetas)
        if self.weights is None:
            return thetas[generator.integers(len(thetas), size=n)]
        share = np.asarray(self.weights) / np.max(self.weights)
        return thetas[generator.choice(len(thetas), size=n, p=share / share.sum())]


class Point(Posterior):
    """All belief on one theta: planning at a plug-in estimate, or a known model.

    >>> import jax, prudent as pr
    >>> pr.Point([0.3, 0.02]).sample(jax.random.key(0), 2).shape
    (2, 2)
    """

    theta: Float[Array, ...] = eqx.field(converter=as_float)

    def __check_init__(self) -> None:
        if is_concrete(self.theta):
            require_finite("theta", np.asarray(self.theta))

    def mean(self) -> Float[Array, ...]:
        """The point."""
        return self.theta

    def as_atoms(self) -> WeightedDraws:
        """The point."""
        return WeightedDraws(np.asarray(self.theta)[None], np.ones(1), True)

    def draw(self, generator: np.random.Generator, n: int) -> Float[np.ndarray, "N ..."]:
        """`n` copies."""
        del generator
        return np.broadcast_to(np.asarray(self.theta), (n, *self.theta.shape))
