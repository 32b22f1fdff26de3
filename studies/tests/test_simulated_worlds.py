"""The families of the pendulum and the cart-pole step as Gymnasium's environments do with the same constants."""

import jax
import numpy as np
import pytest

from prudent_studies import simulated
from prudent_studies.worlds import cart_pole, pendulum


@pytest.mark.parametrize("setting", [pendulum(), cart_pole()], ids=["pendulum", "cart-pole"])
def test_a_family_steps_as_the_environment_does(setting):
    random, family = np.random.default_rng(0), setting.family
    theta = setting.truth * np.array([1.3, 0.8, 1.2])
    world = setting.world(theta)
    with jax.enable_x64(True):
        for _ in range(20):
            state, action = (
                0.5 * random.normal(size=family.states),
                3.0 * setting.bounds[1] * random.normal(size=1) / 2.0,
            )
            noise = random.normal(size=family.noise)
            ours = np.asarray(family.step(theta, state, action, noise))
            np.testing.assert_allclose(ours, world.step(state, float(action[0]), noise), rtol=1e-10, atol=1e-12)
    starts = np.stack([world.reset(seed) for seed in range(200)])
    with jax.enable_x64(True):
        ours = np.stack([np.asarray(family.start(random.normal(size=family.start_noise))) for _ in range(200)])
    np.testing.assert_allclose(np.abs(starts).max(axis=0), np.abs(ours).max(axis=0), rtol=0.1)
    np.testing.assert_allclose(starts.std(axis=0), ours.std(axis=0), rtol=0.2)


def test_the_bootstrap_of_a_difference_is_that_of_means():
    random = np.random.default_rng(1)
    ours, theirs = random.normal(size=(2, 400))
    value, error = simulated.difference(ours, theirs, lambda costs: float(costs.mean()))
    assert value == pytest.approx(ours.mean() - theirs.mean())
    assert error == pytest.approx((ours - theirs).std() / 20.0, rel=0.15)


def test_episodes_that_step_together_cost_what_they_do_one_by_one():
    class Push:
        def mean(self, seen):
            return -3.0 * seen[..., 1:2] - 0.5 * seen[..., 2:3]

    setting, policy = pendulum(), Push()
    family, thetas = setting.family, setting.truth * np.array([[1.0, 1.0, 1.0], [2.0, 1.2, 0.5]])
    costs, fallen, seen = simulated.try_out(setting, policy, thetas, 2, seed=3)
    noise, falls = np.random.default_rng(3).normal(size=(60, 2, 1)), 0
    for w, theta in enumerate(thetas):
        world, totals, walks = setting.world(theta), [], []
        for e in range(2):
            state, total, walk = world.reset(30_000 + e), 0.0, []
            for t in range(60):
                looked = np.array([np.cos(state[0]), 2.0 * np.sin(state[0]), state[1]])
                action = float(policy.mean(looked)[0])
                walk.append(state[0])
                with jax.enable_x64(True):
                    total += 0.99**t * float(family.cost(None, state, np.array([action])))
                state = world.step(state, action, noise[t, e])
            totals.append(total)
            walks.append(walk)
            falls += max(map(abs, walk)) > np.pi / 2
        assert costs[w] == pytest.approx(np.mean(totals), rel=1e-9)
        np.testing.assert_allclose(seen[w], walks[int(np.argmax(totals))], rtol=1e-9)
    assert fallen == falls / 4
