"""Calling a loss: on a batch of models, and with its answer checked."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..arrays import Array
from ..errors import InputError
from ..kernels import Kernel
from ..models import MDP, AbstractFamily
from .base import Loss


def loss_batch(
    loss: Loss, family: AbstractFamily, occupancies: Array, probability: Array, cost: Array, axis: int
) -> Float[Array, " N"]:
    """The loss of each model of a batch whose arrays carry the batch along `axis`."""

    def one(occupancy: Array, probability: Array, cost: Array) -> Array:
        return loss(occupancy, MDP(Kernel(family.support, probability), cost, family.start, family.discount))

    return jax.vmap(one, in_axes=axis)(occupancies, probability, cost)


def require_scalar(loss: Loss, occupancy: np.ndarray, mdp: MDP) -> None:
    """Refuse a loss that does not return one real number."""
    try:
        shape = jax.eval_shape(loss, occupancy, mdp)
    except Exception as error:
        raise InputError(f"the loss could not be evaluated: {error}; it is called as loss(occupancy, mdp)") from error
    if getattr(shape, "shape", None) != ():
        raise InputError(f"the loss must return one number, got {shape}; sum or average it")
    if not jnp.issubdtype(shape.dtype, jnp.floating):
        raise InputError(f"the loss must return a real number, got {shape.dtype}")


def check_loss_at(loss: Loss, occupancy: np.ndarray, mdp: MDP, differentiable: bool = True) -> None:
    """Refuse a loss that is not one finite number, with a finite gradient if asked, at a given occupancy."""
    require_scalar(loss, occupancy, mdp)
    value, slope = (np.asarray(part) for part in _value_and_slope(loss, occupancy, mdp))
    if not np.isfinite(value):
        raise InputError(f"the loss is {value} at the starting policy; keep its logarithms and ratios off zero")
    if differentiable and not np.all(np.isfinite(slope)):
        s, a = (int(i) for i in np.argwhere(~np.isfinite(slope))[0])
        raise InputError(
            f"the gradient of the loss is {slope[s, a]} at the starting policy (state {s}, action {a}, occupancy "
            f"{occupancy[s, a]:.3g}); keep its logarithms and roots off zero"
        )


@eqx.filter_jit
def _value_and_slope(loss: Loss, occupancy: Array, mdp: MDP) -> tuple[Array, Array]:
    return jax.value_and_grad(loss)(occupancy, mdp)
