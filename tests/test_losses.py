"""Losses: values against formulas of other libraries, conjugates, the dual ascent, and the check for any loss."""

import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon
from scipy.special import rel_entr, xlogy

import prudent as pr
from prudent.engine import ModelBatch, table_rows
from prudent.losses import batch_of

from .catalogue import losses
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
    ratios = np.array([1e-3, 0.1, 0.7, 1.0, 1.3, 4.0, 50.0])
    slopes = np.asarray(divergence.slope(ratios))
    differences = (
        (divergence.generator(ratios * (1 + 1e-6)) - divergence.generator(ratios * (1 - 1e-6))) / ratios / 2e-6
    )
    np.testing.assert_allclose(slopes, differences, rtol=1e-4, atol=1e-4)
    generator, conjugate = divergence.generator(ratios), divergence.conjugate(slopes)
    # Fenchel-Young, with equality at the slope.
    np.testing.assert_allclose(generator + conjugate.value, ratios * slopes, rtol=1e-9, atol=1e-12)
    gaps = generator[:, None] + conjugate.value[None, :] - ratios[:, None] * slopes[None, :]
    assert gaps.min() > -1e-12
    assert divergence.start() == pytest.approx(float(divergence.slope(np.ones(()))), abs=1e-12)
    np.testing.assert_allclose(divergence.generator(np.ones(())), 0.0, atol=1e-15)
    # The slope of the conjugate undoes the generator's, and its curvature is the slope's slope.
    np.testing.assert_allclose(conjugate.slope, ratios, rtol=1e-6)
    lower, upper = divergence.domain()
    step = 1e-3 * np.minimum(np.minimum(slopes - lower, upper - slopes), 1.0)
    ahead, behind = divergence.conjugate(slopes + step), divergence.conjugate(slopes - step)
    np.testing.assert_allclose(conjugate.curvature, (ahead.slope - behind.slope) / (2 * step), rtol=1e-3)
    # The two suprema, over fine grids.
    grid = np.exp(np.linspace(-12.0, 8.0, 200_001))
    found = (slopes[:, None] * grid - divergence.generator(grid)).max(axis=1)
    np.testing.assert_allclose(found, conjugate.value, rtol=1e-6, atol=1e-9)
    lower, upper = (np.clip(end, -2000.0, 200.0) for end in divergence.domain())
    grid = lower + (upper - lower) * np.linspace(0.0, 1.0, 400_001)[1:-1]
    found = (ratios[:, None] * grid - divergence.conjugate(grid).value).max(axis=1)
    np.testing.assert_allclose(found, generator, rtol=1e-4, atol=1e-3)
    assert np.all(found <= generator + 1e-9)


@per_divergence
def test_the_ascent_ends_at_the_slope_whatever_the_scale(divergence):
    ratios = 10.0 ** np.linspace(-8, 6, 29)
    z, gains = np.full(ratios.shape, float(divergence.start())), []
    for _ in range(50):
        gains.append(z * ratios - divergence.conjugate(z).value)
        z = divergence.ascend(z, ratios, np.ones_like(ratios))
    slopes = divergence.values_and_slopes(ratios)[1]
    np.testing.assert_allclose(z, slopes, rtol=1e-10, atol=1e-13)
    above = ratios >= divergence.lowest()  # below, the gain is that of the tangent
    assert np.all(np.diff(gains, axis=0)[:, above] >= -1e-12 * (1 + np.abs(gains[1:]))[:, above])


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
    import prudent.autodiff  # makes trees of records for JAX

    assert prudent.autodiff.jax is jax
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


