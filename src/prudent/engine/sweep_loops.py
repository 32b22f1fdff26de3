"""Sweeps over all states for a few draws at a time, compiled by Numba: what large models are solved with.

A sweep goes through the states in order and uses at once what it has just found (Gauss and Seidel), which a batch of
vector operations cannot. All arrays `[S, N]` have the draws last: a successor is looked up once for N of them, and they
lie in one line of the cache. A state that stays where it is with some probability is solved for that, so that traps and
ends take no sweeps of their own. Sweeps let go of Python's lock; threads work on different draws.

Arguments: `index` are the successors `[S, A, E]`, `classes` `[S, A]`, `events` `[C, E, N]` their probabilities. `lanes`
is a tuple of N numbers, of which only the length counts: it is part of the type, so that loops over draws are unrolled.
"""

from __future__ import annotations

import numpy as np

from ..loops import compiled, prefetch

# States whose mass is looked at together: those of a block without any are passed over.
BLOCK = 64

# Successors anywhere in memory are fetched so many states before they are needed.
AHEAD = 4

# Probabilities of actions below this share of a row are lost in its rounding.
NOTHING = 1e-18


@compiled
def push(index, classes, events, lanes, policy, discount, visits, mass, hot, forward, least):
    """Mass of every state that has more than `least` of it is counted as visits and sent on to its successors.

    `visits` solves `M^T mu = start` where no mass is left; at any time `visits + M^-T mass` is the solution.
    """
    states, actions, outcomes = index.shape
    draws, blocks = len(lanes), hot.size
    moved, stay = np.empty(draws), np.empty(draws)
    for b in range(blocks):
        block = b if forward else blocks - 1 - b
        if not hot[block]:
            continue
        hot[block] = False
        first, last = block * BLOCK, min(states, (block + 1) * BLOCK)
        for i in range(last - first):
            s = first + i if forward else last - 1 - i
            if i + AHEAD < last - first:
                for a in range(actions):
                    for e in range(outcomes):
                        prefetch(mass, index[s + AHEAD if forward else s - AHEAD, a, e])
            most = 0.0
            for n in range(draws):
                most = max(most, abs(mass[s, n]))
            if most <= least:
                continue
            for n in range(draws):
                stay[n] = 0.0
            for a in range(actions):
                if policy[s, a] > NOTHING:
                    for e in range(outcomes):
                        if index[s, a, e] == s:
                            for n in range(draws):
                                stay[n] += policy[s, a] * events[classes[s, a], e, n]
            for n in range(draws):
                moved[n] = mass[s, n] / (1.0 - discount * stay[n])
                visits[s, n] += moved[n]
                mass[s, n] = 0.0
                moved[n] *= discount
            for a in range(actions):
                share = policy[s, a]
                if share > NOTHING:
                    for e in range(outcomes):
                        t = index[s, a, e]
                        if t != s:
                            hot[t // BLOCK] = True
                            for n in range(draws):
                                mass[t, n] += share * events[classes[s, a], e, n] * moved[n]


@compiled
def missing(lanes, mass, blocks):
    """The sum of the absolute mass of each draw in these blocks."""
    found = np.zeros(len(lanes))
    for block in blocks:
        for s in range(block * BLOCK, min(len(mass), (block + 1) * BLOCK)):
            for n in range(len(lanes)):
                found[n] += abs(mass[s, n])
    return found


@compiled
def passed(index, classes, events, lanes, policy, discount, sent, after):
    """`after += discount P^T sent`."""
    states, actions, outcomes = index.shape
    for s in range(states):
        if s + AHEAD < states:
            for a in range(actions):
                for e in range(outcomes):
                    prefetch(after, index[s + AHEAD, a, e])
        for a in range(actions):
            if policy[s, a] > NOTHING:
                for e in range(outcomes):
                    for n in range(len(lanes)):
                        share = discount * policy[s, a] * events[classes[s, a], e, n]
                        after[index[s, a, e], n] += share * sent[s, n]


@compiled
def pull(index, classes, events, lanes, policy, discount, paid, values, order, forward):
    """Values of a policy, `v <- c_pi + discount P_pi v`, at the states of `order`; the largest change."""
    actions, outcomes = index.shape[1:]
    draws = len(lanes)
    stay, total = np.empty(draws), np.empty(draws)
    most = 0.0
    for i in range(order.size):
        s = order[i] if forward else order[order.size - 1 - i]
        if i + AHEAD < order.size:
            soon = order[i + AHEAD] if forward else order[order.size - 1 - i - AHEAD]
            for a in range(actions):
                for e in range(outcomes):
                    prefetch(values, index[soon, a, e])
        for n in range(draws):
            stay[n], total[n] = 0.0, 0.0
        for a in range(actions):
            share = policy[s, a]
            if share > NOTHING:
                for e in range(outcomes):
                    t = index[s, a, e]
                    if t != s:
                        for n in range(draws):
                            total[n] += share * events[classes[s, a], e, n] * values[t, n]
                    else:
                        for n in range(draws):
                            stay[n] += share * events[classes[s, a], e, n]
        for n in range(draws):
            value = (paid[s, n] + discount * total[n]) / (1.0 - discount * stay[n])
            most = max(most, abs(value - values[s, n]))
            values[s, n] = value
    return most


@compiled
def slopes(index, classes, events, lanes, discount, visits, values, shares, order, found):
    """Adds `discount sum_n share_n mu_n(s) (P_n v_n)(s, a)`, what an action's future is worth, to `found`."""
    actions, outcomes = index.shape[1:]
    onward = np.empty(len(lanes))
    for s in order:
        for a in range(actions):
            for n in range(len(lanes)):
                onward[n] = 0.0
            for e in range(outcomes):
                for n in range(len(lanes)):
                    onward[n] += events[classes[s, a], e, n] * values[index[s, a, e], n]
            total = 0.0
            for n in range(len(lanes)):
                total += shares[n] * visits[s, n] * onward[n]
            found[s, a] += discount * total


@compiled
def depths(index, start):
    """The fewest steps in which each state can be reached from a start; -1 where it cannot."""
    states, actions, outcomes = index.shape
    depth = np.full(states, -1, np.int32)
    queue = np.empty(states, np.int32)
    head, tail = 0, 0
    for s in range(states):
        if start[s] > 0.0:
            depth[s] = 0
            queue[tail] = s
            tail += 1
    while head < tail:
        s = queue[head]
        head += 1
        for a in range(actions):
            for e in range(outcomes):
                t = index[s, a, e]
                if depth[t] < 0:
                    depth[t] = depth[s] + 1
                    queue[tail] = t
                    tail += 1
    return depth
