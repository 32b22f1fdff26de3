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
def pay(cost, place, reach, rows, values, matrix, work):
    """Values of rows whose chains are factorised."""
    states, actions, draws = cost.shape
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


@compiled
def iterate(
    successor, probability, discount, cost, place, reach, low, high, tolerance, most,
    rows, values, quality, greedy, residual, matrix, work, left,
):  # fmt: skip
    """Policy iteration from `rows` until no residual is below `-tolerance`, or `most` times; values are of the rows."""
    states, actions, draws = rows.shape
    for turn in range(most):
        if turn > 0:
            for s in range(states):
                for a in range(actions):
                    for r in range(draws):
                        rows[s, a, r] = greedy[s, a, r]
        factorise(successor, probability, discount, rows, place, reach, matrix)
        pay(cost, place, reach, rows, values, matrix, work)
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
        improve(
            successor, probability, discount, cost, low[n], high[n], values[n], quality[n], rows[n], residual[n], left
        )
        iterate(
            successor, probability, discount, cost, place, reach, low[n], high[n], tolerance, most,
            rows[n], values[n], quality[n], greedy, residual[n], matrix, work, left,
        )  # fmt: skip
        visited(matrix, place, reach, start, visits[n], work)


@compiled
def dearest(cost, low, high):
    """The most that a row between bounds can cost."""
    actions = cost.shape[0]
    over, total = 1.0, 0.0
    for a in range(actions):
        over -= low[a]
        total += low[a] * cost[a]
    for a in range(actions):
        left = over
        for b in range(actions):
            if cost[b] > cost[a] or (cost[b] == cost[a] and b < a):
                left -= high[b] - low[b]
        total += min(max(left, 0.0), high[a] - low[a]) * cost[a]
    return total


@compiled
def charge(
    successor, probability, discount, cost, place, reach, low, high, values, state, sets, slack, tolerance, most, paid,
):  # fmt: skip
    """Of one box with `values` `[S, R]`: tolls `[K, R]`, and residuals `[R]` of what is paid, `[S, R]`.

    The toll of a state is the most that a row there costs above the values. A table pays the tolls of the states in a
    draw's set, a bit for each of the K states; nothing at the others of these; elsewhere what its row costs above the
    values. `paid` is found by at `most` so many improvements, begun at the draws' own rows. `slack` `[R]` is what
    rounding may hide above the values.
    """
    states, actions, _, draws = probability.shape
    tolls, residual = np.empty((state.size, draws)), np.empty(draws)
    above, quality = np.empty((states, actions, draws)), np.empty((states, actions, draws))
    rows, greedy = np.empty((states, actions, draws)), np.empty((states, actions, draws))
    matrix, work, left = np.empty((states, states, draws)), np.empty((states, draws)), np.empty(draws)
    improve(successor, probability, discount, cost, low, high, values, above, rows, residual, left)
    for r in range(draws):
        left[r] = min(residual[r], 0.0) - slack[r]
    for s in range(states):
        for a in range(actions):
            for r in range(draws):
                above[s, a, r] -= values[s, r] + left[r]
    for k in range(state.size):
        s = state[k]
        for r in range(draws):
            tolls[k, r] = dearest(above[s, :, r], low[s], high[s]) + slack[r]
            for a in range(actions):
                above[s, a, r] = tolls[k, r] if sets[r] >> k & 1 else 0.0
    if most == 0:
        improve(successor, probability, discount, above, low, high, paid, quality, greedy, residual, left)
    iterate(
        successor, probability, discount, above, place, reach, low, high, tolerance, most,
        rows, paid, quality, greedy, residual, matrix, work, left,
    )  # fmt: skip
    return tolls, residual


@compiled
def charge_counted(
    successor, probability, discount, cost, place, reach, low, high, values, state, counted, slack, tolerance, most,
    tolls, paid, residual,
):  # fmt: skip
    """`charge` of N boxes for the draws of each that are counted, `[N, R]`, and all sets; nothing else is written."""
    for n in range(low.shape[0]):
        # The draws once for each set, side by side: few and long loops.
        chosen = np.flatnonzero(counted[n])
        draws = np.empty(chosen.size * paid.shape[1], np.int64)
        sets = np.empty(draws.size, np.int64)
        for j in range(draws.size):
            draws[j], sets[j] = chosen[j % chosen.size], j // chosen.size
        some = np.empty((paid.shape[2], draws.size))
        for j in range(draws.size):
            some[:, j] = paid[n, sets[j], :, draws[j]]
        toll, short = charge(
            successor, probability[:, :, :, draws], discount, cost[:, :, draws], place, reach, low[n], high[n],
            values[n][:, draws], state[n], sets + 1, slack[n][draws], tolerance, most, some,
        )  # fmt: skip
        for j in range(draws.size):
            tolls[n, :, draws[j]] = toll[:, j]
            paid[n, sets[j], :, draws[j]] = some[:, j]
            residual[n, sets[j], draws[j]] = short[j]


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
