"""What every estimator of the gradient is."""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Float, UInt32

from ..arrays import Array
from .objective import Objective, Problem


class GradientEstimator(eqx.Module):
    """A way to find `g(alpha) = sum_k p_k xi*_k dC(alpha, theta_k)/dalpha` (equation 9 of the paper).

    Estimators differ in how they find `dC/dalpha`; the weights xi* are always the risk's own.
    """

    @abc.abstractmethod
    def __call__(
        self,
        problem: Problem,
        parameters: Any,
        thetas: Array,
        shares: Float[Array, "G R"],
        keys: UInt32[Array, "G 2"],
    ) -> tuple[Objective, Any]:
        """The objectives and their gradients, both with leading axis G.

        Args:
            problem: what is minimised.
            parameters: of G runs, leading axis G.
            thetas: arranged draws of all runs.
            shares: their probabilities.
            keys: words of a fresh random key for each run, for estimators that need chance.
        """
