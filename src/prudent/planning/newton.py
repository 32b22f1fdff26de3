"""Newton's steps for a smooth convex loss over the occupancies of one model: a primal-dual interior-point method."""

from __future__ import annotations

from collections.abc import Iterator

import equinox as eqx
import jax
import numpy as np

from ..arrays import Array
from ..models import MDP
from .search import Centred, Search

# How far the barrier is lowered at each step, and how close a step may come to the boundary.
CENTRING, TO_BOUNDARY = 0.1, 0.99

SHORTEST_STEP = 1e-8


@eqx.filter_jit
def _curvature(loss: Centred, occupancy: Array, mdp: MDP) -> Array:
    # Reverse over reverse: losses with a derivative of their own need not know forward mode.
    return jax.jacrev(jax.grad(lambda point: loss(point, mdp)[0]))(occupancy)


def newton(search: Search, dual: np.ndarray) -> Iterator[int]:
    """Primal-dual interior point on the pairs that can be visited; one step at a time.

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
    assert search.tolerance is not None
    barrier = max(search.gap, search.tolerance) / float(search.loss.scale) / point.size
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
        search.certify(whole(point))
        yield 1


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
