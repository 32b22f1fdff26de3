"""Runs in folders: what the command writes is what the library computes, and a folder is enough to go on from."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import prudent as pr
from prudent.cli import app
from prudent.runs.checkpoint import KIND
from prudent.runs.tensors import read_tensors, write_tensors

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
    lines = [
        line for line in path.read_text().splitlines() if not line.startswith(("iterations", "samples", "tolerance"))
    ]
    settings = "\n".join(f"{key.removeprefix('solver.')} = {value}" for key, value in SMALL.items())
    path.write_text("\n".join(lines) + "\n" + settings + "\n")
    return path


@pytest.fixture(scope="module")
def run(problem):
    return pr.solve_problem(problem, problem.parent / "in-process", report=False)


@pytest.fixture(scope="module")
def commanded(problem):
    """The installed command, as a new user runs it, with the report."""
    return prudent("solve", problem, "--out", "by-command", folder=problem.parent), problem.parent / "by-command"


def test_the_command_writes_what_the_library_computes_to_the_bit(problem, commanded):
    done, folder = commanded
    assert done.returncode == 1, "at the iteration limit nothing is solved: " + done.stderr
    solution = pr.solve(**pr.read_problem(problem).arguments())
    said = json.loads((folder / "solution.json").read_text())
    assert said["status"] == solution.status.name == "ITERATION_LIMIT"
    assert said["solved"] is False
    assert (said["risk"], said["risk_standard_error"]) == (solution.risk, solution.risk_standard_error)
    assert (said["iterations"], said["seed"], said["lower_bound"]) == (12, 0, None)
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
    certain = {row["state"]: row["action"] for row in table(folder / "policy-deterministic.csv")}
    names = ["run", "service", "replace"]
    assert list(certain.values()) == [names[a] for a in solution.policy.greedy()]
    draws = table(folder / "weights.csv")
    assert np.array_equal([float(row["loss"]) for row in draws], solution.losses)
    assert np.array_equal([float(row["weight"]) for row in draws], solution.weights)
    wear = np.array([float(row["P(used | new, run)"]) for row in draws])
    assert np.array_equal(wear, solution.thetas[:, 0, 0, 1])


def test_the_command_prints_a_table_and_the_paths_and_writes_nothing_else(commanded):
    done, folder = commanded
    assert {path.name for path in folder.iterdir()} == FILES
    for name in FILES:
        assert f"wrote {Path('by-command') / name}" in done.stdout
    for words in ("this policy", "plug-in plan", "robust plan", "CVaR 0.9", "iteration limit", "not knowing theta"):
        assert words in done.stdout
    assert done.stderr == ""


def test_the_rivals_are_the_librarys_on_the_same_draws(problem, commanded):
    said = json.loads((commanded[1] / "solution.json").read_text())
    arguments = pr.read_problem(problem).arguments()
    model, belief, risk = arguments["model"], arguments["belief"], arguments["risk"]
    known = belief.maximum_likelihood(unseen=belief.mean())
    rival = pr.plug_in(model, belief, known, risk=risk, evaluation=100)
    assert [each["name"] for each in said["rivals"]] == ["plug-in plan", "robust plan"]
    assert said["rivals"][0]["risk"] == pytest.approx(rival.risk, rel=1e-12)
    # Who is told theta loses, at every draw, what exact planning of that draw's model loses.
    told = [float(model.start @ pr.plan(model.at(theta)).values) for theta in rival.thetas]
    assert said["known_theta_risk"] == pytest.approx(float(risk(np.array(told)).value), rel=1e-9)
    assert said["known_theta_risk"] <= min(said["risk"], said["rivals"][0]["risk"])


def test_the_report_says_what_solution_json_says(commanded):
    page = (commanded[1] / "report.html").read_text()
    said = json.loads((commanded[1] / "solution.json").read_text())
    for name in ("risk", "risk_standard_error", "iterations", "seconds", "seed"):
        assert f'data-name="{name}"' in page
        assert f'data-value="{said[name]!r}"' in page


def test_a_policy_that_was_written_is_judged_as_it_was(problem, run):
    view = pr.evaluate_problem(run.folder / "policy.csv", problem)
    assert (view.risk, view.mean) == (run.solution.risk, run.record.summary["mean"])
    assert np.array_equal(view.losses, run.solution.losses)
    certain = pr.evaluate_problem(run.folder / "policy-deterministic.csv", problem)
    assert set(certain.probabilities.ravel()) == {0.0, 1.0}


def test_going_on_repeats_the_bits_of_one_longer_run(problem, run):
    half = pr.solve_problem(problem, problem.parent / "half", report=False, changes={"solver.iterations": 5})
    whole = pr.continue_run(half.folder, iterations=7, report=False)
    assert whole.solution.iterations == 12
    assert np.array_equal(whole.solution.policy.probabilities, run.solution.policy.probabilities)
    assert np.array_equal(whole.solution.history.objective, run.solution.history.objective)
    assert (whole.folder / "policy.csv").read_bytes() == (run.folder / "policy.csv").read_bytes()


def test_the_next_episode_learns_from_what_was_observed_since(problem, run):
    more = problem.parent / "more.csv"
    more.write_text("state,action,next_state,count\nworn,run,broken,40\n")
    out = problem.parent / "episode"
    later = pr.continue_run(run.folder, data=more, out=out, report=False)
    assert later.record.summary["episode"] == 1
    assert later.case.counts()[2, 0] == run.case.counts()[2, 0] + 40
    # As if the posterior had been updated by hand and the solver started from the policy there was.
    case = pr.read_problem(problem).with_log(more)
    assert case.digest() == later.case.digest() != run.case.digest()
    import jax

    arguments = case.arguments() | {"seed": jax.random.fold_in(pr.solve.__globals__["as_key"](0), 1)}
    by_hand = pr.solve(**arguments, start=run.solution.parameters)
    assert by_hand.risk == later.solution.risk
    again = pr.continue_run(out, data=more, out=problem.parent / "episode-2", report=False)
    assert again.record.summary["episode"] == 2
    (problem.parent / "wrong.csv").write_text("state,action,next_state\nwrn,run,worn\n")
    with pytest.raises(pr.InputError, match="row 1: state 'wrn' is not declared; did you mean 'worn'"):
        pr.continue_run(run.folder, data=problem.parent / "wrong.csv")


def test_runs_are_compared_on_the_draws_of_the_first(problem, run):
    other = pr.solve_problem(
        problem, problem.parent / "neutral", report=False, changes={"risk": {"kind": "expectation"}}
    )
    rows = pr.compare_runs([run.folder, other.folder])
    assert [row.same_problem for row in rows] == [True, False]
    assert rows[0].view.risk == run.solution.risk
    difference = other.solution.losses - run.solution.losses
    assert rows[1].difference == pytest.approx(difference.mean(), rel=1e-9)
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
    write_tensors(target, {name: array for name, array in arrays.items() if ".steps" not in name}, record)
    with pytest.raises(pr.InputError, match="holds the state of another solver"):
        pr.continue_run(tmp_path)


def test_another_run_is_replaced_only_by_force(problem, run):
    target = problem.parent / "forced"
    pr.solve_problem(problem, target, report=False)
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
