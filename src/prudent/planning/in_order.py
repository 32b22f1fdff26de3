"""Sweeps over the states of one large model, compiled by Numba: each state uses at once what was found before it.

Arguments: `index` are the successors `[S, A, B]`, `probability` `[S, A, B]`, `cost` `[S, A]`. A state that stays where
it is with some probability is solved for that. What a policy chooses is kept as `towards` `[S, B]`, `share` `[S, B]`
and `paid` `[S]`, so that its values are `v = paid + share v(towards)`: its sweeps read a fraction of what an
improvement does.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from ..loops import compiled
from .exact import EPSILON, MOST_IMPROVEMENTS, PATIENCE

# Sweeps of one policy between two improvements; residuals are found once changes are so many times what may be left.
FOLLOWED, LOOK = 10, 4.0


@compiled
def improve(index, probability, cost, discount, values, towards, share, paid, forward):
    """`v <- min_a (c + discount P' v) / (1 - discount stay)`, P' without what stays; the largest change."""
    states, actions, outcomes = index.shape
    most = 0.0
    for i in range(states):
        s = i if forward else states - 1 - i
        best, chosen, times = np.inf, 0, 1.0
        for a in range(actions):
            onward, stay = 0.0, 0.0
            for b in range(outcomes):
                t = index[s, a, b]
                if t != s:
                    onward += probability[s, a, b] * values[t]
                else:
                    stay += probability[s, a, b]
            scale = 1.0 / (1.0 - discount * stay) if stay > 0.0 else 1.0
            quality = (cost[s, a] + discount * onward) * scale
            if quality < best:
                best, chosen, times = quality, a, scale
        most = max(most, abs(best - values[s]))
        values[s] = best
        paid[s] = cost[s, chosen] * times
        for b in range(outcomes):
            t = index[s, chosen, b]
            towards[s, b] = t
            share[s, b] = discount * times * probability[s, chosen, b] if t != s else 0.0
    return most


@compiled
def follow(towards, share, paid, values, forward):
    """Values of the actions chosen, one sweep."""
    states, outcomes = towards.shape
    for i in range(states):
        s = i if forward else states - 1 - i
        value = paid[s]
        for b in range(outcomes):
            value += share[s, b] * values[towards[s, b]]
        values[s] = value


@compiled
def residual(index, probability, cost, discount, values, action):
    """The range of `min_a c + discount P v - v`, and the first action that attains it; values stay."""
    states, actions, outcomes = index.shape
    low, high = np.inf, -np.inf
    for s in range(states):
        best = np.inf
        for a in range(actions):
            onward = 0.0
            for b in range(outcomes):
                onward += probability[s, a, b] * values[index[s, a, b]]
            quality = cost[s, a] + discount * onward
            if quality < best:
                best = quality
                action[s] = a
        low, high = min(low, best - values[s]), max(high, best - values[s])
    return low, high


def state_after_state(
    successor: Int[np.ndarray, "S A B"],
    probability: Float[np.ndarray, "S A B"],
    cost: Float[np.ndarray, "S A"],
    discount: float,
    tolerance: float,
    share: float,
) -> tuple[np.ndarray, np.ndarray, float, int]:
    """Modified policy iteration, each state using at once what was found for those before it (Gauss and Seidel)."""
    states, _, outcomes = successor.shape
    index = np.ascontiguousarray(successor, dtype=np.int32)
    model = (index, np.ascontiguousarray(probability), np.ascontiguousarray(cost), discount)
    values, action = np.zeros(states), np.zeros(states, np.int32)
    chosen = np.empty((states, outcomes), np.int32), np.empty((states, outcomes)), np.empty(states)
    rest, least, since = 1.0 - discount, np.inf, 0
    iteration, low, high = 0, -np.inf, np.inf
    while iteration < MOST_IMPROVEMENTS:
        iteration += 1
        changed = improve(*model, values, *chosen, iteration % 2 == 1)
        since = 0 if changed < 0.9 * least else since + 1
        least = min(least, changed)
        target = rest * (tolerance + share * float(np.ptp(values)))
        rounded = since > 0 and changed <= 64.0 * EPSILON * float(np.abs(values).max())
        if changed <= LOOK * target or rounded:
            low, high = residual(*model, values, action)
            if high - low <= 2.0 * target or rounded:
                break
        # Improvements alone cannot go astray.
        for sweep in range(FOLLOWED if since < PATIENCE else 0):
            follow(*chosen, values, (iteration + sweep) % 2 == 1)
    # The middle of what the residuals leave open.
    return action, values + (low + high) / 2.0 / rest, (high - low) / 2.0, iteration
