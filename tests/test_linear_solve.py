"""Gains from beliefs: the solver, the certificate, stability, losses that are not quadratic, refusals."""

import numpy as np
import pytest

import prudent as pr
from prudent.linear.stability import annealed
from prudent.objectives import losses_on

from .marks import short

QUICK = pr.SampleAverage(samples=64, largest=64, starts=4, evaluation=400)


def scalar(**other):
    return pr.LinearFamily([[1.0]], [[0.5]], noise=[[1.0]], discount=0.9, **other)


def tail_mean(losses, level):
    """CVaR of equally likely losses, by hand."""
    ordered = np.sort(losses, axis=1)[:, ::-1]
    shares = np.clip((1.0 - level) - np.arange(losses.shape[1]) / losses.shape[1], 0.0, 1.0 / losses.shape[1])
    return (np.where(shares > 0, ordered, 0.0) * shares).sum(axis=1) / (1.0 - level)


def brute(family, thetas, level, loss=None):
    """CVaR over equally likely thetas, minimised over the gain of one state and one action by looking everywhere."""
    objective, low, high = family.objective(loss=loss), -3.0, 1.0
    for _ in range(4):
        grid = np.linspace(low, high, 201)
        points = np.stack([np.zeros_like(grid), grid], axis=1)[:, None, :]
        values = tail_mean(losses_on(objective, points, thetas), level)
        best, width = int(np.argmin(values)), (high - low) / 100
        low, high = grid[best] - width, grid[best] + width
    return grid[best], values[best]


THETAS = np.array([[[1.1, 0.6]], [[1.0, 1.0]], [[0.8, 1.4]], [[1.2, 0.9]], [[0.9, 0.7]]])


@pytest.mark.parametrize("level", short([0.8], [0.0, 0.5, 0.8]))
def test_the_gain_of_few_systems_is_that_of_a_search_everywhere(level):
    family = scalar()
    solution = pr.solve(family, pr.Draws(THETAS), risk=pr.CVaR(level), solver=QUICK)
    gain, least = brute(family, THETAS, level)
    assert solution.risk <= least * (1 + 1e-6)
    np.testing.assert_allclose(solution.policy.gain[0, 0], gain, atol=2e-3)
    assert solution.certificate.lower_bound <= least
    assert solution.evaluation.notes.unstable.value == 0.0


def test_one_known_system_has_no_gap():
    family = scalar(state_target=[1.0], start_mean=[3.0])
    solution = pr.solve(family, pr.Point(THETAS[0]), risk=pr.CVaR(0.9), solver=QUICK)
    plan = pr.linear_plan(family, THETAS[0])
    np.testing.assert_allclose(solution.risk, plan.cost, rtol=1e-6)
    np.testing.assert_allclose(solution.policy.bias, plan.policy.bias, atol=1e-3)
    assert solution.certificate.gap <= 1e-6 * plan.cost


def near_fifteen(occupancy, system):
    return (occupancy.second[0, 0] - 15.0) ** 2 + occupancy.second[1, 1]


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(pr.GaussianTarget([0.0], [[4.0]]), marks=pytest.mark.long),
        pr.GaussianTarget([0.0], [[2.0]]) + 0.05 * pr.LinearQuadraticCost(),
        pytest.param(pr.LinearQuadraticCost() + 20.0 * pr.InputLimit([0.5]), marks=pytest.mark.long),
        pytest.param(pr.LinearQuadraticCost() + 5.0 * pr.VariancePenalty([1.0]), marks=pytest.mark.long),
        pytest.param(pr.ConvexMoments(near_fifteen), marks=pytest.mark.long),
    ],
    ids=["target", "target and cost", "input", "variance", "own"],
)
def test_a_loss_that_is_not_quadratic_against_a_search_everywhere(loss):
    family = scalar()
    policy = pr.LinearGain(bias=False)
    solution = pr.solve(family, pr.Draws(THETAS), risk=pr.CVaR(0.5), loss=loss, policy=policy, solver=QUICK)
    _, least = brute(family, THETAS, 0.5, loss)
    assert solution.risk <= least + 1e-5 * (1.0 + abs(least))
    certificate = solution.certificate
    assert certificate.lower_bound is None or certificate.lower_bound <= least + 1e-9


