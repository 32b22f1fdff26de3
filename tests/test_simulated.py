"""Simulated models: walks and their derivatives against linear systems, beliefs from logs, what is known of a risk."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import prudent as pr
from prudent.objectives import losses_on, replicates_on, slopes_on
from prudent.simulated import rollouts

HORIZON = 12
LINEAR = pr.LinearFamily(
    state_cost=[[1.0, 0.2], [0.2, 0.5]],
    action_cost=[[0.3]],
    discount=0.9,
    noise=[[0.3, 0.1], [0.1, 0.2]],
    start_mean=[1.0, -0.5],
    start_covariance=[[0.2, 0.0], [0.0, 0.1]],
    action_noise=[[0.1]],
)
THETAS = np.array(
    [[[0.9, 0.2, 0.1], [-0.1, 0.8, 0.7]], [[1.1, 0.1, 0.4], [0.0, 0.7, 0.9]], [[0.7, 0.3, -0.2], [0.1, 1.0, 0.6]]]
)
GAIN = pr.LinearGaussianPolicy([[-0.3, -0.4]], bias=[0.1])


ROOT, FIRST = np.linalg.cholesky(LINEAR.noise), np.linalg.cholesky(LINEAR.start_covariance)


def step(theta, state, action, noise):
    return theta[:, :2] @ state + theta[:, 2:] @ action + jnp.asarray(ROOT) @ noise


def cost(theta, state, action):
    both = jnp.concatenate([state, action])
    return both @ jnp.asarray(LINEAR.weight) @ both


def start(noise):
    return jnp.asarray(LINEAR.start_mean) + jnp.asarray(FIRST) @ noise


def simulated(particles=16, seed=0, **changes):
    """The linear family as walks; the same functions everywhere, so that little is compiled."""
    parts = {"discount": 0.9, "horizon": HORIZON, "actions": 1, "noise": 2, "start_noise": 2}
    parts |= {"step": step, "cost": cost, "start": start, "action_noise": LINEAR.action_noise}
    return pr.SimulatedFamily(**(parts | {"particles": particles, "seed": seed} | changes))


def slopes_at(objective, point, thetas=THETAS):
    with jax.enable_x64(True):
        return slopes_on(objective, point[None], thetas, np.zeros(len(thetas), int), np.arange(len(thetas)))


EXACT = LINEAR.objective(policy=pr.LinearGain(bias=True), occupancy=pr.Truncated(HORIZON))


def test_losses_and_gradients_come_to_those_of_the_linear_system_at_a_rate_of_the_root_of_particles():
    exact = slopes_at(EXACT, EXACT.point_from(GAIN))
    errors, counts, repeats = [], (16, 256), 12
    for particles in counts:
        found = []
        for seed in range(repeats):
            objective = simulated(particles, seed).objective().holding(GAIN)
            found.append(slopes_at(objective, objective.point_from(GAIN)))
        losses = np.stack([one.losses for one in found])
        slopes = np.stack([one.slopes for one in found]).reshape(repeats, *exact.slopes.shape)
        for values, truth in ((losses, exact.losses), (slopes, exact.slopes)):
            # Within their standard error, as the runs tell it: 12 entries, none beyond four.
            error = values.std(axis=0, ddof=1) / np.sqrt(repeats)
            assert np.all(np.abs(values.mean(axis=0) - truth) < 4.5 * error)
        scale = np.abs(exact.slopes).max(axis=(1, 2), keepdims=True)
        errors.append(np.sqrt((((slopes - exact.slopes) / scale) ** 2).mean()))
    rate = np.log(errors[1] / errors[0]) / np.log(counts[1] / counts[0])
    assert -0.7 < rate < -0.3


def test_the_gradient_of_a_network_is_that_of_differences():
    family = simulated()
    network = pr.Network(width=3, depth=1, bounds=(-2.0, 2.0))
    loss = lambda occupancy, model: jnp.sqrt(1.0 + occupancy.cost) + occupancy.expect(lambda s, a: a[0] ** 2) ** 2  # noqa: E731
    objective = family.objective(loss=loss, policy=network)
    point = network.initial(2, 1, np.random.default_rng(3))
    found = slopes_at(objective, point)
    length = 1e-5
    moved = np.concatenate([point + length * np.eye(len(point)), point - length * np.eye(len(point))])
    with jax.enable_x64(True):
        losses = losses_on(objective, moved, THETAS)
    differences = (losses[: len(point)] - losses[len(point) :]).T / (2.0 * length)
    np.testing.assert_allclose(found.slopes, differences, rtol=1e-6, atol=1e-8)


def test_a_walk_in_segments_is_the_walk_and_takes_the_memory_of_its_root():
    with jax.enable_x64(True):
        inputs = jnp.asarray(np.random.default_rng(0).normal(size=(403, 200)))
        weights = jnp.asarray(np.random.default_rng(1).normal(size=(200, 200)) / 20.0)

        def body(carry, noise):
            return jnp.tanh(weights @ jnp.tanh(weights @ carry)) + 0.1 * noise, None

        def by(scan):
            return jax.jit(jax.value_and_grad(lambda first: (scan(first) ** 2).sum()))

        plain = by(lambda first: lax.scan(body, first, inputs)[0])
        ours = by(lambda first: rollouts.scan(body, first, inputs, 403))
        first = jnp.ones(200)
        for one, other in zip(plain(first), ours(first), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10)
        taken = [made.lower(first).compile().memory_analysis().temp_size_in_bytes for made in (plain, ours)]
        assert taken[1] < taken[0] / 5


def test_the_noise_of_particles_is_as_large_as_is_said_and_apart_from_that_of_draws():
    belief = pr.Draws(THETAS)
    judged = [pr.evaluate(GAIN, simulated(16, seed), belief, risk=pr.CVaR(0.5)) for seed in range(30)]
    risks = np.array([one.risk for one in judged])
    assert all(one.draw_standard_error == 0.0 and one.exact for one in judged)
    said = np.sqrt(np.mean([one.particle_standard_error**2 for one in judged]))
    assert 0.6 < risks.std(ddof=1) / said < 1.5
    exact = pr.evaluate(GAIN, LINEAR, belief, risk=pr.CVaR(0.5), occupancy=pr.Truncated(HORIZON)).risk
    assert abs(risks.mean() - exact) < 4 * risks.std(ddof=1) / np.sqrt(30)
    held = [one.interval[0] <= exact <= one.interval[1] for one in judged]
    assert sum(held) >= 24
    # Of a belief that is drawn from, both are there, and add up.
    one = pr.evaluate(GAIN, simulated(16), Jittered(), risk=pr.CVaR(0.5), samples=200)
    assert one.draw_standard_error > 0 and one.particle_standard_error > 0
    assert one.risk_standard_error == pytest.approx(np.hypot(one.draw_standard_error, one.particle_standard_error))
    assert "by particles" in str(one) and "by posterior draws" in str(one)


class Jittered(pr.Posterior):
    def draw(self, generator, n):
        return THETAS[generator.integers(3, size=n)] + 0.1 * generator.normal(size=(n, 1, 1))


def test_judged_losses_are_of_other_particles_and_the_jackknife_leaves_one_batch_out():
    objective = simulated().objective(loss=lambda occupancy, model: occupancy.cost**2).holding(GAIN)
    point = objective.point_from(GAIN)
    with jax.enable_x64(True):
        losses, without = replicates_on(objective, point, THETAS)
        fitted = losses_on(objective, point[None], THETAS)[0]
    assert without.shape == (8, 3) and not np.allclose(losses, fitted)
    # Roots are means of costs, and those without a batch are the whole's on average.
    np.testing.assert_allclose(np.sqrt(without).mean(axis=0), np.sqrt(losses), rtol=1e-12)


def test_a_solution_falls_has_no_bound_and_says_why():
    belief = pr.Draws(THETAS)
    solution = pr.solve(simulated(16), belief, risk=pr.CVaR(0.5), solver=pr.SampleAverage(starts=2, iterations=40))
    exact = pr.solve(
        LINEAR, belief, risk=pr.CVaR(0.5), policy=pr.LinearGain(bias=True), occupancy=pr.Truncated(HORIZON)
    )
    assert abs(solution.risk - exact.risk) < 4 * solution.risk_standard_error
    assert solution.certificate.lower_bound is None and "only be simulated" in solution.certificate.reason
    again = pr.solve(simulated(16), belief, risk=pr.CVaR(0.5), solver=pr.SampleAverage(starts=2, iterations=40))
    assert np.array_equal(again.policy.gain, solution.policy.gain)


LOG = simulated().simulate(THETAS[0], pr.LinearGaussianPolicy([[0.0, 0.0]], covariance=[[1.0]]), rollouts=4, seed=1)


def test_the_density_through_noise_is_the_gaussian_one():
    with jax.enable_x64(True):
        ours = float(simulated().log_likelihood(jnp.asarray(THETAS[1]), LOG))
        theirs = float(LINEAR.log_likelihood(jnp.asarray(THETAS[1]), LOG))
    assert ours == pytest.approx(theirs, rel=1e-10)
    # One noise that moves two states: the density along the line that it reaches.
    along = pr.SimulatedFamily(
        lambda theta, s, a, w: jnp.stack([s[0] + 0.1 * (theta[0] * s[1] + w[0]), theta[0] * s[1] + w[0]]),
        lambda theta, s, a: s[0] ** 2,
        lambda noise: jnp.zeros(2),
        discount=0.9,
        horizon=3,
        actions=1,
        noise=1,
    )
    log = pr.VectorLog([[1.0, 2.0]], [[0.0]], [[1.0 + 0.1 * 1.5, 1.5]])
    with jax.enable_x64(True):
        value = float(along.log_likelihood(jnp.asarray([0.5]), log))
        off = float(along.log_likelihood(jnp.asarray([0.5]), pr.VectorLog([[1.0, 2.0]], [[0.0]], [[1.0, 1.5]])))
    assert value == pytest.approx(-0.5 * 0.5**2 - 0.5 * np.log(2 * np.pi) - 0.5 * np.log(1.01))
    assert off == -np.inf


SCALAR = pr.LinearFamily([[1.0]], [[1.0]], noise=[[0.5]], discount=0.9)
SCALAR_LOG = SCALAR.simulate([[0.8, 0.6]], pr.LinearGaussianPolicy([[0.0]], covariance=[[1.0]]), steps=25, seed=2)
DEVIATION = 2.0 * np.sqrt(0.5)
WALKS = pr.SimulatedFamily(
    lambda theta, s, a, w: theta[0] * s + theta[1] * a + np.sqrt(0.5) * w,
    lambda theta, s, a: s[0] ** 2,
    lambda noise: noise,
    discount=0.9,
    horizon=5,
    actions=1,
    noise=1,
    start_noise=1,
)


def same_as_conjugate(found):
    draws = SCALAR.prior(spread=2.0).update(SCALAR_LOG).sample(0, 100_000)[:, 0]
    np.testing.assert_allclose(found.mean(axis=0), draws.mean(axis=0), atol=0.02)
    np.testing.assert_allclose(found.std(axis=0), draws.std(axis=0), rtol=0.08)


def test_a_grid_has_the_conjugate_posterior_whatever_the_order_of_its_logs():
    log = SCALAR_LOG
    belief = pr.Grid(WALKS, [-2.0, -2.0], [3.0, 3.0], log, lambda theta: -0.5 * (theta**2).sum() / DEVIATION**2)
    same_as_conjugate(belief.sample(0, 20_000))
    half = pr.VectorLog(log.state[:10], log.action[:10], log.next_state[:10])
    rest = pr.VectorLog(log.state[10:], log.action[10:], log.next_state[10:])
    again = pr.Grid(WALKS, [-2.0, -2.0], [3.0, 3.0], half).update(rest)
    assert np.allclose(again.mean(), pr.Grid(WALKS, [-2.0, -2.0], [3.0, 3.0], log).mean())


@pytest.mark.long
def test_mcmc_through_the_noise_has_the_conjugate_posterior():
    import numpyro.distributions as dist

    belief = pr.MCMC.run(WALKS, SCALAR_LOG, dist.Normal(0.0, DEVIATION).expand([2]), warmup=300, samples=500)
    assert belief.status.ok
    same_as_conjugate(belief.draws)


@pytest.mark.long
def test_mcmc_of_a_linear_family_has_the_conjugate_posterior_and_solves():
    import numpyro.distributions as dist

    prior = dist.Normal(0.0, DEVIATION).expand([1, 2])
    belief = pr.MCMC.run(SCALAR, SCALAR_LOG, prior, warmup=300, samples=4000)
    same_as_conjugate(belief.draws[:, 0])
    ours = pr.solve(SCALAR, pr.CutOff(belief, low=-2.0, high=2.0, actions=1), solver=pr.SampleAverage(starts=2))
    exact = pr.CutOff(SCALAR.prior(spread=2.0).update(SCALAR_LOG), low=-2.0, high=2.0)
    theirs = pr.solve(SCALAR, exact, solver=pr.SampleAverage(starts=2))
    assert abs(ours.policy.gain - theirs.policy.gain).max() < 0.05


class Pulled:
    """The walk `s' = pull s + a` in plain Python, ended beyond 5."""

    def __init__(self, pull):
        self.pull = pull

    def reset(self, seed):
        self.at = np.random.default_rng(seed).normal(size=1)
        return self.at, {}

    def step(self, action):
        reward = -float(self.at[0] ** 2)
        self.at = self.pull * self.at + action
        return self.at, reward, bool(abs(self.at[0]) > 5.0), False, {}


def environments(**changes):
    parts = {"discount": 0.9, "horizon": 6, "seen": 1, "actions": 1, "particles": 4}
    return pr.EnvironmentFamily(lambda theta: Pulled(theta[0]), **(parts | changes))


def test_a_simulator_in_plain_python_is_walked_and_improved_by_values():
    family, belief = environments(), pr.Draws([[0.9], [1.2]])
    objective = family.objective()
    judged = pr.evaluate(pr.LinearGaussianPolicy([[-0.2]]), family, belief)
    seeds = np.asarray(objective.judged.seeds)
    for theta, loss in zip((0.9, 1.2), judged.losses, strict=True):
        total = 0.0
        for seed in seeds:
            world = Pulled(theta)
            state, _ = world.reset(int(seed))
            for t in range(7):
                state, reward, over, _, _ = world.step(-0.2 * state)
                total -= 0.9**t * reward
                if over:
                    break
        assert loss == pytest.approx(total / len(seeds), rel=1e-12)
    by_values = pr.ZerothOrder(directions=4, radius=1e-3)
    solution = pr.solve(family, belief, gradient=by_values, solver=pr.BRPG(samples=2, iterations=15, step=0.01))
    assert solution.risk < pr.evaluate(pr.LinearGaussianPolicy([[0.0]]), family, belief).risk
    squares = pr.evaluate([[-0.2]], family, belief, loss=lambda occupancy, _: occupancy.expect(lambda s, a: s[0] ** 2))
    np.testing.assert_allclose(squares.losses, judged.losses, rtol=1e-12)


def test_any_function_of_what_is_seen_can_be_judged():
    family, belief = simulated(16), pr.Draws(THETAS)
    plain = pr.evaluate(lambda seen: jnp.asarray([-0.3 * seen[0] - 0.4 * seen[1] + 0.1]), family, belief)
    np.testing.assert_allclose(plain.losses, pr.evaluate(GAIN, family, belief).losses, rtol=1e-12)
    network = pr.Network(width=3, bounds=(-1.0, 2.0))
    policy = pr.NetworkPolicy(network, network.initial(2, 1), seen=2, actions=1)
    assert policy.mean([5.0, -3.0]).tolist() == [0.5]
    wild = pr.NetworkPolicy(network, 100.0 * network.initial(2, 1, np.random.default_rng(0)), seen=2, actions=1)
    assert np.all(np.abs(wild.mean(np.random.default_rng(1).normal(size=(50, 2))) - 0.5) <= 1.5)
    values = pr.loss_at([policy, GAIN], family, THETAS[0])
    assert values[1] == pytest.approx(pr.evaluate(GAIN, family, pr.Point(THETAS[0])).risk)


REFUSED = [
    (lambda: simulated(step=3), "step must be a function"),
    (lambda: simulated(start=lambda noise: jnp.zeros((2, 2))), "start must return a state, a vector"),
    (lambda: pr.loss_at(GAIN, simulated(step=lambda theta, s, a, w: s[:1]), THETAS[0]), "as start does"),
    (lambda: pr.loss_at(GAIN, simulated(cost=lambda theta, s, a: s), THETAS[0]), "cost must return one real number"),
    (
        lambda: pr.loss_at(GAIN, simulated(step=lambda theta, s, a, w: s if s[0] > 0 else -s), THETAS[0]),
        "traced by JAX",
    ),
    (lambda: pr.loss_at(GAIN, simulated(), THETAS[0], loss=lambda occupancy, model: occupancy.second), "could not be"),
    (lambda: pr.loss_at([[[0.1]]], simulated(), THETAS[0]), "the gain has shape"),
    (lambda: pr.solve(simulated(), pr.Draws(THETAS), occupancy=pr.Exact()), "walks have a horizon"),
    (lambda: pr.solve(simulated(), pr.Draws(THETAS), policy=pr.Softmax()), "LinearGain"),
    (lambda: pr.solve(environments(), pr.Draws([[0.9]])), "has no derivatives"),
    (lambda: pr.evaluate([[0.0]], environments(seen=2), pr.Draws([[0.9]])), "gain has shape"),
    (lambda: pr.evaluate([[0.0, 0.0]], environments(seen=2), pr.Draws([[0.9]])), "has 1 numbers, seen= says 2"),
    (lambda: pr.Network(bounds=(1.0, 1.0)), "low below high"),
    (lambda: pr.Network(bounds=3.0), "bounds are"),
    (lambda: pr.Network(width=0), "width"),
    (lambda: simulated(action_noise=[[-1.0]]), "covariance"),
    (lambda: simulated().simulate(THETAS[0], GAIN, steps=50), "at most 13 steps"),
    (lambda: pr.Grid(simulated(noise=0), [0.0], [1.0], LOG), "without noise"),
    (lambda: pr.Grid(simulated(step=lambda theta, s, a, w: s + theta[0] * jnp.exp(w)), [0.0], [1.0], LOG), "linearly"),
    (lambda: pr.Grid(simulated(), [0.0], [1.0], pr.VectorLog([[1.0]], [[1.0]], [[1.0]])), "the log has 1 states"),
]


@pytest.mark.parametrize(("wrong", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_refusals_say_what_was_wrong(wrong, said):
    with pytest.raises(pr.InputError, match=said):
        wrong()
