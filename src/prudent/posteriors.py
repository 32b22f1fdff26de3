"""Stage 4: what is believed of theta after the data, `mu_N` in the paper."""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from .arrays import (
    Array,
    as_float,
    generator,
    is_concrete,
    require_distribution,
    require_finite,
    require_kind,
    require_size,
)
from .errors import InputError
from .kernels import Support
from .transitions import Transitions, Trials

# Below this shape a gamma draw may underflow.
SMALLEST_DIRECT_SHAPE = 0.02


class Posterior(eqx.Module):
    """Anything that can be sampled. A concrete posterior supplies `draw`.

    Draws are made by NumPy on the host, between compiled blocks of iterations. So `draw` need not be
    traceable: a posterior may call any library, or resample draws made elsewhere.
    """

    @abc.abstractmethod
    def draw(self, generator: np.random.Generator, n: int) -> Float[np.ndarray, "N ..."]:
        """`n` independent draws of theta, batch axis first."""

    def sample(self, key: jax.Array | int, n: int) -> Float[np.ndarray, "N ..."]:
        """`n` draws from a random key (`jax.random.key`, or a whole number); the same key, the same draws."""
        return self.draw(generator(key), require_size("the number of draws", n))


def _require_counts(name: str, counts: Array) -> None:
    require_finite(name, np.asarray(counts))
    if np.any(counts < 0):
        raise InputError(f"{name} must be >= 0, got {counts.min()}")


def _require_prior(name: str, prior: Array) -> None:
    require_finite(name, np.asarray(prior))
    if np.any(prior < 0):
        raise InputError(f"{name} must be positive, got {prior.min()}; 1 is the uniform prior")


class Beta(Posterior):
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
        _require_counts("Beta counts", self.counts)
        _require_prior("Beta prior", self.prior)
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


