"""Optimisers on fixed samples: their gradients, steps, status, resumption, and the awkward cases."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import prudent as pr
from prudent.engine import ModelBatch, plan, table_rows
from prudent.gradients import Adjoint, SampledRisk
from prudent.objectives import slopes_on
from prudent.planning import least_costs, robust_actions
from prudent.posteriors import equally_weighted
from prudent.records import tree_leaves, tree_map
from prudent.seeds import child
from prudent.solvers import question as question_module
from prudent.solvers.descent import CONVERGED, DROPPED, GOING, HELD, begin, halved
from prudent.solvers.limits.adjusting import first_adjustment
from prudent.solvers.natural import advantage
from prudent.solvers.quasi_newton import Pairs, newton_directions
from prudent.solvers.question import Question, evaluate_points
from prudent.solvers.search import Search, answer_of
from prudent.solvers.space import select, space_of

from .problems import numpy_occupancy, random_policy, softmax
from .sound_parts import table

STATES, ACTIONS, DISCOUNT = 3, 2, 0.9
SUPPORT = pr.Support.dense(STATES, ACTIONS)
LISTS = pr.Support.lists(np.broadcast_to(np.arange(STATES), (STATES, ACTIONS, STATES)))
COST = np.random.default_rng(1).uniform(size=(STATES, ACTIONS))
FAMILY = pr.TabularFamily(SUPPORT, COST, start=0, discount=DISCOUNT)
BELIEF = pr.Dirichlet.symmetric(SUPPORT)
QUICK = pr.SampleAverage(samples=16, largest=64, starts=4, evaluation=40)
ALONE = pr.SampleAverage(samples=16, largest=16, starts=1, evaluation=40)
NATURAL = dataclasses.replace(ALONE, step=pr.NaturalGradient())


def problem(loss=None, policy=None):
    return FAMILY.objective(loss=loss, policy=policy)


def solve(**changes):
    return pr.solve(FAMILY, BELIEF, **({"risk": pr.CVaR(0.5), "solver": QUICK} | changes))


def numpy_loss(theta, policy):
    return float((numpy_occupancy(theta, policy, np.eye(STATES)[0], DISCOUNT) * COST).sum())


def cvar(losses, level):
    """The definition, by sorting: independent of the library's."""
    worst = np.sort(losses)[::-1]
    share = np.clip((1 - level) * len(losses) - np.arange(len(losses)), 0.0, 1.0)
    return float((share * worst).sum() / ((1 - level) * len(losses)))


def deterministic_policies():
    return [np.eye(ACTIONS)[list(actions)] for actions in itertools.product(range(ACTIONS), repeat=STATES)]


# Gradients by the table.


def evaluate(points, thetas, risk, active=None):
    question = Question.unlimited(problem(), risk, equally_weighted(thetas))
    return evaluate_points(question, points, np.ones(len(points), bool) if active is None else active)


def test_slopes_agree_with_finite_differences_and_with_the_estimator():
    random = np.random.default_rng(0)
    thetas, logits = BELIEF.sample(3, 12), random.normal(size=(1, STATES, ACTIONS))
    tables, risk = softmax(logits), pr.CVaR(0.5)
    with jax.enable_x64(True):
        found = evaluate(tables, thetas, risk)
        stacked = tree_map(lambda leaf: np.asarray(leaf)[None], risk)
        shares = np.full((1, len(thetas)), 1.0 / len(thetas))
        _, gradient = Adjoint()(SampledRisk(problem(), stacked, thetas[None], shares), logits)
        pulled = problem().pull_back(logits, found.slopes[:, 0])
    assert np.allclose(pulled, gradient, rtol=1e-9)
    assert found.values[0, 0] == pytest.approx(cvar([numpy_loss(theta, tables[0]) for theta in thetas], 0.5), rel=1e-9)
    direction = random.normal(size=(STATES, ACTIONS))
    direction -= direction.mean(axis=1, keepdims=True)
    up, down = (
        cvar([numpy_loss(theta, tables[0] + step * direction) for theta in thetas], 0.5) for step in (1e-6, -1e-6)
    )
    assert (found.slopes[0, 0] * direction).sum() == pytest.approx((up - down) / 2e-6, rel=1e-6)
    visits = np.array([numpy_occupancy(theta, tables[0], np.eye(STATES)[0], DISCOUNT).sum(axis=1) for theta in thetas])
    assert np.allclose(found.visits[0, 0], found.weights[0, 0] @ visits / 12)


