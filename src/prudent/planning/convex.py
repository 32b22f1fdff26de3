"""The global optimum of a convex loss over the occupancies of one known model, with a certificate.

The occupancies are a polytope, `lambda >= 0` and `sum_a lambda(s, a) - discount (P^T lambda)(s) = start(s)`, so
"the best policy under the true model" is a convex program. At any of its points, with `z = grad F(lambda)`,

    F(lambda) - gap <= F* <= F(lambda),      gap = <z, lambda> - min_lambda' <z, lambda'>

and the minimum is exact planning with the cost z. Two methods propose occupancies: an interior-point method
(Newton steps on the whole program) where its matrix is affordable, and mirror descent on the policy, which
needs no matrix, for larger models and where Newton's steps stall. Neither is trusted: only the certificate is.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import time
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float

from ..arrays import Array, in_float64, require_kind, require_size
from ..errors import InputError
from ..losses import Loss
from ..losses.calls import check_loss_at
from ..models import MDP
from ..occupancies import Krylov
from ..policies import TabularPolicy
from .chain import Chain, chain_solver, chain_visits
from .exact import planned

# State-action pairs up to which Newton's matrix is built: its solve takes about a second at this size.
LARGEST_NEWTON = 1500

# Mirror-descent steps between two certificates.
MIRROR_STEPS = 50

# How far the barrier is lowered at each Newton step, and how close a step may come to the boundary.
CENTRING, TO_BOUNDARY = 0.1, 0.99

SHORTEST_STEP, ROUNDING = 1e-8, 1e-12


class ConvexStatus(enum.Enum):
    """How `plan_convex` ended; the value says what it means and what to do.

    >>> import prudent as pr
    >>> pr.ConvexStatus.OPTIMAL.ok, pr.ConvexStatus.ITERATION_LIMIT.ok
    (True, False)
    """

    OPTIMAL = "the certified gap is within the tolerance"
    ITERATION_LIMIT = "all iterations were used before the gap fell to the tolerance; raise iterations= or tolerance="
    STALLED = (
        "no step improves the policy and the gap is above the tolerance; check that the loss is smooth and convex "
        "in the occupancy, or raise tolerance="
    )

    @property
    def ok(self) -> bool:
        """Whether the policy is optimal within the tolerance."""
        return self is ConvexStatus.OPTIMAL


class ConvexPlan(eqx.Module):
    """The best policy for a convex loss under one known model, and a proof of how good it is.

    >>> import numpy as np, prudent as pr
    >>> mdp = pr.envs.frozen_lake().at((0.3, 0.02))
    >>> best = pr.plan_convex(mdp, pr.ExpectedCost())
    >>> bool(abs(best.value - mdp.start @ pr.plan(mdp).values) < 1e-6), best.lower_bound <= best.value
    (True, True)

    Attributes:
        policy: its rows are the occupancy's, normalised; uniform where a state is never visited.
        occupancy: `[S, A]` of the policy.
        value: the loss at the occupancy, an upper bound of the optimum.
        lower_bound: of the optimum, by convexity; true at any time, converged or not.
        gap: `value - lower_bound`.
        status: how the search ended; `status.ok` only if the gap is within the tolerance.
        iterations: steps made, Newton's and mirror descent's.
        seconds: wall time.
    """

    policy: TabularPolicy
    occupancy: Float[Array, "S A"]
    value: float
    lower_bound: float
    gap: float
    status: ConvexStatus
    iterations: int
    seconds: float


@in_float64
def plan_convex(mdp: MDP, loss: Loss, *, tolerance: float = 1e-6, iterations: int = 2000) -> ConvexPlan:
    """The global optimum of a convex loss `F(lambda, P)` over the occupancies of one known model.

    Args:
        mdp: the known model.
        loss: `(occupancy, mdp) -> number`, traceable by JAX, convex and differentiable in the occupancy.
        tolerance: the largest gap between the loss and its lower bound, > 0.
        iterations: most steps; small models need a few dozen, models past 1500 state-action pairs more.

    >>> import numpy as np, prudent as pr
    >>> mdp = pr.MDP(pr.Kernel.dense(np.full((2, 2, 2), 0.5)), cost=np.zeros((2, 2)), start=[0.5, 0.5], discount=0.9)
    >>> best = pr.plan_convex(mdp, pr.NegativeEntropy())
    >>> best.status.ok, best.policy.probabilities.round(3).tolist()
    (True, [[0.5, 0.5], [0.5, 0.5]])
    """
    require_kind("mdp", mdp, MDP, "an MDP, such as family.at(theta)")
    if not callable(loss):
        raise InputError(f"loss must be callable as loss(occupancy, mdp), such as ExpectedCost(); got {loss!r}")
    if not isinstance(tolerance, int | float | np.number) or not 0.0 < tolerance < np.inf:
        raise InputError(f"tolerance must be a number > 0, the largest gap to the optimum, got {tolerance!r}")
    iterations = require_size("iterations", iterations)
    clock = time.perf_counter()
    search = Search(mdp, loss, float(tolerance))
    check_loss_at(loss, search.occupancy, mdp)
    return searched(search, iterations, clock)


def searched(search: Search, iterations: int, clock: float) -> ConvexPlan:
    """The search carried on to its end; its loss has been checked."""
    dual = search.certify(search.occupancy)
    methods = [_newton(search, dual)] if search.flow is not None else []
    proposals = itertools.chain(*methods, _mirror(search))
    steps = 0
    while search.gap > search.tolerance and steps < iterations:
        proposal, effort = next(proposals, (None, 0))
        if proposal is None:
            break
        search.certify(proposal)
        steps += effort
    return search.result(steps, iterations, time.perf_counter() - clock)


class Search:
    """The best occupancy found so far and the best lower bound; the two need not belong together."""

    def __init__(self, mdp: MDP, loss: Loss, tolerance: float):
        self.mdp, self.loss, self.tolerance = mdp, loss, tolerance
        self.value, self.lower_bound = np.inf, -np.inf
        self.flow = _flow(mdp) if mdp.cost.size <= LARGEST_NEWTON else None
        self.occupancy = self.of_policy(np.full(mdp.cost.shape, 1.0 / mdp.cost.shape[1]))

    @property
    def gap(self) -> float:
        return self.value - self.lower_bound

    def of_policy(self, policy: np.ndarray) -> np.ndarray:
        """The policy's occupancy."""
        if self.flow is not None:
            # Nothing to compile: a dense solve is instant at this size.
            balance = self.flow.reshape(len(policy), *policy.shape)
            visits = np.linalg.solve((balance * policy).sum(axis=2), np.asarray(self.mdp.start))
        else:
            visits = np.asarray(chain_visits(chain_solver(self.mdp), self.mdp, policy))
        return np.maximum(visits, 0.0)[:, None] * policy

    def slope(self, occupancy: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss and its gradient."""
        value, slope = _value_and_slope(self.loss, occupancy, self.mdp)
        return float(value), np.asarray(slope)

    def certify(self, proposal: np.ndarray) -> np.ndarray:
        """Improve the value and the bound by an occupancy near the proposal; returns the dual values `[S]`."""
        occupancy = self.of_policy(row_policy(proposal))
        value, slope = self.slope(occupancy)
        if not (np.isfinite(value) and np.all(np.isfinite(slope))):
            return np.zeros(len(occupancy))
        discount = float(self.mdp.discount)
        action, dual, residual, _ = planned(dataclasses.replace(self.mdp, cost=slope), 0.01 * self.tolerance)
        # What planning may be off by is taken off the bound, so that it stays one.
        least = float(self.mdp.start @ dual) - residual / (1.0 - discount)
        self.lower_bound = max(self.lower_bound, value - (float((slope * occupancy).sum()) - least))
        first = not np.isfinite(self.value)
        self._offer(occupancy, value)
        if first and self.gap > self.tolerance:
            # A vertex may be the optimum itself: it is, for linear losses, whose slope is the same everywhere.
            vertex = self.of_policy(np.eye(slope.shape[1])[action])
            self._offer(vertex, self.slope(vertex)[0])
        return dual

    def _offer(self, occupancy: np.ndarray, value: float) -> None:
        if value < self.value:
            self.occupancy, self.value = occupancy, value

    def result(self, steps: int, iterations: int, seconds: float) -> ConvexPlan:
        if self.gap <= self.tolerance:
            status = ConvexStatus.OPTIMAL
        else:
            status = ConvexStatus.ITERATION_LIMIT if steps >= iterations else ConvexStatus.STALLED
        # Rounding can put the bound a hair above the value it bounds.
        bound = min(self.lower_bound, self.value)
        policy = TabularPolicy(row_policy(self.occupancy))
        return ConvexPlan(
            policy, self.occupancy, self.value, bound, self.value - bound, status, min(steps, iterations), seconds
        )


def row_policy(occupancy: np.ndarray) -> np.ndarray:
    """Rows of an occupancy, normalised; uniform where a state is never visited."""
    visits = occupancy.sum(axis=1, keepdims=True)
    shares = occupancy / np.where(visits > 0.0, visits, 1.0)
    return np.where(visits > 0.0, shares, 1.0 / occupancy.shape[1])


@eqx.filter_jit
def _value_and_slope(loss: Loss, occupancy: Array, mdp: MDP) -> tuple[Array, Array]:
    return jax.value_and_grad(loss)(occupancy, mdp)


@eqx.filter_jit
def _curvature(loss: Loss, occupancy: Array, mdp: MDP) -> Array:
    # Reverse over reverse: losses with a derivative of their own need not know forward mode.
    return jax.jacrev(jax.grad(loss))(occupancy, mdp)


def _newton(search: Search, dual: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
    """Primal-dual interior point on the pairs that can be visited, its iterates as they come.

    With E the flow constraints, s the slacks and m the barrier:
    `grad F - E^T y - s = 0`, `E lambda = start`, `lambda s = m`.
    """
    mdp, shape = search.mdp, search.mdp.cost.shape
    visited = reachable(mdp)
    assert search.flow is not None
    flow = search.flow[np.ix_(visited, np.repeat(visited, shape[1]))]
    start = np.asarray(mdp.start)[visited]

    def whole(point: np.ndarray) -> np.ndarray:
        table = np.zeros(shape)
        table[visited] = point.reshape(-1, shape[1])
        return table

    def slope_at(point: np.ndarray) -> np.ndarray:
        return search.slope(whole(point))[1][visited].ravel()

    point = search.of_policy(np.full(shape, 1.0 / shape[1]))[visited].ravel()
    slope, dual = slope_at(point), dual[visited]
    barrier = max(search.gap, search.tolerance) / point.size
    slack = np.maximum(slope - flow.T @ dual, barrier / point)

    def residual(point: np.ndarray, slope: np.ndarray, dual: np.ndarray, slack: np.ndarray, barrier: float):
        return np.concatenate([slope - flow.T @ dual - slack, flow @ point - start, point * slack - barrier])

    while True:
        barrier = CENTRING * float(point @ slack) / point.size
        curvature = np.asarray(_curvature(search.loss, whole(point), mdp))[visited][:, :, visited]
        curvature = curvature.reshape(point.size, point.size)
        if not (np.all(np.isfinite(curvature)) and np.all(np.isfinite(slope))):
            return
        # Scaled by sqrt(lambda / s), the block stays well conditioned as pairs reach the boundary.
        scale = np.sqrt(point / slack)
        scaled_flow = flow * scale
        block = scale[:, None] * curvature * scale + np.eye(point.size)
        zeros = np.zeros((len(dual), len(dual)))
        matrix = np.block([[block, -scaled_flow.T], [scaled_flow, zeros]])
        right = np.concatenate([-scale * (slope - flow.T @ dual - barrier / point), start - flow @ point])
        try:
            move = np.linalg.solve(matrix, right)
        except np.linalg.LinAlgError:
            return
        point_move, dual_move = scale * move[: point.size], move[point.size :]
        slack_move = barrier / point - slack - slack / point * point_move
        step = TO_BOUNDARY * min(_reach(point, point_move), _reach(slack, slack_move), 1.0 / TO_BOUNDARY)
        before = np.linalg.norm(residual(point, slope, dual, slack, barrier))
        while step > SHORTEST_STEP:
            trial = point + step * point_move
            slope_there = slope_at(trial)
            moved = (dual + step * dual_move, slack + step * slack_move)
            after = np.linalg.norm(residual(trial, slope_there, *moved, barrier))
            if after <= (1.0 - 0.01 * step) * before:
                break
            step *= 0.5
        else:
            return
        point, slope, (dual, slack) = trial, slope_there, moved
        yield whole(point), 1


def _reach(point: np.ndarray, move: np.ndarray) -> float:
    """How far a positive point can move before an entry is 0."""
    shrinking = move < 0
    return float(np.min(-point[shrinking] / move[shrinking], initial=np.inf))


def reachable(mdp: MDP) -> np.ndarray:
    """`[S]` whether any policy visits the state."""
    leads = np.asarray(mdp.kernel.probability) > 0
    index = mdp.kernel.support.index()
    seen = np.asarray(mdp.start) > 0
    frontier = seen
    while frontier.any():
        found = np.zeros_like(seen)
        found[index[frontier][leads[frontier]]] = True
        frontier = found & ~seen
        seen = seen | frontier
    return seen


def _flow(mdp: MDP) -> np.ndarray:
    """`[S, S A]` what each pair's mass adds to each state's balance."""
    states, actions, _ = mdp.kernel.support.shape
    own = np.repeat(np.eye(states), actions, axis=1)
    return own - float(mdp.discount) * mdp.kernel.table().reshape(states * actions, states).T


def _mirror(search: Search) -> Iterator[tuple[np.ndarray, int]]:
    """Mirror descent, `pi <- pi exp(-step Q)` with the Q of the cost `grad F`, from the best policy so far."""
    shape = search.mdp.cost.shape
    # Off the boundary, from where an exponentiated step could not return.
    policy = 0.99 * row_policy(search.occupancy) + 0.01 / shape[1]
    logits, step = np.log(policy), np.asarray(1.0)
    solver = chain_solver(search.mdp)
    while True:
        logits, step, moved = _mirror_steps(solver, search.loss, search.mdp, logits, step)
        if not np.all(np.isfinite(logits)):
            return
        yield search.of_policy(np.asarray(jnp.exp(logits))), MIRROR_STEPS
        if not moved:
            return


@eqx.filter_jit
def _mirror_steps(solver: Krylov, loss: Loss, mdp: MDP, logits: Array, step: Any) -> tuple[Array, Array, Array]:
    """`MIRROR_STEPS` steps; each longer than the last while the loss falls as foreseen, shorter when it does not."""

    def look(logits: Array) -> tuple[Array, Array, Array, Array]:
        policy = jnp.exp(logits)
        chain = Chain.of(solver, mdp, policy)
        visits = chain.visits()[:, None]
        value, slope = jax.value_and_grad(loss)(visits * policy, mdp)
        return policy, visits, value, chain.quality(slope)

    def advance(_: int | Array, state: tuple) -> tuple:
        logits, here, step, moved = state
        policy, visits, value, quality = here
        trial = jax.nn.log_softmax(logits - step * (quality - quality.min(axis=1, keepdims=True)), axis=1)
        there = look(trial)
        policy_there, visits_there, value_there, quality_there = there
        change = policy_there - policy
        foreseen = (visits * change * quality).sum()
        # Near the optimum the fall drowns in rounding; then the slope at the trial tells whether it went too far.
        turned = (visits_there * change * quality_there).sum()
        even = value_there <= value + ROUNDING * (1.0 + jnp.abs(value))
        accept = (value_there <= value + 0.1 * foreseen) | (even & (turned <= -0.8 * foreseen))
        logits, here = jax.tree.map(lambda new, old: jnp.where(accept, new, old), (trial, there), (logits, here))
        return logits, here, jnp.where(accept, 1.5 * step, 0.5 * step), moved | (accept & (foreseen < 0))

    logits = jnp.asarray(logits)
    state = (logits, look(logits), jnp.asarray(step), jnp.asarray(False))
    logits, _, step, moved = lax.fori_loop(0, MIRROR_STEPS, advance, state)
    return logits, step, moved
