"""Event families by sweeps, against the same models laid out as tables."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import prudent as pr
from prudent.engine import plan_loops as planned
from prudent.engine import sweep_loops, sweeps
from prudent.objectives import losses_on, objective_of, slopes_on
from prudent.posteriors import equally_weighted
from prudent.solvers import search
from prudent.solvers.question import evaluate_points

from .marks import short

STATES, ACTIONS, EVENTS = 6, 2, 3


def table_of_successors(seed=0):
    """Random, with an end that is never left, a pair that stays for certain and ties among successors."""
    successors = np.random.default_rng(seed).integers(0, STATES, (STATES, ACTIONS, EVENTS))
    successors[5] = 5
    successors[2, 1] = 2
    successors[3, :, 1] = successors[3, :, 0]
    return successors


def by_class(theta):
    """Two classes; the last event of the second cannot happen."""
    share, stay = theta[0], theta[1]
    zero = jnp.zeros_like(share)
    return jnp.stack([jnp.stack([1 - share, share / 2, share / 2]), jnp.stack([stay, 1 - stay, zero])])


CLASSES = np.array([0, 1, 0, 0, 1, 0])
COST = np.array([[1.0, 2.0], [3.0, 1.0], [1.0, 1.0], [0.5, 0.5], [2.0, 4.0], [0.0, 0.0]])


def cost_of(theta):
    return jnp.asarray(COST) * (1.0 + theta[1])


def twins(cost=cost_of, discount=0.9, successors=None, classes=CLASSES, probability=by_class, start=0):
    """The same models twice: by events, and along the same successors."""
    successors = table_of_successors() if successors is None else successors
    events = pr.EventFamily(successors, probability, cost, start, discount, classes=classes)
    tables = pr.Family(pr.Support.lists(successors), events.probability, cost, start, discount)
    return events, tables


def by_sweeps(family, **parts):
    return family.objective(occupancy=pr.Exact(pr.Sweeps.of(family.support)), **parts)


@pytest.fixture(scope="module")
def draws():
    return np.random.default_rng(1).beta(2.0, 3.0, size=(11, 2))


@pytest.fixture(scope="module")
def policy():
    rows = np.random.default_rng(2).dirichlet([1.0, 1.0], size=STATES)
    rows[1] = [1.0, 0.0]
    return rows


def check_twins(events, tables, policy, draws, loss=None):
    """Losses, visits and averaged slopes by sweeps are those of tables."""
    objective, other = by_sweeps(events, loss=loss), tables.objective(loss=loss)
    weights = np.random.default_rng(3).random(len(draws))
    weights[::3] = 0.0
    with jax.enable_x64(True):
        slopes = slopes_on(other, policy[None], draws, np.zeros(len(draws), int), np.arange(len(draws)))
        found = objective.averages().slopes(policy, draws, lambda losses: weights)
    np.testing.assert_allclose(found.losses, slopes.losses, rtol=1e-7)
    np.testing.assert_allclose(losses_on(objective, policy[None], draws)[0], slopes.losses, rtol=1e-7)
    expected = np.tensordot(weights, slopes.slopes, axes=1)
    # Along the tables: what all actions of a state gain alike changes no policy.
    centred = [part - (policy * part).sum(axis=1, keepdims=True) for part in (found.slope, expected)]
    np.testing.assert_allclose(*centred, atol=1e-6 * np.abs(expected).max())
    np.testing.assert_allclose(found.visits, weights @ slopes.visits, atol=1e-7)


@pytest.mark.parametrize("loss", [None, pr.NegativeEntropy()], ids=["cost", "entropy"])
def test_losses_and_averaged_slopes_are_those_of_tables(draws, policy, loss):
    events, tables = twins(start=np.full(STATES, 1 / STATES))
    check_twins(events, tables, 0.9 * policy + 0.05, draws, loss)


@pytest.mark.long
@pytest.mark.parametrize("near", short([False], [False, True]))
def test_leaping_over_sweeps_changes_nothing_but_their_number(near, monkeypatch, draws):
    """Of chains that forget their start at once, and of a line on which that takes long."""
    states, random, made = 300, np.random.default_rng(3), []
    successors = random.integers(0, states, (states, ACTIONS, EVENTS))
    if near:
        successors = np.clip(np.arange(states)[:, None, None] + random.integers(-2, 3, successors.shape), 0, states - 1)
    cost, classes = random.random((states, ACTIONS)), np.arange(states) % 2
    events, tables = twins(cost, 0.97, successors, classes, start=np.full(states, 1.0 / states))
    policy = random.dirichlet([1.0, 1.0], size=states)
    for name in ("push", "pull"):
        sweep = getattr(sweep_loops, name)
        monkeypatch.setattr(
            sweep_loops, name, lambda *given, name=name, sweep=sweep: made.append(name) or sweep(*given)
        )
    check_twins(events, tables, policy, draws[:2])
    counts = Counter(made)
    made.clear()
    monkeypatch.setattr(sweeps, "WORTH_A_LEAP", 0.0)
    check_twins(events, tables, policy, draws[:2])
    assert all(0 < counts[name] < 0.7 * made.count(name) for name in ("push", "pull"))


def check_quotients(family, policy, thetas, states, atol):
    """Slopes from a deterministic policy towards every other action of these states are difference quotients."""
    objective = by_sweeps(family)
    slope = objective.averages().slopes(policy, thetas, lambda losses: np.full(len(losses), 1.0 / len(losses))).slope
    here, small = losses_on(objective, policy[None], thetas)[0].mean(), 1e-5
    for s in states:
        for a in np.flatnonzero(policy[s] == 0.0):
            near = policy.copy()
            near[s] += small * (np.eye(policy.shape[1])[a] - policy[s])
            quotient = (losses_on(objective, near[None], thetas)[0].mean() - here) / small
            found = float(slope[s, a] - slope[s] @ policy[s])
            assert abs(found - quotient) <= 1e-3 * abs(quotient) + atol, (s, a, found, quotient)


@pytest.mark.parametrize("seed", range(8))
def test_slopes_towards_actions_not_taken_are_difference_quotients(draws, seed):
    """Where these lead, the policy may never go."""
    random = np.random.default_rng(seed)
    events, tables = twins(successors=table_of_successors(seed), start=int(random.integers(STATES)))
    policy = np.eye(ACTIONS)[random.integers(0, ACTIONS, STATES)]
    check_quotients(events, policy, draws, range(STATES), atol=1e-3)
    check_twins(events, tables, policy, draws)


def test_slopes_of_a_long_queue_towards_actions_not_taken_are_difference_quotients():
    """The policy keeps to short queues; a holiday lets 200 wait at once."""
    longest = 10_000

    def move(length, rest, event):
        step = np.array([0, 1, -1])[event]
        return np.clip(length + step + 200 * rest, 0, longest - 1)

    def chance(theta):
        return jnp.stack([1 - theta[0] - theta[1], theta[0], theta[1]])

    cost = np.sqrt(np.arange(longest))[:, None] + np.array([3.0, 0.0])
    queue = pr.EventFamily(move, chance, cost, start=0, discount=0.95, shape=(longest, 2, 3))
    works = np.tile([1.0, 0.0], (longest, 1))
    check_quotients(queue, works, np.array([[0.3, 0.5], [0.2, 0.6]]), (0, 1, 3), atol=1e-3)


@pytest.mark.parametrize("step", [pr.ProxLinear(), pr.NaturalGradient()])
def test_a_search_leaves_a_deterministic_start_for_a_state_it_never_meets(step):
    """Waiting costs 1 for ever; 1.1 once leads to the end, which is free."""
    successors = [[[0, 0], [1, 1]], [[1, 1], [1, 1]]]
    family = pr.EventFamily(successors, lambda t: jnp.stack([t[0], 1 - t[0]]), [[1.0, 1.1], [0.0, 0.0]], 0, 0.95)
    waits = np.array([[1.0, 0.0], [1.0, 0.0]])
    solver = pr.SampleAverage(samples=2, largest=2, starts=1, step=step)
    parts = {"policy": pr.Direct(), "start": waits, "occupancy": pr.Exact(pr.Sweeps.of(family.support))}
    solution = pr.solve(family, pr.Draws([[0.3], [0.6]]), solver=solver, **parts)
    assert solution.status is pr.Status.CONVERGED
    np.testing.assert_allclose(solution.evaluation.risk, 1.1, rtol=1e-9)


def test_states_that_are_never_met_have_no_visits_and_no_slope(draws, policy):
    events, _ = twins(start=5)
    found = by_sweeps(events).averages().slopes(policy, draws, np.ones_like)
    assert np.all(found.visits[:5] == 0) and np.all(found.slope[:5] == 0)
    np.testing.assert_allclose(found.visits[5], len(draws) / 0.1)


def test_bounds_are_below_exact_plans_and_close(draws):
    events, tables = twins()
    best = [float(np.asarray(tables.start) @ pr.plan(tables.at(theta)).values) for theta in draws]
    low, reason = by_sweeps(events).plans().least(equally_weighted(draws), np.full((STATES, ACTIONS), 0.5))
    assert reason == ""
    assert np.all(low <= best) and np.all(low >= np.array(best) - 1e-4)


def test_plans_leave_alone_what_is_too_far_away_to_matter(monkeypatch):
    """Against the same line as a table: free states every 50 steps, of which only the first few can matter."""
    states, swept, sweep = 5000, [], planned.sweep
    successors = np.clip(np.arange(states)[:, None, None] + np.array([[1, 0], [-1, 0]]), 0, states - 1)
    cost = np.ones((states, 2)) * (np.arange(states) % 50 != 30)[:, None]
    events, tables = twins(cost, 0.9, successors, None, lambda theta: jnp.stack([theta[0], 1 - theta[0]]))
    thetas = np.array([[0.6], [0.9]])
    best = np.array([pr.plan(tables.at(theta)).values[0] for theta in thetas])
    monkeypatch.setattr(planned, "sweep", lambda *given: swept.append((given[8], len(given[7]))) or sweep(*given))
    low, _ = by_sweeps(events).plans().least(equally_weighted(thetas), np.full((states, 2), 0.5))
    assert np.all(low <= best) and np.all(low >= best - 1e-4)
    # All states are looked at, for the bound and their actions.
    assert max(count for aim, count in swept if aim != planned.LOOK) < 500
    assert swept[-1] == (planned.LOOK, states)


def test_a_bound_holds_at_any_accuracy(draws):
    from prudent.events import Engine

    events, tables = twins(discount=0.99)
    with jax.enable_x64(True):
        for plan in Engine(events, pr.ExpectedCost(), 1e-10).plans(draws[:8], error=10.0):
            for theta, low, high in zip(draws, plan.low, plan.high, strict=False):
                best = float(np.asarray(tables.start) @ pr.plan(tables.at(theta)).values)
                assert low <= best <= high


@pytest.fixture(scope="module")
def solved():
    events, tables = twins()
    belief = pr.Draws(np.random.default_rng(4).beta(2.0, 3.0, size=(12, 2)))
    solver = pr.SampleAverage(samples=12, largest=12, starts=3, step=pr.NaturalGradient())
    how = pr.Exact(pr.Sweeps.of(events.support))
    risk = pr.CVaR(0.5)
    large = pr.solve(events, belief, risk=risk, solver=solver, occupancy=how)
    return events, tables, belief, large, pr.solve(tables, belief, risk=risk)


def test_a_certified_answer_is_that_of_tables(solved):
    _, tables, belief, large, small = solved
    again = pr.evaluate(large.policy, tables, belief, risk=pr.CVaR(0.5))
    assert large.certificate is not None and small.certificate is not None
    np.testing.assert_allclose(large.evaluation.risk, again.risk, rtol=1e-7)
    spread = float(np.ptp(small.evaluation.losses))
    assert large.evaluation.risk <= small.evaluation.risk + 2e-3 * spread
    np.testing.assert_allclose(large.certificate.lower_bound, small.certificate.lower_bound, atol=1e-4)
    assert large.certificate.exact and large.certificate.draws == 12


def test_a_search_ends_where_no_policy_can_be_better_by_more_than_the_tolerance(solved):
    events, _, belief, large, _ = solved
    solver = pr.SampleAverage(samples=12, largest=12, starts=3, step=pr.NaturalGradient(), tolerance=0.5)
    rough = pr.solve(events, belief, risk=pr.CVaR(0.5), solver=solver, occupancy=pr.Exact(pr.Sweeps.of(events.support)))
    assert rough.status is pr.Status.CONVERGED and rough.iterations < large.iterations
    assert rough.certificate is not None
    assert rough.certificate.gap <= 0.5 * float(np.ptp(np.asarray(rough.evaluation.losses)))
    again = pr.solve(
        events, belief, risk=pr.CVaR(0.5), solver=solver, occupancy=pr.Exact(pr.Sweeps.of(events.support)), resume=rough
    )
    assert again.iterations == rough.iterations


class NotMonotone(pr.Risk):
    """CVaR, but by a user who does not vouch for it."""

    tail: pr.CVaR

    @property
    def monotone(self):
        return False

    def density(self, losses, probabilities):
        return self.tail.density(losses, probabilities)


@pytest.mark.parametrize(("risk", "ends"), [(pr.CVaR(0.5), True), (NotMonotone(pr.CVaR(0.5)), False)])
def test_a_search_ends_at_a_bound_where_the_risk_is_monotone_alone(solved, monkeypatch, risk, ends):
    """The risk of each draw's least loss is no bound otherwise."""
    events, _, belief, _, _ = solved
    proven = []

    def noted(question, *rest):
        proven.append(question.proven)
        return evaluate_points(question, *rest)

    monkeypatch.setattr(search, "evaluate_points", noted)
    solver = pr.SampleAverage(samples=12, largest=12, starts=3, step=pr.NaturalGradient(), iterations=2)
    how = pr.Exact(pr.Sweeps.of(events.support))
    pr.solve(events, belief, risk=risk, solver=solver, occupancy=how, certify=False)
    assert proven and all(each == ends for each in proven)


