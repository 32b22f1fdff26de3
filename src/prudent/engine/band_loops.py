"""Compiled loops over bands and successors; every innermost loop runs over models, which come last."""

from __future__ import annotations

import numpy as np

from ..loops import compiled


@compiled
def subtract_product(target, left, right):
    """Do `target -= left * right` for all models."""
    for n in range(target.size):
        target[n] -= left[n] * right[n]


@compiled
def multiply(target, factor):
    """Do `target *= factor` for all models."""
    for n in range(target.size):
        target[n] *= factor[n]


@compiled
def factor(place, column, row, probability, policy, discount, reach, matrix):
    """Write `L U` of `I - discount P_pi`, with inverse pivots, into blocks of models `[G, S, W, L]` of zeros.

    Args: `place [S]`, `column [S, A, B]` within the band, `row [S, A]`, `probability [C, B, N]`, `policy [S, A, N]`,
    `reach [S]`.
    """
    states, actions, successors = column.shape
    lanes, band, size = matrix.shape[3], matrix.shape[2] // 2, policy.shape[2]
    share = np.empty(lanes)
    for block in range(matrix.shape[0]):
        rows, low = matrix[block], block * lanes
        high = min(size, low + lanes)
        for s in range(states):
            here = rows[place[s]]
            here[band, :] += 1.0
            for a in range(actions):
                for n in range(high - low):
                    share[n] = discount * policy[s, a, low + n]
                for b in range(successors):
                    subtract_product(here[column[s, a, b], : high - low], share, probability[row[s, a], b, low:high])
        for k in range(states):
            pivot = rows[k, band]
            for n in range(lanes):
                pivot[n] = 1.0 / pivot[n]
            for i in range(k + 1, reach[k]):
                multiplier = rows[i, band + k - i]
                multiply(multiplier, pivot)
                for j in range(k + 1, reach[k]):
                    subtract_product(rows[i, band + j - i], multiplier, rows[k, band + j - k])


@compiled
def solve_transposed(matrix, place, reach, right):
    """Replace `right [S, N]` by the solution of `M^T x = right`."""
    states, band, lanes, size = matrix.shape[1], matrix.shape[2] // 2, matrix.shape[3], right.shape[1]
    rest = np.zeros((states, lanes))
    for block in range(matrix.shape[0]):
        rows, low = matrix[block], block * lanes
        high = min(size, low + lanes)
        for s in range(states):
            rest[place[s], : high - low] = right[s, low:high]
        for k in range(states):
            multiply(rest[k], rows[k, band])
            for j in range(k + 1, reach[k]):
                subtract_product(rest[j], rows[k, band + j - k], rest[k])
        for k in range(states - 1, -1, -1):
            for i in range(k + 1, reach[k]):
                subtract_product(rest[k], rows[i, band + k - i], rest[i])
        for s in range(states):
            right[s, low:high] = rest[place[s], : high - low]


@compiled
def solve(matrix, place, reach, right):
    """Replace `right [S, N]` by the solution of `M x = right`."""
    states, band, lanes, size = matrix.shape[1], matrix.shape[2] // 2, matrix.shape[3], right.shape[1]
    rest = np.zeros((states, lanes))
    for block in range(matrix.shape[0]):
        rows, low = matrix[block], block * lanes
        high = min(size, low + lanes)
        for s in range(states):
            rest[place[s], : high - low] = right[s, low:high]
        for k in range(states):
            for i in range(k + 1, reach[k]):
                subtract_product(rest[i], rows[i, band + k - i], rest[k])
        for k in range(states - 1, -1, -1):
            for j in range(k + 1, reach[k]):
                subtract_product(rest[k], rows[k, band + j - k], rest[j])
            multiply(rest[k], rows[k, band])
        for s in range(states):
            right[s, low:high] = rest[place[s], : high - low]


@compiled
def gradient(successor, row, probability, discount, visits, values, slope, found):
    """Write `visits (slope + discount P values)` of each pair into `found [S, A, N]`."""
    states, actions, successors = successor.shape
    size = visits.shape[1]
    onward = np.empty(size)
    for s in range(states):
        for a in range(actions):
            onward[:] = 0.0
            for b in range(successors):
                chance, value = probability[row[s, a], b], values[successor[s, a, b]]
                for n in range(size):
                    onward[n] += chance[n] * value[n]
            for n in range(size):
                found[s, a, n] = visits[s, n] * (slope[s, a, n] + discount * onward[n])


@compiled
def chain(slot, row, probability, policy, discount, found):
    """Add `discount P_pi` of each model to `found [S, W, N]`, along the merged neighbours of each state."""
    states, actions, successors = slot.shape
    size = found.shape[2]
    share = np.empty(size)
    for s in range(states):
        for a in range(actions):
            for n in range(size):
                share[n] = discount * policy[s, a, n]
            for b in range(successors):
                chance, target = probability[row[s, a], b], found[s, slot[s, a, b]]
                for n in range(size):
                    target[n] += share[n] * chance[n]


@compiled
def pull(index, weight, values, found):
    """Write `sum_w weight[s, w] values[index[s, w]]` into `found [S, N]`."""
    states, width = index.shape
    for s in range(states):
        total = found[s]
        total[:] = 0.0
        for w in range(width):
            chance, value = weight[s, w], values[index[s, w]]
            for n in range(total.size):
                total[n] += chance[n] * value[n]


@compiled
def pull_one(index, weight, values, found):
    """Do `pull` for one model: vectors `[S]`."""
    for s in range(index.shape[0]):
        total = 0.0
        for w in range(index.shape[1]):
            total += weight[s, w] * values[index[s, w]]
        found[s] = total


@compiled
def push(index, weight, mass, found):
    """Write what arrives at each state, `sum_{s, w: index[s, w] = t} weight[s, w] mass[s]`, into `found [S, N]`."""
    states, width = index.shape
    found[:] = 0.0
    for s in range(states):
        leaving = mass[s]
        for w in range(width):
            chance, arriving = weight[s, w], found[index[s, w]]
            for n in range(leaving.size):
                arriving[n] += chance[n] * leaving[n]
