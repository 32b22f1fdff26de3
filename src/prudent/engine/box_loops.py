"""Plans within boxes of policies by compiled loops: one box at a time, all models of it side by side.

Arrays have the models last, so that every inner loop is one run over contiguous numbers, and what a box needs stays in
the processor's cache. A box is done when its own policy iteration is; a batch of vector operations waits for the
slowest. The functions let go of Python's lock; threads work on different boxes.
"""

from __future__ import annotations

import numpy as np

from ..loops import compiled
from . import band_loops
from .boxes import BoxModels

# How near to 1 a row's sum is brought before the row is divided by it.
NEAR = 1e-14


@compiled
def factor(chains, rows, matrix):
    """Write `L U` of `I - discount P_rows` of each model into a band `[1, S, W, N]`."""
    matrix[:] = 0.0
    band_loops.factor(
        chains.place, chains.column, chains.row, chains.probability, rows, chains.discount, chains.reach, matrix
    )


@compiled
def find_visits(chains, matrix, visits):
    """Write the solution of `(L U)^T visits = start`."""
    for s in range(chains.start.size):
        visits[s] = chains.start[s]
    band_loops.solve_transposed(matrix, chains.place, chains.reach, visits)


@compiled
def band(chains, draws):
    """Return room for the factors of all models."""
    width = 0
    for s in range(chains.reach.size):
        width = max(width, chains.reach[s] - 1 - s)
    return np.empty((1, chains.reach.size, 2 * width + 1, draws))


@compiled
def improve(chains, cost, low, high, values, quality, rows, residual, left):
    """Write `c + discount P v`, the rows of a box that are greedy for it, and `min_s (T v - v)(s)`."""
    successor, probability, discount = chains.successor, chains.probability, chains.discount
    (states, actions, outcomes), draws = successor.shape, probability.shape[2]
    residual[:] = np.inf
    for s in range(states):
        over = 1.0
        for a in range(actions):
            over -= low[s, a]
            quality[s, a] = 0.0
            for b in range(outcomes):
                chance, after = probability[chains.row[s, a], b], values[successor[s, a, b]]
                for r in range(draws):
                    quality[s, a, r] += chance[r] * after[r]
            for r in range(draws):
                quality[s, a, r] = cost[s, a, r] + discount * quality[s, a, r]
        # The cheapest actions are filled up first; of equal ones, the first.
        for a in range(actions):
            left[:] = over
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
def evaluate(chains, cost, rows, values, matrix):
    """Write the values of rows whose chains are factorised."""
    states, actions, draws = cost.shape
    for s in range(states):
        values[s] = 0.0
        for a in range(actions):
            for r in range(draws):
                values[s, r] += rows[s, a, r] * cost[s, a, r]
    band_loops.solve(matrix, chains.place, chains.reach, values)


@compiled
def iterate(chains, cost, low, high, tolerance, most, rows, values, quality, greedy, residual, matrix, left):
    """Iterate policies from `rows` until no residual is below `-tolerance`, or `most` times; values are of the rows."""
    for turn in range(most):
        if turn > 0:
            rows[:] = greedy
        factor(chains, rows, matrix)
        evaluate(chains, cost, rows, values, matrix)
        improve(chains, cost, low, high, values, quality, greedy, residual, left)
        worst = 0.0
        for each in residual:
            worst = min(worst, each)
        if worst >= -tolerance:
            break


@compiled
def relax(chains, cost, low, high, tolerance, most, values, quality, rows, residual, visits):
    """Iterate policies of M boxes from `values` `[M, S, N]`, which is overwritten; find the visits of the rows.

    `cost` is `[M, S, A, N]`, or `[1, S, A, N]` for all boxes. With `most` 0 the values stay, and no visits are found.
    """
    _, states, actions, draws = cost.shape
    greedy, matrix = np.empty((states, actions, draws)), band(chains, draws)
    left = np.empty(draws)
    for n in range(low.shape[0]):
        own = cost[n % len(cost)]
        improve(chains, own, low[n], high[n], values[n], quality[n], rows[n], residual[n], left)
        if most > 0:
            iterate(
                chains, own, low[n], high[n], tolerance[n % len(cost)], most,
                rows[n], values[n], quality[n], greedy, residual[n], matrix, left,
            )  # fmt: skip
            find_visits(chains, matrix, visits[n])


