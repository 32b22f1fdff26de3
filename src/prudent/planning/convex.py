"""The global optimum of a convex loss over the occupancies of one known model, with a certificate.

The occupancies are a polytope, `lambda >= 0` and `sum_a lambda(s, a) - discount (P^T lambda)(s) = start(s)`, so
"the best policy under the true model" is a convex program. At any of its points, with `z = grad F(lambda)`,

    F(lambda) - gap <= F* <= F(lambda),      gap = <z, lambda> - min_lambda' <z, lambda'>

and the minimum is exact planning with the cost z; the same holds for any average of such cuts. Three methods propose
occupancies; none is trusted, only the certificate is:

- Newton's steps of a primal-dual interior-point method, for smooth losses of models whose matrix is affordable;
- cutting planes for losses with kinks, such as a maximum of linear functions, where Newton's steps stall: the largest
  of all cuts found so far is a model of the loss from below, its minimiser over the occupancies is a linear program,
  whose weights on the cuts are those of the best average of cuts, so they raise the bound, and towards whose minimiser
  new cuts are made; for a loss of finitely many linear pieces this ends at the optimum;
- mirror descent on the policy, which needs no matrix, for any size of model.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import sparse

from ..arrays import Array, require_kind, require_size
from ..engine import action_futures
from ..errors import InputError
from ..losses import ConvexLoss, Loss, UserLoss, check_loss_at, require_finite_loss
from ..models import MDP
from ..policies import TabularPolicy
from ..programs import solve_program
from ..records import Record
from .exact import require_tolerance
from .incumbent import ConvexSearch, Cut, balance, row_policy

# How far the barrier is lowered at each Newton step, how close a step may come to the boundary, and the shortest.
CENTRING, TO_BOUNDARY, SHORTEST_STEP = 0.1, 0.99, 1e-8

# Certificates within which the gap has to halve: of mirror descent, before cutting planes are tried; of cutting planes
# on models large enough that their linear programs take seconds; and of these on small ones.
MIRROR_PATIENCE, LARGE_PATIENCE, SMALL_PATIENCE = 5, 10, 30


class ConvexStatus(enum.Enum):
    """How `plan_convex` ended; the value says what it means and what to do.

    >>> import prudent as pr
    >>> pr.ConvexStatus.OPTIMAL.ok, pr.ConvexStatus.ITERATION_LIMIT.ok
    (True, False)
    """

    OPTIMAL = "the certified gap is within the tolerance"
    ITERATION_LIMIT = "all iterations were used before the gap fell to the tolerance; raise iterations= or tolerance="
    STALLED = (
        "no step improves the policy and the gap is above the tolerance; check that the loss is convex in the "
        "occupancy (and, past 5000 state-action pairs, smooth), or raise tolerance="
    )

    @property
    def ok(self) -> bool:
        """Whether the policy is optimal within the tolerance."""
        return self is ConvexStatus.OPTIMAL


class ConvexPlan(Record):
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
        iterations: steps made, Newton's and mirror descent's, and linear programs solved.
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


def plan_convex(mdp: MDP, loss: Loss, *, tolerance: float | None = None, iterations: int = 2000) -> ConvexPlan:
    """Return the global optimum of a convex loss `F(lambda, P)` over the occupancies of one known model.

    The loss may have kinks; its gradient there is any subgradient. Where it has many, on models of hundreds of pairs or
    more, the gap may stop above the tolerance, and the status says so.

    Args:
        mdp: the known model.
        loss: `(occupancy, mdp) -> number`, convex in the occupancy; a plain function is traced by JAX.
        tolerance: the largest gap between the loss and its lower bound, > 0, in the unit of the loss. Left out, it is
            1e-7 of the loss's spread (that among the uniform policy and the best and worst plans for the gradient
            there), or what rounding leaves of it.
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
    tolerance = require_tolerance(tolerance, "the largest gap to the optimum")
    iterations = require_size("iterations", iterations)
    search = ConvexSearch(mdp, loss, tolerance)
    if isinstance(loss, ConvexLoss | UserLoss):
        _, value, slope = search.slope(search.occupancy)
        require_finite_loss(value, slope, search.occupancy)
    else:
        check_loss_at(loss, search.occupancy, mdp)
    return searched(search, iterations)


def searched(search: ConvexSearch, iterations: int) -> ConvexPlan:
    """The search carried on to its end; its loss has been checked."""
    steps, methods = 0, _methods(search)
    for effort in methods:
        steps += effort
        if search.finished or steps >= iterations:
            break
    if search.finished:
        status = ConvexStatus.OPTIMAL
    else:
        status = ConvexStatus.ITERATION_LIMIT if steps >= iterations else ConvexStatus.STALLED
    # Rounding can put the bound a hair above the value it bounds.
    bound = min(search.lower_bound, search.value)
    return ConvexPlan(
        policy=TabularPolicy(row_policy(search.occupancy)),
        occupancy=search.occupancy,
        value=search.value,
        lower_bound=bound,
        gap=search.value - bound,
        status=status,
        iterations=min(steps, iterations),
        seconds=time.perf_counter() - search.begun,
    )


