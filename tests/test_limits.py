"""Limits against linear programs, brute force, finite differences and what was asked for."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import prudent as pr
from prudent.evaluation import judged
from prudent.posteriors import WeightedDraws
from prudent.solvers import limit_answer

from .limited_problems import LimitedProblem, by_brute_force, occupancy_program, told_program
from .marks import short

LAKE = pr.envs.frozen_lake("SF\nHG")
HOLE = pr.Visits([2], per=1)


def multipliers(solution):
    return np.array([answer.multiplier for answer in solution.limits])


def check_known(seed):
    """A problem with known theta against the linear program in the occupancy."""
    problem = LimitedProblem(seed, known=True, states=4, actions=3)
    exact = occupancy_program(problem)
    solution = problem.solved()
    if exact is None:
        assert solution.status is pr.Status.INFEASIBLE
        return
    value, prices = exact
    assert solution.status is pr.Status.CONVERGED_WITHIN_LIMITS
    assert solution.risk == pytest.approx(value, abs=1e-6)
    assert np.all(problem.limit_values(np.asarray(solution.policy.probabilities)[None])[0] <= problem.at_most + 1e-12)
    assert solution.certificate.lower_bound == pytest.approx(value, abs=1e-6)
    # Where the program's multipliers are unique a change of the limits either way tells the same price.
    for j in range(len(prices)):
        more, less = (
            occupancy_program(problem, problem.at_most + 1e-5 * sign * np.eye(len(prices))[j]) for sign in (1, -1)
        )
        if less is not None and abs((less[0] - value) - (value - more[0])) <= 1e-10:
            assert solution.limits[j].multiplier == pytest.approx(prices[j], abs=1e-4)


@pytest.mark.parametrize("seed", short([1], [1, 2]))
def test_known_theta_is_the_linear_program(seed):
    check_known(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100))
def test_known_theta_is_the_linear_program_a_hundred_times(seed):
    check_known(seed)


@pytest.mark.parametrize("step", [pr.NaturalGradient(), pr.LBFGS()], ids=["natural", "quasi-newton"])
@pytest.mark.parametrize("seed", short([2], [1, 2, 4]))
def test_steps_that_see_the_penalty_alone_come_near_the_program(seed, step):
    problem = LimitedProblem(seed, known=True, states=4, actions=3)
    exact = occupancy_program(problem)
    assert exact is not None
    solution = problem.solved(solver=pr.SampleAverage(step=step, iterations=1000))
    spread = max(np.ptp(problem.costs) / (1.0 - problem.discount), 1.0)
    assert solution.status is not pr.Status.LIMIT_BROKEN
    assert exact[0] - 1e-9 <= solution.risk <= exact[0] + 0.01 * spread


def test_a_run_with_limits_cut_anywhere_repeats_the_bits_of_an_uninterrupted_one():
    belief = LAKE.prior.update(LAKE.trials(n=5, truth=(0.3, 0.1), seed=0))
    limit = pr.Limit(HOLE, at_most=0.4, chance=0.9)
    settings = pr.SampleAverage(samples=32, largest=128, starts=3, evaluation=500)

    def solve(iterations, resume=None):
        solver = dataclasses.replace(settings, iterations=iterations)
        return pr.solve(LAKE, belief, subject_to=[limit], solver=solver, resume=resume, certify=False)

    whole = solve(300)
    assert whole.iterations > 10
    for cut in (3, whole.iterations // 2, whole.iterations - 1):
        second = solve(300, solve(cut))
        assert second.status is whole.status and second.iterations == whole.iterations
        assert np.array_equal(second.parameters, whole.parameters)
        assert np.array_equal(second.limits[0].multiplier, whole.limits[0].multiplier, equal_nan=True)
    with pytest.raises(pr.InputError, match="subject_to of the first call"):
        pr.solve(LAKE, belief, subject_to=[pr.Limit(HOLE, at_most=0.5)], solver=settings, resume=whole)


def test_a_limit_on_a_model_solved_by_sweeps_is_that_of_its_tables():
    queue = 12
    successors = np.stack(
        [
            np.stack([np.maximum(np.arange(queue) - serve, 0), np.minimum(np.arange(queue) + 1, queue - 1)], axis=1)
            for serve in (0, 1, 2)
        ],
        axis=1,
    )

    def chance(theta):
        return jnp.stack([1.0 - theta[0], theta[0]])

    cost = np.arange(queue)[:, None] + np.array([0.0, 1.0, 4.0])
    events = pr.EventFamily(successors, chance, cost, start=3, discount=0.9)
    tables = pr.Family(pr.Support.lists(successors), events.probability, cost, start=3, discount=0.9)
    belief = pr.Draws(np.array([[0.3], [0.5], [0.6]]))
    limit = pr.Limit(pr.CostTable(np.broadcast_to(np.array([0.0, 1.0, 2.0]), (queue, 3))), at_most=5.0)
    exact = pr.solve(tables, belief, subject_to=[limit])
    assert exact.status is pr.Status.CONVERGED_WITHIN_LIMITS and exact.limits[0].multiplier > 0.1
    swept = pr.solve(
        events,
        belief,
        subject_to=[limit],
        occupancy=pr.Exact(pr.Sweeps.of(events.support)),
        solver=pr.SampleAverage(step=pr.NaturalGradient(), iterations=600),
    )
    assert swept.limits[0].verdict is pr.Verdict.KEPT
    assert exact.risk - 1e-6 <= swept.risk <= exact.risk + 0.02 * abs(exact.risk)


def check_atoms(seed):
    """A problem with a few atoms against all policies of two actions on grids, and programs at the atoms."""
    problem = LimitedProblem(seed, states=2 + seed % 2, actions=2)
    solution, best = problem.solved(), by_brute_force(problem)
    table = np.asarray(solution.policy.probabilities)[None]
    if solution.status.ok:
        assert np.all(problem.limit_values(table)[0] <= problem.at_most + 1e-12)
        assert solution.risk <= 1.005 * best
    if solution.status is pr.Status.INFEASIBLE:
        assert told_program(problem, objective=False) > 1e-9
        assert best == np.inf
    elif solution.certificate.lower_bound is not None:
        told = told_program(problem)
        assert told is None or solution.certificate.lower_bound <= told + 1e-7 * abs(told)
        assert solution.certificate.lower_bound <= best + 1e-9
    if np.isfinite(best):
        assert solution.status.ok


@pytest.mark.parametrize("seed", short([2], [2, 8]))
def test_atoms_are_as_good_as_brute_force(seed):
    check_atoms(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100))
def test_atoms_are_as_good_as_brute_force_a_hundred_times(seed):
    check_atoms(seed)


def check_price(seed):
    """Multipliers against what a slightly looser and a slightly tighter limit cost."""
    problem = LimitedProblem(seed, limits=1, most=5, states=2 + seed % 2, actions=2)
    solution = problem.solved()
    if not solution.status.ok or solution.limits[0].multiplier < 1e-3:
        return False
    step = 1e-4 * abs(float(problem.at_most[0]))
    values = [
        problem.solved(problem.at_most + sign * step, start=solution.parameters, solver=pr.SampleAverage(starts=1)).risk
        for sign in (-1, 1)
    ]
    falls = values[0] - solution.risk, solution.risk - values[1]
    if abs(falls[0] - falls[1]) > 0.02 * max(falls):
        # At a corner of the frontier the price differs by the side, and any between is a multiplier.
        assert min(falls) - 1e-8 <= solution.limits[0].multiplier * step <= max(falls) + 1e-8
        costs, saves = (fall / step for fall in falls)
        assert solution.limits[0].prices == pytest.approx((saves, costs), rel=0.02)
    else:
        assert solution.limits[0].multiplier == pytest.approx((values[0] - values[1]) / (2 * step), rel=0.02)
    return True


def test_a_multiplier_is_the_price_of_the_limit():
    assert check_price(1)


@pytest.mark.long
@pytest.mark.parametrize("seeds", np.arange(60).reshape(6, 10).tolist())
def test_multipliers_are_the_prices_of_limits_many_times(seeds):
    assert sum(check_price(seed) for seed in seeds) >= 3


@pytest.mark.long
def test_the_lagrangian_at_our_multiplier_has_the_same_point():
    problem = LimitedProblem(2, known=True, limits=1, states=4, actions=3)
    solution = problem.solved()
    price, table = solution.limits[0].multiplier, problem.tables[0]
    assert price > 0.1
    loss = pr.ExpectedCost() + price * pr.CostTable(table)
    lagrangian = problem.solve(loss=loss)
    ours = solution.risk + price * solution.limits[0].value
    assert lagrangian.risk == pytest.approx(ours, abs=1e-8)
    # Its own policy is one of several that tie; with a price a little off, the limit is not met.
    dear = problem.solve(loss=pr.ExpectedCost() + 1.1 * price * pr.CostTable(table)).policy
    cheap = problem.solve(loss=pr.ExpectedCost() + 0.9 * price * pr.CostTable(table)).policy
    spent = problem.limit_values(np.stack([np.asarray(p.probabilities) for p in (dear, cheap)]))[:, 0]
    assert spent[0] < problem.at_most[0] < spent[1]


@pytest.fixture(scope="module")
def belief():
    return LAKE.prior.update(LAKE.trials(n=6, truth=(0.3, 0.1), seed=0))


@pytest.mark.long
def test_a_limit_is_kept_on_fresh_draws_with_its_confidence(belief):
    few = pr.SampleAverage(samples=64, largest=256, starts=2)
    free = pr.evaluate(pr.solve(LAKE, belief, solver=few, certify=False).policy, LAKE, belief, loss=HOLE).risk
    at_most = 0.9 * free
    limit = pr.Limit(HOLE, at_most=at_most, name="time in the hole", unit="share")
    solution = pr.solve(LAKE, belief, subject_to=[limit], solver=few)
    answer = solution.limits[0]
    assert answer.verdict is pr.Verdict.KEPT
    assert answer.value < answer.upper <= at_most
    # The policy by itself, on other draws and by other code.
    again = pr.evaluate(solution.policy, LAKE, belief, loss=HOLE, seed=5)
    assert abs(again.risk - answer.value) < 5 * again.risk_standard_error
    low, high = answer.kept_interval
    assert low < answer.kept < high
    assert answer.kept == np.mean(np.asarray(answer.evaluation.losses) <= at_most)
    assert "time in the hole" in str(solution)


def test_two_limits_that_contradict_one_another_are_proved_to():
    both = [pr.Limit(pr.Visits([k], per=1), at_most=0.2, risk=pr.Expectation(), name=str(k)) for k in (0, 1)]
    family = pr.Family(
        pr.Support.dense(2, 2),
        lambda theta: np.broadcast_to(np.eye(2), (2, 2, 2)) + 0 * theta,
        lambda theta: np.ones((2, 2)),
        0,
        0.9,
    )
    solution = pr.solve(family, pr.Point(0.5), subject_to=both)
    assert solution.status is pr.Status.INFEASIBLE
    assert not all(answer.proved for answer in solution.limits)
    assert np.isnan(solution.limits[0].multiplier)
    # Nor has a chance that no policy reaches a price.
    likely = pr.solve(family, pr.Point(0.5), subject_to=[pr.Limit(pr.Visits([0], per=1), at_most=0.05, chance=0.9)])
    assert likely.status is pr.Status.INFEASIBLE and likely.limits[0].proved
    assert np.isnan(likely.limits[0].multiplier) and "one unit more" not in str(likely)


def test_binomial_intervals_hold_what_they_say():
    from scipy.stats import binomtest

    for kept, count in ((0, 10), (7, 10), (10, 10), (950, 1000)):
        exact = binomtest(kept, count).proportion_ci(0.95, method="exact")
        assert pr.share_interval(kept / count, count) == pytest.approx((exact.low, exact.high), abs=1e-9)


@pytest.mark.long
def test_a_gain_of_a_linear_system_keeps_a_limit_on_its_actions():
    family = pr.LinearFamily(state_cost=[[1.0]], action_cost=[[0.01]], noise=[[1.0]], discount=0.9)
    belief = pr.Draws([[[0.9, 0.8]], [[1.0, 1.0]], [[1.1, 1.2]]])

    def effort(occupancy, system):
        return occupancy.second[1, 1]

    few = pr.SampleAverage(starts=4)
    free = pr.solve(family, belief, risk=pr.Expectation(), certify=False, solver=few)
    spent = pr.evaluate(free.policy, family, belief, risk=pr.Expectation(), loss=effort).risk
    limit = pr.Limit(effort, at_most=0.6 * spent, risk=pr.Expectation())
    solution = pr.solve(family, belief, risk=pr.Expectation(), subject_to=[limit], solver=few)
    assert solution.limits[0].verdict is pr.Verdict.KEPT
    # One gain: the limit fixes it, and cost and effort along it tell the price.
    gains = np.linspace(-1.2, -0.2, 4001)
    policies = [pr.LinearGaussianPolicy([[k]]) for k in gains]
    mean = np.full(3, 1.0 / 3.0)
    cost, used = (
        sum(
            w * np.asarray(pr.loss_at(policies, family, theta, loss=loss))
            for w, theta in zip(mean, belief.as_atoms().thetas, strict=True)
        )
        for loss in (None, effort)
    )
    best = int(np.argmin(np.where(used <= float(limit.at_most), cost, np.inf)))
    assert solution.risk == pytest.approx(cost[best], rel=1e-3)
    price = -(cost[best + 1] - cost[best - 1]) / (used[best + 1] - used[best - 1])
    assert solution.limits[0].multiplier == pytest.approx(price, rel=0.02)


ATOMS = np.array([[0.9, 0.8], [1.0, 1.0], [1.1, 1.2]])
HORIZON = 20
WALKS = pr.SimulatedFamily(
    lambda theta, state, action, noise: theta[0] * state + theta[1] * action + 0.3 * noise,
    lambda theta, state, action: state[0] ** 2 + 0.01 * action[0] ** 2,
    start=lambda noise: jnp.asarray([1.0]),
    discount=0.9,
    horizon=HORIZON,
    actions=1,
    noise=1,
    particles=64,
)


def walked_effort(occupancy, model):
    return occupancy.expect(lambda state, action: action[0] ** 2)


def by_moments(gain, bias):
    """Mean cost and effort of `bias + gain s` over the atoms, from the moments of the state, without the library."""
    cost, effort = 0.0, 0.0
    for drift, push in ATOMS:
        mean, spread = 1.0 + 0.0 * gain, 0.0 * gain
        for t in range(HORIZON + 1):
            used = (bias + gain * mean) ** 2 + gain**2 * spread
            cost = cost + 0.9**t * (mean**2 + spread + 0.01 * used) / len(ATOMS)
            effort = effort + 0.9**t * used / len(ATOMS)
            mean, spread = (drift + push * gain) * mean + push * bias, (drift + push * gain) ** 2 * spread + 0.09
    return cost, effort


@pytest.mark.long
def test_limits_of_a_simulated_model_hold_by_its_moments():
    """Losses are means over particles: a limit is kept with these to spare, and nothing is called exact."""
    limit = pr.Limit(walked_effort, at_most=0.8, risk=pr.Expectation(), name="effort")
    solver = pr.SampleAverage(starts=1)
    solution = pr.solve(WALKS, pr.Draws(ATOMS), risk=pr.Expectation(), subject_to=[limit], solver=solver)
    answer = solution.limits[0]
    assert solution.status is pr.Status.CONVERGED_WITHIN_LIMITS
    assert answer.value < answer.upper <= 0.8 and "with 95 % confidence" in str(solution)
    cost, effort = by_moments(float(solution.policy.gain[0, 0]), float(solution.policy.bias[0]))
    assert answer.evaluation.interval[0] <= effort <= min(0.8, answer.evaluation.interval[1])
    costs, efforts = by_moments(*np.meshgrid(np.linspace(-1.0, 0.0, 201), np.linspace(-0.2, 0.2, 81)))
    best = np.where(efforts <= 0.8, costs, np.inf).min()
    assert best - 1e-3 <= cost <= 1.15 * best
    # The price is the slope of that frontier.
    tighter = np.where(efforts <= 0.7, costs, np.inf).min()
    assert answer.multiplier == pytest.approx((tighter - best) / 0.1, rel=0.5)


def test_particles_widen_what_is_said_of_a_limit():
    """Eight batches whose losses scatter by a known number: limits of the risk, of the share, and the verdict."""
    losses, scatter = np.array([1.0, 2.0, 3.0, 4.0]), 0.1
    batches = losses + scatter * np.sqrt(8.0) * (np.arange(8.0) - 3.5)[:, None] / np.arange(8.0).std(ddof=1)
    without = (8.0 * losses - batches) / 7.0
    draws = WeightedDraws(np.arange(4.0), np.full(4, 0.25), True)
    evaluation = judged(pr.Expectation(), losses, draws, without=without)
    reach = stats.t.ppf(0.95, 7) * scatter
    for at_most, verdict in (
        (2.5 + 1.01 * reach, "KEPT"),
        (2.5 + 0.99 * reach, "OPEN"),
        (2.5 - 1.01 * reach, "BROKEN"),
    ):
        answer = limit_answer(pr.Limit(HOLE, at_most, pr.Expectation()), evaluation)
        assert (answer.verdict.name, answer.upper) == (verdict, pytest.approx(2.5 + reach))
    # Within two and a half standard errors of the limit a draw may be on either side of it.
    answer = limit_answer(pr.Limit(HOLE, 3.15, chance=0.6), evaluation)
    assert (answer.kept, answer.kept_interval) == (0.75, (0.5, 0.75))
    assert answer.verdict is pr.Verdict.OPEN
    assert limit_answer(pr.Limit(HOLE, 3.5, chance=0.6), evaluation).verdict is pr.Verdict.KEPT


@pytest.mark.long
def test_the_papers_penalty_by_scenarios_is_a_limit():
    problem = LimitedProblem(1, known=True, limits=1, states=4, actions=3)
    random = np.random.default_rng(0)
    scenarios = random.uniform(size=(3, 4, 3))
    loss = pr.ScenarioCost(scenarios, pr.CVaR(0.5))
    free = problem.solve(certify=False)
    worst = float(pr.evaluate(free.policy, problem.family, problem.belief(), loss=loss).risk)
    limit = pr.Limit(loss, at_most=worst - 0.2, risk=pr.Expectation())
    solution = problem.solve(subject_to=[limit])
    assert solution.limits[0].verdict is pr.Verdict.KEPT
    price = solution.limits[0].multiplier
    lagrangian = pr.ConstrainedCost(scenarios, price, worst - 0.2, pr.CVaR(0.5))
    again = problem.solve(loss=lagrangian)
    assert again.risk == pytest.approx(solution.risk, abs=1e-4)


REFUSED = {
    "no loss": (lambda: pr.Limit(3.0, at_most=1.0), "a limit is on a loss"),
    "no number": (lambda: pr.Limit(HOLE, at_most=np.inf), r"at_most must lie in .*leave it out"),
    "both": (lambda: pr.Limit(HOLE, 0.5, pr.CVaR(0.9), chance=0.9), "risk= or chance=, not both"),
    "a chance of 1": (lambda: pr.Limit(HOLE, 0.5, chance=1.0), "a chance of 1 cannot be shown"),
    "a chance of 0": (lambda: pr.Limit(HOLE, 0.5, chance=0.0), r"chance must lie in \(0, 1\]"),
    "confidence": (lambda: pr.Limit(HOLE, 0.5, confidence=1.0), r"confidence must lie in \[0.5, 1\)"),
    "unit": (lambda: pr.Limit(HOLE, 0.5, unit=3), "unit must be a text"),
    "name": (lambda: pr.Limit(HOLE, 0.5, name="a\nb"), "name must be a line"),
    "not a list": (lambda: pr.solve(LAKE, LAKE.prior, subject_to=pr.Limit(HOLE, 0.5)), "subject_to is a list"),
    "not limits": (lambda: pr.solve(LAKE, LAKE.prior, subject_to=[HOLE]), r"subject_to\[0\] must be a Limit"),
    "twice": (
        lambda: pr.solve(LAKE, LAKE.prior, subject_to=[pr.Limit(HOLE, 0.5), pr.Limit(HOLE, 0.4)]),
        "limit the same loss in the same way, to 0.5 and 0.4",
    ),
    "one name": (
        lambda: pr.solve(
            LAKE, LAKE.prior, subject_to=[pr.Limit(HOLE, 0.5, name="x"), pr.Limit(pr.Visits([1]), 0.4, name="x")]
        ),
        "two limits are called 'x'",
    ),
    "never reached": (
        lambda: pr.solve(LAKE, LAKE.prior, subject_to=[pr.Limit(HOLE, 1.0)]),
        "never above 1, so .* limits nothing",
    ),
    "never kept": (
        lambda: pr.solve(LAKE, LAKE.prior, subject_to=[pr.Limit(HOLE, -0.1)]),
        "never below 0, so .* cannot be reached",
    ),
    "brpg": (
        lambda: pr.solve(LAKE, LAKE.prior, subject_to=[pr.Limit(HOLE, 0.5)], solver=pr.BRPG()),
        "limits need the exact gradient and solver=SampleAverage",
    ),
    "an unknown state": (
        lambda: pr.solve(LAKE, LAKE.prior, subject_to=[pr.Limit(pr.Visits([9]), 0.5)]),
        "counts state 9",
    ),
    "no states": (lambda: pr.Visits([]), "at least one"),
    "states of a simulated model": (
        lambda: pr.solve(WALKS, pr.Draws(ATOMS), subject_to=[pr.Limit(pr.Visits([0]), 1.0, name="there")]),
        "there: Visits counts states and actions by number, which a SimulatedModel has not; write a function",
    ),
    "a cost table of a linear system": (
        lambda: pr.solve(
            pr.LinearFamily(state_cost=[[1.0]], action_cost=[[1.0]], noise=[[1.0]], discount=0.9),
            pr.Draws(ATOMS[:, None]),
            subject_to=[pr.Limit(pr.CostTable([[1.0]]), 1.0)],
        ),
        "limit 1: CostTable counts states and actions by number, which a LinearSystem has not",
    ),
    "without derivatives": (
        lambda: pr.solve(WALKS, pr.Draws(ATOMS), subject_to=[pr.Limit(walked_effort, 1.0)], gradient=pr.ZerothOrder()),
        "A model without derivatives cannot be solved with limits",
    ),
    "per": (lambda: pr.Visits([1], per=0), r"per must lie in \(0, inf\)"),
    "table": (lambda: pr.CostTable([1.0]), r"\[state, action\]"),
}


@pytest.mark.parametrize("what", sorted(REFUSED))
def test_what_is_wrong_is_refused(what):
    make, message = REFUSED[what]
    with pytest.raises(pr.InputError, match=message):
        make()


def test_a_frontier_is_that_of_the_linear_programs():
    problem = LimitedProblem(2, known=True, limits=1, states=4, actions=3)
    curve = pr.limit_frontier(problem.family, problem.belief(), problem.subject_to(), points=4, risk=pr.CVaR(0.0))
    assert [point.at_most for point in curve.points] == sorted(point.at_most for point in curve.points)
    for point in curve.points:
        value, prices = occupancy_program(problem, np.array([point.at_most + 1e-9]))
        assert point.kept and point.solution.risk == pytest.approx(value, abs=1e-6)
        assert point.answer.kept == 1.0 and float(point.answer.limit.at_most) == point.at_most
        assert point.answer.prices[0] == pytest.approx(prices[0], abs=1e-3)
    # The least is what the limit's own plan reaches: nothing below it can be kept, and everything above can.
    assert occupancy_program(problem, np.array([curve.least - 1e-6])) is None
    assert occupancy_program(problem, np.array([curve.least + 1e-6])) is not None
    # Where there is nothing to vary it says so, and what it found.
    flat = [pr.Limit(pr.CostTable(np.ones((4, 3))), at_most=1.0, risk=pr.Expectation())]
    with pytest.raises(pr.InputError, match=r"there is nothing between them to vary .*at_most= in Python"):
        pr.limit_frontier(problem.family, problem.belief(), flat, points=4, risk=pr.CVaR(0.0))


@pytest.mark.long
def test_a_frontier_that_draws_cannot_tell_says_so():
    """The dear action leads to the second state a little less often on average, by far less than draws differ by."""
    family = pr.Family(
        pr.Support.dense(2, 2),
        lambda theta: jnp.stack([jnp.stack([1.0 - led(theta), led(theta)], axis=-1), jnp.eye(2)[jnp.zeros(2, int)]]),
        lambda theta: jnp.array([[1.0, 0.0]] * 2),
        0,
        0.9,
    )
    belief = pr.Beta.uniform(1).update(pr.Trials([[2, 2]]))
    limit = pr.Limit(pr.Visits([1], per=1), at_most=0.5, risk=pr.Expectation(), name="second", unit="share")
    solver = pr.SampleAverage(samples=64, largest=64, starts=2, evaluation=500)
    with pytest.raises(pr.InputError) as refused:
        pr.limit_frontier(family, belief, [limit], points=3, solver=solver)
    said = str(refused.value)
    assert "second: the best policy found without the limit has" in said and "they cannot tell the two apart" in said
    assert "solver.evaluation in the problem file" in said, "what whoever has no Python can do"
    # Levels that are named are solved for; below what any policy reaches none is kept, with the confidence of draws.
    curve = pr.limit_frontier(family, belief, [limit], at_most=[0.2, 0.6], solver=solver)
    assert [point.solution.status for point in curve.points] == [
        pr.Status.INFEASIBLE,
        pr.Status.CONVERGED_WITHIN_LIMITS,
    ]
    assert 0.2 < curve.least < curve.points[0].answer.least


def led(theta):
    return jnp.array([0.9, 0.0]) * theta + jnp.array([0.0, 0.45])
