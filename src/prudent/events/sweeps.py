"""Sweeps over all states for a few draws at a time, compiled by Numba: what large event families are solved with.

A sweep goes through the states in order and uses at once what it has just found (Gauss and Seidel), which a batch of
vector operations cannot. All arrays `[S, N]` have the draws last: a successor is looked up once for N of them, and they
lie in one line of the cache. A state that stays where it is with some probability is solved for that, so that traps and
ends take no sweeps of their own. Sweeps let go of Python's lock; threads work on different draws.

Arguments: `index` are the successors `[S, A, E]`, `classes` `[S, A]`, `events` `[C, E, N]` their probabilities.
"""

from __future__ import annotations

import numpy as np

from ..loops import compiled

# States whose mass is looked at together: those of a block without any are passed over.
BLOCK = 256

# Probabilities of actions below this share of a row are lost in its rounding.
NOTHING = 1e-18


@compiled
def push(index, classes, events, policy, discount, visits, mass, hot, forward, least):
    """Mass of every state that has more than `least` of it is counted as visits and sent on to its successors.

    `visits` solves `M^T mu = start` where no mass is left; at any time `visits + M^-T mass` is the solution.
    """
    states, actions, outcomes = index.shape
    draws = mass.shape[1]
    blocks = hot.size
    for b in range(blocks):
        block = b if forward else blocks - 1 - b
        if not hot[block]:
            continue
        hot[block] = False
        first, last = block * BLOCK, min(states, (block + 1) * BLOCK)
        for i in range(last - first):
            s = first + i if forward else last - 1 - i
            most = 0.0
            for n in range(draws):
                most = max(most, abs(mass[s, n]))
            if most <= least:
                continue
            for n in range(draws):
                stay = 0.0
                for a in range(actions):
                    if policy[s, a] > NOTHING:
                        for e in range(outcomes):
                            if index[s, a, e] == s:
                                stay += policy[s, a] * events[classes[s, a], e, n]
                moved = mass[s, n] / (1.0 - discount * stay)
                visits[s, n] += moved
                mass[s, n] = 0.0
                moved *= discount
                for a in range(actions):
                    if policy[s, a] > NOTHING:
                        share = policy[s, a] * moved
                        for e in range(outcomes):
                            t = index[s, a, e]
                            if t != s:
                                mass[t, n] += share * events[classes[s, a], e, n]
            for a in range(actions):
                if policy[s, a] > NOTHING:
                    for e in range(outcomes):
                        hot[index[s, a, e] // BLOCK] = True


@compiled
def passed(index, classes, events, policy, discount, sent, after):
    """`after += discount P^T sent`."""
    states, actions, outcomes = index.shape
    for s in range(states):
        for a in range(actions):
            if policy[s, a] > NOTHING:
                for e in range(outcomes):
                    for n in range(sent.shape[1]):
                        share = discount * policy[s, a] * events[classes[s, a], e, n]
                        after[index[s, a, e], n] += share * sent[s, n]


@compiled
def pull(index, classes, events, policy, discount, paid, values, order, forward):
    """Values of a policy, `v <- c_pi + discount P_pi v`, at the states of `order`; the range of their changes."""
    actions, outcomes = index.shape[1:]
    draws = values.shape[1]
    low, high = np.inf, -np.inf
    for i in range(order.size):
        s = order[i] if forward else order[order.size - 1 - i]
        for n in range(draws):
            stay, total = 0.0, 0.0
            for a in range(actions):
                if policy[s, a] > NOTHING:
                    onward = 0.0
                    for e in range(outcomes):
                        t = index[s, a, e]
                        if t != s:
                            onward += events[classes[s, a], e, n] * values[t, n]
                        else:
                            stay += policy[s, a] * events[classes[s, a], e, n]
                    total += policy[s, a] * onward
            value = (paid[s, n] + discount * total) / (1.0 - discount * stay)
            change = value - values[s, n]
            low, high = min(low, change), max(high, change)
            values[s, n] = value
    return low, high


@compiled
def slopes(index, classes, events, discount, visits, values, shares, order, found):
    """Adds `discount sum_n share_n mu_n(s) (P_n v_n)(s, a)`, what an action's future is worth, to `found`."""
    actions, outcomes = index.shape[1:]
    draws = values.shape[1]
    for i in range(order.size):
        s = order[i]
        for a in range(actions):
            total = 0.0
            for n in range(draws):
                onward = 0.0
                for e in range(outcomes):
                    onward += events[classes[s, a], e, n] * values[index[s, a, e], n]
                total += shares[n] * visits[s, n] * onward
            found[s, a] += discount * total


@compiled
def improve(index, classes, events, cost, discount, values, action, forward):
    """`v <- min_a c + discount P v`, and the first action that attains it; nothing but this shrinks every error."""
    states, actions, outcomes = index.shape
    draws = values.shape[1]
    by_action, by_draw = cost.shape[1] > 1, cost.shape[2] > 1
    for i in range(states):
        s = i if forward else states - 1 - i
        for n in range(draws):
            best, chosen = np.inf, 0
            for a in range(actions):
                onward = 0.0
                for e in range(outcomes):
                    onward += events[classes[s, a], e, n] * values[index[s, a, e], n]
                quality = cost[s, a if by_action else 0, n if by_draw else 0] + discount * onward
                if quality < best:
                    best, chosen = quality, a
            values[s, n] = best
            action[s, n] = chosen


@compiled
def follow(index, classes, events, cost, discount, values, action, forward):
    """Values of each draw's own actions, one sweep."""
    states, _, outcomes = index.shape
    draws = values.shape[1]
    by_action, by_draw = cost.shape[1] > 1, cost.shape[2] > 1
    for i in range(states):
        s = i if forward else states - 1 - i
        for n in range(draws):
            a = action[s, n]
            stay, onward = 0.0, 0.0
            for e in range(outcomes):
                t = index[s, a, e]
                if t != s:
                    onward += events[classes[s, a], e, n] * values[t, n]
                else:
                    stay += events[classes[s, a], e, n]
            paid = cost[s, a if by_action else 0, n if by_draw else 0]
            values[s, n] = (paid + discount * onward) / (1.0 - discount * stay)


@compiled
def residuals(index, classes, events, cost, discount, values, depth, low, high):
    """The least and the largest `min_a c + discount P v - v` of the states at each depth, `[T, N]`; values stay."""
    states, actions, outcomes = index.shape
    draws = values.shape[1]
    by_action, by_draw = cost.shape[1] > 1, cost.shape[2] > 1
    for s in range(states):
        t = depth[s]
        if t < 0:
            continue
        for n in range(draws):
            best = np.inf
            for a in range(actions):
                onward = 0.0
                for e in range(outcomes):
                    onward += events[classes[s, a], e, n] * values[index[s, a, e], n]
                best = min(best, cost[s, a if by_action else 0, n if by_draw else 0] + discount * onward)
            left = best - values[s, n]
            low[t, n], high[t, n] = min(low[t, n], left), max(high[t, n], left)


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
