"""Optimal policies of batches of models, with bounds: policy iteration with direct solves, and sweeps.

Small models are planned together by policy iteration: one stacked direct solve evaluates every policy that still
changes. Larger ones go by sweeps of the Bellman operator `T v = min_a c + discount P v`: state after state (Gauss and
Seidel), or of all states at once (Jacobi) for dense models and for discounts near 1, where the constant shift matters.
With `d = T v - v`,

    T (v + b) = T v + discount b                for a constant b, so the greedy policy does not change;
    v + b with b = (max d + min d) / (2 (1 - discount)) has the residual (max d - min d) / 2.

So the constant part of the error, the slowest to die out, is removed in closed form at each improvement, and
the residual that is left certifies the values: they are off by at most `residual / (1 - discount)`.

A constant added to all costs changes no policy, but its rounding would drown what does. So planning is for the costs
less their level, which is given back at the end as `level / (1 - discount)`, and what counts as a tie or as an error
is measured by the values of those costs: policies do not change when costs are shifted or scaled.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..errors import InputError
from .chains import DenseChain, PolicyChain, SparseChain
from .completions import futures_of, iterate_policies, whole_rows
from .gauss_seidel import EPSILON, plan_by_sweeps
from .krylov import bicgstab
from .layout import is_dense
from .models import ModelBatch, next_values

# Up to here factorising the full matrix takes milliseconds; the matrices of a batch of direct solves.
LARGEST_DIRECT, SOLVE_BYTES = 400, 32 * 2**20

# Sweeps go state after state where as many as the discount alone would need are not too many.
MOST_SWEEPS = 3_000

# Differences of this share of the terms they are between are rounding.
TIE = 1e-12

# Error of a large model's values when no tolerance is given, as a share of the values' spread.
ACCURACY = 1e-10

# Jacobi sweeps of one policy between two improvements; an improvement costs about as much as A sweeps.
FOLLOWED = 20

# If the sweeps shrink the residual less than this, mixing is slow and a Krylov method takes over.
SLOW = 0.7
KRYLOV_STEPS = 50

# Improvements without a new least residual, after which only plain sweeps are made: those cannot fail.
PATIENCE = 30

# Policy iteration ends after a handful; this many mean that rounding keeps it going.
MOST_IMPROVEMENTS = 100_000


class ModelPlans(NamedTuple):
    """Optimal policies of N models.

    Attributes:
        action: `[S, N]` greedy for the values; of actions that tie within rounding, the first.
        values: `[S, N]` optimal expected discounted cost from each state.
        error: `[N]` how far any state's value may be off; infinite where only the cost from the start is certified.
        low, high: `[N]` between which the least expected discounted cost from the start lies.
        improvements: `[N]` policy improvements made.
    """

    action: Int[np.ndarray, "S N"]
    values: Float[np.ndarray, "S N"]
    error: Float[np.ndarray, " N"]
    low: Float[np.ndarray, " N"]
    high: Float[np.ndarray, " N"]
    improvements: Int[np.ndarray, " N"]


def plan(
    models: ModelBatch,
    cost: Float[np.ndarray, "S A N"] | None = None,
    tolerance: float | None = None,
    guess: Float[np.ndarray, "S n"] | None = None,
    depth: Int[np.ndarray, " S"] | None = None,
    target: Int[np.ndarray, " N"] | None = None,
) -> ModelPlans:
    """Return an optimal policy of each model, by the method that suits the size.

    Of models with unseen shares it is the best policy against the dearest visited state, the tolerance is not looked at
    and the search is begun at the cheapest actions.

    Args:
        models: N models.
        cost: of each pair, in place of the models' own; the last axis may have length 1.
        tolerance: largest error of any state's value, which small models meet anyway. Left out, it is a share of the
            spread of the values.
        guess: values that are nearly right, `[S, 1]` or `[S, N]`, which save improvements.
        depth: the fewest steps in which each state can be reached from a start, -1 where it cannot. Given, only the
            cost from the start has to be within the tolerance, and the models are swept side by side.
        target: the state that the unseen shares of each model lead to, in place of the dearest one.
    """
    cost = models.cost if cost is None else cost
    if models.unseen is not None:
        return _plan_completions(models, cost, target)
    if depth is not None:
        return _plan_from_start(models, cost, tolerance, guess, depth)
    count = len(models.successor)
    size = max(1, SOLVE_BYTES // (8 * count * count)) if count <= LARGEST_DIRECT else 1
    parts: list[ModelPlans] = []
    for begin in range(0, models.size, size):
        block = slice(begin, begin + size)
        paid = cost if cost.shape[2] == 1 else cost[:, :, block]
        if guess is None and parts:  # the models of a batch are alike
            begun: np.ndarray | None = parts[0].values[:, :1]
        else:
            begun = guess if guess is None or guess.shape[1] == 1 else guess[:, block]
        parts.append(_plan_everywhere(models.select(block), paid, tolerance, begun))
    if len(parts) == 1:
        return parts[0]
    return ModelPlans(*(np.concatenate(column, axis=-1) for column in zip(*parts, strict=True)))


def _plan_everywhere(
    models: ModelBatch, cost: np.ndarray, tolerance: float | None, guess: Float[np.ndarray, "S n"] | None
) -> ModelPlans:
    discount = models.discount
    level = level_of(cost)
    less, rest = cost - level, 1.0 - discount
    limits = (0.0, ACCURACY) if tolerance is None else (tolerance, 0.0)
    if len(less) <= LARGEST_DIRECT:
        # Costs far above their spread have lost digits, and so have the ties among them.
        lost = EPSILON * np.abs(level) / rest
        action, values, residual, improvements = policy_iteration(models, less, guess, lost)
    else:
        find = _by_gauss_seidel if _suits_gauss_seidel(models, cost, *limits) else _by_jacobi
        action, values, residual, improvements = find(models, less, guess, *limits)
    error = (residual + rounding(models.probability, values, level, discount)) / rest
    values = values + level / rest
    from_start = np.einsum("s,sn->n", models.start, values)
    allowed = error + len(values) * EPSILON * np.abs(values).max(axis=0)
    return ModelPlans(action, values, error, from_start - allowed, from_start + allowed, improvements)


def _plan_completions(models: ModelBatch, cost: np.ndarray, target: np.ndarray | None) -> ModelPlans:
    """Plan for a target of each model; the operator contracts by the discount, so that its residual is a bound."""
    level, rest = level_of(cost), 1.0 - models.discount
    action, values, residual, improvements = iterate_policies(models, cost - level, target)
    error = (residual + rounding(whole_rows(models), values, level, models.discount)) / rest
    values = values + level / rest
    from_start = np.einsum("s,sn->n", models.start, values)
    allowed = error + len(values) * EPSILON * np.abs(values).max(axis=0)
    return ModelPlans(action, values, error, from_start - allowed, from_start + allowed, improvements)


def _plan_from_start(
    models: ModelBatch,
    cost: np.ndarray,
    tolerance: float | None,
    guess: Float[np.ndarray, "S n"] | None,
    depth: Int[np.ndarray, " S"],
) -> ModelPlans:
    error, share = (tolerance, 0.0) if tolerance is not None else (0.0, ACCURACY)
    found = plan_by_sweeps(models, cost, depth, error, guess, share)
    unknown, made = np.full(models.size, np.inf), np.full(models.size, found.improvements)
    return ModelPlans(found.action, found.values, unknown, found.low, found.high, made)


def level_of(cost: Float[np.ndarray, "S A *N"]) -> Float[np.ndarray, "*N"]:
    """Return the middle one of the states' least costs: a few forbidding costs, or a prize, do not move it."""
    middle = len(cost) // 2
    return np.asarray(np.partition(cost.min(axis=1), middle, axis=0)[middle])


