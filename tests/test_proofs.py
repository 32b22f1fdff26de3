"""Proofs: bounds below every policy, gaps that close, deterministic optima, and a verifier that believes nothing."""

import ast
import itertools
import json
import struct
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize
from typer.testing import CliRunner

import prudent as pr
import prudent_verifier
from prudent.cli import app

from .atom_problems import AtomProblem, tail_mean


def proved(problem, **options):
    options = {"gap": 1e-3, "seconds": 30.0, "workers": 1} | options
    return pr.prove(problem.family, problem.belief(), risk=pr.CVaR(problem.level), **options)


def least_found(problem, seed, tries=400, descents=4):
    """The least risk that random search and SciPy find: above the optimum, and mostly at it."""
    random = np.random.default_rng(seed)
    shape = problem.costs.shape[1:]
    pure = np.eye(shape[1])[random.integers(shape[1], size=(tries, shape[0]))]
    tables = np.concatenate([pure, random.dirichlet(np.ones(shape[1]), size=(tries, shape[0]))])
    risks = problem.risk(tables)
    best = risks.min()
    for row in np.argsort(risks)[:descents]:

        def value(logits):
            weights = np.exp(logits.reshape(shape) - logits.reshape(shape).max(axis=1, keepdims=True))
            return problem.risk((weights / weights.sum(axis=1, keepdims=True))[None])[0]

        logits = np.log(np.clip(tables[row], 1e-6, 1.0)).ravel()
        best = min(best, optimize.minimize(value, logits, method="Nelder-Mead", options={"maxfev": 600}).fun)
    return float(best)


def check_closed(seed, **sizes):
    problem = AtomProblem(seed, **sizes)
    proof = proved(problem)
    best = least_found(problem, seed)
    # The bound is below every policy, the risk is the policy's own, and no search does better than the gap allows.
    assert proof.lower_bound <= best + 1e-9
    assert proof.risk == pytest.approx(problem.risk(np.asarray(proof.policy.probabilities)[None])[0], rel=1e-9)
    return proof, best


@pytest.mark.parametrize("seed", [0, 2, 9, 15])
def test_the_gap_closes_and_the_bound_is_below_every_policy(seed):
    proof, _ = check_closed(seed, states=2, actions=2, most=2)
    assert proof.gap <= 1e-3 * abs(proof.risk) and proof.exact
    assert proof.known_bound <= proof.lower_bound <= proof.risk
    assert "no stationary policy has less" in str(proof)


@pytest.mark.long
def test_five_hundred_random_problems():
    random, closed = np.random.default_rng(0), 0
    for seed in range(500):
        states, actions = (int(number) for number in random.integers(2, [5, 4]))
        proof, best = check_closed(10_000 + seed, states=states, actions=actions, most=12)
        closed += proof.gap <= 1e-3 * abs(proof.risk)
        assert proof.risk <= best + 1e-3 * abs(best)
    print(f"closed to 0.1 % in {closed / 500:.1%}")
    assert closed >= 475


def best_deterministic(problem):
    states, actions = problem.costs.shape[1:]
    every = np.array(list(itertools.product(range(actions), repeat=states)))
    return problem.risk(np.eye(actions)[every]).min()


def check_deterministic(seed, **sizes):
    problem = AtomProblem(seed, **sizes)
    proof = proved(problem, deterministic=True, gap=0.0)
    assert proof.risk == pytest.approx(best_deterministic(problem), rel=1e-9)
    assert proof.gap <= 1e-9 * abs(proof.risk)
    assert set(np.unique(proof.policy.probabilities)) <= {0.0, 1.0}


@pytest.mark.parametrize("seed", range(3))
def test_the_best_deterministic_policy_is_that_of_enumeration(seed):
    check_deterministic(seed, states=4, actions=3, most=2)


@pytest.mark.long
def test_two_hundred_deterministic_problems():
    for seed in range(200):
        check_deterministic(20_000 + seed, states=4 + seed % 5, actions=3, most=12)


