"""Policies judged from a problem file: rivals, one action a state, differences draw by draw, runs side by side."""

import itertools
import json
import re

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

import prudent as pr
from prudent.arrays import in_float64
from prudent.cli import app
from prudent.posteriors import WeightedDraws, equally_weighted
from prudent.runs import deterministic
from prudent.runs.judging import Evaluator, risk_difference

from .test_runs import RIVALS, table


def test_the_rivals_are_the_librarys_on_the_same_draws(problem, commanded):
    said = json.loads((commanded[1] / "solution.json").read_text())
    arguments = pr.read_problem(problem).arguments()
    model, belief, risk = arguments["model"], arguments["belief"], arguments["risk"]
    ours = pr.solve(**arguments)
    rivals = pr.rivals(model, belief, risk=risk, solver=arguments["solver"], evaluation=100)
    assert [each["name"] for each in said["rivals"]] == list(RIVALS)
    assert [name.split(" (")[0] for name in RIVALS] == list(rivals)
    for each, rival in zip(said["rivals"], rivals.values(), strict=True):
        assert each["risk"] == pytest.approx(rival.risk, rel=1e-12)
        assert each["status"] == rival.status.name
        assert each["difference"]["value"] == pytest.approx(rival.risk - ours.risk, rel=1e-9)
        assert each["difference"]["low"] < each["difference"]["value"] < each["difference"]["high"]
    known = belief.maximum_likelihood(unseen=belief.mean())
    assert rivals["maximum-likelihood plan"].risk == pr.plug_in(model, belief, known, risk=risk, evaluation=100).risk
    assert rivals["posterior-mean plan"].risk == pr.plug_in(model, belief, risk=risk, evaluation=100).risk
    # Who is told theta loses, at every draw, what exact planning of that draw's model loses.
    told = [float(model.start @ pr.plan(model.at(theta)).values) for theta in ours.thetas]
    assert said["known_theta_risk"] == pytest.approx(float(risk(np.array(told)).value), rel=1e-9)
    assert said["known_theta_risk"] <= min(said["risk"], *(each["risk"] for each in said["rivals"]))


@in_float64
def test_the_deterministic_policy_is_the_best_of_all_and_judged_on_other_draws(problem, commanded):
    """81 policies: those that are best on the draws set aside, by losses found one by one."""
    said = json.loads((commanded[1] / "solution.json").read_text())["deterministic"]
    written = table(commanded[1] / "policy-deterministic.csv")
    names = ["run", "service", "replace"]
    choice = [names.index(row["action"]) for row in written]
    arguments = pr.read_problem(problem).arguments()
    model = arguments["model"]
    evaluator = Evaluator(**arguments, evaluation=100)
    aside = evaluator.aside(1000).thetas[:40]
    assert not np.isin(aside[:, 0, 0], evaluator.draws.thetas[:, 0, 0]).any()
    judged = pr.evaluate_problem(commanded[1] / "policy-deterministic.csv", problem)
    assert said["risk"] == pytest.approx(judged.risk, rel=1e-12)
    search = deterministic._Search(evaluator)
    listed = np.array(list(itertools.product(range(3), repeat=4)))
    assert search.risks(np.array([choice]))[0] == pytest.approx(search.risks(listed).min(), rel=1e-12)
    # The search's losses against the planner's own arithmetic.
    start, discount = np.asarray(model.start), float(model.discount)
    kernels = [np.asarray(model.at(theta).kernel.probability) for theta in aside[:3]]
    rows = model.support.index()
    for k, kernel in enumerate(kernels):
        moves = np.zeros((4, 4))
        for s in range(4):
            np.add.at(moves[s], rows[s, choice[s]], kernel[s, choice[s]])
        costs = np.asarray(model.at(aside[k]).cost)[np.arange(4), choice]
        loss = start @ np.linalg.solve(np.eye(4) - discount * moves, costs)
        assert search.losses(np.array([choice]))[0, k] == pytest.approx(loss, rel=1e-9)


def test_the_local_search_finds_what_listing_finds(problem, monkeypatch):
    case = pr.read_problem(problem, changes={"risk.level": 0.5})
    evaluator = Evaluator(**case.arguments(), evaluation=100)
    start = evaluator.record("this policy", np.full((4, 3), 1 / 3))
    listed = deterministic.best_deterministic(evaluator, [start])
    monkeypatch.setattr(deterministic, "MOST_LISTED", 1)
    searched = deterministic.best_deterministic(evaluator, [start])
    assert searched.risk == pytest.approx(listed.risk, rel=1e-9)
    assert set(searched.probabilities.ravel()) == {0.0, 1.0}


