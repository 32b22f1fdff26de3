"""Steps of an optax transformation, for the parameters of many runs at once."""

from __future__ import annotations

from typing import Any

from ..arrays import in_float64
from ..errors import InputError

try:
    import optax

    from ..autodiff import jax, jitted
except (ModuleNotFoundError, InputError) as error:
    raise InputError(
        "BRPG step must be a length > 0 or an optax transformation, and optax is not installed; pip install "
        "'prudent[jax]'"
    ) from error


def require_transformation(step: Any) -> None:
    """Refuse what is no transformation."""
    if not isinstance(step, optax.GradientTransformation):
        raise InputError(f"BRPG step must be a length > 0 or an optax transformation, got {step!r}")


@in_float64
def first_state(transformation: Any, parameters: Any) -> Any:
    """Return the transformation's state of each run before the first step."""
    return jax.vmap(transformation.init)(parameters)


@jitted
def update(transformation: Any, slope: Any, state: Any, parameters: Any) -> tuple[Any, Any]:
    """Return what is added to the parameters of each run, and the next state."""
    return jax.vmap(transformation.update)(slope, state, parameters)
