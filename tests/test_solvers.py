"""The solver: against brute force, resuming to the bit, true statuses, output rules, batches, imports."""

import subprocess
import sys

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.stats import chisquare

import prudent as pr
from prudent.records import tree_leaves
from prudent.seeds import child

# Not symmetric: on a symmetric map rounding alone decides which of two equal ways a run takes.
LAKE = pr.envs.frozen_lake("SFF\nFFH\nFFG")
BELIEF = LAKE.prior.update(LAKE.trials(n=5, truth=(0.3, 0.1), seed=0))


def settings(**changes):
    return pr.BRPG(**{"samples": 8, "iterations": 40, "evaluation": 64, **changes})


def solve(**arguments):
    return pr.solve(LAKE, BELIEF, **{"risk": pr.CVaR(0.5), "solver": settings(), "certify": False, **arguments})


def same_bits(left, right):
    return all(
        np.array_equal(a, b)
        for a, b in zip(
            tree_leaves((left.policy, left.history, left.losses, left.parameters, left.checkpoint.state)),
            tree_leaves((right.policy, right.history, right.losses, right.parameters, right.checkpoint.state)),
            strict=True,
        )
    )


class Atoms(pr.Posterior):
    """A user's own posterior: a few tables with equal chances, no JAX in it."""

    tables: np.ndarray

    def draw(self, generator, n):
        return self.tables[generator.integers(len(self.tables), size=n)]


def test_worst_case_policy_agrees_with_brute_force_over_a_policy_grid():
    """Two states, two actions, three possible kernels: the grid sees every policy to 1/200."""
    random = np.random.default_rng(4)
    tables = random.dirichlet(np.ones(2), size=(3, 2, 2))
    cost, start = np.array([[1.0, 0.7], [0.2, 0.4]]), np.array([0.6, 0.4])
    family = pr.TabularFamily(pr.Support.dense(2, 2), cost, start, 0.8)
    p, q = np.meshgrid(np.linspace(0, 1, 201), np.linspace(0, 1, 201))
    policies = np.stack([np.stack([p, 1 - p], axis=-1), np.stack([q, 1 - q], axis=-1)], axis=-2)
    chains = np.einsum("xysa,msat->xymts", policies, tables)
    visits = np.linalg.solve(np.eye(2) - 0.8 * chains, start[:, None])[..., 0]
    values = np.einsum("xyms,xysa,sa->xym", visits, policies, cost).max(axis=2)
    solution = pr.solve(
        family,
        Atoms(tables),
        risk=pr.WorstCase(),
        solver=settings(samples=40, iterations=1500, step=optax.adam(optax.cosine_decay_schedule(0.1, 1500))),
    )
    # 40 draws of 3 atoms miss one of them with probability below 1e-6 an iteration.
    assert solution.risk == pytest.approx(values.min(), abs=2e-3)
    assert solution.risk >= values.min() - 1e-4


def test_the_objective_falls_and_the_reported_risk_is_that_of_fresh_draws():
    solution = solve(solver=settings(iterations=200, samples=30, evaluation=500))
    objective = np.asarray(solution.history.objective)
    assert objective[-20:].mean() < objective[0] - 1.0
    assert solution.status is pr.Status.ITERATION_LIMIT
    fresh = np.array([pr.loss_at(solution.policy, LAKE, theta) for theta in solution.thetas[:5]])
    np.testing.assert_allclose(fresh, solution.losses[:5], rtol=1e-10)
    assert solution.risk == pytest.approx((solution.weights * solution.losses).mean(), rel=1e-12)
    assert 0 < solution.risk_standard_error < 5


@pytest.mark.parametrize("step", [1.0, pytest.param(optax.adam(0.3), marks=pytest.mark.long)], ids=["plain", "adam"])
@pytest.mark.parametrize(
    "output",
    [pr.LastIterate(), pytest.param(pr.RandomIterate(), marks=pytest.mark.long), pr.BestHeldOut(samples=16, every=7)],
    ids=lambda o: type(o).__name__,
)
def test_a_resumed_run_has_the_bits_of_the_uninterrupted_one(step, output):
    whole = solve(solver=settings(step=step, output=output))
    part = None
    for iterations in (1, 12, 20, 7):
        part = solve(solver=settings(iterations=iterations, step=step, output=output), resume=part)
    assert part.iterations == whole.iterations == 40
    assert same_bits(part, whole)


def test_resuming_a_batch_has_the_bits_of_the_uninterrupted_one():
    beliefs, risks = [BELIEF, LAKE.prior], [pr.CVaR(0.0), pr.CVaR(0.9)]
    whole = pr.solve_many(LAKE, beliefs, risks, solver=settings(iterations=30))
    part = pr.solve_many(LAKE, beliefs, risks, solver=settings(iterations=11))
    part = pr.solve_many(LAKE, beliefs, risks, solver=settings(iterations=19), resume=part)
    assert all(same_bits(a, b) for row, other in zip(part, whole, strict=True) for a, b in zip(row, other, strict=True))


