"""Today's practice from a log: against known policies, direct integration, and logs that say little."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import dirichlet_multinomial

import prudent as pr
from prudent.policies.logged import WEIGHTS


def log_of(actions_by_state, states, actions):
    rows = [(state, action, state) for state, some in actions_by_state.items() for action in some]
    return pr.Transitions.from_records(rows, states=states, actions=actions)


def test_a_long_log_shows_the_policy_that_made_it():
    random = np.random.default_rng(0)
    truth = random.dirichlet(np.ones(3), size=5)
    log = log_of({s: random.choice(3, size=20_000, p=truth[s]) for s in range(5)}, 5, 3)
    today = pr.policy_of_log(log)
    np.testing.assert_allclose(today.policy.probabilities, truth, atol=0.02)
    assert today.visited.all()


def test_the_weight_has_the_largest_likelihood():
    random = np.random.default_rng(1)
    law = random.dirichlet(3.0 * np.array([0.5, 0.3, 0.2]), size=40)
    log = log_of({s: random.choice(3, size=12, p=law[s]) for s in range(40)}, 40, 3)
    today = pr.policy_of_log(log)
    likelihoods = [
        sum(dirichlet_multinomial(weight * today.pooled, 12).logpmf(row.astype(int)) for row in today.counts)
        for weight in WEIGHTS
    ]
    assert today.weight == WEIGHTS[np.argmax(likelihoods)]
    assert 1.0 < today.weight < 10.0


def test_a_state_without_rows_has_the_pooled_shares_and_is_not_visited():
    today = pr.policy_of_log(log_of({0: [0] * 9, 1: [1]}, 4, 3))
    assert today.visited.tolist() == [True, True, False, False]
    np.testing.assert_allclose(today.policy.probabilities[2:], [[0.9, 0.1, 0.0]] * 2)
    assert today.policy.probabilities[0, 0] > 0.99


def test_draws_have_the_mean_and_the_spread_of_their_law():
    today = pr.policy_of_log(log_of({0: [0, 1, 1], 1: [2] * 6, 2: [0, 1, 2]}, 4, 3))
    draws = today.draw(0, 40_000)
    parameters = today.counts + today.weight * today.pooled
    total = parameters.sum(axis=1, keepdims=True)
    mean = parameters / total
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.01)
    np.testing.assert_allclose(draws.var(axis=0), mean * (1 - mean) / (total + 1), atol=0.01)
    np.testing.assert_allclose(today.policy.probabilities, mean, atol=1e-12)
    assert np.array_equal(draws, today.draw(0, 40_000))


def test_names_of_the_log_are_those_of_the_policy():
    frame = pd.DataFrame({"state": ["new", "worn"], "action": ["run", "fix"], "next_state": ["worn", "new"]})
    today = pr.policy_of_log(pr.read_log(frame))
    assert today.policy.act("new", seed=0) in ("run", "fix")


def test_one_state_and_one_action():
    today = pr.policy_of_log(log_of({0: [0]}, 1, 1))
    assert today.policy.probabilities.tolist() == [[1.0]]
    assert today.draw(0, 3).tolist() == [[[1.0]]] * 3


def test_what_is_no_log_is_refused():
    with pytest.raises(pr.InputError, match="a log of transitions, got Trials"):
        pr.policy_of_log(pr.Trials([[1, 2]]))
    with pytest.raises(pr.InputError, match="has no row"):
        pr.policy_of_log(pr.Transitions([0], [0], [0], [0], 1, 1))
