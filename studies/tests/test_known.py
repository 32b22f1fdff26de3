"""The environments with known kernels, against what is said of them."""

import numpy as np
import pytest

import prudent as pr
from prudent_studies.known import KNOWN, known_environment

ENVIRONMENTS = {name: make() for name, make in KNOWN.items()}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_known_environment_walks_along_its_kernel(name):
    known = ENVIRONMENTS[name]
    table, mdp = np.asarray(known.table), known.mdp()
    np.testing.assert_allclose(table.sum(axis=2), 1.0, rtol=0, atol=1e-12)
    assert known.grid is None or np.prod(known.grid) == len(table)
    for end in known.terminal:
        assert np.all(table[end, :, end] == 1.0) and np.all(np.asarray(mdp.cost)[end] == 0.0)
    log = known.walk(300, seed=1)
    state, action, following = (np.asarray(part) for part in (log.state, log.action, log.next_state))
    assert np.all(table[state, action, following] > 0.0) and len(log) == 300
    assert not np.isin(state, known.terminal).any()
    ended = np.isin(following[:-1], known.terminal)
    assert np.array_equal(state[1:][~ended], following[:-1][~ended])
    assert np.all(np.asarray(mdp.start)[np.append(state[0], state[1:][ended])] > 0.0)
    assert np.array_equal(known.walk(300, seed=1).next_state, following)


def test_a_walk_moves_as_often_as_the_kernel_says():
    known = ENVIRONMENTS["river_swim"]
    counts = np.zeros((8, 2, 8))
    log = known.walk(6000, seed=0)
    np.add.at(counts, (log.state, log.action, log.next_state), 1.0)
    total = counts.sum(axis=2, keepdims=True)
    table = np.asarray(known.table)
    error = np.sqrt(table * (1.0 - table) / np.maximum(total, 1.0))
    seen = np.broadcast_to(total > 200, table.shape)
    assert seen.sum() == 40 and np.all(np.abs(counts / np.maximum(total, 1.0) - table)[seen] <= 4.5 * error[seen])


def taxi_at(cell: int, where: int, to: int) -> int:
    return (cell * 3 + where) * 2 + to


# Of a pair: the row that the description gives, and its cost.
DESCRIBED = [
    ("river_swim", 3, 1, {4: 0.35, 3: 0.55, 2: 0.10}, 1.0),
    ("river_swim", 7, 1, {7: 0.90, 6: 0.10}, 0.0),
    ("river_swim", 0, 0, {0: 1.0}, 0.9),
    ("inventory", 0, 0, {0: 1.0}, 20.0),
    ("inventory", 5, 3, {11: 0.3, 10: 0.3, 9: 0.2, 8: 0.1, 7: 0.07, 2: 0.03}, 2.5 + 6.0 + 2.0),
    ("cliff", 36, 2, {37: 0.8, 36: 0.1, 24: 0.1}, 1.0),
    ("cliff", 40, 0, {36: 1.0}, 100.0),
    ("cliff", 47, 1, {47: 1.0}, 0.0),
    ("machines", 12, 1, {0: 0.702, 1: 0.18, 3: 0.018, 12: 0.078, 13: 0.02, 15: 0.002}, 16.0),
    ("queue_with_bursts", 0, 0, {0: 0.55, 1: 0.35, 2: 0.08, 8: 0.02}, 0.0),
    ("queue_with_bursts", 15, 2, {14: 0.495, 15: 0.505}, 33.0),
    ("replacement", 0, 0, {0: 0.60, 1: 0.35, 7: 0.05}, 0.0),
    ("replacement", 1, 1, {0: 0.7, 1: 0.3}, 3.6),
    ("replacement", 7, 2, {0: 1.0}, 33.2),
    ("taxi", taxi_at(0, 0, 1), 4, {taxi_at(0, 2, 1): 1.0}, 1.0),
    ("taxi", taxi_at(5, 0, 1), 4, {taxi_at(5, 0, 1): 1.0}, 5.0),
    ("taxi", taxi_at(15, 2, 1), 5, {taxi_at(15, 1, 1): 1.0}, 1.0),
    ("taxi", taxi_at(5, 2, 1), 2, {taxi_at(6, 2, 1): 0.9, taxi_at(1, 2, 1): 0.05, taxi_at(9, 2, 1): 0.05}, 1.0),
]


@pytest.mark.parametrize(("name", "state", "action", "row", "cost"), DESCRIBED)
def test_known_environments_have_the_numbers_they_describe(name, state, action, row, cost):
    known = ENVIRONMENTS[name]
    wanted = np.zeros(known.shape[0])
    wanted[list(row)] = list(row.values())
    np.testing.assert_allclose(np.asarray(known.table)[state, action], wanted, rtol=0, atol=1e-12)
    assert np.asarray(known.mdp().cost)[state, action] == pytest.approx(cost, abs=1e-12)


def test_the_epidemic_spreads_by_its_rates():
    table = np.asarray(ENVIRONMENTS["epidemic"].table)
    ill = np.arange(20)
    for action, rate in enumerate((2.2, 1.1, 0.5)):
        catching = 0.5 * (1.0 - 0.98 * np.exp(-rate * ill / 20))
        np.testing.assert_allclose(table[:, action] @ ill, 0.65 * ill + (19 - ill) * catching, rtol=1e-12)
    assert table[0, 0, 0] == pytest.approx(0.99**19)


def test_the_garnet_has_three_successors_a_pair():
    assert np.all((np.asarray(ENVIRONMENTS["garnet"].table) > 0).sum(axis=2) == 3)


@pytest.mark.parametrize("size", ["4x4", "8x8"])
def test_the_lakes_are_gymnasiums(size):
    gymnasium = pytest.importorskip("gymnasium")
    world = gymnasium.make("FrozenLake-v1", map_name=size, is_slippery=True).unwrapped
    known = ENVIRONMENTS[f"lake_{size}"]
    table, cost = np.zeros((2, *known.table.shape))
    for state, actions in world.P.items():
        for action, moves in actions.items():
            for probability, following, reward, _ in moves:
                table[state, action, following] += probability
                cost[state, action, following] = -reward
    np.testing.assert_allclose(known.table, table, rtol=0, atol=1e-12)
    np.testing.assert_allclose(known.mdp().cost, (table * cost).sum(axis=2), rtol=0, atol=1e-12)


def test_an_unknown_environment_is_refused():
    with pytest.raises(pr.InputError, match="there is no environment 'lake'; there are epidemic, inventory"):
        known_environment("lake")


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_what_is_known_of_an_environment_is_true_of_it(name):
    known = ENVIRONMENTS[name]
    support, happens = known.known_support(), np.asarray(known.table) > 0
    possible = np.zeros_like(happens)
    state, action, slot = np.nonzero(support.allowed())
    possible[state, action, support.index()[state, action, slot]] = True
    assert np.all(possible | ~happens)
    assert name == "epidemic" or possible.sum() < 0.8 * possible.size
    assert known.possible is not None or possible.all()