def test_stationarity_holds_of_every_change_of_the_policy(solved):
    _, tables, belief, large, _ = solved
    table, random = np.asarray(large.policy.probabilities), np.random.default_rng(5)
    for _ in range(50):
        to = np.eye(ACTIONS)[random.integers(0, ACTIONS, STATES)]
        near = table + 1e-4 * (to - table)
        gain = large.evaluation.risk - pr.evaluate(near, tables, belief, risk=pr.CVaR(0.5)).risk
        assert gain / 1e-4 <= large.certificate.stationarity + 1e-3


@pytest.mark.parametrize(
    ("shape", "probability"),
    [((1, 1, 1), [1.0]), ((1, 3, 2), [0.25, 0.75]), ((3, 1, 2), [[0.5, 0.5]]), ((2, 2, 2), [[0.1, 0.9], [1.0, 0.0]])],
)
def test_the_least_families_there_are(shape, probability):
    states, actions, _ = shape
    cost = np.arange(states * actions, dtype=float).reshape(states, actions) + 1.0

    def move(state, action, event):
        return (state + action + event) % states

    events = pr.EventFamily(move, probability, cost, start=0, discount=0.5, shape=shape)
    uniform = np.full((states, actions), 1.0 / actions)
    how = pr.Exact(pr.Sweeps.of(events.support))
    exact, close = (pr.loss_at(uniform, events, [0.0], occupancy=way) for way in (pr.Exact(), how))
    np.testing.assert_allclose(close, exact, rtol=1e-8)
    low = by_sweeps(events).plans().least(equally_weighted(np.zeros((1, 1))), uniform)[0]
    best = float(np.asarray(events.start) @ pr.plan(events.at([0.0])).values)
    assert best - 1e-4 <= low[0] <= best


