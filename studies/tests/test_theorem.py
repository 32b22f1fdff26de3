"""The finite-episode error bound: its scales against values and differences, its settings, whole runs by it."""

import jax.numpy as jnp
import numpy as np
import pytest

import prudent as pr
from prudent_studies.theorem import ByTheorem, Scales, estimate_scales

# Not symmetric: on a symmetric map rounding alone decides which of two equal ways a run takes.
LAKE = pr.envs.frozen_lake("SFF\nHFG")
TRUTH = (0.3, 0.1)
STATES, ACTIONS = 6, 4
SOLVER = pr.BRPG(samples=8, iterations=6, evaluation=16)


def run(episodes, solver, world=None, **changes):
    settings = {"risk": pr.CVaR(0.5), "seed": 7, **changes}
    world = world or LAKE.world(TRUTH, steps=12)
    return pr.run_episodes(LAKE, LAKE.prior, world, episodes=episodes, solver=solver, **settings)


def test_the_number_of_iterations_is_the_theorems_within_its_bounds():
    rule = ByTheorem(epsilon=0.5, factor=2.0, least=3, most=50)
    now, before = Scales(2.0, 100.0, 0.25, 0.0), Scales(100.0, 4.0, 9.0, 0.0)
    assert rule.iterations(now, before) == 2.0 * 0.25 * (4.0 + 2.0) / 0.25
    assert rule.iterations(Scales(0.0, 0.0, 0.0, 0.0), before) == 3
    assert rule.iterations(Scales(1e9, 0.0, 1.0, 0.0), before) == 50


def test_draws_step_and_output_are_the_theorems():
    """r = 12 sigma / epsilon^2 and the step 1 / (2 L), with L and r no smaller than asked and less than twice that."""
    rule = ByTheorem(epsilon=0.5, most_draws=4096, solver=pr.BRPG(samples=3, step=9.0, evaluation=77))
    for smoothness, noise in ((0.25, 1.0), (0.3, 7.0), (17.0, 60.0)):
        now = Scales(1.0, 1.0, smoothness, noise)
        chosen = rule.settings(now, now)
        assert 48.0 * noise <= chosen.samples < 96.0 * noise
        assert 0.25 / smoothness < chosen.step <= 0.5 / smoothness
        assert chosen.iterations == rule.iterations(now, now) >= smoothness * 2.0 / 0.25
        assert isinstance(chosen.output, pr.RandomIterate) and chosen.evaluation == 77
    assert ByTheorem(epsilon=0.5, most_draws=100).draws(Scales(1.0, 1.0, 1.0, 60.0)) == 100


def test_an_episode_by_the_theorem_has_its_draws_and_step():
    """Against BR-PG with the settings that the theorem gives for the scales of each episode's start."""
    starts = []

    def choose(start):
        starts.append(start)
        return rule(start)

    rule = ByTheorem(epsilon=4.0, most=6, samples=16, solver=pr.BRPG(evaluation=16))
    result = run(episodes=2, solver=choose)
    for start, episode in zip(starts, result.episodes, strict=True):
        chosen = rule(start)
        assert episode.solution.models == chosen.samples * chosen.iterations
        assert episode.solution.iterations == chosen.iterations
        assert np.log2(0.5 / chosen.step) == round(np.log2(0.5 / chosen.step))


PROBLEM = LAKE.objective(), pr.CVaR(0.5)


@pytest.mark.long
def test_scales_and_iterations_shrink_as_data_grow():
    rule = ByTheorem(epsilon=1.0, most=100, samples=64, solver=SOLVER)
    result = run(world=LAKE.world(TRUTH, steps=20, rollouts=10), episodes=4, solver=rule)
    beliefs = [LAKE.prior, *(episode.belief for episode in result.episodes)]
    thetas = np.stack([belief.sample(0, 64) for belief in beliefs])
    loss_gap, gradient_gap, *_ = np.array(estimate_scales(*PROBLEM, [np.zeros((STATES, ACTIONS))] * 5, thetas)).T
    assert loss_gap[-1] < 0.8 * loss_gap[1] < 0.64 * loss_gap[0]
    assert gradient_gap[-1] < 0.8 * gradient_gap[1] < 0.64 * gradient_gap[0]
    first, *_, last = result.episodes
    assert last.solution.iterations < first.solution.iterations < 100


