"""River swim, machine replacement and inventory against their descriptions, linear programs and enumeration."""

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

import prudent as pr

RIVER, MACHINE, SHOP = pr.envs.river_swim(), pr.envs.machine_replacement(), pr.envs.inventory()
OWING = pr.envs.inventory(capacity=3, most_demand=2, most_ordered=2, backlog=True, truth=(0.2, 0.3, 0.5))
FAMILIES = {"river swim": RIVER, "machine replacement": MACHINE, "inventory": SHOP, "backlog": OWING}
each_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())


def by_linear_program(mdp):
    """The optimal discounted cost: the largest values that no action undercuts, by HiGHS."""
    table, cost = mdp.kernel.table(), np.asarray(mdp.cost)
    states, actions = cost.shape
    rows = np.repeat(np.eye(states), actions, axis=0) - float(mdp.discount) * table.reshape(-1, states)
    answer = linprog(-np.asarray(mdp.start), A_ub=rows, b_ub=cost.ravel(), bounds=(None, None), method="highs")
    assert answer.status == 0
    return -answer.fun


def by_enumeration(mdp):
    """The least discounted cost over all deterministic policies, each by its own linear system."""
    table, cost = mdp.kernel.table(), np.asarray(mdp.cost)
    states, actions = cost.shape
    everywhere = np.arange(states)
    return min(
        mdp.start @ np.linalg.solve(np.eye(states) - mdp.discount * table[everywhere, chosen], cost[everywhere, chosen])
        for chosen in map(np.array, itertools.product(range(actions), repeat=states))
    )


def some_thetas(family):
    truth = np.asarray(family.truth)
    if family in (RIVER, MACHINE):
        return [truth, np.zeros_like(truth), np.ones_like(truth), np.linspace(0.2, 0.9, truth.size)]
    return [truth, np.eye(truth.size)[0], np.eye(truth.size)[-1], np.full(truth.size, 1 / truth.size)]


