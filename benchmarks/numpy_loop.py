"""BR-PG as a researcher would write it in NumPy: dense kernels, truncated sums, a Python loop over draws."""

from __future__ import annotations

import numpy as np

HORIZON = 130


def one_gradient(table: np.ndarray, cost: np.ndarray, start: np.ndarray, discount: float, policy: np.ndarray):
    """Loss and gradient by the logits of one sampled model."""
    chain = np.einsum("sa,sat->st", policy, table)
    cost_policy = (policy * cost).sum(axis=1)
    visits, now = start.copy(), start.copy()
    values, ahead = cost_policy.copy(), cost_policy.copy()
    for _ in range(HORIZON):
        now = discount * (now @ chain)
        visits += now
        ahead = discount * (chain @ ahead)
        values += ahead
    quality = cost + discount * table @ values
    occupancy = visits[:, None] * policy
    advantage = quality - (policy * quality).sum(axis=1, keepdims=True)
    return (occupancy * cost).sum(), occupancy * advantage


def iterations(family, belief, level: float, count: int, samples: int, random: np.random.Generator) -> np.ndarray:
    """`count` plain steps of length 1 on CVaR, from zero logits; the logits."""
    states, actions, _ = family.support.shape
    logits = np.zeros((states, actions))
    start, discount = np.asarray(family.start), float(family.discount)
    counts = np.asarray(belief.prior + belief.counts)
    for _ in range(count):
        thetas = random.beta(counts[:, 0], counts[:, 1], size=(samples, len(counts)))
        models = [_model(family, theta) for theta in thetas]
        policy = np.exp(logits - logits.max(axis=1, keepdims=True))
        policy /= policy.sum(axis=1, keepdims=True)
        results = [one_gradient(table, cost, start, discount, policy) for table, cost in models]
        losses = np.array([loss for loss, _ in results])
        tail = losses >= np.quantile(losses, level)
        logits = logits - sum(slope for (_, slope), keep in zip(results, tail, strict=True) if keep) / tail.sum()
    return logits


def _model(family, theta: np.ndarray):
    """The lake's full table at theta, filled in by NumPy."""
    slip, escape = theta
    hole, goal = np.asarray(family.hole), np.asarray(family.goal)
    index = np.asarray(family.support.successor)
    states, actions, _ = index.shape
    row = np.where(hole[:, None], [escape, 1.0 - escape, 0.0], [1.0 - slip, slip / 2, slip / 2])
    table = np.zeros((states, actions, states))
    s, a = np.ogrid[:states, :actions]
    for b in range(3):
        table[s, a, index[:, :, b]] += row[:, None, b]
    cost = np.broadcast_to(np.where(goal, 0.0, np.where(hole, 2.0 - escape, 1.0))[:, None], (states, actions))
    return table, cost
