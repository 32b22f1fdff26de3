"""Runs in folders: what the command writes is what the library computes, and a folder is enough to go on from."""

import csv
import json
import re
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

import prudent as pr
from prudent.cli import app
from prudent.records import tree_leaves
from prudent.report.record import message_of
from prudent.runs.checkpoint import KIND
from prudent.runs.tensors import packed, unpacked
from prudent.seeds import child
from prudent.solvers import named_leaves

from .run_folders import adopt, read_checkpoint

FILES = {
    "checkpoint.safetensors",
    "manifest.json",
    "policy.csv",
    "policy-deterministic.csv",
    "report.html",
    "report.safetensors",
    "solution.json",
    "weights.csv",
}


RIVALS = ("maximum-likelihood plan", "posterior-mean plan", "risk-neutral policy", "robust plan")


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_command_writes_what_the_library_computes_to_the_bit(problem, commanded):
    done, folder = commanded
    assert done.exit_code == 1, "at the iteration limit nothing is solved: " + done.stderr
    solution = pr.solve(**pr.read_problem(problem).arguments())
    said = json.loads((folder / "solution.json").read_text())
    assert said["status"] == solution.status.name == "ITERATION_LIMIT"
    assert said["solved"] is False
    assert (said["risk"], said["risk_standard_error"]) == (solution.risk, solution.risk_standard_error)
    assert (said["iterations"], said["seed"]) == (26, 0)
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
    for name in FILES - {"manifest.json"}:
        assert f"wrote {folder / name}" in done.stdout
    for words in ("this policy", "deterministic policy", *RIVALS, "CVaR 0.9", "iteration limit", "told theta"):
        assert words in done.stdout
    assert "best rival, " in done.stdout
    assert "of 3 unknowns that the policy meets" in done.stdout
    assert done.stderr == ""


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


PAPER = {"kind": "brpg", "iterations": 12, "samples": 20, "step": 0.2, "evaluation": 100}
# All that can happen in a few iterations: several starts, one that goes on, a larger sample, the end.
QUICK = {"samples": 8, "largest": 32, "starts": 2, "tolerance": 0.01, "evaluation": 100, "iterations": 200}


@pytest.mark.parametrize(
    ("solver", "stops"),
    [pytest.param(PAPER, [5, 9], marks=pytest.mark.long), (QUICK, [4, 12])],
    ids=["brpg", "default"],
)
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
        tree_leaves(named_leaves(run.solution.checkpoint.state)),
        tree_leaves(named_leaves(one.solution.checkpoint.state)),
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
    more.write_text("state,action,next_state\nworn,run,broken\nused,run,used\nused,run,worn\n")
    with pytest.raises(pr.InputError, match=r"more.csv: was counted before, and has other rows now; name a file"):
        pr.continue_run(later.folder, data=more)
    result = CliRunner().invoke(app, ["continue", str(later.folder), "--data", str(more), "--quiet"])
    assert result.exit_code == 2
    again = ["continue", str(later.folder), "--data", str(more), "--again", "--no-report", "--quiet"]
    result = CliRunner().invoke(app, again)
    said = json.loads((later.folder / "solution.json").read_text())
    carried = said["status"] == "CONVERGED" and said["evidence"]["word"] == "sound"
    assert result.exit_code == (0 if carried else 1), result.output
    assert read_checkpoint(later.folder).case.counts().sum() == run.case.counts().sum() + 5


def test_a_longer_export_counts_its_new_rows(problem, run, tmp_path):
    export, out = tmp_path / "export.csv", str(tmp_path / "out")
    lines = (problem.parent / "log.csv").read_text().splitlines()
    export.write_text("\n".join([*lines, "used,run,worn,7"]) + "\n")
    said = ["continue", str(run.folder), "--data", str(export), "--no-report", "--out", out]
    result = CliRunner().invoke(app, said)
    held = len(lines) - 1
    told = " ".join(result.output.split())
    assert result.exit_code == 2 and f"the first {held} of its {held + 1} rows were counted before, in log.csv" in told
    assert "--only-new" in told and "Traceback" not in told
    result = CliRunner().invoke(app, [*said, "--only-new", "--iterations", "2"])
    assert f"export.csv: 1 new rows count; the {held} before them had been counted" in " ".join(result.output.split())
    later = read_checkpoint(tmp_path / "out").case
    assert later.counts().sum() == run.case.counts().sum() + 7
    # The run knows the whole export.
    with pytest.raises(pr.InputError, match="its rows were counted before"):
        pr.continue_run(out, data=export)