@pytest.mark.long
def test_levels_and_scales_of_costs_change_nothing(draws, policy):
    """Costs a c + b: the same slopes in units, and bounds that move along."""
    plain, _ = twins(cost=COST)
    moved, _ = twins(cost=1e-6 * COST + 7.0)
    with jax.enable_x64(True):
        first, _ = by_sweeps(plain).in_units(draws)
        second, unit = by_sweeps(moved).in_units(draws)
    one, two = (objective.averages().slopes(policy, draws, np.ones_like) for objective in (first, second))
    np.testing.assert_allclose(one.slope, two.slope, rtol=1e-5, atol=1e-6)
    low = [by_sweeps(family).plans().least(equally_weighted(draws), policy)[0] for family in (plain, moved)]
    np.testing.assert_allclose(low[1], 1e-6 * low[0] + 70.0, rtol=1e-9)
    assert unit.scale > 0


def test_every_kind_of_probabilities_is_the_same_kernel():
    shape, row = (4, 2, 3), np.array([0.2, 0.3, 0.5])
    kinds = {
        "all": (row, None),
        "action": (np.tile(row, (2, 1)), None),
        "pair": (np.tile(row, (4, 2, 1)), None),
        "class": (np.tile(row, (3, 1)), [0, 2, 1, 0]),
    }
    tables = [
        pr.EventFamily(lambda s, a, e: (s + e) % 4, chances, np.ones((4, 2)), 0, 0.9, classes=classes, shape=shape)
        .at([0.0])
        .kernel.table()
        for chances, classes in kinds.values()
    ]
    for table in tables[1:]:
        np.testing.assert_array_equal(table, tables[0])
    np.testing.assert_allclose(tables[0][1, 0], [0.0, 0.2, 0.3, 0.5])