def test_level_and_scale_of_the_costs_change_nothing():
    problem = AtomProblem(2, states=2, actions=2, most=2)
    plain = proved(problem, nodes=50, gap=1e-9)
    belief = problem.belief(scale=1e6, shift=1e9)
    moved = pr.prove(problem.family, belief, risk=pr.CVaR(problem.level), nodes=50, gap=1e-15, seconds=30.0, workers=1)
    level = 1e9 / (1.0 - problem.discount)
    assert (moved.risk - level) / 1e6 == pytest.approx(plain.risk, rel=1e-6)
    assert (moved.lower_bound - level) / 1e6 == pytest.approx(plain.lower_bound, rel=1e-4)
    assert moved.lower_bound <= moved.risk


def test_a_search_goes_on_where_it_stopped():
    problem = AtomProblem(15, states=2, actions=2, most=2)
    short = proved(problem, nodes=5, gap=0.0)
    whole = proved(problem, nodes=60, gap=0.0, resume=short)
    once = proved(problem, nodes=60, gap=0.0)
    assert len(short.cuts.child) < len(whole.cuts.child)
    assert short.lower_bound <= whole.lower_bound <= whole.risk
    assert whole.lower_bound == pytest.approx(once.lower_bound, rel=0.05)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"risk": pr.CVaR(0.123)}, "risk"),
        ({"deterministic": True}, "kind of policy"),
        ({"loss": pr.NegativeEntropy()}, "model"),
        ({"belief": AtomProblem(9, states=2, actions=2, most=2).belief()}, "belief"),
        ({"replications": 2}, "one sample"),
    ],
)
def test_a_proof_of_another_question_is_not_gone_on_with(proof_file, changes, message):
    problem = AtomProblem(15, states=2, actions=2, most=2)
    arguments = {"belief": problem.belief(), "risk": pr.CVaR(problem.level), "resume": proof_file[1]} | changes
    with pytest.raises(pr.InputError, match=message):
        pr.prove(problem.family, **arguments)


def test_it_begins_at_a_given_policy_and_finds_a_better_one():
    problem = AtomProblem(9, states=2, actions=2, most=2)
    proof = proved(problem, start=np.full((2, 2), 0.5))
    assert proof.gap <= 1e-3 * abs(proof.risk)
    assert proof.risk < problem.risk(np.full((1, 2, 2), 0.5))[0]


def test_convex_losses_are_bounded_by_their_tangents():
    problem = AtomProblem(2, states=2, actions=2, most=2)
    loss = pr.NegativeEntropy()
    proof = pr.prove(problem.family, problem.belief(), risk=pr.CVaR(0.5), loss=loss, gap=2e-3, seconds=60.0, workers=1)
    grid = np.linspace(0.0, 1.0, 41)
    tables = np.array([[[p, 1 - p], [q, 1 - q]] for p in grid for q in grid])
    chains = np.eye(2) - problem.discount * np.einsum("ksa,rsat->krst", tables, problem.kernels)
    visits = np.linalg.solve(chains.swapaxes(2, 3), np.array([1.0, 0.0])[:, None])[..., 0]
    share = visits[..., None] * tables[:, None] * (1.0 - problem.discount)
    entropies = np.where(share > 0, share * np.log(np.where(share > 0, share, 1.0)), 0.0).sum(axis=(2, 3))
    best = tail_mean(entropies, problem.shares, 0.5).min()
    # Below every table of the grid, and no further below the best than the gap and the grid's coarseness.
    assert proof.lower_bound <= best + 1e-9
    assert proof.risk <= best + 1e-9 and proof.lower_bound >= best - 5e-3 * abs(best)
    assert proof.gap <= 2e-3 * abs(proof.risk)
    with pytest.raises(pr.InputError, match="linear in the occupancy"):
        pr.write_proof(proof, "never.safetensors")


def test_of_a_sampled_posterior_the_optimum_has_limits():
    lake = pr.envs.frozen_lake("SF\nHG")
    proof = pr.prove(lake, lake.prior, risk=pr.CVaR(0.5), samples=8, replications=3, gap=0.01, seconds=6.0, workers=1)
    assert not proof.exact and len(proof.replicates) == 3 and proof.optimum is not None
    assert proof.optimum[0] <= min(each.risk for each in proof.replicates)
    assert "under the whole posterior" in str(proof)


