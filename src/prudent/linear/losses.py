"""Losses of a linear system's occupancy: the quadratic cost, and convex functions of its moments."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from ..arrays import Array, as_float, namespace_of, require_finite, require_number
from ..errors import InputError
from ..records import AbstractVar, Record, field
from .occupancy import LinearOccupancy
from .systems import LinearSystem, square

LinearLoss = Callable[[LinearOccupancy, LinearSystem], Any]
"""`(occupancy, system) -> scalar`, traceable by JAX and convex in the occupancy."""


class MomentLoss(Record):
    """A convex function of mass, first and second moments of the occupancy; losses add up and take multiples >= 0.

    >>> import prudent as pr
    >>> loss = pr.LinearQuadraticCost() + 0.5 * pr.InputLimit([1.0])
    >>> family = pr.LinearFamily(state_cost=[[1.0]], action_cost=[[1.0]], noise=[[1.0]], discount=0.5)
    >>> float(pr.loss_at(pr.LinearGaussianPolicy([[-0.5]]), family, [[0.5, 1.0]], loss=loss))
    1.25
    """

    __array_ufunc__ = None

    @abc.abstractmethod
    def __call__(self, occupancy: LinearOccupancy, system: LinearSystem) -> Any:
        """The loss, one number."""

    def cost_matrix(self, system: LinearSystem) -> Float[Array, "y y"]:
        """The part of the loss that is linear in the occupancy, a form of `(1, s, a)`; 0 where there is none."""
        return 0.0 * system.cost_matrix()

    def rest(self) -> tuple[MomentLoss, ...]:
        """What is not in that form."""
        return (self,)

    def floor(self) -> float:
        """A number that what is not linear is never below; -inf where none is known."""
        return -np.inf

    def __add__(self, other: Any) -> MomentLoss:
        if isinstance(other, int | float) and other == 0:  # where sum() begins
            return self
        term: Any = other if isinstance(other, MomentLoss) else ConvexMoments(other)
        return MomentSum((self, term))

    __radd__ = __add__

    def __mul__(self, multiple: Any) -> MomentLoss:
        return MomentMultiple(self, float(require_number("the multiple of a loss", multiple, "[0, inf)", "not convex")))

    __rmul__ = __mul__


class LinearQuadraticCost(MomentLoss):
    """The expected discounted cost, linear in the occupancy: the default.

    >>> import prudent as pr
    >>> family = pr.LinearFamily(state_cost=[[1.0]], action_cost=[[1.0]], noise=[[1.0]], discount=0.5)
    >>> float(pr.loss_at(pr.LinearGaussianPolicy([[-0.5]]), family, [[0.5, 1.0]]))
    1.25
    """

    def __call__(self, occupancy: LinearOccupancy, system: LinearSystem) -> Any:
        off, weight = system.target, system.weight
        linear = (weight * occupancy.second).sum() - 2.0 * off @ weight @ occupancy.first
        return linear + occupancy.mass * (off @ weight @ off)

    def cost_matrix(self, system: LinearSystem) -> Float[Array, "y y"]:
        """All of it."""
        return system.cost_matrix()

    def rest(self) -> tuple[MomentLoss, ...]:
        """Nothing."""
        return ()

    def floor(self) -> float:
        """Nothing is left."""
        return 0.0


class MomentSum(MomentLoss):
    """A sum of losses."""

    terms: tuple[MomentLoss, ...]

    def __call__(self, occupancy: LinearOccupancy, system: LinearSystem) -> Any:
        return sum(term(occupancy, system) for term in self.terms)

    def cost_matrix(self, system: LinearSystem) -> Any:
        return sum(term.cost_matrix(system) for term in self.terms)

    def rest(self) -> tuple[MomentLoss, ...]:
        return tuple(part for term in self.terms for part in term.rest())

    def floor(self) -> float:
        return float(sum(term.floor() for term in self.terms))


class MomentMultiple(MomentLoss):
    """A multiple >= 0 of a loss."""

    loss: MomentLoss
    multiple: float

    def __call__(self, occupancy: LinearOccupancy, system: LinearSystem) -> Any:
        return self.multiple * self.loss(occupancy, system)

    def cost_matrix(self, system: LinearSystem) -> Any:
        return self.multiple * self.loss.cost_matrix(system)

    def rest(self) -> tuple[MomentLoss, ...]:
        return tuple(MomentMultiple(part, self.multiple) for part in self.loss.rest())

    def floor(self) -> float:
        return self.multiple * self.loss.floor() if self.multiple > 0 else 0.0


class ConvexMoments(MomentLoss):
    """A user's function of the occupancy's moments, said to be convex in mass, first and second together.

    >>> import jax.numpy as jnp, prudent as pr
    >>> loss = pr.ConvexMoments(lambda occupancy, system: jnp.exp(occupancy.second[0, 0]))
    >>> family = pr.LinearFamily(state_cost=[[1.0]], action_cost=[[1.0]], noise=[[1.0]], discount=0.5)
    >>> round(float(pr.loss_at(pr.LinearGaussianPolicy([[-0.5]]), family, [[0.5, 1.0]], loss=loss)), 4)
    2.7183

    Args:
        function: `(occupancy, system) -> number`, traceable; of the occupancy it uses mass, first and second.
        least: a number that it is never below, if one is known; a bound where no plan gives one.
    """

    function: LinearLoss = field(static=True)
    least: float

    def __init__(self, function: Any, least: float = -np.inf):
        if not callable(function):
            raise InputError(f"a loss is a function (occupancy, system) -> number, got {function!r}")
        self.function, self.least = function, float(least)

    def __call__(self, occupancy: LinearOccupancy, system: LinearSystem) -> Any:
        return self.function(occupancy, system)

    def floor(self) -> float:
        """The number given."""
        return self.least


class GaussianTarget(MomentLoss):
    """Distance of the occupancy to a target: `KL(N || target)` of the Gaussian N that has its mean and covariance.

    `(tr(T^-1 (S + (m - t)(m - t)')) - dim - log det(S T^-1)) / 2`. It is convex in the occupancy, because the
    covariance S is a concave function of it, and at most the divergence of the occupancy itself. The target is one of
    states, or of states and actions together; of the latter the actions need a noise of their own.

    >>> import prudent as pr
    >>> family = pr.LinearFamily(state_cost=[[1.0]], action_cost=[[1.0]], noise=[[1.0]], discount=0.5)
    >>> target = pr.GaussianTarget(mean=[0.0], covariance=[[0.5]])
    >>> round(float(pr.loss_at(pr.LinearGaussianPolicy([[-0.5]]), family, [[0.5, 1.0]], loss=target)), 6)
    0.0

    Attributes:
        mean, covariance: `[n]` and `[n, n]`, or `[n + m]` and `[n + m, n + m]`.
    """

    mean: Float[Array, " d"]
    covariance: Float[Array, "d d"]

    def __init__(self, mean: Any, covariance: Any):
        self.mean, self.covariance = np.asarray(as_float(mean, "mean")), square("covariance", covariance)
        if self.mean.ndim != 1 or self.covariance.shape != (len(self.mean),) * 2:
            raise InputError(f"mean and covariance do not fit: {self.mean.shape} and {self.covariance.shape}")
        require_finite("mean", self.mean)
        if np.linalg.eigvalsh(self.covariance)[0] <= 0:
            raise InputError("the covariance of a target must be positive definite")

    def __call__(self, occupancy: LinearOccupancy, system: LinearSystem) -> Any:
        size = len(self.mean)
        if size not in (system.states, system.states + system.actions):
            raise InputError(
                f"the target has {size} coordinates, the system {system.states} states and {system.actions} actions"
            )
        mean, spread = occupancy.mean[:size], occupancy.covariance[:size, :size]
        xp = namespace_of(spread)
        off, inverse = mean - self.mean, xp.linalg.inv(self.covariance)
        known = xp.linalg.slogdet(self.covariance)[1]
        return 0.5 * ((inverse * spread).sum() + off @ inverse @ off - size - xp.linalg.slogdet(spread)[1] + known)

    def floor(self) -> float:
        """A divergence is never below 0."""
        return 0.0


class _SquaresAbove(MomentLoss):
    """`sum_i max(0, E[(z_i - c_i)^2] / limit_i^2 - 1)^2` over some coordinates of `z = (s, a)`, the mean discounted."""

    limit: AbstractVar[Float[Array, " k"]]
    about: AbstractVar[Float[Array, " k"]]

    @abc.abstractmethod
    def _counted(self, system: LinearSystem) -> tuple[int, int]:
        """The coordinates: from the first up to before the second."""

    def __call__(self, occupancy: LinearOccupancy, system: LinearSystem) -> Any:
        begin, end = self._counted(system)
        if len(self.limit) != end - begin:
            raise InputError(f"there must be {end - begin} limits, one for each coordinate, got {len(self.limit)}")
        xp = namespace_of(occupancy.second)
        first, second = occupancy.first[begin:end], xp.diagonal(occupancy.second)[begin:end]
        square = (second - 2.0 * self.about * first) / occupancy.mass + self.about**2
        return (xp.maximum(square / self.limit**2 - 1.0, 0.0) ** 2).sum()

    def floor(self) -> float:
        """A sum of squares."""
        return 0.0


def _limits(limit: Any, about: Any) -> tuple[np.ndarray, np.ndarray]:
    """Limits and what is measured from, checked."""
    limits = np.asarray(as_float(limit, "limit"))
    centre = np.zeros(limits.shape) if about is None else np.asarray(as_float(about, "about"))
    if limits.ndim != 1 or centre.shape != limits.shape:
        raise InputError(f"limit and about must be lists of one length, got shapes {limits.shape} and {centre.shape}")
    if not np.all(limits > 0):
        raise InputError(f"limits must be above 0, got {limits.tolist()}; inf is none")
    require_finite("about", centre)
    return limits, centre


class InputLimit(_SquaresAbove):
    """Actions whose mean square is above a limit: `sum_i max(0, E[a_i^2] / limit_i^2 - 1)^2`, the mean discounted.

    >>> import prudent as pr
    >>> family = pr.LinearFamily(state_cost=[[1.0]], action_cost=[[1.0]], noise=[[1.0]], discount=0.5)
    >>> loss = pr.LinearQuadraticCost() + 10.0 * pr.InputLimit([0.1])
    >>> round(float(pr.loss_at(pr.LinearGaussianPolicy([[-0.5]]), family, [[0.5, 1.0]], loss=loss)), 2)
    1323.75

    Args:
        limit: `[m]` root mean square of each action from which on it counts; inf for none.
        about: `[m]` what actions are measured from; 0 when left out.
    """

    limit: Float[Array, " m"]
    about: Float[Array, " m"]

    def __init__(self, limit: Any, about: Any = None):
        self.limit, self.about = _limits(limit, about)

    def _counted(self, system: LinearSystem) -> tuple[int, int]:
        return system.states, system.states + system.actions


class VariancePenalty(_SquaresAbove):
    """States that vary by more than a limit about a centre: `sum_i max(0, E[(s_i - c_i)^2] / limit_i^2 - 1)^2`.

    The variance is that about a centre that is given: about the occupancy's own mean it is concave in the occupancy,
    and a penalty for it would not be convex.

    >>> import prudent as pr
    >>> family = pr.LinearFamily(state_cost=[[1.0]], action_cost=[[1.0]], noise=[[1.0]], discount=0.5)
    >>> penalty = pr.VariancePenalty([0.5])
    >>> round(float(pr.loss_at(pr.LinearGaussianPolicy([[-0.5]]), family, [[0.5, 1.0]], loss=penalty)), 6)
    1.0

    Args:
        limit: `[n]` standard deviation of each state from which on it counts; inf for none.
        about: `[n]` the centre; 0 when left out.
    """

    limit: Float[Array, " n"]
    about: Float[Array, " n"]

    def __init__(self, limit: Any, about: Any = None):
        self.limit, self.about = _limits(limit, about)

    def _counted(self, system: LinearSystem) -> tuple[int, int]:
        return 0, system.states
