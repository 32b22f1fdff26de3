"""Exact planning of known models, one or many of one support, for expected discounted cost.

Small models are planned together by policy iteration: one stacked direct solve evaluates every policy that still
changes. Larger ones one by one, by modified policy iteration, on two facts of the Bellman operator
`T v = min_a c + discount P v`, with `d = T v - v`:

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
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..arrays import Array, in_float64, require_kind, require_number
from ..deferred import jax
from ..errors import InputError
from ..kernels import Support
from ..models import MDP
from ..occupancies import chains
from ..policies import TabularPolicy
from ..records import Record
from .at_once import MOST_IMPROVEMENTS, by_sweeps
from .in_order import EPSILON, Moves, plan_draws

# Up to here factorising the full matrix takes milliseconds; the matrices of a batch of direct solves.
LARGEST_DIRECT, SOLVE_BYTES = 400, 32 * 2**20

# From here on sweeps go state after state, where as many as the discount alone would need are not too many.
SMALLEST_SWEPT, MOST_SWEEPS = 4_000, 3_000

# Differences of this share of the terms they are between are rounding.
TIE = 1e-12

# Sweeps of the robust start: it need not be exact, it is where a search begins.
ROBUST_SWEEPS = 200

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
    found, support = planned(mdp, None, tolerance), mdp.kernel.support
    policy = TabularPolicy.deterministic(found.action[0], support.actions).named(support.labels)
    residual = float(found.error[0]) * (1.0 - float(mdp.discount))
    return Plan(policy, found.values[0], residual, int(found.improvements[0]))


def planned(mdp: MDP, cost: np.ndarray | None = None, tolerance: float | None = None) -> BatchPlan:
    """The plan of one model, for these costs instead of its own."""
    cost = np.asarray(mdp.cost if cost is None else cost)
    probability, discount = np.asarray(mdp.kernel.probability), float(mdp.discount)
    return plan_many(mdp.kernel.support, probability[None], cost[None], discount, tolerance=tolerance)


def require_tolerance(tolerance: float | None, meaning: str) -> float | None:
    """A tolerance that can be met, or None where it is left to the planner."""
    if tolerance is None:
        return None
    return float(require_number(f"tolerance, {meaning},", tolerance, "(0, inf)"))


def level_of(cost: Float[np.ndarray, "... S A"]) -> Float[np.ndarray, ...]:
    """The middle one of the states' least costs: a few forbidding costs, or a prize, do not move it."""
    middle = cost.shape[-2] // 2
    return np.partition(cost.min(axis=-1), middle, axis=-1)[..., middle]


class BatchPlan(NamedTuple):
    """Optimal policies of M models: actions, values, how far each model's values may be off, and improvements made."""

    action: Int[np.ndarray, "M S"]
    values: Float[np.ndarray, "M S"]
    error: Float[np.ndarray, " M"]
    improvements: Int[np.ndarray, " M"]


