"""Baselines that answer as `solve` does, on the draws it is judged on; and the percentile objective."""

import functools

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

import prudent as pr
from prudent.baselines import judged_plans

LAKE = pr.envs.frozen_lake("SFF\nHFG", discount=0.9)
TRUTH = (0.3, 0.1)
BELIEF = LAKE.prior.update(LAKE.trials(n=5, truth=TRUTH, seed=0))
DRAWS, SEED = 60, 7
SHORT = pr.BRPG(samples=4, iterations=3, evaluation=DRAWS)
judged = {"evaluation": DRAWS, "seed": SEED}

RIVALS = {
    "plug-in": functools.partial(pr.plug_in, LAKE, BELIEF, **judged),
    "plug-in by gradients": functools.partial(pr.plug_in, LAKE, BELIEF, planner=SHORT, **judged),
    "robust": functools.partial(pr.robust, LAKE, BELIEF, 0.1, **judged),
    "nested": functools.partial(pr.nested, LAKE, BELIEF, pr.CVaR(0.9), 30, samples=40, **judged),
}


@functools.cache
def solution(name):
    return RIVALS[name]()


@functools.cache
def solved():
    return pr.solve(LAKE, BELIEF, solver=SHORT, seed=SEED)


def loss_of(policy, theta):
    """Expected discounted cost by a linear system in NumPy."""
    mdp, rows = LAKE.at(theta), np.asarray(policy.probabilities)
    chain = (rows[:, :, None] * mdp.kernel.table()).sum(axis=1)
    values = np.linalg.solve(np.eye(len(rows)) - float(mdp.discount) * chain, (rows * mdp.cost).sum(axis=1))
    return mdp.start @ values


# ---------------------------------------------------------------- what all of them have in common


@pytest.mark.parametrize("name", RIVALS)
def test_a_rival_is_judged_on_the_draws_of_solve(name):
    rival = solution(name)
    np.testing.assert_array_equal(rival.thetas, solved().thetas)
    assert rival.losses.shape == rival.weights.shape == (DRAWS,)
    for draw in (0, 1, DRAWS - 1):
        np.testing.assert_allclose(rival.losses[draw], loss_of(rival.policy, rival.thetas[draw]), rtol=1e-10)
    risk = pr.CVaR(0.9)
    np.testing.assert_allclose(rival.risk, risk(rival.losses).value, rtol=1e-12)
    np.testing.assert_allclose(rival.risk_standard_error, risk.standard_error(rival.losses), rtol=1e-9)
    np.testing.assert_allclose(rival.weights.mean(), 1.0, rtol=1e-12)


@pytest.mark.parametrize("name", RIVALS)
def test_a_rival_says_how_it_was_found_and_cannot_be_resumed(name):
    rival = solution(name)
    by_gradients = name == "plug-in by gradients"
    expected = {"plug-in by gradients": "ITERATION_LIMIT"}.get(name, "PLANNED")
    assert rival.status.name == expected and rival.status.ok
    assert expected.lower().replace("_", " ") in str(rival) and "nan" not in str(rival)
    assert ("gradient norm " in str(rival).split("iterations")[-1]) == by_gradients
    assert len(rival.history) == (3 if by_gradients else 0)
    assert rival.truncation == 0.0 and rival.seconds > 0.0
    assert (rival.plan is None) == by_gradients
    assert rival.checkpoint is None
    with pytest.raises(pr.InputError, match=r"resume needs a Solution of solve\(\).*" + expected):
        pr.solve(LAKE, BELIEF, solver=SHORT, seed=SEED, resume=rival)


def test_a_planned_policy_can_be_improved_by_solve():
    rival = solution("plug-in")
    better = pr.solve(
        LAKE, BELIEF, policy=pr.Direct(), start=rival.parameters, solver=pr.BRPG(iterations=0, evaluation=DRAWS)
    )
    np.testing.assert_array_equal(better.policy.probabilities, rival.policy.probabilities)