def test_a_converged_policy_without_chance_is_its_own_best_and_no_interval_is_given(problem, monkeypatch):
    evaluator = Evaluator(**pr.read_problem(problem).arguments(), evaluation=100)
    # To rounding.
    table = np.eye(3)[[0, 1, 2, 2]] * (1.0 - 3e-14) + 1e-14
    start = evaluator.record("this policy", table, status="CONVERGED")
    monkeypatch.setattr(deterministic, "_Search", None)
    best = deterministic.best_deterministic(evaluator, [start])
    np.testing.assert_array_equal(best.probabilities, np.eye(3)[[0, 1, 2, 2]])
    assert best.difference.value == best.difference.low == best.difference.high == 0.0
    with pytest.raises(TypeError, match="not callable"):
        # One that has not converged, or that does leave something to chance, is searched from.
        deterministic.best_deterministic(evaluator, [evaluator.record("this policy", table, status="STALLED")])


@in_float64
def test_the_gains_of_the_search_are_derivatives_of_the_risk(problem):
    evaluator = Evaluator(**pr.read_problem(problem).arguments(), evaluation=100)
    search = deterministic._Search(evaluator)
    choice = np.array([0, 1, 2, 2])
    gains, table = search.gains(choice), np.eye(3)[choice]
    assert np.all(gains[np.arange(4), choice] == 0.0)

    def risk(moved):
        losses = deterministic.losses_on(evaluator.objective, moved[None], search.thetas)[0]
        return float(evaluator.risk(losses, search.share).value)

    for state, action in ((0, 1), (1, 0), (1, 2)):
        mixed = table.copy()
        mixed[state] = (1 - 1e-6) * table[state] + 1e-6 * np.eye(3)[action]
        assert gains[state, action] == pytest.approx((risk(mixed) - risk(table)) / 1e-6, rel=1e-3)


def test_a_posterior_of_points_is_judged_whole():
    """Weighted losses by hand; nothing is sampled, so nothing has an error."""
    lake = pr.envs.frozen_lake("SF\nHG")
    points = pr.Draws([[0.1, 0.2], [0.5, 0.2], [0.6, 0.9]], weights=[0.7, 0.2, 0.1])
    fresh = WeightedDraws(np.asarray(points.thetas), np.asarray(points.weights), True)
    evaluator = Evaluator(lake, points, risk=pr.CVaR(0.8), draws=fresh)
    ours = evaluator.record("this policy", np.full((4, 4), 0.25))
    losses = [float(pr.loss_at(np.full((4, 4), 0.25), lake, theta)) for theta in fresh.thetas]
    np.testing.assert_allclose(ours.losses, losses, rtol=1e-12)
    worst = np.argsort(losses)[::-1]
    share, tail = 0.2, 0.0
    for k in worst:
        taken = min(share, float(fresh.probabilities[k]))
        share, tail = share - taken, tail + taken * losses[k]
    assert ours.risk == pytest.approx(tail / 0.2, rel=1e-12)
    assert ours.mean == pytest.approx(float(fresh.probabilities @ losses), rel=1e-12)
    assert (ours.risk_standard_error, ours.mean_standard_error) == (0.0, 0.0)
    best = deterministic.best_deterministic(evaluator, [ours])
    assert best.difference.value == best.difference.low == best.difference.high == pytest.approx(best.risk - ours.risk)
    listed = [np.eye(4)[list(choice)] for choice in itertools.product(range(4), repeat=4)]
    every = np.array([pr.loss_at(listed, lake, theta) for theta in fresh.thetas])
    risks = [float(evaluator.risk(column, fresh.probabilities).value) for column in every.T]
    assert best.risk == pytest.approx(min(risks), rel=1e-12)
    visits = sum(
        p * np.asarray(pr.occupancy(lake.at(theta), ours.probabilities))
        for p, theta in zip(fresh.probabilities, fresh.thetas, strict=True)
    )
    np.testing.assert_allclose(ours.occupancy, visits, rtol=1e-9)


