"""Plans of single draws by Riccati equations: where a search over gains may begin, and what no policy can beat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ..arrays import Array, as_float, in_float64, to_numpy
from ..autodiff import jax, jitted, jnp, lax
from ..errors import InputError
from ..objectives import Planned, Plans, Weigh, Weighted, Weights
from ..posteriors import Posterior, WeightedDraws, equally_weighted
from ..records import Record, field
from .beliefs import CutOff
from .losses import LinearQuadraticCost, MomentLoss
from .moments import LOST, ClosedLoop
from .occupancy import LinearOccupancy
from .policies import LinearGaussianPolicy
from .systems import LinearFamily, LinearSystem

# Steps of the search in the space of moments behind the bound of a convex loss, and halvings of each of its lines.
CONVEX_STEPS, LINE_STEPS = 40, 40

# Doublings of a Riccati equation, and the change of its solution, as a share of it, at which they end; it holds if what
# is left of it is at most the last share of its largest term.
DOUBLINGS, SETTLED, SOLVED = 40, 1e-15, 1e-7

# A least cost is known up to this share of it.
ROUNDING = 1e-9

# Rounds of the equation of the robust gain, and the change at which they end.
ROBUST_ROUNDS, ROBUST_SETTLED = 5000, 1e-10


class LinearPlan(Record):
    """The best policy of a known system.

    >>> import prudent as pr
    >>> family = pr.LinearFamily(state_cost=[[1.0]], action_cost=[[1.0]], noise=[[1.0]], discount=0.5)
    >>> round(pr.linear_plan(family, [[0.0, 1.0]]).cost, 6)  # nothing to be done
    1.0

    Attributes:
        policy: bias and gain; of a finite horizon, those of the first step.
        cost: the least expected cost, which no policy is below, whatever it remembers.
    """

    policy: LinearGaussianPolicy
    cost: float


@in_float64
def linear_plan(family: LinearFamily, theta: Any) -> LinearPlan:
    """The best policy at a known theta, by its Riccati equation.

    At `log.least_squares()` it is certainty equivalence, at `belief.mean()` the plan of the posterior mean.

    >>> import prudent as pr
    >>> family = pr.LinearFamily(state_cost=[[1.0]], action_cost=[[1.0]], noise=[[1.0]], discount=0.9)
    >>> pr.linear_plan(family, [[1.1, 0.5]]).policy.gain.round(3).tolist()
    [[-0.872]]
    """
    family.at(theta)
    thetas = np.asarray(as_float(theta))[None]
    found = to_numpy(_regulated(family, (LinearQuadraticCost(),), np.ones((1, 1)), thetas, None))
    if not bool(found.solved[0]):
        raise InputError("no gain stabilises the system at this theta; is there an action that moves what grows?")
    return LinearPlan(_policy(found.point[0]), float(found.least[0]))


@in_float64
def robust_gain(family: LinearFamily, belief: Posterior, samples: int = 1000, seed: int = 0) -> LinearGaussianPolicy:
    """A cautious gain in closed form: the best one if theta were drawn again at every step.

    Its equation has the means of `A' P A`, `A' P B` and `B' P B` over the belief in the place of those at one theta, so
    that directions that are uncertain cost more. Where it has no solution, the discount is lowered until it has one.

    >>> import prudent as pr
    >>> family = pr.LinearFamily(state_cost=[[1.0]], action_cost=[[1.0]], noise=[[1.0]], discount=0.9)
    >>> pr.robust_gain(family, pr.Draws([[[1.1, 0.3]], [[1.1, 0.7]]])).gain.round(3).tolist()
    [[-0.841]]
    """
    draws = belief.as_atoms() or equally_weighted(belief.sample(seed, samples))
    return _policy(robust_point(family, draws))


def robust_point(family: LinearFamily, draws: WeightedDraws) -> Float[np.ndarray, "m x"]:
    """Bias and gain of `robust_gain` on these draws."""
    n, m = family.states, family.actions
    x = n + 1
    whole = np.zeros((len(draws), x, x + m))  # (1, s, a) -> (1, s')
    whole[:, 0, 0], whole[:, 1:, 1:] = 1.0, draws.thetas[:, :, : n + m]
    # The mean of W' P W is linear in P.
    mean = np.einsum("k,kij,kab->jbia", draws.probabilities, whole, whole, optimize=True).reshape((x + m) ** 2, x * x)
    shifted = np.concatenate([-np.asarray(family.target)[:, None], np.eye(n + m)], axis=1)
    cost = shifted.T @ np.asarray(family.weight) @ shifted
    discount = float(family.discount)
    while True:
        value, point = np.zeros((x, x)), np.zeros((m, x))
        for _ in range(ROBUST_ROUNDS):
            form = cost + discount * (mean @ value.ravel()).reshape(x + m, x + m)
            point = -np.linalg.solve(form[x:, x:], form[x:, :x])
            new = form[:x, :x] + form[:x, x:] @ point
            change, value = np.abs(new - value).max(), (new + new.T) / 2.0
            if change <= ROBUST_SETTLED * (1.0 + np.abs(value).max()):
                return point
            if np.abs(value).max() > 1e12 * (1.0 + np.abs(cost).max()):
                break
        discount *= 0.9
        if discount < 1e-3:
            return point


class LinearPlans(Plans):
    """Riccati plans; for losses that are not linear in the occupancy, a convex search over its moments."""

    family: LinearFamily
    loss: MomentLoss
    horizon: int | None = field(static=True)
    biased: bool = field(static=True)

    def planned(self, belief: Posterior, draws: WeightedDraws, most: int, weigh: Weights | None = None) -> Planned:
        """Gains of the posterior mean, of the mean of the draws, cautious in closed form, and of single draws."""
        cost = LinearQuadraticCost()
        centres = [np.tensordot(draws.probabilities, draws.thetas, axes=1)]
        inner = belief.posterior if isinstance(belief, CutOff) else belief
        try:
            known = np.asarray(as_float(inner.mean()))  # pyright: ignore[reportAttributeAccessIssue]
            centres += [known] if known.shape == centres[0].shape else []
        except (AttributeError, InputError):
            pass
        found = self._regulated(cost, np.concatenate([np.stack(centres), draws.thetas]))
        points = [robust_point(self.family, draws), *found.point[found.solved]]
        own = self._regulated(self.loss, draws.thetas) if not self.loss.rest() else None
        least = np.asarray(own.least) if own is not None and np.all(own.solved) else None
        return Planned(self._reached(np.stack(points)), least)

    def least(self, draws: WeightedDraws, point: np.ndarray) -> tuple[Float[np.ndarray, " M"] | None, str]:
        """The Riccati cost of the linear part and the floor of the rest; or what the convex search proves, if more."""
        found = self._regulated(self.loss, draws.thetas)
        low = _least(found)
        if not self.loss.rest():
            return low, ""
        low = low + self.loss.floor()
        if self.horizon is None:
            low = np.maximum(low, np.asarray(convex_bounds(self.family, self.loss, draws.thetas, point)))
        if not np.all(np.isfinite(low)):
            return None, "the loss has no finite lower bound at a posterior draw; ConvexMoments(f, least=) may say one"
        return low, ""

    def weighted(self, others: Sequence[Plans], thetas: Float[np.ndarray, "M ..."]) -> Weigh | None:
        """One Riccati equation for each weighted sum of quadratic costs; None where a loss is another."""
        plans = [self, *others]
        losses = tuple(each.loss for each in plans if isinstance(each, LinearPlans) and not each.loss.rest())
        if len(losses) < len(plans):
            return None

        @in_float64
        def weigh(weights: Float[np.ndarray, "G M"]) -> Weighted:
            found = to_numpy(_regulated(self.family, losses, weights, thetas, self.horizon))
            point = found.point if self.biased else np.where(np.arange(found.point.shape[-1]) == 0, 0.0, found.point)
            return Weighted(point, _least(found))

        return weigh

    @in_float64
    def _regulated(self, loss: MomentLoss, thetas: np.ndarray) -> Regulator:
        return to_numpy(_regulated(self.family, (loss,), np.ones((1, len(thetas))), thetas, self.horizon))

    def _reached(self, points: Float[np.ndarray, "K m x"]) -> Float[np.ndarray, "K m x"]:
        """What the policy class has of them."""
        if not self.biased:
            points = np.concatenate([np.zeros_like(points[..., :1]), points[..., 1:]], axis=-1)
        return points[np.sort(np.unique(points.round(12), axis=0, return_index=True)[1])]


def _least(found: Regulator) -> np.ndarray:
    """Bounds of the least cost, rounding taken off; costs are at least 0, also where an equation has no solution."""
    return np.where(found.solved, found.least - ROUNDING * np.abs(found.least), 0.0)


def _policy(point: np.ndarray) -> LinearGaussianPolicy:
    return LinearGaussianPolicy(point[:, 1:], point[:, 0])


@jitted
def _regulated(
    family: LinearFamily, losses: tuple[MomentLoss, ...], weights: Array, thetas: Array, horizon: int | None
) -> Regulator:
    """Plans of draws for sums of losses under the weights `[G, N]`, of what of them is linear."""

    def one(theta: Array, weight: Array) -> Regulator:
        system = family.system(theta)
        matrix = jnp.stack([w * loss.cost_matrix(system) for w, loss in zip(weight, losses, strict=True)]).sum(axis=0)
        return regulate(system, matrix, horizon)

    return jax.vmap(one)(jnp.asarray(thetas), jnp.asarray(weights).T)


@in_float64
@jitted
def convex_bounds(
    family: LinearFamily, loss: MomentLoss, thetas: Float[Array, "N n q"], point: Array
) -> Float[Array, " N"]:
    """Lower bounds of a convex loss of the moments over all policies, draw by draw; -inf where none was found.

    The moments that policies reach are a convex set, and a linear function of them is least at a Riccati plan. So at
    any moments Z the tangent of F gives `F(Z') >= F(Z) + <F'(Z), Z' - Z>`, whose least over all policies is one Riccati
    equation: a bound. Steps towards that plan, as long as F falls, bring Z closer (Frank and Wolfe).
    """

    def one(theta: Array) -> Array:
        system = family.system(theta)

        def value(moments: Array) -> Array:
            return loss(LinearOccupancy(moments[0, 0], moments[0, 1:], moments[1:, 1:], None), system)

        def moments_of(gain: Array) -> tuple[Array, Array]:
            occupancy, finite = ClosedLoop.of(system, gain).occupancy()
            return occupancy.moments(len(occupancy.first)), finite

        def step(state: tuple, _: Any) -> tuple[tuple, None]:
            here, best = state
            level, slope = jax.value_and_grad(value)(here)
            slope = (slope + slope.T) / 2.0
            found = regulate(system, slope)
            bound = level + found.least - (slope * here).sum()
            sound = found.solved & jnp.isfinite(bound)
            there, finite = moments_of(jnp.where(sound, found.point, 0.0))

            def halve(ends: tuple[Array, Array], _: Any) -> tuple[tuple[Array, Array], None]:
                low, high = ends
                middle = (low + high) / 2.0
                rising = jax.jvp(value, (here + middle * (there - here),), (there - here,))[1] > 0
                return (jnp.where(rising, low, middle), jnp.where(rising, middle, high)), None

            (share, _high), _none = lax.scan(halve, (jnp.zeros(()), jnp.ones(())), None, length=LINE_STEPS)
            moved = jnp.where(sound & finite, here + share * (there - here), here)
            return (moved, jnp.where(sound, jnp.maximum(best, bound), best)), None

        plan = regulate(system, system.cost_matrix())
        (at_point, stable), (at_plan, _) = moments_of(point), moments_of(plan.point)
        first = jnp.where(stable, at_point, at_plan)
        (_, best), _ = lax.scan(step, (first, -jnp.inf * jnp.ones(())), None, length=CONVEX_STEPS)
        return jnp.where(jnp.isfinite(best), best - ROUNDING * jnp.abs(best), -jnp.inf)

    return jax.vmap(one)(jnp.asarray(thetas))


class Regulator(NamedTuple):
    """The best policy of one system.

    Attributes:
        point: `[m, 1 + n]` bias and gain; of a finite horizon, those of the first step.
        least: the expected cost of that policy, which no policy is below, whatever it remembers.
        solved: whether the equation was solved; where it was not there is no least cost to be had.
    """

    point: Float[Array, "m x"]
    least: Float[Array, ""]
    solved: Bool[Array, ""]


def regulate(system: LinearSystem, cost: Float[Array, "y y"], horizon: int | None = None) -> Regulator:
    """The least of `sum_t gamma^t E[y_t' cost y_t]` with `y = (1, s, a)`, over all policies; traced.

    The cost need not be convex: a symmetric solution P of the Riccati equation with positive `R + gamma H' P H` and a
    stable closed loop gives the least cost by completing the square, of all policies whose moments are finite.
    """
    gamma = jnp.asarray(system.discount)
    moved, driven = system.augmented()
    size = len(moved)
    of_states, cross, of_actions = cost[:size, :size], cost[:size, size:], cost[size:, size:]
    noise = system.noise_moments()
    # What the noise of the actions costs by itself, whatever the policy.
    own = (of_actions * system.action_noise).sum()

    def improved(value: Array) -> tuple[Array, Array, Array]:
        """One step of the Riccati recursion: the new value, the policy, and the curvature in the action."""
        curved = of_actions + gamma * driven.T @ value @ driven
        slope = cross.T + gamma * driven.T @ value @ moved
        point = -jnp.linalg.solve(curved, slope)
        new = of_states + gamma * moved.T @ value @ moved + slope.T @ point
        return (new + new.T) / 2.0, point, curved

    if horizon is not None:

        def back(state: tuple, _: Any) -> tuple[tuple, None]:
            value, constant, _ = state
            new, point, _ = improved(value)
            return (new, gamma * (constant + (value * noise).sum()) + own, point), None

        first = (jnp.zeros_like(moved), jnp.zeros_like(gamma), jnp.zeros(driven.T.shape))
        (value, constant, point), _ = lax.scan(back, first, None, length=horizon + 1)
        least = (value * system.start_moments()).sum() + constant
        return Regulator(point, least, jnp.isfinite(least))
    value = _doubled(jnp.sqrt(gamma) * moved, jnp.sqrt(gamma) * driven, of_states, cross, of_actions)
    new, point, curved = improved(value)
    _, stable = ClosedLoop.of(system, point).state_moments()
    residue = jnp.abs(new - value).max() <= SOLVED * (1.0 + jnp.abs(value).max())
    convex = jnp.linalg.eigvalsh((curved + curved.T) / 2.0)[0] > 0
    least = (new * system.start_moments()).sum() + (gamma * (new * noise).sum() + own) / (1.0 - gamma)
    return Regulator(point, least, residue & stable & convex & jnp.isfinite(least))


def _doubled(moved: Array, driven: Array, of_states: Array, cross: Array, of_actions: Array) -> Array:
    """The stabilising solution of a Riccati equation by structure-preserving doubling."""
    eye = jnp.eye(len(moved))
    inverse = jnp.linalg.inv(of_actions)
    loop = moved - driven @ inverse @ cross.T
    reach = driven @ inverse @ driven.T
    value = of_states - cross @ inverse @ cross.T

    def going(state: tuple) -> Array:
        _, _, _, change, count = state
        return (change > SETTLED) & (count < DOUBLINGS)

    def double(state: tuple) -> tuple:
        loop, reach, value, _, count = state
        middle = jnp.linalg.solve(eye + reach @ value, jnp.concatenate([loop, reach], axis=1))
        here, there = middle[:, : len(loop)], middle[:, len(loop) :]
        more = loop.T @ value @ here
        wider = reach + loop @ there @ loop.T
        new = value + (more + more.T) / 2.0
        change = jnp.abs(more).max() / (jnp.abs(new).max() + jnp.finfo(new.dtype).tiny)
        change = jnp.where(jnp.isfinite(change) & (jnp.abs(new).max() < LOST), change, 0.0)
        return loop @ here, (wider + wider.T) / 2.0, new, change, count + 1

    *_, value, _, _ = lax.while_loop(going, double, (loop, reach, value, jnp.ones(()), 0))
    return value
