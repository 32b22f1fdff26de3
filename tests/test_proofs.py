"""Proofs: bounds below every policy, gaps that close, deterministic optima, and a verifier that believes nothing."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import prudent as pr
import prudent_verifier
from prudent.objectives import objective_of
from prudent.proofs import search
from prudent.proofs.relaxation import bounded
from prudent.proofs.tree import Tree, tightened

from .atom_problems import AtomProblem, tail_mean
from .reference import corners_of_box


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
def test_four_hundred_random_problems(tmp_path):
    random, closed = np.random.default_rng(0), 0
    for seed in range(400):
        states, actions = (int(number) for number in random.integers(2, [5, 4]))
        proof, best = check_closed(10_000 + seed, states=states, actions=actions, most=12)
        closed += proof.gap <= 1e-3 * abs(proof.risk)
        assert proof.risk <= best + 1e-3 * abs(best)
        verdict = prudent_verifier.verify(pr.write_proof(proof, tmp_path / "proof.safetensors"))
        assert verdict.lower_bound <= best + 1e-9
    print(f"closed to 0.1 % in {closed / 400:.1%}")
    assert closed >= 380


def smooth_and_kinked(seed):
    """A convex loss of two states and actions with a NumPy function of visits `[..., S, A]` and costs that agrees."""
    if seed % 2:

        def entropy(visits, costs, discount):
            share = visits * (1.0 - discount)
            return np.where(share > 0, share * np.log(np.where(share > 0, share, 1.0)), 0.0).sum(axis=(-2, -1))

        return pr.NegativeEntropy(), entropy
    scenarios = np.random.default_rng(seed).uniform(size=(3, 2, 2))

    def limited(visits, costs, discount):
        totals = np.einsum("ksa,...sa->...k", scenarios, visits)
        return (visits * costs).sum(axis=(-2, -1)) + 0.5 * (tail_mean(totals, np.full(3, 1.0 / 3.0), 0.5) - 2.0)

    return pr.ConstrainedCost(scenarios, 0.5, 2.0, pr.CVaR(0.5)), limited


def check_convex(seed, gap):
    """A proof of a convex loss against all tables of a fine grid."""
    problem, (loss, value) = AtomProblem(seed, states=2, actions=2, most=6), smooth_and_kinked(seed)
    risk = pr.CVaR(problem.level)
    proof = pr.prove(problem.family, problem.belief(), risk=risk, loss=loss, gap=gap, seconds=60.0, workers=1)
    grid = np.linspace(0.0, 1.0, 81)
    tables = np.array([[[p, 1 - p], [q, 1 - q]] for p in grid for q in grid])
    chains = np.eye(2) - problem.discount * np.einsum("ksa,rsat->krst", tables, problem.kernels)
    visits = np.linalg.solve(chains.swapaxes(2, 3), np.array([1.0, 0.0])[:, None]) * tables[:, None]
    best = tail_mean(value(visits, problem.costs, problem.discount), problem.shares, problem.level).min()
    assert proof.lower_bound <= best + 1e-9 * max(1.0, abs(best))
    # The grid is coarse: the policy found may be better than all of it, and is no worse.
    assert proof.risk <= best + 1e-3 * max(abs(best), 0.1)
    return proof


@pytest.mark.long
def test_a_hundred_convex_losses_smooth_and_kinked():
    closed = sum(proof.gap <= 1e-3 * abs(proof.risk) for proof in (check_convex(seed, 1e-3) for seed in range(100)))
    print(f"closed to 0.1 % in {closed / 100:.0%}")
    assert closed >= 95


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


def test_no_box_is_empty():
    """Of three actions' bounds some may sum to less than 1; a table of such a box was taken for a better policy."""
    proof, best = check_closed(10_004, states=2, actions=3, most=12)
    assert proof.risk <= best + 1e-3 * best
    low, high = Tree((2, 3), False, proof.cuts).boxes(np.flatnonzero(proof.cuts.child < 0))
    assert np.all(low.sum(axis=2) < 1.0) and np.all(high.sum(axis=2) > 1.0)


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


def test_boxes_that_are_still_being_bounded_count(monkeypatch):
    """A round is begun before the last is entered where many boxes wait; what it cuts is still in the bound."""
    for name, number in [("MANY", 1), ("MOST_BATCHES", 1), ("BATCH", 8)]:
        monkeypatch.setattr(search, name, number)
    problem = AtomProblem(10_004, states=2, actions=3, most=12)
    objective, even = objective_of(problem.family, None, None, None), np.full((2, 3), 1.0 / 3.0)
    monkeypatch.setattr(search.SearchedSample, "polish", lambda self, table: table)
    case = search.SearchedSample(objective, pr.CVaR(problem.level), problem.belief().as_atoms(), False, even)
    begun = search.BranchAndBound(case)
    ahead = 0
    for moment in itertools.islice(begun.rounds(0.0), 12):
        leaves = min(begun.tree.bound[leaf] for leaf in begun.tree.leaves())
        assert moment.bound == min(leaves, moment.risk)
        ahead += len(begun.begun) > 0
    assert ahead > 3


@pytest.fixture(scope="module")
def earlier():
    return proved(AtomProblem(15, states=2, actions=2, most=2), nodes=20)


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
def test_a_proof_of_another_question_is_not_gone_on_with(earlier, changes, message):
    problem = AtomProblem(15, states=2, actions=2, most=2)
    arguments = {"belief": problem.belief(), "risk": pr.CVaR(problem.level), "resume": earlier} | changes
    with pytest.raises(pr.InputError, match=message):
        pr.prove(problem.family, **arguments)


