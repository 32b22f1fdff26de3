"""How many iterations an episode should have, by the finite-episode error bound of the paper."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from ..arrays import Array, as_float, as_whole, in_float64, is_concrete, require_size
from ..errors import InputError
from ..gradients import Adjoint, Problem, arrange
from ..risks import Expectation

# Length of the step along which the gradient's change is measured.
PROBE = 1e-3


class Scales(NamedTuple):
    """What the bound of an episode is made of, estimated at its first policy from a posterior sample.

    The paper takes suprema over all policies and the distance to the truth; here the truth is a posterior
    draw and the policy the one the episode starts from.

    Attributes:
        loss_gap: D, the mean of `|G(alpha) - C(alpha, theta)|`.
        gradient_gap: E, the mean of `||grad G(alpha) - grad C(alpha, theta)||`.
        smoothness: L, how fast `grad G` changes along itself.
    """

    loss_gap: float
    gradient_gap: float
    smoothness: float


class ByTheorem(eqx.Module):
    """Iterations of episode i in proportion to `L_i (E_{i-1} + D_i) / epsilon^2`.

    >>> import prudent as pr
    >>> pr.ByTheorem(epsilon=0.5, most=200).iterations(pr.Scales(2.0, 3.0, 0.5), before=pr.Scales(4.0, 5.0, 0.5))
    14

    Args:
        epsilon: the mean gradient norm wanted.
        factor: the constant the theorem leaves open.
        least, most: bounds on the answer.
        samples: posterior draws the scales are estimated from.
    """

    epsilon: Float[Array, ""] = eqx.field(converter=as_float)
    factor: Float[Array, ""] = eqx.field(converter=as_float, default=1.0)
    least: int = eqx.field(static=True, converter=as_whole, default=1)
    most: int = eqx.field(static=True, converter=as_whole, default=1000)
    samples: int = eqx.field(static=True, converter=as_whole, default=64)

    def __check_init__(self) -> None:
        for name in ("epsilon", "factor"):
            value = getattr(self, name)
            if is_concrete(value) and not (value.shape == () and 0 < value < np.inf):
                raise InputError(f"ByTheorem {name} must be one number > 0, got {value}")
        for name in ("least", "most", "samples"):
            require_size(f"ByTheorem {name}", getattr(self, name))
        if self.least > self.most:
            raise InputError(f"ByTheorem needs least <= most, got {self.least} and {self.most}")

    def iterations(self, now: Scales, before: Scales) -> int:
        """t_i, within its bounds; the first episode has no episode before it and uses its own E."""
        wanted = self.factor * now.smoothness * (before.gradient_gap + now.loss_gap) / self.epsilon**2
        return int(np.clip(np.ceil(wanted), self.least, self.most))


@in_float64
def estimate_scales(problem: Problem, parameters: Any, thetas: Float[np.ndarray, "M ..."]) -> Scales:
    """D, E and L at one policy, from M posterior draws; the problem's risk has no leading axis."""
    one = eqx.tree_at(lambda p: p.risk, problem, jax.tree.map(lambda leaf: np.asarray(leaf)[None], problem.risk))
    each = eqx.tree_at(lambda p: p.risk, problem, Expectation(), is_leaf=lambda leaf: leaf is problem.risk)
    together, apart = arrange(thetas[None], one), arrange(thetas[:, None], each)
    return Scales(*(float(scale) for scale in _scales(one, each, parameters, together, apart, len(thetas))))


@eqx.filter_jit
def _scales(
    one: Problem, each: Problem, parameters: Any, together: Array, apart: Array, draws: int
) -> tuple[Array, Array, Array]:
    def total(parameters: Any) -> tuple[Array, Array]:
        first = jax.tree.map(lambda leaf: leaf[None], parameters)
        result, gradient = Adjoint()(one, first, together, jnp.zeros((1, 2), jnp.uint32))
        return result.value[0], _vector(gradient, 1)[0]

    value, gradient = total(parameters)
    copies = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (draws, *jnp.shape(leaf))), parameters)
    single, gradients = Adjoint()(each, copies, apart, jnp.zeros((draws, 2), jnp.uint32))
    length = jnp.linalg.norm(gradient)
    ahead, unravel = ravel_pytree(parameters)
    _, moved = total(unravel(ahead + PROBE * gradient / jnp.where(length > 0, length, 1.0)))
    return (
        jnp.abs(single.value - value).mean(),
        jnp.linalg.norm(_vector(gradients, draws) - gradient, axis=1).mean(),
        jnp.linalg.norm(moved - gradient) / PROBE,
    )


def _vector(tree: Any, groups: int) -> Float[Array, "G D"]:
    return jnp.concatenate([leaf.reshape(groups, -1) for leaf in jax.tree.leaves(tree)], axis=1)