def test_two_passes_find_what_one_does_and_inactive_policies_cost_nothing(monkeypatch):
    thetas, random = BELIEF.sample(3, 30), np.random.default_rng(0)
    policies = np.stack([random_policy(random, STATES, ACTIONS) for _ in range(3)])
    active = np.array([True, False, True])
    once = evaluate(policies, thetas, pr.CVaR(0.5), active)
    alone = evaluate(policies[2:], thetas, pr.CVaR(0.5))
    # Models too large to keep all slopes are met twice, and only where they have a weight.
    monkeypatch.setattr(question_module, "KEPT_BYTES", 0)
    twice = evaluate(policies, thetas, pr.CVaR(0.5), active)
    assert once.models == twice.models == 60 and len(once.each) == 1 and twice.each == ()
    assert np.isnan(once.values[1]).all() and not once.slopes[1].any()
    assert np.array_equal(once.slopes[2], alone.slopes[0])
    assert np.array_equal(once.each[0][once.place[2]], alone.each[0][0])
    for name in ("values", "losses", "weights", "slopes", "visits"):
        assert np.allclose(getattr(once, name), getattr(twice, name), rtol=1e-12, equal_nan=True), name


def test_the_natural_direction_is_the_advantage_averaged_under_the_risks_weights():
    thetas = BELIEF.sample(5, 9)
    policy = random_policy(np.random.default_rng(2), STATES, ACTIONS)
    with jax.enable_x64(True):
        found = evaluate(policy[None], thetas, pr.CVaR(0.5))
    top, bottom = np.zeros((STATES, ACTIONS)), np.zeros(STATES)
    for theta, weight in zip(thetas, found.weights[0, 0], strict=True):
        chain = np.einsum("sa,sat->st", policy, theta)
        values = np.linalg.solve(np.eye(STATES) - DISCOUNT * chain, (policy * COST).sum(axis=1))
        visits = numpy_occupancy(theta, policy, np.eye(STATES)[0], DISCOUNT).sum(axis=1)
        top += weight * visits[:, None] * (COST + DISCOUNT * theta @ values - values[:, None])
        bottom += weight * visits
    assert np.allclose(
        advantage(policy[None], found.slopes[:, 0], found.visits[:, 0])[0], top / bottom[:, None], rtol=1e-9
    )


def test_quasi_newton_directions_are_those_of_the_inverse_hessian_updates():
    random = np.random.default_rng(4)
    size, pairs = 5, 3
    root = random.normal(size=(size, size))
    hessian = root @ root.T + np.eye(size)
    steps = random.normal(size=(pairs, size))
    changes = steps @ hessian
    inverse = np.eye(size) * (steps[-1] @ changes[-1]) / (changes[-1] @ changes[-1])
    for step, change in zip(steps, changes, strict=True):
        rho = 1.0 / (step @ change)
        left = np.eye(size) - rho * np.outer(step, change)
        inverse = left @ inverse @ left.T + rho * np.outer(step, step)
    # One slot more than there are pairs: empty ones come first and count for nothing.
    memory = Pairs(
        np.concatenate([np.zeros((1, size)), steps])[None],
        np.concatenate([np.zeros((1, size)), changes])[None],
        np.array([[False, True, True, True]]),
        np.ones(1),
    )
    gradient = random.normal(size=(1, size))
    assert np.allclose(newton_directions(memory, gradient)[0], inverse @ gradient[0], rtol=1e-9)


# Planning many models.


