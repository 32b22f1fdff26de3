"""The seam: models mapped in one place, objectives without a table from start to certificate, and what they refuse."""

import jax.numpy as jnp
import joblib
import numpy as np
import pytest
from scipy.optimize import minimize

import prudent as pr
from prudent.arrays import filled_blocks, in_float64
from prudent.autodiff import each as compiled
from prudent.objectives import chunks, losses_on, mean_visits, slopes_on
from prudent.tabular.objective import Rescaled

LAKE = pr.envs.frozen_lake("SF\nHG")


@in_float64
def test_chunks_of_any_size_and_any_backend_give_the_same_numbers(monkeypatch):
    objective = LAKE.objective()
    random = np.random.default_rng(0)
    points, thetas = random.dirichlet(np.ones(4), size=(3, 4)), LAKE.prior.sample(0, 11)
    which, draws = random.integers(3, size=17), random.integers(11, size=17)
    losses, found = losses_on(objective, points, thetas), slopes_on(objective, points, thetas, which, draws)
    visits = mean_visits(objective, points[0], thetas, np.full((1, 11), 1 / 11))
    monkeypatch.setattr(chunks, "CHUNK_MODELS", 4)
    for jobs in (1, 2):
        with joblib.parallel_config("threading", n_jobs=jobs):
            np.testing.assert_allclose(losses_on(objective, points, thetas), losses, rtol=1e-13)
            again = slopes_on(objective, points, thetas, which, draws)
        for ours, theirs in zip(again, found, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(mean_visits(objective, points[0], thetas, np.full((1, 11), 1 / 11)), visits, rtol=1e-12)
    assert losses[1, 4] == pytest.approx(float(pr.loss_at(points[1], LAKE, thetas[4])), rel=1e-12)


def quadratic(alpha, theta):
    return theta[1] * (alpha[0] - theta[0]) ** 2 + 0.5 * (alpha[1] + theta[0]) ** 2 + 3.0


BELIEF = pr.Draws([[-1.0, 1.0], [0.5, 2.0], [3.0, 0.5]], weights=[0.5, 0.3, 0.2])


@pytest.mark.parametrize(
    "risk", [pr.Expectation(), pytest.param(pr.EntropicVaR(0.6), marks=pytest.mark.long), pr.MeanSemideviation()]
)
def test_an_objective_without_a_table_is_minimised_judged_and_certified_without_a_bound(risk):
    objective = pr.FunctionObjective(quadratic, start=[0.0, 0.0])
    solution = pr.solve(objective, BELIEF, risk=risk)
    thetas, shares = np.array([[-1.0, 1.0], [0.5, 2.0], [3.0, 0.5]]), np.array([0.5, 0.3, 0.2])

    def value(alpha):
        losses = thetas[:, 1] * (alpha[0] - thetas[:, 0]) ** 2 + 0.5 * (alpha[1] + thetas[:, 0]) ** 2 + 3.0
        return float(risk(losses, shares).value)

    best = min(
        minimize(value, start, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-11}).fun for start in np.eye(2)
    )
    assert solution.risk == pytest.approx(best, rel=1e-6)
    assert value(solution.policy) == pytest.approx(solution.risk, rel=1e-12)
    assert solution.exact
    assert solution.certificate.lower_bound is None
    assert "not known" in solution.certificate.reason
    assert np.isnan(solution.certificate.stationarity)
    assert "stationarity" not in str(solution).split("gradient vanished")[-1].split("\n", 1)[-1]
    again = pr.evaluate(solution.policy, objective, BELIEF, risk=risk)
    assert again.risk == pytest.approx(solution.risk, rel=1e-12)
    assert pr.loss_at(solution.policy, objective, [-1.0, 1.0]) == pytest.approx(
        float(quadratic(solution.policy, thetas[0]))
    )


