"""Sweeps over the states of large models, compiled by Numba: each state uses at once what was found before it.

Arguments: `index` are the successors `[S, A, E]`, `classes` `[S, A]`, `events` `[C, E, N]` their probabilities in each
of N models, `cost` `[S, A, N]`. Values and actions `[S, N]` have the models last, so that those of a state lie in one
line of the cache. A state that stays where it is with some probability is solved for that, so that traps and
ends take no sweeps of their own.
"""

from __future__ import annotations

import numpy as np

from ..loops import compiled

# What a sweep is for: the length is part of the type, so that each is compiled for itself.
IMPROVE, FOLLOW, LOOK = (), (0,), (0, 0)


@compiled
def sweep(index, classes, events, cost, discount, values, action, order, aim, forward, depth, low, high, chain):
    """`v <- min_a (c + discount P' v) / (1 - discount stay)`, P' without what stays, and the first action of it.

    To follow is the same with the actions held. To look leaves the values as they are: it finds the least and the
    largest `min_a c + discount P v - v` of the states at each depth, `low` and `high` `[T, N]`. An improvement writes
    what the first model chooses to a `chain` that is not empty.
    """
    towards, share, paid = chain
    actions, outcomes = index.shape[1:]
    for i in range(order.size):
        s = order[i] if forward else order[order.size - 1 - i]
        for n in range(values.shape[1]):
            first, last = (action[s, n], action[s, n] + 1) if len(aim) == 1 else (0, actions)
            best, chosen, times = np.inf, first, 1.0
            for a in range(first, last):
                stay, onward, scale = 0.0, 0.0, 1.0
                for e in range(outcomes):
                    t = index[s, a, e]
                    if t != s:
                        onward += events[classes[s, a], e, n] * values[t, n]
                    else:
                        stay += events[classes[s, a], e, n]
                quality = cost[s, a, n] + discount * onward
                if stay > 0.0:
                    if len(aim) == 2:
                        quality += discount * stay * values[s, n]
                    else:
                        scale = 1.0 / (1.0 - discount * stay)
                        quality *= scale
                if quality < best:
                    best, chosen, times = quality, a, scale
            action[s, n] = chosen
            if len(aim) == 2:
                left, t = best - values[s, n], depth[s]
                low[t, n], high[t, n] = min(low[t, n], left), max(high[t, n], left)
                continue
            values[s, n] = best
            if len(aim) == 0 and n < paid.size:
                paid[s] = cost[s, chosen, 0] * times
                for e in range(outcomes):
                    t = index[s, chosen, e]
                    towards[s, e] = t
                    share[s, e] = discount * times * events[classes[s, chosen], e, 0] if t != s else 0.0


@compiled
def improve(successor, probability, cost, values, better, action):
    """Write `min_a cost + sum_b probability values(successor)` of one model, and the first action of it, `[S]`."""
    states, actions, successors = successor.shape
    for s in range(states):
        best, chosen = np.inf, 0
        for a in range(actions):
            quality = cost[s, a]
            for b in range(successors):
                quality += probability[s, a, b] * values[successor[s, a, b]]
            if quality < best:
                best, chosen = quality, a
        better[s], action[s] = best, chosen


@compiled
def along(towards, share, paid, values, forward):
    """`v <- paid + share v(towards)`, one sweep: what one model's actions were reads a fraction of all."""
    states, outcomes = towards.shape
    for i in range(states):
        s = i if forward else states - 1 - i
        value = paid[s]
        for e in range(outcomes):
            value += share[s, e] * values[towards[s, e]]
        values[s] = value
