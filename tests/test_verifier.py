"""The verifier: it accepts a proof, refuses what was tampered with, and what it accepts holds."""

import ast
import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import prudent as pr
import prudent_verifier
from prudent.cli import app
from prudent.runs import add_to_run

from .atom_problems import AtomProblem, tail_mean


@pytest.fixture(scope="module")
def proof_file(tmp_path_factory):
    problem = AtomProblem(15, states=2, actions=2, most=2)
    proof = pr.prove(problem.family, problem.belief(), risk=pr.CVaR(problem.level), gap=1e-4, seconds=30.0, workers=1)
    return pr.write_proof(proof, tmp_path_factory.mktemp("proof") / "proof.safetensors"), proof


def test_the_verifier_accepts_a_proof_and_finds_its_numbers(proof_file):
    path, proof = proof_file
    verdict = prudent_verifier.verify(path)
    assert verdict.risk == pytest.approx(proof.risk, rel=1e-9)
    assert proof.lower_bound - 1e-6 <= verdict.lower_bound <= proof.risk
    assert verdict.boxes == (proof.cuts.child < 0).sum() and "verified" in str(verdict)


def test_the_verifier_shares_no_module_with_the_search():
    for path in Path(prudent_verifier.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            assert all(name.split(".")[0] not in {"prudent", "jax", "scipy", "equinox"} for name in names), path


def rewritten(path, target, change):
    arrays, claims = prudent_verifier.checking.read(path)
    arrays = {name: array.copy() for name, array in arrays.items()}
    change(arrays, claims)
    from safetensors.numpy import save

    target.write_bytes(save(arrays, {"proof": json.dumps(claims)}))
    return target


def raise_bound(arrays, claims):
    claims["lower_bound"] += 1e-3
    claims["gap"] -= 1e-3


def lower_risk(arrays, claims):
    claims["risk"] -= 1e-3
    claims["gap"] -= 1e-3


def shrink_gap(arrays, claims):
    claims["gap"] *= 0.5
    claims["gap"] -= 1e-6


def drop_a_leaf(arrays, claims):
    leaf = np.flatnonzero(arrays["child"] < 0)[0]
    for name in ("child", "state", "action", "at"):
        arrays[name] = np.delete(arrays[name], leaf)
    arrays["values"] = arrays["values"][1:]


def cut_outside(arrays, claims):
    arrays["at"][np.flatnonzero(arrays["child"] >= 0)[0]] = 1.0


def inflate_values(arrays, claims):
    arrays["values"] += 1.0
    claims["lower_bound"], claims["gap"] = claims["lower_bound"] + 1.0, claims["gap"] - 1.0


def other_models(arrays, claims):
    arrays["probability"][0, 0, 0] = arrays["probability"][0, 0, 0, ::-1]
    arrays["cost"] *= 0.5


def no_level(arrays, claims):
    claims["risk_parts"] = [[1.0, 1.0]]


def two_parents(arrays, claims):
    inner = np.flatnonzero(arrays["child"] >= 0)
    arrays["child"][inner[-1]] = arrays["child"][inner[0]]


MUTATIONS = [
    raise_bound, lower_risk, shrink_gap, drop_a_leaf, cut_outside, inflate_values, other_models, no_level, two_parents
]  # fmt: skip


@pytest.mark.parametrize("change", MUTATIONS)
def test_the_verifier_refuses_what_is_tampered_with(proof_file, tmp_path, change):
    with pytest.raises(prudent_verifier.Refused):
        prudent_verifier.verify(rewritten(proof_file[0], tmp_path / "bad.safetensors", change))


def mutate(path, target, seed):
    """One array entry or byte changed by chance; whether the proof still holds is told by brute force."""
    random = np.random.default_rng(seed)

    def change(arrays, claims):
        name = random.choice([name for name in arrays if arrays[name].size])
        flat = arrays[name].reshape(-1)
        place = random.integers(flat.size)
        if flat.dtype.kind == "i":
            flat[place] += random.choice([-2, -1, 1, 2])
        else:
            flat[place] = random.choice([-1.0, 0.0, np.nan, 2.0, flat[place] * random.choice([0.5, 1.5])])

    return rewritten(path, target, change)


def still_valid(path):
    """Whether the claims hold of the file's own models: no table of a fine grid is below, and the policy's risk is."""
    arrays, claims = prudent_verifier.checking.read(path)
    grid = np.linspace(0.0, 1.0, 101)
    tables = np.array([[[p, 1 - p], [q, 1 - q]] for p in grid for q in grid])
    tables = np.concatenate([tables, arrays["policy"][None]])
    if not np.allclose(arrays["policy"].sum(axis=1), 1.0) or not np.all(np.isfinite(arrays["policy"])):
        return False
    problem = AtomProblem.__new__(AtomProblem)
    dense = np.zeros((*arrays["cost"].shape, 2))
    for r, s, a, b in np.ndindex(*arrays["probability"].shape):
        target = arrays["successor"][s, a, b]
        if not 0 <= target < 2:
            return False
        dense[r, s, a, target] += arrays["probability"][r, s, a, b]
    problem.kernels, problem.costs, problem.shares = dense, arrays["cost"], arrays["share"]
    problem.discount, problem.level = claims["discount"], claims["risk_parts"][0][1]
    if not np.allclose(problem.shares.sum(), 1.0) or np.any(dense < 0) or not np.allclose(dense.sum(axis=3), 1.0):
        return False
    with np.errstate(all="ignore"):
        losses = np.einsum("krs,s->kr", every_state(problem, tables), arrays["start"])
    if not np.allclose(arrays["start"].sum(), 1.0) or np.any(arrays["start"] < 0):
        return False
    risks = tail_mean(losses, problem.shares, problem.level)
    return bool(risks.min() >= claims["lower_bound"] - 1e-6 and risks[-1] <= claims["risk"] + 1e-6)


def every_state(problem, tables):
    chains = np.eye(2) - problem.discount * np.einsum("ksa,rsat->krst", tables, problem.kernels)
    return np.linalg.solve(chains, np.einsum("ksa,rsa->krs", tables, problem.costs)[..., None])[..., 0]


def accepted(path):
    try:
        prudent_verifier.verify(path)
    except prudent_verifier.Refused:
        return False
    return True


@pytest.mark.parametrize("count", [40, pytest.param(1000, marks=pytest.mark.long)])
def test_what_the_verifier_accepts_holds(proof_file, tmp_path, count):
    refused = 0
    for seed in range(count):
        path = mutate(proof_file[0], tmp_path / "mutated.safetensors", seed)
        if accepted(path):
            assert still_valid(path), seed
        else:
            refused += 1
    assert refused > count // 3


def test_damaged_bytes_are_refused_without_a_traceback(proof_file, tmp_path):
    whole = proof_file[0].read_bytes()
    target = tmp_path / "damaged.safetensors"
    for content in (b"", whole[:5], whole[:200], struct.pack("<Q", 2**60) + whole[8:], whole[:8] + b"[" * 20_000):
        target.write_bytes(content)
        with pytest.raises(prudent_verifier.Refused):
            prudent_verifier.verify(target)


# A run's proof.


def test_a_run_is_proved_and_verified_by_commands(run, tmp_path):
    folder, invoke = shutil.copytree(run.folder, tmp_path / "run"), CliRunner().invoke
    result = invoke(app, ["verify", str(folder)])
    assert result.exit_code == 2 and "there is no proof" in result.stderr
    result = invoke(app, ["prove", str(folder), "--samples", "8", "--gap", "0.01", "--seconds", "20"])
    assert result.exit_code == 0 and "no stationary policy has less" in result.stdout
    result = invoke(app, ["verify", str(folder)])
    assert result.exit_code == 0 and "verified: on 8 models" in result.stdout
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


def test_a_proof_of_a_run_stands_in_its_record_and_on_its_page(commanded):
    folder = commanded[1]
    pr.prove_run(folder, samples=8, gap=0.05, seconds=20.0)
    proof = pr.read_record(folder).proof
    assert proof is not None and proof.lower_bound <= proof.risk
    page = (folder / "report.html").read_text()
    assert 'data-name="proof"' in page and dict(proof.lines)["lower bound"] in page
