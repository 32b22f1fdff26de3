"""Linear systems from problem files: read, solved into a folder, gone on with, compared, reported, refused."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import prudent as pr
from prudent.cli import app

from .report_examples import Page, drawn

QUICK = {"solver.samples": 32, "solver.largest": 32, "solver.starts": 2, "solver.evaluation": 100}


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cart")
    problem = pr.write_linear_example(folder)[0]
    return folder, problem, pr.solve_problem(problem, folder / "run", changes=QUICK)


def test_a_run_has_the_bits_of_solve_and_its_files(solved):
    folder, problem, run = solved
    case = pr.read_problem(problem, changes=QUICK)
    plain = pr.solve(**case.arguments())
    assert np.array_equal(plain.policy.gain, run.solution.policy.gain) and plain.risk == run.record.risk
    assert run.solved
    table = pd.read_csv(folder / "run" / "policy.csv")
    assert list(table.columns) == ["action", "bias", "position", "speed"]
    assert table[["position", "speed"]].to_numpy().tolist() == plain.policy.gain.tolist()
    said = json.loads((folder / "run" / "solution.json").read_text(encoding="utf-8"))
    assert said["linear"]["units"] == ["m", "m/s", "N"] and said["lower_bound"] <= said["risk"]
    assert [rival["name"] for rival in said["rivals"]] == [
        "certainty equivalence",
        "plan for the posterior mean",
        "cautious gain",
    ]
    weights = pd.read_csv(folder / "run" / "weights.csv")
    assert "force to speed" in weights.columns and len(weights) == 100


def test_the_record_holds_what_the_closed_loops_are(solved):
    _, _, run = solved
    part, thetas = pr.read_record(run.folder).linear, run.solution.thetas
    gain = run.solution.policy.gain
    loops = np.sort(np.abs(np.linalg.eigvals(thetas[:, :, :2] + thetas[:, :, 2:3] @ gain)), axis=1)
    np.testing.assert_allclose(np.sort(np.hypot(part.real, part.imaginary), axis=1), loops, rtol=1e-10)
    # The response of the draw in the middle, by hand: bands hold nine in ten at every step.
    state, inside = np.tile([1.0, 0.0], (100, 1)), []
    for low, high in zip(part.responses[0], part.responses[2], strict=True):
        action = state @ gain.T
        rows = np.concatenate([state, action], axis=1)
        inside.append((rows >= low - 1e-12) & (rows <= high + 1e-12))
        state = np.einsum("kij,kj->ki", thetas[:, :, :2], state) + np.einsum("kij,kj->ki", thetas[:, :, 2:3], action)
    assert np.all(np.mean(inside, axis=1)[1:] >= 0.89) and np.all(np.mean(inside, axis=1)[3:] <= 0.93)


def test_the_page_shows_gain_stability_and_responses(solved):
    _, _, run = solved
    page = (run.folder / "report.html").read_text(encoding="utf-8")
    assert all(drawn(figure).data for figure in Page(page).figures)
    for heading in ("The gain", "Stability", "Responses", "N / (m/s)", "real part", "imaginary part"):
        assert heading in page
    assert pr.report_run(run.folder).read_text(encoding="utf-8") == page
    assert not re.search(r"\bstate-action\b|pairs of a state", page)


def test_a_run_goes_on_to_the_same_bits_and_with_more_data(solved, tmp_path):
    folder, problem, run = solved
    again = pr.continue_run(run.folder, iterations=0, out=tmp_path / "same", report=False)
    assert np.array_equal(again.solution.policy.gain, run.solution.policy.gain)
    with pytest.raises(pr.InputError, match="counted before"):
        pr.continue_run(run.folder, data=folder / "log.csv", out=tmp_path / "twice", report=False)
    more = pd.read_csv(folder / "log.csv").iloc[:22]
    more["walk"] += 10
    more.loc[:, ["position", "speed"]] += 0.01
    longer = pr.continue_run(run.folder, data=more, out=tmp_path / "more", report=False)
    assert len(longer.case.log) == 60 and longer.record.episode == 1
    expected = pr.read_problem(problem).with_log(more)
    assert np.allclose(longer.case.belief().posterior.mean(), expected.belief().posterior.mean())
    rows = pr.compare_runs([run.folder, tmp_path / "more", tmp_path / "same"])
    assert [row.same_problem for row in rows] == [True, False, True]
    assert rows[2].risk_difference.value == 0.0 and rows[1].risk_difference.value > -1e-9
    shown = CliRunner().invoke(app, ["compare", str(run.folder), str(tmp_path / "more")])
    assert shown.exit_code == 0 and "another question" in shown.output


def test_the_command_line_writes_and_checks_the_example(tmp_path):
    assert CliRunner().invoke(app, ["init", "--linear", str(tmp_path)]).exit_code == 0
    shown = CliRunner().invoke(app, ["check", str(tmp_path / "problem.toml")])
    assert shown.exit_code == 0 and "3 of 3 directions" in shown.output and "position (m)" in shown.output
    assert CliRunner().invoke(app, ["init", "--linear", str(tmp_path)]).exit_code == 2


def said(**changes):
    frame = pd.DataFrame({"x": [0.0, 1.0, 0.5, 0.2], "u": [1.0, -1.0, 0.5, 0.0]})
    content = {
        "kind": "linear",
        "discount": 0.9,
        "data": {"log": frame, "states": ["x"], "actions": ["u"]},
        "cost": {"states": {"x": 1.0}, "actions": {"u": 1.0}},
        "noise": {"deviation": {"x": 0.5}},
    }
    return content | changes


def test_commands_that_are_for_tables_say_their_own_names(solved):
    _, problem, run = solved
    for command in ("frontier", "worth", "prove"):
        refused = CliRunner().invoke(app, [command, str(run.folder)])
        assert refused.exit_code == 2 and f"prudent {command} is for problems of states and actions" in refused.stderr
    refused = CliRunner().invoke(app, ["evaluate", "policy.csv", str(problem)])
    assert refused.exit_code == 2 and "prudent evaluate is for problems of states and actions" in refused.stderr


def test_a_log_without_excitation_says_so():
    frame = pd.DataFrame({"x": [1.0, 0.9, 0.8], "u": [0.0, 0.0, 0.0]})
    case = pr.read_problem(said(data={"log": frame, "states": ["x"], "actions": ["u"]}))
    rows = dict(case.describe())
    assert rows["excitation"].startswith("the log moves in 1 of 2") and rows["learned"].startswith("at least 0.0%")


def test_one_state_and_a_horizon_solve_without_a_log():
    case = pr.read_problem(said(data={"states": ["x"], "actions": ["u"]}, horizon=3, belief={"spread": 0.2}))
    assert case.log is None and dict(case.describe())["log"] == "none: the prior alone"
    small = pr.SampleAverage(samples=8, largest=8, starts=1, iterations=3, evaluation=20)
    assert np.isfinite(pr.solve(**case.arguments() | {"solver": small}).risk)


REFUSED = [
    (said(kind="cubic"), "linear"),
    (said(cost={"states": {"y": 1.0}, "actions": {"u": 1.0}}), "names 'y', which is none of x"),
    (said(cost={"states": {"x": -1.0}, "actions": {"u": 1.0}}), "no negative eigenvalue"),
    (said(cost={"states": {"x": 1.0}, "actions": {}}), "action_cost must be positive definite"),
    (said(cost={"states": [[1.0, 0.0]], "actions": {"u": 1.0}}), "must have 1 rows and columns"),
    (said(noise={"deviation": {}}), "has no x"),
    (said(noise={"deviation": {"x": 0.0}}), "greater than 0"),
    (said(discount=1.0), "discount"),
    (said(belief={"credible": 1.0}), "credible"),
    (said(units={"z": "m"}), "units names 'z'"),
    (said(data={"states": ["x"], "actions": ["x"]}), "named twice"),
    (said(data={"log": pd.DataFrame({"x": [0.0, 1.0]}), "states": ["x"], "actions": ["u"]}), "u"),
    (said(surprise=1), "unknown key 'surprise'"),
    ({name: value for name, value in said().items() if name != "noise"}, "noise: is missing"),
]


@pytest.mark.parametrize(("wrong", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_files_that_are_wrong_are_refused(wrong, words):
    with pytest.raises(pr.InputError, match=re.escape(words) if "(" not in words else words):
        pr.read_problem(wrong)


def test_where_no_gain_is_stable_the_run_is_refused_and_nothing_but_its_state_is_there(tmp_path):
    (tmp_path / "log.csv").write_text("x,u\n1,0.1\n1.5,-0.1\n2.1,0.0\n3,0\n", encoding="utf-8")
    text = """
        kind = "linear"
        discount = 0.99
        data = { log = "log.csv", states = ["x"], actions = ["u"] }
        cost = { states = { x = 1.0 }, actions = { u = 1.0 } }
        noise = { deviation = { x = 1.0 }, known = true }
        solver = { samples = 32, largest = 32, starts = 1, evaluation = 100 }
    """
    (tmp_path / "problem.toml").write_text("\n".join(line.strip() for line in text.splitlines()), encoding="utf-8")
    with pytest.raises(pr.InputError, match=r"unstable at .* of 100 draws"):
        pr.solve_problem(tmp_path / "problem.toml", tmp_path / "run")
    assert not (tmp_path / "run" / "policy.csv").exists()


def test_a_checkpoint_that_was_changed_is_refused(solved, tmp_path):
    from prudent.runs.checkpoint import LINEAR, checkpoint_from, restored
    from prudent.runs.tensors import packed, unpacked

    _, _, run = solved
    path = run.folder / "checkpoint.safetensors"
    arrays, record = unpacked(path.read_bytes(), LINEAR, str(path))
    moved = dict(arrays) | {"log.state": np.array(arrays["log.state"]) + 1.0}
    with pytest.raises(pr.InputError, match="another problem"):
        checkpoint_from(packed(moved, record), path)
    with pytest.raises(pr.InputError, match="solve again"):
        restored(checkpoint_from(packed({k: v for k, v in arrays.items() if k != "parameters"}, record), path), path)
