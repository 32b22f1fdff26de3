"""The exact gradient."""

from __future__ import annotations

from typing import Any

import jax
from jaxtyping import Float, UInt32

from ..arrays import Array
from .estimator import GradientEstimator
from .objective import Objective, Problem, objective


class Adjoint(GradientEstimator):
    """The exact gradient: `sum_k p_k xi*_k dC(alpha, theta_k)/dalpha` (equations 6 and 9 of the paper).

    One factorisation a model serves the occupancy and the adjoint solve; nothing is differenced.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> pr.solve(lake, lake.prior, gradient=pr.Adjoint(), solver=pr.BRPG(iterations=5)).iterations
    5
    """

    def __call__(
        self,
        problem: Problem,
        parameters: Any,
        thetas: Array,
        shares: Float[Array, "G R"],
        keys: UInt32[Array, "G 2"],
    ) -> tuple[Objective, Any]:
        """The objectives and their gradients; no chance is involved, `keys` are not used."""
        del keys

        def total(parameters: Any) -> tuple[Array, Objective]:
            result = objective(problem, parameters, thetas, shares)
            # Row g depends on parameters g alone, so the gradient of the sum holds every row's gradient.
            return result.value.sum(), result

        gradient, result = jax.grad(total, has_aux=True)(parameters)
        return result, gradient
