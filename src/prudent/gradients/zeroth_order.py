"""The gradient from values of the loss alone, by Gaussian smoothing."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float, UInt32

from ..arrays import Array, as_float, as_whole, is_concrete, require_size
from ..deferred import jax, jnp, lax
from ..errors import InputError
from ..records import field, tree_map
from ..seeds import wrapped_key
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

    def __call__(self, sampled: SampledRisk, parameters: Any, keys: UInt32[Array, "G 2"]) -> tuple[RiskOfLosses, Any]:
        """The risks, and the smoothed gradients along directions drawn from `keys`."""
        base = sampled.at(parameters)

        def add(total: Any, number: Array) -> tuple[Any, None]:
            direction = jax.vmap(sampled.objective.within.tangent)(directions(keys, number, parameters))
            moved = tree_map(lambda alpha, u: alpha + self.radius * u, parameters, direction)
            losses = sampled.losses(moved)
            slope = (sampled.shares * base.weights * (losses - base.losses)).sum(axis=1) / self.radius
            return tree_map(lambda sum_, u: sum_ + jax.vmap(jnp.multiply)(slope, u), total, direction), None

        total, _ = lax.scan(add, tree_map(jnp.zeros_like, parameters), jnp.arange(self.directions))
        return base, tree_map(lambda leaf: leaf / self.directions, total)


def directions(keys: UInt32[Array, "G 2"], number: Array, parameters: Any) -> Any:
    """The direction u_j of each run, `j = number`: standard normal numbers in the shape of the parameters."""

    def one(words: UInt32[Array, " 2"], like: Any) -> Any:
        leaves, structure = jax.tree.flatten(like)
        key = jax.random.fold_in(wrapped_key(jnp.asarray(words)), number)
        keys = jax.random.split(key, len(leaves))
        normal = [jax.random.normal(key, leaf.shape, leaf.dtype) for key, leaf in zip(keys, leaves, strict=True)]
        return jax.tree.unflatten(structure, normal)

    return jax.vmap(one)(keys, parameters)
