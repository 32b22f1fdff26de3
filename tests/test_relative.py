"""Losses relative to a policy: against differences of losses, for every kind of model, risk and capability."""

import numpy as np
import pytest

import prudent as pr
import prudent_verifier

LAKE = pr.envs.frozen_lake("SFF\nHFG")
BELIEF = LAKE.prior.update(LAKE.trials(n=5, truth=(0.3, 0.1), seed=0))
UNIFORM = np.full((6, 4), 0.25)
RISK = pr.CVaR(0.9)


def other_policy(seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(4), size=6)


def test_losses_are_differences_draw_by_draw():
    policy = other_policy()
    ours = pr.evaluate(policy, LAKE, BELIEF, risk=RISK, relative_to=UNIFORM, samples=200)
    first, second = (pr.evaluate(each, LAKE, BELIEF, risk=RISK, samples=200) for each in (policy, UNIFORM))
    differences = first.losses - second.losses
    np.testing.assert_allclose(ours.losses, differences, rtol=0, atol=1e-9)
    assert ours.risk == pytest.approx(RISK(differences).value)
    assert ours.mean == pytest.approx(first.mean - second.mean)


def test_regret_is_the_difference_to_each_draws_best_policy():
    policy = other_policy()
    regret = pr.evaluate(policy, LAKE, BELIEF, relative_to="best", samples=50)
    plain = pr.evaluate(policy, LAKE, BELIEF, samples=50)
    least = np.array([LAKE.start @ pr.plan(LAKE.at(theta)).values for theta in plain.thetas])
    np.testing.assert_allclose(regret.losses, plain.losses - least, rtol=0, atol=1e-8)
    assert np.all(regret.losses >= -1e-9)


@pytest.mark.parametrize("solver", [pr.SampleAverage(), pr.SampleAverage(step=pr.LBFGS())], ids=["prox", "lbfgs"])
def test_the_answer_is_better_than_the_reference_and_than_the_answer_to_the_loss(solver):
    """Judged by the risk of the difference on the same draws."""
    reference = other_policy(3)
    ours = pr.solve(LAKE, BELIEF, risk=RISK, relative_to=reference, solver=solver)
    plain = pr.solve(LAKE, BELIEF, risk=RISK, solver=solver)
    value, theirs = (
        pr.evaluate(each.policy, LAKE, BELIEF, risk=RISK, relative_to=reference, samples=4000).risk
        for each in (ours, plain)
    )
    assert value < 0 and value <= theirs + 1e-6
    assert ours.certificate.lower_bound <= ours.certificate.risk + 1e-9


def test_the_mean_of_the_difference_has_the_answer_to_the_mean():
    """The mean of a difference is the difference of the means, so that the policy is the same."""
    ours = pr.solve(LAKE, BELIEF, risk=pr.Expectation(), relative_to=UNIFORM)
    plain = pr.solve(LAKE, BELIEF, risk=pr.Expectation())
    values = [
        pr.evaluate(each.policy, LAKE, BELIEF, risk=pr.Expectation(), samples=2000).mean for each in (ours, plain)
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-6)


def few_atoms():
    random = np.random.default_rng(5)
    support = pr.Support.dense(3, 2)
    family = pr.TabularFamily(support, random.uniform(size=(3, 2)), 0, 0.9)
    return family, pr.Draws(random.dirichlet(np.ones(3), size=(6, 3, 2)))


def brute_force(family, atoms, reference, risk, steps=24):
    """The least risk of the difference over a grid of policies of three states and two actions."""
    grid = np.linspace(0.0, 1.0, steps + 1)
    tables = np.stack(np.meshgrid(grid, grid, grid, indexing="ij"), axis=-1).reshape(-1, 3)
    tables = np.stack([tables, 1.0 - tables], axis=2)
    losses = np.stack([pr.loss_at(list(tables), family, theta) for theta in atoms])
    base = np.array([pr.loss_at(reference, family, theta) for theta in atoms])
    return min(float(risk(column).value) for column in (losses - base[:, None]).T)


@pytest.mark.parametrize("risk", [pr.CVaR(0.5), pr.WorstCase(), pr.MeanSemideviation(1.0, 0.5)])
def test_few_atoms_against_brute_force(risk):
    family, belief = few_atoms()
    reference = np.random.default_rng(1).dirichlet(np.ones(2), size=3)
    solution = pr.solve(family, belief, risk=risk, relative_to=reference)
    least = brute_force(family, belief.as_atoms().thetas, reference, risk)
    assert solution.risk <= least + 1e-9
    assert solution.certificate.lower_bound <= solution.risk + 1e-9
    assert solution.status.ok


def test_the_reference_itself_has_no_risk():
    family, belief = few_atoms()
    reference = np.random.default_rng(1).dirichlet(np.ones(2), size=3)
    judged = pr.evaluate(reference, family, belief, relative_to=reference)
    np.testing.assert_allclose(judged.losses, 0.0, atol=1e-12)


