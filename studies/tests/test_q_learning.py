"""Robust Q-learning: the estimator is unbiased, the limit is the robust plan, the runs are independent."""

import numpy as np
import pytest

import prudent as pr
from prudent_studies.q_learning import robust_q_learning


def random_mdp(seed):
    """Four states, two actions, three successors a pair."""
    random = np.random.default_rng(seed)
    successor = np.argsort(random.random((4, 2, 4)), axis=2)[:, :, :3]
    kernel = pr.Kernel(pr.Support.lists(successor), random.dirichlet(np.ones(3), size=(4, 2)))
    return pr.MDP(kernel, random.uniform(size=(4, 2)), random.dirichlet(np.ones(4)), 0.6)


@pytest.fixture(scope="module")
def mdp():
    return random_mdp(5)


@pytest.mark.long
def test_the_limit_is_the_robust_plan(mdp):
    """Within three standard errors of 24 runs, in all 24 cells; by chance a seed in forty misses that at a radius."""
    radii = [0.0, 0.1, 0.8]
    learned = robust_q_learning(mdp, radii, iterations=20_000, replications=24, seed=7)
    assert learned.quality.shape == (3, 24, 4, 2)
    for number, radius in enumerate(radii):
        limit, runs = pr.robust_plan(mdp, radius).quality, learned.quality[number]
        error = runs.std(axis=0, ddof=1) / np.sqrt(24)
        assert np.all(np.abs(runs.mean(axis=0) - limit) < 3 * error), (radius, (runs.mean(axis=0) - limit) / error)
        # The standard errors are small enough to tell: less than a thousandth of the values.
        assert error.max() < 1e-3 * limit.max()
    assert np.all(learned.samples > 2 * 20_000)


def test_only_the_start_is_left_without_noise(mdp):
    """The mean of many short runs is Q-learning with exact expectations from the same start, 0."""
    runs = robust_q_learning(mdp, 0.0, iterations=300, replications=400, seed=7).quality[0]
    kernel, quality = mdp.kernel.table(), np.zeros((4, 2))
    for t in range(1, 301):
        step = 1 / (1 + 0.4 * t)
        quality = (1 - step) * quality + step * (mdp.cost + 0.6 * kernel @ quality.min(axis=1))
    error = runs.std(axis=0, ddof=1) / np.sqrt(400)
    assert np.all(np.abs(runs.mean(axis=0) - quality) < 3 * error), (runs.mean(axis=0) - quality) / error
    # It is a distance that can be told from none.
    assert np.all(np.abs(quality - pr.robust_plan(mdp, 0.0).quality) > 5 * error)


def test_a_longer_run_begins_with_the_shorter_one_and_runs_differ(mdp):
    short, long = (robust_q_learning(mdp, 0.1, iterations=n, replications=24, seed=2) for n in (1, 2))
    # Q = 0 at first, so that the first update knows the cost alone: its step is 1 / (1 + (1 - 0.6)).
    np.testing.assert_allclose(short.quality[0], np.broadcast_to(mdp.cost / 1.4, (24, 4, 2)), rtol=1e-12)
    first = np.unique((long.quality - short.quality * (1 - 1 / 1.8))[0, :, 0, 0])
    assert len(first) > 2
    again = robust_q_learning(mdp, 0.1, iterations=2, replications=24, seed=2)
    np.testing.assert_array_equal(again.quality, long.quality)
    np.testing.assert_array_equal(long.policy(replication=3).greedy(), long.quality[0, 3].argmin(axis=1))


def test_models_are_learned_side_by_side():
    lake = pr.envs.frozen_lake("SF\nHG", discount=0.5)
    models = [lake.at((0.0, 1.0)), lake.at((0.2, 0.0))]
    learned = robust_q_learning(models, 0.3, iterations=2000, replications=2)
    # Nothing is random in the first model: only the start from 0 is left, which fades like 1 / iterations.
    np.testing.assert_allclose(learned.quality[0, 0], pr.robust_plan(models[0], 0.3).quality, rtol=0, atol=5e-3)
    np.testing.assert_array_equal(learned.quality[0, 0], learned.quality[0, 1])
    assert np.abs(learned.quality[1, 0] - learned.quality[1, 1]).max() > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"geometric": 0.75}, r"geometric must lie in \(0, 0.75\), got 0.75"),
        ({"geometric": 0.0}, "geometric"),
        ({"iterations": 0}, "iterations must be a whole number >= 1, got 0"),
        ({"replications": 1.5}, "replications must be a whole number"),
        ({"radius": -1.0}, "radius of a KL ball must be >= 0, got -1.0"),
        ({"radius": [0.1, np.nan]}, "got nan at position 1"),
        ({"radius": [[0.1]]}, r"got shape \(1, 1\)"),
        ({"mdp": []}, "empty list"),
        ({"mdp": "lake"}, "mdp must be an MDP"),
        ({"mdp": [1]}, "mdp 0 must be an MDP"),
        ({"seed": -1}, "seed must be a whole number"),
    ],
)
def test_bad_input_is_refused(mdp, change, message):
    call = {"mdp": mdp, "radius": 0.1, "iterations": 10} | change
    with pytest.raises(pr.InputError, match=message):
        robust_q_learning(call.pop("mdp"), call.pop("radius"), **call)


def test_models_must_share_a_support(mdp):
    other = random_mdp(6)
    with pytest.raises(pr.InputError, match="mdp 1 has another support"):
        robust_q_learning([mdp, other], 0.1, iterations=10)
    with pytest.raises(pr.InputError, match="one for each of 2 models"):
        robust_q_learning([mdp, mdp], [0.1, 0.2, 0.3], iterations=10)
