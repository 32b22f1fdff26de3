"""The occupancy of a linear system, told by its moments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtyping import Float

from ..arrays import Array, namespace_of
from ..errors import InputError
from ..records import Record


class LinearOccupancy(Record):
    """The discounted occupancy `sum_t gamma^t N(m_t, C_t)` of `z = (s, a)`: its moments, and means of any function.

    Not normalised, like that of a table: its mass is `1 / (1 - gamma)`. Mass, first and second moments are linear in
    the occupancy, so a convex function of the three is a convex loss; its covariance is not linear, but concave.

    >>> import prudent as pr
    >>> family = pr.LinearFamily(state_cost=[[1.0]], action_cost=[[1.0]], noise=[[1.0]], discount=0.5)
    >>> occupancy = pr.linear_occupancy(family.at([[0.5, 1.0]]), pr.LinearGaussianPolicy([[-0.5]]))
    >>> round(float(occupancy.mass), 6), round(float(occupancy.second[0, 0]), 6)
    (2.0, 1.0)
    >>> round(float(occupancy.expect(lambda state, action: state[0] ** 2)), 6)
    1.0

    Attributes:
        mass: `1 / (1 - gamma)`.
        first: `[n + m]` `sum_t gamma^t E[z_t]`.
        second: `[n + m, n + m]` `sum_t gamma^t E[z_t z_t']`.
        closed_loop: what it is the occupancy of; None for a mixture of several.
    """

    mass: Float[Array, ""]
    first: Float[Array, " z"]
    second: Float[Array, "z z"]
    closed_loop: Any

    @property
    def mean(self) -> Float[Array, " z"]:
        """Return the mean of the distribution `occupancy / mass`."""
        return self.first / self.mass

    @property
    def covariance(self) -> Float[Array, "z z"]:
        """Return the covariance of the distribution `occupancy / mass`."""
        mean = self.mean
        return self.second / self.mass - mean[:, None] * mean

    def moments(self, size: int) -> Float[Array, "x x"]:
        """`sum_t gamma^t E[x_t x_t']` of 1 and the first so many of `(s, a)`; the states come first."""
        first = self.first[:size]
        xp = namespace_of(first)
        below = xp.concatenate([first[:, None], self.second[:size, :size]], axis=1)
        return xp.concatenate([xp.concatenate([xp.reshape(self.mass, 1), first])[None], below])

    def expect(self, function: Callable[[Array, Array], Any], steps: int = 64) -> Any:
        """`sum_t gamma^t E[f(s_t, a_t)]`, the integral of a function under the occupancy.

        Each of the first steps is a Gaussian, over which f is integrated by a product of Gauss-Hermite rules where that
        takes few points, else over points that are spread evenly at random and the same in every call. The last step
        has the mass of all that come after it, which is right once the closed loop has settled by then.

        Args:
            function: `(state [n], action [m]) -> number` or array, traceable.
            steps: Gaussians that are told apart.
        """
        if self.closed_loop is None:
            raise InputError("expect is not known of a mixture of occupancies; use its moments")
        from .moments import expectation  # imports JAX

        return expectation(self.closed_loop, function, steps)
