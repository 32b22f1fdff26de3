"""Densities that users write with `jax.numpy`, compiled and differentiated; and any density inside jitted code."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from jaxtyping import Float

from ..arrays import in_float64
from ..autodiff import eqx, jax, jitted, jnp
from .base import Risk, assess_each, difference_by_weights

# A sample is filled up with draws of weight 0 to one of these sizes: few are compiled, whatever the number of draws.
SMALLEST_FILLED, FILLED_GROWTH = 1024, 4

# Classes of risks whose density JAX cannot trace, such as those that use a risk of the library: these run uncompiled.
_not_traceable: set[type] = set()


@in_float64
def compiled_density(
    risk: Risk, losses: Float[np.ndarray, " R"], probabilities: Float[np.ndarray, " R"]
) -> Float[np.ndarray, " R"]:
    """Return the density of one sample."""
    if type(risk) not in _not_traceable:
        try:
            return _density(risk, *_filled(risk, losses, probabilities))[: len(losses)]
        except jax.errors.JAXTypeError:
            _not_traceable.add(type(risk))
    arrays: Any = jnp.asarray(losses), jnp.asarray(probabilities)
    return np.asarray(risk.density(*arrays))


def derive_by_weights(
    risk: Risk, losses: Float[np.ndarray, " R"], probabilities: Float[np.ndarray, " R"]
) -> Float[np.ndarray, " R"]:
    """Return the derivative of the value by the weight of each draw; by differences where JAX cannot trace it."""
    if type(risk) in _not_traceable:
        return difference_by_weights(risk, losses, probabilities)
    return _slope(risk, *_filled(risk, losses, probabilities))[: len(losses)]


def traced_densities(risk: Risk, losses: Any, probabilities: Any) -> Any:
    """Return the densities of traced losses `[..., R]`, held fixed: traced where the density is, else called back."""
    losses, probabilities = jax.lax.stop_gradient((losses, jnp.asarray(probabilities)))
    if risk.batched:
        with contextlib.suppress(jax.errors.JAXTypeError):
            return risk.density(losses, probabilities)
    return call_back(risk, losses, probabilities)


def call_back(risk: Any, losses: Any, probabilities: Any) -> Any:
    """Return the densities of traced losses `[..., R]`, found by NumPy while the compiled code waits."""
    numbers, rest = eqx.partition(risk, lambda leaf: isinstance(leaf, float | np.floating | np.ndarray | jax.Array))
    parts, structure = jax.tree.flatten((numbers, losses, jnp.broadcast_to(probabilities, losses.shape)))

    def found(*words: Any) -> np.ndarray:
        each = [np.ascontiguousarray(part).view(np.float64)[..., 0] for part in map(np.asarray, words)]
        numbers, rows, weights = jax.tree.unflatten(structure, each)
        own = eqx.combine(numbers, rest)
        # Mapped over by JAX, all have the same leading axis, the numbers of the risk included.
        mapped = rows.ndim > losses.ndim
        density = assess_each(own, rows, weights)[1] if mapped else own.densities(rows, weights)
        return np.ascontiguousarray(density[..., None]).view(np.uint32)

    # As whole numbers: JAX's threads that call back do not know that we compute in float64.
    words = [jax.lax.bitcast_convert_type(jnp.asarray(part, jnp.float64), jnp.uint32) for part in parts]
    shape = jax.ShapeDtypeStruct((*losses.shape, 2), jnp.uint32)
    density = jax.pure_callback(found, shape, *words, vmap_method="broadcast_all")
    return jax.lax.bitcast_convert_type(density, jnp.float64)


def _filled(risk: Risk, losses: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sample, followed by draws of weight 0 where these change nothing."""
    size = SMALLEST_FILLED
    while size < len(losses):
        size *= FILLED_GROWTH
    more = size - len(losses) if risk.ignores_weightless else 0
    return np.pad(losses, (0, more), mode="edge"), np.pad(probabilities, (0, more))


@jitted
def _density(risk: Risk, losses: Any, probabilities: Any) -> Any:
    return risk.density(losses, probabilities)


@jitted
def _slope(risk: Risk, losses: Any, probabilities: Any) -> Any:
    return jax.grad(lambda weights: (weights * risk.density(losses, weights) * losses).sum())(probabilities)