def rounding(
    probability: Float[np.ndarray, "C B N"],
    values: Float[np.ndarray, "S N"],
    level: Float[np.ndarray, " n"],
    discount: float,
) -> Float[np.ndarray, " N"]:
    """Return what rounding may hide of a residual found at values of the costs less their level.

    That of one improvement, whose sums have as many terms as successors; that of giving the level back; and what
    the level's values are off by where rows of the kernel do not sum to 1 exactly.
    """
    whole = np.abs(level) / (1.0 - discount)
    largest = np.abs(values).max(axis=0)
    off = row_error(probability).max(axis=0)
    terms = 2 * (probability.shape[1] + 4)
    return EPSILON * (terms * largest + 4.0 * (1.0 - discount) * (whole + largest)) + discount * off * whole


def row_error(probability: Float[np.ndarray, "C B N"]) -> Float[np.ndarray, "C N"]:
    """Return how far the rows' sums may be off 1, what rounding hides of them counted in."""
    # Along contiguous rows NumPy adds in pairs: no entry goes through more additions than this.
    terms = min(probability.shape[1], 64)
    rows = np.ascontiguousarray(np.moveaxis(probability, -1, 0))
    return np.abs(rows.sum(axis=2).T - 1.0) + EPSILON / 2.0 * terms


