"""Exact planning of one known model for expected discounted cost.

Small models are planned by policy iteration with a direct solve. Larger ones by modified policy iteration in
one compiled loop, on two facts of the Bellman operator `T v = min_a c + discount P v`, with `d = T v - v`:

    T (v + b) = T v + discount b                for a constant b, so the greedy policy does not change;
    v + b with b = (max d + min d) / (2 (1 - discount)) has the residual (max d - min d) / 2.

So the constant part of the error, the slowest to die out, is removed in closed form at each improvement, and
the residual that is left certifies the values: they are off by at most `residual / (1 - discount)`. Where Numba is
installed and the discount is not too near 1, large models are swept state after state, which takes fewer sweeps.

A constant added to all costs changes no policy, but its rounding would drown what does. So planning is for the costs
less their level, which is given back at the end as `level / (1 - discount)`, and what counts as a tie or as an error
is measured by the values of those costs: policies do not change when costs are shifted or scaled.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..arrays import Array, in_float64, require_kind, require_number
from ..deferred import jax, jnp, lax, when_called
from ..errors import InputError
from ..kernels import LONGEST_UNROLLED, Support, sum_terms
from ..models import MDP
from ..occupancies import bicgstab, chains
from ..policies import TabularPolicy
from ..records import Record

# Up to here factorising the full matrix takes milliseconds, and nothing has to be compiled.
LARGEST_DIRECT = 400

# Sweeps of one policy between two improvements; an improvement costs about as much as A sweeps.
SWEEPS = 20

# From here on sweeps go state after state, where as many as the discount alone would need are not too many.
SMALLEST_SWEPT, MOST_SWEEPS = 4_000, 3_000

# If the sweeps shrink the residual less than this, mixing is slow and a Krylov method takes over.
SLOW = 0.7
KRYLOV_STEPS = 50

# Improvements without a new least residual, after which only plain sweeps are made: those cannot fail.
PATIENCE = 30

# Policy iteration ends after a handful; this many mean that rounding keeps it going.
MOST_IMPROVEMENTS = 100_000

EPSILON = float(np.finfo(np.float64).eps)

# Differences of this share of the terms they are between are rounding.
TIE = 1e-12

# Error of a large model's values when no tolerance is given, as a share of the values' spread.
ACCURACY = 1e-10


class Plan(Record):
    """An optimal policy of a known model.

    >>> import prudent as pr
    >>> mdp = pr.MDP(pr.Kernel.dense([[[1.0], [1.0]]]), cost=[[2.0, 1.0]], start=0, discount=0.5)
    >>> pr.plan(mdp).values.tolist()
    [2.0]

    Attributes:
        policy: deterministic, greedy for the values; of actions that tie within rounding, the first.
        values: `[S]` optimal expected discounted cost from each state.
        residual: largest violation of the Bellman equation, rounding counted in; the values are off by at most
            `residual / (1 - discount)`.
        iterations: policy improvements made.
    """

    policy: TabularPolicy
    values: Float[Array, " S"]
    residual: float
    iterations: int


@in_float64
def plan(mdp: MDP, tolerance: float | None = None) -> Plan:
    """Exact planning for expected discounted cost, `V = min_a c + discount P V`.

    Policy iteration with a direct solve for small models, exact to rounding; modified policy iteration on
    successor lists for large ones, which ends when its certificate says so. The policy is that of `a c + b`, too,
    for any `a > 0` and b, as far as the digits of the costs tell.

    Args:
        mdp: the known model.
        tolerance: largest error of any state's value, > 0, in the unit of the costs. Left out, it is 1e-10 times the
            spread of the values, `max V - min V`, whatever the unit. Rounding may leave more for a tolerance far below
            the values or a discount near 1; the plan's `residual` says what was reached.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake()
    >>> truth = lake.at((0.3, 0.02))
    >>> round(float(truth.start @ pr.plan(truth).values), 2)
    32.56
    """
    require_kind("mdp", mdp, MDP, "an MDP, such as family.at(theta)")
    tolerance = require_tolerance(tolerance, "the largest error of the values")
    action, values, residual, iterations = planned(mdp, tolerance)
    support = mdp.kernel.support
    policy = TabularPolicy.deterministic(action, support.actions).named(support.labels)
    return Plan(policy, values, residual, iterations)


def require_tolerance(tolerance: float | None, meaning: str) -> float | None:
    """A tolerance that can be met, or None where it is left to the planner."""
    if tolerance is None:
        return None
    return float(require_number(f"tolerance, {meaning},", tolerance, "(0, inf)"))


def level_of(cost: Float[np.ndarray, "... S A"]) -> Float[np.ndarray, ...]:
    """The middle one of the states' least costs: a few forbidding costs, or a prize, do not move it."""
    middle = cost.shape[-2] // 2
    return np.partition(cost.min(axis=-1), middle, axis=-1)[..., middle]