def plan_many(
    support: Support,
    probability: Float[np.ndarray, "M S A B"],
    cost: Float[np.ndarray, "M S A"],
    discount: float,
    first: Int[np.ndarray, " S"] | None = None,
    tolerance: float | None = None,
) -> BatchPlan:
    """An optimal policy of each model, by the method that suits the size.

    `first` is a guess that saves improvements of small models where it is nearly right.
    """
    models, states = cost.shape[:2]
    direct = states <= LARGEST_DIRECT
    limits = (0.0, ACCURACY) if tolerance is None else (tolerance, 0.0)
    size = max(1, SOLVE_BYTES // (8 * states * states)) if direct else 1
    parts = []
    for begin in range(0, models, size):
        moves, costs = probability[begin : begin + size], cost[begin : begin + size]
        level = level_of(costs)
        less = costs - level[:, None, None]
        if direct:
            # Costs far above their spread have lost digits, and so have the ties among them.
            lost = EPSILON * np.abs(level) / (1.0 - discount)
            action, values, residual, improvements = policy_iteration(support, moves, less, discount, first, lost)
        else:
            in_order = _suits(support, costs, discount, *limits)
            found = (_state_after_state if in_order else _all_at_once)(support, moves[0], less[0], discount, *limits)
            action, values, residual, improvements = (np.asarray(part)[None] for part in found)
        error = (residual + rounding(moves, values, level, discount)) / (1.0 - discount)
        parts.append((action, values + level[:, None] / (1.0 - discount), error, improvements))
    return BatchPlan(*(np.concatenate(column) for column in zip(*parts, strict=True)))


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


def policy_iteration(
    support: Support,
    probability: Float[np.ndarray, "M S A B"],
    cost: Float[np.ndarray, "M S A"],
    discount: float,
    first: Int[np.ndarray, " S"] | None,
    lost: Float[np.ndarray, " M"],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Policy iteration on M models at once: the first actions that tie, values, residuals, improvements."""
    models, states = cost.shape[:2]
    rows = np.arange(states)
    action = cost.argmin(axis=2) if first is None else np.broadcast_to(first, (models, states)).copy()
    values, residual, changing = np.zeros((models, states)), np.zeros(models), np.arange(models)
    greedy, improvements = action.copy(), np.zeros(models, int)
    for improvement in range(MOST_IMPROVEMENTS):
        chosen, moves = action[changing], probability[changing]
        chain = discount * _chains(support, moves, chosen)
        paid = cost[changing[:, None], rows, chosen]
        found = np.linalg.solve(np.eye(states) - chain, paid[..., None])[..., 0]
        costs = cost[changing] + discount * onward(support, moves, found)
        best = costs.min(axis=2)
        # Only a real gain changes an action: ties decided by rounding could cycle for ever.
        # The solve leaves an error in proportion to the largest value, in states of small values, too.
        tie = TIE * (np.abs(paid) + (chain @ np.abs(found)[..., None])[..., 0])
        tie += EPSILON * np.abs(found).max(axis=1, keepdims=True) / (1.0 - discount)
        change = np.take_along_axis(costs, chosen[..., None], axis=2)[..., 0] - best > tie
        values[changing], residual[changing] = found, np.abs(best - found).max(axis=1)
        greedy[changing] = (costs <= (best + tie + lost[changing, None])[..., None]).argmax(axis=2)
        action[changing] = np.where(change, costs.argmin(axis=2), chosen)
        improvements[changing] = improvement
        changing = changing[change.any(axis=1)]
        if not changing.size:
            return greedy, values, residual, improvements
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


def _suits(support: Support, cost: Float[np.ndarray, "M S A"], discount: float, tolerance: float, share: float) -> bool:
    """Whether sweeping state after state is sure to end soon."""
    if support.is_dense or support.states < SMALLEST_SWEPT or importlib.util.find_spec("numba") is None:
        return False
    widest = float(np.ptp(cost)) / (1.0 - discount)
    accuracy = share + (tolerance / widest if widest > 0.0 else 1.0)
    return -np.log(min(accuracy, 0.5)) <= MOST_SWEEPS * (1.0 - discount)


def _state_after_state(
    support: Support, probability: np.ndarray, cost: np.ndarray, discount: float, tolerance: float, share: float
) -> tuple[np.ndarray, np.ndarray, float, int]:
    """Each state using at once what was found for those before it: a plan of one draw, of all states."""
    states, actions, outcomes = support.shape
    classes = np.arange(states * actions, dtype=np.int32).reshape(states, actions)
    index = np.ascontiguousarray(support.successor, dtype=np.int32)
    moves = Moves(index, classes, np.ascontiguousarray(probability).reshape(-1, outcomes, 1), discount)
    start, depth = np.eye(1, states)[0], np.zeros(states, np.int32)
    costs, first = np.ascontiguousarray(cost)[:, :, None], np.zeros((states, 1))
    found = plan_draws(moves, costs, start, depth, 2.0 * tolerance, first, share)
    # The middle of what the residuals leave open.
    low, high, values = float(found.low[0]), float(found.high[0]), found.values[:, 0]
    return (
        found.action[:, 0],
        values + ((low + high) / 2.0 - values[0]),
        (high - low) / 2.0 * (1.0 - discount),
        found.improvements,
    )


@in_float64
def _all_at_once(
    support: Support, probability: np.ndarray, cost: np.ndarray, discount: float, tolerance: float, share: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """All states at once, by a compiled loop."""
    found = jax.device_get(by_sweeps(support.successor, probability, cost, discount, tolerance, share))
    if found[3] >= MOST_IMPROVEMENTS:
        raise InputError(
            f"planning did not settle in {MOST_IMPROVEMENTS} improvements, with residual {found[2]:.3g} left; "
            "raise the tolerance or lower the discount"
        )
    return found


def least_costs(
    support: Support,
    probability: Float[np.ndarray, "M S A B"],
    cost: Float[np.ndarray, "M S A"],
    start: Float[np.ndarray, " S"],
    discount: float,
    *,
    horizon: int | None = None,
    first: Int[np.ndarray, " S"] | None = None,
) -> Float[np.ndarray, " M"]:
    """A number at most the least expected discounted cost of any policy, and within rounding of it, for each model.

    With a horizon, costs at `t = 0..horizon` count, and policies may change with time.
    """
    if horizon is None:
        plans = plan_many(support, probability, cost, discount, first)
        return costs_below(plans.values, plans.error, start)
    # Values of the best policy that may change with time, stage by stage from the last, and their rounding.
    values, error = np.zeros(cost.shape[:2]), np.zeros(len(cost))
    for _ in range(horizon + 1):
        later = np.abs(values).max(axis=1)
        values = (cost + discount * onward(support, probability, values)).min(axis=2)
        error = discount * error + EPSILON * (probability.shape[3] + 4) * np.maximum(later, np.abs(values).max(axis=1))
    return costs_below(values, error, start)


def costs_below(
    values: Float[np.ndarray, "M S"], error: Float[np.ndarray, " M"], start: Float[np.ndarray, " S"]
) -> Float[np.ndarray, " M"]:
    """Costs from a start, with rounding or a large model's tolerance taken off, so that a bound stays one."""
    return values @ start - error - start.size * EPSILON * np.abs(values).max(axis=1)


def robust_actions(
    support: Support, probability: Float[np.ndarray, "M S A B"], cost: Float[np.ndarray, "M S A"], discount: float
) -> Int[np.ndarray, " S"]:
    """The best actions if every pair, each time, may follow the worst of these models: `V = min_a max_m c + P V`."""
    values, cost = np.zeros(cost.shape[1]), cost - level_of(cost.max(axis=0))
    quality = cost.max(axis=0)
    for _ in range(ROBUST_SWEEPS):
        everyone = np.broadcast_to(values, cost.shape[:2])
        quality = (cost + discount * onward(support, probability, everyone)).max(axis=0)
        values = quality.min(axis=1)
    return quality.argmin(axis=1)