@pytest.mark.parametrize(
    "risk",
    [
        pr.CVaR(0.9),
        *(pytest.param(risk, marks=pytest.mark.long) for risk in (pr.Expectation(), pr.CVaR(0.5), pr.EntropicVaR(0.5))),
    ],
    ids=str,
)
def test_the_interval_of_a_difference_of_risks_covers_it(risk):
    """Losses whose risks are known: standard normal ones, and the same scaled and moved, with noise in common."""
    random = np.random.default_rng(3)
    shift, scale = 0.15, 1.1
    if isinstance(risk, pr.EntropicVaR):
        unit = np.sqrt(-2.0 * np.log(1.0 - 0.5))
    else:
        level = float(getattr(risk, "level", 0.0))
        unit = stats.norm.pdf(stats.norm.ppf(level)) / (1.0 - level)
    true, inside = shift + (scale - 1.0) * unit, 0
    draws, repeats = 1000, 200
    for _ in range(repeats):
        first = random.normal(size=draws)
        second = shift + scale * (0.8 * first + 0.6 * random.normal(size=draws))
        found = risk_difference(risk, second, first, equally_weighted(first))
        inside += found.low <= true <= found.high
    # 190 expected; two-sided 1 in 1000.
    assert 178 <= inside <= 199


def test_a_policy_that_was_written_is_judged_as_it_was(problem, run):
    judged = pr.evaluate_problem(run.folder / "policy.csv", problem)
    # The solver finds losses along with their gradients, in another compiled function: the last digit may differ.
    assert (judged.risk, judged.mean) == pytest.approx((run.solution.risk, run.record.mean), rel=1e-12)
    assert np.allclose(judged.losses, run.solution.losses, rtol=1e-12, atol=0.0)
    certain = pr.evaluate_problem(run.folder / "policy-deterministic.csv", problem)
    assert set(certain.probabilities.ravel()) == {0.0, 1.0}


def test_of_two_successors_one_drives(run):
    names = [driver.name for driver in run.record.drivers]
    assert names
    assert run.record.certificate.drivers_considered >= len(names)
    pairs = [name.split(" → ")[0] for name in names]
    assert len(set(pairs)) == len(pairs)
    thetas, weights = run.solution.thetas, run.solution.weights
    for driver in run.record.drivers:
        state, action, follower = re.fullmatch(r"(\w+), (\w+) → (\w+)", driver.name).groups()
        drawn = np.array(
            [float(row[f"P({follower} | {state}, {action})"]) for row in table(run.folder / "weights.csv")]
        )
        assert driver.plain == pytest.approx(drawn.mean())
        assert driver.weighted == pytest.approx((weights * drawn).mean())
        assert driver.shift == pytest.approx((driver.weighted - driver.plain) / drawn.std())
        assert driver.standard_error == pytest.approx(weights.std() / 10)
        assert driver.shift > 0, "every row of this problem has two successors: the one that grows is shown"
    assert len(thetas) == 100


def test_runs_are_compared_on_the_draws_of_the_first(problem, run):
    other = pr.solve_problem(
        problem, problem.parent / "neutral", report=False, changes={"risk": {"kind": "expectation"}}
    )
    rows = pr.compare_runs([run.folder, other.folder])
    assert [row.same_problem for row in rows] == [True, False]
    assert rows[0].policy.risk == pytest.approx(run.solution.risk, rel=1e-12)
    difference = other.solution.losses - run.solution.losses
    assert rows[1].mean_difference.value == pytest.approx(difference.mean(), rel=1e-9)
    assert rows[1].mean_difference.standard_error == pytest.approx(difference.std() / 10, rel=1e-9)
    risk = pr.CVaR(0.9)
    more = risk(other.solution.losses).value - risk(run.solution.losses).value
    assert rows[1].risk_difference.value == pytest.approx(float(more), rel=1e-9)
    low, high = rows[1].risk_difference.low, rows[1].risk_difference.high
    assert low < rows[1].risk_difference.value < high
    for same in (rows[0].risk_difference, rows[0].mean_difference):
        assert (same.low, same.value, same.high, same.confidence) == (0.0, 0.0, 0.0, "exact")
    told = CliRunner().invoke(app, ["compare", str(run.folder), str(other.folder), "--json"])
    assert json.loads(told.stdout)[1]["risk_difference"]["value"] == rows[1].risk_difference.value
    result = CliRunner().invoke(app, ["compare", str(run.folder), str(other.folder)])
    assert result.exit_code == 0, result.output
    assert "solved for another question" in result.output
