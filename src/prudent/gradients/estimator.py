"""The risk of losses on posterior samples, what every estimator of its gradient is, and the exact one."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, UInt32

from ..arrays import Array
from ..deferred import jax, jnp
from ..objectives import Objective
from ..records import Record
from ..risks import Risk, risk_value


class RiskOfLosses(NamedTuple):
    """G risks on R draws each: their values, the losses, and the weights xi* behind them."""

    value: Float[Array, " G"]
    losses: Float[Array, "G R"]
    weights: Float[Array, "G R"]


def assess(
    risk: Risk, losses: Float[Array, "G R"], shares: Float[Array, "G R"]
) -> tuple[Float[Array, " G"], Float[Array, "G R"]]:
    """Risk and xi* of each row of weighted losses, under a risk whose arrays have a leading axis G."""
    return jax.vmap(risk_value)(risk, losses, jnp.asarray(shares))


class SampledRisk(NamedTuple):
    """What G runs minimise: `rho_theta(C(alpha, theta))`, each on draws of its own.

    Attributes:
        objective: what is lost.
        risk: its arrays have a leading axis G.
        thetas: arranged draws of all runs, those of a run behind one another.
        shares: their probabilities.
    """

    objective: Objective
    risk: Risk
    thetas: Array
    shares: Float[Array, "G R"]

    @staticmethod
    def on(objective: Objective, risk: Risk, thetas: Float[np.ndarray, "G R ..."], shares: Any = None) -> SampledRisk:
        """On draws that are arranged here; they count alike where no shares are given."""
        thetas = np.asarray(thetas)
        groups, draws = thetas.shape[:2]
        shares = np.full((groups, draws), 1.0 / draws) if shares is None else shares
        return SampledRisk(objective, risk, objective.arrange(thetas.reshape(-1, *thetas.shape[2:])), shares)

    def losses(self, parameters: Any) -> Float[Array, "G R"]:
        """`C(alpha_g, theta_gr)` at parameters with leading axis G."""
        points = jax.vmap(self.objective.point)(parameters)
        return self.objective.losses(points, self.thetas).losses.reshape(points.shape[0], -1)

    def at(self, parameters: Any) -> RiskOfLosses:
        """The risks of G parameter sets."""
        losses = self.losses(parameters)
        value, weights = assess(self.risk, losses, self.shares)
        return RiskOfLosses(value, losses, weights)


class GradientEstimator(Record):
    """A way to find `g(alpha) = sum_k p_k xi*_k dC(alpha, theta_k)/dalpha` (equation 9 of the paper).

    Estimators differ in how they find `dC/dalpha`; the weights xi* are always the risk's own.
    """

    @property
    def by_values(self) -> bool:
        """Whether values of the loss are enough, so that it need not have a derivative."""
        return False

    @property
    def exact(self) -> bool:
        """Whether it is the derivative itself, which a solver may take by other means."""
        return False

    @abc.abstractmethod
    def __call__(self, sampled: SampledRisk, parameters: Any, keys: UInt32[Array, "G 2"]) -> tuple[RiskOfLosses, Any]:
        """The risks and their gradients, both with leading axis G.

        Args:
            sampled: the risks of G runs on their draws.
            parameters: of G runs, leading axis G.
            keys: words of a fresh random key for each run, for estimators that need chance.
        """


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

    def __call__(self, sampled: SampledRisk, parameters: Any, keys: Any = None) -> tuple[RiskOfLosses, Any]:
        """The risks and their gradients; no chance is involved, `keys` are not used."""
        del keys

        def total(parameters: Any) -> tuple[Array, RiskOfLosses]:
            result = sampled.at(parameters)
            # Row g depends on parameters g alone, so the gradient of the sum holds every row's gradient.
            return result.value.sum(), result

        gradient, result = jax.grad(total, has_aux=True)(parameters)
        return result, gradient