# ---------------------------------------------------------------- each by itself


def test_the_plug_in_at_the_truth_is_the_plan():
    exact = pr.plan(LAKE.at(TRUTH))
    rival = pr.plug_in(LAKE, pr.Point(TRUTH), **judged)
    np.testing.assert_array_equal(rival.policy.probabilities, exact.policy.probabilities)
    np.testing.assert_allclose(rival.risk, LAKE.start @ exact.values, rtol=1e-12)
    assert rival.risk_standard_error < 1e-12


@pytest.mark.parametrize("theta", [None, BELIEF.maximum_likelihood()], ids=["mean", "maximum likelihood"])
def test_the_plug_in_plans_at_theta(theta):
    rival = pr.plug_in(LAKE, BELIEF, theta, **judged)
    known = BELIEF.mean() if theta is None else theta
    assert pr.loss_at(rival.policy, LAKE, known) == pytest.approx(LAKE.start @ pr.plan(LAKE.at(known)).values)


def test_radius_zero_is_the_plug_in():
    rival, plain = pr.robust(LAKE, BELIEF, 0.0, TRUTH, **judged), pr.plug_in(LAKE, BELIEF, TRUTH, **judged)
    # Iterations end within the rounding of the largest value, one of 0 as well.
    np.testing.assert_allclose(
        rival.plan.values, plain.plan.values, rtol=0, atol=1e-12 * np.abs(plain.plan.values).max()
    )
    np.testing.assert_allclose(rival.losses, plain.losses, rtol=1e-10)


def test_gradient_steps_at_theta_are_those_of_solve_at_a_point():
    rival = solution("plug-in by gradients")
    known = pr.solve(LAKE, pr.Point(BELIEF.mean()), risk=pr.Expectation(), solver=SHORT, seed=SEED)
    np.testing.assert_allclose(rival.policy.probabilities, known.policy.probabilities, rtol=0, atol=1e-12)
    np.testing.assert_allclose(rival.history.objective, known.history.objective, rtol=1e-12)
    np.testing.assert_allclose(rival.parameters, known.parameters, rtol=0, atol=1e-12)


def test_gradient_steps_that_climb_are_called_diverged():
    climb = pr.BRPG(samples=4, iterations=40, step=optax.scale(1.0))
    assert pr.plug_in(LAKE, BELIEF, planner=climb, **judged).status is pr.Status.DIVERGED


def test_a_convex_loss_comes_with_its_certificate(monkeypatch):
    loss = pr.ExpectedCost() + 5.0 * pr.NegativeEntropy()
    rival = pr.plug_in(LAKE, BELIEF, TRUTH, loss=loss, **judged)
    assert rival.status is pr.Status.PLANNED
    assert isinstance(rival.plan, pr.ConvexPlan) and rival.plan.gap <= 1e-6
    assert rival.plan.value == pytest.approx(pr.loss_at(rival.policy, LAKE, TRUTH, loss=loss), abs=1e-6)
    monkeypatch.setattr(judged_plans, "plan_convex", functools.partial(pr.plan_convex, iterations=1))
    rushed = pr.plug_in(LAKE, BELIEF, TRUTH, loss=loss, **judged)
    assert rushed.status is pr.Status.UNCERTIFIED and not rushed.status.ok
    assert rushed.plan.gap > 1e-6


def test_a_multiple_of_the_cost_is_planned_as_a_cost():
    rival = pr.plug_in(LAKE, BELIEF, TRUTH, loss=2.0 * pr.ExpectedCost(), **judged)
    assert isinstance(rival.plan, pr.Plan)
    np.testing.assert_allclose(rival.plan.values, 2.0 * pr.plan(LAKE.at(TRUTH)).values, rtol=1e-10)


