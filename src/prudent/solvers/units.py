"""Costs in units of their own spread: what is minimised does not depend on how costs are measured.

`F = <lambda, c>` and the occupancy's mass is known, so costs `(c - shift) / scale` give the losses
`(F - shift * mass) / scale`, whatever the policy and the model. Minimised in these units, the policy is the same
for `a c + b`, and a large constant takes no digits away from the differences that matter.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float

from ..arrays import Array, to_numpy
from ..gradients import Problem
from ..kernels import Support
from ..losses import ExpectedCost
from ..models import AbstractFamily, models_at


class Unit(NamedTuple):
    """How losses are measured: `loss = offset + scale * loss in units`."""

    offset: float
    scale: float

    def loss(self, value: Any) -> Any:
        """A loss in the user's units."""
        return self.offset + self.scale * value


class Rescaled(AbstractFamily):
    """A family whose costs are `(c - shift) / scale`."""

    support: Support
    start: Float[Array, " S"]
    discount: Float[Array, ""]
    family: AbstractFamily
    shift: Float[Array, ""]
    scale: Float[Array, ""]

    def probability(self, theta: Array) -> Float[Array, "S A B"]:
        """As they are."""
        return self.family.probability(theta)

    def cost(self, theta: Array) -> Float[Array, "S A"]:
        """In units."""
        return (self.family.cost(theta) - self.shift) / self.scale


def in_units(problem: Problem, thetas: Float[np.ndarray, "N ..."]) -> tuple[Problem, Unit]:
    """The problem with costs that range over [0, 1] at these thetas; one with another loss, as it is."""
    family = problem.family
    if not isinstance(problem.loss, ExpectedCost):
        return problem, Unit(0.0, 1.0)
    costs = to_numpy(_costs(family, thetas))
    shift, spread = costs.min(), np.ptp(costs)
    scale = spread if spread > 0 else 1.0
    discount = float(family.discount)
    mass = 1.0 / (1.0 - discount) - problem.occupancy.error_bound(discount)
    rescaled = Rescaled(family.support, family.start, family.discount, family, np.asarray(shift), np.asarray(scale))
    return dataclasses.replace(problem, family=rescaled), Unit(float(shift * mass), float(scale))


@eqx.filter_jit
def _costs(family: AbstractFamily, thetas: Array) -> Array:
    return models_at(family, thetas, 0)[1]