@compiled
def largest_row_cost(cost, low, high):
    """Return the most that a row between bounds can cost."""
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
def bound_deviation_cost(chains, cost, low, high, values, state, sets, slack, tolerance, most, paid):
    """Return tolls `[K, R]` of one box with `values` `[S, R]`, and residuals `[R]` of what is paid, `[S, R]`.

    The toll of a state is the most that a row there costs above the values. A table pays the tolls of the states in a
    draw's set, a bit for each of the K states; nothing at the others of these; elsewhere what its row costs above the
    values. `paid` is found by at `most` so many improvements, begun at the draws' own rows. `slack` `[R]` is what
    rounding may hide above the values.
    """
    states, actions, draws = cost.shape
    tolls, residual = np.empty((state.size, draws)), np.empty(draws)
    above, quality = np.empty((states, actions, draws)), np.empty((states, actions, draws))
    rows, greedy = np.empty((states, actions, draws)), np.empty((states, actions, draws))
    matrix, left = band(chains, draws), np.empty(draws)
    improve(chains, cost, low, high, values, above, rows, residual, left)
    for r in range(draws):
        left[r] = min(residual[r], 0.0) - slack[r]
    for s in range(states):
        for a in range(actions):
            for r in range(draws):
                above[s, a, r] -= values[s, r] + left[r]
    for k in range(state.size):
        s = state[k]
        for r in range(draws):
            tolls[k, r] = largest_row_cost(above[s, :, r], low[s], high[s]) + slack[r]
            for a in range(actions):
                above[s, a, r] = tolls[k, r] if sets[r] >> k & 1 else 0.0
    if most == 0:
        improve(chains, above, low, high, paid, quality, greedy, residual, left)
    iterate(chains, above, low, high, tolerance, most, rows, paid, quality, greedy, residual, matrix, left)
    return tolls, residual


@compiled
def bound_deviation_costs(
    chains, cost, low, high, values, state, counted, slack, tolerance, most, tolls, paid, residual
):
    """Bound deviation costs of N boxes for the draws of each that are counted, `[N, R]`, and all sets."""
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
        some_chains = BoxModels(
            chains.successor, chains.row, chains.probability[:, :, draws], chains.start, chains.discount,
            chains.column, chains.place, chains.reach,
        )  # fmt: skip
        toll, short = bound_deviation_cost(
            some_chains, cost[:, :, draws], low[n], high[n], values[n][:, draws], state[n], sets + 1, slack[n][draws],
            tolerance, most, some,
        )  # fmt: skip
        for j in range(draws.size):
            tolls[n, :, draws[j]] = toll[:, j]
            paid[n, sets[j], :, draws[j]] = some[:, j]
            residual[n, sets[j], draws[j]] = short[j]


@compiled
def follow(chains, rows, visits):
    """Write visits `[M, S, N]` of rows `[M, S, A, N]` in every model."""
    matrix = band(chains, rows.shape[3])
    for n in range(rows.shape[0]):
        factor(chains, rows[n], matrix)
        find_visits(chains, matrix, visits[n])


@compiled
def project(rows, low, high, steps, found):
    """Write the rows nearest to `rows` `[M, S, A, N]` that sum to 1 between bounds `[M, S, A]`.

    They are shifted by a number and clipped, the number by Newton's steps and halving.
    """
    boxes, states, actions, draws = rows.shape
    for n in range(boxes):
        for s in range(states):
            for r in range(draws):
                below, above = np.inf, -np.inf
                for a in range(actions):
                    below = min(below, low[n, s, a] - rows[n, s, a, r])
                    above = max(above, high[n, s, a] - rows[n, s, a, r])
                shift, total = 0.5 * (below + above), 0.0
                for step in range(steps):
                    if step == steps - 1:  # far from the bounds no number brings the sum nearer; it is 1 or more there
                        shift = above
                    total, free = 0.0, 0
                    for a in range(actions):
                        moved = rows[n, s, a, r] + shift
                        found[n, s, a, r] = min(max(moved, low[n, s, a]), high[n, s, a])
                        total += found[n, s, a, r]
                        free += low[n, s, a] < moved < high[n, s, a]
                    if abs(total - 1.0) <= NEAR:
                        break
                    if total < 1.0:
                        below = shift
                    else:
                        above = shift
                    # The sum is linear between the points at which a row meets a bound.
                    shift = shift + (1.0 - total) / free if free > 0 else above
                    if not below < shift < above:
                        shift = 0.5 * (below + above)
                for a in range(actions):
                    found[n, s, a, r] /= total
