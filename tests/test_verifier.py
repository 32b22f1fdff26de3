"""The verifier: it accepts a proof, refuses what was tampered with, and what it accepts holds."""

import ast
import json
import os
import struct
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

import prudent as pr
import prudent_verifier
from prudent.arrays import in_float64
from prudent.objectives import objective_of
from prudent.proofs.file import proof_file as proof_file_of

from .atom_problems import AtomProblem, tail_mean
from .marks import short
from .tampering import raise_bound, rewritten


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
    # Boxes whose own parent shows as much are left out.
    assert 1 < verdict.boxes <= (proof.cuts.child < 0).sum() and "verified" in str(verdict)


@pytest.mark.parametrize("seed", short([7, 13, 18], range(30)))
def test_the_verifier_finds_the_gap_that_the_proof_states(seed):
    problem = AtomProblem(seed, states=3, actions=2, most=6)
    proof = pr.prove(problem.family, problem.belief(), risk=pr.CVaR(problem.level), gap=1e-3, seconds=60.0, workers=1)
    assert proof.gap <= 1e-3 * proof.risk
    verdict = prudent_verifier.verify(proof_file_of(proof))
    assert verdict.risk - verdict.lower_bound == pytest.approx(proof.gap, abs=1e-7 * proof.risk)


def test_a_proof_of_too_many_boxes_is_written_with_what_fits(proof_file, monkeypatch):
    path, proof = proof_file
    whole = prudent_verifier.verify(path)
    monkeypatch.setattr("prudent.proofs.file.MOST_BYTES", 4 * (2**2 * 4 * 2 * 2 + 8 * 2 + 64))
    part = prudent_verifier.verify(proof_file_of(proof))
    assert 1 <= part.boxes <= 4 < whole.boxes
    assert proof.known_bound - 1e-9 <= part.lower_bound < whole.lower_bound


@in_float64
def test_one_way_round_two_states_is_paid_once(tmp_path):
    """Three models, each with an action of its own that costs nothing in either of two states, and a way round both."""
    support = pr.Support.lists([[[1, 3]] * 3, [[2, 4]] * 3, [[3, 5]] * 3, [[3, 0]] * 3, [[2, 0]] * 3, [[3, 0]] * 3])
    costs = np.zeros((6, 3))
    costs[0, 1:], costs[4:] = 3.0, 10.0 / 0.9
    family = pr.TabularFamily(support, costs, 0, 0.9)
    thetas = np.zeros((3, 6, 3, 2))
    thetas[:, :, :, 0], thetas[:, 0, 1:] = 1.0, [0.0, 1.0]
    for draw in range(3):
        thetas[draw, 1:3] = np.where((np.arange(3) == draw)[:, None], [1.0, 0.0], [0.0, 1.0])
    boxes, share = objective_of(family, None, None, None).boxes(thetas), np.full(3, 1.0 / 3.0)
    assert boxes is not None
    low, high, state = np.zeros((1, 6, 3)), np.ones((1, 6, 3)), np.array([[1, 2]])
    found = boxes.relaxed(low, high, np.zeros((1, 6, 3)))
    tolls = boxes.tolls(low, high, found.values, state, np.ones((1, 3), bool))
    assert tolls is not None
    # All pay 3 once, for the way round, whatever their rows are in the two states.
    np.testing.assert_allclose(tolls.visits[0].sum(axis=0) * 0.9 * 10.0 / 0.9, 3.0, rtol=1e-6)
    policy = np.tile([0.5, 0.5, 0.0], (6, 1))
    listed = boxes.listed()
    assert listed is not None
    arrays = listed | {
        "share": share,
        "policy": policy,
        "values": np.asarray(found.values).swapaxes(1, 2),
        "weights": share[None],
        "toll_leaf": np.zeros(1, np.int32),
        "toll_state": state.astype(np.int32),
        "toll_values": np.asarray(tolls.paid).swapaxes(2, 3),
        "child": np.array([-1], np.int32),
        "state": np.zeros(1, np.int32),
        "action": np.zeros(1, np.int32),
        "at": np.zeros(1),
    }
    risk = float(boxes.followed(policy[None])[0].mean())
    claims = {"risk": risk, "discount": 0.9, "deterministic": False, "risk_parts": [[1.0, 0.0]]}
    del arrays["discount"]
    for bound, holds in ((1.99, True), (3.01, False)):
        said = claims | {"lower_bound": bound, "gap": risk - bound}
        content = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        (tmp_path / "proof").write_bytes(save(content, {"proof": json.dumps(said)}))
        assert accepted(tmp_path / "proof") == holds