def planned(mdp: MDP, tolerance: float | None) -> tuple[np.ndarray, np.ndarray, float, int]:
    """Actions `[S]`, values `[S]`, residual and improvements, by the method that suits the size."""
    cost, discount = np.asarray(mdp.cost), float(mdp.discount)
    probability = np.asarray(mdp.kernel.probability)
    level = float(level_of(cost))
    if mdp.kernel.support.states <= LARGEST_DIRECT:
        found = policy_iteration(mdp.kernel.support, probability[None], (cost - level)[None], discount)
        values, quality, iterations = found.values[0], found.quality[0], found.improvements
        best = quality.min(axis=1)
        # Costs far above their spread have lost digits, and so have the ties among them.
        lost = EPSILON * abs(level) / (1.0 - discount)
        action = (quality <= (best + found.near[0] + lost)[:, None]).argmax(axis=1)
        residual = np.abs(best - values).max()
    else:
        limits = (0.0, ACCURACY) if tolerance is None else (tolerance, 0.0)
        successor = mdp.kernel.support.successor
        if successor is not None and _suits(cost, discount, *limits):
            from .in_order import state_after_state

            found = state_after_state(np.asarray(successor), probability, cost - level, discount, *limits)
        else:
            found = jax.device_get(_by_sweeps(successor, mdp.kernel.probability, cost - level, mdp.discount, *limits))
        action, values, residual, iterations = map(np.asarray, found)
        if iterations >= MOST_IMPROVEMENTS:
            raise InputError(
                f"planning did not settle in {MOST_IMPROVEMENTS} improvements, with residual {residual:.3g} left; "
                "raise the tolerance or lower the discount"
            )
    error = rounding(probability, values, np.asarray(level), discount)
    return action, values + level / (1.0 - discount), float(residual + error), int(iterations)


def rounding(
    probability: Float[np.ndarray, "... S A B"],
    values: Float[np.ndarray, "... S"],
    level: Float[np.ndarray, ...],
    discount: float,
) -> Float[np.ndarray, ...]:
    """What rounding may hide of a residual found at values of the costs less their level.

    That of one improvement, whose sums have as many terms as successors; that of giving the level back; and what
    the level's values are off by where rows of the kernel do not sum to 1 exactly.
    """
    whole = np.abs(level) / (1.0 - discount)
    largest = np.abs(values).max(axis=-1)
    off = row_error(probability).max(axis=(-1, -2))
    terms = 2 * (probability.shape[-1] + 4)
    return EPSILON * (terms * largest + 4.0 * (1.0 - discount) * (whole + largest)) + discount * off * whole


def row_error(probability: Float[np.ndarray, "... B"]) -> Float[np.ndarray, ...]:
    """How far the rows' sums may be off 1, what rounding hides of them counted in."""
    # Along contiguous rows NumPy adds in pairs: no entry goes through more additions than this.
    terms = min(probability.shape[-1], 64)
    return np.abs(np.ascontiguousarray(probability).sum(axis=-1) - 1.0) + EPSILON / 2.0 * terms


class Iterated(NamedTuple):
    """Where policy iteration ended: the policies, their values and quality, what ties within rounding, and steps."""

    action: Int[np.ndarray, "M S"]
    values: Float[np.ndarray, "M S"]
    quality: Float[np.ndarray, "M S A"]
    near: Float[np.ndarray, "M S"]
    improvements: int