@each_family
def test_every_theta_gives_a_model_whose_plan_is_the_linear_programs(family):
    for theta in some_thetas(family):
        mdp = family.at(theta)
        np.testing.assert_allclose(mdp.kernel.table().sum(axis=2), 1.0, atol=1e-12)
        assert mdp.start @ pr.plan(mdp).values == pytest.approx(by_linear_program(mdp), rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("family", [RIVER, MACHINE], ids=["river swim", "machine replacement"])
def test_no_deterministic_policy_is_better_than_the_plan(family):
    for theta in some_thetas(family)[::3]:
        mdp = family.at(theta)
        assert mdp.start @ pr.plan(mdp).values == pytest.approx(by_enumeration(mdp), rel=1e-9)


def test_the_river_is_as_described():
    mdp = pr.envs.river_swim(states=4, near=0.25, discount=0.5).at((0.5, 0.2))
    drift = [[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]
    swim = [[0.5, 0.5, 0, 0], [0.1, 0.4, 0.5, 0], [0, 0.1, 0.4, 0.5], [0, 0, 0.1, 0.9]]
    np.testing.assert_allclose(mdp.kernel.table(), np.stack([drift, swim], axis=1), atol=1e-15)
    np.testing.assert_array_equal(mdp.cost, [[0.75, 1], [1, 1], [1, 1], [1, 0]])
    np.testing.assert_array_equal(mdp.start, [0, 0.5, 0.5, 0])
    # Resting at the bank from state 1 or 2: the way there, then 0.75 for ever.
    values = [1 + 0.5 * 1.5, 1 + 0.5 * (1 + 0.5 * 1.5)]
    resting = pr.TabularPolicy.deterministic([0] * 4, 2)
    assert pr.loss_at(resting, pr.envs.river_swim(4, 0.25, 0.5), (0.5, 0.2)) == pytest.approx(np.mean(values))
    # The classical chances: on with 0.3, back with 0.1.
    np.testing.assert_allclose(RIVER.at(RIVER.truth).kernel.table()[3, 1, 2:5], [0.1, 0.6, 0.3], atol=1e-15)


def test_the_machine_is_as_described():
    machine = pr.envs.machine_replacement(levels=4, running=2, broken=10, repair=3, replace=5)
    mdp = machine.at((0.5, 0.2, 0.7))
    run = [[0.5, 0.4, 0, 0.1], [0, 0.5, 0.4, 0.1], [0, 0, 0.5, 0.5], [0, 0, 0, 1]]
    repair = [run[0], [0.7, 0.3, 0, 0], [0.7, 0, 0.3, 0], [0.7, 0, 0, 0.3]]
    replace = [run[0], *[[1, 0, 0, 0]] * 3]
    np.testing.assert_allclose(mdp.kernel.table(), np.stack([run, repair, replace], axis=1), atol=1e-15)
    np.testing.assert_array_equal(mdp.cost, [[0, 3, 5], [2, 3, 5], [4, 3, 5], [10, 13, 15]])
    np.testing.assert_array_equal(mdp.start, [1, 0, 0, 0])


def shop_by_hand(capacity, most_demand, most_ordered, backlog, prices, demand):
    setup, unit, holding, shortage = prices
    stocks = list(range(-most_demand, capacity + 1))
    table = np.zeros((len(stocks), most_ordered + 1, len(stocks)))
    cost = np.zeros(table.shape[:2])
    for s, stock in enumerate(stocks):
        for a in range(most_ordered + 1):
            kept = stock if backlog or stock > 0 else 0
            ordered = a
            while kept + ordered < 0:
                ordered += 1
            while kept + ordered > capacity:
                ordered -= 1
            cost[s, a] = unit * ordered + (setup if ordered else 0)
            for d, chance in enumerate(demand):
                left = kept + ordered - d
                table[s, a, stocks.index(left)] += chance
                cost[s, a] += chance * (holding * left if left > 0 else -shortage * left)
    return table, cost


@pytest.mark.parametrize("backlog", [False, True])
def test_the_inventory_is_as_described(backlog):
    demand, prices = (0.1, 0.2, 0.3, 0.4), (2.0, 1.5, 0.5, 7.0)
    shop = pr.envs.inventory(
        4, 3, most_ordered=3, backlog=backlog, setup=2, unit=1.5, holding=0.5, shortage=7, truth=demand
    )
    table, cost = shop_by_hand(4, 3, 3, backlog, prices, demand)
    mdp = shop.at(demand)
    np.testing.assert_allclose(mdp.kernel.table(), table, atol=1e-15)
    np.testing.assert_allclose(mdp.cost, cost, atol=1e-13)
    assert mdp.start[3] == 1.0
    # One distribution for all pairs is the table that repeats it.
    repeated = shop.at(np.broadcast_to(demand, shop.support.shape))
    np.testing.assert_array_equal(repeated.kernel.probability, mdp.kernel.probability)


def test_with_a_set_up_cost_the_best_policy_orders_up_to_a_level():
    """Scarf: below a reorder point order up to one level, above it nothing."""
    action = np.asarray(pr.plan(SHOP.at(SHOP.truth)).policy.probabilities).argmax(axis=1)[4:]
    reorder = int(np.argmin(action > 0))
    assert reorder > 0 and np.all(action[reorder:] == 0)
    assert len({stock + ordered for stock, ordered in enumerate(action[:reorder])}) == 1


@each_family
def test_trials_are_of_the_truth_and_much_data_finds_it(family):
    belief = family.prior.update(family.trials(n=100_000, seed=3))
    found = family.at(belief.mean()).kernel.table()
    np.testing.assert_allclose(found, family.at(family.truth).kernel.table(), atol=0.01)
    again = family.prior.update(family.trials(n=100_000, seed=3))
    np.testing.assert_array_equal(belief.counts, again.counts)
    other = some_thetas(family)[3]
    found = family.at(family.prior.update(family.trials(100_000, other, seed=4)).mean()).kernel.table()
    np.testing.assert_allclose(found, family.at(other).kernel.table(), atol=0.01)


@each_family
def test_the_tabular_problem_is_the_same_problem(family):
    problem, mdp = family.tabular(), family.at(family.truth)
    same = problem.family.at(problem.truth)
    np.testing.assert_allclose(same.kernel.table(), mdp.kernel.table(), atol=1e-15)
    np.testing.assert_allclose(same.cost, mdp.cost, atol=1e-13)
    np.testing.assert_array_equal(same.start, mdp.start)
    log = problem.transitions(n=20_000, seed=1)
    counts = np.asarray(problem.prior.update(log).counts)
    assert np.all(counts.sum(axis=2) == 20_000)
    np.testing.assert_allclose(problem.prior.update(log).mean(), problem.truth, atol=0.02)
    uniform = pr.TabularPolicy(np.full(mdp.cost.shape, 1 / mdp.cost.shape[1]))
    walked = problem.world(steps=30).deploy(uniform, np.random.default_rng(0))
    assert np.asarray(problem.prior.update(walked).counts).sum() == 30


def test_demand_is_learned_for_all_pairs_at_once_only_if_they_are_known_to_share_it():
    log = SHOP.trials(n=50, seed=0)
    tied, apart = SHOP.prior.update(log).mean(), SHOP.tabular().prior.update(log).mean()
    assert np.ptp(np.asarray(tied).reshape(-1, 5), axis=0).max() == 0
    np.testing.assert_array_equal(apart[-1, 0], tied[0, 0])
    np.testing.assert_array_equal(apart[0, 0], np.full(5, 0.2))
    # Walks of the world are learned from as well, with the same knowledge.
    walk = SHOP.tabular().world(200).deploy(pr.TabularPolicy(np.full((11, 7), 1 / 7)), np.random.default_rng(1))
    np.testing.assert_allclose(SHOP.prior.update(walk).mean()[0, 0], SHOP.truth, atol=0.12)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: pr.envs.river_swim(states=2), "states must be a whole number >= 3, got 2"),
        (lambda: pr.envs.river_swim(near=1.5), r"near must lie in \[0, 1\], got 1.5"),
        (lambda: pr.envs.river_swim(near="far"), r"near must be one number in \[0, 1\], got 'far'"),
        (lambda: pr.envs.river_swim(discount=1.0), "discount must lie in"),
        (lambda: pr.envs.river_swim(truth=(0.3,)), r"truth must be \(advance, swept\), two probabilities"),
        (lambda: pr.envs.river_swim(truth=(0.3, np.nan)), r"truth must be \(advance, swept\)"),
        (lambda: RIVER.trials(0), "n, the trials of each coordinate, must be a whole number >= 1"),
        (lambda: RIVER.trials(5, truth=(0.3, 1.2)), "two probabilities"),
        (lambda: RIVER.at([0.3]), "theta of a river swim is"),
        (lambda: RIVER.tabular(weight=0), "Dirichlet weight must be > 0"),
        (lambda: RIVER.tabular().transitions(2.5), "n, the transitions of each pair,"),
        (lambda: pr.envs.machine_replacement(levels=True), "levels must be a whole number >= 3"),
        (lambda: pr.envs.machine_replacement(repair=-1), r"cost repair must lie in \[0, inf\), got -1"),
        (lambda: pr.envs.machine_replacement(broken=np.inf), "cost broken must lie in"),
        (lambda: pr.envs.machine_replacement(truth=(0.3, 0.2)), r"\(wear, breakdown, repair\), three probabilities"),
        (lambda: MACHINE.at([0.3, 0.2]), r"theta of machine replacement is \(wear, breakdown, repair\)"),
        (lambda: pr.envs.inventory(capacity=0), "capacity must be a whole number >= 1"),
        (lambda: pr.envs.inventory(most_demand=0), "most_demand must be a whole number >= 1"),
        (lambda: pr.envs.inventory(most_ordered=0), "most_ordered must be a whole number >= 1"),
        (lambda: pr.envs.inventory(backlog="no"), "backlog must be True or False"),
        (lambda: pr.envs.inventory(holding=[1, 2]), "cost holding must be one number"),
        (lambda: pr.envs.inventory(most_demand=2), "each demand from 0 to 2, 3 numbers; got shape"),
        (lambda: pr.envs.inventory(truth=[0.5] * 5), "truth must sum to 1"),
        (lambda: SHOP.trials(-1), "n, the number of demands,"),
        (lambda: SHOP.at([0.5, 0.5]), "theta of an inventory is a distribution of demand"),
    ],
)
def test_what_makes_no_sense_is_refused(make, match):
    with pytest.raises(pr.InputError, match=match):
        make()