def policy_iteration(
    models: ModelBatch,
    cost: Float[np.ndarray, "S A n"],
    guess: Float[np.ndarray, "S k"] | None,
    lost: Float[np.ndarray, " n"],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the first actions that tie, values, residuals and improvements of N models, evaluated by direct solves."""
    states, count, discount, dense = len(cost), models.size, models.discount, is_dense(models.successor)
    own, every = np.arange(states)[:, None], np.broadcast_to(cost, (*cost.shape[:2], models.size))
    quality = cost
    if guess is not None:
        quality = cost + discount * action_futures(models, np.broadcast_to(guess, (states, count)), dense)
    action = np.array(np.broadcast_to(quality.argmin(axis=1), (states, count)))
    lost = np.broadcast_to(lost, count)
    greedy, values = action.copy(), np.zeros((states, count))
    residual, improvements, changing = np.zeros(count), np.zeros(count, int), np.arange(count)
    few = models._replace(cost=cost)
    for improvement in range(MOST_IMPROVEMENTS):
        chosen, costs = action[:, changing], every[:, :, changing]
        chain = _chain_matrices(few, chosen, dense)
        paid = np.take_along_axis(costs, chosen[:, None], axis=1)[:, 0]
        found = np.linalg.solve(np.eye(states) - chain, paid.T[:, :, None])[:, :, 0].T
        costs = costs + discount * action_futures(few, found, dense)
        best = costs.min(axis=1)
        # Only a real gain changes an action: ties decided by rounding could cycle for ever.
        # The solve leaves an error in proportion to the largest value, in states of small values, too.
        tie = TIE * (np.abs(paid) + (chain @ np.abs(found).T[:, :, None])[:, :, 0].T)
        tie += EPSILON * np.abs(found).max(axis=0) / (1.0 - discount)
        change = costs[own, chosen, np.arange(len(changing))] - best > tie
        values[:, changing], residual[changing] = found, np.abs(best - found).max(axis=0)
        greedy[:, changing] = (costs <= (best + tie + lost[changing])[:, None]).argmax(axis=1)
        action[:, changing] = np.where(change, costs.argmin(axis=1), chosen)
        improvements[changing] = improvement
        still = change.any(axis=0)
        if not still.any():
            return greedy, values, residual, improvements
        if not still.all():
            changing = changing[still]
            few = models.select(changing)
    raise InputError(f"policy iteration did not settle in {MOST_IMPROVEMENTS} improvements; check the costs for ties")


def _chain_matrices(models: ModelBatch, action: Int[np.ndarray, "S N"], dense: bool) -> Float[np.ndarray, "N S S"]:
    """Return `discount P_pi` of each model under its own deterministic policy."""
    states, count = action.shape
    own, each = np.arange(states)[:, None], np.arange(count)
    picked = models.discount * models.probability[models.row[own, action], :, each]
    if dense:
        return np.moveaxis(picked, 1, 0)
    matrix, towards = np.zeros((count, states, states)), models.successor[own, action]
    for b in range(picked.shape[2]):
        matrix[each, own, towards[:, :, b]] += picked[:, :, b]
    return matrix


def action_futures(
    models: ModelBatch, values: Float[np.ndarray, "S N"], dense: bool | None = None
) -> Float[np.ndarray, "S A N"]:
    """Return the expected values of the next state of each pair; for dense models by matrix products.

    Unseen shares lead to the dearest visited state.
    """
    if models.unseen is not None:
        return futures_of(models, values)
    if not (is_dense(models.successor) if dense is None else dense):
        return next_values(models, values)
    rows = np.moveaxis(models.probability, -1, 0) @ values.T[:, :, None]
    return np.moveaxis(rows[:, models.row, 0], 0, -1)


def _suits_gauss_seidel(models: ModelBatch, cost: np.ndarray, tolerance: float, share: float) -> bool:
    """Return whether sweeping state after state is sure to end soon."""
    if is_dense(models.successor):
        return False
    rest = 1.0 - models.discount
    widest = float(np.ptp(cost)) / rest
    accuracy = share + (tolerance / widest if widest > 0.0 else 1.0)
    return -np.log(min(accuracy, 0.5)) <= MOST_SWEEPS * rest


def _by_gauss_seidel(
    models: ModelBatch, cost: np.ndarray, guess: np.ndarray | None, tolerance: float, share: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Sweep state after state: a plan of one model, of all states."""
    states = len(cost)
    first = models._replace(start=np.eye(1, states)[0])
    begun = np.zeros((states, 1)) if guess is None else guess
    found = plan_by_sweeps(first, cost, np.zeros(states, np.int32), 2.0 * tolerance, begun, share)
    # The middle of what the residuals leave open.
    middle, half = (found.low + found.high) / 2.0, (found.high - found.low) / 2.0
    values = found.values + (middle - found.values[0])
    return found.action, values, half * (1.0 - models.discount), np.full(1, found.improvements)


def _by_jacobi(
    models: ModelBatch, cost: np.ndarray, guess: np.ndarray | None, tolerance: float, share: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Sweep all states of one model at once: improve, remove the constant error, then evaluate the new policy roughly.

    It ends when no value is off by more than the tolerance, or than this share of the values' spread.
    """
    rest, sweeper = 1.0 - models.discount, Sweeper(models, cost)
    values = np.zeros((len(cost), 1)) if guess is None else np.array(guess)
    half = least = np.inf
    since = 0
    for iteration in range(1, MOST_IMPROVEMENTS + 1):
        better, action = sweeper.improve(values)
        gap = better - values
        middle, half = _middle(gap)
        # The error's constant part, and what is left of the residual without it.
        values, gap = values + middle / rest, gap - middle
        since = 0 if half < 0.9 * least else since + 1
        least = min(least, half)
        settled = since > 0 and half <= 64.0 * EPSILON * np.abs(values).max()
        if settled or half <= rest * (tolerance + share * np.ptp(values)):
            better, action = sweeper.improve(values)
            return action, values, np.abs(better - values).max(axis=0), np.full(1, iteration)
        paid, chain = sweeper.follow(action)
        values = _evaluate_roughly(paid, chain, values + gap, half, rest, since < PATIENCE)
    raise InputError(
        f"planning did not settle in {MOST_IMPROVEMENTS} improvements, with residual {half:.3g} left; "
        "raise the tolerance or lower the discount"
    )


class Sweeper:
    """One model laid out for sweeps of all its states."""

    def __init__(self, models: ModelBatch, cost: Float[np.ndarray, "S A 1"]):
        self.cost, self.discount, self.dense = cost, models.discount, is_dense(models.successor)
        self.successor = np.ascontiguousarray(models.successor)
        self.probability = models.discount * models.probability[models.row, :, 0]

    def improve(self, values: Float[np.ndarray, "S 1"]) -> tuple[Float[np.ndarray, "S 1"], Int[np.ndarray, "S 1"]]:
        """Return `T v` and the first action that attains it."""
        if self.dense:
            quality = self.cost + self.probability @ values
            return quality.min(axis=1), quality.argmin(axis=1)
        from .plan_loops import improve  # Numba is slow to import

        better, action = np.empty(values.shape), np.empty(values.shape, np.int64)
        improve(self.successor, self.probability, self.cost[:, :, 0], values[:, 0], better[:, 0], action[:, 0])
        return better, action

    def follow(self, action: Int[np.ndarray, "S 1"]) -> tuple[Float[np.ndarray, "S 1"], PolicyChain]:
        """Return `c_pi` and `discount P_pi` of one deterministic policy, its rows picked out once."""
        own, action = np.arange(len(action)), action[:, 0]
        paid, weight = self.cost[own, action], self.probability[own, action]
        if self.dense:
            return paid, DenseChain(weight[None])
        return paid, SparseChain(self.successor[own, action], weight[:, :, None])


def _middle(values: np.ndarray) -> tuple[float, float]:
    """Return the centre of the values' range and half its length."""
    most, least = float(values.max()), float(values.min())
    return (most + least) / 2.0, (most - least) / 2.0


def _largest(vectors: Float[np.ndarray, "S N"]) -> Float[np.ndarray, " N"]:
    return np.abs(vectors).max(axis=0)


def _evaluate_roughly(
    paid: np.ndarray, chain: PolicyChain, values: np.ndarray, half: float, rest: float, may_jump: bool
) -> np.ndarray:
    """Return values of a policy by sweeps `v <- c_pi + discount P_pi v`, by a Krylov method where mixing is slow."""
    for _ in range(FOLLOWED - 1):
        values = paid + chain.pull(values)
    swept = paid + chain.pull(values)
    middle, remaining = _middle(swept - values)
    if not (may_jump and remaining > SLOW * half):
        return swept
    right = swept - values - middle
    return values + middle / rest + bicgstab(chain.pull, right, np.full(1, 0.1 * half), KRYLOV_STEPS, _largest)