def policy_iteration(
    support: Support,
    probability: Float[np.ndarray, "M S A B"],
    cost: Float[np.ndarray, "M S A"],
    discount: float,
    first: Int[np.ndarray, " S"] | None = None,
) -> Iterated:
    """Policy iteration on M models at once; one stacked direct solve evaluates every policy that still changes."""
    models, states = cost.shape[:2]
    rows = np.arange(states)
    action = cost.argmin(axis=2) if first is None else np.broadcast_to(first, (models, states)).copy()
    (values, near), quality = np.zeros((2, models, states)), np.zeros_like(cost)
    changing = np.arange(models)
    for improvement in range(MOST_IMPROVEMENTS):
        chosen, moves = action[changing], probability[changing]
        chain = discount * _chains(support, moves, chosen)
        paid = cost[changing[:, None], rows, chosen]
        found = np.linalg.solve(np.eye(states) - chain, paid[..., None])[..., 0]
        costs = cost[changing] + discount * onward(support, moves, found)
        # Only a real gain changes an action: ties decided by rounding could cycle for ever.
        # The solve leaves an error in proportion to the largest value, in states of small values, too.
        tie = TIE * (np.abs(paid) + (chain @ np.abs(found)[..., None])[..., 0])
        tie += EPSILON * np.abs(found).max(axis=1, keepdims=True) / (1.0 - discount)
        change = np.take_along_axis(costs, chosen[..., None], axis=2)[..., 0] - costs.min(axis=2) > tie
        values[changing], quality[changing], near[changing] = found, costs, tie
        action[changing] = np.where(change, costs.argmin(axis=2), chosen)
        changing = changing[change.any(axis=1)]
        if not changing.size:
            return Iterated(action, values, quality, near, improvement)
    raise InputError(f"policy iteration did not settle in {MOST_IMPROVEMENTS} improvements; check the costs for ties")


def _chains(support: Support, probability: np.ndarray, action: np.ndarray) -> Float[np.ndarray, "M S S"]:
    """The transition matrix of each model under its own deterministic policy."""
    picked = np.take_along_axis(probability, action[:, :, None, None], axis=2)[:, :, 0]
    return picked if support.is_dense else chains(picked, support.index()[np.arange(action.shape[1]), action])


def onward(
    support: Support, probability: Float[np.ndarray, "M S A B"], values: Float[np.ndarray, "M S"]
) -> Float[np.ndarray, "M S A"]:
    """`(P v)(s, a)` of each model."""
    if support.is_dense:
        rows = probability.reshape(len(probability), -1, support.states)
        return (rows @ values[..., None]).reshape(probability.shape[:3])
    return np.einsum("msab,msab->msa", probability, values[:, support.index()])


def _suits(cost: Float[np.ndarray, "S A"], discount: float, tolerance: float, share: float) -> bool:
    """Whether sweeping state after state is sure to end soon."""
    if len(cost) < SMALLEST_SWEPT or importlib.util.find_spec("numba") is None:
        return False
    widest = float(np.ptp(cost)) / (1.0 - discount)
    accuracy = share + (tolerance / widest if widest > 0.0 else 1.0)
    return -np.log(min(accuracy, 0.5)) <= MOST_SWEEPS * (1.0 - discount)


class SweepKernel(Record):
    """The kernel laid out for sweeps: one long row of states for each action and successor."""

    successor: Int[Array, "A B S"] | None
    probability: Float[Array, "A B S"] | Float[Array, "A S B"]
    cost: Float[Array, "A S"]
    discount: Float[Array, ""]

    @staticmethod
    def of(successor: Array | None, probability: Array, cost: Array, discount: Array) -> SweepKernel:
        along = (1, 0, 2) if successor is None else (1, 2, 0)
        return SweepKernel(
            # Unsigned: JAX would otherwise look for negative indices at every gather.
            None if successor is None else jnp.transpose(successor, along).astype(jnp.uint32),
            jnp.transpose(probability, along),
            jnp.transpose(cost),
            jnp.asarray(discount),
        )

    def quality(self, action: int | Array, values: Float[Array, " S"]) -> Float[Array, " S"]:
        """`c(., a) + discount (P v)(., a)`."""
        probability, successor = self.probability, self.successor
        if successor is None:
            return self.cost[action] + self.discount * (probability[action] @ values)
        onward = sum_terms(
            probability.shape[1], lambda entry: probability[action, entry] * values[successor[action, entry]]
        )
        return self.cost[action] + self.discount * onward

    def improve(self, values: Float[Array, " S"]) -> tuple[Float[Array, " S"], Int[Array, " S"]]:
        """`min_a` of the quality and the first action that attains it."""

        def consider(action: int | Array, best: tuple[Array, Array]) -> tuple[Array, Array]:
            least, chosen = best
            quality = self.quality(action, values)
            better = quality < least
            return jnp.where(better, quality, least), jnp.where(better, action, chosen)

        actions = self.cost.shape[0]
        best = self.quality(0, values), jnp.zeros(values.shape, jnp.int32)
        if self.successor is not None and actions * self.probability.shape[1] <= LONGEST_UNROLLED:
            for action in range(1, actions):
                best = consider(action, best)
            return best
        return lax.fori_loop(1, actions, consider, best)

    def chain(self, action: Int[Array, " S"]) -> tuple[Array, Callable[[Float[Array, " S"]], Float[Array, " S"]]]:
        """`c_pi` and `v -> discount P_pi v` for one deterministic policy, its rows picked out once."""
        if self.successor is None:
            states = jnp.arange(action.size)
            matrix = self.discount * self.probability[action, states]
            return self.cost[action, states], lambda values: matrix @ values
        cost = self._picked(action, self.cost[:, None])[0]
        successor = self._picked(action, self.successor)
        probability = self.discount * self._picked(action, self.probability)

        def move(values: Array) -> Array:
            return sum_terms(successor.shape[0], lambda entry: probability[entry] * values[successor[entry]])

        return cost, move

    def _picked(self, action: Int[Array, " S"], table: Array) -> Array:
        """`[A, B, S]` to `[B, S]`: each state's own action."""
        if table.shape[0] * table.shape[1] > LONGEST_UNROLLED:
            return jnp.take_along_axis(table, action[None, None], axis=0)[0]
        # Reading every action in order is faster than gathering one out of order.
        picked = table[0]
        for number in range(1, table.shape[0]):
            picked = jnp.where(action == number, table[number], picked)
        return picked


