"""The gradient as a saddle point, by the loss's Fenchel conjugate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtyping import Float, UInt32

from ..arrays import Array, as_float, as_whole, is_concrete, require_size
from ..deferred import jax, jnp, lax
from ..errors import InputError
from ..records import field, tree_leaves, tree_map
from .estimator import GradientEstimator, RiskOfLosses, SampledRisk, assess


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

    def __call__(self, sampled: SampledRisk, parameters: Any, keys: UInt32[Array, "G 2"]) -> tuple[RiskOfLosses, Any]:
        """The risks and their gradients; no chance is involved, `keys` are not used."""
        del keys
        objective, risk, thetas, shares = sampled

        def total(parameters: Any) -> tuple[Array, RiskOfLosses]:
            found = objective.dual_losses(jax.vmap(objective.point)(parameters), thetas, self._alternated)
            if found is None:
                raise InputError(
                    f"Variational() needs a loss of occupancies, {type(objective).__name__} has none; use Adjoint()"
                )
            losses, values = (part.reshape(shares.shape) for part in found)
            value, weights = assess(risk, losses, shares)
            return (shares * weights * values).sum(), RiskOfLosses(value, losses, weights)

        gradient, result = jax.grad(total, has_aux=True)(parameters)
        return result, gradient

    def _alternated(self, start: Any, ascend: Callable[[Any], Any]) -> Any:
        """The dual point whose z is the running mean of the alternation."""

        def unsettled(carry: tuple) -> Array:
            number, _, _, change = carry
            return (number < self.iterations) & (change > self.tolerance)

        def alternate(carry: tuple) -> tuple:
            number, dual, mean, _ = carry
            dual = ascend(dual)
            moved = tree_map(lambda old, new: old + self.descent * (new - old), mean, dual.point)
            return number + 1, dual, moved, _relative_change(mean, moved)

        carry = (jnp.zeros((), jnp.int32), start, start.point, jnp.asarray(jnp.inf))
        _, dual, mean, _ = lax.while_loop(unsettled, alternate, carry)
        return dual._replace(point=mean)


def _relative_change(old: Any, new: Any) -> Float[Array, ""]:
    changes = [
        jnp.max(jnp.abs(after - before) / (1.0 + jnp.abs(after)))
        for before, after in zip(tree_leaves(old), tree_leaves(new), strict=True)
    ]
    return jnp.max(jnp.stack(changes)) if changes else jnp.zeros(())
