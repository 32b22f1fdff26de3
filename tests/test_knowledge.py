"""What a user knows of where a pair can lead, against brute force."""

import itertools

import numpy as np
import pytest

import prudent as pr

ENVIRONMENTS = {name: pr.envs.known_environment(name) for name in pr.envs.KNOWN}


def as_table(support):
    """`[S, A, S]` whether a state may follow a pair."""
    table = np.zeros((support.states, support.actions, support.states), dtype=bool)
    state, action, slot = np.nonzero(support.allowed())
    table[state, action, support.index()[state, action, slot]] = True
    return table


# ---------------------------------------------------------------- in Python


def test_a_function_says_which_successors_there_are():
    support = pr.Support.where(lambda s, a, t: t <= s + a, states=4, actions=2)
    for s, a, t in itertools.product(range(4), range(2), range(4)):
        assert as_table(support)[s, a, t] == (t <= s + a)
    assert pr.Support.where(lambda s, a, t: True, 3, 2).is_dense


def test_a_function_on_a_grid_is_given_coordinates():
    support = pr.Support.where(lambda s, a, t: s[0] == t[0] and s[1] <= t[1], states=(2, 3), actions=1)
    found = [np.flatnonzero(row).tolist() for row in as_table(support)[:, 0]]
    assert found == [[0, 1, 2], [1, 2], [2], [3, 4, 5], [4, 5], [5]]


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        (lambda: pr.Support.where(lambda s, a, t: t < s, 3, 1), "state 0, action 0 lists no successor"),
        (lambda: pr.Support.where(lambda s, a, t: True, 0, 1), "a size of the grid must be a whole number >= 1, got 0"),
        (lambda: pr.Support.where(lambda s, a, t: True, (2, 2.5), 1), "a size of the grid .* got 2.5"),
        (lambda: pr.Support.where(lambda s, a, t: True, 2, 0), "actions must be a whole number >= 1"),
    ],
)
def test_a_function_that_leaves_no_successor_is_refused(attempt, words):
    with pytest.raises(pr.InputError, match=words):
        attempt()


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_what_is_known_of_an_environment_is_true_of_it(name):
    known = ENVIRONMENTS[name]
    possible, happens = as_table(known.known_support()), np.asarray(known.table) > 0
    assert np.all(possible | ~happens)
    assert name == "epidemic" or possible.sum() < 0.8 * possible.size
    assert known.possible is not None or possible.all()
