"""Dense NumPy reference of discounted Markov decision processes; it shares no code with the library.

Axis letters: `S` states, `A` actions. A model is a table `P [..., S, A, S]` of next-state probabilities, a cost
`c [..., S, A]`, a distribution `start [S]` of the first state and a discount in [0, 1). A policy is `pi [..., S, A]`.
Leading axes broadcast: policies `[K, 1, S, A]` and models `[R, S, A, S]` give results `[K, R, ...]`.
"""

from __future__ import annotations

import itertools

import numpy as np
from scipy.optimize import linprog


def transition(P: np.ndarray, pi: np.ndarray) -> np.ndarray:
    """Return the chain under a policy, `P_pi(s, t) = sum_a pi(a | s) P(s, a, t)`, `[..., S, S]`."""
    return np.einsum("...sa,...sat->...st", pi, P)


def solve_chain(chain: np.ndarray, right: np.ndarray, discount: float) -> np.ndarray:
    """Solve `(I - discount chain) x = right` for `x [..., S]`."""
    system = np.eye(chain.shape[-1]) - discount * chain
    return np.linalg.solve(system, np.broadcast_to(right[..., None], (*system.shape[:-1], 1)))[..., 0]


def state_visits(P: np.ndarray, pi: np.ndarray, start: np.ndarray, discount: float) -> np.ndarray:
    """Return the discounted visits `d = (I - discount P_pi^T)^-1 start`, `[..., S]`; they sum to `1/(1 - discount)`."""
    return solve_chain(np.swapaxes(transition(P, pi), -1, -2), np.asarray(start, float), discount)


def occupancy(P: np.ndarray, pi: np.ndarray, start: np.ndarray, discount: float) -> np.ndarray:
    """Return the occupancy `lambda(s, a) = d(s) pi(a | s)`, `[..., S, A]`."""
    return state_visits(P, pi, start, discount)[..., None] * pi


def values(P: np.ndarray, c: np.ndarray, pi: np.ndarray, discount: float) -> np.ndarray:
    """Return the discounted costs from each state, `v = (I - discount P_pi)^-1 sum_a pi c`, `[..., S]`."""
    return solve_chain(transition(P, pi), np.einsum("...sa,...sa->...s", pi, c), discount)


def action_values(P: np.ndarray, c: np.ndarray, v: np.ndarray, discount: float) -> np.ndarray:
    """Return `q(s, a) = c(s, a) + discount sum_t P(s, a, t) v(t)`, `[..., S, A]`."""
    return c + discount * np.einsum("...sat,...t->...sa", P, v)


def expected_cost(P: np.ndarray, c: np.ndarray, pi: np.ndarray, start: np.ndarray, discount: float) -> np.ndarray:
    """Return the discounted cost of a policy, `start . v`, `[...]`."""
    return values(P, c, pi, discount) @ np.asarray(start, float)


def loss_gradient(P: np.ndarray, pi: np.ndarray, start: np.ndarray, discount: float, dF: np.ndarray) -> np.ndarray:
    """Return the derivative by the policy of `C(pi) = F(occupancy(pi))`, `[..., S, A]`.

    With `dF(s, a)` the derivative of `F` by the occupancy, `dC/dpi(s, a) = d(s) (dF(s, a) + discount P(s, a) . v)`,
    where `v` are the values of the cost `dF`. Entries of `pi` vary on their own: rows need not sum to one.
    """
    onward = action_values(P, dF, values(P, dF, pi, discount), discount)
    return state_visits(P, pi, start, discount)[..., None] * onward


def truncated_visits(P: np.ndarray, pi: np.ndarray, start: np.ndarray, discount: float, horizon: int) -> np.ndarray:
    """Return the terms `discount^t (P_pi^T)^t start` at times `t = 0..horizon`, `[horizon + 1, ..., S]`."""
    chain = transition(P, pi)
    terms = [np.broadcast_to(np.asarray(start, float), chain.shape[:-1])]
    for _ in range(horizon):
        terms.append(discount * np.einsum("...st,...s->...t", chain, terms[-1]))
    return np.stack(terms)


