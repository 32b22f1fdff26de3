"""Problems so small that every sentence about them can be checked by brute force: ties, thin tails, discounts."""

import itertools

import numpy as np
import pytest

import prudent as pr

from .atom_problems import family, tail_mean
from .marks import short


def losses(tables, kernels, costs, discount):
    """`[K, R]` discounted costs from state 0."""
    chains = np.einsum("ksa,rsat->krst", tables, kernels)
    paid = np.einsum("ksa,rsa->krs", tables, costs)
    return np.linalg.solve(np.eye(kernels.shape[1]) - discount * chains, paid[..., None])[..., 0, 0]


def on_grid(states, actions, parts):
    """All tables whose entries are whole numbers of `parts`."""
    rows = np.array([row for row in itertools.product(range(parts + 1), repeat=actions) if sum(row) == parts]) / parts
    return rows[np.indices((len(rows),) * states).reshape(states, -1).T]


def some(seed, atoms, states=2, actions=2):
    random = np.random.default_rng(seed)
    shape = (atoms, states, actions)
    return random.dirichlet(np.full(states, 0.5), size=shape), random.uniform(size=shape)


def stay(costs):
    """One state: the action alone counts."""
    costs = np.array(costs, float)[:, None, :]
    return np.ones((*costs.shape, 1)), costs


ONE, TWO, THREE = some(0, 1), some(1, 2), some(2, 3)
RARE = np.array([1.0, 1.0, 1000.0])[:, None, None]
EVEN, SHARES = [0.5, 0.5], [0.2, 0.3, 0.5]
CASES = {
    "one state, one action": (*stay([[1.0], [3.0]]), EVEN, 0.9),
    "one state, actions that tie": (*stay([[1.0, 1.0], [3.0, 3.0]]), EVEN, 0.5),
    "one state, a mixture is best": (*stay([[0.0, 1.0], [1.0, 0.0]]), EVEN, 0.99),
    "one action": (*some(3, 3, actions=1), SHARES, 0.9),
    "one atom": (*ONE, [1.0], 0.9),
    "all costs alike": (THREE[0], np.ones((3, 2, 2)), SHARES, 0.9),
    "no costs": (THREE[0], np.zeros((3, 2, 2)), SHARES, 0.9),
    "an atom twice": (TWO[0][[0, 0, 1]], TWO[1][[0, 0, 1]], [0.3, 0.3, 0.4], 0.5),
    "an atom of no weight": (*THREE, [0.5, 0.0, 0.5], 0.9),
    "a thin tail": (THREE[0], THREE[1] * RARE, [0.6, 0.3999, 1e-4], 0.99),
    "a large constant": (TWO[0], TWO[1] + 1e6, [0.4, 0.6], 0.5),
    "costs below 0": (TWO[0], TWO[1] - 5.0, [0.4, 0.6], 0.9),
    "tiny costs": (TWO[0], 1e-15 * TWO[1], [0.4, 0.6], 0.9),
}


@pytest.mark.parametrize("discount", short([0.9], [0.0, 0.9, 0.999]))
@pytest.mark.parametrize("name", CASES)
def test_what_is_said_of_a_tiny_problem_is_so(name, discount):
    kernels, costs, weights, level = CASES[name]
    shares = np.array(weights) / np.sum(weights)
    count, states, actions = costs.shape
    theta = np.concatenate([kernels.reshape(count, -1), costs.reshape(count, -1)], axis=1)
    solution = pr.solve(
        family(states, actions, discount), pr.Draws(theta, weights=weights), risk=pr.CVaR(level), seed=1
    )
    certificate, table = solution.certificate, np.asarray(solution.policy.probabilities)
    # Less the least cost, so that differences keep their digits; the constant comes back where levels are compared.
    constant = costs.min() / (1.0 - discount)
    tables = np.concatenate([on_grid(states, actions, 100), table[None]])

    def risk(tables):
        return tail_mean(losses(tables, kernels, costs - costs.min(), discount), shares, level)

    values = risk(tables)
    ours, best = values[-1], values.min()
    unit, size = np.ptp(values), np.abs(costs).max() / (1.0 - discount)
    assert solution.risk - constant == pytest.approx(ours, abs=1e-12 * size)
    assert ours - best <= 2e-3 * unit + 1e-12 * size
    known = losses(on_grid(states, actions, 1), kernels, costs - costs.min(), discount).min(axis=0)
    assert certificate.lower_bound - constant == pytest.approx(tail_mean(known, shares, level), abs=1e-11 * size)
    assert certificate.lower_bound - constant <= best + 1e-12 * size
    assert certificate.gap_limit >= ours - best - 1e-12 * size
    assert solution.exact and certificate.exact and solution.interval == (solution.risk, solution.risk)
    gains = (ours - risk(table + 1e-6 * (tables - table))) / 1e-6
    # Two losses, each right to about 1e-13 of the largest there can be, over the step of the difference.
    rounding = 2e-13 * size / 1e-6
    assert gains.max() <= certificate.stationarity + 1e-4 * unit + rounding
    assert solution.status is pr.Status.CONVERGED and gains.max() <= 1e-3 * unit + rounding
    assert "nan" not in str(solution)
    weight = np.asarray(solution.weights) * solution.probabilities
    for driver in certificate.drivers:
        value = np.asarray(solution.thetas)[:, driver.place[0]]
        mean = solution.probabilities @ value
        spread = np.sqrt(solution.probabilities @ (value - mean) ** 2)
        assert driver.shift == pytest.approx((weight @ value - mean) / spread, abs=1e-6)
