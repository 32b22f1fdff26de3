"""What a log says of theta, for any kind of family: tables by their kernels, others by a likelihood of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from ..arrays import Array, require_kind
from ..models import AbstractFamily
from ..transitions import Evidence, kernel_at, merge, transitions_of

FAMILY = "a family of MDPs, made by Family(...) or TabularFamily(...), a LinearFamily or a SimulatedFamily"


class Likelihood(eqx.Module):
    """`log p(log | theta)` up to a constant, traced; without a log it is 0.

    Attributes:
        value: `theta -> (log-likelihood, whether there is a model at theta)`.
        bytes: what one evaluation takes, for batches of bounded memory.
    """

    value: Callable[[Array], tuple[Float[Array, ""], Bool[Array, ""]]]
    bytes: int = eqx.field(static=True)

    def __call__(self, theta: Array) -> Float[Array, ""]:
        """The log-likelihood."""
        return self.value(theta)[0]

    def check(self, theta: Any) -> None:
        """Refuse a family whose likelihood is no such function at a theta."""
        family, log = getattr(self.value, "family", None), getattr(self.value, "log", None)
        if log is not None and hasattr(family, "check_density"):
            family.check_density(np.asarray(theta), log)  # pyright: ignore[reportOptionalMemberAccess]


class _OfKernel(eqx.Module):
    family: AbstractFamily
    evidence: Evidence | None

    def __call__(self, theta: Array) -> tuple[Array, Array]:
        probability = kernel_at(self.family, theta)
        proper = jnp.all(probability >= 0) & jnp.all(jnp.abs(probability.sum(axis=-1) - 1.0) < 1e-8)
        return jnp.zeros(()) if self.evidence is None else self.evidence.log_likelihood(probability), proper


class _OfVectors(eqx.Module):
    family: Any
    log: Any

    def __call__(self, theta: Array) -> tuple[Array, Array]:
        value = jnp.zeros(()) if self.log is None else self.family.log_likelihood(theta, self.log)
        return value, ~jnp.isnan(value)


def has_likelihood(family: Any) -> bool:
    """Whether a family brings its own, `family.log_likelihood(theta, log)` and `family.check_log(log)`."""
    return not isinstance(family, type) and hasattr(family, "log_likelihood") and hasattr(family, "check_log")


def likelihood_of(family: Any, log: Any) -> Likelihood:
    """The likelihood of a log, which is checked; None for no log."""
    if has_likelihood(family):
        if log is not None:
            family.check_log(log)
        rows = 0 if log is None else sum(np.size(part) for part in (log.state, log.action, log.next_state))
        return Likelihood(_OfVectors(family, log), 64 * max(1, rows))
    require_kind("family", family, AbstractFamily, FAMILY)
    evidence = None if log is None else Evidence.of(family.support, log)
    return Likelihood(_OfKernel(family, evidence), 8 * int(np.prod(family.support.shape)))


def joined(family: Any, *logs: Any) -> Any:
    """One log of several, checked; None for none."""
    known = [log for log in logs if log is not None]
    for log in known:
        likelihood_of(family, log)
    if not known:
        return None
    if not has_likelihood(family):
        return merge(*(transitions_of(log, family.support) for log in known))
    first, *others = known
    for log in others:
        first = first.joined(log)
    return first