def test_it_begins_at_a_given_policy_and_finds_a_better_one():
    problem = AtomProblem(9, states=2, actions=2, most=2)
    proof = proved(problem, start=np.full((2, 2), 0.5))
    assert proof.gap <= 1e-3 * abs(proof.risk)
    assert proof.risk < problem.risk(np.full((1, 2, 2), 0.5))[0]


def test_convex_losses_are_bounded_by_their_tangents():
    """Where the draws' own best occupancies are inside, first derivatives do not tell where to cut; a few cuts do."""
    problem = AtomProblem(1, states=2, actions=2, most=6)
    asked = {"risk": pr.CVaR(0.5), "loss": pr.NegativeEntropy(), "gap": 2e-3}
    proof = pr.prove(problem.family, problem.belief(), **asked, seconds=60.0, nodes=500, workers=1)
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


def test_every_table_of_a_box_pays_its_tolls_and_what_sharing_costs():
    """What is paid, and the shared bound, against the tables of a box."""
    problem = AtomProblem(4, states=3, actions=3, most=5)
    thetas, shares = problem.belief().as_atoms()[:2]
    boxes, random = objective_of(problem.family, None, None, None).boxes(thetas), np.random.default_rng(8)
    risk, draws = pr.CVaR(problem.level), len(thetas)
    every, gained = np.ones((8, draws), bool), 0
    for width in (0.6, 0.1):
        centre = random.dirichlet(np.ones(3), size=(8, 3))
        low, high = tightened(np.maximum(centre - width, 0.0), np.minimum(centre + width, 1.0))
        found = boxes.relaxed(low, high, np.zeros((8, 3, draws)))
        own = bounded(boxes, risk, shares, False, low, high, np.zeros((8, 3, draws)))
        state = np.array([random.permutation(3)[:2] for _ in range(8)])
        alone = boxes.tolls(low, high, found.values, state[:, :1], every)
        both = boxes.tolls(low, high, found.values, state, every)
        np.testing.assert_array_equal(boxes.tolls(low, high, found.values, state, every, both.paid).visits, both.visits)
        some = random.random((8, draws)) < 0.5
        np.testing.assert_allclose(
            boxes.tolls(low, high, found.values, state, some).visits, np.where(some[:, None], both.visits, 0.0),
            atol=1e-9,
        )  # fmt: skip
        for row in range(8):
            tables = corners_of_box(low[row], high[row])
            inner = random.dirichlet(np.ones(len(tables)), size=50) @ tables.reshape(-1, 9)
            tables = np.concatenate([tables, inner.reshape(-1, 3, 3)])
            visits = boxes.followed(tables)[1]
            above = np.einsum("ksa,sar->ksr", tables, found.quality[row]) - found.values[row]
            paid = (visits * above).sum(axis=1)
            shared = (both.visits[row] * above[:, state[row]]).sum(axis=1)
            assert np.all(shared <= paid + 1e-7)
            # With one toll, the least that is paid is that of a corner.
            first, toll = state[row, 0], above[:, state[row, 0]].max(axis=0)
            going_round = np.delete(visits * above, first, axis=1).sum(axis=1) + visits[:, first] * toll
            np.testing.assert_allclose(alone.visits[row, 0] * toll, going_round.min(axis=0), atol=2e-3)
            least = problem.risk(tables).min()
            assert own.told[row] - 1e-9 <= own.bound[row] <= least + 1e-9
            gained += own.bound[row] > own.told[row] + 0.5 * (least - own.told[row])
    # Sharing explains most of the gap of a narrow box.
    assert gained >= 6


def test_what_policies_that_are_told_theta_cannot_beat():
    """The risk of each atom's own least cost, by SciPy's linear program of its occupancy; they share no policy."""
    problem = AtomProblem(9, states=2, actions=2, most=2)
    proof = proved(problem)
    least = []
    for kernel, costs in zip(problem.kernels, problem.costs, strict=True):
        flow = (np.eye(2)[:, None] - problem.discount * kernel).reshape(4, 2).T
        least.append(optimize.linprog(costs.ravel(), A_eq=flow, b_eq=[1.0, 0.0]).fun)
    known = tail_mean(np.array([least]), problem.shares, problem.level)[0]
    assert proof.known_bound == pytest.approx(min(known, proof.lower_bound), rel=1e-6)
    assert proof.known_bound < proof.lower_bound


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
        assert proof.optimum is not None
        low, high = proof.optimum
        held += low <= optimum <= high
    print(f"held in {held / 200:.1%}")
    assert held >= 190


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


def test_a_proof_says_how_far_it_goes_and_whether_that_was_the_aim():
    problem = AtomProblem(15, states=2, actions=2, most=2)
    for options, met in (({"gap": 1.0, "nodes": 50}, True), ({"gap": 0.0, "nodes": 1}, False)):
        proof = proved(problem, **options)
        told = dict(proof.rows())["gap"]
        assert proof.met is met and told.startswith(f"proved to {proof.gap:.4g}, {proof.gap / abs(proof.risk):.3%}")
        assert told.endswith(f"the aim, {options['gap']:.3%} of the risk, was {'met' if met else 'not met'}")