def test_a_converged_run_goes_on_at_a_lower_tolerance_as_if_it_had_never_stopped():
    loose = solve(solver=settings(tolerance=2.0))
    assert loose.status is pr.Status.GRADIENT_VANISHED
    assert loose.history.gradient_norm[-1] <= 2.0 < loose.history.gradient_norm[:-1].min()
    assert loose.iterations == len(loose.history) - 1 < 40
    assert same_bits(solve(solver=settings(tolerance=2.0), resume=loose), loose)
    tight = solve(solver=settings(iterations=40 - loose.iterations), resume=loose)
    assert same_bits(tight, solve())


def test_kept_iterates_are_those_of_the_run_and_of_its_parts():
    whole = solve(solver=settings(keep_iterates=True))
    assert whole.iterates.shape == (40, *whole.parameters.shape)
    np.testing.assert_array_equal(whole.iterates[0], np.zeros_like(whole.parameters))
    part = solve(solver=settings(iterations=15, keep_iterates=True))
    np.testing.assert_array_equal(part.parameters, whole.iterates[15])
    rest = solve(solver=settings(iterations=25, keep_iterates=True), resume=part)
    np.testing.assert_array_equal(rest.iterates, whole.iterates)
    assert solve().iterates is None and same_bits(solve(), whole)


def test_resume_refuses_another_seed_or_optimiser():
    first = solve()
    with pytest.raises(pr.InputError, match="seed of the first call"):
        solve(resume=first, seed=1)
    with pytest.raises(pr.InputError, match="solver of the first call"):
        solve(resume=first, solver=settings(step=optax.adam(0.1)))
    small = pr.envs.frozen_lake("SF\nHG")
    with pytest.raises(pr.InputError, match="model, policy and optimiser"):
        pr.solve(small, small.prior, risk=pr.CVaR(0.5), solver=settings(), resume=first)


def test_a_loss_that_turns_to_nan_is_a_status_and_the_last_finite_policy_comes_back():
    known = pr.Point([0.3, 0.1])
    few = settings(samples=1, evaluation=1)
    path = np.asarray(pr.solve(LAKE, known, risk=pr.Expectation(), solver=few).history.objective)
    limit = path[[10, 11]].mean()

    def fragile(occupancy, mdp):
        cost = (occupancy * mdp.cost).sum()
        return jnp.where(cost < limit, jnp.nan, cost)

    solution = pr.solve(LAKE, known, risk=pr.Expectation(), loss=fragile, solver=few)
    assert solution.status is pr.Status.NON_FINITE
    assert not solution.status.ok
    assert solution.iterations == 11
    np.testing.assert_allclose(solution.history.objective, [*path[:11], np.nan], rtol=1e-12)
    before = pr.solve(LAKE, known, risk=pr.Expectation(), solver=settings(samples=1, evaluation=1, iterations=10))
    np.testing.assert_allclose(solution.policy.probabilities, before.policy.probabilities, atol=1e-12)
    assert solution.risk == pytest.approx(path[10])


def never_finite_on(theta_limit):
    """A loss that is NaN for models with a slip above the limit."""

    def loss(occupancy, mdp):
        slip = 2.0 * mdp.kernel.probability[0, 0, 1]
        return jnp.where(slip > theta_limit, jnp.nan, (occupancy * mdp.cost).sum())

    return loss


def test_a_nan_that_only_fresh_draws_meet_is_a_status():
    solution = solve(loss=never_finite_on(0.9), solver=settings(samples=1, iterations=0, evaluation=2000))
    assert np.isnan(solution.losses).any()
    assert solution.status is pr.Status.NON_FINITE


@pytest.mark.long
def test_a_held_out_sample_without_a_finite_score_is_a_status():
    rule = pr.BestHeldOut(samples=2000, every=3)
    solution = solve(loss=never_finite_on(0.7), solver=settings(samples=1, iterations=4, output=rule, evaluation=1))
    assert solution.status is pr.Status.NON_FINITE


@pytest.mark.long
def test_a_cautious_policy_is_not_called_diverged_for_a_lucky_first_sample():
    """With one draw an iteration the first objective is noise; the risk on fresh draws is what counts."""
    support = pr.Support.dense(1, 2)
    family = pr.Family(support, np.ones((1, 2, 1)), lambda theta: jnp.stack([1.0, 3.0 * theta[0]])[None], 0, 0.5)
    rows = pr.solve_many(
        family,
        [pr.Beta.uniform(1)] * 60,
        [pr.Expectation()],
        solver=settings(samples=1, iterations=200, evaluation=500),
    )
    assert {row[0].status for row in rows} == {pr.Status.ITERATION_LIMIT}


