"""Conjugate beliefs about [A B], and beliefs cut off at a compact set."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy import special

from ..arrays import Array, as_float, require_finite, require_kind, require_number
from ..errors import InputError
from ..posteriors import Posterior
from ..records import AbstractVar, Record, changed, field
from ..risks import share_interval
from ..seeds import generator
from ..vector_log import VectorLog
from .systems import covariance, require_definite, root, square

# Draws by which the mass that is cut off is found, and most proposals for one draw that is kept.
COUNTED, ROUNDS = 10_000, 1000


class Share(NamedTuple):
    """How often something holds under a belief, with an exact binomial interval of 95 %.

    >>> import prudent as pr
    >>> share = pr.Share.of(0, 1000)
    >>> share.value, round(share.high, 5)
    (0.0, 0.00368)

    Attributes:
        value: the share.
        low, high: ends of the interval of Clopper and Pearson; the share itself where it is exact.
        draws: how many were counted.
        exact: whether they were the whole belief.
    """

    value: float
    low: float
    high: float
    draws: int
    exact: bool

    @staticmethod
    def of(count: int, draws: int) -> Share:
        """So many of so many independent draws."""
        return Share(count / draws, *share_interval(count / draws, draws), draws, False)

    def __str__(self) -> str:
        if self.exact:
            return f"{self.value:.2%}"
        return f"{self.value:.2%} of {self.draws} draws ({self.low:.2%} to {self.high:.2%}, 95 %)"


class _Regression(Record):
    """A matrix-normal regression: mean `[n, p]`, precision of the rows `[p, p]`, and that of its prior."""

    mean: Float[Array, "n p"]
    precision: Float[Array, "p p"]
    prior_precision: Float[Array, "p p"]

    @staticmethod
    def of(mean: Any, precision: Any) -> _Regression:
        centre, known = np.asarray(as_float(mean, "mean")), square("precision", precision)
        if centre.ndim != 2 or centre.shape[1] <= centre.shape[0]:
            raise InputError(f"mean is that of [A B], [n, n + m], got shape {centre.shape}")
        require_finite("mean", centre)
        if known.shape != (centre.shape[1],) * 2:
            raise InputError(f"precision must have shape {(centre.shape[1],) * 2}, got {known.shape}")
        if np.linalg.eigvalsh(known)[0] <= 0:
            raise InputError("precision must be positive definite; a flat prior is the limit of a small one")
        return _Regression(centre, known, known)

    def updated(self, log: Any) -> tuple[_Regression, np.ndarray, np.ndarray]:
        """The regression after a log, its squared residuals about both means, and how many rows there were."""
        require_kind("log", log, VectorLog, "a VectorLog, such as read_vector_log(...)")
        inputs, outputs = log.inputs(), np.asarray(log.next_state)
        if (outputs.shape[1], inputs.shape[1]) != self.mean.shape:
            n, p = self.mean.shape
            raise InputError(
                f"the log has {outputs.shape[1]} states and {inputs.shape[1] - outputs.shape[1]} actions, the belief "
                f"is about {n} and {p - n}"
            )
        precision = self.precision + inputs.T @ inputs
        mean = np.linalg.solve(precision, self.precision @ self.mean.T + inputs.T @ outputs).T
        left, moved = outputs - inputs @ mean.T, mean - self.mean
        squares = left.T @ left + moved @ self.precision @ moved.T
        return _Regression(mean, precision, self.prior_precision), squares, np.asarray(float(len(log)))

    def draw(self, random: np.random.Generator, roots: Float[np.ndarray, "*N n n"], n: int) -> np.ndarray:
        """Draws of [A B], of which the noise has these roots."""
        free = random.normal(size=(n, *self.mean.shape)) @ np.linalg.inv(np.linalg.cholesky(self.precision))
        return np.asarray(self.mean + roots @ free)


class LinearBelief(Posterior):
    """A belief about [A B] that learns from a `VectorLog`, and can be cut off at an ellipsoid about its mean."""

    regression: AbstractVar[_Regression]

    @property
    def states(self) -> int:
        """Dimension of the state."""
        return self.regression.mean.shape[0]

    @property
    def actions(self) -> int:
        """Dimension of the action."""
        return self.regression.mean.shape[1] - self.states

    def learned(self) -> Float[np.ndarray, " p"]:
        """Share of the prior's variance that logs took off, by direction of `(s, a)`, the least known first.

        >>> import prudent as pr
        >>> belief = pr.MatrixNormal(mean=[[0.0, 0.0]], precision=[[1.0, 0.0], [0.0, 1.0]], noise=[[1.0]])
        >>> log = pr.VectorLog([[1.0], [1.0], [1.0]], [[0.0], [0.0], [0.0]], [[0.9], [1.1], [1.0]])
        >>> belief.update(log).learned().tolist()  # the action never moved
        [0.0, 0.75]
        """
        half = np.linalg.inv(np.linalg.cholesky(self.regression.prior_precision))
        return 1.0 - 1.0 / np.linalg.eigvalsh(half @ self.regression.precision @ half.T)

    def distance(self, thetas: Float[np.ndarray, "N n q"]) -> Float[np.ndarray, " N"]:
        """Squared distance from the mean, in posterior standard deviations at the mean noise."""
        mean, noise = self.regression.mean, np.linalg.pinv(self.mean_noise())
        off = thetas[:, :, : mean.shape[1]] - mean
        return np.einsum("kip,pq,kjq,ij->k", off, self.regression.precision, off, noise, optimize=True)

    @abc.abstractmethod
    def mean_noise(self) -> Float[np.ndarray, "n n"]:
        """The mean of the noise."""


class MatrixNormal(LinearBelief):
    """Known noise: `[A B] ~ N(mean, noise, precision^-1)`, rows correlated by the noise, columns by the precision.

    >>> import prudent as pr
    >>> prior = pr.MatrixNormal(mean=[[0.0, 0.0]], precision=[[1.0, 0.0], [0.0, 1.0]], noise=[[1.0]])
    >>> log = pr.VectorLog(state=[[1.0], [0.0]], action=[[0.0], [1.0]], next_state=[[1.0], [0.5]])
    >>> prior.update(log).mean().tolist()  # halfway from 0 to what was seen
    [[0.5, 0.25]]

    Args:
        mean: `[n, n + m]`.
        precision: `[n + m, n + m]`, positive definite.
        noise: `[n, n]` covariance.
    """

    regression: _Regression
    noise: Float[Array, "n n"]

    def __init__(self, mean: Any, precision: Any, noise: Any):
        self.regression = _Regression.of(mean, precision)
        self.noise = covariance("noise", noise, self.states)

    def update(self, log: VectorLog) -> MatrixNormal:
        """`precision + Z'Z` and `mean precision + Y'Z` over the new precision, for inputs Z and next states Y."""
        return changed(self, regression=self.regression.updated(log)[0])

    def mean(self) -> Float[np.ndarray, "n p"]:
        """The mean of [A B]."""
        return np.asarray(self.regression.mean)

    def mean_noise(self) -> Float[np.ndarray, "n n"]:
        """The noise that is known."""
        return np.asarray(self.noise)

    def draw(self, generator: np.random.Generator, n: int) -> Float[np.ndarray, "N n p"]:
        """`n` draws of [A B]."""
        return self.regression.draw(generator, root(self.noise), n)


class MatrixNormalInverseWishart(LinearBelief):
    """Unknown noise: `noise ~ InverseWishart(scale, degrees)`, and [A B] given it as in `MatrixNormal`.

    >>> import prudent as pr
    >>> prior = pr.MatrixNormalInverseWishart([[0.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]], scale=[[1.0]], degrees=3.0)
    >>> prior.mean().tolist()  # [A B noise]
    [[0.0, 0.0, 1.0]]

    Args:
        mean, precision: as of `MatrixNormal`.
        scale: `[n, n]`, positive definite; the mean of the noise is `scale / (degrees - n - 1)`.
        degrees: of freedom, above `n + 1`, so that the noise has a mean.
    """

    regression: _Regression
    scale: Float[Array, "n n"]
    degrees: Float[Array, ""]

    def __init__(self, mean: Any, precision: Any, scale: Any, degrees: Any):
        self.regression = _Regression.of(mean, precision)
        self.scale = covariance("scale", scale, self.states)
        require_definite(
            "scale", self.scale - 1e-12 * np.trace(self.scale) * np.eye(self.states), "; it must be above 0"
        )
        if np.trace(self.scale) <= 0:
            raise InputError("scale must be positive definite, got 0")
        self.degrees = require_number("degrees", degrees, f"({self.states + 1}, inf)", "the noise would have no mean")

    def update(self, log: VectorLog) -> MatrixNormalInverseWishart:
        """The regression's, with the squares that it leaves added to the scale, and the rows to the degrees."""
        regression, squares, rows = self.regression.updated(log)
        return changed(self, regression=regression, scale=self.scale + squares, degrees=self.degrees + rows)

    def mean_noise(self) -> Float[np.ndarray, "n n"]:
        """`scale / (degrees - n - 1)`."""
        return np.asarray(self.scale) / (float(self.degrees) - self.states - 1.0)

    def mean(self) -> Float[np.ndarray, "n q"]:
        """The means of [A B] and of the noise."""
        return np.concatenate([np.asarray(self.regression.mean), self.mean_noise()], axis=1)

    def draw(self, generator: np.random.Generator, n: int) -> Float[np.ndarray, "N n q"]:
        """`n` draws of [A B noise]."""
        size = self.states
        # Bartlett: the inverse noise is C^-T T T' C^-1 with triangular T, where the scale is C C'.
        factors = np.tril(generator.normal(size=(n, size, size)), -1)
        squares = generator.chisquare(float(self.degrees) - np.arange(size), size=(n, size))
        factors[:, np.arange(size), np.arange(size)] = np.sqrt(squares)
        roots = np.linalg.cholesky(self.scale) @ np.linalg.inv(factors).transpose(0, 2, 1)
        return np.concatenate([self.regression.draw(generator, roots, n), roots @ roots.transpose(0, 2, 1)], axis=2)


