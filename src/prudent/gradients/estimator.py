"""The risk of losses on posterior samples, and what every estimator of its gradient is."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, UInt32

from ..arrays import Array
from ..objectives import Objective
from ..risks import Risk, risk_value


class RiskOfLosses(NamedTuple):
    """G risks on R draws each: their values, the losses, and the weights xi* behind them."""

    value: Float[Array, " G"]
    losses: Float[Array, "G R"]
    weights: Float[Array, "G R"]


class GradientEstimator(eqx.Module):
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
    def __call__(
        self,
        objective: Objective,
        risk: Risk,
        parameters: Any,
        thetas: Array,
        shares: Float[Array, "G R"],
        keys: UInt32[Array, "G 2"],
    ) -> tuple[RiskOfLosses, Any]:
        """The risks and their gradients, both with leading axis G.

        Args:
            objective: what is lost.
            risk: its arrays have a leading axis G.
            parameters: of G runs, leading axis G.
            thetas: arranged draws of all runs, those of a run behind one another.
            shares: their probabilities.
            keys: words of a fresh random key for each run, for estimators that need chance.
        """


def equal_shares(groups: int, draws: int) -> Float[np.ndarray, "G R"]:
    """The probabilities of draws that count alike."""
    return np.full((groups, draws), 1.0 / draws)


def assess(
    risk: Risk, losses: Float[Array, "G R"], shares: Float[Array, "G R"]
) -> tuple[Float[Array, " G"], Float[Array, "G R"]]:
    """Risk and xi* of each row of weighted losses, under a risk whose arrays have a leading axis G."""
    return jax.vmap(risk_value)(risk, losses, jnp.asarray(shares))


def losses_of(objective: Objective, parameters: Any, thetas: Array) -> Float[Array, "G R"]:
    """`C(alpha_g, theta_gr)` at parameters with leading axis G, at arranged draws."""
    points = jax.vmap(objective.point)(parameters)
    return objective.losses(points, thetas).losses.reshape(points.shape[0], -1)


def risk_of_losses(
    objective: Objective, risk: Risk, parameters: Any, thetas: Array, shares: Float[Array, "G R"]
) -> RiskOfLosses:
    """`G(alpha) = rho_theta(C(alpha, theta))` of G parameter sets, on arranged draws with these probabilities."""
    losses = losses_of(objective, parameters, thetas)
    value, weights = assess(risk, losses, shares)
    return RiskOfLosses(value, losses, weights)


def arranged(objective: Objective, thetas: Float[np.ndarray, "G R ..."]) -> np.ndarray:
    """The draws of G runs as one arranged batch."""
    return objective.arrange(np.asarray(thetas).reshape(-1, *thetas.shape[2:]))
