"""Posteriors that are points: draws made elsewhere, one known theta, or the chains of Hamiltonian Monte Carlo."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..arrays import Array, as_float, is_concrete, require_finite, require_size
from ..errors import InputError
from ..records import field
from ..seeds import Seed, as_seed
from ..transitions import joined, likelihood_of
from .base import MOST_ATOMS, Posterior, WeightedDraws


class Draws(Posterior):
    """A posterior of finitely many points: a list of models, a sampler's export, an ensemble, a bootstrap.

    Chains come as one list: `thetas.reshape(-1, *thetas.shape[2:])` flattens `[chains, draws, ...]`. Up to 4,096 points
    are used whole with their weights: nothing is sampled, and risks and bounds are exact for these points. More are
    resampled.

    >>> import prudent as pr
    >>> belief = pr.Draws([[0.1, 0.4], [0.3, 0.2]], weights=[3, 1])
    >>> belief.mean().round(3).tolist()
    [0.15, 0.35]
    >>> belief.sample(0, 5).shape
    (5, 2)

    Attributes:
        thetas: `[M, ...]` the draws.
        weights: `[M]` how much each counts, >= 0, of any sum; alike when None.
    """

    thetas: Float[Array, "M ..."]
    weights: Float[Array, " M"] | None

    def __init__(self, thetas: Any, weights: Any = None):
        self.thetas = as_float(thetas, "thetas")
        self.weights = None if weights is None else as_float(weights, "weights")
        if not is_concrete(self.thetas):
            return
        if self.thetas.ndim == 0 or len(self.thetas) == 0:
            raise InputError(f"thetas must be draws, batch axis first, got shape {self.thetas.shape}")
        require_finite("thetas", np.asarray(self.thetas))
        if self.weights is None:
            return
        if self.weights.shape != self.thetas.shape[:1]:
            raise InputError(
                f"weights must have shape {self.thetas.shape[:1]}, one for each draw, got {self.weights.shape}; chains "
                "are flattened by thetas.reshape(-1, *thetas.shape[2:]) and weights.reshape(-1)"
            )
        require_finite("weights", np.asarray(self.weights))
        if np.any(self.weights < 0) or not np.any(self.weights > 0):
            raise InputError(
                f"weights must be >= 0 and not all 0, the smallest is {self.weights.min()}, the largest "
                f"{self.weights.max()}; from log-weights take exp(log_weights - log_weights.max())"
            )

    def mean(self) -> Float[Array, ...]:
        """The weighted average of the draws."""
        return np.average(np.asarray(self.thetas), axis=0, weights=self.weights)

    def as_atoms(self) -> WeightedDraws | None:
        """The points of positive weight, if there are at most 4,096."""
        weights = np.ones(len(self.thetas)) if self.weights is None else np.asarray(self.weights)
        kept = weights > 0
        if kept.sum() > MOST_ATOMS:
            return None
        # Divided twice: a weight may be as large or as small as a float can be.
        share = weights[kept] / weights.max()
        return WeightedDraws(np.asarray(self.thetas)[kept], share / share.sum(), True)

    def draw(self, generator: np.random.Generator, n: int) -> Float[np.ndarray, "N ..."]:
        """`n` of the draws with replacement, each as often as its weight says."""
        thetas = np.asarray(self.thetas)
        if self.weights is None:
            return thetas[generator.integers(len(thetas), size=n)]
        share = np.asarray(self.weights) / np.max(self.weights)
        return thetas[generator.choice(len(thetas), size=n, p=share / share.sum())]


class Point(Posterior):
    """All belief on one theta: planning at a plug-in estimate, or a known model.

    >>> import prudent as pr
    >>> pr.Point([0.3, 0.02]).sample(0, 2).shape
    (2, 2)
    """

    theta: Float[Array, ...] = field(converter=as_float)

    def __check_init__(self) -> None:
        if is_concrete(self.theta):
            require_finite("theta", np.asarray(self.theta))

    def mean(self) -> Float[Array, ...]:
        """The point."""
        return self.theta

    def as_atoms(self) -> WeightedDraws:
        """The point."""
        return WeightedDraws(np.asarray(self.theta)[None], np.ones(1), True)

    def draw(self, generator: np.random.Generator, n: int) -> Float[np.ndarray, "N ..."]:
        """`n` copies."""
        del generator
        return np.broadcast_to(np.asarray(self.theta), (n, *self.theta.shape))


LARGEST_RHAT, FEWEST_EFFECTIVE = 1.01, 400


class MCMCStatus(enum.Enum):
    """Whether the chains of an `MCMC` run can be trusted; the value says what is wrong and what to do.

    >>> import prudent as pr
    >>> pr.MCMCStatus.NOT_MIXED.ok
    False
    """

    OK = "R-hat is below 1.01, there are at least 400 effective draws, and no trajectory diverged"
    NOT_MIXED = (
        "R-hat is 1.01 or more, so the chains disagree about the posterior; raise warmup= and samples=, or narrow the "
        "prior to one of several modes"
    )
    FEW_EFFECTIVE = "there are fewer than 400 effective draws, too few for quantiles; raise samples="
    DIVERGENT = (
        "trajectories diverged, so parts of the posterior may have been missed; raise target_acceptance= (0.95, 0.99), "
        "or use a prior without mass where the likelihood is 0"
    )

    @property
    def ok(self) -> bool:
        """Whether the draws stand for the posterior."""
        return self is MCMCStatus.OK


class Settings(NamedTuple):
    """What a run is repeated with."""

    warmup: int
    samples: int
    chains: int
    seed: Seed
    target_acceptance: float


class MCMC(Posterior):
    """The posterior under any family and any NumPyro prior, as draws of the no-U-turn sampler.

    The density is `prior(theta) prod_k P_theta(s'_k | s_k, a_k)^count_k`, where P has densities if states are vectors,
    as in a `LinearFamily` or through the noise of a `SimulatedFamily`. Made by `MCMC.run`, which needs
    `pip install "prudent[mcmc]"`. A run is used only if it passes the checks of its `status`; `Draws(run.draws)` uses
    draws that did not, on your own responsibility.

    >>> import numpyro.distributions as dist, prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> log = pr.Transitions.from_records([(2, 2, 3), (2, 2, 2)], states=4, actions=4, count=[3, 7])
    >>> belief = pr.MCMC.run(lake, log, dist.Uniform(0.0, 1.0).expand([2]))
    >>> belief.status.ok, belief.draws.shape
    (True, (4000, 2))
    >>> bool(abs(belief.mean()[1] - 4 / 12) < 0.02)  # as Beta(4, 8)
    True

    Attributes:
        draws: `[M, ...]` the draws of all chains, one behind the other.
        rhat: `[...]` rank-normalised split R-hat of each entry of theta, 1 when the chains agree.
        effective_sample_size: `[...]` effective draws of each entry, the smaller of bulk and tail.
        divergences: how many trajectories diverged.
        status: whether the draws can be trusted.
        family, prior, log: what the draws are about, with the log merged.
        settings: the arguments of the run.
    """

    draws: Float[Array, "M ..."]
    rhat: Float[Array, ...]
    effective_sample_size: Float[Array, ...]
    divergences: int = field(static=True)
    status: MCMCStatus = field(static=True)
    family: Any
    prior: Any
    log: Any
    settings: Settings

    @staticmethod
    def run(
        family: Any,
        log: Any,
        prior: Any,
        *,
        warmup: int = 1000,
        samples: int = 1000,
        chains: int = 4,
        seed: Seed = 0,
        target_acceptance: float = 0.8,
    ) -> MCMC:
        """Run the sampler, and check its chains.

        Args:
            family: the family of models.
            log: the transitions seen, `Transitions` or a `VectorLog`; None for the prior.
            prior: a NumPyro distribution over theta whose batch and event axes together are theta's shape, for
                example `Uniform(0.0, 1.0).expand([2])`, or `Dirichlet(ones([S, A, B]))` for a `TabularFamily`.
            warmup: iterations of each chain that adapt the sampler and are thrown away.
            samples: draws of each chain.
            chains: independent chains, at least 2, run side by side in one process.
            seed: a whole number.
            target_acceptance: in (0, 1); nearer 1 is slower and follows sharp bends better.
        """
        likelihood = likelihood_of(family, log)
        settings = Settings(
            require_size("warmup", warmup),
            # Split in halves, a chain needs two draws in each for its variance.
            require_size("samples", samples, 4),
            require_size("chains", chains, 2),
            as_seed(seed),
            target_acceptance,
        )
        if not (isinstance(target_acceptance, float) and 0.0 < target_acceptance < 1.0):
            raise InputError(f"target_acceptance must lie in (0, 1), got {target_acceptance!r}; 0.8 is usual")
        log = joined(family, log)
        from .chains import diagnose, sample  # imports JAX and NumPyro

        draws, divergences = sample(likelihood, prior, settings)
        rhat, effective = diagnose(draws)
        return MCMC(
            draws=draws.reshape(-1, *draws.shape[2:]),
            rhat=rhat,
            effective_sample_size=effective,
            divergences=divergences,
            status=_status(rhat, effective, divergences),
            family=family,
            prior=prior,
            log=log,
            settings=settings,
        )

    def by_chain(self) -> Float[np.ndarray, "C N ..."]:
        """The draws of each chain."""
        draws = np.asarray(self.draws)
        return draws.reshape(self.settings.chains, -1, *draws.shape[1:])

    def update(self, log: Any) -> MCMC:
        """A new run with the same settings on all the data, those of `log` added."""
        return MCMC.run(self.family, joined(self.family, self.log, log), self.prior, **self.settings._asdict())

    def mean(self) -> Float[np.ndarray, ...]:
        """Posterior mean of theta."""
        self._require_ok()
        return np.asarray(self.draws).mean(axis=0)

    @property
    def behind(self) -> float:
        """The fewest effective draws of any entry of theta."""
        return float(np.min(self.effective_sample_size))

    def draw(self, generator: np.random.Generator, n: int) -> Float[np.ndarray, "N ..."]:
        """`n` of the draws with replacement; refused when the status is not ok."""
        self._require_ok()
        return Draws(self.draws).draw(generator, n)

    def _require_ok(self) -> None:
        if not self.status.ok:
            raise InputError(
                f"the MCMC run cannot be trusted: {self.status.value} (largest R-hat {np.max(self.rhat):.3f}, fewest "
                f"effective draws {np.min(self.effective_sample_size):.0f}, {self.divergences} divergences). "
                "Draws(run.draws) uses its draws as they are"
            )

    def __str__(self) -> str:
        return (
            f"{len(self.draws)} draws, largest R-hat {np.max(self.rhat):.3f}, fewest effective draws "
            f"{np.min(self.effective_sample_size):.0f}, {self.divergences} divergences\n{self.status.value}"
        )


def _status(rhat: np.ndarray, effective: np.ndarray, divergences: int) -> MCMCStatus:
    if not np.all(rhat < LARGEST_RHAT):
        return MCMCStatus.NOT_MIXED
    if not np.all(effective >= FEWEST_EFFECTIVE):
        return MCMCStatus.FEW_EFFECTIVE
    return MCMCStatus.DIVERGENT if divergences else MCMCStatus.OK
