"""Networks of equinox's behind policies, their weights and what they give."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from ..arrays import Array, in_float64
from ..autodiff import eqx, jax, jnp
from ..records import tree_map

Sizes = tuple[int, int, int, int]


@in_float64
def first_weights(sizes: Sizes, seed: int) -> Any:
    """Return random hidden layers and a last layer of zeros; the sizes are those of features, actions, width, depth."""
    weights = eqx.filter(_network(sizes, seed), eqx.is_inexact_array)
    return eqx.tree_at(lambda n: n.layers[-1], weights, replace_fn=lambda last: tree_map(np.zeros_like, last))


@in_float64
def shares(sizes: Sizes, weights: Any, features: Float[Array, "S F"]) -> Float[Array, "S A"]:
    """Return the softmax of the network's outputs, state by state."""
    # The arrays come from the weights; activations and sizes from a network that is never computed.
    skeleton = eqx.filter_eval_shape(lambda: _network(sizes, 0))
    rest = eqx.filter(skeleton, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct), inverse=True)
    return jax.nn.softmax(jax.vmap(eqx.combine(weights, rest))(jnp.asarray(features)), axis=-1)


def _network(sizes: Sizes, seed: int) -> eqx.nn.MLP:
    return eqx.nn.MLP(*sizes, activation=jax.nn.tanh, dtype=jnp.float64, key=jax.random.key(seed))
