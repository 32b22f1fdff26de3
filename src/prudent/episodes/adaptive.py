"""How many iterations an episode should have, by the finite-episode error bound of the paper."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from ..arrays import Array, as_float, as_whole, in_float64, is_concrete, require_size
from ..errors import InputError
from ..gradients import Adjoint, Problem, arrange, equal_shares
from ..risks import Expectation

# Length of the step along which the gradient's change is measured.
PROBE = 1e-3


class Scales(NamedTuple):
    """What the bound of an episode is made of, estimated at its first policy from a posterior sample.

    The paper takes suprema over all policies and the distance to the truth; here the truth is a posterior
    draw and the policy the one the episode starts from.

    >>> import prudent as pr
    >>> pr.Scales(loss_gap=2.0, gradient_gap=3.0, smoothness=0.5).loss_gap
    2.0

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
        if not np.isfinite(wanted):
            raise InputError(f"the scales of the error bound are not numbers: {now}; check the loss")
        return int(np.clip(np.ceil(wanted), self.least, self.most))


@in_float64
def estimate_scales(
    problem: Problem,
    parameters: Sequence[Any],
    thetas: Float[np.ndarray, "G M ..."],
    against: Float[np.ndarray, "G K ..."] | None = None,
) -> list[Scales]:
    """D, E and L at G policies, each from M posterior draws of its own.

    Args:
        problem: what is minimised; its risk has no leading axis.
        parameters: of each policy.
        thetas: the draws that make up `G(alpha)`.
        against: the thetas whose `C(alpha, theta)` it is compared with, such as the truth; the draws when left out.
    """
    groups = len(parameters)
    against = thetas if against is None else against
    repeated = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (groups, *np.shape(leaf))), problem.risk)
    together, apart = dataclasses.replace(problem, risk=repeated), dataclasses.replace(problem, risk=Expectation())
    stacked = jax.tree.map(lambda *leaves: np.stack([as_float(leaf) for leaf in leaves]), *parameters)
    sizes = (groups, thetas.shape[1], against.shape[1])
    columns = _scales(together, apart, stacked, arrange(thetas, together), arrange(against, apart), sizes)
    return [Scales(*row) for row in np.stack([np.asarray(column) for column in columns], axis=1).tolist()]


@eqx.filter_jit
def _scales(
    together: Problem, apart: Problem, parameters: Any, thetas: Array, against: Array, sizes: tuple[int, int, int]
) -> tuple[Float[Array, " G"], Float[Array, " G"], Float[Array, " G"]]:
    groups, draws, others = sizes

    def total(parameters: Any) -> tuple[Array, Any]:
        result, gradient = Adjoint()(
            together, parameters, thetas, equal_shares(groups, draws), jnp.zeros((groups, 2), jnp.uint32)
        )
        return result.value, _vectors(gradient, groups)

    value, gradient = total(parameters)
    # Every theta compared with is a group of its own: its risk is its one loss.
    copies = jax.tree.map(lambda leaf: jnp.repeat(leaf, others, axis=0), parameters)
    single, slopes = Adjoint()(
        apart, copies, against, equal_shares(groups * others, 1), jnp.zeros((groups * others, 2), jnp.uint32)
    )
    off = single.value.reshape(groups, others) - value[:, None]
    turned = _vectors(slopes, groups * others).reshape(groups, others, -1) - gradient[:, None]
    length = jnp.linalg.norm(gradient, axis=1, keepdims=True)
    _, unravel = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], parameters))
    ahead = _vectors(parameters, groups) + PROBE * gradient / jnp.where(length > 0, length, 1.0)
    _, moved = total(jax.vmap(unravel)(ahead))
    return (
        jnp.abs(off).mean(axis=1),
        jnp.linalg.norm(turned, axis=2).mean(axis=1),
        jnp.linalg.norm(moved - gradient, axis=1) / PROBE,
    )


def _vectors(tree: Any, groups: int) -> Any:
    """Each of G parameter sets as one row."""
    return jnp.concatenate([leaf.reshape(groups, -1) for leaf in jax.tree.leaves(tree)], axis=1)
