"""A problem begun from a log."""

import numpy as np
import pytest
from typer.testing import CliRunner

import prudent as pr
from prudent.cli import app

HEAD = "state,action,next_state,count"


def walk(folder, costs: bool = True, names=str):
    """A log of steps of one along 6 states, 40 of each."""
    rows = [(s, a, min(max(s + (1 if a else -1), 0), 5)) for s in range(6) for a in range(2)]
    lines = [f"{names(s)},{a},{names(t)},40" + (f",{s}" if costs else "") for s, a, t in rows]
    (folder / "walk.csv").write_text("\n".join([HEAD + (",cost" if costs else ""), *lines]) + "\n")
    return folder / "walk.csv"


def test_a_log_becomes_a_problem_that_can_be_checked_and_solved(tmp_path):
    said = CliRunner().invoke(app, ["init", str(walk(tmp_path))])
    assert said.exit_code == 0 and "All 480 moves lead at most 1 level forward and at most 1 level back" in said.output
    path = tmp_path / "problem.toml"
    case = pr.read_problem(path)
    assert case.states == tuple("012345") and case.actions == ("0", "1") and case.counts().sum() == 480
    assert np.array_equal(case.cost, np.repeat(np.arange(6.0)[:, None], 2, axis=1))
    assert case.facts.file.posterior.support == "all", "what the log looks like is a comment until somebody knows it"
    checked = CliRunner().invoke(app, ["check", str(path)])
    assert checked.exit_code == 0 and "A plan for the posterior mean has CVaR 0.9" in checked.output
    # The comment becomes the rule once its signs are taken off.
    head, rule = path.read_text().split("# [posterior]\n")
    path.write_text(head + "[posterior]\n" + "\n".join(line.removeprefix("# ") for line in rule.splitlines()))
    after = pr.read_problem(path)
    assert after.facts.file.posterior.support == "rule" and isinstance(after.arguments()["belief"], pr.Pooled)
    assert after.support.allowed().sum() == 2 * (3 * 6 - 2)


def test_what_a_rule_changes_is_that_of_the_problem_with_it(tmp_path):
    import json

    path = pr.begin_problem(walk(tmp_path)).path
    said = json.loads(CliRunner().invoke(app, ["check", str(path), "--json"]).stdout)["suggestion"]
    (tmp_path / "other.toml").write_text(path.read_text() + "\n" + said["toml"])
    other = CliRunner().invoke(app, ["check", str(tmp_path / "other.toml"), "--json"])
    assert other.exit_code == 0 and json.loads(other.stdout)["suggestion"] is None
    case = pr.read_problem(tmp_path / "other.toml")
    plan = pr.plan(case.model.at(np.asarray(case.belief.mean()))).policy
    judged = pr.evaluate_problem(np.asarray(plan.probabilities), case, samples=1000)
    assert said["risk_then"] == pytest.approx(judged.risk, rel=1e-9)
    assert said["risk_now"] != said["risk_then"] and said["states_changed"] >= 0


def test_states_that_the_log_never_leaves_are_offered_as_its_ends(tmp_path):
    (tmp_path / "walk.csv").write_text(f"{HEAD}\na,go,b,3\nb,go,goal,2\nb,go,pit,1\nnever,go,other,0\n")
    lines = pr.begin_problem(tmp_path / "walk.csv").path.read_text().splitlines()
    assert [line.split("  #")[0] for line in lines if "terminal" in line] == ['# terminal = ["goal", "pit"]']
    assert "terminal" not in pr.begin_problem(walk(tmp_path), force=True).path.read_text()


