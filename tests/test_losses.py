"""Losses: values against formulas of other libraries, conjugates, the dual ascent, and the check for any loss."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon
from scipy.special import rel_entr, xlogy

import prudent as pr

from .problems import random_mdp, random_policy

RANDOM = np.random.default_rng(20)
MDP = random_mdp(RANDOM, 6)
POLICY = random_policy(RANDOM, 6, 3)
VISITS = pr.occupancy(MDP, POLICY)
PAIRS = 0.1 * VISITS
STATES = PAIRS.sum(axis=1)
Q_STATES = RANDOM.dirichlet(np.ones(6))
Q_PAIRS = RANDOM.dirichlet(np.ones(18)).reshape(6, 3)
SCENARIOS = RANDOM.uniform(size=(5, 6, 3))
WEIGHTS = RANDOM.dirichlet(np.ones(5))

DIVERGENCES = [
    pr.KullbackLeibler(),
    pr.ReverseKullbackLeibler(),
    pr.ChiSquare(),
    pr.TotalVariation(),
    pr.JensenShannon(),
    pr.Hellinger(),
]
NAMES = [type(divergence).__name__ for divergence in DIVERGENCES]
per_divergence = pytest.mark.parametrize("divergence", DIVERGENCES, ids=NAMES)


# ---------------------------------------------------------------- conjugates


@per_divergence
def test_conjugate_is_the_supremum_and_its_own_conjugate_the_generator(divergence):
    with jax.enable_x64(True):
        ratios = jnp.asarray([1e-3, 0.1, 0.7, 1.0, 1.3, 4.0, 50.0])
        slopes = jax.vmap(jax.grad(divergence.generator))(ratios)
        generator, conjugate = divergence.generator(ratios), divergence.conjugate(slopes)
        # Fenchel-Young, with equality at the slope.
        np.testing.assert_allclose(generator + conjugate, ratios * slopes, rtol=1e-9, atol=1e-12)
        gaps = generator[:, None] + conjugate[None, :] - ratios[:, None] * slopes[None, :]
        assert gaps.min() > -1e-12
        assert divergence.start() == pytest.approx(float(jax.grad(divergence.generator)(1.0)), abs=1e-12)
        np.testing.assert_allclose(divergence.generator(jnp.asarray(1.0)), 0.0, atol=1e-15)
        # The two suprema, over fine grids.
        grid = jnp.exp(jnp.linspace(-12.0, 8.0, 200_001))
        found = (slopes[:, None] * grid - divergence.generator(grid)).max(axis=1)
        np.testing.assert_allclose(found, conjugate, rtol=1e-6, atol=1e-9)
        lower, upper = (np.clip(end, -2000.0, 200.0) for end in divergence.domain())
        grid = lower + (upper - lower) * jnp.linspace(0.0, 1.0, 400_001)[1:-1]
        found = (ratios[:, None] * grid - divergence.conjugate(grid)).max(axis=1)
        np.testing.assert_allclose(found, generator, rtol=1e-4, atol=1e-3)
        assert np.all(found <= generator + 1e-9)


@per_divergence
def test_the_ascent_ends_at_the_slope_whatever_the_scale(divergence):
    ratios = 10.0 ** np.linspace(-8, 6, 29)
    equal = np.ones_like(ratios)

    def step(z, _):
        gain = z * ratios - divergence.conjugate(z)
        return divergence.ascend(z, ratios, equal), gain

    @jax.jit
    def run():
        z, gains = jax.lax.scan(step, jnp.full(ratios.shape, divergence.start()), None, length=50)
        return z, gains, jax.grad(lambda ratio: divergence.between(ratio, equal))(jnp.asarray(ratios))

    with jax.enable_x64(True):
        z, gains, slopes = (np.asarray(part) for part in run())
    np.testing.assert_allclose(z, slopes, rtol=1e-10, atol=1e-13)
    above = ratios >= divergence.lowest()  # below, the gain is that of the tangent
    assert np.all(np.diff(gains, axis=0)[:, above] >= -1e-12 * (1 + np.abs(gains[1:, above])))


@per_divergence
def test_below_the_floor_the_generator_is_convex_and_has_a_slope(divergence):
    lowest = max(divergence.lowest(), 1e-3)
    ratios = np.concatenate([[0.0], np.linspace(0.5, 2.0, 31) * lowest])

    with jax.enable_x64(True):
        slope = jax.jit(jax.vmap(jax.grad(lambda x: divergence.between(x, 1.0))))
        slopes = np.asarray(slope(ratios))
        around = np.asarray(slope(lowest * np.array([1 - 1e-9, 1.0, 1 + 1e-9])))
    assert np.all(np.isfinite(slopes)) and np.all(np.diff(slopes) >= 0)
    np.testing.assert_allclose(around, around[1], rtol=1e-6)


# ---------------------------------------------------------------- values


def total_variation(p, q, smoothing):
    return (q * (np.sqrt((p / q - 1) ** 2 + smoothing**2) - smoothing) / 2).sum()


@pytest.mark.parametrize(
    ("divergence", "formula"),
    list(
        zip(
            DIVERGENCES,
            [
                lambda p, q: rel_entr(p, q).sum(),
                lambda p, q: rel_entr(q, p).sum(),
                lambda p, q: (p**2 / q).sum() - 1,
                lambda p, q: total_variation(p, q, 1e-3),
                lambda p, q: jensenshannon(p.ravel(), q.ravel()) ** 2,
                lambda p, q: 1 - np.sqrt(p * q).sum(),
            ],
            strict=True,
        )
    ),
    ids=NAMES,
)
def test_imitation_is_the_divergence_by_the_textbook(divergence, formula):
    for p, q in ((STATES, Q_STATES), (PAIRS, Q_PAIRS)):
        assert pr.Imitation(q, divergence, floor=0)(VISITS, MDP) == pytest.approx(formula(p, q), rel=1e-10)


def test_total_variation_is_half_the_absolute_difference():
    value = pr.TotalVariation().between(STATES, Q_STATES)
    exact = np.abs(STATES - Q_STATES).sum() / 2
    assert exact - 0.5e-3 <= value <= exact


def test_the_default_is_the_loss_of_the_paper():
    paper = sum(0.1 * VISITS[s, a] * np.log(0.1 * VISITS[s].sum() / Q_STATES[s]) for s in range(6) for a in range(3))
    assert pr.Imitation(Q_STATES)(VISITS, MDP) == pytest.approx(paper, rel=1e-12)


def test_entropy_distance_and_constrained_cost_by_formula():
    assert pr.NegativeEntropy()(VISITS, MDP) == pytest.approx(xlogy(PAIRS, PAIRS).sum(), rel=1e-12)
    assert pr.NegativeEntropy(over_states=True)(VISITS, MDP) == pytest.approx(xlogy(STATES, STATES).sum(), rel=1e-12)
    assert pr.QuadraticDistance(Q_PAIRS, 3.0)(VISITS, MDP) == pytest.approx(1.5 * ((PAIRS - Q_PAIRS) ** 2).sum())
    assert pr.QuadraticDistance(Q_STATES)(VISITS, MDP) == pytest.approx(0.5 * ((STATES - Q_STATES) ** 2).sum())
    totals = (SCENARIOS * VISITS).sum(axis=(1, 2))
    cost = (VISITS * MDP.cost).sum()
    for risk, penalty in (
        (pr.Expectation(), WEIGHTS @ totals),
        (pr.WorstCase(), totals.max()),
        (pr.CVaR(0.7), np.min([v + np.maximum(totals - v, 0) @ WEIGHTS / 0.3 for v in totals])),
    ):
        loss = pr.ConstrainedCost(SCENARIOS, 2.0, 4.5, risk, WEIGHTS)
        assert loss(VISITS, MDP) == pytest.approx(cost + 2.0 * (penalty - 4.5), rel=1e-12)
    equal = pr.ConstrainedCost(SCENARIOS, 1.0, 0.0, pr.Expectation())
    assert equal(VISITS, MDP) == pytest.approx(cost + totals.mean())


def test_targets_below_the_floor_are_lifted_and_the_target_is_divided_by_its_sum():
    target = np.array([0.5, 0.0, 0.25, 1e-9, 0.25 - 1e-9, 0.0])
    lifted = np.array([0.5, 1e-4, 0.25, 1e-4, 0.25 - 1e-9, 1e-4])
    loss = pr.Imitation(target, floor=1e-4)
    np.testing.assert_allclose(loss.target, lifted / lifted.sum(), rtol=1e-12)
    assert loss(VISITS, MDP) == pytest.approx(rel_entr(STATES, lifted / lifted.sum()).sum())
    np.testing.assert_array_equal(pr.Imitation(Q_STATES, floor=0).target, Q_STATES / Q_STATES.sum())
    assert pr.Imitation(target).target.min() == pytest.approx(1e-6, rel=1e-5)


def test_a_policy_that_never_visits_a_state_has_a_finite_loss_and_gradient():
    visits = np.array(VISITS)
    visits[2], visits[4, 1] = 0.0, 0.0
    loss = sum(pr.Imitation(target, divergence) for target in (Q_STATES, Q_PAIRS) for divergence in DIVERGENCES)
    with jax.enable_x64(True):
        value, slope = jax.jit(jax.value_and_grad(loss))(visits, MDP)
    assert np.isfinite(value) and np.all(np.isfinite(slope))


# ---------------------------------------------------------------- sums and multiples


def test_sums_and_multiples_are_those_of_the_values():
    entropy, distance = pr.NegativeEntropy(), pr.QuadraticDistance(Q_STATES)

    def largest(occupancy, mdp):
        return (occupancy * mdp.cost).max()

    cost, e, d, m = (float(loss(VISITS, MDP)) for loss in (pr.ExpectedCost(), entropy, distance, largest))
    for loss, value in (
        (0.5 * pr.ExpectedCost() + 2.0 * entropy, 0.5 * cost + 2 * e),
        (np.float64(0.5) * distance * 3, 1.5 * d),
        (sum([entropy, distance, pr.ExpectedCost()]), e + d + cost),
        (largest + entropy, m + e),
        (entropy + largest + (distance + largest), e + d + 2 * m),
        (0 * entropy + distance, d),
        (2 * (3 * distance + entropy), 6 * d + 2 * e),
    ):
        assert isinstance(loss, pr.ConvexLoss)
        assert float(loss(VISITS, MDP)) == pytest.approx(value, rel=1e-12)
    assert entropy + 0 is entropy
    assert len((entropy + distance + entropy).terms) == 3


# ---------------------------------------------------------------- every loss through the public check


def kullback(occupancy, mdp):
    states = (1 - mdp.discount) * occupancy.sum(axis=1)
    return (states * jnp.log(states / Q_STATES)).sum()


def kinked(occupancy, mdp):
    return jnp.abs((occupancy * mdp.cost).sum() - 4.0) + jnp.abs(occupancy - 0.3).sum() + occupancy.sum(axis=1).max()


CLOSED = {
    "expected cost": pr.ExpectedCost(),
    "entropy": pr.NegativeEntropy(),
    "entropy of states": pr.NegativeEntropy(over_states=True),
    "distance": pr.QuadraticDistance(Q_PAIRS, weight=3.0),
    "distance of states": pr.QuadraticDistance(Q_STATES),
    "constrained": pr.ConstrainedCost(SCENARIOS, 2.0, 1.0, pr.CVaR(0.6), WEIGHTS),
    "weighted sum": 0.5 * pr.ExpectedCost() + 2.0 * pr.NegativeEntropy() + 0.0 * pr.QuadraticDistance(Q_STATES),
    "imitation of states": pr.Imitation(Q_STATES),
    "imitation of pairs": pr.Imitation(Q_PAIRS, pr.ReverseKullbackLeibler()),
    "all divergences": sum(pr.Imitation(Q_STATES, divergence) for divergence in DIVERGENCES[1:]),
}

NUMERICAL = {
    "logarithms": pr.ExpectedCost() + 0.5 * (pr.NegativeEntropy() + kullback),
    "kinks": pr.Numerical(kinked),
}


@pytest.mark.parametrize("name", CLOSED)
def test_a_loss_conforms_and_its_ascent_ends_at_the_gradient(name):
    findings = {finding.law: finding.worst for finding in pr.check_loss(CLOSED[name], MDP).findings}
    assert findings["dual ascent ends at the gradient"] < 1e-10
    assert findings["convex on segments"] < 1e-14


@pytest.mark.parametrize("name", NUMERICAL)
def test_a_function_conforms_and_its_numerical_ascent_ends_at_the_gradient(name):
    findings = {finding.law: finding.worst for finding in pr.check_loss(NUMERICAL[name], MDP, samples=4).findings}
    assert findings["dual ascent ends at the gradient"] < 1e-8


def test_the_numerical_ascent_gets_along_with_zeros():
    """The occupancy of a deterministic policy, under a loss whose slope is finite there."""
    visits = pr.occupancy(MDP, np.eye(3)[[0, 1, 2, 0, 1, 2]])
    assert (visits == 0).sum() == 12
    loss = pr.Numerical(
        lambda occupancy, mdp: ((occupancy.sum(axis=1) - 1) ** 2).sum() + (occupancy**2).sum() + occupancy.max()
    )
    with jax.enable_x64(True):
        step = jax.jit(lambda dual: loss.ascend(dual, jnp.asarray(visits), MDP))
        dual = loss.begin(MDP)
        for _ in range(50):
            dual = step(dual)
        np.testing.assert_allclose(loss.cost_of(dual, MDP), jax.grad(loss)(visits, MDP), rtol=1e-5, atol=1e-7)


def test_the_ascent_runs_on_a_batch_of_models():
    loss = (lambda occupancy, mdp: (occupancy * mdp.cost).sum()) + 0.3 * pr.Imitation(Q_STATES, pr.JensenShannon())
    costs = RANDOM.uniform(size=(4, 6, 3))
    visits = np.stack([pr.occupancy(MDP, random_policy(RANDOM, 6, 3)) for _ in range(4)])

    def slope(cost, visits):
        mdp = dataclasses.replace(MDP, cost=cost)
        image, dual = loss.image(visits, mdp), loss.begin(mdp)
        dual = jax.lax.fori_loop(0, 30, lambda _, dual: loss.ascend(dual, image, mdp), dual)
        return loss.cost_of(dual, mdp), jax.grad(loss)(visits, mdp)

    with jax.enable_x64(True):
        reached, gradients = jax.jit(jax.vmap(slope))(costs, visits)
    np.testing.assert_allclose(reached, gradients, rtol=1e-8)


def test_the_report_of_a_check_reads_well():
    report = pr.check_loss(lambda occupancy, mdp: (occupancy**2).sum(), MDP, samples=2)
    first, *laws = str(report).splitlines()
    assert first.endswith("conforms:")
    assert [law.split("  ")[1] for law in laws] == ["convex on segments", "gradient between differences"]
    assert all(finding.worst <= finding.tolerance for finding in report.findings)