def test_nested_gives_the_policy_of_the_first_stage():
    rival = solution("nested")
    plan = pr.nested_plan(LAKE, BELIEF, pr.CVaR(0.9), 30, samples=40, seed=SEED)
    np.testing.assert_array_equal(rival.policy.probabilities, plan.policy.probabilities)
    assert rival.iterations == 30
    assert not np.isin(rival.plan.thetas, rival.thetas).any()


def test_nested_reports_another_risk_if_asked_to():
    rival = pr.nested(LAKE, BELIEF, pr.CVaR(0.9), 30, samples=40, static_risk=pr.Expectation(), **judged)
    assert rival.risk == pytest.approx(rival.losses.mean())


def test_a_loss_without_a_value_at_some_draws_is_reported():
    def broken(occupancy, mdp):
        return jnp.where(mdp.cost.max() < 1.7, jnp.nan, (occupancy * mdp.cost).sum())

    rival = pr.robust(LAKE, BELIEF, 0.1, TRUTH, loss=broken, **judged)
    assert np.isnan(rival.losses).any() and not np.isnan(rival.losses).all()
    assert rival.status is pr.Status.NON_FINITE


class Coins(pr.Posterior):
    """A user's posterior that can be drawn and nothing else."""

    def draw(self, generator, n):
        return generator.random((n, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pr.plug_in(LAKE, BELIEF, (0.3, 0.1, 0.2)), r"theta must have the shape \(2,\).*got \(3,\)"),
        (lambda: pr.robust(LAKE, BELIEF, 0.1, 0.3), r"theta must have the shape \(2,\).*got \(\)"),
        (lambda: pr.plug_in(LAKE, BELIEF, (1.3, 0.1)), r"no model at theta = \[1.3 0.1\]: .*negative probability"),
        (lambda: pr.plug_in(LAKE, BELIEF, (np.nan, 0.1)), r"no model at theta.*non-finite"),
        (lambda: pr.plug_in(LAKE, BELIEF, "mean"), r"theta: expected an array of numbers"),
        (lambda: pr.plug_in(LAKE, LAKE.prior, LAKE.prior.maximum_likelihood()), "maximum likelihood needs data"),
        (lambda: pr.plug_in(LAKE, Coins()), r"a Coins has no mean\(\) to plan at; give theta="),
        (lambda: pr.plug_in(LAKE, pr.Point([0.3])), "belief must be about this family's theta|theta of a frozen lake"),
        (lambda: pr.plug_in(LAKE, BELIEF, planner="BRPG"), r"planner must be BRPG\(...\).*got 'BRPG'"),
        (lambda: pr.plug_in(LAKE, BELIEF, evaluation=0), "evaluation, the number of fresh draws, must be .* >= 1"),
        (lambda: pr.plug_in(LAKE, BELIEF, risk=0.9), r"risk must be a risk such as CVaR\(0.9\), got 0.9"),
        (lambda: pr.plug_in(LAKE, BELIEF, loss=lambda occupancy, mdp: occupancy), "must return one number"),
        (lambda: pr.plug_in(LAKE.at(TRUTH), BELIEF), "model must be a family of MDPs"),
        (lambda: pr.plug_in(LAKE, BELIEF, seed=-1), "seed must be a whole number >= 0"),
        (lambda: pr.robust(LAKE, BELIEF, -0.1), "radius of a KL ball must be >= 0, got -0.1"),
        (lambda: pr.nested(LAKE, BELIEF, None, 30), "risk must be a risk"),
        (lambda: pr.nested(LAKE, BELIEF, pr.CVaR(0.9), 0), "horizon, the number of stages, must be"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(pr.InputError, match=message):
        call()


# ---------------------------------------------------------------- all at once


def test_the_panel_is_made_of_the_rivals_by_their_own_names():
    solver = pr.SampleAverage(samples=32, largest=32, starts=2, evaluation=judged["evaluation"])
    made = pr.rivals(LAKE, BELIEF, radius=0.1, solver=solver, risk=pr.CVaR(0.9), **judged)
    alone = {
        "maximum-likelihood plan": pr.plug_in(LAKE, BELIEF, BELIEF.maximum_likelihood(), **judged),
        "posterior-mean plan": pr.plug_in(LAKE, BELIEF, **judged),
        "risk-neutral policy": pr.solve(LAKE, BELIEF, risk=pr.Expectation(), solver=solver, seed=SEED),
        "robust plan": pr.robust(LAKE, BELIEF, 0.1, **judged),
    }
    assert list(made) == list(alone)
    for name, rival in made.items():
        np.testing.assert_array_equal(rival.policy.probabilities, alone[name].policy.probabilities)
        np.testing.assert_allclose(rival.losses, alone[name].losses, rtol=1e-12)
        assert rival.risk == pytest.approx(float(pr.CVaR(0.9)(rival.losses).value), rel=1e-12)
        assert rival.status is alone[name].status


def test_a_rival_that_cannot_be_made_is_left_out():
    nothing = pr.rivals(LAKE, LAKE.prior, risk=pr.Expectation(), **judged)
    assert list(nothing) == ["posterior-mean plan"], "no data, no radius, and the risk is neutral itself"
    # A lake has no Dirichlet belief, so a table of its own is needed for the radius.
    support = pr.Support.dense(2, 2)
    family = pr.TabularFamily(support, np.eye(2), 0, 0.9)
    log = pr.Transitions.from_records([(0, 0, 1)] * 9 + [(1, 1, 0)] * 4, states=2, actions=2)
    belief = pr.Dirichlet.symmetric(support, 1.0).update(log)
    made = pr.rivals(family, belief, risk=pr.CVaR(0.0), **judged)
    assert list(made) == ["maximum-likelihood plan", "posterior-mean plan", "robust plan"]
    radius = stats.chi2.ppf(0.9, 1) / 2 / np.array([[11.0, 2.0], [2.0, 6.0]])
    known = pr.robust(family, belief, radius, risk=pr.CVaR(0.0), **judged)
    np.testing.assert_array_equal(made["robust plan"].plan.values, known.plan.values)
    curved = pr.rivals(family, belief, loss=pr.NegativeEntropy(), risk=pr.CVaR(0.0), **judged)
    assert "robust plan" not in curved
    with pytest.raises(pr.InputError, match="risk must be a risk"):
        pr.rivals(family, belief, risk=0.9)
    with pytest.raises(pr.InputError, match="radius of a KL ball must be >= 0"):
        pr.rivals(family, belief, risk=pr.CVaR(0.0), radius=-1.0)


# ---------------------------------------------------------------- the percentile objective


def triangle_mean(level, width, losses, weights):
    """`integral w(u) q(u) du` by the midpoint rule on a fine grid."""
    half = min(width, level, 1.0 - level)
    grid = level + half * (np.arange(200_000) + 0.5 - 100_000) / 100_000
    order = np.argsort(losses)
    place = np.minimum(np.searchsorted(np.cumsum(weights[order]), grid), len(losses) - 1)
    kernel = 1.0 - np.abs(grid - level) / half
    return (kernel * losses[order][place]).sum() / kernel.sum()


@pytest.mark.parametrize(("level", "width"), [(0.9, 0.05), (0.5, 0.3), (0.02, 0.05), (0.97, 0.2)])
def test_smoothed_var_is_the_mean_of_nearby_quantiles(level, width):
    rng = np.random.default_rng(0)
    for losses in (rng.normal(size=40), rng.integers(0, 5, 40).astype(float)):
        weights = rng.dirichlet(np.ones(40))
        weights[:5] = 0.0
        weights /= weights.sum()
        value, density = pr.SmoothedVaR(level, width)(losses, weights)
        np.testing.assert_allclose(value, triangle_mean(level, width, losses, weights), rtol=0, atol=1e-4)
        assert density.min() >= 0.0
        np.testing.assert_allclose(weights @ density, 1.0, rtol=0, atol=1e-12)
        assert value <= pr.CVaR(level)(losses, weights).value + 1e-12


def test_smoothed_var_tends_to_the_quantile():
    losses = np.random.default_rng(1).normal(size=20_000)
    levels = (0.1, 0.5, 0.9)
    quantiles = np.quantile(losses, levels)
    for width, tolerance in ((0.05, 0.02), (0.01, 0.004), (0.002, 0.002)):
        values = [float(pr.SmoothedVaR(level, width)(losses).value) for level in levels]
        np.testing.assert_allclose(values, quantiles, rtol=0, atol=tolerance)
    narrow = pr.SmoothedVaR(0.905, width=1e-6)(losses[:101])
    assert narrow.value == pytest.approx(np.quantile(losses[:101], 0.905, method="inverted_cdf"), rel=1e-12)


def test_the_gradient_of_smoothed_var_is_that_of_its_value():
    losses = np.random.default_rng(2).permutation(np.linspace(-1.0, 1.0, 30) ** 3)
    weights = np.full(30, 1.0 / 30)
    risk = pr.SmoothedVaR(0.8, 0.15)
    slope = weights * risk(losses, weights).weights
    for draw in range(30):
        # Any step that keeps the order gives the same quotient.
        move = 1e-6 * np.eye(30)[draw]
        quotient = (risk(losses + move).value - risk(losses - move).value) / 2e-6
        assert slope[draw] == pytest.approx(quotient, abs=1e-8)


def test_the_standard_error_of_smoothed_var_is_the_spread_of_replications():
    risk = pr.SmoothedVaR(0.9)
    samples = np.random.default_rng(3).exponential(size=(2000, 400))
    pairs = [(risk(losses).value, risk.standard_error(losses)) for losses in samples]
    values, errors = np.array(pairs).T
    assert np.sqrt((errors**2).mean()) == pytest.approx(values.std(), rel=0.08)
    # Three draws under the window: nothing to read a spread from.
    assert np.isnan(risk.standard_error(samples[0][:30]))


def test_check_risk_refuses_smoothed_var_for_want_of_convexity():
    risk = pr.SmoothedVaR(0.7, 0.2)
    assert isinstance(risk, pr.Risk)
    with pytest.raises(pr.InputError, match="SmoothedVaR breaks the law of convexity"):
        pr.check_risk(risk)


@pytest.mark.long
def test_solve_takes_smoothed_var():
    settings = pr.BRPG(samples=30, iterations=40, evaluation=400)
    grid = pr.solve_many(LAKE, [BELIEF], [pr.SmoothedVaR(0.5, 0.1), pr.SmoothedVaR(0.9, 0.1)], solver=settings)
    uniform = np.full((6, 4), 0.25)
    for answer, level in zip(grid[0], (0.5, 0.9), strict=True):
        assert answer.status.ok and np.isfinite(answer.risk_standard_error)
        assert answer.risk == pytest.approx(np.quantile(answer.losses, level), rel=0.1)
        start = pr.evaluate(uniform, LAKE, BELIEF, risk=pr.SmoothedVaR(level, 0.1), samples=400)
        assert answer.risk < 0.9 * start.risk


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pr.SmoothedVaR(1.0), r"SmoothedVaR level must lie in \(0, 1\), got 1.0; use WorstCase\(\)"),
        (lambda: pr.SmoothedVaR(0.0), r"SmoothedVaR level must lie in \(0, 1\), got 0.0"),
        (lambda: pr.SmoothedVaR(0.9, width=0.0), r"SmoothedVaR width must lie in \(0, 1\], got 0.0"),
        (lambda: pr.SmoothedVaR([0.5, 0.9]), r"SmoothedVaR level must be one number in \(0, 1\), got"),
    ],
)
def test_smoothed_var_refuses(call, message):
    with pytest.raises(pr.InputError, match=message):
        call()
