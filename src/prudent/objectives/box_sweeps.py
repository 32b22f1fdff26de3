"""Relaxations over boxes of tables, compiled by Numba: one box at a time, all draws of it side by side.

Arrays have the draws last, so that every inner loop is one run over contiguous numbers, and what a box needs stays in
the processor's cache. A box is done when its own policy iteration is; a batch of vector operations waits for the
slowest. The functions let go of Python's lock; threads work on different boxes.

Arguments: `successor` `[S, A, B]`, `probability` `[S, A, B, R]`, `cost` `[S, A, R]`; `place` `[S]` is where a state
stands in the order of elimination, `reach` `[S]` one past the last position that the row or column there touches.
"""

from __future__ import annotations

import numpy as np

from ..loops import compiled


@compiled
def factorise(successor, probability, discount, rows, place, reach, matrix):
    """`I - discount P_rows = L U` of every draw, without pivoting; diagonals of U inverted."""
    states, actions, outcomes, draws = probability.shape
    for s in range(states):
        for j in range(states):
            if s < reach[j] and j < reach[s]:
                for r in range(draws):
                    matrix[s, j, r] = 1.0 if s == j else 0.0
    for s in range(states):
        for a in range(actions):
            for b in range(outcomes):
                entry = matrix[place[s], place[successor[s, a, b]]]
                for r in range(draws):
                    entry[r] -= discount * rows[s, a, r] * probability[s, a, b, r]
    for k in range(states):
        for r in range(draws):
            matrix[k, k, r] = 1.0 / matrix[k, k, r]
        for i in range(k + 1, reach[k]):
            for r in range(draws):
                matrix[i, k, r] *= matrix[k, k, r]
            for j in range(k + 1, reach[k]):
                for r in range(draws):
                    matrix[i, j, r] -= matrix[i, k, r] * matrix[k, j, r]


@compiled
def solve(matrix, reach, right):
    """`L U x = right`, in place and in the order of elimination."""
    states, draws = right.shape
    for k in range(states):
        for i in range(k + 1, reach[k]):
            for r in range(draws):
                right[i, r] -= matrix[i, k, r] * right[k, r]
    for k in range(states - 1, -1, -1):
        for j in range(k + 1, reach[k]):
            for r in range(draws):
                right[k, r] -= matrix[k, j, r] * right[j, r]
        for r in range(draws):
            right[k, r] *= matrix[k, k, r]


@compiled
def visited(matrix, place, reach, start, visits, work):
    """`(L U)^T visits = start`."""
    states, draws = work.shape
    for s in range(states):
        for r in range(draws):
            work[place[s], r] = start[s]
    for k in range(states):
        for r in range(draws):
            work[k, r] *= matrix[k, k, r]
        for j in range(k + 1, reach[k]):
            for r in range(draws):
                work[j, r] -= matrix[k, j, r] * work[k, r]
    for k in range(states - 1, -1, -1):
        for i in range(k + 1, reach[k]):
            for r in range(draws):
                work[k, r] -= matrix[i, k, r] * work[i, r]
    for s in range(states):
        for r in range(draws):
            visits[s, r] = work[place[s], r]


@compiled
def improve(successor, probability, discount, cost, low, high, values, quality, rows, residual, left):
    """`c + discount P v`, the rows of a box that are greedy for it, and `min_s (T v - v)(s)`."""
    states, actions, outcomes, draws = probability.shape
    for r in range(draws):
        residual[r] = np.inf
    for s in range(states):
        over = 1.0
        for a in range(actions):
            over -= low[s, a]
            for r in range(draws):
                quality[s, a, r] = 0.0
            for b in range(outcomes):
                after = values[successor[s, a, b]]
                for r in range(draws):
                    quality[s, a, r] += probability[s, a, b, r] * after[r]
            for r in range(draws):
                quality[s, a, r] = cost[s, a, r] + discount * quality[s, a, r]
        # The cheapest actions are filled up first; of equal ones, the first.
        for a in range(actions):
            for r in range(draws):
                left[r] = over
            for b in range(actions):
                room = high[s, b] - low[s, b]
                if b > a:
                    for r in range(draws):
                        left[r] -= room if quality[s, b, r] < quality[s, a, r] else 0.0
                elif b < a:
                    for r in range(draws):
                        left[r] -= room if quality[s, b, r] <= quality[s, a, r] else 0.0
            least, room = low[s, a], high[s, a] - low[s, a]
            for r in range(draws):
                rows[s, a, r] = least + min(max(left[r], 0.0), room)
        for r in range(draws):
            left[r] = -values[s, r]
        for a in range(actions):
            for r in range(draws):
                left[r] += rows[s, a, r] * quality[s, a, r]
        for r in range(draws):
            residual[r] = min(residual[r], left[r])


