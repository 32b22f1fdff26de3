"""Natural steps of a gain: the Fisher information of its actions, coordinates that do not matter, fewer steps."""

import numpy as np
import pytest

import prudent as pr
from prudent.errors import InputError
from prudent.linear import LinearObjective
from prudent.objectives import slopes_on

THETAS = np.array(
    [[[0.8, 0.3, 0.1], [-0.2, 0.7, 1.0]], [[0.9, 0.1, 0.3], [0.0, 0.6, 0.8]], [[0.7, 0.0, 0.2], [0.1, 0.9, 1.2]]]
)


SAME = np.eye(2)


def family(change=SAME, **settings):
    """A system of two states, in coordinates `change s`."""
    back = np.linalg.inv(change)
    return pr.LinearFamily(
        back.T @ np.diag([1.0, 0.5]) @ back,
        [[0.4]],
        cross_cost=back.T @ [[0.1], [0.0]],
        noise=change @ [[0.5, 0.1], [0.1, 0.3]] @ change.T,
        start_mean=change @ [1.0, -1.0],
        discount=0.9,
        **settings,
    )


def gradient_steps(iterations, **settings):
    return pr.SampleAverage(samples=8, largest=8, starts=1, iterations=iterations, **settings)


@pytest.mark.parametrize("biased", [True, pytest.param(False, marks=pytest.mark.long)])
def test_the_metric_is_the_fisher_information_of_walks(biased):
    """Scores by differences of log-densities along simulated walks, discounted and averaged over two systems."""
    own = family(action_noise=[[0.6]])
    objective = own.objective(policy=pr.LinearGain(bias=biased))
    point, shares = np.array([[0.2 * biased, -0.3, -0.4]]), np.array([0.3, 0.7])
    found = slopes_on(objective, point[None], THETAS, np.zeros(2, int), np.arange(2))
    slope, visits = (np.tensordot(shares, part, axes=1)[None] for part in (found.slopes, found.visits))
    direction = objective.natural(slope, visits)[0]

    def log_density(parameters, state, action):
        gain = parameters if biased else np.concatenate([[0.0], parameters])
        return -0.5 * (action - gain[0] - state @ gain[1:]) ** 2 / 0.6

    parameters, fisher = np.asarray(objective.from_point(point))[0], 0.0
    policy = pr.LinearGaussianPolicy(point[:, 1:], point[:, 0])
    for number, share in enumerate(shares):
        log = own.simulate(THETAS[number], policy, steps=80, rollouts=4000, seed=number)
        state, action = np.asarray(log.state), np.asarray(log.action)[:, 0]
        ahead, behind = (
            np.stack([log_density(parameters + sign * 1e-4 * axis, state, action) for axis in np.eye(len(parameters))])
            for sign in (1.0, -1.0)
        )
        scores = (ahead - behind) / 2e-4
        weight = np.tile(0.9 ** np.arange(80), 4000) / 4000
        fisher = fisher + share * (scores * weight) @ scores.T
    expected = np.linalg.solve(fisher, np.asarray(objective.pull_back(None, slope))[0, 0])
    np.testing.assert_allclose(direction[0], expected, rtol=0.03, atol=0.03 * np.abs(expected).max())


def test_coordinates_of_the_state_do_not_matter():
    change = np.array([[5.0, 2.0], [0.0, 0.3]])
    moved = change @ THETAS @ np.block([[np.linalg.inv(change), np.zeros((2, 1))], [np.zeros((1, 2)), np.eye(1)]])
    gains = {}
    for step in (pr.NaturalGradient(), pr.LBFGS()):
        solver = gradient_steps(5, step=step, tolerance=0.0)
        here = pr.solve(family(), pr.Draws(THETAS), risk=pr.CVaR(0.5), solver=solver)
        there = pr.solve(family(change), pr.Draws(moved), risk=pr.CVaR(0.5), solver=solver)
        gains[type(step)] = here.policy.gain, there.policy.gain @ change
    np.testing.assert_allclose(*gains[pr.NaturalGradient], rtol=1e-8)
    assert np.abs(np.subtract(*gains[pr.LBFGS])).max() > 0.01


@pytest.mark.long
def test_the_same_gain_in_fewer_steps_than_along_the_plain_gradient(monkeypatch):
    change, belief = np.diag([1.0, 8.0]), pr.Draws(THETAS @ np.diag([1.0, 0.125, 1.0]) * [[1.0], [8.0]])
    own = family(change, state_target=[2.0, 0.0])
    best = pr.solve(own, belief, risk=pr.Expectation())
    natural = pr.solve(own, belief, risk=pr.Expectation(), solver=gradient_steps(200, step=pr.NaturalGradient()))
    monkeypatch.setattr(LinearObjective, "natural", lambda self, slopes, visits: self.pull_back(None, slopes))
    plain = pr.solve(own, belief, risk=pr.Expectation(), solver=gradient_steps(200, step=pr.NaturalGradient()))
    assert natural.status.ok and natural.iterations < 0.5 * plain.iterations
    assert natural.risk == pytest.approx(best.risk, rel=1e-6)


def test_a_policy_without_a_metric_is_refused():
    simulated = pr.SimulatedFamily(
        lambda theta, s, a, w: theta * s + a, lambda theta, s, a: s[0] ** 2, lambda noise: noise + 1.0,
        discount=0.9, horizon=3, actions=1, start_noise=1, particles=2,
    )  # fmt: skip
    with pytest.raises(InputError, match="or the gain of a linear system; use LBFGS"):
        pr.solve(simulated, pr.Draws([[0.5]]), solver=gradient_steps(1, step=pr.NaturalGradient()))
