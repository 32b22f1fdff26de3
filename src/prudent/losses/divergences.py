"""f-divergences `D_f(p || q) = sum q f(p / q)`: their generators f, and the conjugates of these.

Some generators, or their slopes, are infinite at 0. Below a small ratio, the `floor`, such a generator goes on
as its tangent line: it stays convex and continuously differentiable, and a policy that never visits a state
has a finite loss and a finite gradient. The conjugate then is the generator's own, from the slope at the floor
upwards, and infinite below.
"""

from __future__ import annotations

import abc
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..arrays import Array, in_float64, require_number


class Divergence(eqx.Module):
    """An f-divergence, by its generator: strictly convex on the positive ratios, with `f(1) = 0`."""

    def lowest(self) -> float:
        """The ratio below which the generator goes on as its tangent; -inf where it needs none."""
        return -math.inf

    @abc.abstractmethod
    def generator(self, ratio: Array) -> Any:
        """f, elementwise."""

    @abc.abstractmethod
    def conjugate(self, point: Array) -> Any:
        """`f*(z) = sup_x z x - f(x)`, elementwise, for z inside the domain."""

    def domain(self) -> tuple[float, float]:
        """The open interval on which the conjugate is finite; the line unless said otherwise."""
        return -math.inf, math.inf

    def start(self) -> Any:
        """A z inside the domain: the slope `f'(1)`."""
        return jax.grad(self.generator)(1.0)

    @in_float64
    def between(self, values: Array, target: Array) -> Any:
        """`sum q f(p / q)`, with the tangent below the floor."""
        ratio, lowest = values / target, self.lowest()
        if not math.isfinite(lowest):
            return (target * self.generator(ratio)).sum()
        below = ratio < lowest
        height, slope = jax.jvp(self.generator, (jnp.asarray(lowest),), (jnp.asarray(1.0),))
        tangent = height + slope * (ratio - lowest)
        return (target * jnp.where(below, tangent, self.generator(jnp.where(below, lowest, ratio)))).sum()

    def ascend(self, point: Array, values: Array, target: Array) -> jax.Array:
        """One step up on `<z, p> - sum q f*(z)`, each element for itself."""
        # Below the floor the maximiser is the end of the conjugate's domain: the one at the floor.
        from .ascent import newton_step

        ratio = jnp.maximum(values / target, self.lowest())
        return newton_step(point, ratio, self.conjugate, self.domain())


class Floored(Divergence):
    """A generator whose slope is infinite at 0, so that it goes on as its tangent below a small ratio, the floor."""

    floor: eqx.AbstractVar[float]

    def __check_init__(self) -> None:
        require_number(f"the floor of {type(self).__name__}", self.floor, "(0, 1)")

    def lowest(self) -> float:
        """The floor."""
        return self.floor


class KullbackLeibler(Floored):
    """`KL(p || q) = sum p log(p / q)`, the divergence of the paper's experiment; `f(x) = x log x`.

    The slope at the floor of 1e-12 is -27.

    >>> import numpy as np, prudent as pr
    >>> float(pr.KullbackLeibler().between(np.array([0.5, 0.5]), np.array([0.25, 0.75])).round(4))
    0.1438
    """

    floor: float = eqx.field(static=True, default=1e-12)

    def generator(self, ratio: Array) -> Any:
        """`x log x`."""
        return ratio * jnp.log(ratio)

    def conjugate(self, point: Array) -> Any:
        """`exp(z - 1)`."""
        return jnp.exp(point - 1.0)


class ReverseKullbackLeibler(Floored):
    """`KL(q || p) = sum q log(q / p)`, which dwells on what the target visits; `f(x) = -log x`.

    The slope at the floor of 1e-4 is -10 000: a lower floor tells a state missed from one hardly visited,
    at the price of larger gradients.

    >>> import numpy as np, prudent as pr
    >>> float(pr.ReverseKullbackLeibler().between(np.array([0.25, 0.75]), np.array([0.5, 0.5])).round(4))
    0.1438
    """

    floor: float = eqx.field(static=True, default=1e-4)

    def generator(self, ratio: Array) -> Any:
        """`-log x`."""
        return -jnp.log(ratio)

    def conjugate(self, point: Array) -> Any:
        """`-1 - log(-z)`."""
        return -1.0 - jnp.log(-point)

    def domain(self) -> tuple[float, float]:
        """The negative numbers."""
        return -math.inf, 0.0