def batch_of_tables(support, thetas, costs):
    """Return the models with these tables `[N, S, A, B]` and costs `[N, S, A]`."""
    rows = np.moveaxis(thetas.reshape(len(thetas), STATES * ACTIONS, -1), 0, -1)
    cost, start = np.moveaxis(costs, 0, -1), np.eye(STATES)[0]
    return ModelBatch(support.index(), table_rows(STATES, ACTIONS), rows, cost, start, DISCOUNT)


@pytest.mark.parametrize("support", [SUPPORT, LISTS], ids=["dense", "lists"])
def test_many_plans_are_the_plans_of_each(support):
    random = np.random.default_rng(7)
    thetas = random.dirichlet(np.ones(STATES), size=(6, STATES, ACTIONS))
    costs = random.uniform(size=(6, STATES, ACTIONS))
    batch = batch_of_tables(support, thetas, costs)
    plans = plan(batch, guess=random.normal(size=(STATES, 1)))
    for k in range(6):
        single = pr.plan(pr.MDP(pr.Kernel(support, thetas[k]), costs[k], 0, DISCOUNT))
        assert np.allclose(plans.values[:, k], single.values, rtol=1e-10)
        assert np.array_equal(plans.action[:, k], single.policy.greedy())
    assert np.all(plans.low <= plans.values[0]) and np.all(plans.values[0] <= plans.high)
    assert np.allclose(plans.low, plans.values[0], rtol=1e-9)
    # A long horizon comes to the same, and each horizon is below every stationary policy's truncated cost.
    assert np.allclose(least_costs(batch, batch.cost, horizon=400), plans.low, rtol=1e-9)
    short = least_costs(batch, batch.cost, horizon=5)
    for policy in deterministic_policies():
        for k in range(6):
            mdp = pr.MDP(pr.Kernel(support, thetas[k]), costs[k], 0, DISCOUNT)
            assert short[k] <= (pr.occupancy(mdp, policy, pr.Truncated(5)) * costs[k]).sum() + 1e-12


def test_the_robust_start_is_best_against_the_worst_model_of_each_pair():
    random = np.random.default_rng(8)
    thetas = random.dirichlet(np.ones(STATES), size=(4, STATES, ACTIONS))
    costs = np.broadcast_to(COST, (4, STATES, ACTIONS))

    def worst_value(policy):
        values = np.zeros(STATES)
        for _ in range(600):
            quality = (costs + DISCOUNT * np.einsum("msat,t->msa", thetas, values)).max(axis=0)
            values = (policy * quality).sum(axis=1)
        return values.sum()

    chosen = np.eye(ACTIONS)[robust_actions(batch_of_tables(SUPPORT, thetas, costs), np.moveaxis(costs, 0, -1))]
    assert worst_value(chosen) == pytest.approx(min(worst_value(policy) for policy in deterministic_policies()))


# Runs.


def test_a_known_model_is_solved_to_its_plan():
    theta = BELIEF.sample(1, 1)[0]
    for policy in (pr.Softmax(), pr.Direct(within=pr.Simplex(0.05))):
        solution = pr.solve(FAMILY, pr.Point(theta), policy=policy, solver=QUICK)
        floor = policy.within.floor if isinstance(policy, pr.Direct) else 0.0
        tables = [floor + (1 - ACTIONS * floor) * choice for choice in deterministic_policies()]
        best = min(numpy_loss(theta, choice) for choice in tables)
        assert solution.status is pr.Status.CONVERGED
        assert solution.risk == pytest.approx(best, rel=2e-4)
        free = min(numpy_loss(theta, choice) for choice in deterministic_policies())
        assert solution.certificate.gap == pytest.approx(solution.risk - free, abs=1e-9)


def test_no_policy_of_a_fine_grid_is_better_than_the_answer_on_a_posterior_of_few_atoms():
    atoms = BELIEF.sample(6, 3)
    solution = pr.solve(FAMILY, pr.Draws(atoms), risk=pr.CVaR(0.5), solver=QUICK)
    counts = np.array([(np.abs(solution.thetas - atom).max(axis=(1, 2, 3)) < 1e-12).sum() for atom in atoms])
    shares = np.linspace(0.0, 1.0, 9)
    grid = [np.stack([[x, 1 - x] for x in row]) for row in itertools.product(shares, repeat=STATES)]

    def risk_of(policy):
        return cvar(np.repeat([numpy_loss(atom, policy) for atom in atoms], counts), 0.5)

    assert risk_of(np.asarray(solution.policy.probabilities)) == pytest.approx(solution.risk, rel=1e-9)
    # The grid knows the evaluation's own counts, the answer only the posterior: that much chance is allowed.
    assert solution.risk <= min(map(risk_of, grid)) * 1.01