@pytest.mark.long
def test_the_limits_of_the_optimum_hold_as_often_as_they_say():
    """Two states, a posterior of 2,000 atoms that is sampled, and its true optimum by a proof on a grid of policies."""
    random = np.random.default_rng(5)
    kernels = random.dirichlet([2.0, 2.0], size=(2000, 2, 2))
    costs = np.array([[0.3, 0.5], [1.0, 0.8]])
    grid = np.linspace(0.0, 1.0, 101)
    tables = np.array([[[p, 1 - p], [q, 1 - q]] for p in grid for q in grid])
    chains = np.eye(2) - 0.9 * np.einsum("ksa,rsat->krst", tables, kernels)
    paid = np.einsum("ksa,sa->ks", tables, costs)
    losses = np.linalg.solve(chains, np.broadcast_to(paid[:, None, :, None], (len(tables), 2000, 2, 1)))[..., 0, 0]
    optimum = tail_mean(losses, np.full(2000, 1.0 / 2000), 0.5).min()
    family = pr.TabularFamily(pr.Support.dense(2, 2), costs, 0, 0.9)

    class Sampled(pr.Posterior):
        def draw(self, generator, n):
            return kernels[generator.integers(2000, size=n)]

    held = 0
    for seed in range(200):
        proof = pr.prove(
            family, Sampled(), risk=pr.CVaR(0.5), samples=32, replications=5, gap=1e-3, seconds=20.0, seed=seed
        )
        low, high = proof.optimum
        held += low <= optimum <= high
    print(f"held in {held / 200:.1%}")
    assert held >= 190


# What the verifier reads.


@pytest.fixture(scope="module")
def proof_file(tmp_path_factory):
    problem = AtomProblem(15, states=2, actions=2, most=2)
    proof = proved(problem, gap=1e-4)
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": lambda occupancy, mdp: jnp.sum(occupancy**2)}, "may not be convex"),
        ({"risk": pr.Envelope(lambda p, xi: [xi <= 2.0])}, "convex program"),
        ({"gap": -1.0}, "gap"),
        ({"seconds": 0.0}, "seconds"),
    ],
)
def test_refusals(options, message):
    problem = AtomProblem(0, states=2, actions=2, most=2)
    with pytest.raises(pr.InputError, match=message):
        pr.prove(problem.family, problem.belief(), **options)


def test_a_model_that_is_too_large_is_refused():
    support = pr.Support.lists([[[s, (s + 1) % 60]] for s in range(60)])
    chain = pr.TabularFamily(support, np.ones((60, 1)), 0, 0.9)
    belief = pr.Draws(np.full((2, *support.shape), 0.5))
    with pytest.raises(pr.InputError, match="at most 48 states"):
        pr.prove(chain, belief)


# A run's proof.


def test_a_run_is_proved_and_verified_by_commands(run):
    invoke = CliRunner().invoke
    result = invoke(app, ["verify", str(run.folder)])
    assert result.exit_code == 2 and "there is no proof" in result.stderr
    result = invoke(app, ["prove", str(run.folder), "--samples", "8", "--gap", "0.01", "--seconds", "20"])
    assert result.exit_code == 0 and "no stationary policy has less" in result.stdout
    result = invoke(app, ["verify", str(run.folder)])
    assert result.exit_code == 0 and "verified: on 8 models" in result.stdout
    path = run.folder / "proof.safetensors"
    rewritten(path, path, raise_bound)
    result = invoke(app, ["verify", str(run.folder)])
    assert result.exit_code == 2 and "does not hold" in result.stderr
    rewritten(path, path, lambda arrays, claims: (lower_bound(claims), claims.update(digests={"problem": "another"})))
    result = invoke(app, ["verify", str(run.folder)])
    assert result.exit_code == 2 and "another problem" in result.stderr
    path.unlink()


def lower_bound(claims):
    claims["lower_bound"] -= 1e-3
    claims["gap"] += 1e-3