@pytest.mark.long
@pytest.mark.parametrize(
    "loss",
    [
        pr.LinearQuadraticCost() + 20.0 * pr.InputLimit([0.5]),
        pytest.param(pr.LinearQuadraticCost(), marks=pytest.mark.long),
    ],
)
def test_the_bound_of_one_system_is_met(loss):
    family = scalar()
    for theta in THETAS[:1]:
        draws = pr.Draws(theta[None]).as_atoms()
        solution = pr.solve(family, pr.Point(theta), loss=loss, solver=QUICK)
        bound, _ = family.objective(loss=loss).plans().least(draws, np.array([[0.0, -0.5]]))
        assert bound[0] <= solution.risk * (1 + 1e-9)
        np.testing.assert_allclose(bound[0], solution.risk, rtol=2e-3)


@pytest.mark.long
def test_any_function_under_the_occupancy_is_a_loss():
    family = scalar()
    solution = pr.solve(
        family,
        pr.Draws(THETAS[:2]),
        loss=lambda occupancy, system: occupancy.expect(lambda state, action: state[0] ** 2 + 0.5 * action[0] ** 2),
        policy=pr.LinearGain(bias=False),
        solver=QUICK,
    )
    plain = pr.solve(family, pr.Draws(THETAS[:2]), solver=QUICK)
    np.testing.assert_allclose(solution.risk, plain.risk, rtol=1e-5)
    assert "plain function" in solution.certificate.reason