class Dirichlet(Posterior):
    """Independent Dirichlet rows over the successors a support allows; theta is the table `[S, A, B]`.

    >>> import prudent as pr
    >>> support = pr.Support.lists([[[0, 1]], [[1, 0]]])
    >>> log = pr.Transitions.from_records([(0, 0, 1), (0, 0, 1)], states=2, actions=1)
    >>> pr.Dirichlet.symmetric(support, 1.0).update(log).mean()[0, 0].tolist()
    [0.25, 0.75]

    Attributes:
        support: allowed successors; a transition outside it is refused.
        prior: `[S, A, B]` pseudo-counts, 0 on padding.
        counts: `[S, A, B]` observed counts.
    """

    support: Support
    prior: Float[Array, "S A B"] = eqx.field(converter=as_float)
    counts: Float[Array, "S A B"] = eqx.field(converter=as_float)

    def __check_init__(self) -> None:
        require_kind("support", self.support, Support, "a Support, such as Support.lists(...)")
        if not is_concrete(self.prior):
            return
        if self.prior.shape != self.support.shape or self.counts.shape != self.support.shape:
            raise InputError(
                f"Dirichlet prior and counts need the support's shape {self.support.shape}, "
                f"got {self.prior.shape} and {self.counts.shape}"
            )
        _require_prior("Dirichlet prior", self.prior)
        _require_counts("Dirichlet counts", self.counts)
        stray = np.argwhere(~self.support.allowed() & ((self.prior > 0) | (self.counts > 0)))
        if len(stray):
            s, a, _ = (int(i) for i in stray[0])
            raise InputError(f"Dirichlet prior or counts on padding of state {s}, action {a}; put 0 there")
        empty = np.argwhere(np.asarray(self.prior).sum(axis=-1) == 0)
        if empty.size:
            s, a = (int(i) for i in empty[0])
            raise InputError(
                f"Dirichlet prior is 0 on every successor of state {s}, action {a}; give one a positive weight"
            )
        if not self.support.is_dense:
            self._refuse_repeats()

    def _refuse_repeats(self) -> None:
        index = np.where(self.support.allowed(), self.support.index(), -1 - np.arange(self.support.successors))
        ordered = np.sort(index, axis=-1)
        repeats = np.argwhere(ordered[..., 1:] == ordered[..., :-1])
        if repeats.size:
            s, a, _ = (int(i) for i in repeats[0])
            raise InputError(
                f"state {s}, action {a} lists a successor twice; a Dirichlet row needs distinct successors"
            )

    @staticmethod
    def symmetric(support: Support, weight: float = 1.0) -> Dirichlet:
        """The same pseudo-count `weight` on every allowed successor, nothing observed."""
        require_kind("support", support, Support, "a Support, such as Support.lists(...)")
        if not (isinstance(weight, int | float | np.number) and 0 < weight < np.inf):
            raise InputError(f"Dirichlet weight must be > 0, got {weight}; 1 is the uniform prior")
        return Dirichlet(support, weight * support.allowed(), np.zeros(support.shape))

    def update(self, log: Transitions) -> Dirichlet:
        """Add the counts of a log; updates in any order and split give the same posterior."""
        if not isinstance(log, Transitions):
            raise InputError(f"a Dirichlet posterior learns from Transitions, got {type(log).__name__}")
        if (log.states, log.actions) != self.support.shape[:2]:
            raise InputError(
                f"the log is for {log.states} states and {log.actions} actions, "
                f"the posterior for {self.support.states} and {self.support.actions}"
            )
        counts = np.array(self.counts)
        state, action = np.asarray(log.state), np.asarray(log.action)
        if self.support.is_dense:
            slot = np.asarray(log.next_state)
        else:
            match = (self.support.index()[state, action] == np.asarray(log.next_state)[:, None]) & (
                self.support.allowed()[state, action]
            )
            lost = ~match.any(axis=1)
            if lost.any():
                row = int(np.argmax(lost))
                raise InputError(
                    f"row {row} of the log goes from state {state[row]} by action {action[row]} to state "
                    f"{int(np.asarray(log.next_state)[row])}, which the support does not allow; "
                    "add it to the support or correct the log"
                )
            slot = match.argmax(axis=1)
        np.add.at(counts, (state, action, slot), np.asarray(log.count))
        return Dirichlet(self.support, self.prior, counts)

    def mean(self) -> Float[Array, "S A B"]:
        """Posterior mean of the table."""
        total = self.prior + self.counts
        return total / total.sum(axis=-1, keepdims=True)

    def maximum_likelihood(self, unseen: Any = None) -> Float[Array, "S A B"]:
        """Observed frequencies.

        Args:
            unseen: `[S, A, B]` table whose rows stand in for pairs without data, for example
                `posterior.mean()`; without it such pairs are refused.
        """
        counts = np.asarray(self.counts)
        total = counts.sum(axis=-1, keepdims=True)
        empty = np.argwhere(total[..., 0] == 0)
        if empty.size and unseen is None:
            s, a = (int(i) for i in empty[0])
            raise InputError(
                f"{len(empty)} state-action pairs have no data, the first is state {s}, action {a}: maximum "
                "likelihood needs data; use mean(), or maximum_likelihood(unseen=posterior.mean())"
            )
        frequency = counts / np.where(total == 0, 1.0, total)
        if unseen is None:
            return frequency
        unseen = np.asarray(as_float(unseen, "unseen"))
        if unseen.shape != self.support.shape:
            raise InputError(f"unseen must be a table of shape {self.support.shape}, got {unseen.shape}")
        require_distribution("unseen", unseen, ("state", "action"))
        return np.where(total == 0, unseen, frequency)

    def draw(self, generator: np.random.Generator, n: int) -> Float[np.ndarray, "N S A B"]:
        """`n` tables `[n, S, A, B]`."""
        total = np.asarray(self.prior + self.counts)
        size = (n, *total.shape)
        if total[total > 0].min() >= SMALLEST_DIRECT_SHAPE:
            table = generator.standard_gamma(total, size=size)
        else:
            # Gammas of tiny shape underflow to 0; their logarithms, log Gamma(a + 1) + log(U) / a, do not.
            with np.errstate(divide="ignore"):
                log = np.log(generator.standard_gamma(total + 1.0, size=size)) + np.log(
                    generator.random(size)
                ) / np.where(total > 0, total, 1.0)
            log = np.where(total > 0, log, -np.inf)
            table = np.exp(log - log.max(axis=-1, keepdims=True))
        table /= table.sum(axis=-1, keepdims=True)
        return table


class Point(Posterior):
    """All belief on one theta: planning at a plug-in estimate, or a known model.

    >>> import jax, prudent as pr
    >>> pr.Point([0.3, 0.02]).sample(jax.random.key(0), 2).shape
    (2, 2)
    """

    theta: Float[Array, ...] = eqx.field(converter=as_float)

    def __check_init__(self) -> None:
        if is_concrete(self.theta):
            require_finite("theta", np.asarray(self.theta))

    def mean(self) -> Float[Array, ...]:
        """The point."""
        return self.theta

    def draw(self, generator: np.random.Generator, n: int) -> Float[np.ndarray, "N ..."]:
        """`n` copies."""
        del generator
        return np.broadcast_to(np.asarray(self.theta), (n, *self.theta.shape))