class ChiSquare(Divergence):
    """`sum (p - q)^2 / q`; `f(x) = (x - 1)^2`, finite everywhere.

    >>> import numpy as np, prudent as pr
    >>> float(pr.ChiSquare().between(np.array([0.5, 0.5]), np.array([0.25, 0.75])).round(4))
    0.3333
    """

    def generator(self, ratio: Array) -> Any:
        """`(x - 1)^2`."""
        return (ratio - 1.0) ** 2

    def conjugate(self, point: Array) -> Any:
        """`z + z^2 / 4`."""
        return point + point**2 / 4.0


class TotalVariation(Divergence):
    """Half the sum of `|p - q|`, its kinks rounded; `f(x) = (sqrt((x - 1)^2 + e^2) - e) / 2`.

    At most `e / 2` below the total variation.

    >>> import numpy as np, prudent as pr
    >>> float(pr.TotalVariation(smoothing=1e-6).between(np.array([0.5, 0.5]), np.array([0.25, 0.75])).round(4))
    0.25

    Args:
        smoothing: e > 0.
    """

    smoothing: float = eqx.field(static=True, default=1e-3)

    def __check_init__(self) -> None:
        require_number("smoothing", self.smoothing, "(0, inf)", "1e-3 is usual")

    def generator(self, ratio: Array) -> Any:
        """`(sqrt((x - 1)^2 + e^2) - e) / 2`."""
        return (jnp.sqrt((ratio - 1.0) ** 2 + self.smoothing**2) - self.smoothing) / 2.0

    def conjugate(self, point: Array) -> Any:
        """`z + (e / 2) (1 - sqrt(1 - 4 z^2))`."""
        return point + self.smoothing / 2.0 * (1.0 - jnp.sqrt((1.0 - 2.0 * point) * (1.0 + 2.0 * point)))

    def domain(self) -> tuple[float, float]:
        """Between the slopes of the total variation."""
        return -0.5, 0.5


class JensenShannon(Floored):
    """The mean of `KL(p || m)` and `KL(q || m)`, `m = (p + q) / 2`; at most log 2.

    `f(x) = (x log x - (x + 1) log((x + 1) / 2)) / 2`; the slope at the floor of 1e-12 is -13.

    >>> import numpy as np, prudent as pr
    >>> float(pr.JensenShannon().between(np.array([0.5, 0.5]), np.array([0.25, 0.75])).round(4))
    0.0338
    """

    floor: float = eqx.field(static=True, default=1e-12)

    def generator(self, ratio: Array) -> Any:
        """`(x log x - (x + 1) log((x + 1) / 2)) / 2`."""
        return (ratio * jnp.log(ratio) - (ratio + 1.0) * jnp.log((ratio + 1.0) / 2.0)) / 2.0

    def conjugate(self, point: Array) -> Any:
        """`-log(2 - exp(2 z)) / 2`."""
        return -jnp.log(2.0 - jnp.exp(2.0 * point)) / 2.0

    def domain(self) -> tuple[float, float]:
        """Below `log(2) / 2`."""
        return -math.inf, math.log(2.0) / 2.0


class Hellinger(Floored):
    """The squared Hellinger distance, `sum (sqrt p - sqrt q)^2 / 2`; `f(x) = (sqrt x - 1)^2 / 2`.

    The slope at the floor of 1e-6 is -500.

    >>> import numpy as np, prudent as pr
    >>> float(pr.Hellinger().between(np.array([0.5, 0.5]), np.array([0.25, 0.75])).round(4))
    0.0341
    """

    floor: float = eqx.field(static=True, default=1e-6)

    def generator(self, ratio: Array) -> Any:
        """`(sqrt x - 1)^2 / 2`."""
        return (jnp.sqrt(ratio) - 1.0) ** 2 / 2.0

    def conjugate(self, point: Array) -> Any:
        """`z / (1 - 2 z)`."""
        return point / (1.0 - 2.0 * point)

    def domain(self) -> tuple[float, float]:
        """Below 1/2."""
        return -math.inf, 0.5