def _swept(
    successor: Array | None, probability: Array, cost: Array, discount: Array, tolerance: float, share: float
) -> tuple[Array, Array, Array, Array]:
    """Modified policy iteration: improve, remove the constant error, then sweep the new policy.

    It ends when no value is off by more than the tolerance, or than this share of the values' spread.
    """
    moves = SweepKernel.of(successor, probability, cost, discount)

    def unfinished(state: tuple) -> Array:
        return ~state[1] & (state[2] < MOST_IMPROVEMENTS)

    def improve(state: tuple) -> tuple:
        values, _, iteration, least, since = state
        better, action = moves.improve(values)
        gap = better - values
        middle, half = _middle(gap)
        # The error's constant part, and what is left of the residual without it.
        values, gap = values + middle / (1.0 - discount), gap - middle
        since = jnp.where(half < 0.9 * least, 0, since + 1)
        rounding = (since > 0) & (half <= 64.0 * EPSILON * jnp.abs(values).max())
        target = (1.0 - discount) * (tolerance + share * (values.max() - values.min()))
        done = (half <= target) | rounding
        values = lax.cond(
            done,
            lambda: values,
            lambda: _evaluate(*moves.chain(action), values + gap, half, discount, since < PATIENCE),
        )
        return values, done, iteration + 1, jnp.minimum(least, half), since

    start = jnp.zeros(cost.shape[0])
    values, _, iterations, _, _ = lax.while_loop(
        unfinished, improve, (start, jnp.asarray(False), jnp.asarray(0), jnp.asarray(jnp.inf), jnp.asarray(0))
    )
    better, action = moves.improve(values)
    return action, values, jnp.abs(better - values).max(), iterations


_by_sweeps = when_called(lambda: jax.jit(_swept))


def _middle(values: Array) -> tuple[Array, Array]:
    """The centre of the values' range and half its length."""
    most, least = values.max(), values.min()
    return (most + least) / 2.0, (most - least) / 2.0


def _evaluate(
    cost: Array, move: Callable[[Array], Array], values: Array, half: Array, discount: Array, may_jump: Array
) -> Array:
    """Values of a policy, roughly: sweeps `v <- c_pi + discount P_pi v`, and a Krylov method where mixing is slow."""
    values = lax.fori_loop(0, SWEEPS - 1, lambda _, values: cost + move(values), values)
    swept = cost + move(values)
    middle, remaining = _middle(swept - values)
    return lax.cond(
        may_jump & (remaining > SLOW * half),
        lambda: bicgstab(
            lambda x: x - move(x),
            values + middle / (1.0 - discount),
            swept - values - middle,
            dot=jnp.dot,
            size=lambda residual: jnp.abs(residual).max(),
            limit=0.1 * half,
            sweeps=KRYLOV_STEPS,
        ),
        lambda: swept,
    )