def test_training_data_and_fresh_draws_come_from_different_streams():
    from prudent.solvers import Job, JobDraws, fresh_draws

    draws = JobDraws([Job(BELIEF, pr.Expectation(), 1, None)])
    fresh = fresh_draws(BELIEF, 1, 50).thetas
    seen = [draws.first(50), draws.held_out(50)[0].thetas, fresh, BELIEF.sample(1, 50)]
    for i, left in enumerate(seen):
        for right in seen[i + 1 :]:
            assert not np.isin(left, right).any()


def test_the_start_is_projected_onto_the_parameter_set():
    solution = solve(policy=pr.Softmax(pr.Box(1.0, 2.0)), solver=settings(iterations=0))
    assert np.asarray(solution.parameters).min() == 1.0


def test_a_tolerance_of_zero_never_stops_a_run():
    family = pr.TabularFamily(pr.Support.dense(1, 1), [[1.0]], 0, 0.5)
    solution = pr.solve(family, pr.Point(np.ones((1, 1, 1))), solver=settings(iterations=7))
    assert solution.iterations == 7
    assert solution.status is pr.Status.ITERATION_LIMIT


def test_a_truncated_run_reports_what_it_leaves_out():
    solution = solve(occupancy=pr.Truncated(20), solver=settings(iterations=2))
    assert solution.truncation == pytest.approx(0.97**21 / 0.03)
    assert "mass left out" in str(solution)
    assert "mass left out" in str(pr.evaluate(solution.policy, LAKE, BELIEF, occupancy=pr.Truncated(20), samples=9))
    assert "mass left out" not in str(solve(solver=settings(iterations=2)))


def test_a_run_that_climbs_is_called_diverged():
    solution = solve(solver=settings(step=optax.scale(1.0), iterations=100, samples=30))
    assert solution.history.objective[-1] > solution.history.objective[0]
    assert solution.status is pr.Status.DIVERGED


def test_zero_iterations_return_the_start():
    solution = solve(solver=settings(iterations=0))
    np.testing.assert_array_equal(solution.policy.probabilities, np.full((9, 4), 0.25))
    assert solution.status is pr.Status.ITERATION_LIMIT
    assert len(solution.history) == solution.iterations == 0
    assert same_bits(solve(resume=solution), solve())


@pytest.mark.parametrize(
    "within", [pr.Box(-0.5, 0.5), pytest.param(pr.Ball(1.5), marks=pytest.mark.long)], ids=["box", "ball"]
)
def test_iterates_stay_in_the_parameter_set(within):
    solution = solve(policy=pr.Softmax(within))
    parameters = np.asarray(solution.parameters)
    if isinstance(within, pr.Box):
        assert np.abs(parameters).max() == pytest.approx(0.5)
    else:
        assert np.linalg.norm(parameters) == pytest.approx(1.5)
    # Where W binds, the stationarity measure is that of the projected step, not of the raw gradient.
    assert solution.history.gradient_norm[-1] < solve().history.gradient_norm[0]


def test_many_runs_agree_with_single_ones_and_share_draws_over_risks():
    beliefs, risks = [BELIEF, LAKE.prior], [pr.CVaR(0.0), pr.WorstCase(), pr.CVaR(0.9)]
    grid = pr.solve_many(LAKE, beliefs, risks, solver=settings(), seed=5)
    for i, belief in enumerate(beliefs):
        for j, risk in enumerate(risks):
            alone = pr.solve(LAKE, belief, risk=risk, solver=settings(), seed=child(5, i))
            np.testing.assert_array_equal(alone.thetas, grid[i][j].thetas)
            np.testing.assert_allclose(alone.policy.probabilities, grid[i][j].policy.probabilities, atol=1e-9)
            assert alone.risk == pytest.approx(grid[i][j].risk, rel=1e-9)


@pytest.mark.long
def test_runs_beyond_one_batch_are_cut_and_filled_up(monkeypatch):
    from prudent.solvers import brpg

    beliefs = [LAKE.prior.update(LAKE.trials(n=5, truth=(0.3, 0.1), seed=s)) for s in range(5)]
    whole = pr.solve_many(LAKE, beliefs, [pr.CVaR(0.5)], solver=settings())
    monkeypatch.setattr(brpg, "BATCH_BYTES", dict.fromkeys((True, False), 8 * 9 * 12 * 8 * 2))
    cut = pr.solve_many(LAKE, beliefs, [pr.CVaR(0.5)], solver=settings())
    for (a,), (b,) in zip(whole, cut, strict=True):
        np.testing.assert_allclose(a.policy.probabilities, b.policy.probabilities, atol=1e-9)


