"""The gradient as a saddle point, by the loss's Fenchel conjugate."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Float, UInt32

from ..arrays import Array, as_float, as_whole, is_concrete, require_size
from ..errors import InputError
from ..kernels import Kernel
from ..losses import ConvexLoss, as_convex
from ..models import MDP
from .estimator import GradientEstimator
from .objective import Objective, Problem, assess, occupancies_of


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

    iterations: int = eqx.field(static=True, converter=as_whole, default=200)
    descent: Float[Array, ""] = eqx.field(converter=as_float, default=0.9)
    tolerance: Float[Array, ""] = eqx.field(converter=as_float, default=1e-10)

    def __check_init__(self) -> None:
        require_size("Variational iterations", self.iterations)
        if is_concrete(self.descent) and not (self.descent.shape == () and 0 < self.descent <= 1):
            raise InputError(f"Variational descent must be one number in (0, 1], got {self.descent}")
        if is_concrete(self.tolerance) and not (self.tolerance.shape == () and self.tolerance >= 0):
            raise InputError(f"Variational tolerance must be one number >= 0, got {self.tolerance}")

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
        family, loss = problem.family, as_convex(problem.loss)

        def cost_of(occupancy: Array, probability: Array, cost: Array) -> Array:
            mdp = MDP(Kernel(family.support, probability), cost, family.start, family.discount)
            return self._saddle_cost(loss, occupancy, mdp)

        def total(parameters: Any) -> tuple[Array, Objective]:
            batch = occupancies_of(problem, jax.vmap(problem.policy.probabilities)(parameters), thetas)
            known = batch._replace(occupancies=lax.stop_gradient(batch.occupancies))
            groups = jax.tree.leaves(parameters)[0].shape[0]
            losses = known.losses(problem.loss, family).reshape(groups, -1)
            value, weights = assess(problem.risk, losses, shares)
            saddle = jax.vmap(cost_of, in_axes=batch.axis, out_axes=batch.axis)(
                known.occupancies, known.probability, known.cost
            )
            states = (0, 1) if batch.axis else (1, 2)
            values = (saddle * batch.occupancies).sum(axis=states).reshape(groups, -1)
            return (shares * weights * values).sum(), Objective(value, losses, weights)

        gradient, result = jax.grad(total, has_aux=True)(parameters)
        return result, gradient

    def _saddle_cost(self, loss: ConvexLoss, occupancy: Float[Array, "S A"], mdp: MDP) -> Float[Array, "S A"]:
        """The cost z at the saddle point, pulled back from the loss's own space to states and actions."""
        image, start = loss.image(occupancy, mdp), loss.begin(mdp)

        def unsettled(carry: tuple) -> Array:
            number, _, _, change = carry
            return (number < self.iterations) & (change > self.tolerance)

        def alternate(carry: tuple) -> tuple:
            number, dual, mean, _ = carry
            dual = loss.ascend(dual, image, mdp)
            moved = jax.tree.map(lambda old, new: old + self.descent * (new - old), mean, dual.point)
            return number + 1, dual, moved, _relative_change(mean, moved)

        carry = (jnp.zeros((), jnp.int32), start, start.point, jnp.asarray(jnp.inf))
        _, dual, mean, _ = lax.while_loop(unsettled, alternate, carry)
        return loss.cost_of(dual._replace(point=mean), mdp)


def _relative_change(old: Any, new: Any) -> Float[Array, ""]:
    changes = [
        jnp.max(jnp.abs(after - before) / (1.0 + jnp.abs(after)))
        for before, after in zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True)
    ]
    return jnp.max(jnp.stack(changes)) if changes else jnp.zeros(())
