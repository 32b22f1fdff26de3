"""The global optimum of convex losses against a convex program, and certificates that hold at any time."""

import cvxpy as cp
import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

import prudent as pr

from .marks import short
from .problems import densified, numpy_occupancy, random_mdp

LAKE = pr.envs.frozen_lake().at((0.3, 0.02))


def problems():
    """Random models of 3 to 12 states (one with states never visited), and the lake."""
    found = {}
    for seed, (states, actions, successors, discount) in enumerate(((3, 2, 3, 0.9), (8, 3, 3, 0.97), (12, 4, 2, 0.99))):
        found[f"random {states}"] = random_mdp(np.random.default_rng(seed), states, actions, successors, discount)
    apart = pr.Kernel.dense(
        [[[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0], [0.9, 0.1, 0.0]], [[0.2, 0.3, 0.5]] * 2]
    )
    found["with an unreachable state"] = pr.MDP(apart, [[1.0, 2.0], [0.5, 0.0], [1.0, 1.0]], start=0, discount=0.9)
    return found | {"lake": LAKE}


PROBLEMS = problems()


def target(shape):
    return np.random.default_rng(7).dirichlet(np.ones(np.prod(shape))).reshape(shape)


# The loss, and what cvxpy makes of the normalised occupancy x [S, A] of the model.
LOSSES = {
    "imitation over states": (
        lambda mdp: pr.Imitation(target(mdp.cost.shape[:1])),
        lambda x, mdp: cp.sum(cp.rel_entr(cp.sum(x, axis=1), pr.Imitation(target(mdp.cost.shape[:1])).target)),
    ),
    "imitation over pairs": (
        lambda mdp: pr.Imitation(target(mdp.cost.shape)),
        lambda x, mdp: cp.sum(cp.rel_entr(x, pr.Imitation(target(mdp.cost.shape)).target)),
    ),
    "negative entropy": (lambda mdp: pr.NegativeEntropy(), lambda x, mdp: -cp.sum(cp.entr(x))),
    "quadratic distance": (
        lambda mdp: pr.QuadraticDistance(target(mdp.cost.shape)),
        lambda x, mdp: cp.sum_squares(x - target(mdp.cost.shape)) / 2,
    ),
    "cost and entropy": (
        lambda mdp: 0.1 * pr.ExpectedCost() + pr.NegativeEntropy(over_states=True),
        lambda x, mdp: (
            0.1 * cp.sum(cp.multiply(np.asarray(mdp.cost), x)) / (1 - float(mdp.discount))
            - cp.sum(cp.entr(cp.sum(x, axis=1)))
        ),
    ),
}


def program_optimum(mdp, objective):
    """The least loss over the occupancy polytope, by Clarabel."""
    states, actions = mdp.cost.shape
    discount = float(mdp.discount)
    x = cp.Variable((states, actions), nonneg=True)
    table = mdp.kernel.table()
    inflow = sum(table[:, action].T @ x[:, action] for action in range(actions))
    balance = [cp.sum(x, axis=1) - discount * inflow == (1 - discount) * np.asarray(mdp.start)]
    problem = cp.Problem(cp.Minimize(objective(x, mdp)), balance)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    assert problem.status == cp.OPTIMAL
    return problem.value


# Each loss and each model in some short test.
PAIRS = [(name, kind) for name in PROBLEMS for kind in LOSSES]
DIAGONAL = list(zip(PROBLEMS, LOSSES, strict=True))


@pytest.mark.parametrize("pair", short(DIAGONAL, PAIRS), ids="-".join)
def test_the_optimum_agrees_with_a_convex_program(pair):
    name, kind = pair
    mdp = PROBLEMS[name]
    make, objective = LOSSES[kind]
    optimum = program_optimum(mdp, objective)
    best = pr.plan_convex(mdp, make(mdp))
    assert best.status is pr.ConvexStatus.OPTIMAL and best.gap <= 1e-6
    assert best.value == pytest.approx(optimum, rel=1e-5, abs=2e-6)
    assert best.lower_bound <= optimum + 1e-7
    assert best.gap == best.value - best.lower_bound >= 0.0
    # The occupancy is the policy's own, and the value is the loss there.
    own = numpy_occupancy(mdp.kernel.table(), best.policy.probabilities, mdp.start, float(mdp.discount))
    np.testing.assert_allclose(best.occupancy, own, rtol=0, atol=1e-9)
    assert float(make(mdp)(own, mdp)) == pytest.approx(best.value, abs=1e-9)