@pytest.mark.parametrize("loss", [None, pr.NegativeEntropy()], ids=["linear", "convex"])
def test_a_proof_bounds_the_risk_of_the_difference(loss, tmp_path):
    family, belief = few_atoms()
    reference = np.random.default_rng(1).dirichlet(np.ones(2), size=3)
    solution = pr.solve(family, belief, risk=pr.CVaR(0.5), loss=loss, relative_to=reference)
    objective = pr.relative_objective(family.objective(loss=loss), reference)
    proof = pr.prove(objective, belief, risk=pr.CVaR(0.5), start=solution, gap=1e-3, seconds=20.0)
    assert proof.lower_bound <= solution.risk + 1e-9
    assert solution.risk - proof.lower_bound <= 2e-3 * max(1.0, abs(solution.risk))
    if loss is None:
        verdict = prudent_verifier.verify(pr.write_proof(proof, tmp_path / "proof.safetensors"))
        assert verdict.lower_bound == pytest.approx(proof.lower_bound, abs=1e-6)
        assert verdict.risk == pytest.approx(proof.risk, abs=1e-9)


def test_bad_references_are_refused():
    with pytest.raises(pr.InputError, match='relative_to must be a policy or "best"'):
        pr.solve(LAKE, BELIEF, relative_to="today")
    with pytest.raises(pr.InputError, match="shape"):
        pr.solve(LAKE, BELIEF, relative_to=np.full((3, 4), 0.25))
    with pytest.raises(pr.InputError, match="least loss of each draw"):
        pr.evaluate(UNIFORM, LAKE, BELIEF, relative_to="best", loss=lambda occupancy, mdp: (occupancy**2).sum())


def test_a_resumed_run_repeats_the_bits_and_refuses_another_reference():
    settings = {"risk": RISK, "relative_to": other_policy(2), "seed": 3}
    whole = pr.solve(LAKE, BELIEF, solver=pr.SampleAverage(iterations=6), **settings)
    part = pr.solve(LAKE, BELIEF, solver=pr.SampleAverage(iterations=3), **settings)
    resumed = pr.solve(LAKE, BELIEF, solver=pr.SampleAverage(iterations=3), resume=part, **settings)
    assert np.array_equal(resumed.policy.probabilities, whole.policy.probabilities)
    with pytest.raises(pr.InputError, match="relative_to"):
        pr.solve(LAKE, BELIEF, resume=part, **{**settings, "relative_to": UNIFORM})


def test_with_limits_the_risk_and_the_bound_are_lower_by_the_constants():
    """The mean of a difference is the mean less a constant: so are the answer and the bound, whatever the limit."""
    family, belief = few_atoms()
    reference = np.random.default_rng(1).dirichlet(np.ones(2), size=3)
    limit = pr.Limit(pr.Visits([1]), at_most=2.5, risk=pr.Expectation(), name="state 1")
    settings = {"risk": pr.Expectation(), "subject_to": [limit]}
    ours = pr.solve(family, belief, relative_to=reference, **settings)
    plain = pr.solve(family, belief, **settings)
    level = pr.evaluate(reference, family, belief).mean
    assert plain.limits[0].multiplier > 0, "the limit binds"
    assert ours.status.ok and plain.status.ok
    assert ours.risk == pytest.approx(plain.risk - level, abs=1e-4)
    assert ours.certificate.lower_bound == pytest.approx(plain.certificate.lower_bound - level, abs=1e-4)


def test_sweeps_and_the_paper_s_algorithm_see_differences():
    swept = pr.Exact(pr.Sweeps.of(LAKE.support))
    few = {"risk": pr.CVaR(0.5), "relative_to": UNIFORM}
    short = pr.SampleAverage(samples=32, largest=32, starts=2)
    ours, plain = (pr.solve(LAKE, BELIEF, solver=short, occupancy=how, **few) for how in (swept, None))
    assert ours.risk == pytest.approx(plain.risk, rel=1e-3)
    first, last = (pr.solve(LAKE, BELIEF, solver=pr.BRPG(iterations=n), **few).risk for n in (1, 60))
    assert last < first


def test_a_linear_system_and_a_simulator_are_compared_draw_by_draw():
    from .test_limits import ATOMS, WALKS
    from .test_simulated import SCALAR, SCALAR_LOG

    atoms = pr.Draws(ATOMS)
    policies = [
        pr.solve(WALKS, atoms, risk=risk, solver=pr.SampleAverage(starts=1, iterations=15)).policy
        for risk in (pr.Expectation(), pr.WorstCase())
    ]
    apart = np.subtract(*(pr.evaluate(each, WALKS, atoms).losses for each in policies))
    np.testing.assert_allclose(pr.evaluate(policies[0], WALKS, atoms, relative_to=policies[1]).losses, apart, atol=1e-9)
    belief = pr.CutOff(SCALAR.prior(spread=2.0).update(SCALAR_LOG), low=-2.0, high=2.0)
    cautious, plain = (
        pr.solve(SCALAR, belief, risk=risk, solver=pr.SampleAverage(starts=1, samples=64, largest=64)).policy
        for risk in (pr.CVaR(0.9), pr.Expectation())
    )
    better = pr.solve(SCALAR, belief, risk=pr.CVaR(0.5), relative_to=cautious, solver=pr.SampleAverage(starts=1))
    theirs = pr.evaluate(plain, SCALAR, belief, risk=pr.CVaR(0.5), relative_to=cautious).risk
    assert better.risk <= theirs + 1e-3 and better.certificate.lower_bound <= better.certificate.risk + 1e-9
