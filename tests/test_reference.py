"""The dense reference against closed forms, difference quotients, enumeration and linear programs."""

import numpy as np
import pytest
from scipy.optimize import linprog

from . import reference
from .known_models import KNOWN, each_known_model

SMALL = {name: model for name, model in KNOWN.items() if model.cost.shape[1] ** len(model.start) <= 300}
each_small_model = pytest.mark.parametrize("model", SMALL.values(), ids=SMALL.keys())


def relative(found, expected):
    return np.abs(found - expected).max() / np.abs(expected).max()


@each_known_model
def test_known_models_are_models(model):
    assert np.all(model.P >= 0.0) and np.all(model.policy >= 0.0)
    for rows in (model.P, model.policy, model.start):
        np.testing.assert_allclose(rows.sum(axis=-1), 1.0, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(model.mdp().kernel.table(), model.P)
    np.testing.assert_array_equal(model.mdp(dense=True).kernel.table(), model.P)


@each_known_model
def test_values_visits_and_optima_are_the_closed_forms(model):
    P, cost, start, discount, policy = model[:5]
    # A solve loses the digits of 1/(1 - discount), and so do the closed forms.
    tolerance = 1e-14 / (1.0 - discount) + 1e-13
    if model.values is not None:
        assert relative(reference.values(P, cost, policy, discount), model.values) <= tolerance
    if model.visits is not None:
        assert relative(reference.state_visits(P, policy, start, discount), model.visits) <= tolerance
    if model.optimum is not None:
        assert relative(reference.optimal_values(P, cost, discount), model.optimum) <= 1e-7


@each_known_model
def test_visits_balance_and_both_ways_to_the_cost_agree(model):
    P, cost, start, discount, policy = model[:5]
    found = reference.occupancy(P, policy, start, discount)
    assert found.sum() == pytest.approx(1.0 / (1.0 - discount), rel=1e-10)
    balance = reference.flow_matrix(P, discount) @ found.ravel()
    np.testing.assert_allclose(balance, start, rtol=0, atol=1e-15 / (1.0 - discount) + 1e-13)
    scale = (found * np.abs(cost)).sum()
    assert (found * cost).sum() == pytest.approx(
        reference.expected_cost(P, cost, policy, start, discount), abs=1e-10 * scale
    )


@each_known_model
def test_a_truncated_occupancy_tends_to_the_exact_one_within_the_mass_left_out(model):
    P, _, start, discount, policy = model[:5]
    exact = reference.occupancy(P, policy, start, discount)
    for horizon in (0, 1, 5, 60):
        found = reference.truncated_occupancy(P, policy, start, discount, horizon)
        left = discount ** (horizon + 1) / (1.0 - discount)
        assert np.all(found <= exact + 1e-10 * exact.max())
        assert (exact - found).sum() == pytest.approx(left, rel=1e-7, abs=1e-12)


def test_a_truncated_occupancy_of_the_cycle_by_hand():
    model = KNOWN["cycle"]
    found = reference.truncated_occupancy(model.P, model.policy, model.start, 0.9, 8)
    expected = 0.9 ** np.arange(7)
    expected[:2] += 0.9 ** np.array([7, 8])
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-14)
    assert np.all(found[:, 1] == 0.0)


def nonlinear(occupancy, discount):
    """`F` and its derivative by the occupancy."""
    share = (1.0 - discount) * occupancy
    rates = np.linspace(0.5, 1.5, occupancy.size).reshape(occupancy.shape)
    return (rates * share + share**2).sum(), (1.0 - discount) * (rates + 2.0 * share)