def test_costs_of_events_are_averaged():
    costs = np.arange(6.0).reshape(1, 2, 3)
    family = pr.EventFamily(np.zeros((1, 2, 3), int), [0.2, 0.3, 0.5], costs, 0, 0.9)
    np.testing.assert_allclose(family.at([0.0]).cost, [[0.3 + 1.0, 0.6 + 1.2 + 2.5]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"successors": [[[0, 7, 0]]]}, "successor 7"),
        ({"successors": [0, 1]}, r"\[state, action, event\]"),
        ({"successors": lambda s, a, e: s}, "shape="),
        ({"successors": lambda s, a, e: int(s), "shape": (2, 1, 3)}, "NumPy arrays"),
        ({"probability": [0.5, 0.6, 0.1]}, "sum to"),
        ({"probability": [[0.5, 0.5]]}, "without classes"),
        ({"classes": [0, 0]}, "classes must have shape"),
        ({"classes": [2]}, "class 2 at row 0 is unknown"),
        (
            {"successors": [[[0, 0, 0]]] * 3, "cost": [[1.0]] * 3, "classes": [0, 1, 2]},
            "3 classes of 3 events need",
        ),
        ({"cost": [1.0]}, "cost must have shape"),
    ],
)
def test_what_is_no_event_family_is_refused(change, message):
    given = {"successors": [[[0, 0, 0]]], "probability": [0.5, 0.3, 0.2], "cost": [[1.0]], "start": 0, "discount": 0.9}
    with pytest.raises(pr.InputError, match=message):
        pr.EventFamily(**(given | change))