def _methods(search: ConvexSearch) -> Iterator[int]:
    """Steps that improve the search, method by method, and what each counts for."""
    dual = search.begin()
    yield 0
    small = search.flow is not None
    yield from newton(search, dual) if small else _while_halving(search, mirror(search), MIRROR_PATIENCE)
    if search.mdp.cost.size <= LARGEST_CUTS:
        yield from _while_halving(search, cutting_planes(search), SMALL_PATIENCE if small else LARGE_PATIENCE)
    yield from mirror(search)


def _while_halving(search: ConvexSearch, steps: Iterator[int], patience: int) -> Iterator[int]:
    """The steps, as long as the gap halves within this many of them."""
    gaps = [search.gap]
    for effort in steps:
        yield effort
        gaps.append(search.gap)
        if len(gaps) > patience and not gaps[-1] <= 0.5 * gaps[-1 - patience]:
            return


# Share of an entry by which it is moved for a difference of gradients, and entries that are moved at a time.
MOVED, TOGETHER = 1e-6, 256


def _curvature(search: ConvexSearch, occupancy: np.ndarray, visited: np.ndarray) -> np.ndarray:
    """Return the second derivative by the pairs of visited states, from differences of gradients.

    Each entry is moved by a share of itself, so that rounding is least in what is found from the larger of two.
    """
    pairs = np.flatnonzero(np.repeat(visited, occupancy.shape[1]))
    point, models = occupancy.reshape(-1), search.models
    here = search.slope(occupancy)[2].reshape(-1)[pairs]
    found = np.empty((len(pairs), len(pairs)))
    for begin in range(0, len(pairs), TOGETHER):
        some = pairs[begin : begin + TOGETHER]
        moved = np.repeat(point[:, None], len(some), axis=1)
        moved[some, np.arange(len(some))] *= 1.0 + MOVED
        copies = models._replace(
            probability=np.broadcast_to(models.probability, (*models.probability.shape[:2], len(some)))
        )
        there = search.loss.evaluate(moved.reshape(*occupancy.shape, -1), copies)[2].reshape(len(point), -1)[pairs]
        step = moved[some, np.arange(len(some))] - point[some]
        found[:, begin : begin + len(some)] = (there - here[:, None]) / step
    larger = point[pairs][None, :] >= point[pairs][:, None]
    return np.where(larger, found, found.T)


def newton(search: ConvexSearch, dual: np.ndarray) -> Iterator[int]:
    """Primal-dual interior point on the pairs that can be visited; one step at a time.

    With E the flow constraints, s the slacks and m the barrier:
    `grad F - E^T y - s = 0`, `E lambda = start`, `lambda s = m`.
    """
    mdp, shape = search.mdp, search.mdp.cost.shape
    visited = mdp.kernel.support.reachable(mdp.start, np.asarray(mdp.kernel.probability) > 0)
    assert search.flow is not None
    flow = search.flow[np.ix_(visited, np.repeat(visited, shape[1]))]
    start = np.asarray(mdp.start)[visited]

    def whole(point: np.ndarray) -> np.ndarray:
        table = np.zeros(shape)
        table[visited] = point.reshape(-1, shape[1])
        return table

    def slope_at(point: np.ndarray) -> np.ndarray:
        return search.slope(whole(point))[2][visited].ravel()

    point = search.of_policy(np.full(shape, 1.0 / shape[1]))[visited].ravel()
    slope, dual = slope_at(point), dual[visited]
    assert search.tolerance is not None
    barrier = max(search.gap, search.tolerance) / search.loss.scale / point.size
    slack = np.maximum(slope - flow.T @ dual, barrier / point)

    def residual(point: np.ndarray, slope: np.ndarray, dual: np.ndarray, slack: np.ndarray, barrier: float):
        return np.concatenate([slope - flow.T @ dual - slack, flow @ point - start, point * slack - barrier])

    while True:
        barrier = CENTRING * float(point @ slack) / point.size
        curvature = _curvature(search, whole(point), visited)
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
        step = TO_BOUNDARY * min(_to_boundary(point, point_move), _to_boundary(slack, slack_move), 1.0 / TO_BOUNDARY)
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
        search.certify(whole(point))
        yield 1


def _to_boundary(point: np.ndarray, move: np.ndarray) -> float:
    """How far a positive point can move before an entry is 0."""
    shrinking = move < 0
    return float(np.min(-point[shrinking] / move[shrinking], initial=np.inf))


# State-action pairs up to which the linear programs are solved: one takes some seconds at this size.
LARGEST_CUTS = 5000

# New cuts are made at these shares of the way from the best occupancy to the model's minimiser. The minimiser itself
# ends the search where pieces are few; where they are many it lies far off, and cuts near the best occupancy tell more.
CUT_LENGTHS = (1.0, 0.3, 0.1, 0.03)

