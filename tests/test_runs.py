"""Runs in folders: what the command writes is what the library computes, and a folder is enough to go on from."""

import csv
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

import prudent as pr
from prudent.arrays import in_float64
from prudent.cli import app
from prudent.posteriors import WeightedDraws, equally_weighted
from prudent.report.record import message_of
from prudent.runs import deterministic
from prudent.runs.checkpoint import KIND, read_checkpoint
from prudent.runs.folder import read_tensors, write_tensors
from prudent.runs.judging import Evaluator, risk_difference
from prudent.solvers import named_leaves

COMMAND = Path(sys.executable).with_name("prudent")
SMALL = {"solver.iterations": 12, "solver.samples": 20, "solver.evaluation": 100, "solver.tolerance": 0.0}
FILES = {
    "checkpoint.safetensors",
    "policy.csv",
    "policy-deterministic.csv",
    "report.html",
    "report.safetensors",
    "solution.json",
    "weights.csv",
}


RIVALS = ("maximum-likelihood plan", "posterior-mean plan", "risk-neutral policy", "robust plan")


def prudent(*arguments, folder):
    return subprocess.run(
        [COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300, cwd=folder
    )


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    path = pr.write_example(tmp_path_factory.mktemp("problem"))[0]
    # Two successors a pair: few unknowns, whose numbers can be foretold.
    text = path.read_text().replace('kind = "pooled"', 'kind = "dirichlet"').replace('"all"', '"observed"')
    path.write_text(text)
    own = ("iterations", "samples", "tolerance", "evaluation")
    lines = [line for line in path.read_text().splitlines() if not line.startswith(own)]
    settings = "\n".join(f"{key.removeprefix('solver.')} = {value}" for key, value in SMALL.items())
    path.write_text("\n".join(lines) + "\n" + settings + "\n")
    return path


@pytest.fixture(scope="module")
def run(problem):
    return pr.solve_problem(problem, problem.parent / "in-process", report=False)


@pytest.fixture(scope="module")
def commanded(problem):
    """The command, with the report."""
    folder = problem.parent / "by-command"
    return CliRunner().invoke(app, ["solve", str(problem), "--out", str(folder)]), folder


def test_the_command_writes_what_the_library_computes_to_the_bit(problem, commanded):
    done, folder = commanded
    assert done.exit_code == 1, "at the iteration limit nothing is solved: " + done.stderr
    solution = pr.solve(**pr.read_problem(problem).arguments())
    said = json.loads((folder / "solution.json").read_text())
    assert said["status"] == solution.status.name == "ITERATION_LIMIT"
    assert said["solved"] is False
    assert (said["risk"], said["risk_standard_error"]) == (solution.risk, solution.risk_standard_error)
    assert (said["iterations"], said["seed"]) == (12, 0)
    for name in ("lower_bound", "lower_bound_standard_error", "gap", "gap_limit"):
        assert said[name] == getattr(solution.certificate, name)
    assert said["known_theta_risk"] == said["lower_bound"]
    assert "prudent continue" in said["message"], "not resume=, which the command line does not have"
    assert said["settings"]["risk"] == {"kind": "cvar", "level": 0.9}
    assert {"prudent", "jax", "numpy", "python"} <= said["versions"].keys()
    rows = table(folder / "policy.csv")
    probabilities = np.array([float(row["probability"]) for row in rows]).reshape(4, 3)
    assert np.array_equal(probabilities, solution.policy.probabilities)
    assert [(row["state"], row["action"]) for row in rows[:4]] == [
        ("new", "run"),
        ("new", "service"),
        ("new", "replace"),
        ("used", "run"),
    ]
    draws = table(folder / "weights.csv")
    assert np.array_equal([float(row["loss"]) for row in draws], solution.losses)
    assert np.array_equal([float(row["weight"]) for row in draws], solution.weights)
    wear = np.array([float(row["P(used | new, run)"]) for row in draws])
    assert np.array_equal(wear, solution.thetas[:, 0, 0, 1])


def test_the_command_prints_a_table_and_the_paths_and_writes_nothing_else(commanded):
    done, folder = commanded
    assert {path.name for path in folder.iterdir()} == FILES
    for name in FILES:
        assert f"wrote {folder / name}" in done.stdout
    for words in ("this policy", "deterministic policy", *RIVALS, "CVaR 0.9", "iteration limit", "told theta"):
        assert words in done.stdout
    assert "best rival, " in done.stdout
    assert "of 4 unknowns that the policy meets" in done.stdout
    assert done.stderr == ""


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


@pytest.mark.parametrize("risk", [pr.Expectation(), pr.CVaR(0.5), pr.CVaR(0.9), pr.EntropicVaR(0.5)], ids=str)
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


def test_the_report_says_what_solution_json_says(commanded):
    page = (commanded[1] / "report.html").read_text()
    said = json.loads((commanded[1] / "solution.json").read_text())
    names = ("risk", "risk_standard_error", "lower_bound", "known_theta_risk", "iterations", "seconds", "seed")
    for name in names:
        assert f'data-name="{name}" data-value="{said[name]!r}"' in page
    assert f'data-name="rivals.0.risk" data-value="{said["rivals"][0]["risk"]!r}"' in page


def test_few_draws_in_the_tail_are_mentioned_wherever_an_interval_is(commanded):
    """A hundred draws of which ten make up the risk: terminal, file and page say so."""
    done, folder = commanded
    few = "95 % nominally: only 10 draws in the tail"
    said = json.loads((folder / "solution.json").read_text())
    assert said["confidence"] == said["certificate"]["gap_confidence"] == said["deterministic"]["confidence"] == few
    assert {each["difference"]["confidence"] for each in said["rivals"]} == {few}
    page = (folder / "report.html").read_text()
    answer = page[page.index('id="answer"') : page.index('id="asked"')]
    for text in (" ".join(done.stdout.split()), " ".join(answer.split())):
        assert text.count(few) >= 3, "of the risk, of the deterministic policy, of the best rival"
        assert "95 % confidence (nominally: only 10 draws in the tail)" in text
        assert "95 % interval" not in text and "95 % confidence intervals" not in text
    assert pr.read_record(folder).confidence == few


def test_a_policy_that_was_written_is_judged_as_it_was(problem, run):
    judged = pr.evaluate_problem(run.folder / "policy.csv", problem)
    # The solver finds losses along with their gradients, in another compiled function: the last digit may differ.
    assert (judged.risk, judged.mean) == pytest.approx((run.solution.risk, run.record.mean), rel=1e-12)
    assert np.allclose(judged.losses, run.solution.losses, rtol=1e-12, atol=0.0)
    certain = pr.evaluate_problem(run.folder / "policy-deterministic.csv", problem)
    assert set(certain.probabilities.ravel()) == {0.0, 1.0}


PAPER = {"kind": "brpg", "iterations": 12, "samples": 20, "step": 0.2, "evaluation": 100}
# All that can happen in a few iterations: several starts, one that goes on, a larger sample, the end.
QUICK = {"samples": 8, "largest": 32, "starts": 2, "tolerance": 0.01, "evaluation": 100, "iterations": 200}


@pytest.mark.parametrize(("solver", "stops"), [(PAPER, [5, 9]), (QUICK, [1, 4, 15, 20, 30])], ids=["brpg", "default"])
def test_going_on_repeats_the_bits_of_one_longer_run(problem, tmp_path, solver, stops):
    one = pr.solve_problem(problem, tmp_path / "one", report=False, changes={"solver": solver})
    assert one.solution.iterations > stops[1]
    first = solver | {"iterations": stops[0]}
    run = pr.solve_problem(problem, tmp_path / "several", report=False, changes={"solver": first})
    for more in [*np.diff(stops).tolist(), solver["iterations"] - stops[-1]]:
        run = pr.continue_run(run.folder, iterations=more, report=False)
    assert run.solution.iterations == one.solution.iterations
    assert run.solution.status is one.solution.status
    for ours, theirs in zip(
        jax.tree.leaves(named_leaves(run.solution.checkpoint.state)),
        jax.tree.leaves(named_leaves(one.solution.checkpoint.state)),
        strict=True,
    ):
        assert np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f")
    assert np.array_equal(run.solution.history.objective, one.solution.history.objective)
    assert run.solution.models == one.solution.models
    assert (run.folder / "policy.csv").read_bytes() == (one.folder / "policy.csv").read_bytes()
    assert run.solution.risk == one.solution.risk


def test_a_log_counts_once(problem, run, tmp_path):
    more = tmp_path / "more.csv"
    more.write_text("state,action,next_state\nworn,run,broken\nused,run,worn\n")
    copy = tmp_path / "copy.csv"
    copy.write_text("state,action,next_state\nused,run,worn\nworn,run,broken\n")
    refused = pytest.raises(pr.InputError, match=r"copy.csv: its rows were counted before as .*more.csv; .*--again")
    with refused:
        pr.continue_run(run.folder, data=[more, copy], out=tmp_path / "out")
    later = pr.continue_run(run.folder, data=more, out=tmp_path / "out", report=False)
    for data, message in (
        (more, r"more.csv: its rows were counted before; leave it out, or .*--again"),
        (copy, r"copy.csv: its rows were counted before as .*more.csv"),
        (problem.parent / "log.csv", r"log.csv: its rows were counted before as log.csv"),
    ):
        with pytest.raises(pr.InputError, match=message):
            pr.continue_run(later.folder, data=data)
    more.write_text("state,action,next_state\nworn,run,broken\nused,run,worn\nused,run,used\n")
    with pytest.raises(pr.InputError, match=r"more.csv: was counted before, and has other rows now; name a file"):
        pr.continue_run(later.folder, data=more)
    result = CliRunner().invoke(app, ["continue", str(later.folder), "--data", str(more), "--quiet"])
    assert result.exit_code == 2
    again = ["continue", str(later.folder), "--data", str(more), "--again", "--no-report", "--quiet"]
    result = CliRunner().invoke(app, again)
    said = json.loads((later.folder / "solution.json").read_text())
    assert (said["status"], result.exit_code) in (("CONVERGED", 0), ("ITERATION_LIMIT", 1)), result.output
    assert read_checkpoint(later.folder / "checkpoint.safetensors").case.counts().sum() == run.case.counts().sum() + 5


def test_a_problem_file_counts_a_log_once(problem, tmp_path):
    for name in ("problem.toml", "log.csv", "costs.csv"):
        (tmp_path / name).write_text((problem.parent / name).read_text())
    (tmp_path / "same.csv").write_text((problem.parent / "log.csv").read_text())
    once = pr.read_problem(tmp_path / "problem.toml").counts().sum()
    for second in ("./log.csv", "same.csv"):
        twice = {"data.transitions": ["log.csv", second]}
        with pytest.raises(pr.InputError, match=rf"{second}: its rows were counted before as log.csv.*again = true"):
            pr.read_problem(tmp_path / "problem.toml", changes=twice)
        both = pr.read_problem(tmp_path / "problem.toml", changes=twice | {"data.again": True})
        assert both.counts().sum() == 2 * once


def test_the_settings_are_those_in_force(problem, run, tmp_path):
    solver = run.record.settings["solver"]
    assert (solver["iterations"], solver["samples"], solver["tolerance"]) == (12, 20, 0.0)
    assert (solver["starts"], solver["largest"]) == (pr.SampleAverage().starts, pr.SampleAverage().largest)
    # Two iterations more do not get there at this tolerance, so that all of them are made.
    more = pr.continue_run(run.folder, iterations=2, tolerance=1e-12, out=tmp_path / "more", report=False)
    said = json.loads((tmp_path / "more" / "solution.json").read_text())
    assert said["iterations"] == more.solution.iterations == 14
    assert (said["settings"]["solver"]["iterations"], said["settings"]["solver"]["tolerance"]) == (2, 1e-12)
    still = pr.continue_run(tmp_path / "more", report=False)
    assert still.record.settings["solver"]["tolerance"] == 1e-12
    assert still.record.iterations == 16
    # At a loose one it is there at once, and makes no more than it needs.
    loose = pr.continue_run(run.folder, iterations=5, tolerance=1e-3, out=tmp_path / "loose", report=False)
    assert (loose.solution.status, loose.solution.iterations) == (pr.Status.CONVERGED, 13)


@pytest.mark.parametrize("status", pr.Status)
def test_a_status_has_the_same_words_on_the_command_line(status):
    said = message_of(status)
    assert not re.search(r"\w=", said), "an argument of Python's"
    # One place for the words: what the command line says is the status's own sentence, arguments aside.
    assert set(re.findall(r"\w+", status.value)) - {"resume"} <= set(re.findall(r"\w+", said))


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


def test_the_next_episode_learns_from_what_was_observed_since(problem, run):
    more = problem.parent / "more.csv"
    more.write_text("state,action,next_state,count\nworn,run,broken,40\n")
    out = problem.parent / "episode"
    later = pr.continue_run(run.folder, data=more, out=out, report=False)
    assert later.record.episode == 1
    assert later.case.counts()[2, 0] == run.case.counts()[2, 0] + 40
    # As if the posterior had been updated by hand and the solver started from the policy there was.
    case = pr.read_problem(problem).with_log(more)
    assert case.digest() == later.case.digest() != run.case.digest()
    import jax

    arguments = case.arguments() | {"seed": jax.random.fold_in(pr.solve.__globals__["as_key"](0), 1)}
    by_hand = pr.solve(**arguments, start=run.solution.parameters)
    assert by_hand.risk == later.solution.risk
    again = pr.continue_run(out, data=more, again=True, out=problem.parent / "episode-2", report=False)
    assert again.record.episode == 2
    assert again.case.counts()[2, 0] == run.case.counts()[2, 0] + 80
    (problem.parent / "wrong.csv").write_text("state,action,next_state\nwrn,run,worn\n")
    with pytest.raises(pr.InputError, match="row 1: state 'wrn' is not declared; did you mean 'worn'"):
        pr.continue_run(run.folder, data=problem.parent / "wrong.csv")


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
    assert (rows[0].risk_difference.value, rows[0].mean_difference.high) == (0.0, 0.0)
    told = CliRunner().invoke(app, ["compare", str(run.folder), str(other.folder), "--json"])
    assert json.loads(told.stdout)[1]["risk_difference"]["value"] == rows[1].risk_difference.value
    result = CliRunner().invoke(app, ["compare", str(run.folder), str(other.folder)])
    assert result.exit_code == 0, result.output
    assert "solved for another question" in result.output


def test_a_checkpoint_that_was_changed_is_refused(problem, run, tmp_path):
    path = run.folder / "checkpoint.safetensors"
    content = path.read_bytes()
    target = tmp_path / "checkpoint.safetensors"
    for place in range(100, len(content), len(content) // 20):
        target.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(pr.InputError, match=r"damaged|another file"):
            pr.continue_run(tmp_path)
    arrays, record = read_tensors(path, KIND)
    # Signed by someone, but not the problem that it says it is.
    write_tensors(target, arrays, record | {"problem": "0" * 64})
    with pytest.raises(pr.InputError, match="is for another problem"):
        pr.continue_run(tmp_path)
    # A state that no run could have left: parts missing, of other shapes or types, or that do not go together.
    value = arrays["state.iterates.value"]
    for change in (
        {"state.iterates.value": None},
        {"state.iterates.value": value[:-1]},
        {"state.iterates.value": value.astype(np.float32)},
        {"state.iterates.parameters": arrays["state.iterates.parameters"] * np.nan},
        {"state.iterates.finished": arrays["state.iterates.finished"] - 1},
        {"state.iterates.memory.radius": None},
        {"state.stage": np.array(31)},
        {"state.turn": np.array(5)},
        {"state.done": np.array(-1)},
        {"state.scoring": np.array(2)},
        {"state.incumbent.held_out": np.zeros(3)},
        {"state.elsewhere": np.zeros(3)},
    ):
        changed = {name: array for name, array in (arrays | change).items() if array is not None}
        write_tensors(target, changed, record)
        with pytest.raises(pr.InputError, match="holds the state of another solver"):
            pr.continue_run(tmp_path)
    write_tensors(target, arrays, record | {"iterations": 500})
    with pytest.raises(pr.InputError, match="a history of another length than the run"):
        pr.continue_run(tmp_path)
    settings = record["file"] | {"solver": PAPER}
    write_tensors(target, arrays, record | {"file": settings})
    with pytest.raises(pr.InputError, match="holds the state of another solver"):
        pr.continue_run(tmp_path)


def test_another_run_is_replaced_only_by_force(problem, run, tmp_path):
    target = shutil.copytree(run.folder, tmp_path / "forced")
    (target / "report.html").write_text("of a run that is gone")
    with pytest.raises(pr.InputError, match="holds another run"):
        pr.solve_problem(problem, target, report=False)
    assert pr.solve_problem(problem, target, report=False, force=True).solution.risk == run.solution.risk
    assert not (target / "report.html").exists()


def test_names_from_files_are_text_in_the_report_and_on_the_terminal(problem, tmp_path):
    for name in ("problem.toml", "log.csv", "costs.csv"):
        text = (problem.parent / name).read_text()
        (tmp_path / name).write_text(text.replace("worn", "<script>alert(1)</script>").replace("used", "[red]used"))
    result = CliRunner().invoke(app, ["solve", str(tmp_path / "problem.toml"), "--out", str(tmp_path / "run")])
    assert result.exit_code == 1, result.output
    page = (tmp_path / "run" / "report.html").read_text()
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    checked = CliRunner().invoke(app, ["check", str(tmp_path / "problem.toml")])
    assert "[red]used, <script>alert(1)</script>" in checked.output


def test_json_quiet_and_completion(problem, run):
    arguments = ["solve", str(problem), "--no-report", "--out"]
    told = CliRunner().invoke(app, [*arguments, str(problem.parent / "json"), "--json"])
    assert told.exit_code == 1
    assert json.loads(told.stdout) == json.loads((problem.parent / "json" / "solution.json").read_text())
    assert json.loads(told.stdout)["risk"] == run.solution.risk
    quiet = CliRunner().invoke(app, [*arguments, str(problem.parent / "quiet"), "--quiet"])
    assert (quiet.exit_code, quiet.output) == (1, "")


def test_shell_completion_knows_the_commands(tmp_path):
    environment = os.environ | {"_PRUDENT_COMPLETE": "complete_bash", "COMP_WORDS": "prudent co", "COMP_CWORD": "1"}
    done = subprocess.run([COMMAND], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["compare", "continue"]


@pytest.mark.parametrize("command", ["init", "check", "solve", "evaluate", "compare", "continue", "report"])
def test_every_command_shows_an_example(command):
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert f"Example: prudent {command}" in result.output


WATCHED = """
import os, sys
from pathlib import Path
home = Path(sys.argv[1]).resolve()
seen = []
def watch(event, arguments):
    if event == "pickle.find_class":
        seen.append(f"unpickled {arguments}")
    if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        path, mode, flags = arguments
        writes = set(mode) & set("wax+") if isinstance(mode, str) else (flags or 0) & (os.O_WRONLY | os.O_RDWR)
        if writes and os.fsdecode(path) != os.devnull and not Path(os.fsdecode(path)).resolve().is_relative_to(home):
            seen.append(f"opened {path!r} to write")
    if event in ("os.rename", "os.remove", "os.mkdir", "os.symlink", "os.link", "shutil.rmtree"):
        for path in arguments[:2]:
            if isinstance(path, str | os.PathLike) and not Path(path).resolve().is_relative_to(home):
                seen.append(f"{event} {path!r}")
sys.addaudithook(watch)
# The watch sees what it is there to see.
import pickle
(home.parent / "outside").write_text("x")
pickle.loads(pickle.dumps(Path))
assert len(seen) == 2, seen
seen.clear()
from typer.testing import CliRunner
from prudent.cli import app
os.chdir(home)
Path("more.csv").write_text("state,action,next_state\\nworn,run,worn\\n")
for arguments in (
    "init .",
    "check problem.toml",
    "solve problem.toml --out run --iterations 3",
    "evaluate run/policy.csv problem.toml",
    "continue run --iterations 2",
    "continue run --data more.csv --out next --iterations 2",
    "compare run next",
    "report run",
):
    result = CliRunner().invoke(app, arguments.split())
    assert result.exit_code in (0, 1), (arguments, result.output, result.exception)
print(seen)
"""


@pytest.mark.long
def test_no_command_unpickles_or_writes_outside_its_folder(tmp_path):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")} | {"PYTHONDONTWRITEBYTECODE": "1"}
    home = tmp_path / "home"
    home.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, home], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


@pytest.mark.long
def test_the_example_solves_as_it_is(tmp_path):
    assert prudent("init", folder=tmp_path).returncode == 0
    done = prudent("solve", "problem.toml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "run" / "solution.json").read_text())["status"] == "CONVERGED"