def truncated_occupancy(P: np.ndarray, pi: np.ndarray, start: np.ndarray, discount: float, horizon: int) -> np.ndarray:
    """Return the occupancy of the times `t = 0..horizon` alone, `[..., S, A]`."""
    return truncated_visits(P, pi, start, discount, horizon).sum(axis=0)[..., None] * pi


def truncated_gradient(
    P: np.ndarray, pi: np.ndarray, start: np.ndarray, discount: float, horizon: int, dF: np.ndarray
) -> np.ndarray:
    """Return the derivative by the policy of `F(truncated_occupancy(pi))`, `[..., S, A]`.

    Values depend on the time that is left: `v_(horizon + 1) = 0`, `q_t = dF + discount P v_(t+1)` and
    `v_t = sum_a pi q_t`. The derivative is `sum_t d_t(s) q_t(s, a)`.
    """
    terms = truncated_visits(P, pi, start, discount, horizon)
    v, total = np.zeros(terms.shape[1:]), 0.0
    for visits in terms[::-1]:
        q = action_values(P, dF, v, discount)
        total = total + visits[..., None] * q
        v = np.einsum("...sa,...sa->...s", pi, q)
    return np.asarray(total)


def deterministic_policies(states: int, actions: int) -> np.ndarray:
    """Return all deterministic policies `[A^S, S, A]`."""
    return np.eye(actions)[np.array(list(itertools.product(range(actions), repeat=states)))]


def best_deterministic(P: np.ndarray, c: np.ndarray, start: np.ndarray, discount: float) -> tuple[float, np.ndarray]:
    """Return the least discounted cost of all deterministic policies, and the first that attains it, by enumeration."""
    policies = deterministic_policies(*c.shape)
    costs = expected_cost(P, c, policies, start, discount)
    return float(costs.min()), policies[costs.argmin()]


def corners_of_box(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return all policies `[K, S, A]` between bounds `[S, A]` whose rows have all probabilities but one at a bound."""
    rows = []
    for least, most in zip(low, high, strict=True):
        found = set()
        for free in range(len(least)):
            for ends in itertools.product((0, 1), repeat=len(least)):
                row = np.where(ends, most, least)
                row[free] += 1.0 - row.sum()
                if least[free] - 1e-12 <= row[free] <= most[free] + 1e-12:
                    found.add(tuple(row.round(12)))
        rows.append([np.array(row) for row in found])
    return np.array(list(itertools.product(*rows)))


def optimal_values(P: np.ndarray, c: np.ndarray, discount: float) -> np.ndarray:
    """Return the optimal values `[S]`, by a linear program: the largest `v` with `v <= c + discount P v`."""
    c = np.asarray(c, float)
    states, actions = c.shape
    rows = np.repeat(np.eye(states), actions, axis=0) - discount * np.asarray(P).reshape(-1, states)
    answer = linprog(-np.ones(states), A_ub=rows, b_ub=c.ravel(), bounds=(None, None), method="highs")
    assert answer.status == 0, answer.message
    return answer.x


def flow_matrix(P: np.ndarray, discount: float) -> np.ndarray:
    """Return the matrix `[S, S A]` by which an occupancy `lambda` obeys `flow_matrix @ lambda = start`."""
    states, actions = P.shape[:2]
    return np.repeat(np.eye(states), actions, axis=1) - discount * P.reshape(-1, states).T


def cvar(losses: np.ndarray | list[float], probabilities: np.ndarray | list[float], beta: float) -> np.ndarray:
    """Return the mean of the worst `1 - beta` share of losses `[..., R]`, `[...]`; the last loss counts in part."""
    losses = np.asarray(losses, float)
    order = np.argsort(-losses, axis=-1, kind="stable")
    ordered, weights = np.take_along_axis(losses, order, axis=-1), np.asarray(probabilities, float)[order]
    before = np.cumsum(weights, axis=-1) - weights
    counted = np.clip((1.0 - beta) - before, 0.0, weights)
    return (np.where(counted > 0.0, ordered, 0.0) * counted).sum(axis=-1) / (1.0 - beta)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return the policy of logits `[..., S, A]`."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)