def test_a_problem_file_counts_a_log_once(problem, tmp_path):
    for name in ("problem.toml", "log.csv", "costs.csv", "successors.csv"):
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
    assert (solver["iterations"], solver["samples"], solver["tolerance"]) == (26, 20, 0.0)
    assert (solver["starts"], solver["largest"]) == (pr.SampleAverage().starts, pr.SampleAverage().largest)
    # Two iterations more do not get there at this tolerance, so that all of them are made.
    more = pr.continue_run(run.folder, iterations=2, tolerance=1e-12, out=tmp_path / "more", report=False)
    said = json.loads((tmp_path / "more" / "solution.json").read_text())
    assert said["iterations"] == more.solution.iterations == 28
    assert (said["settings"]["solver"]["iterations"], said["settings"]["solver"]["tolerance"]) == (2, 1e-12)
    still = pr.continue_run(tmp_path / "more", report=False)
    assert still.record.settings["solver"]["tolerance"] == 1e-12
    assert still.record.iterations == 30
    # At a loose one it is there at once, and makes no more than it needs.
    loose = pr.continue_run(run.folder, iterations=5, tolerance=0.1, out=tmp_path / "loose", report=False)
    assert (loose.solution.status, loose.solution.iterations) == (pr.Status.CONVERGED, 27)


@pytest.mark.parametrize("status", pr.Status)
def test_a_status_has_the_same_words_on_the_command_line(status):
    said = message_of(status)
    assert not re.search(r"\w=", said), "an argument of Python's"
    # One place for the words: what the command line says is the status's own sentence, arguments aside.
    assert set(re.findall(r"\w+", status.value)) - {"resume"} <= set(re.findall(r"\w+", said))


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
    arguments = case.arguments() | {"seed": child(0, 1)}
    by_hand = pr.solve(**arguments, start=run.solution.parameters)
    assert by_hand.risk == later.solution.risk
    again = pr.continue_run(out, data=more, again=True, out=problem.parent / "episode-2", report=False)
    assert again.record.episode == 2
    assert again.case.counts()[2, 0] == run.case.counts()[2, 0] + 80
    (problem.parent / "wrong.csv").write_text("state,action,next_state\nwrn,run,worn\n")
    with pytest.raises(pr.InputError, match="row 1: state 'wrn' is not declared; did you mean 'worn'"):
        pr.continue_run(run.folder, data=problem.parent / "wrong.csv")


def test_a_checkpoint_that_was_changed_is_refused(problem, run, tmp_path):
    path = run.folder / "checkpoint.safetensors"
    content = path.read_bytes()
    target = tmp_path / "checkpoint.safetensors"
    target.write_bytes(content)
    adopt(tmp_path)
    for place in range(100, len(content), len(content) // 20):
        target.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(pr.InputError, match=r"checkpoint.safetensors: is .*damaged.*; solve again"):
            pr.continue_run(tmp_path)
    arrays, record = unpacked(content, KIND, "checkpoint")

    def write(arrays, record):
        target.write_bytes(packed(arrays, record))
        adopt(tmp_path)

    # Signed by someone, but not the problem that it says it is.
    write(arrays, record | {"problem": "0" * 64})
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
        {"state.waiting.value": np.zeros(3)},
    ):
        changed = {name: array for name, array in (arrays | change).items() if array is not None}
        write(changed, record)
        with pytest.raises(pr.InputError, match="holds the state of another solver"):
            pr.continue_run(tmp_path)
    write(arrays, record | {"iterations": 500})
    with pytest.raises(pr.InputError, match="a history of another length than the run"):
        pr.continue_run(tmp_path)
    settings = record["file"] | {"solver": PAPER}
    write(arrays, record | {"file": settings})
    with pytest.raises(pr.InputError, match="holds the state of another solver"):
        pr.continue_run(tmp_path)


def test_another_run_is_replaced_only_by_force(problem, run, tmp_path):
    target = shutil.copytree(run.folder, tmp_path / "forced")
    (target / "report.html").write_text("of a run that is gone")
    with pytest.raises(pr.InputError, match="holds another run"):
        pr.solve_problem(problem, target, report=False)
    assert pr.solve_problem(problem, target, report=False, force=True).solution.risk == run.solution.risk
    assert not (target / "report.html").exists()