class CutOff(Posterior):
    """A belief about [A B] given that theta lies in a compact set, by rejection.

    Under a Gaussian belief every gain is unstable with a positive probability, so that the mean cost and every CVaR are
    infinite, whatever a finite sample says. The paper has theta in a compact set; this is that set, and the risk is
    that of the belief given that theta is in it. All limits that are given hold together.

    >>> import numpy as np, prudent as pr
    >>> belief = pr.CutOff(pr.MatrixNormal([[1.0, 1.0]], np.eye(2), noise=[[1.0]]), radius=1.2, low=-3.0, high=3.0)
    >>> bool(np.abs(belief.sample(0, 500)[:, 0, 0]).max() <= 1.2)
    True
    >>> round(belief.mass_cut_off().value, 2)
    0.45

    Attributes:
        posterior: what is cut off; any belief whose theta is `[A B]` or `[A B noise]`.
        actions: dimension of the action, where the posterior does not know it.
        radius: most of the spectral radius of A.
        low, high: least and most of the entries of [A B], numbers or arrays `[n, n + m]`.
        credible: within the ellipsoid about the mean that has this share of the posterior, were the noise its mean; of
            a `LinearBelief` only.
    """

    posterior: Posterior
    radius: float | None
    low: Float[Array, ...]
    high: Float[Array, ...]
    credible: float | None
    actions: int = field(static=True)

    def __init__(
        self,
        posterior: Posterior,
        *,
        radius: float | None = None,
        low: Any = -np.inf,
        high: Any = np.inf,
        credible: float | None = None,
        actions: int | None = None,
    ):
        require_kind("posterior", posterior, Posterior, "a belief such as family.prior(spread=10.0).update(log)")
        if isinstance(posterior, CutOff):
            raise InputError("the posterior is cut off already; give all limits at once")
        self.posterior = posterior
        self.radius = None if radius is None else float(require_number("radius", radius, "(0, inf)"))
        self.credible = None if credible is None else float(require_number("credible", credible, "(0, 1)"))
        self.low, self.high = as_float(low, "low"), as_float(high, "high")
        if credible is not None and not isinstance(posterior, LinearBelief):
            raise InputError("credible= needs a MatrixNormal or a MatrixNormalInverseWishart; use low= and high=")
        known = posterior.actions if isinstance(posterior, LinearBelief) else actions
        if known is None:
            raise InputError(f"actions= is the dimension of the action, which {type(posterior).__name__} does not know")
        self.actions = int(known)
        if not np.all(np.less(*np.broadcast_arrays(self.low, self.high))):
            raise InputError(f"low must be below high, got {self.low} and {self.high}")
        if credible is None and not (np.all(np.isfinite(self.low)) and np.all(np.isfinite(self.high))):
            raise InputError(
                "the set must be bounded: give credible=, or a finite low= and high=; a limit of the radius alone "
                "leaves B open"
            )

    def update(self, log: VectorLog) -> CutOff:
        """The updated posterior, cut off at the same limits."""
        update = getattr(self.posterior, "update", None)
        if update is None:
            raise InputError(f"{type(self.posterior).__name__} does not learn from a log; cut off a MatrixNormal")
        return changed(self, posterior=update(log))

    def holds(self, thetas: Float[np.ndarray, "N n q"]) -> Bool[np.ndarray, " N"]:
        """Which draws are in the set."""
        n = thetas.shape[1]
        matrices = thetas[:, :, : n + self.actions]
        try:
            inside = (matrices >= self.low) & (matrices <= self.high)
        except ValueError:
            raise InputError(
                f"low and high have shapes {self.low.shape} and {self.high.shape}, [A B] has {matrices.shape[1:]}"
            ) from None
        kept = inside.all(axis=(1, 2))
        if self.radius is not None:
            kept &= np.abs(np.linalg.eigvals(matrices[:, :, :n])).max(axis=1) <= self.radius
        if self.credible is not None:
            assert isinstance(self.posterior, LinearBelief)
            size = n * (n + self.actions)
            kept &= self.posterior.distance(thetas) <= special.chdtri(size, 1.0 - self.credible)
        return np.asarray(kept)

    def draw(self, generator: np.random.Generator, n: int) -> Float[np.ndarray, "N n q"]:
        """`n` draws of the posterior that are in the set."""
        kept, found, tried = [], 0, 0
        while found < n:
            proposed = np.asarray(self.posterior.draw(generator, max(n - found, min(n, COUNTED))))
            inside = proposed[self.holds(proposed)]
            kept.append(inside[: n - found])
            found, tried = found + len(kept[-1]), tried + len(proposed)
            if tried >= ROUNDS * n > ROUNDS * found:
                raise InputError(
                    f"only {found} of {tried} draws of the posterior are in the set it is cut off at; widen the set"
                )
        return np.concatenate(kept)

    def mass_cut_off(self) -> Share:
        """Share of the posterior outside the set, by 10,000 draws of a seed of its own.

        >>> import numpy as np, prudent as pr
        >>> share = pr.CutOff(pr.MatrixNormal([[1.0, 1.0]], np.eye(2), noise=[[1.0]]), credible=0.9).mass_cut_off()
        >>> bool(share.low < 0.1 < share.high)
        True
        """
        draws = np.asarray(self.posterior.draw(generator(0), COUNTED))
        return Share.of(int((~self.holds(draws)).sum()), COUNTED)
