"""Linear systems at the seam: the loss is a function of the occupancy that a gain has under A and B."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from ..arrays import Array, in_float64, require_finite, require_kind
from ..autodiff import jax, jitted, jnp
from ..conformance import explained
from ..errors import InputError
from ..objectives import Losses, Objective, Plans, Size, Unit, slopes_on
from ..occupancies import Exact, Horizon, Truncated
from ..parameter_sets import ParameterSet
from ..posteriors import Posterior, WeightedDraws, equally_weighted
from ..records import changed, field, tree_map
from .beliefs import CutOff, LinearBelief, MatrixNormal
from .losses import LinearLoss, LinearQuadraticCost, MomentLoss
from .moments import ClosedLoop
from .occupancy import LinearOccupancy
from .plans import LinearPlans, robust_point
from .policies import LinearGain, LinearGaussianPolicy, point_of
from .stability import Stability, annealed, descended, radii, stability_of
from .systems import LinearFamily, LinearSystem, require_definite

# Size of the entries of gains that are drawn at random.
SPREAD = 0.3

# To come to a gain that is stable at all draws: how many with the largest radii are looked at, and how many of the
# largest losses among them are made smaller.
HARDEST, WORST = 128, 10

# A loss said to be convex may be above its chords by this share of their size, for rounding.
CONVEX = 1e-7


class LinearObjective(Objective):
    """`F(lambda^{K, theta}, theta)` over gains K; made by `LinearFamily.objective(...)`.

    Points are `[m, 1 + n]`, the bias in front of the gain. Where `sqrt(discount) * radius(A + B K) >= 1` the loss is
    infinite, and no derivative is asked there: a line search takes such a gain for a step too far.

    >>> import prudent as pr
    >>> family = pr.LinearFamily(state_cost=[[1.0]], action_cost=[[1.0]], noise=[[1.0]], discount=0.9)
    >>> float(pr.loss_at(pr.LinearGaussianPolicy([[0.0]]), family, [[1.2, 1.0]]))
    inf

    Args:
        family: the systems.
        loss: `(occupancy, system) -> number`, convex in the occupancy; expected discounted cost when left out.
        policy: `LinearGain()` when left out.
        occupancy: `Exact()` when left out, or `Truncated(horizon)`.
    """

    family: LinearFamily
    loss: LinearLoss
    parametrisation: LinearGain
    occupancy: Horizon
    biased: bool = field(static=True)
    unit: Float[Array, ""]

    def __init__(self, family: LinearFamily, loss: Any = None, policy: Any = None, occupancy: Any = None):
        require_kind("family", family, LinearFamily, "a LinearFamily")
        self.family = family
        self.loss = LinearQuadraticCost() if loss is None else loss
        if not callable(self.loss):
            raise InputError(f"loss must be a function (occupancy, system) -> number, got {loss!r}")
        self.parametrisation = LinearGain() if policy is None else policy
        require_kind("policy", self.parametrisation, LinearGain, "LinearGain()")
        self.occupancy = Exact() if occupancy is None else occupancy
        require_kind("occupancy", self.occupancy, Exact | Truncated, "Exact() or Truncated(horizon)")
        if isinstance(self.occupancy, Exact) and self.occupancy.solver is not None:
            raise InputError("linear systems have their own equation; Exact() takes no solver for them")
        said = self.parametrisation.bias
        needed = bool(np.any(np.asarray(family.target) != 0) or not isinstance(self.loss, LinearQuadraticCost))
        self.biased = needed if said is None else said
        self.unit = np.ones(())

    @property
    def horizon(self) -> int | None:
        """The last step that counts; None for all."""
        return self.occupancy.horizon

    @property
    def within(self) -> ParameterSet:
        """The set the policy's parameters are kept in."""
        return self.parametrisation.within

    def initial(self) -> Float[np.ndarray, "m d"]:
        """No action."""
        return np.zeros((self.family.actions, self.family.states + self.biased))

    def points(self, parameters: Float[np.ndarray, "K m d"]) -> Float[np.ndarray, "K m x"]:
        """`[bias K]` of each."""
        given = np.asarray(parameters)
        return given if self.biased else np.pad(given, ((0, 0), (0, 0), (1, 0)))

    def pull_back(self, parameters: Any, slopes: Float[np.ndarray, "K m x"]) -> Float[np.ndarray, "K m d"]:
        """The slopes of what is a parameter."""
        return slopes if self.biased else slopes[..., 1:]

    def from_point(self, points: Float[np.ndarray, "*K m x"]) -> Float[np.ndarray, "*K m d"]:
        """The part of points that is a parameter."""
        return points if self.biased else points[..., 1:]

    def losses(self, points: Float[Array, "N m x"], thetas: Array) -> Losses:
        """The loss at every draw, infinite where the closed loop is unstable."""

        def one(point: Array, theta: Array) -> tuple[Array, Array]:
            system = self.family.system(theta)
            occupancy, finite = ClosedLoop.of(system, point, self.horizon).occupancy()
            value = jnp.asarray(self.loss(occupancy, system)) / self.unit
            return jnp.where(finite, value, jnp.inf), occupancy.moments(self.family.states).ravel()

        return Losses(*jax.vmap(one)(points, thetas))

    def metric(self) -> int:
        """`E[x x']` of `x = (1, s)` under the occupancy."""
        return (self.family.states + 1) ** 2

    def natural(self, slopes: Float[np.ndarray, "K m x"], visits: Float[np.ndarray, "K q"]) -> np.ndarray:
        """`Sigma slope E[x x']^-1`: the Fisher information of `N(K x, Sigma)` is `E[x x']` times the inverse of Sigma.

        Sigma is the family's noise of actions, or 1 where that leaves a direction out.
        """
        size, noise = self.family.states + 1, np.asarray(self.family.action_noise)
        kept = slice(None) if self.biased else slice(1, None)
        moments = visits.reshape(-1, size, size)[:, kept, kept]
        sigma = noise if np.linalg.matrix_rank(noise, hermitian=True) == len(noise) else np.eye(len(noise))
        # Where the state never goes there is neither a slope nor a metric.
        return sigma @ slopes[..., kept] @ np.linalg.pinv(moments, hermitian=True)

    def size(self) -> Size:
        """A few matrices of all moments; those of every step for a finite horizon."""
        entries = (1 + self.family.states + self.family.actions) ** 2
        steps = 1 if self.horizon is None else self.horizon + 1
        return Size(8 * 4 * entries * steps, 8 * int(np.prod(self.family.theta_shape)), self.horizon is None)

    def policy(self, point: Float[np.ndarray, "m x"], parameters: Any = None) -> LinearGaussianPolicy:
        """The gain with its bias."""
        return LinearGaussianPolicy(point[:, 1:], point[:, 0])

    def point_from(self, policy: Any) -> Float[np.ndarray, "m x"]:
        """A `LinearGaussianPolicy` or a gain `[m, n]`, checked."""
        return point_of(policy, self.family.states, self.family.actions)

    def check_belief(self, belief: Posterior) -> None:
        """A belief about [A B] must fit, and be bounded where the horizon is not."""
        family, inner = self.family, belief.posterior if isinstance(belief, CutOff) else belief
        if not isinstance(inner, LinearBelief):
            return
        if (inner.states, inner.actions) != (family.states, family.actions):
            raise InputError(
                f"the belief is about {inner.states} states and {inner.actions} actions, the family has "
                f"{family.states} and {family.actions}"
            )
        known = isinstance(inner, MatrixNormal)
        if known != (family.noise is not None) or (known and not np.allclose(inner.noise, np.asarray(family.noise))):
            raise InputError(
                "the family and the belief differ in their noise: a MatrixNormal has that of its family, and a family "
                "without noise goes with a MatrixNormalInverseWishart; family.prior(...) makes the one that fits"
            )
        if belief is inner and self.horizon is None:
            raise InputError(
                f"under a {type(belief).__name__} every gain is unstable with a positive probability, so that the mean "
                "loss and every CVaR are infinite, whatever a sample says; cut it off, as by CutOff(belief, "
                "credible=0.95), or use occupancy=Truncated(horizon)"
            )

    @in_float64
    def check(self, thetas: Float[np.ndarray, "N ..."], parameters: Any = None, differentiable: bool = True) -> None:
        """Theta is [A B] or [A B noise], and the loss one number, convex where it is said to be."""
        family = self.family
        if thetas.shape[1:] != family.theta_shape:
            raise InputError(
                f"a posterior draw has shape {thetas.shape[1:]}, theta of this family {family.theta_shape}; the belief "
                "must be about this family's theta"
            )
        require_finite("a posterior draw of theta", thetas)
        if family.noise is None:
            for theta in thetas[:4]:
                noise = theta[:, family.states + family.actions :]
                require_definite("the noise in a posterior draw of theta", (noise + noise.T) / 2.0)
        system, point = family.at(thetas[0]), np.zeros((family.actions, family.states + 1))
        with explained(lambda why: f"the loss could not be evaluated: {why}; it is called as loss(occupancy, system)"):
            occupancy = jax.eval_shape(lambda: ClosedLoop.of(system, point, self.horizon).occupancy()[0])
            shape = jax.eval_shape(self.loss, occupancy, system)
        if getattr(shape, "shape", None) != () or not jnp.issubdtype(shape.dtype, jnp.floating):
            raise InputError(f"the loss must return one real number, got {shape}; sum or average it")
        if isinstance(self.loss, MomentLoss) and self.loss.rest():
            self._check_convex(system)

    def _check_convex(self, system: LinearSystem) -> None:
        """Refuse a loss that is above a chord between the moments of two random clouds of (s, a)."""
        random, size, loss = np.random.default_rng(0), self.family.states + self.family.actions, self.loss
        mass = 1.0 / (1.0 - float(self.family.discount))

        def cloud() -> LinearOccupancy:
            scale = float(np.exp(random.normal()))
            points = jnp.asarray(scale * random.normal(size=(4 * size, size)) + random.normal(size=size))
            return LinearOccupancy(
                jnp.asarray(mass), mass * points.mean(axis=0), mass * points.T @ points / len(points), None
            )

        for _ in range(8):
            ends = cloud(), cloud()
            middle = tree_map(lambda a, b: (a + b) / 2.0, *ends)
            low, first, second = (float(loss(occupancy, system)) for occupancy in (middle, *ends))
            chord = (first + second) / 2.0
            if low - chord > CONVEX * (abs(first) + abs(second) + 1.0):
                raise InputError(
                    f"the loss is not convex in the occupancy: halfway between two occupancies it is {low:.6g}, above "
                    f"the mean {chord:.6g} of their losses; a plain function is minimised without that promise"
                )

    def random_points(self, random: np.random.Generator, count: int) -> Float[np.ndarray, "K m x"]:
        """Small gains."""
        points = SPREAD * random.normal(size=(max(0, count), self.family.actions, self.family.states + 1))
        points[..., 0] *= self.biased
        return points

    def plans(self) -> Plans | None:
        """For losses that are known to be convex."""
        if not isinstance(self.loss, MomentLoss) or (float(self.unit) != 1.0 and self.loss.rest()):
            return None
        scaled = self.loss if float(self.unit) == 1.0 else self.loss * (1.0 / float(self.unit))
        return LinearPlans(self.family, scaled, self.horizon, self.biased)

    def no_bound(self) -> str:
        """A plain function may not be convex."""
        return "the loss is a plain function that may not be convex in the moments; ConvexMoments(loss) says that it is"

    def in_units(self, thetas: Float[np.ndarray, "N ..."]) -> tuple[Objective, Unit]:
        """Expected costs in units of the least cost at a few draws; another loss as it is."""
        if not isinstance(self.loss, LinearQuadraticCost):
            return self, Unit(0.0, 1.0)
        least = LinearPlans(self.family, self.loss, self.horizon, self.biased).least(
            equally_weighted(thetas), np.zeros((self.family.actions, self.family.states + 1))
        )[0]
        scale = float(np.mean(least)) if least is not None else 0.0
        if not (np.isfinite(scale) and scale > 0):
            return self, Unit(0.0, 1.0)
        return changed(self, unit=np.asarray(scale)), Unit(0.0, scale)

    def finite_point(self, point: np.ndarray, thetas: Float[np.ndarray, "N ..."]) -> np.ndarray | None:
        """A gain that is stable at all draws, by annealing the discount; None where the gain is, or none was found."""
        if self.horizon is not None or np.all(np.sqrt(float(self.family.discount)) * radii(point, thetas) < 1.0):
            return None
        draws, family = equally_weighted(thetas), self.family
        size = family.states + family.actions
        seen = changed(family, weight=np.eye(size), target=np.zeros(size))
        first = min(point, robust_point(seen, draws), key=lambda gain: float(radii(gain, thetas).max()))

        def descend(gain: np.ndarray, discount: float) -> np.ndarray:
            objective = LinearObjective(changed(seen, discount=np.asarray(discount)))
            hard = thetas[np.argsort(-radii(gain, thetas), kind="stable")[:HARDEST]]

            def evaluate(at: np.ndarray) -> tuple[float, np.ndarray]:
                found = slopes_on(objective, at[None], hard, np.zeros(len(hard), int), np.arange(len(hard)))
                worst = np.argsort(-found.losses, kind="stable")[:WORST]
                slope = found.slopes[worst].mean(axis=0)
                slope[:, 0] = 0.0  # stability is the gain's alone
                return float(found.losses[worst].mean()), slope

            return descended(evaluate, gain)

        stable = annealed(first, thetas, float(family.discount), descend)
        return None if stable is None else np.where(np.arange(point.shape[1]) == 0, point, stable)

    def notes(self, belief: Posterior, point: np.ndarray, draws: WeightedDraws) -> Stability:
        """How often the closed loop is unstable."""
        return stability_of(belief, point, draws, float(self.family.discount))

    def infinite(self) -> str:
        """The closed loop is unstable there."""
        return "the closed loop is unstable there" if self.horizon is None else ""

    def parts(self) -> dict[str, Any]:
        """Loss, policy and occupancy."""
        return {"loss": self.loss, "policy": self.parametrisation, "occupancy": self.occupancy}

    @property
    def truncation(self) -> float:
        """Mass that a finite horizon leaves out."""
        return self.occupancy.error_bound(float(self.family.discount))