CLOSED = losses(Q_PAIRS, SCENARIOS) | {
    "entropy of states": pr.NegativeEntropy(over_states=True),
    "distance of states": pr.QuadraticDistance(Q_STATES),
    "unequal scenarios": pr.ConstrainedCost(SCENARIOS, 2.0, 1.0, pr.CVaR(0.6), WEIGHTS),
    "weighted sum": 0.5 * pr.ExpectedCost() + 2.0 * pr.NegativeEntropy() + 0.0 * pr.QuadraticDistance(Q_STATES),
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
    last, models = visits[:, :, None], batch_of(MDP)
    dual = loss.begin(models)
    for _ in range(50):
        dual = loss.ascend(dual, last, models)
    slopes = loss.value_and_gradient(last, models)[1]
    np.testing.assert_allclose(loss.cost_of(dual.point, models), slopes, rtol=1e-5, atol=1e-7)


def test_the_ascent_runs_on_a_batch_of_models():
    loss = (lambda occupancy, mdp: (occupancy * mdp.cost).sum()) + 0.3 * pr.Imitation(Q_STATES, pr.JensenShannon())
    models = batch_of(MDP).select(np.zeros(4, int))._replace(cost=RANDOM.uniform(size=(6, 3, 4)))
    visits = np.stack([pr.occupancy(MDP, random_policy(RANDOM, 6, 3)) for _ in range(4)], axis=-1)
    image, dual = loss.image(visits, models), loss.begin(models)
    for _ in range(30):
        dual = loss.ascend(dual, image, models)
    slopes = loss.value_and_gradient(visits, models)[1]
    np.testing.assert_allclose(loss.cost_of(dual.point, models), slopes, rtol=1e-8)


def test_the_report_of_a_check_reads_well():
    report = pr.check_loss(lambda occupancy, mdp: (occupancy**2).sum(), MDP, samples=2)
    first, *laws = str(report).splitlines()
    assert first.endswith("conforms:")
    assert [law.split("  ")[1] for law in laws] == ["convex on segments", "gradient between differences"]
    assert all(finding.worst <= finding.tolerance for finding in report.findings)


# ---------------------------------------------------------------- values and derivatives of batches of models


class Arrivals(pr.LinearLoss):
    """Arrivals in the second of the successors: a user's table that depends on the model."""

    per: float = 7.0

    def table(self, mdp):
        return mdp.kernel.probability[..., 1]


class Squares(pr.ConvexLoss):
    """A user's loss with no derivative of its own."""

    def __call__(self, occupancy, mdp):
        return ((occupancy - mdp.cost) ** 2).sum()

    def image(self, occupancy, models):
        return occupancy

    def begin(self, models):
        return pr.Dual(np.zeros((*models.cost.shape[:2], models.size)), None)

    def ascend(self, dual, image, models):
        return pr.Dual(2.0 * (image - models.cost), None)

    def cost_of(self, point, models):
        return point


def softened(occupancy, mdp):
    """Smooth, and dependent on cost, probabilities, start and discount of the model."""
    xp = occupancy.__array_namespace__()
    onward = (mdp.kernel.probability**2).sum(axis=2) + mdp.start[:, None]
    return (1 - mdp.discount) * xp.log(xp.exp(occupancy - mdp.cost * onward).sum())


def softened_slope(occupancy, mdp):
    weights = np.exp(occupancy - mdp.cost * ((mdp.kernel.probability**2).sum(axis=2) + mdp.start[:, None]))
    return (1 - mdp.discount) * weights / weights.sum()


BATCHED = CLOSED | {
    "worst scenario": pr.ScenarioCost(SCENARIOS, pr.WorstCase()),
    "entropic scenarios": pr.ScenarioCost(SCENARIOS, pr.EntropicVaR(0.6), WEIGHTS),
    "cost table": pr.CostTable(Q_PAIRS, per=52),
    "visits": pr.Visits([1, 4], actions=[0, 2]),
    "own linear loss": Arrivals(),
    "own convex loss": Squares(),
    "function": pr.UserLoss(softened),
    "function with its derivative": pr.UserLoss(softened, gradient=softened_slope),
    "convex function": pr.as_convex(softened),
    "convex function with its derivative": pr.as_convex(softened, gradient=softened_slope),
    "sum with functions": 2.0 * Arrivals() + 0.5 * pr.NegativeEntropy() + 3.0 * pr.as_convex(softened) + Squares(),
    "linear sum": 2.0 * Arrivals() + pr.ExpectedCost(),
}
LINEAR = {"expected cost", "cost table", "visits", "own linear loss", "linear sum"}


def batch(count, support, costs):
    """Models whose kernels, and costs if there are as many, differ; and an occupancy of each."""
    kernels = RANDOM.dirichlet(np.ones(4), size=(count, 6, 3))
    cost = RANDOM.uniform(size=(costs, 6, 3))
    start = RANDOM.dirichlet(np.ones(6))
    mdps = [pr.MDP(pr.Kernel(support, kernel), cost[min(n, costs - 1)], start, 0.8) for n, kernel in enumerate(kernels)]
    visits = np.stack([pr.occupancy(mdp, random_policy(RANDOM, 6, 3)) for mdp in mdps], axis=-1)
    models = ModelBatch(
        support.index(), table_rows(6, 3), np.moveaxis(kernels, 0, -1).reshape(18, 4, count), np.moveaxis(cost, 0, -1),
        start, 0.8,
    )  # fmt: skip
    return mdps, visits, models


SUPPORT = pr.Support.lists(np.argsort(RANDOM.random((6, 3, 6)), axis=2)[:, :, :4])
BATCHES = [batch(count, SUPPORT, costs) for count, costs in ((1, 1), (7, 7), (7, 1))]


@pytest.mark.parametrize("name", BATCHED)
def test_values_and_derivatives_of_a_batch_are_those_of_each_model_and_agree_with_differences(name):
    loss = BATCHED[name]
    for mdps, visits, models in BATCHES:
        values, slopes = loss.value_and_gradient(visits, models)
        assert values.shape == (len(mdps),) and slopes.shape == visits.shape
        each = [float(loss(visits[..., n], mdp)) for n, mdp in enumerate(mdps)]
        np.testing.assert_allclose(values, each, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(loss.value(visits, models), each, rtol=1e-12, atol=1e-12)
        move = RANDOM.uniform(-1.0, 1.0, size=visits.shape) * visits
        ahead, behind = (loss.value(visits + step * move, models) for step in (1e-5, -1e-5))
        np.testing.assert_allclose((slopes * move).sum(axis=(0, 1)), (ahead - behind) / 2e-5, rtol=2e-6, atol=1e-8)


@pytest.mark.parametrize("name", BATCHED)
def test_a_linear_loss_is_the_expected_cost_of_its_tables(name):
    loss = BATCHED[name]
    _, visits, models = BATCHES[1]
    assert getattr(loss, "is_linear", False) is (name in LINEAR)
    if name in LINEAR:
        tables = loss.cost_tables(models)
        np.testing.assert_allclose((tables * visits).sum(axis=(0, 1)), loss.value(visits, models), rtol=1e-12)
    elif isinstance(loss, pr.ConvexLoss):
        with pytest.raises(pr.InputError, match="no cost table"):
            loss.cost_tables(models)


@pytest.mark.parametrize("name", BATCHED)
def test_a_loss_is_the_same_inside_a_compiled_function(name):
    mdps, visits, _ = BATCHES[0]
    plain = BATCHED[name](visits[..., 0], mdps[0])
    with jax.enable_x64(True):
        compiled = jax.jit(lambda *given: BATCHED[name](*given))(visits[..., 0], mdps[0])
    assert isinstance(plain, np.ndarray | np.floating | float)
    assert float(compiled) == pytest.approx(float(plain), rel=1e-12)


def test_models_that_share_distributions_give_a_function_their_tables():
    """Three pairs follow one of two distributions each, as in event families."""
    row = np.array([[0], [1], [0]], dtype=np.int32)
    probability = RANDOM.dirichlet(np.ones(3), size=(2, 5)).transpose(0, 2, 1)
    successor = np.broadcast_to(np.arange(3, dtype=np.int32), (3, 1, 3))
    models = ModelBatch(successor, row, probability, np.ones((3, 1, 1)), np.full(3, 1 / 3), 0.5)
    visits = RANDOM.uniform(size=(3, 1, 5))
    for loss in (pr.UserLoss(softened), pr.UserLoss(softened, gradient=softened_slope)):
        for n in range(5):
            mdp = pr.MDP(pr.Kernel.dense(probability[row][..., n]), np.ones((3, 1)), np.full(3, 1 / 3), 0.5)
            assert loss.value(visits, models)[n] == pytest.approx(float(loss(visits[..., n], mdp)), rel=1e-12)


@pytest.mark.parametrize("count", [1, 2, 3, 8, 30, 1000, 1100])
def test_any_number_of_models_is_split_into_blocks(count):
    visits = RANDOM.uniform(size=(2, 1, count))
    cost = RANDOM.uniform(size=(2, 1, count))
    models = ModelBatch(
        np.zeros((2, 1, 1), np.int32), table_rows(2, 1), np.ones((2, 1, count)), cost, np.array([1.0, 0.0]), 0.5
    )
    values, slopes = pr.UserLoss(lambda occupancy, mdp: (mdp.cost * occupancy**2).sum()).value_and_gradient(
        visits, models
    )
    np.testing.assert_allclose(values, (cost * visits**2).sum(axis=(0, 1)), rtol=1e-12)
    np.testing.assert_allclose(slopes, 2.0 * cost * visits, rtol=1e-12)


WITHOUT_JAX = """
import sys, numpy as np, prudent as pr
from prudent.losses import batch_of
mdp = pr.MDP(pr.Kernel.dense(np.full((2, 2, 2), 0.5)), cost=np.ones((2, 2)), start=0, discount=0.9)
occupancy = np.full((2, 2), 2.5)
own = pr.as_convex(lambda x, mdp: np.square(x).sum(), gradient=lambda x, mdp: 2.0 * x)
scenarios = np.stack([mdp.cost, 2.0 * mdp.cost])
for loss in (
    pr.Imitation([0.5, 0.5]) + 2.0 * pr.NegativeEntropy() + pr.Visits([0]) + own,
    pr.QuadraticDistance([0.5, 0.5]), pr.ConstrainedCost(scenarios, 1.0, 1.0, pr.CVaR(0.5)),
):
    values, slopes = loss.value_and_gradient(occupancy[:, :, None], batch_of(mdp))
    assert np.isfinite(values).all() and np.isfinite(slopes).all() and values[0] == loss(occupancy, mdp)
print("jax" in sys.modules)
"""


def test_losses_of_the_library_and_those_with_their_derivative_need_no_jax():
    found = subprocess.run([sys.executable, "-c", WITHOUT_JAX], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_a_function_without_a_gradient_names_the_extra_where_jax_is_missing():
    code = (
        "import sys; sys.modules['jax'] = None\n"
        "import numpy as np, prudent as pr; from prudent.losses import batch_of\n"
        "mdp = pr.MDP(pr.Kernel.dense([[[1.0]]]), [[1.0]], 0, 0.5)\n"
        "try: pr.UserLoss(lambda x, mdp: x.sum()).value(np.ones((1, 1, 1)), batch_of(mdp))\n"
        "except pr.InputError as error: print(error)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "prudent[jax]" in found.stdout and "gradient=" in found.stdout


# ---------------------------------------------------------------- what is refused, and what the check finds

SMALL = random_mdp(np.random.default_rng(3), 3, actions=2)
OCCUPANCY = pr.occupancy(SMALL, np.full((3, 2), 0.5))
THIRD = np.full(3, 1 / 3)
ONES = np.ones((2, 3, 2))
RISK = pr.CVaR(0.5)


def largest_entry(occupancy, mdp):
    return occupancy.max()


def called(loss):
    return lambda: loss(OCCUPANCY, SMALL)


CASES = {
    "target sums to 1/(1 - discount)": (lambda: pr.Imitation(OCCUPANCY), "sums to 10; multiply an occupancy by 1 - d"),
    "target negative": (lambda: pr.Imitation([[0.5, 0.75], [-0.25, 0.0]]), r"-0.25 at state 1, action 0"),
    "target not finite": (lambda: pr.Imitation([0.5, np.nan]), r"target has a non-finite entry: nan"),
    "target of three axes": (lambda: pr.Imitation(ONES / 12), r"\[state\] or \[state, action\], got shape \(2, 3, 2\)"),
    "target of words": (lambda: pr.Imitation(["a", "b"]), "target: expected an array of numbers"),
    "target zero at floor 0": (lambda: pr.Imitation([0.5, 0.0, 0.5], floor=0), "zero at state 1; give a floor"),
    "floor above uniform": (lambda: pr.Imitation(THIRD, floor=0.5), r"floor must be a number in \[0, 1/3\)"),
    "floor of words": (lambda: pr.Imitation(THIRD, floor="low"), "floor must be a number"),
    "divergence of words": (lambda: pr.Imitation(THIRD, "kl"), "must be a Divergence, such as KullbackLeibler"),
    "target of another model": (called(pr.Imitation([0.5, 0.5])), r"shape \(2,\), the model has 3 states and 2"),
    "distance of another model": (called(pr.QuadraticDistance(np.ones((2, 3)))), r"give \(3,\).* or \(3, 2\)"),
    "distance to infinity": (lambda: pr.QuadraticDistance([np.inf]), "non-finite entry: inf"),
    "distance to a number": (lambda: pr.QuadraticDistance(1.0), r"got shape \(\)"),
    "weight zero": (lambda: pr.QuadraticDistance(THIRD, weight=0), r"weight must lie in \(0, inf\), got 0"),
    "smoothing zero": (lambda: pr.TotalVariation(0.0), "smoothing must lie in"),
    "divergence floor": (lambda: pr.KullbackLeibler(floor=0.0), r"floor of KullbackLeibler must .* \(0, 1\), got 0.0"),
    "entropy over words": (lambda: pr.NegativeEntropy("states"), "over_states must be True or False"),
    "scenarios of two axes": (lambda: pr.ConstrainedCost(ONES[0], 1, 1, RISK), r"\[scenario, state, action\]"),
    "scenarios not finite": (lambda: pr.ConstrainedCost(ONES * np.nan, 1, 1, RISK), "scenarios has a non-finite"),
    "multiplier negative": (lambda: pr.ConstrainedCost(ONES, -1, 1, RISK), r"multiplier must lie in .*, got -1"),
    "limit not finite": (lambda: pr.ConstrainedCost(ONES, 1, np.inf, RISK), r"limit must lie in .*, got inf"),
    "risk without density": (lambda: pr.ConstrainedCost(ONES, 1, 1, 0.9), "density.*such as CVaR.*got 0.9"),
    "probabilities too many": (lambda: pr.ConstrainedCost(ONES, 1, 1, RISK, THIRD), "2 scenarios need as many"),
    "probabilities of 2": (lambda: pr.ConstrainedCost(ONES, 1, 1, RISK, [1.0, 1.0]), "probabilities must sum to 1"),
    "scenarios of another model": (
        called(pr.ConstrainedCost(np.ones((2, 4, 2)), 1, 1, RISK)),
        r"shape \(2, 4, 2\), the model needs",
    ),
    "multiple negative": (
        lambda: -1.0 * pr.NegativeEntropy(),
        r"multiple of a loss must lie in \[0, inf\), got -1.0; .*convex",
    ),
    "multiple not finite": (lambda: pr.NegativeEntropy() * np.nan, r"must lie in \[0, inf\), got nan"),
    "multiple an array": (lambda: pr.NegativeEntropy() * THIRD, "must be one number"),
    "sum with a number": (
        lambda: pr.ExpectedCost() + 3.0,
        r"a loss is a function \(occupancy, mdp\) -> number, got 3.0",
    ),
    "number plus loss": (lambda: 3.0 + pr.ExpectedCost(), "got 3.0"),
    "gradient a number": (lambda: pr.UserLoss(largest_entry, gradient=1.0), "gradient must be a function"),
    "gradient of a loss that has one": (
        lambda: pr.as_convex(pr.ExpectedCost(), gradient=largest_entry),
        "ExpectedCost has a gradient of its own",
    ),
    "gradient of another shape": (
        lambda: pr.UserLoss(largest_entry, gradient=lambda x, mdp: x[0]).value_and_gradient(*BATCHES[0][1:]),
        r"must have shape \(6, 3\) \(state, action\), got \(3,\)",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_refused(name):
    call, message = CASES[name]
    with pytest.raises(pr.InputError, match=message):
        call()


@jax.custom_jvp
def doubled(x):
    return x**2


@doubled.defjvp
def _(primals, tangents):
    return primals[0] ** 2, 4.0 * primals[0] * tangents[0]


def stopped(occupancy, mdp):
    return (occupancy * jax.lax.stop_gradient(occupancy)).sum()


class Offset(pr.ConvexLoss):
    """A loss with one part spoilt at a time."""

    constant: float
    factor: float

    def __call__(self, occupancy, mdp):
        return (occupancy**2).sum() / 2

    def image(self, occupancy, models):
        return occupancy + self.constant

    def begin(self, models):
        return pr.Dual(np.zeros((*models.cost.shape[:2], models.size)), None)

    def ascend(self, dual, image, models):
        return pr.Dual(self.factor * image, None)

    def cost_of(self, point, models):
        return point


FOUND = {
    "concave": (lambda x, mdp: -(x**2).sum(), "not convex: .* at the ends, and -.* of the way, above the chord's -"),
    "a saddle": (lambda x, mdp: x[0, 0] * x[1, 1], "not convex"),
    "a sine": (lambda x, mdp: jnp.sin(3 * x).sum(), "not convex"),
    "nan": (lambda x, mdp: jnp.log(x - 0.2).sum(), r"the loss is nan at .* least entry is .*state \d, action \d"),
    "infinite slope": (lambda x, mdp: -jnp.sqrt(0.0 * x[1, 0]), "gradient of the loss is -?(nan|inf) at state"),
    "wrong rule": (lambda x, mdp: doubled(x).sum(), "gradient of the loss is wrong: .* differences say .* custom"),
    "stopped gradient": (stopped, "gradient of the loss is wrong"),
    "two numbers": (lambda x, mdp: x.sum(axis=0), "must return one number"),
    "a whole number": (lambda x, mdp: jnp.argmax(x), "must return a real number"),
    "a failure": (lambda x: x, "could not be evaluated"),
    "image with a constant": (Offset(1.0, 1.0), "image of Offset is not linear"),
    "ascent to elsewhere": (Offset(0.0, 1.1), r"ascent of Offset does not end at the gradient: .* state \d, action \d"),
}


@pytest.mark.parametrize("name", FOUND)
def test_the_check_of_a_loss_finds_what_is_wrong(name):
    loss, message = FOUND[name]
    with pytest.raises(pr.InputError, match=re.compile(message, re.DOTALL)):
        pr.check_loss(loss, SMALL)


def test_the_check_passes_the_sound_version():
    assert pr.check_loss(Offset(0.0, 1.0), SMALL, samples=2).subject == "Offset"


def test_the_check_needs_a_model():
    with pytest.raises(pr.InputError, match="mdp must be an MDP"):
        pr.check_loss(pr.ExpectedCost(), pr.envs.frozen_lake())
    with pytest.raises(pr.InputError, match="samples must be a whole number >= 1"):
        pr.check_loss(pr.ExpectedCost(), SMALL, samples=0)
