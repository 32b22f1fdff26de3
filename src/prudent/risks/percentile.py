"""The percentile objective: a quantile of the loss over the posterior, smoothed so that it has a gradient."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..arrays import Array, as_float
from .base import BELOW_ONE, Risk, require_number
from .tails import mass_above_and_level

# Below this many draws under the window, the spacings between them say too little of the spread.
FEWEST_DRAWS = 10.0


class SmoothedVaR(Risk):
    """Value at risk, the loss exceeded with probability `1 - level`, averaged over nearby quantiles.

    `integral w(u) q(u) du`: q(u) are the quantiles of the losses and w is a triangle of half-width h around `level`,
    so that a draw counts with the triangle's mass over its own interval of probability. It tends to the quantile
    as the width goes to 0 and the sample grows; the bias is about `h^2 q''(level) / 12`.

    **Not coherent**: it is blind to how bad the worst losses are, and the mean of two losses may have a larger
    quantile than both. It is monotone: losses that are nowhere larger have no larger quantiles. `solve` takes it and
    follows the true gradient of the smoothed value, but what holds for coherent risks does not hold here, and
    `check_risk` refuses it. `CVaR(level)` is the coherent bound above it; for a soft-robust objective, between the mean
    and the tail, mix `(1 - w) * Expectation() + w * CVaR(level)`.

    Args:
        level: of the quantile, in (0, 1).
        width: h, in probability, > 0; cut to `min(width, level, 1 - level)` so that the triangle stays in [0, 1].

    >>> import numpy as np, prudent as pr
    >>> losses = np.arange(1001.0)
    >>> [round(float(risk(losses).value)) for risk in (pr.SmoothedVaR(0.9), pr.CVaR(0.9))]
    [900, 950]
    >>> pr.SmoothedVaR(0.5, width=0.5)([1.0, 2.0, 6.0, 7.0]).weights.round(6).tolist()
    [0.5, 1.5, 1.5, 0.5]
    """

    level: Float[Array, "*batch"] = eqx.field(converter=as_float)
    width: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.05)

    def __check_init__(self) -> None:
        tiny = float(np.finfo(float).tiny)
        require_number(self, "level", tiny, BELOW_ONE, "(0, 1)", "; use WorstCase() for the limit 1.")
        require_number(self, "width", tiny, 1.0, "(0, 1]", "; 0.05 averages over a tenth of the draws")

    @property
    def coherent(self) -> bool:
        """No: two densities it attains do not bound each other's values."""
        return False

    def density(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """`(W(mass above + mass at the same loss) - W(mass above)) / mass at the same loss`, W the integral of w."""
        above, level = mass_above_and_level(losses, probabilities)
        mass = self._mass(above + level) - self._mass(above)
        return jnp.where(level > 0, jnp.maximum(mass, 0.0) / jnp.where(level > 0, level, 1.0), 0.0)

    def influence(self, losses: Float[Array, " R"], probabilities: Float[Array, " R"]) -> Float[Array, " R"]:
        """`integral_{-inf}^{C_k} w(P(C <= c)) dc`; NaN where the triangle covers too few draws to tell."""
        share = probabilities * self.density(losses, probabilities)
        enough = (share**2).sum() * FEWEST_DRAWS <= 1.0
        return jnp.where(enough, super().influence(losses, probabilities), jnp.nan)

    def _mass(self, tail: Float[Array, " R"]) -> Float[Array, " R"]:
        """The triangle's mass over the worst `tail` share of the losses."""
        centre = 1.0 - self.level
        half = jnp.minimum(self.width, jnp.minimum(self.level, centre))
        place = (tail - centre) / half
        return 0.5 * (1.0 + jnp.clip(1.0 + place, 0.0, 1.0) ** 2 - jnp.clip(1.0 - place, 0.0, 1.0) ** 2)