@pytest.mark.long
def test_random_iterate_is_uniform_over_all_iterates():
    """With one known theta every run takes the same path, so the output tells which iterate was kept."""
    known = [pr.Point([0.3, 0.1]) for _ in range(400)]
    rows = pr.solve_many(
        LAKE,
        known,
        [pr.Expectation()],
        solver=settings(samples=1, iterations=5, evaluation=1, output=pr.RandomIterate()),
    )
    path = [
        np.asarray(
            pr.solve(
                LAKE, known[0], risk=pr.Expectation(), solver=settings(samples=1, iterations=t, evaluation=1)
            ).parameters
        )
        for t in range(5)
    ]
    outputs = np.stack([np.asarray(row[0].parameters) for row in rows])
    distance = np.stack([np.abs(outputs - point).max(axis=(1, 2)) for point in path])
    assert distance.min(axis=0).max() < 1e-9
    assert chisquare(np.bincount(distance.argmin(axis=0), minlength=5)).pvalue > 1e-3


@pytest.mark.long
def test_best_held_out_is_never_worse_on_its_sample_than_start_and_end():
    rule = pr.BestHeldOut(samples=64, every=5)
    best = solve(solver=settings(samples=2, step=8.0, output=rule))
    last = solve(solver=settings(samples=2, step=8.0))
    held_out = np.asarray(best.checkpoint.state.kept.score)
    score = pr.evaluate(best.policy, LAKE, BELIEF, risk=pr.CVaR(0.5), samples=4000).risk
    other = pr.evaluate(last.policy, LAKE, BELIEF, risk=pr.CVaR(0.5), samples=4000).risk
    start = pr.evaluate(np.full((9, 4), 0.25), LAKE, BELIEF, risk=pr.CVaR(0.5), samples=4000).risk
    assert np.isfinite(held_out)
    assert score <= min(other, start) + 1.0


def test_the_paper_s_algorithm_on_tables_needs_no_jax():
    """Nor do resuming and the output rules; the loop of a lake of nine states is NumPy alone."""
    code = """
import sys, prudent as pr
lake = pr.envs.frozen_lake("SFF\\nFFH\\nFFG")
belief = lake.prior.update(lake.trials(n=5, truth=(0.3, 0.1), seed=0))
settings = pr.BRPG(iterations=3, samples=8, evaluation=64, output=pr.BestHeldOut(16, 2))
first = pr.solve(lake, belief, solver=settings)
for gradient in (pr.Adjoint(), pr.ZerothOrder(3), pr.Variational()):
    pr.solve(lake, belief, gradient=gradient, solver=settings, policy=pr.Softmax(within=pr.Ball(9.0)))
pr.solve(lake, belief, solver=settings, resume=first)
print([name for name in ("jax", "numba", "optax") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_larger_problem_uses_the_iterative_solver_and_still_falls():
    lake = pr.envs.frozen_lake("\n".join(["SFFFFFFF", *["FFFHFFFF"] * 6, "FFFFFFFG"]))
    belief = lake.prior.update(lake.trials(n=20, truth=(0.2, 0.1), seed=1))
    solution = pr.solve(lake, belief, risk=pr.CVaR(0.5), solver=settings(iterations=30))
    objective = np.asarray(solution.history.objective)
    assert objective[-5:].mean() < objective[:5].mean()


def test_dirichlet_end_to_end_on_a_tabular_family():
    support = pr.Support.lists([[[0, 1], [0, 2]], [[1, 2], [0, 1]], [[2, 0], [2, 1]]])
    family = pr.TabularFamily(support, cost=[[1.0, 2.0], [1.0, 0.5], [0.0, 0.1]], start=0, discount=0.9)
    log = pr.Transitions.from_records([(0, 0, 1), (0, 1, 2), (0, 1, 2), (1, 0, 2), (2, 0, 2)], states=3, actions=2)
    belief = pr.Dirichlet.symmetric(support).update(log)
    solution = pr.solve(family, belief, risk=pr.CVaR(0.8), solver=settings(iterations=100))
    uniform = pr.evaluate(np.full((3, 2), 0.5), family, belief, risk=pr.CVaR(0.8))
    assert solution.risk < uniform.risk - 5 * uniform.risk_standard_error
    assert solution.thetas.shape == (64, 3, 2, 2)


def test_printing_a_solution_says_how_it_ended(capsys):
    import rich

    solution = solve(solver=settings(iterations=3))
    assert "iteration limit" in str(solution)
    assert "risk" in str(solution)
    assert "seconds" in str(solution)
    rich.print(solution)
    assert "iteration limit" in capsys.readouterr().out


def test_the_line_of_progress_is_off_when_not_a_terminal_and_changes_no_bits(capsys):
    quiet = solve()
    assert capsys.readouterr().err == ""
    assert same_bits(quiet, solve(progress=True))


def test_objects_are_frozen():
    with pytest.raises(AttributeError):
        solve(solver=settings(iterations=1)).risk = 0.0
    assert eqx.is_array(LAKE.hole)