@in_float64
def linear_occupancy(system: LinearSystem, policy: Any, horizon: int | None = None) -> LinearOccupancy:
    """The occupancy of a policy in a known system, with its moments.

    >>> import prudent as pr
    >>> family = pr.LinearFamily(state_cost=[[1.0]], action_cost=[[1.0]], noise=[[1.0]], discount=0.5)
    >>> pr.linear_occupancy(family.at([[0.5, 1.0]]), [[-0.5]]).second.round(3).tolist()
    [[1.0, -0.5], [-0.5, 0.25]]

    Args:
        system: `family.at(theta)`.
        policy: a `LinearGaussianPolicy`, or a gain `[m, n]`.
        horizon: the last step that counts; all when left out.
    """
    require_kind("system", system, LinearSystem, "a LinearSystem, such as family.at(theta)")
    point = point_of(policy, system.states, system.actions)
    occupancy, finite = _occupancy(system, point, horizon)
    if not bool(finite):
        raise InputError("the closed loop is unstable: sqrt(discount) * radius >= 1, and its moments are infinite")
    return occupancy


@jitted
def _occupancy(system: LinearSystem, point: Array, horizon: int | None) -> tuple[LinearOccupancy, Array]:
    return ClosedLoop.of(system, point, horizon).occupancy()