@pytest.mark.long
@pytest.mark.parametrize(
    "policy",
    [pr.Softmax(pr.Box(-1.0, 1.0)), pr.Softmax(pr.Ball(1.0)), pr.Neural(np.eye(STATES), width=4), pr.Direct()],
    ids=["box", "ball", "neural", "direct"],
)
def test_every_parametrisation_ends_where_its_own_gradient_vanishes_or_better_than_plain_steps(policy):
    ours = solve(policy=policy, solver=dataclasses.replace(ALONE, iterations=150))
    plain = solve(policy=policy, solver=pr.BRPG(samples=16, iterations=60, step=0.3, evaluation=40))
    assert ours.status.ok
    assert ours.risk <= plain.risk * 1.01
    if isinstance(policy, pr.Softmax):
        assert np.allclose(ours.parameters, policy.within.project(ours.parameters), atol=1e-6)


def test_the_status_is_true():
    few = solve(solver=dataclasses.replace(NATURAL, iterations=2))
    assert few.status is pr.Status.ITERATION_LIMIT
    assert few.iterations == len(few.history) == 2
    done = solve(solver=ALONE)
    assert done.status is pr.Status.CONVERGED
    iterates = done.checkpoint.state.iterates
    assert iterates.gap[0] <= 1e-4 * iterates.spread[0] + 1e-9 * iterates.size[0]
    assert done.models == 16 * done.iterations
    # A sample that may not grow and still moves the answer says so.
    noisy = solve(risk=pr.CVaR(0.95), solver=dataclasses.replace(QUICK, samples=2, largest=8))
    assert noisy.status in (pr.Status.SAMPLE_LIMIT, pr.Status.CONVERGED, pr.Status.STALLED)
    assert pr.Status.SAMPLE_LIMIT.ok
    assert pr.Status.STALLED.ok


def same(first, second):
    pairs = zip(tree_leaves(first), tree_leaves(second), strict=True)
    return all(np.array_equal(one, other, equal_nan=True) for one, other in pairs)


@pytest.mark.parametrize(("step", "cut"), [(None, -1), (pr.NaturalGradient(), 6), (pr.LBFGS(), 6)])
def test_a_run_cut_in_two_repeats_the_bits_of_an_uninterrupted_one(step, cut):
    settings = dataclasses.replace(QUICK, step=step)
    whole = solve(solver=settings)
    cut = cut if cut > 0 else whole.iterations - 1
    first = solve(solver=dataclasses.replace(settings, iterations=cut))
    assert first.status is pr.Status.ITERATION_LIMIT
    second = solve(solver=settings, resume=first)
    assert second.status is whole.status
    for name in ("parameters", "losses", "history", "iterations", "models"):
        assert same(getattr(whole, name), getattr(second, name)), name
    assert same(whole.checkpoint, second.checkpoint)


def test_a_finished_run_goes_on_only_at_a_lower_tolerance():
    done = solve(solver=NATURAL)
    again = solve(solver=NATURAL, resume=done)
    assert same(done.parameters, again.parameters)
    assert again.iterations == done.iterations
    finer = solve(solver=dataclasses.replace(NATURAL, tolerance=1e-6), resume=done)
    assert finer.iterations > done.iterations
    assert finer.checkpoint.state.iterates.gap[0] < done.checkpoint.state.iterates.gap[0]