def spread_of_gradients(logits, thetas):
    """The variance of `xi* grad C`, by differences of the losses."""
    steps = 1e-5 * np.eye(logits.size).reshape(-1, *logits.shape)
    points = np.exp(np.concatenate([logits[None], logits + steps, logits - steps]))
    tables = list(points / points.sum(axis=2, keepdims=True))
    losses = np.stack([np.asarray(pr.loss_at(tables, LAKE, theta)) for theta in thetas])
    density = np.asarray(pr.CVaR(0.5)(losses[:, 0]).weights)
    ahead, behind = losses[:, 1 : 1 + logits.size], losses[:, 1 + logits.size :]
    return float((density[:, None] * (ahead - behind) / 2e-5).var(axis=0, ddof=1).sum())


def test_scales_against_values_and_differences():
    random = np.random.default_rng(0)
    parameters = [random.normal(size=(STATES, ACTIONS)) for _ in range(2)]
    thetas = random.uniform(0.1, 0.9, size=(2, 9, 2))
    found = estimate_scales(*PROBLEM, parameters, thetas, np.broadcast_to(np.array(TRUTH), (2, 1, 2)))
    own = estimate_scales(*PROBLEM, parameters, thetas)

    def losses(logits, thetas):
        table = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        return np.array([pr.loss_at(table, LAKE, theta) for theta in thetas])

    def risk(logits, thetas):
        return float(pr.CVaR(0.5)(losses(logits, thetas)).value)

    for alpha, sample, scales, inner in zip(parameters, thetas, found, own, strict=True):
        value = risk(alpha, sample)
        assert scales.loss_gap == pytest.approx(abs(value - losses(alpha, [TRUTH])[0]), rel=1e-9)
        assert inner.loss_gap == pytest.approx(np.abs(value - losses(alpha, sample)).mean(), rel=1e-9)
        assert inner.smoothness == pytest.approx(scales.smoothness, rel=1e-9)
        assert np.isnan(scales.noise) and inner.noise == pytest.approx(spread_of_gradients(alpha, sample), rel=1e-6)
    alpha, sample, direction = parameters[0], thetas[0], random.normal(size=(STATES, ACTIONS))
    direction /= np.linalg.norm(direction)
    ahead, behind = alpha + 1e-5 * direction, alpha - 1e-5 * direction
    slope = [(risk(ahead, set_) - risk(behind, set_)) / 2e-5 for set_ in (sample, [TRUTH])]
    # The gap of the slopes along any direction is at most that of the gradients.
    assert 0 < abs(slope[0] - slope[1]) <= found[0].gradient_gap


@pytest.mark.parametrize(
    ("match", "changes"),
    [
        ("epsilon must be one number > 0", {"epsilon": 0.0}),
        ("factor must be one number > 0", {"factor": -1.0}),
        ("samples must be a whole number >= 1", {"samples": 0}),
        ("least <= most", {"least": 5, "most": 4}),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(match, changes):
    with pytest.raises(pr.InputError, match=match):
        ByTheorem(**{"epsilon": 1.0, **changes})


@pytest.mark.long
def test_a_loss_that_is_not_linear_goes_through_the_theorem_as_well():
    rule = ByTheorem(epsilon=1.0, most=4, solver=SOLVER)
    result = run(episodes=1, loss=lambda occupancy, mdp: jnp.sum(occupancy**2), solver=rule)
    assert 1 <= result.episodes[0].solution.iterations <= 4