def test_the_verifier_shares_no_module_with_the_search():
    for path in Path(prudent_verifier.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            assert all(name.split(".")[0] not in {"prudent", "jax", "scipy", "equinox"} for name in names), path


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
    arrays["values"], arrays["weights"] = arrays["values"][1:], arrays["weights"][1:]


def no_tolls(arrays, claims):
    """The claims rest on them."""
    arrays["toll_values"][:] = 0.0


def inflate_tolls(arrays, claims):
    arrays["toll_values"] += 100.0
    claims["lower_bound"], claims["gap"] = claims["risk"], 0.0


def tolls_of_others(arrays, claims):
    arrays["toll_state"] = (arrays["toll_state"] + 1) % arrays["cost"].shape[1]


def shuffle_tolls(arrays, claims):
    arrays["toll_leaf"] = arrays["toll_leaf"][::-1]


def two_tolls_at_one_state(arrays, claims):
    arrays["toll_state"][:] = arrays["toll_state"][:, :1]


def swap_tolls(arrays, claims):
    """The values of one set for those of another."""
    arrays["toll_values"][:, 0] = arrays["toll_values"][:, 1]
    arrays["toll_values"][:, 1] = arrays["toll_values"][:, 2]
    claims["lower_bound"], claims["gap"] = claims["risk"], 0.0


def heavy_weights(arrays, claims):
    """All on the model of the largest loss, which no risk of this level does."""
    arrays["weights"] = (
        np.eye(len(arrays["share"]))[arrays["cost"].mean(axis=(1, 2)).argmax()] + 0.0 * arrays["weights"]
    )
    claims["lower_bound"], claims["gap"] = claims["risk"], 0.0


def double_weights(arrays, claims):
    arrays["weights"] *= 2.0
    claims["lower_bound"], claims["gap"] = claims["risk"], 0.0


def cut_outside(arrays, claims):
    arrays["at"][np.flatnonzero(arrays["child"] >= 0)[0]] = 1.0


def inflate_values(arrays, claims):
    arrays["values"] += 1.0
    claims["lower_bound"], claims["gap"] = claims["lower_bound"] + 0.5, claims["gap"] - 0.5


def other_models(arrays, claims):
    arrays["probability"][0, 0, 0] = arrays["probability"][0, 0, 0, ::-1]
    arrays["cost"] *= 0.5


def no_level(arrays, claims):
    claims["risk_parts"] = [[1.0, 1.0]]


def two_parents(arrays, claims):
    inner = np.flatnonzero(arrays["child"] >= 0)
    arrays["child"][inner[-1]] = arrays["child"][inner[0]]


def overflow(arrays, claims):
    """Values whose inequality is not a number: once these boxes were passed over, and any bound was believed."""
    arrays["probability"] *= 1.0 + 5e-10
    arrays["values"] = np.full(arrays["values"].shape, np.finfo(float).max)
    claims["lower_bound"], claims["gap"] = claims["risk"], 0.0


def no_future(arrays, claims):
    """Rows that sum to more than the discount takes off."""
    arrays["probability"] *= 1.0 + 5e-10
    claims["discount"] = 1.0 - 1e-10


MUTATIONS = [
    overflow, no_future, no_tolls, inflate_tolls, tolls_of_others, shuffle_tolls, two_tolls_at_one_state, swap_tolls,
    heavy_weights, double_weights,
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
    arrays, claims = prudent_verifier.read(path)
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


def no_tolls_of(states):
    none = np.zeros(0, np.int32)
    return {"toll_leaf": none, "toll_state": none.reshape(0, 1), "toll_values": np.zeros((0, 1, 1, states))}


def hostile_proofs(path):
    """Files that are no proof, or that ask for far more than their size: name, content, and what is said."""
    whole = path.read_bytes()
    arrays, claims = prudent_verifier.read(path)

    def tensors(header, body=b""):
        text = json.dumps(header).encode() if isinstance(header, dict) else header
        return struct.pack("<Q", len(text)) + text + body

    (length,) = struct.unpack("<Q", whole[:8])
    header, body = json.loads(whole[8 : 8 + length]), whole[8 + length :]
    name = max((each for each in header if each != "__metadata__"), key=lambda each: header[each]["data_offsets"])
    yield "nested", tensors(b"[" * 100_000), "header"
    yield "nested claims", tensors({**header, "__metadata__": {"proof": "[" * 100_000}}, body), "header"
    yield "no claims", tensors({**header, "__metadata__": {"proof": "[]"}}, body), "header"
    yield "a long name", tensors({**header, "x" * 900_000: 7}, body), "header"
    yield "many arrays", tensors({**{f"a{k}": header[name] for k in range(5000)}, **header}, body), "header"
    for what, change in {
        "a huge shape": {"shape": [10**30]},
        "a negative shape": {"shape": [-1, -8]},
        "a shape of text": {"shape": ["\x1b[2J"]},
        "many axes": {"shape": [1] * 10_000},
        "an unknown type": {"dtype": "\x1b[2J"},
        "a place outside": {"data_offsets": [0, 10**12]},
    }.items():
        yield what, tensors({**header, name: {**header[name], **change}}, body), "header"
    yield "arrays that lie in one another", tensors({**header, "more": header[name]}, body), "follow"
    yield "a gap before the end", whole + b"\0" * 8, "fill"

    def made(**changes):
        from safetensors.numpy import save

        said = {name: np.ascontiguousarray(changes.pop(name, array)) for name, array in arrays.items()}
        return save(said, {"proof": json.dumps(claims | changes)})

    yield "a discount without end", made(discount=10**400), "no number"
    yield "a tail without end", made(risk_parts=[[1.0, 10**400]]), "no weight and level"
    yield "very many tails", made(risk_parts=[[5e-4, 0.5]] * 2000), "mixture"
    # As many actions as leaves: the boxes together have the square of that many numbers.
    wide, leaves = 200_000, 200_000
    child = np.full(2 * leaves - 1, -1, np.int32)
    child[: 2 * leaves - 2 : 2] = np.arange(1, 2 * leaves - 1, 2)
    child[2::2], child[0] = np.where(child[2::2] >= 0, child[2::2], -1), 1
    inner = child >= 0
    flat = {
        "successor": np.zeros((1, wide, 2), np.int32),
        "probability": np.full((1, 1, wide, 2), 0.5),
        "cost": np.zeros((1, 1, wide)),
        "start": np.ones(1),
        "share": np.ones(1),
        "policy": np.eye(1, wide),
        "child": child,
        "state": np.zeros(len(child), np.int32),
        "action": np.zeros(len(child), np.int32),
        "at": np.where(inner, 0.5, 0.0),
        "values": np.zeros((leaves, 1, 1)),
        "weights": np.ones((leaves, 1)),
        **no_tolls_of(1),
    }
    yield "more boxes and actions than can be checked", made(**flat), "longer"
    many = 2000
    chain = {
        "successor": np.zeros((many, 1, 1), np.int32),
        "probability": np.ones((1, many, 1, 1)),
        "cost": np.zeros((1, many, 1)),
        "start": np.eye(1, many)[0],
        "share": np.ones(1),
        "policy": np.ones((many, 1)),
        "child": np.array([-1], np.int32),
        "state": np.zeros(1, np.int32),
        "action": np.zeros(1, np.int32),
        "at": np.zeros(1),
        "values": np.zeros((1, 1, many)),
        "weights": np.ones((1, 1)),
        **no_tolls_of(many),
    }
    yield "very many states", made(**chain), "states"


def test_files_that_are_no_proofs_end_the_verifier_with_one_line(proof_file, tmp_path, capsys):
    from prudent_verifier.__main__ import main

    target = tmp_path / "hostile.safetensors"
    for what, content, words in hostile_proofs(proof_file[0]):
        target.write_bytes(content)
        clock = time.process_time()
        code = main([str(target)])
        said = capsys.readouterr().err
        assert code in (1, 2) and words in said, (what, code, said)
        assert (code == 2) == ("is no proof" in said), what
        assert said.count("\n") == 1 and len(said) < 500 and said[:-1].isprintable(), what
        assert time.process_time() - clock < 2.0, what
    os.truncate(target, 6 * 2**30)
    assert main([str(target)]) == 2 and "larger than 1024 MiB" in capsys.readouterr().err
    target.unlink()
    for make in (os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path), lambda path: os.symlink(path, path)):
        make(target)
        assert main([str(target)]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and said[:-1].isprintable()
        target.rmdir() if target.is_dir() else target.unlink()


def test_a_deep_tree_takes_no_longer_than_a_wide_one(proof_file, tmp_path):
    """A cut of a cut, 20,000 times: the whole way up for every leaf took minutes."""
    depth = 20_000

    def change(arrays, claims):
        child = np.full(2 * depth + 1, -1, np.int32)
        child[0], child[2:-1:2] = 1, np.arange(3, 2 * depth + 1, 2)
        arrays["child"] = child
        for name in ("values", "weights"):
            arrays[name] = np.repeat(arrays[name][:1], depth + 1, axis=0)
        for name in ("state", "action"):
            arrays[name] = np.zeros(len(child), np.int32)
        arrays["at"] = np.where(child >= 0, 0.5, np.nan)

    path, clock = rewritten(proof_file[0], tmp_path / "deep.safetensors", change), time.process_time()
    accepted(path)
    assert time.process_time() - clock < 5.0
