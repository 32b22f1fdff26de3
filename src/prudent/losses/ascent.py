"""Ascents on conjugates, which only the gradient estimator `Variational` and `check_loss` make.

For a conjugate in closed form, one step up on `z y - phi*(z)`, elementwise. The solution of each of these
one-dimensional concave problems is the root of `y - phi*'(z)`, a decreasing function. Occupancies reach from 1e-8 to
10, so Newton's step can be off by many powers of ten; a second step, Newton's on `log y - log phi*'(z)`, and a range of
lengths of both make up for that. And a user's own loss as a `ConvexLoss`: its conjugate is never written down, only
ascended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from ..arrays import Array
from ..conformance import explained
from ..engine import ModelBatch
from ..models import MDP
from ..records import Record, field
from .base import ConvexLoss, Dual, UserLoss, as_loss

LENGTHS = 2.0 ** np.arange(1, -11, -1)
# A step that would leave the domain stops just short of its end.
NEAREST = 0.995


def newton_step(
    point: np.ndarray, image: np.ndarray, conjugate: Callable[[np.ndarray], Any], domain: tuple[float, float]
) -> np.ndarray:
    """Return the best of a dozen lengths of two Newton steps, for each element; the point where none is better.

    Args:
        point: z, inside the domain.
        image: y, of the same shape.
        conjugate: phi* with its first two derivatives, elementwise, strictly convex.
        domain: the open interval on which phi* is finite.
    """
    with np.errstate(all="ignore"):
        value, first, second = conjugate(point)
        gap = image - first
        plain = gap / second
        positive = (image > 0) & (first > 0)
        ratio = np.where(positive, image, 1.0) / np.where(positive, first, 1.0)
        steps = np.stack([plain, np.where(positive, np.log(ratio) * first / second, plain)])

        lower, upper = domain
        steps = np.clip(steps, NEAREST * (lower - point), NEAREST * (upper - point))
        candidates = (point + LENGTHS.reshape(-1, *(1,) * steps.ndim) * steps).reshape(-1, *point.shape)

        # Higher, and nearer the root: close to it, values agree to the last digit while gaps still differ.
        inside = (candidates > lower) & (candidates < upper)
        safe = np.where(inside, candidates, point)
        tried = conjugate(safe)
        gaps = np.abs(image - tried.slope)
        now = point * image - value
        slack = 1e-14 * (np.abs(now) + np.abs(point * image))
        better = inside & (safe * image - tried.value >= now - slack) & (gaps < np.abs(gap))
        best = np.argmin(np.where(better, gaps, np.inf), axis=0)[None]
        chosen = np.take_along_axis(candidates, best, axis=0)[0]
        return np.where(np.any(better, axis=0), chosen, point)


class ByConjugate(Record):
    """A loss whose derivative is the cost table that an ascent of its conjugate ends at.

    Attributes:
        loss: the loss.
        search: how the ascent is made: `search.alternate(dual, ascend)` returns the dual that it ends at.
    """

    loss: ConvexLoss
    search: Any

    def value(self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch) -> Float[np.ndarray, " N"]:
        """Return the loss of each model of a batch."""
        return self.loss.value(occupancy, models)

    def value_and_gradient(
        self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch
    ) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "S A N"]]:
        """Return the loss of each model and the cost table that attains its conjugate."""
        loss, image = self.loss, self.loss.image(occupancy, models)
        dual = self.search.alternate(loss.begin(models), lambda dual: loss.ascend(dual, image, models))
        return loss.value(occupancy, models), np.broadcast_to(loss.cost_of(dual.point, models), occupancy.shape)


class Numerical(ConvexLoss):
    """Any convex function of the occupancy, with the ascent on its conjugate done numerically.

    The method of multipliers: with `y = lambda`, a diagonal `E > 0` and w the maximiser behind `F*(z)`,

        w <- argmin_{w > 0} F(w) - <z, w - y> + 1/2 <w - y, E (w - y)>,    z <- z + E (y - w).

    It ends at `w = y`, `z = dF/dlambda`, whatever E is; here E is a hundred times the row sums of the
    Hessian. The minimum is approached by a few damped Newton steps with the full Hessian, so memory grows with
    the square of the number of state-action pairs.

    >>> import jax.numpy as jnp, prudent as pr
    >>> mdp = pr.MDP(pr.Kernel.dense([[[1.0]]]), cost=[[2.0]], start=0, discount=0.5)
    >>> loss = pr.Numerical(lambda occupancy, mdp: jnp.exp(occupancy * mdp.cost).sum())
    >>> float(loss(pr.occupancy(mdp, [[1.0]]), mdp).round(3))
    54.598

    Args:
        function: `(occupancy [S, A], mdp) -> scalar`, traceable by JAX and convex in the occupancy; or a `UserLoss`.
    """

    function: UserLoss = field(converter=as_loss)

    def __call__(self, occupancy: Float[Array, "S A"], mdp: MDP) -> Any:
        return self.function(occupancy, mdp)

    def value(self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch) -> Float[np.ndarray, " N"]:
        """Return the loss of each model of a batch."""
        return self.function.value(occupancy, models)

    def value_and_gradient(
        self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch
    ) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "S A N"]]:
        """Return the loss of each model of a batch and its derivative by the occupancy."""
        return self.function.value_and_gradient(occupancy, models)

    def image(self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch) -> Float[np.ndarray, "S A N"]:
        """The occupancy itself."""
        return occupancy

    def begin(self, models: ModelBatch) -> Dual:
        """The slope at the uniform occupancy, which is inside the domain of any loss."""
        shape = (*models.cost.shape[:2], models.size)
        uniform = np.full(shape, 1.0 / (shape[0] * shape[1] * (1.0 - models.discount)))
        return Dual(np.asarray(self.function.value_and_gradient(uniform, models)[1]), uniform)

    def ascend(self, dual: Dual, image: Float[np.ndarray, "S A N"], models: ModelBatch) -> Dual:
        """One round of the method of multipliers."""
        from .multipliers import step_of_multipliers  # imports JAX

        def words(error: Exception) -> str:
            return (
                "the ascent of a loss's conjugate needs second derivatives of the function, which JAX could not take "
                f"({type(error).__name__}); write the function with jax.numpy, or do without the conjugate: leave "
                "gradient=Variational() out"
            )

        with explained(words):
            return Dual(*step_of_multipliers(self.function, dual, image, models))

    def cost_of(self, point: Float[np.ndarray, "S A N"], models: ModelBatch) -> Float[np.ndarray, "S A N"]:
        """Z itself."""
        return point
