"""Losses made of costs: the expected cost, and the expected cost under a risk-averse constraint."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Float

from ..arrays import Array, in_float64, require_number
from ..models import MDP
from .base import ConvexLoss, Dual, Scalar
from .kinds import ScenarioCost


class ExpectedCost(ConvexLoss):
    """Expected discounted cost, `F = <lambda, c>`.

    >>> import numpy as np, prudent as pr
    >>> mdp = pr.MDP(pr.Kernel.dense([[[1.0]]]), cost=[[2.0]], start=0, discount=0.5)
    >>> float(pr.ExpectedCost()(pr.occupancy(mdp, [[1.0]]), mdp))
    4.0
    """

    def __call__(self, occupancy: Float[Array, "S A"], mdp: MDP) -> Scalar:
        return (occupancy * mdp.cost).sum()

    def linear(self, mdp: MDP) -> Float[Array, "S A"]:
        """The model's cost."""
        return mdp.cost

    def image(self, occupancy: Float[Array, "S A"], mdp: MDP) -> tuple[()]:
        """Nothing: the loss is linear."""
        return ()

    def begin(self, mdp: MDP) -> Dual:
        """The empty point."""
        return Dual((), None)

    def ascend(self, dual: Dual, image: tuple[()], mdp: MDP) -> Dual:
        """The point itself."""
        return dual


class ConstrainedCost(ConvexLoss):
    """The Lagrangian of a risk-averse constraint, `F = <lambda, c> + l (rho_k(<lambda, d_k>) - D)`.

    The penalty d is uncertain, K scenarios of it; rho is the risk of its expected discounted total, a `ScenarioCost`.
    `solve(..., subject_to=[Limit(ScenarioCost(...), at_most=D)])` finds the multiplier l that is given here. The
    derivative holds the risk's density fixed (the envelope theorem); where two densities attain the risk it is
    one of the subgradients.

    >>> import numpy as np, prudent as pr
    >>> mdp = pr.MDP(pr.Kernel.dense([[[1.0]]]), cost=[[2.0]], start=0, discount=0.5)
    >>> loss = pr.ConstrainedCost([[[1.0]], [[3.0]]], multiplier=10.0, limit=5.0, risk=pr.CVaR(0.5))
    >>> float(loss(pr.occupancy(mdp, [[1.0]]), mdp))  # 4 + 10 (6 - 5)
    14.0

    Args:
        scenarios: `[K, S, A]` the penalty of each scenario.
        multiplier: l, >= 0.
        limit: D.
        risk: any risk of the library, or an object with its method `density(losses, probabilities)`.
        probabilities: `[K]` of the scenarios; equal when left out.
    """

    penalty: ScenarioCost
    multiplier: Float[Array, ""]
    limit: Float[Array, ""]

    def __init__(self, scenarios: Any, multiplier: Any, limit: Any, risk: Any, probabilities: Any = None):
        self.penalty = ScenarioCost(scenarios, risk, probabilities)
        self.multiplier = require_number("multiplier", multiplier, "[0, inf)", "a negative one would reward the breach")
        self.limit = require_number("limit", limit, "(-inf, inf)")

    @in_float64
    def __call__(self, occupancy: Float[Array, "S A"], mdp: MDP) -> Scalar:
        totals = self.image(occupancy, mdp)
        breach = (self._attained(totals) * totals).sum() - self.multiplier * self.limit
        return (occupancy * mdp.cost).sum() + breach

    def linear(self, mdp: MDP) -> Float[Array, "S A"]:
        """The model's cost."""
        return mdp.cost

    def image(self, occupancy: Float[Array, "S A"], mdp: MDP) -> Float[Array, " K"]:
        """Each scenario's expected discounted total."""
        return self.penalty.image(occupancy, mdp)

    def begin(self, mdp: MDP) -> Dual:
        """The density 1, which lies in every envelope."""
        return Dual(self.multiplier * jnp.asarray(self.penalty.probabilities), None)

    def ascend(self, dual: Dual, image: Float[Array, " K"], mdp: MDP) -> Dual:
        """A full conditional-gradient step: f* is the indicator of `l p U`, and the density maximises over it."""
        return Dual(self._attained(image), dual.primal)

    def _attained(self, totals: Float[Array, " K"]) -> Float[Array, " K"]:
        return self.multiplier * self.penalty.attained(totals)