@pytest.mark.parametrize("iterations", short([1, 5], [1, 2, 3, 5, 8]))
def test_the_certificate_holds_when_stopped_early(iterations):
    for kind in ("imitation over pairs", "negative entropy"):
        make, objective = LOSSES[kind]
        optimum = program_optimum(LAKE, objective)
        early = pr.plan_convex(LAKE, make(LAKE), iterations=iterations)
        assert early.iterations == iterations
        assert early.status is pr.ConvexStatus.ITERATION_LIMIT and not early.status.ok
        assert early.gap > 1e-6
        assert early.lower_bound - 1e-7 <= optimum <= early.value + 1e-7


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_linear_loss_is_planning(name):
    mdp = PROBLEMS[name]
    best, plan = pr.plan_convex(mdp, pr.ExpectedCost()), pr.plan(mdp)
    assert best.status.ok
    assert best.value == pytest.approx(mdp.start @ plan.values, rel=1e-10)
    visited = best.occupancy.sum(axis=1) > 0
    np.testing.assert_array_equal(best.policy.greedy()[visited], plan.policy.greedy()[visited])


def test_a_users_function_and_a_dense_kernel():
    mdp = PROBLEMS["random 8"]

    def loss(occupancy, mdp):
        return jnp.log(jnp.exp(occupancy - 1.0).sum()) + 0.01 * (occupancy * mdp.cost).sum()

    best, dense = pr.plan_convex(mdp, loss), pr.plan_convex(densified(mdp), loss)
    assert best.status.ok and dense.status.ok
    assert best.value == pytest.approx(dense.value, abs=2e-6)
    random = np.random.default_rng(0)
    for _ in range(200):
        policy = random.dirichlet(np.full(3, 0.3), size=8)
        other = numpy_occupancy(mdp.kernel.table(), policy, mdp.start, float(mdp.discount))
        assert float(loss(other, mdp)) >= best.lower_bound


@pytest.mark.long
def test_models_too_large_for_newton_reach_the_same_optimum(monkeypatch):
    from prudent.planning import incumbent

    mdp = PROBLEMS["random 12"]
    loss = LOSSES["negative entropy"][0](mdp)
    newton = pr.plan_convex(mdp, loss)
    monkeypatch.setattr(incumbent, "LARGEST_NEWTON", 0)
    mirror = pr.plan_convex(mdp, loss)
    assert mirror.status.ok
    assert mirror.value == pytest.approx(newton.value, abs=2e-6)
    assert mirror.lower_bound <= newton.value + 1e-9
    kinked = pr.plan_convex(mdp, KINKS["worst case"][0](mdp), tolerance=1e-6)
    assert kinked.status.ok
    assert kinked.value == pytest.approx(program_optimum(mdp, worst_of_two), abs=2e-6)


