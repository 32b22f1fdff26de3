"""The gradient from values of the loss alone, by Gaussian smoothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float, UInt32

from ..arrays import Array, as_float, as_whole, is_concrete, require_size
from ..errors import InputError
from ..records import field, tree_map
from ..seeds import stream
from .estimator import GradientEstimator, RiskOfLosses, SampledRisk


class ZerothOrder(GradientEstimator):
    """Gaussian smoothing (Algorithm 4 of the paper): only values of the loss are used.

        dC/dalpha ~ 1/m sum_j (C(alpha + nu u_j, theta) - C(alpha, theta)) / nu * u_j,   u_j ~ N(0, I)

    The directions are fresh in every iteration and common to all posterior draws of a run, so that the
    noise of a direction does not hide differences between draws. The truncation K of the algorithm is
    `occupancy=Truncated(K)` of the solver. The mean squared error falls like `1 / m`; as losses are
    computed, not simulated, the radius can be small, and the bias then is far below that noise. For
    direct policies directions have rows that sum to 0, and the radius must be small: a perturbed table may
    have negative entries.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> by_values = pr.ZerothOrder(directions=30, radius=0.5)  # the paper's settings
    >>> pr.solve(lake, lake.prior, gradient=by_values, solver=pr.BRPG(iterations=5)).iterations
    5

    Args:
        directions: m, perturbed policies an iteration; each costs one evaluation of all losses.
        radius: nu, length scale of the perturbation.
    """

    directions: int = field(static=True, converter=as_whole, default=30)
    radius: Float[Array, ""] = field(converter=as_float, default=1e-3)

    def __check_init__(self) -> None:
        require_size("ZerothOrder directions, m,", self.directions)
        if is_concrete(self.radius) and not (self.radius.shape == () and 0 < self.radius < float("inf")):
            raise InputError(f"ZerothOrder radius must be one number > 0, got {self.radius}; 0.001 suits most losses")

    @property
    def by_values(self) -> bool:
        """It uses nothing else."""
        return True

    def __call__(
        self, sampled: SampledRisk, parameters: Any, words: UInt32[np.ndarray, "G 2"]
    ) -> tuple[RiskOfLosses, Any]:
        """Return the risks, and the smoothed gradients along directions drawn from the words."""
        base, total = sampled.at(parameters), tree_map(np.zeros_like, parameters)
        for direction in directions(words, self.directions, parameters):
            tangent = sampled.objective.within.tangent(direction)
            losses = sampled.losses(tree_map(lambda alpha, u: alpha + self.radius * u, parameters, tangent))
            slope = (sampled.shares * base.weights * (losses - base.losses)).sum(axis=1) / self.radius
            total = tree_map(lambda sum_, u, slope=slope: sum_ + (slope * u.T).T, total, tangent)
        return base, tree_map(lambda leaf: leaf / self.directions, total)


def directions(words: UInt32[np.ndarray, "G 2"], count: int, parameters: Any) -> Iterator[Any]:
    """Yield the directions u_1 to u_m of G runs: standard normal numbers in the shape of the parameters."""
    randoms = [stream(tuple(int(word) for word in own)) for own in words]
    for _ in range(count):
        yield tree_map(lambda leaf: np.stack([random.normal(size=leaf.shape[1:]) for random in randoms]), parameters)