def test_draws_without_a_model_are_refused():
    events, _ = twins()
    with pytest.raises(pr.InputError, match="class 0"):
        by_sweeps(events).check(np.array([[2.5, 0.5]]))


def test_sweeps_are_for_event_families_alone():
    _, tables = twins()
    with pytest.raises(pr.InputError, match="event families"):
        tables.objective(occupancy=pr.Exact(pr.Sweeps.of(tables.support)))


def test_large_families_choose_sweeps_by_themselves():
    line = pr.EventFamily(
        lambda s, a, e: np.clip(s + np.where(a == 0, 1, -1) * (1 - e), 0, 4999),
        lambda theta: jnp.stack([theta[0], 1 - theta[0]]),
        np.ones((5000, 2)) * (np.arange(5000) != 40)[:, None],
        start=0,
        discount=0.9,
        shape=(5000, 2, 2),
    )
    assert objective_of(line).averages() is not None
    assert pr.envs.frozen_lake().objective().averages() is None
    right = np.tile([1.0, 0.0], (5000, 1))
    # One step on with chance q each time: E[discount^T] for the 40 steps to the free state, past which it costs again.
    q, g = 0.6, 0.9
    step = g * q / (1 - g * (1 - q))
    np.testing.assert_allclose(pr.loss_at(right, line, [q]), 10.0 - step**40 / (1 - g * (1 - q)), rtol=1e-8)
