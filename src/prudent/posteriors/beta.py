"""Independent probabilities, learned from trials."""

from __future__ import annotations

import equinox as eqx
import numpy as np
from jaxtyping import Float
from scipy import special

from ..arrays import Array, as_float, is_concrete, require_size
from ..errors import InputError
from ..transitions import Trials
from .base import Invertible, require_counts, require_prior


class Beta(Invertible):
    """Independent Beta coordinates: theta[d] is a probability, learned from trials.

    >>> import numpy as np, prudent as pr
    >>> belief = pr.Beta.uniform(2).update(pr.Trials([[2, 3], [0, 5]]))
    >>> belief.mean().round(3).tolist()
    [0.429, 0.143]
    >>> belief.maximum_likelihood().tolist()
    [0.4, 0.0]

    Attributes:
        prior: `[D, 2]` pseudo-counts of (success, failure).
        counts: `[D, 2]` observed counts.
    """

    prior: Float[Array, "D 2"] = eqx.field(converter=as_float)
    counts: Float[Array, "D 2"] = eqx.field(converter=as_float)

    def __check_init__(self) -> None:
        if not is_concrete(self.prior):
            return
        if self.prior.ndim != 2 or self.prior.shape[1] != 2 or self.prior.shape != self.counts.shape:
            raise InputError(f"Beta prior and counts need shape (D, 2), got {self.prior.shape} and {self.counts.shape}")
        require_counts("Beta counts", self.counts)
        require_prior("Beta prior", self.prior)
        if np.any(self.prior == 0):
            raise InputError("Beta prior must be positive in every entry; 1 is the uniform prior")

    @staticmethod
    def uniform(dimension: int) -> Beta:
        """Beta(1, 1) on each of `dimension` coordinates, nothing observed."""
        dimension = require_size("the dimension of a Beta", dimension)
        return Beta(np.ones((dimension, 2)), np.zeros((dimension, 2)))

    def update(self, log: Trials) -> Beta:
        """Add the counts of a log; updates in any order and split give the same posterior."""
        if not isinstance(log, Trials):
            raise InputError(f"a Beta posterior learns from Trials, got {type(log).__name__}")
        if log.counts.shape != self.counts.shape:
            raise InputError(f"the log has {len(log.counts)} coordinates, the posterior {len(self.counts)}")
        return Beta(self.prior, self.counts + log.counts)

    def mean(self) -> Float[Array, " D"]:
        """Posterior mean of theta."""
        total = self.prior + self.counts
        return total[..., 0] / total.sum(axis=-1)

    def maximum_likelihood(self) -> Float[Array, " D"]:
        """Observed frequencies; needs at least one trial of every coordinate."""
        seen = np.asarray(self.counts).sum(axis=-1)
        if np.any(seen == 0):
            raise InputError(
                f"no trial of coordinate {int(np.argmax(seen == 0))}: maximum likelihood needs data; use mean()"
            )
        return np.asarray(self.counts)[..., 0] / seen

    def draw(self, generator: np.random.Generator, n: int) -> Float[np.ndarray, "N D"]:
        """`n` draws `[n, D]`."""
        total = np.asarray(self.prior + self.counts)
        return generator.beta(total[:, 0], total[:, 1], size=(n, len(total)))

    @property
    def uniform_dimension(self) -> int:
        """`D`."""
        return len(self.prior)

    def from_uniform(self, uniforms: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
        """The quantile of each coordinate at each uniform number."""
        total = np.asarray(self.prior + self.counts)
        return special.betaincinv(total[:, 0], total[:, 1], uniforms)
