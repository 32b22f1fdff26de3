"""The exact gradient."""

from __future__ import annotations

from typing import Any

import jax
from jaxtyping import Float, UInt32

from ..arrays import Array
from ..objectives import Objective
from ..risks import Risk
from .estimator import GradientEstimator, RiskOfLosses, risk_of_losses


class Adjoint(GradientEstimator):
    """The exact gradient: `sum_k p_k xi*_k dC(alpha, theta_k)/dalpha` (equations 6 and 9 of the paper).

    One factorisation a model serves the occupancy and the adjoint solve; nothing is differenced.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> pr.solve(lake, lake.prior, gradient=pr.Adjoint(), solver=pr.BRPG(iterations=5)).iterations
    5
    """

    @property
    def exact(self) -> bool:
        """It is."""
        return True

    def __call__(
        self,
        objective: Objective,
        risk: Risk,
        parameters: Any,
        thetas: Array,
        shares: Float[Array, "G R"],
        keys: UInt32[Array, "G 2"],
    ) -> tuple[RiskOfLosses, Any]:
        """The risks and their gradients; no chance is involved, `keys` are not used."""
        del keys

        def total(parameters: Any) -> tuple[Array, RiskOfLosses]:
            result = risk_of_losses(objective, risk, parameters, thetas, shares)
            # Row g depends on parameters g alone, so the gradient of the sum holds every row's gradient.
            return result.value.sum(), result

        gradient, result = jax.grad(total, has_aux=True)(parameters)
        return result, gradient