def test_pairs_without_a_cost_are_offered_the_dearest_that_was_seen(tmp_path):
    """As 0, pairs that nobody tried would be free, and the plan would go there."""
    log = tmp_path / "ward.csv"
    rows = ["well,wait,well,3,1", "well,wait,ill,1,4", "ill,treat,well,2,9.5", "ill,treat,ill,1,7", "ill,wait,ill,0,99"]
    log.write_text("\n".join([HEAD + ",cost", *rows]) + "\n")
    path = pr.begin_problem(log).path
    text = path.read_text()
    assert "has no cost for 2 of the 4 pairs" in text and "# default_cost = 9.5\n" in text
    refused = CliRunner().invoke(app, ["check", str(path)])
    told = " ".join(refused.stderr.split())
    assert refused.exit_code == 2
    assert "give one, or set data.default_cost, no lower than the dearest cost there is (9.5)" in told
    path.write_text(text.replace("# default_cost", "default_cost"))
    case = pr.read_problem(path)
    assert np.all(case.cost[[0, 1], [1, 0]] == 9.5) and case.cost.max() == 9.5
    checked = CliRunner().invoke(app, ["check", str(path)])
    assert "default_cost prices 2 of 4 pairs" in " ".join(checked.stdout.split())
    # Rewards are negative costs; where all pairs have one, nothing is offered.
    log.write_text("state,action,next_state,reward\na,x,b,1\nb,x,a,0\nb,y,a,2\n")
    assert "# default_cost = 0.0\n" in pr.begin_problem(log, force=True).path.read_text()
    log.write_text("state,action,next_state,cost\na,x,b,1\nb,x,a,0\n")
    assert "default_cost" not in pr.begin_problem(log, force=True).path.read_text()


def test_a_log_without_costs_says_that_they_are_missing(tmp_path):
    said = CliRunner().invoke(app, ["init", str(walk(tmp_path, costs=False))])
    assert said.exit_code == 0 and "give costs, which the log has none of" in said.output
    checked = CliRunner().invoke(app, ["check", str(tmp_path / "problem.toml")])
    assert checked.exit_code == 2 and "costs.csv" in checked.output


def test_names_that_are_no_numbers_are_put_in_order_by_the_user(tmp_path):
    begun = pr.begin_problem(walk(tmp_path, names=lambda s: f'"level ""{"fbadce"[s]}"""'))
    assert begun.suggestion is None and "natural order" in begun.path.read_text()
    assert pr.read_problem(begun.path).states == tuple(f'level "{letter}"' for letter in "fbadce")


def test_a_log_with_other_columns_says_how_to_name_them(tmp_path):
    log = walk(tmp_path)
    log.write_text(log.read_text().replace("state,action,next_state", "from,did,to", 1))
    refused = CliRunner().invoke(app, ["init", str(log)])
    assert refused.exit_code == 2 and "(--columns state=... of prudent init)" in refused.stderr
    named = [word for pair in ("state=from", "action=did", "next_state=to") for word in ("--columns", pair)]
    for odd, message in (
        ("stat=from", "walk.csv, with data.columns set over what it says (--columns, or"),
        ("state", "write it like state="),
    ):
        refused = CliRunner().invoke(app, ["init", str(log), "--columns", odd])
        assert refused.exit_code == 2 and message in refused.stderr, refused.stderr
    said = CliRunner().invoke(app, ["init", str(log), *named])
    assert said.exit_code == 0, said.stderr
    case = pr.read_problem(tmp_path / "problem.toml")
    assert case.states == tuple("012345") and case.counts().sum() == 480
    assert "--columns" in CliRunner().invoke(app, ["init", str(tmp_path / "other"), *named]).stderr


def test_a_log_of_consecutive_steps_becomes_a_problem(tmp_path):
    (tmp_path / "steps.csv").write_text("state,action,cost\nlow,wait,1\nhigh,wait,0\nlow,,\n")
    refused = CliRunner().invoke(app, ["init", str(tmp_path / "steps.csv")])
    assert refused.exit_code == 2 and "(--trajectories of prudent init)" in refused.stderr
    assert CliRunner().invoke(app, ["init", str(tmp_path / "steps.csv"), "--trajectories"]).exit_code == 0
    assert pr.read_problem(tmp_path / "problem.toml").counts().sum() == 2


def test_what_is_there_is_kept_and_what_is_no_log_refused(tmp_path):
    log = walk(tmp_path)
    (tmp_path / "problem.toml").write_text("mine")
    with pytest.raises(pr.InputError, match="is there already"):
        pr.begin_problem(log)
    assert (tmp_path / "problem.toml").read_text() == "mine"
    assert pr.begin_problem(log, force=True).path.read_text() != "mine"
    (tmp_path / "empty.csv").write_text(HEAD + "\n")
    with pytest.raises(pr.InputError):
        pr.begin_problem(tmp_path / "empty.csv", force=True)