def shaky(rows, seed=0):
    """Three states, of which little is known."""
    family = pr.LinearFamily(np.eye(3), np.eye(3), noise=np.eye(3), discount=0.98)
    matrix = 1.01 * np.eye(3) + 0.01 * (np.eye(3, k=1) + np.eye(3, k=-1))
    truth = family.theta(matrix, np.eye(3))
    explore = pr.LinearGaussianPolicy(np.zeros((3, 3)), covariance=np.eye(3))
    log = family.simulate(truth, explore, steps=6, rollouts=rows // 6, seed=seed)
    return family, truth, log


@pytest.mark.long
def test_from_an_infinite_start_to_a_finite_one():
    family, _, log = shaky(24, seed=1)
    thetas = pr.CutOff(family.prior(spread=10.0).update(log), credible=0.99).sample(5, 512)
    objective = family.objective()
    start = objective.point_from(pr.linear_plan(family, log.least_squares()).policy)
    assert np.isinf(pr.evaluate(start[:, 1:], family, pr.Draws(thetas)).risk)
    solution = pr.solve(family, pr.Draws(thetas), risk=pr.CVaR(0.9))
    assert np.isfinite(solution.risk)
    assert solution.evaluation.notes.unstable.value == 0.0
    assert solution.certificate.lower_bound < solution.risk


@pytest.mark.parametrize(("pace", "rounds"), [(0.03, 33), (0.02, 6)])
def test_annealing_goes_on_while_its_pace_will_do(pace, rounds):
    visited = []

    def descend(point, discount):
        visited.append(np.sqrt(discount) * (2.0 + point[0, 1]))
        return point - [[0.0, pace]]

    found = annealed(np.zeros((1, 2)), np.array([[[2.0, 1.0]]]), 0.98, descend)
    assert len(visited) == rounds and (found is not None) == (rounds == 33)
    assert found is None or np.sqrt(0.98) * (2.0 + found[0, 1]) < 1.0
    np.testing.assert_allclose(visited, 0.97)


def test_a_start_that_is_given_and_infinite_does_not_keep_the_search_from_a_finite_one():
    family, belief = scalar(), pr.Draws([[[1.5, 1.0]], [[1.4, 0.8]]])
    alone = pr.SampleAverage(starts=1)
    solution = pr.solve(family, belief, start=np.zeros((1, 1)), solver=alone)
    assert solution.risk == pytest.approx(pr.solve(family, belief, solver=QUICK).risk, rel=1e-4)


def test_systems_that_no_gain_stabilises_are_told():
    family = scalar()
    solution = pr.solve(family, pr.Draws([[[1.5, 1.0]], [[1.5, -1.0]]]), risk=pr.CVaR(0.9))
    assert solution.status is pr.Status.INFINITE and not solution.status.ok
    assert solution.risk == np.inf
    assert solution.evaluation.notes.unstable.value >= 0.5
    assert "unstable" in str(solution)
    assert "nan" not in str(solution)
    alone = pr.solve(family, pr.Point([[1.5, 0.0]]), solver=QUICK)
    assert alone.status is pr.Status.INFINITE


def test_the_answer_of_a_belief_says_how_often_it_is_unstable():
    family, truth, log = shaky(60, seed=1)
    belief = pr.CutOff(family.prior(spread=10.0).update(log), credible=0.99)
    solution = pr.solve(family, belief, risk=pr.CVaR(0.9), solver=QUICK)
    notes = solution.evaluation.notes
    assert notes.unstable.draws == 400
    assert notes.unstable.value == 0.0 and 0.005 < notes.unstable.high < 0.01
    assert 0.005 < notes.cut_off.value < 0.015
    rows = dict(solution.rows())
    assert rows["unstable"].startswith("0.00% of 400 draws")
    plug_in = pr.linear_plan(family, log.least_squares()).policy
    both = [pr.evaluate(policy, family, belief).risk for policy in (solution.policy, plug_in)]
    assert both[0] < both[1]
    again = pr.solve(family, belief, risk=pr.CVaR(0.9), solver=QUICK)
    np.testing.assert_array_equal(again.policy.gain, solution.policy.gain)
    assert pr.loss_at(solution.policy, family, truth) < 1.1 * pr.linear_plan(family, truth).cost


def test_costs_in_other_units_have_the_same_gain():
    family, other = scalar(), pr.LinearFamily([[1e4]], [[5e3]], noise=[[1.0]], discount=0.9)
    first, second = (pr.solve(one, pr.Draws(THETAS), risk=pr.CVaR(0.5), solver=QUICK) for one in (family, other))
    np.testing.assert_allclose(first.policy.gain, second.policy.gain, rtol=1e-9)
    np.testing.assert_allclose(1e4 * first.risk, second.risk, rtol=1e-9)


@pytest.mark.long
def test_unknown_noise():
    family = pr.LinearFamily([[1.0]], [[0.5]], discount=0.9)
    random = np.random.default_rng(0)
    state, action = random.normal(size=(2, 40, 1))
    log = pr.VectorLog(state, action, 0.9 * state + action + 0.5 * random.normal(size=(40, 1)))
    belief = pr.CutOff(family.prior(spread=5.0, noise=[[1.0]]).update(log), credible=0.99)
    solution = pr.solve(family, belief, solver=QUICK)
    assert solution.status.ok
    assert 0.15 < belief.sample(0, 500)[:, 0, 2].mean() < 0.45


def test_a_finite_horizon_needs_no_cut():
    family = scalar()
    log = pr.VectorLog([[0.0], [1.0], [0.5]], [[1.0], [0.0], [-1.0]], [[1.0], [0.9], [-0.4]])
    belief = family.prior(spread=1.0).update(log)
    solution = pr.solve(family, belief, occupancy=pr.Truncated(5), solver=QUICK)
    assert solution.status.ok and solution.truncation > 0
    with pytest.raises(pr.InputError, match="every gain is unstable with a positive probability"):
        pr.solve(family, belief)


def test_a_log_without_excitation_is_told():
    family = scalar()
    log = pr.VectorLog([[1.0], [0.9]], [[0.0], [0.0]], [[0.9], [0.8]])
    belief = pr.CutOff(family.prior(spread=0.2, mean=[[1.0, 1.0]]).update(log), credible=0.9)
    judged = pr.evaluate(pr.LinearGaussianPolicy([[-0.5]]), family, belief, samples=64)
    assert dict(judged.rows())["excitation"].startswith("in 2 of 2 directions")
    np.testing.assert_allclose(judged.notes.learned[0], 0.0, atol=1e-12)


def test_a_cautious_gain_in_closed_form():
    family = scalar()
    known = pr.robust_gain(family, pr.Point(THETAS[0]))
    np.testing.assert_allclose(known.gain, pr.linear_plan(family, THETAS[0]).policy.gain, rtol=1e-6)
    wide = pr.robust_gain(family, pr.Draws([[[1.1, 0.2]], [[1.1, 1.0]]]))
    assert abs(wide.gain[0, 0]) < abs(known.gain[0, 0])


REFUSED = [
    (lambda: pr.LinearFamily([[-1.0]], [[1.0]], discount=0.9), "no negative eigenvalue.*not convex"),
    (lambda: pr.LinearFamily([[1.0]], [[1.0]], cross_cost=[[2.0]], discount=0.9), "no negative eigenvalue"),
    (lambda: pr.LinearFamily([[1.0]], [[0.0]], discount=0.9), "action_cost must be positive definite"),
    (lambda: pr.LinearFamily([[1.0, 2.0], [0.0, 1.0]], [[1.0]], discount=0.9), "state_cost must be symmetric"),
    (lambda: pr.LinearFamily([1.0], [[1.0]], discount=0.9), "square matrix"),
    (lambda: pr.LinearFamily([[1.0]], [[1.0]], discount=1.0), "discount must lie"),
    (lambda: pr.LinearFamily([[1.0]], [[1.0]], noise=[[-1.0]], discount=0.9), "noise must have no negative"),
    (lambda: scalar(state_target=[1.0, 2.0]), "state_target must have shape"),
    (lambda: scalar().at([[1.0, 1.0, 1.0]]), "theta must have shape"),
    (lambda: scalar().prior(spread=1.0, noise=[[1.0]]), "knows its noise"),
    (lambda: pr.LinearFamily([[1.0]], [[1.0]], discount=0.9).prior(spread=1.0), "noise= is the mean"),
    (lambda: pr.LinearGaussianPolicy([1.0]), "indexed \\[action, state\\]"),
    (lambda: pr.LinearGaussianPolicy([[np.nan]]), "non-finite"),
    (lambda: pr.loss_at(np.array([[1.0, 2.0]]), scalar(), [[1.0, 1.0]]), "the gain has shape"),
    (lambda: pr.linear_plan(scalar(), [[1.5, 0.0]]), "no gain stabilises"),
    (lambda: pr.linear_occupancy(scalar().at([[1.5, 0.0]]), [[0.0]]), "unstable"),
    (lambda: pr.solve(scalar(), pr.Draws([[1.0, 1.0]])), "a posterior draw has shape"),
    (lambda: pr.solve(scalar(), pr.Draws(THETAS), policy=pr.Softmax()), "policy must be LinearGain"),
    (lambda: pr.solve(scalar(), pr.Draws(THETAS), loss=lambda occupancy, system: occupancy.first), "one real number"),
    (lambda: pr.solve(scalar(), pr.Draws(THETAS), loss=lambda occupancy: 0.0), "could not be evaluated"),
    (
        lambda: pr.solve(
            scalar(), pr.Draws(THETAS), loss=pr.ConvexMoments(lambda occupancy, system: occupancy.covariance[0, 0])
        ),
        "not convex in the occupancy",
    ),
    (lambda: pr.solve(scalar(), pr.Draws(THETAS), loss=pr.GaussianTarget([0.0] * 3, np.eye(3))), "3 coordinates"),
    (lambda: pr.InputLimit([0.0]), "limits must be above 0"),
    (lambda: -1.0 * pr.LinearQuadraticCost(), "must lie in"),
    (lambda: pr.CutOff(scalar().prior(spread=1.0), radius=1.0), "must be bounded"),
    (lambda: pr.CutOff(pr.Draws(THETAS), low=-3.0, high=3.0), "actions= is the dimension"),
    (lambda: pr.CutOff(scalar().prior(spread=1.0), low=90.0, high=91.0).sample(0, 2), "only 0 of"),
    (lambda: scalar().prior(spread=1.0).update(pr.VectorLog([[1.0, 2.0]], [[1.0]], [[1.0, 2.0]])), "the log has 2"),
    (
        lambda: pr.solve(scalar(), pr.CutOff(pr.MatrixNormal([[1.0, 1.0]], np.eye(2), [[2.0]]), credible=0.9)),
        "differ in their noise",
    ),
    (lambda: pr.MatrixNormal([[1.0, 1.0]], np.zeros((2, 2)), [[1.0]]), "positive definite"),
    (lambda: pr.MatrixNormalInverseWishart([[1.0, 1.0]], np.eye(2), [[1.0]], 2.0), "degrees must lie"),
    (lambda: pr.VectorLog([[1.0]], [[1.0], [2.0]], [[1.0]]), "as many rows"),
    (lambda: pr.VectorLog([[np.inf]], [[1.0]], [[1.0]]), "non-finite"),
    (lambda: pr.VectorLog(np.zeros((0, 1)), np.zeros((0, 1)), np.zeros((0, 1))), "no row"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_refusals(number):
    call, message = REFUSED[number]
    with pytest.raises(pr.InputError, match=message):
        call()


def test_episodes_learn_by_bayes_rule_and_resume_to_the_bit():
    truth = np.array([[1.1, 1.0]])
    own = pr.LinearFamily([[1.0]], [[1.0]], noise=[[1.0]], discount=0.9, start_mean=[2.0])
    prior = pr.CutOff(own.prior(spread=10.0), credible=0.9)
    world = pr.LinearWorld(own, truth, steps=8, rollouts=2, exploration=[[1.0]])
    settings = {
        "solver": pr.SampleAverage(samples=32, largest=32, starts=1, evaluation=64),
        "risk": pr.CVaR(0.5),
        "seed": 3,
    }
    whole = pr.run_episodes(own, prior, world, episodes=2, **settings)
    first = pr.run_episodes(own, prior, world, episodes=1, **settings)
    again = pr.run_episodes(own, prior, world, episodes=1, resume=first, **settings)
    np.testing.assert_array_equal(whole.policy.gain, again.policy.gain)
    logs = [episode.log for episode in whole.episodes]
    together = pr.VectorLog(
        *(np.concatenate([getattr(log, name) for log in logs]) for name in ("state", "action", "next_state"))
    )
    inputs = together.inputs()
    precision = np.eye(2) / 100.0 + inputs.T @ inputs
    np.testing.assert_allclose(whole.belief.posterior.regression.precision, precision, rtol=1e-12)
    mean = np.linalg.solve(precision, inputs.T @ np.asarray(together.next_state)).T
    np.testing.assert_allclose(whole.belief.posterior.mean(), mean, rtol=1e-9)
    deployed = [episode.deployed.gain for episode in whole.episodes]
    np.testing.assert_array_equal(deployed[0], np.zeros((1, 1)))
    np.testing.assert_array_equal(deployed[1], whole.episodes[0].solution.policy.gain)
    # Actions are what the gain says and exploration of variance 1.
    off = np.asarray(logs[1].action) - np.asarray(logs[1].state) @ deployed[1].T
    assert 0.2 < off.var() < 3.0
    assert float(pr.loss_at(whole.policy, own, truth)) < 1.1 * pr.linear_plan(own, truth).cost


def test_worlds_and_policies_of_other_kinds_are_refused():
    own = pr.LinearFamily([[1.0]], [[1.0]], noise=[[1.0]], discount=0.9)
    random = np.random.default_rng(0)
    with pytest.raises(pr.InputError, match="theta must have shape"):
        pr.LinearWorld(own, [[1.0]])
    with pytest.raises(pr.InputError, match="exploration must have shape"):
        pr.LinearWorld(own, [[1.0, 1.0]], exploration=np.eye(2))
    with pytest.raises(pr.InputError, match="a gain"):
        pr.LinearWorld(own, [[1.0, 1.0]]).deploy(pr.TabularPolicy([[1.0]]), random)
    lake = pr.envs.frozen_lake("SF\nHG")
    with pytest.raises(pr.InputError, match="a table"):
        pr.SimulatedWorld(lake, (0.3, 0.1)).deploy(pr.LinearGaussianPolicy([[1.0]]), random)
    learned = pr.CutOff(pr.Draws([[[1.0, 1.0]]]), low=-2.0, high=2.0, actions=1)
    with pytest.raises(pr.InputError, match="cannot learn from a log"):
        pr.run_episodes(own, learned, pr.LinearWorld(own, [[1.0, 1.0]]), episodes=1)
