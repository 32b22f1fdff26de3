"""Bad policies, estimators and starts: the error says what was received and what to do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import prudent as pr

LAKE = pr.envs.frozen_lake("SF\nHG")
SHORT = pr.BRPG(samples=2, iterations=1, evaluation=2)


def solve(**parts):
    return pr.solve(LAKE, LAKE.prior, solver=SHORT, **parts)


def rises_near_its_start(parameters):
    """A table whose rows sum to 1 at the start alone."""
    return jnp.full((4, 4), 0.25) + parameters


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pr.ZerothOrder(directions=0), r"directions, m, must be a whole number >= 1, got 0"),
        (lambda: pr.ZerothOrder(directions=2.5), r"directions.*whole number.*2.5"),
        (lambda: pr.ZerothOrder(radius=0.0), r"radius must be one number > 0, got 0.0; 0.001 suits"),
        (lambda: pr.ZerothOrder(radius=[0.1, 0.2]), r"radius must be one number"),
        (lambda: pr.Variational(iterations=0), r"iterations.*>= 1, got 0"),
        (lambda: pr.Variational(descent=0.0), r"descent.*\(0, 1\], got 0"),
        (lambda: pr.Variational(tolerance=-1.0), r"tolerance.*>= 0, got -1"),
        (lambda: pr.Simplex(floor=1.0), r"floor must lie in \[0, 1\), got 1.0"),
        (lambda: solve(policy=pr.Direct(within=pr.Simplex(0.3))), r"0.3 on each of 4 actions.*below 0.25"),
        (lambda: pr.Direct(within=pr.Ball(1.0)), r"within must be Simplex\(\).*got Ball"),
        (lambda: pr.Neural(np.zeros(4)), r"features must be indexed \[state, feature\], got shape \(4,\)"),
        (lambda: pr.Neural(np.full((4, 1), np.nan)), r"feature.*nan"),
        (lambda: pr.Neural(np.eye(4), width=0), r"width.*>= 1, got 0"),
        (lambda: solve(policy=pr.Neural(np.eye(3))), r"features of 3 states, the model has 4"),
        (lambda: pr.Parametric("softmax", start=[0.0]), r"function must map parameters to probabilities.*'softmax'"),
        (lambda: pr.Parametric(jnp.exp, start=[np.inf]), r"start.*inf"),
        (lambda: solve(policy=pr.Parametric(jnp.exp, start=np.zeros((4, 4)))), r"sum to 1.*4.0 at state 0.*softmax"),
        (
            lambda: solve(policy=pr.Parametric(rises_near_its_start, start=np.zeros((4, 4)))),
            r"at parameters near its start, policy.*softmax",
        ),
        (lambda: solve(policy=pr.Parametric(lambda p: p["x"], start=[0.0])), r"could not be evaluated at its starting"),
        (lambda: solve(start=np.zeros((3, 4))), r"shaped \(4, 4\), got \(3, 4\).*solution.parameters"),
        (lambda: solve(start=np.full((4, 4), np.nan)), r"start.*nan"),
        (
            lambda: pr.solve_many(LAKE, [LAKE.prior], [pr.CVaR(0.5)], solver=SHORT, start=[]),
            r"start must hold one entry for each belief and risk",
        ),
        (lambda: solve(risk=0.5 * pr.CVaR(0.9)), r"risk must be a risk"),
        (lambda: solve(risk=pr.Envelope(lambda xi, p: [xi >= 2.0])), r"mass"),
    ],
)
def test_a_bad_part_is_refused_with_the_fix(call, message):
    with pytest.raises(pr.InputError, match=message):
        call()


def test_values_alone_need_no_derivative():
    """A loss with an infinite slope at the start is refused, unless only its values are used."""

    def kinked(occupancy, mdp):
        return jnp.sqrt(jnp.abs(occupancy[3, 0] - occupancy[3, 0])) + (occupancy * mdp.cost).sum()

    with pytest.raises(pr.InputError, match="gradient of the loss"):
        solve(loss=kinked)
    assert solve(loss=kinked, gradient=pr.ZerothOrder(directions=2)).status.ok


def test_an_envelope_must_exist_on_the_sample_the_answer_is_judged_on():
    empty_beyond_two = pr.Envelope(lambda xi, p: [xi <= (2.0 if len(p) == 2 else 0.5)])
    settings = pr.BRPG(samples=2, iterations=1, evaluation=3)
    with pytest.raises(pr.InputError, match="mass"):
        pr.solve(LAKE, LAKE.prior, risk=empty_beyond_two, solver=settings)
    with pytest.raises(pr.InputError, match="mass"):
        pr.plug_in(LAKE, LAKE.prior, risk=pr.Envelope(lambda xi, p: [xi <= 0.5]), evaluation=3)


@pytest.mark.parametrize("wrap", [pr.Sobol, lambda belief: pr.WithinBox(belief, 0.0, 1.0)], ids=["sobol", "box"])
def test_another_support_is_noticed_through_wrappers(wrap):
    ours, theirs = pr.Support.lists([[[0, 1]], [[1, 0]]]), pr.Support.lists([[[1, 0]], [[0, 1]]])
    family = pr.TabularFamily(ours, [[1.0], [0.0]], 0, 0.9)
    with pytest.raises(pr.InputError, match="different supports"):
        pr.evaluate(np.ones((2, 1)), family, wrap(pr.Dirichlet.symmetric(theirs)))


def test_runs_that_stay_finished_keep_their_history_when_others_go_on():
    beliefs = [pr.Point([slip, 0.3]) for slip in (0.05, 0.3, 0.6, 0.9)]

    def run(tolerance, resume=None):
        settings = pr.BRPG(samples=1, iterations=30, tolerance=tolerance, evaluation=1)
        return [row[0] for row in pr.solve_many(LAKE, beliefs, [pr.Expectation()], solver=settings, resume=resume)]

    first = run(1.0)
    norms = sorted(float(solution.history.gradient_norm[-1]) for solution in first)
    assert all(solution.status is pr.Status.GRADIENT_VANISHED for solution in first)
    between = (norms[-2] + norms[-1]) / 2  # revives one run
    second = run(between, resume=[[solution] for solution in first])
    for before, after in zip(first, second, strict=True):
        if before.iterations == after.iterations:
            assert len(after.history) == len(before.history)
    assert sum(before.iterations != after.iterations for before, after in zip(first, second, strict=True)) == 1


def test_equal_losses_have_a_standard_error_of_zero():
    for risk in (pr.KullbackLeiblerBall(0.1), pr.EntropicVaR(0.9), pr.ChiSquareBall(0.1)):
        assert risk.standard_error([1.0] * 10) == 0.0


def test_a_policy_that_got_worse_is_noticed_without_a_standard_error():
    """The worst case has none; its losses on common draws tell."""
    from prudent.evaluation import judged
    from prudent.posteriors import equally_weighted

    losses = np.random.default_rng(0).normal(size=50)
    with jax.enable_x64(True):
        good, bad = (judged(pr.WorstCase(), each, equally_weighted(losses)) for each in (losses, losses + 1.0))
    assert bad.clearly_above(good)
    assert not good.clearly_above(bad)
    assert not good.clearly_above(good)
