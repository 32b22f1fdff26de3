"""The gradient as a saddle point, by the loss's Fenchel conjugate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from ..arrays import Array, as_float, as_whole, is_concrete, require_size
from ..errors import InputError
from ..records import field, tree_leaves, tree_map
from .estimator import Adjoint, GradientEstimator, RiskOfLosses, SampledRisk


class Variational(GradientEstimator):
    """The variational policy gradient (Lemma 3.2 and Algorithm 3 of the paper).

    A convex loss is `F(lambda) = sup_z <z, lambda> - F*(z)`, and with `V(alpha; z) = <z, lambda>` the cost of a
    policy when the cost is z, alternate for each posterior draw

        z <- z + a (lambda - grad F*(z)),      x <- x - b (grad_alpha V(alpha; z) + x),

    whose limit is `x = -dC/dalpha`. Here z lives in the loss's own space (a loss of the state marginal has
    one entry a state), its step is a damped Newton step, and a linear part of the loss keeps z at the cost.
    `V` is linear in z, so x is `-grad V` at the running mean of the z: that mean is kept in the place of x,
    and one adjoint solve at the end replaces one an iteration.

    A loss of the library brings its conjugate; for a user's function the conjugate is found numerically.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> pr.solve(lake, lake.prior, gradient=pr.Variational(), solver=pr.BRPG(iterations=5)).iterations
    5

    Args:
        iterations: T, at most this many alternations.
        descent: b, the share of the newest z in the running mean; 1 keeps the newest alone.
        tolerance: stop when no z of the batch moves by more than this, relatively.
    """

    iterations: int = field(static=True, converter=as_whole, default=200)
    descent: Float[Array, ""] = field(converter=as_float, default=0.9)
    tolerance: Float[Array, ""] = field(converter=as_float, default=1e-10)

    def __check_init__(self) -> None:
        require_size("Variational iterations", self.iterations)
        if is_concrete(self.descent) and not (self.descent.shape == () and 0 < self.descent <= 1):
            raise InputError(f"Variational descent must be one number in (0, 1], got {self.descent}")
        if is_concrete(self.tolerance) and not (self.tolerance.shape == () and self.tolerance >= 0):
            raise InputError(f"Variational tolerance must be one number >= 0, got {self.tolerance}")

    def __call__(self, sampled: SampledRisk, parameters: Any, words: Any = None) -> tuple[RiskOfLosses, Any]:
        """Return the risks and their gradients; no chance is involved, `words` are not used."""
        del words
        objective = sampled.objective.by_conjugate(self)
        if objective is None:
            raise InputError(
                f"Variational() needs a loss of the occupancies of tables, {type(sampled.objective).__name__} has "
                "none; use Adjoint()"
            )
        return Adjoint()(sampled._replace(objective=objective), parameters)

    def alternate(self, dual: Any, ascend: Callable[[Any], Any]) -> Any:
        """Return the dual point whose z is the running mean of the alternation."""
        mean = dual.point
        for _ in range(self.iterations):
            dual = ascend(dual)
            moved = tree_map(lambda old, new: old + self.descent * (new - old), mean, dual.point)
            change, mean = _relative_change(mean, moved), moved
            if change <= self.tolerance:
                break
        return dual._replace(point=mean)


def _relative_change(old: Any, new: Any) -> float:
    pairs = zip(tree_leaves(old), tree_leaves(new), strict=True)
    return max((float(np.max(np.abs(after - before) / (1.0 + np.abs(after)))) for before, after in pairs), default=0.0)