def test_the_papers_algorithm_takes_any_objective_and_parameters_may_be_a_tree():
    objective = pr.FunctionObjective(
        lambda alpha, theta: (alpha["a"] - theta[0]) ** 2 + (alpha["b"].sum() - 1.0) ** 2,
        start={"a": 0.0, "b": np.zeros(2)},
        within=pr.Box(-0.25, 0.25),
    )
    settings = pr.BRPG(samples=3, iterations=200, step=0.05)
    for gradient, close in ((pr.Adjoint(), 1e-3), (pr.ZerothOrder(directions=20), 5e-3)):
        solution = pr.solve(objective, BELIEF, risk=pr.Expectation(), solver=settings, gradient=gradient)
        assert solution.policy["a"] == pytest.approx(0.25, abs=close)  # the mean, 0.25, is also the edge of the box
        assert np.allclose(solution.policy["b"], 0.25, atol=1e-2)
    with pytest.raises(pr.InputError, match=r"Variational.*FunctionObjective\s+has none; use Adjoint"):
        pr.solve(objective, BELIEF, solver=settings, gradient=pr.Variational())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pr.solve(pr.FunctionObjective(quadratic, [0.0, 0.0]), BELIEF, loss=sum), "loss= belongs"),
        (lambda: pr.solve(object(), BELIEF), "model must be a family of MDPs"),
        (lambda: pr.FunctionObjective(3, [0.0]), "function must map"),
        (lambda: pr.FunctionObjective(quadratic, [np.nan, 0.0]), "start"),
        (lambda: pr.solve(pr.FunctionObjective(lambda a, t: a, [0.0, 0.0]), BELIEF), "must return one real number"),
        (lambda: pr.solve(pr.FunctionObjective(lambda a, t: a[0] + t[5] @ t, [0.0]), BELIEF), "could not be evaluated"),
        (lambda: pr.solve(pr.FunctionObjective(lambda a, t: jnp.log(a[0]), [0.0]), BELIEF), "the loss is -inf"),
        (lambda: pr.solve(pr.FunctionObjective(lambda a, t: jnp.sqrt(a[0]), [0.0]), BELIEF), "gradient.*not finite"),
        (lambda: pr.evaluate([1.0], pr.FunctionObjective(quadratic, [0.0, 0.0]), BELIEF), "must be parameters shaped"),
        (
            lambda: pr.solve(
                pr.FunctionObjective(quadratic, [0.0, 0.0]), BELIEF, solver=pr.SampleAverage(step=pr.NaturalGradient())
            ),
            "needs a policy whose rows",
        ),
    ],
)  # fmt: skip
def test_refusals(call, message):
    with pytest.raises(pr.InputError, match=message):
        call()


@pytest.mark.parametrize("count", [1, 2, 3, 8, 100, 129, 1000, 5000])
def test_batches_of_compiled_functions_have_few_sizes_and_are_at_least_half_full(count):
    blocks = list(filled_blocks(count))
    np.testing.assert_array_equal(np.concatenate([block[:few] for block, few in blocks]), np.arange(count))
    assert {len(block) for block, _ in blocks} <= {1, 4, 16, 64, 256, 1024}
    assert all(2 * few > len(block) for block, few in blocks)


@in_float64
def test_tables_that_are_theta_itself_are_those_of_the_traced_family():
    """In units, too, and with costs of moves, which theta may have, too."""
    support = pr.Support.dense(3, 2)
    random = np.random.default_rng(0)
    thetas = random.dirichlet(np.ones(3), size=(4, 3, 2))
    family = pr.TabularFamily(support, random.normal(size=(3, 2)), start=0, discount=0.9)
    rescaled = Rescaled(support, family.start, family.discount, family, np.asarray(0.3), np.asarray(1.7))
    for each in (family, rescaled):
        found = each.tables(thetas)
        assert found is not None
        for ours, theirs in zip(found, compiled(each, ("probability", "cost"), thetas), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        for ours, theirs in zip((each.at(thetas[1]).kernel.probability, each.at(thetas[1]).cost), found, strict=True):
            np.testing.assert_array_equal(ours, theirs[1])
    moves = pr.TabularFamily(support, random.normal(size=(3, 2, 3)), start=0, discount=0.9)
    unknown = pr.TabularFamily(support, None, start=0, discount=0.9)
    wider = [np.concatenate([thetas, random.normal(size=(4, 3, 2, n))], axis=3) for n in (1, 3)]
    for each, draws in ((moves, thetas), *((unknown, given) for given in wider)):
        found = each.tables(draws)
        assert found is not None
        for ours, theirs in zip(found, compiled(each, ("probability", "cost"), draws), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-14)
    assert family.tables(thetas[:, :2]) is None and unknown.tables(thetas) is None
    certain = pr.TabularFamily(pr.Support.lists([[[1]], [[0]]]), [[[2.0]], [[3.0]]], start=0, discount=0.9)
    np.testing.assert_array_equal(certain.tables(np.ones((4, 2, 1, 1)))[1], np.repeat([[[2.0], [3.0]]], 4, axis=0))
