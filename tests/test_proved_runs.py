"""Proofs of runs: by commands, asked for in a problem file, in the record and on the page."""

import json
import re
import shutil

import pytest
from typer.testing import CliRunner

import prudent as pr
from prudent.cli import app
from prudent.runs import add_to_run

from .tampering import raise_bound, rewritten


def test_a_run_is_proved_and_verified_by_commands(run, tmp_path):
    folder, invoke = shutil.copytree(run.folder, tmp_path / "run"), CliRunner().invoke
    result = invoke(app, ["verify", str(folder)])
    assert result.exit_code == 2 and "there is no proof" in result.stderr
    result = invoke(app, ["prove", str(folder), "--samples", "8", "--gap", "0.01", "--seconds", "20"])
    assert result.exit_code == 0 and "no stationary policy has less" in result.stdout
    said = " ".join(re.sub("[│|]", " ", result.stdout).split())
    printed = re.search(r"risk (\S+) of the best", said)[1], re.search(r"lower bound (\S+):", said)[1]
    assert re.search(r"gap proved to \S+, \S+% of the risk; the aim, 1.000% of the risk, was (not )?met", said)
    assert "--replications" in said and "that takes replications=" not in said
    result = invoke(app, ["verify", str(folder)])
    assert result.exit_code == 0 and "verified: on 8 models" in result.stdout
    said = " ".join(result.stdout.split())
    verified = re.search(r"risk is at most (\S+), and no stationary policy has less than (\S+) \(", said)
    assert verified is not None and printed == verified.groups(), "one risk and one bound"
    for change, message in ((raise_bound, "does not hold"), (of_another_problem, "another problem")):
        bad = rewritten(folder / "proof.safetensors", tmp_path / "bad.safetensors", change).read_bytes()
        add_to_run(folder, {"proof.safetensors": bad})
        result = invoke(app, ["verify", str(folder)])
        assert result.exit_code == 2 and message in result.stderr
    (folder / "proof.safetensors").write_bytes(b"changed behind its back")
    result = invoke(app, ["verify", str(folder)])
    assert result.exit_code == 2 and "was changed after the run" in result.stderr


def of_another_problem(arrays, claims):
    lower_bound(claims)
    claims["digests"] = {"problem": "another"}


def lower_bound(claims):
    claims["lower_bound"] -= 1e-3
    claims["gap"] += 1e-3


def test_a_problem_file_may_ask_for_a_proof(problem, tmp_path):
    asked = {"certificate.prove": True, "certificate.samples": 8, "certificate.gap": 0.05, "certificate.seconds": 20.0}
    run = pr.solve_problem(problem, tmp_path / "proved", report=False, changes=asked)
    said = json.loads((run.folder / "solution.json").read_text())["proof"]
    assert said["lower_bound"] <= said["risk"] and said["gap"] <= 0.05 * said["risk"] and said["draws"] == 8
    assert pr.verify_run(run.folder).lower_bound >= said["lower_bound"] - 1e-6
    # What cannot be proved is refused before anything is solved.
    many = {"states": ["new", "used", "worn", "broken", *(f"spare {k}" for k in range(50))], "data.default_cost": 1.0}
    with pytest.raises(pr.InputError, match="at most 48 states"):
        pr.solve_problem(problem, tmp_path / "none", changes={**asked, **many})
    assert not (tmp_path / "none" / "solution.json").exists()


def test_a_proof_of_a_run_stands_in_its_record_and_on_its_page(commanded, tmp_path):
    folder = shutil.copytree(commanded[1], tmp_path / "run")  # the run of all tests stays as the command left it
    pr.prove_run(folder, samples=8, gap=0.05, seconds=20.0)
    proof = pr.read_record(folder).proof
    assert proof is not None and proof.lower_bound <= proof.risk
    page = (folder / "report.html").read_text()
    assert 'data-name="proof"' in page and dict(proof.lines)["lower bound"] in page