@compiled
def iterate(
    successor, probability, discount, cost, place, reach, low, high, tolerance, most,
    values, quality, rows, greedy, residual, matrix, work, left,
):  # fmt: skip
    """Policy iteration from the greedy rows of `values`, until no residual is below `-tolerance`, or `most` times."""
    states, actions, _, draws = probability.shape
    improve(successor, probability, discount, cost, low, high, values, quality, greedy, residual, left)
    for _ in range(most):
        for s in range(states):
            for a in range(actions):
                for r in range(draws):
                    rows[s, a, r] = greedy[s, a, r]
        factorise(successor, probability, discount, rows, place, reach, matrix)
        for s in range(states):
            paid = work[place[s]]
            for r in range(draws):
                paid[r] = 0.0
            for a in range(actions):
                for r in range(draws):
                    paid[r] += rows[s, a, r] * cost[s, a, r]
        solve(matrix, reach, work)
        for s in range(states):
            for r in range(draws):
                values[s, r] = work[place[s], r]
        improve(successor, probability, discount, cost, low, high, values, quality, greedy, residual, left)
        worst = 0.0
        for r in range(draws):
            worst = min(worst, residual[r])
        if worst >= -tolerance:
            break


@compiled
def relax(
    successor, probability, discount, cost, start, place, reach, low, high, tolerance, most,
    values, quality, rows, residual, visits,
):  # fmt: skip
    """Of N boxes: policy iteration from `values` `[N, S, R]`, which is overwritten, and visits of the rows."""
    states, actions, _, draws = probability.shape
    greedy, matrix = np.empty((states, actions, draws)), np.empty((states, states, draws))
    work, left = np.empty((states, draws)), np.empty(draws)
    for n in range(low.shape[0]):
        iterate(
            successor, probability, discount, cost, place, reach, low[n], high[n], tolerance, most,
            values[n], quality[n], rows[n], greedy, residual[n], matrix, work, left,
        )  # fmt: skip
        visited(matrix, place, reach, start, visits[n], work)


@compiled
def meet(
    successor, probability, discount, place, reach, low, high, target, tolerance, most, values, residual,
):  # fmt: skip
    """Of J boxes, each with a state to be met: policy iteration on a cost of 1 there; with `most` 0, only residuals."""
    states, actions, _, draws = probability.shape
    cost, quality = np.zeros((states, actions, draws)), np.empty((states, actions, draws))
    rows, greedy = np.empty((states, actions, draws)), np.empty((states, actions, draws))
    matrix, work, left = np.empty((states, states, draws)), np.empty((states, draws)), np.empty(draws)
    for j in range(low.shape[0]):
        cost[target[j]] = 1.0
        iterate(
            successor, probability, discount, cost, place, reach, low[j], high[j], tolerance, most,
            values[j], quality, rows, greedy, residual[j], matrix, work, left,
        )  # fmt: skip
        cost[target[j]] = 0.0


@compiled
def follow(successor, probability, discount, start, place, reach, tables, visits):
    """Visits `[N, S, R]` of N tables at every draw."""
    states, actions, _, draws = probability.shape
    rows, matrix = np.empty((states, actions, draws)), np.empty((states, states, draws))
    work = np.empty((states, draws))
    for n in range(tables.shape[0]):
        for s in range(states):
            for a in range(actions):
                for r in range(draws):
                    rows[s, a, r] = tables[n, s, a]
        factorise(successor, probability, discount, rows, place, reach, matrix)
        visited(matrix, place, reach, start, visits[n], work)