@pytest.mark.long
def test_many_runs_agree_with_single_ones():
    risks = [pr.CVaR(0.0), pr.CVaR(0.5)]
    grid = pr.solve_many(FAMILY, [BELIEF, BELIEF], risks, solver=QUICK, seed=4)
    for i in range(2):
        for j, risk in enumerate(risks):
            single = pr.solve(FAMILY, BELIEF, risk=risk, solver=QUICK, seed=child(4, i))
            assert grid[i][j].status is single.status
            assert grid[i][j].risk == pytest.approx(single.risk, rel=1e-6)
            assert grid[i][j].certificate.gap == pytest.approx(single.certificate.gap, abs=1e-6)


def test_the_default_gives_way_where_a_gradient_or_a_risk_asks_for_it():
    from prudent.solvers.jobs import default_solver

    half = pr.Envelope(lambda xi, p: [xi <= 2.0])
    assert isinstance(default_solver(pr.Adjoint(), [pr.CVaR(0.9)]), pr.SampleAverage)
    assert isinstance(default_solver(pr.ZerothOrder(), [pr.CVaR(0.9)]), pr.BRPG)
    assert isinstance(default_solver(pr.Adjoint(), [0.5 * pr.Expectation() + 0.5 * half]), pr.BRPG)


# Awkward cases.


def tiny(states, actions, cost):
    support = pr.Support.dense(states, actions)
    family = pr.TabularFamily(support, np.broadcast_to(cost, (states, actions)), start=0, discount=DISCOUNT)
    return family, pr.Dirichlet.symmetric(support)


@pytest.mark.parametrize(
    ("states", "actions", "cost", "answer"),
    [
        (3, 2, 1.0, 10.0),
        (3, 2, 0.0, 0.0),
        pytest.param(1, 2, [[2.0, 1.0]], 10.0, marks=pytest.mark.long),
        pytest.param(3, 1, 1.0, 10.0, marks=pytest.mark.long),
        (1, 1, 3.0, 30.0),
        (1, 3, [[1.0, 1.0, 5.0]], 10.0),
    ],
    ids=["ties", "flat", "one state", "one action", "one of both", "tie for the best"],
)
def test_ties_flat_regions_and_single_states_and_actions_are_answered(states, actions, cost, answer):
    family, belief = tiny(states, actions, cost)
    solution = pr.solve(family, belief, solver=QUICK)
    assert solution.status is pr.Status.CONVERGED
    assert solution.risk == pytest.approx(answer, rel=2e-4, abs=1e-12)
    assert solution.certificate.gap == pytest.approx(0.0, abs=2e-4 * (1 + answer))
    assert solution.certificate.stationarity == pytest.approx(0.0, abs=0.05)


def test_one_draw_and_one_atom_are_answered():
    theta = BELIEF.sample(2, 1)
    best = min(numpy_loss(theta[0], policy) for policy in deterministic_policies())
    for belief in (pr.Draws(theta), pr.Point(theta[0])):
        for solver in (ALONE, dataclasses.replace(ALONE, samples=1, largest=1, evaluation=1)):
            solution = pr.solve(FAMILY, belief, risk=pr.CVaR(0.9), solver=solver)
            assert solution.status is pr.Status.CONVERGED
            assert solution.risk == pytest.approx(best, rel=2e-4)
            assert solution.certificate.drivers == ()
    single = solve(solver=dataclasses.replace(ALONE, samples=1, largest=1, evaluation=1))
    assert single.status.ok
    assert single.certificate.lower_bound <= single.risk


def test_a_loss_that_is_no_number_somewhere_is_stepped_around():
    def fenced(occupancy, mdp):
        used = occupancy[:, 0].sum()
        return jnp.where(used < 9.0, (occupancy * mdp.cost).sum(), jnp.nan) - 0.3 * used

    solution = solve(loss=fenced, solver=ALONE)
    assert solution.status is not pr.Status.NON_FINITE
    assert np.all(np.isfinite(solution.history.objective))