@each_known_model
@pytest.mark.parametrize("horizon", [None, 0, 7])
def test_gradients_are_difference_quotients(model, horizon):
    """Of a nonlinear function of the occupancy, towards every pair's probability, rows not kept at one."""
    P, _, start, discount, policy = model[:5]
    times = () if horizon is None else (horizon,)
    occupancy = reference.occupancy if horizon is None else reference.truncated_occupancy
    gradient = reference.loss_gradient if horizon is None else reference.truncated_gradient

    def value_and_derivative(pi):
        return nonlinear(occupancy(P, pi, start, discount, *times), discount)

    found = gradient(P, policy, start, discount, *times, value_and_derivative(policy)[1])
    # Rows that sum to more than one divide 1 - discount: the step stays well below it.
    small = 1e-5 * (1.0 - discount)
    quotients = np.zeros(policy.shape)
    for s, a in np.ndindex(*policy.shape):
        move = np.zeros(policy.shape)
        move[s, a] = small
        above, below = (value_and_derivative(policy + sign * move)[0] for sign in (1.0, -1.0))
        quotients[s, a] = (above - below) / (2.0 * small)
    assert relative(found, quotients) <= 2e-6


@each_small_model
def test_the_best_deterministic_policy_attains_the_optimum(model):
    P, cost, start, discount, _ = model[:5]
    least, policy = reference.best_deterministic(P, cost, start, discount)
    optimum = start @ reference.optimal_values(P, cost, discount)
    assert least == pytest.approx(optimum, rel=1e-6)
    assert reference.expected_cost(P, cost, policy, start, discount) == least


def test_leading_axes_broadcast():
    """Policies [K, 1, S, A] on models [R, S, A, S], one by one and together."""
    random = np.random.default_rng(0)
    tables, costs = random.dirichlet(np.ones(4), size=(3, 4, 2)), random.uniform(size=(3, 4, 2))
    policies, start = random.dirichlet(np.ones(2), size=(5, 4)), random.dirichlet(np.ones(4))
    cases = [
        (reference.occupancy, lambda P, c, pi: (P, pi, start, 0.9)),
        (reference.values, lambda P, c, pi: (P, c, pi, 0.9)),
        (reference.expected_cost, lambda P, c, pi: (P, c, pi, start, 0.9)),
        (reference.loss_gradient, lambda P, c, pi: (P, pi, start, 0.9, c)),
        (reference.truncated_occupancy, lambda P, c, pi: (P, pi, start, 0.9, 3)),
        (reference.truncated_gradient, lambda P, c, pi: (P, pi, start, 0.9, 3, c)),
    ]
    for function, arguments in cases:
        together = function(*arguments(tables, costs, policies[:, None]))
        for k, r in np.ndindex(5, 3):
            alone = function(*arguments(tables[r], costs[r], policies[k]))
            np.testing.assert_allclose(together[k, r], alone, rtol=1e-12)


@pytest.mark.parametrize("beta", [0.0, 0.3, 0.5, 0.75, 0.99])
def test_cvar_is_its_linear_program(beta):
    """`min t + sum p z / (1 - beta)` with `z >= losses - t`, `z >= 0`."""
    random = np.random.default_rng(2)
    losses, probabilities = random.normal(size=(4, 9)).round(1), random.dirichlet(np.ones(9))
    found = reference.cvar(losses, probabilities, beta)
    for row, value in zip(losses, found, strict=True):
        answer = linprog(
            np.concatenate([[1.0], probabilities / (1.0 - beta)]),
            A_ub=-np.concatenate([np.ones((9, 1)), np.eye(9)], axis=1),
            b_ub=-row,
            bounds=[(None, None), *[(0.0, None)] * 9],
        )
        assert value == pytest.approx(answer.fun, abs=1e-10)


def test_cvar_by_hand():
    losses, equal = [1.0, 2.0, 3.0, 6.0], np.full(4, 0.25)
    assert reference.cvar(losses, equal, 0.0) == pytest.approx(3.0)
    assert reference.cvar(losses, equal, 0.5) == pytest.approx(4.5)
    assert reference.cvar(losses, equal, 0.6) == pytest.approx((0.25 * 6.0 + 0.15 * 3.0) / 0.4)
    assert reference.cvar(losses, [0.7, 0.1, 0.1, 0.1], 0.9) == pytest.approx(6.0)
    assert reference.cvar([1.0, np.inf], [0.5, 0.5], 0.0) == np.inf
    assert reference.cvar([1.0, -np.inf], [0.5, 0.5], 0.5) == 1.0