# Cuts that are kept whether they bind or not, the newest.
NEWEST = 300

# The linear program's tolerances: it proposes only, but a gap of a millionth needs weights that good.
PRECISION = 1e-9


def cutting_planes(search: ConvexSearch) -> Iterator[int]:
    """One linear program after the other; each raises the bound, and makes cuts where it has its minimum."""
    flow = balance(search.mdp)
    while (solved := _least_cut(search.mdp, flow, search.cuts)) is not None:
        place, weights = solved
        search.support(search.cuts, weights)
        binding = [cut for cut, weight in zip(search.cuts[:-NEWEST], weights, strict=False) if weight > 0.0]
        search.cuts = [*binding, *search.cuts[-NEWEST:]]
        best = search.occupancy
        for length in CUT_LENGTHS:
            search.propose(search.of_policy(row_policy(best + length * (place - best))))
        yield 1


def _least_cut(mdp: MDP, flow: sparse.csr_matrix, cuts: list[Cut]) -> tuple[np.ndarray, np.ndarray] | None:
    """Where the largest cut is least, `[S, A]`, and the weights `[J]` of the cuts there; None if it is not found.

    The program is for `(1 - discount) lambda`, whose entries sum to 1.
    """
    rest, pairs = 1.0 - float(mdp.discount), mdp.cost.size
    slopes = np.stack([cut.slope.ravel() for cut in cuts]) / rest
    result = solve_program(
        np.append(np.zeros(pairs), 1.0),
        A_ub=np.hstack([slopes, -np.ones((len(cuts), 1))]),
        b_ub=-np.array([cut.intercept for cut in cuts]),
        A_eq=sparse.hstack([flow, sparse.csr_matrix((len(mdp.cost), 1))]),
        b_eq=rest * np.asarray(mdp.start),
        bounds=[(0.0, None)] * pairs + [(None, None)],
        method="highs-ipm",
        options={"primal_feasibility_tolerance": PRECISION, "dual_feasibility_tolerance": PRECISION},
    )
    if result is None:
        return None
    weights = np.maximum(-result.ineqlin.marginals, 0.0)
    place = np.maximum(result.x[:-1], 0.0).reshape(mdp.cost.shape) / rest
    return (place, weights / weights.sum()) if weights.sum() > 0.0 else None


# Steps between two certificates.
MIRROR_STEPS = 50


def mirror(search: ConvexSearch) -> Iterator[int]:
    """Mirror descent, `pi <- pi exp(-step Q)` with the Q of the cost `grad F`, from the best policy so far."""
    shape = search.mdp.cost.shape
    # Off the boundary, from where an exponentiated step could not return.
    policy = 0.99 * row_policy(search.occupancy) + 0.01 / shape[1]
    logits, step = np.log(policy), 1.0
    here, moved = PolicyPoint.of(search, logits), True
    while moved and np.all(np.isfinite(logits)):
        moved = False
        for _ in range(MIRROR_STEPS):
            # Each step is longer than the last while the loss falls as predicted, shorter when it does not.
            trial = logits - step * (here.quality - here.quality.min(axis=1, keepdims=True))
            trial -= trial.max(axis=1, keepdims=True)
            trial -= np.log(np.exp(trial).sum(axis=1, keepdims=True))
            there = PolicyPoint.of(search, trial)
            change = there.policy - here.policy
            predicted = float((here.visits * change * here.quality).sum())
            # Near the optimum the fall drowns in rounding; then the slope at the trial tells whether it went too far.
            slope_there = float((there.visits * change * there.quality).sum())
            even = there.value <= here.value + search.noise
            accept = there.value <= here.value + 0.1 * predicted or (even and slope_there <= -0.8 * predicted)
            if accept:
                logits, here, moved = trial, there, moved or predicted < 0
            step *= 1.5 if accept else 0.5
        if not np.all(np.isfinite(logits)):
            return
        search.certify(search.of_policy(np.exp(logits)))
        yield MIRROR_STEPS


class PolicyPoint(NamedTuple):
    """A policy, its visits `[S, 1]` and centred loss, and the Q of the loss's gradient."""

    policy: Float[np.ndarray, "S A"]
    visits: Float[np.ndarray, "S 1"]
    value: float
    quality: Float[np.ndarray, "S A"]

    @staticmethod
    def of(search: ConvexSearch, logits: Float[np.ndarray, "S A"]) -> PolicyPoint:
        """Follow the policy of these logits."""
        policy, models = np.exp(logits), search.models
        factors = search.method.factor(models, policy[:, :, None])
        # An iterative solve may leave states that are hardly visited a rounding below zero.
        visits = np.maximum(factors.state_visits(), 0.0)
        value, _, slope = search.slope(visits * policy)
        onward = action_futures(models, factors.policy_values(slope[:, :, None]))[:, :, 0]
        return PolicyPoint(policy, visits, value, slope + models.discount * onward)