def linear_optimum(mdp, scenarios, level, multiplier, limit):
    """The least `<lambda, c> + l (CVaR_k <lambda, d_k> - D)`, as a linear program."""
    (states, actions), count, discount = mdp.cost.shape, len(scenarios), float(mdp.discount)
    pairs = states * actions
    own = np.repeat(np.eye(states), actions, axis=1)
    flow = own - discount * mdp.kernel.table().reshape(pairs, states).T
    result = linprog(
        np.concatenate([np.ravel(mdp.cost), [multiplier], np.full(count, multiplier / (1 - level) / count)]),
        A_ub=np.hstack([scenarios.reshape(count, pairs), -np.ones((count, 1)), -np.eye(count)]),
        b_ub=np.zeros(count),
        A_eq=np.hstack([flow, np.zeros((states, 1 + count))]),
        b_eq=mdp.start,
        bounds=[(0, None)] * pairs + [(None, None)] + [(0, None)] * count,
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert result.success
    return result.fun - multiplier * limit


@pytest.mark.parametrize("seed", short([0, 1, 2], range(12)))
def test_a_risk_constraint_reaches_the_linear_programs_optimum(seed):
    random = np.random.default_rng(seed)
    states, actions, count = (5, 3, 6) if seed % 3 else (30, 3, 25)
    mdp = random_mdp(random, states, actions, 3, discount=0.9)
    scenarios, level = random.uniform(size=(count, states, actions)), float(random.choice([0.0, 0.5, 0.9]))
    multiplier, limit = float(random.uniform(0.5, 5.0)), 2.0
    loss = pr.ConstrainedCost(scenarios, multiplier, limit, pr.CVaR(level))
    optimum = linear_optimum(mdp, scenarios, level, multiplier, limit)
    best = pr.plan_convex(mdp, loss, tolerance=1e-6)
    assert best.status is pr.ConvexStatus.OPTIMAL and best.gap <= 1e-6
    assert best.lower_bound <= optimum + 1e-9
    assert best.value == pytest.approx(optimum, abs=1e-6)


def absolute(occupancy, mdp):
    return abs((1 - mdp.discount) * occupancy - target(mdp.cost.shape)).sum()


def largest(occupancy, mdp):
    return jnp.maximum(((1 - mdp.discount) * occupancy / target(mdp.cost.shape)).max(), 1.0)


def kinked_and_curved(occupancy, mdp):
    return absolute(occupancy, mdp) + ((1 - mdp.discount) * occupancy**2).sum()


def worst_of_two(x, mdp):
    paid, other = (cp.sum(cp.multiply(cost, x)) for cost in (mdp.cost, 1.0 - mdp.cost))
    return (paid + 3.0 * cp.maximum(paid, other)) / (1 - float(mdp.discount)) - 3.0


# The loss, and what cvxpy makes of the normalised occupancy.
KINKS = {
    "distance": (lambda mdp: absolute, lambda x, mdp: cp.sum(cp.abs(x - target(mdp.cost.shape)))),
    "largest": (lambda mdp: largest, lambda x, mdp: cp.maximum(cp.max(x / target(mdp.cost.shape)), 1)),
    "distance and square": (
        lambda mdp: kinked_and_curved,
        lambda x, mdp: cp.sum(cp.abs(x - target(mdp.cost.shape))) + cp.sum_squares(x) / (1 - float(mdp.discount)),
    ),
    "worst case": (
        lambda mdp: pr.ConstrainedCost(np.stack([mdp.cost, 1.0 - mdp.cost]), 3.0, 1.0, pr.WorstCase()),
        worst_of_two,
    ),
}


@pytest.mark.parametrize("name", short(["random 3"], ["random 3", "random 8"]))
@pytest.mark.parametrize("kind", KINKS)
def test_the_gap_closes_at_kinks(name, kind):
    mdp = PROBLEMS[name]
    make, objective = KINKS[kind]
    optimum = program_optimum(mdp, objective)
    best = pr.plan_convex(mdp, make(mdp), tolerance=1e-6)
    assert best.status is pr.ConvexStatus.OPTIMAL
    assert best.lower_bound - 1e-7 <= optimum <= best.value + 1e-7


@pytest.mark.long
def test_where_no_method_closes_the_gap_the_bound_is_true_and_the_status_says_so(monkeypatch):
    from prudent.planning import convex

    monkeypatch.setattr(convex, "LARGEST_CUTS", 0)
    best = pr.plan_convex(PROBLEMS["random 3"], absolute, iterations=300)
    optimum = program_optimum(PROBLEMS["random 3"], KINKS["distance"][1])
    assert best.lower_bound - 1e-7 <= optimum <= best.value + 1e-7
    assert not best.status.ok and best.gap > 1e-6
    assert "tolerance" in best.status.value


SCALES = [(scale, shift) for scale in (1e-12, 1.0, 1e12) for shift in (0.0, 1e3, -1e6)]


@pytest.mark.parametrize("kind", short(["cost and entropy"], ["quadratic distance", "cost and entropy"]))
def test_scaled_and_shifted_losses_have_the_same_optimum(kind):
    mdp = PROBLEMS["random 8"]
    own = LOSSES[kind][0](mdp)
    first = pr.plan_convex(mdp, own, tolerance=1e-12)
    for scale, shift in SCALES:
        best = pr.plan_convex(mdp, Rescaled(own, np.float64(scale), np.float64(shift)))
        assert best.status.ok
        # The default tolerance leaves a policy off by about the square root of 1e-7.
        np.testing.assert_allclose(best.policy.probabilities, first.policy.probabilities, atol=2e-3)
        assert best.lower_bound <= scale * (first.value + shift) * (1 + np.sign(first.value + shift) * 1e-15)
        assert best.gap <= 1e-6 * scale * max(1.0, abs(shift) / 1e5)


class Rescaled(eqx.Module):
    loss: object
    scale: object
    shift: object

    def __call__(self, occupancy, mdp):
        # Half of the level in the loss, half in the costs.
        mass = (1 - mdp.discount) * occupancy.sum()
        return self.scale * (self.loss(occupancy, mdp) + 0.5 * self.shift + 0.5 * self.shift * mass)


def test_the_bound_is_below_an_optimum_known_exactly():
    """Distance 0 to an occupancy that a policy has: to the last digit no bound may be above."""
    random = np.random.default_rng(0)
    for name, mdp in PROBLEMS.items():
        policy = random.dirichlet(np.ones(mdp.cost.shape[1]), size=len(mdp.cost))
        own = numpy_occupancy(mdp.kernel.table(), policy, mdp.start, float(mdp.discount)) * (1 - float(mdp.discount))
        best = pr.plan_convex(mdp, pr.QuadraticDistance(own), tolerance=1e-13)
        assert best.lower_bound <= 0.0 <= best.value, name
        assert best.gap < 1e-9


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((pr.envs.frozen_lake(), pr.ExpectedCost()), "mdp must be an MDP"),
        ((LAKE, "kl"), "loss must be callable"),
        ((LAKE, lambda occupancy, mdp: occupancy), "one number"),
        ((LAKE, lambda occupancy, mdp: jnp.log(-occupancy).sum()), "keep its logarithms"),
    ],
)
def test_bad_input_is_refused(arguments, words):
    with pytest.raises(pr.InputError, match=words):
        pr.plan_convex(*arguments)


def test_bad_settings_are_refused():
    with pytest.raises(pr.InputError, match=r"tolerance.* must lie in"):
        pr.plan_convex(LAKE, pr.ExpectedCost(), tolerance=0.0)
    with pytest.raises(pr.InputError, match="iterations"):
        pr.plan_convex(LAKE, pr.ExpectedCost(), iterations=0)