@table(
    ("no draws", lambda: pr.SampleAverage(samples=0), r"samples must be a whole number >= 1"),
    ("shrinking", lambda: pr.SampleAverage(samples=64, largest=32), r"largest is 32, below samples, which is 64"),
    ("no starts", lambda: pr.SampleAverage(starts=0), r"starts must be a whole number >= 1"),
    (
        "a step length",
        lambda: pr.SampleAverage(step=0.1),
        r"step must be ProxLinear\(\), NaturalGradient\(\) or LBFGS\(\)",
    ),
    ("a negative tolerance", lambda: pr.SampleAverage(tolerance=-1.0), r"tolerance must lie in \[0, inf\), got -1.0"),
    ("no memory", lambda: pr.LBFGS(memory=0), r"memory must be a whole number >= 1"),
    (
        "natural steps of a network",
        lambda: solve(policy=pr.Neural(np.eye(3)), solver=pr.SampleAverage(step=pr.NaturalGradient())),
        r"rows can be chosen one by one.*use LBFGS",
    ),
    ("an estimator", lambda: solve(gradient=pr.ZerothOrder()), r"gradient must be Adjoint\(\).*BRPG"),
    ("another solver's run", lambda: solve(solver=ALONE, resume=solve(solver=SHORT)), r"solver of the first call"),
    ("a run for the paper's", lambda: solve(solver=SHORT, resume=solve(solver=ALONE)), r"solver of the first call"),
    ("another seed", lambda: solve(solver=ALONE, resume=solve(solver=ALONE), seed=3), r"seed of the first call"),
    ("a string", lambda: solve(solver="natural"), r"solver must be SampleAverage\(...\) or BRPG\(...\)"),
)
def test_refusals(call, message):
    with pytest.raises(pr.InputError, match=message):
        call()


SHORT = pr.BRPG(samples=4, iterations=2, evaluation=4)


def test_model_slopes_pair_any_policy_with_any_draw_and_need_no_multiple_of_a_chunk():
    thetas = BELIEF.sample(0, 5)
    policies = np.stack([random_policy(np.random.default_rng(k), STATES, ACTIONS) for k in range(3)])
    which, draws = np.array([0, 2, 1, 1, 0, 2, 2]), np.array([4, 0, 3, 3, 1, 2, 0])
    with jax.enable_x64(True):
        losses, slopes, visits = slopes_on(problem(), policies, thetas, which, draws)
        other = slopes_on(problem(), policies[which], thetas[draws], np.arange(7), np.arange(7))
    assert np.allclose(losses, [numpy_loss(thetas[r], policies[k]) for k, r in zip(which, draws, strict=True)])
    for ours, theirs in zip((losses, slopes, visits), other, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_merged_point_never_leads():
    """The better of two that were merged may rise by a rounding error; with it the search once ended on the other."""
    space = space_of(problem(), BELIEF.mean())
    points = begin(space, np.stack([np.zeros((STATES, ACTIONS)), np.ones((STATES, ACTIONS))]))
    after = {"value": np.array([1.0, 1.0 + 1e-14]), "spread": np.zeros(2), "finished": np.array([DROPPED, GOING])}
    points = dataclasses.replace(points, **after)
    answer = answer_of(Search(points, float("nan"), first_adjustment((), np.zeros(0))))
    assert answer.code == GOING and np.array_equal(answer.parameters, select(points.parameters, [1]))


def test_the_worse_half_of_the_starts_goes_no_further_but_for_two():
    space = space_of(problem(), BELIEF.mean())
    points = begin(space, np.zeros((7, STATES, ACTIONS)))
    value = np.array([3.0, 1.0, np.inf, 2.0, 5.0, 0.5, 0.0])
    finished = np.array([GOING, CONVERGED, GOING, GOING, GOING, DROPPED, HELD])
    points = dataclasses.replace(points, value=value, finished=finished)
    once = halved(points)
    # Five are left, of which three stay; the start that was given and what was dropped before are as they were.
    assert once.finished.tolist() == [GOING, CONVERGED, DROPPED, GOING, DROPPED, DROPPED, HELD]
    twice = halved(once)
    assert twice.finished.tolist() == [DROPPED, CONVERGED, DROPPED, GOING, DROPPED, DROPPED, HELD]
    assert halved(twice).finished.tolist() == twice.finished.tolist()
