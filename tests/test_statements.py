"""What is said of an answer holds: limits and intervals as often as they say, and a status is the policy's own."""

import numpy as np
import pytest
from scipy import optimize

import prudent as pr

from .atom_problems import AtomProblem, family, tail_mean

# A posterior of so many atoms is sampled, and everything about it can still be computed.
MANY = 20_000
RISKS = {f"CVaR {level}": pr.CVaR(level) for level in (0.0, 0.5, 0.9, 0.99, 0.999)} | {"EVaR": pr.EntropicVaR(0.9)}

# Repetitions of an interval: at a chance of 0.95 one table in two hundred falls outside 93 to 97 %.
COVERED = 900


class Cloud(AtomProblem):
    """Kernels that scatter around one of their own, `MANY` of them: a stand-in for a posterior without atoms."""

    def __init__(self, seed, level=0.9):
        random = np.random.default_rng(seed)
        centre = 5.0 * random.dirichlet(np.ones(2), size=(2, 2)) + 0.5
        self.kernels = random.standard_gamma(np.broadcast_to(centre, (MANY, 2, 2, 2)))
        self.kernels /= self.kernels.sum(axis=-1, keepdims=True)
        self.costs = np.broadcast_to(random.uniform(size=(2, 2)), (MANY, 2, 2))
        self.shares, self.discount, self.level = np.full(MANY, 1.0 / MANY), 0.9, level
        self.family = family(2, 2, 0.9)

    def least(self):
        """`[R]` the least loss of each atom, over the four deterministic policies."""
        pure = np.eye(2)[np.indices((2, 2)).reshape(2, -1).T]
        return self.losses(pure).min(axis=0)


def gap_stays_below_its_limit(seed, evaluation=400):
    cloud = Cloud(seed)
    solver = pr.SampleAverage(samples=64, largest=64, starts=2, evaluation=evaluation)
    solution = pr.solve(cloud.family, cloud.belief(), risk=pr.CVaR(0.9), solver=solver, seed=seed)
    ours, least = cloud.losses(np.asarray(solution.policy.probabilities)[None])[0], cloud.least()
    gap = tail_mean(ours, cloud.shares, 0.9) - tail_mean(least, cloud.shares, 0.9)
    return gap <= solution.certificate.gap_limit + 1e-12


def test_the_limit_of_the_gap_is_too_small_in_one_case_of_twenty_at_most():
    kept = sum(gap_stays_below_its_limit(seed) for seed in range(12))
    # With a chance of 0.95 each, fewer than 9 of 12 come once in 400 times.
    assert kept >= 9


@pytest.mark.long
def test_the_limit_of_the_gap_on_five_hundred_problems():
    kept = np.mean([gap_stays_below_its_limit(1000 + seed) for seed in range(500)])
    print(f"the limit held in {kept:.1%}")
    assert kept >= 0.95


def truth(risk, losses):
    """The risk of all atoms, by other means than the library's: sorting, or the dual of the entropic value at risk."""
    if isinstance(risk, pr.CVaR):
        return float(tail_mean(losses, np.full(losses.size, 1.0 / losses.size), float(risk.level)))
    top, spread = losses.max(), np.ptp(losses)
    radius = -np.log(1.0 - float(risk.level))
    dual = optimize.minimize_scalar(
        lambda s: (radius + np.log(np.mean(np.exp(s * (losses - top) / spread)))) / s,
        bounds=(0.1, 1e3),
        method="bounded",
    )
    return float(top + spread * dual.fun)


def share_covered(answers, truths):
    return np.mean([low <= known <= high for (low, high), known in zip(answers, truths, strict=True)])


@pytest.mark.long
@pytest.mark.parametrize("name", RISKS)
def test_intervals_of_evaluate_cover_as_often_as_they_say(name):
    cloud, table, risk = Cloud(3), np.array([[0.7, 0.3], [0.2, 0.8]]), RISKS[name]
    belief, known = cloud.belief(), truth(risk, cloud.losses(table[None])[0])
    results = [pr.evaluate(table, cloud.family, belief, risk=risk, seed=seed) for seed in range(COVERED)]
    share = share_covered([result.interval for result in results], [known] * COVERED)
    print(f"{name}: {share:.1%} of evaluate")
    assert 0.93 <= share <= 0.97


@pytest.mark.long
@pytest.mark.parametrize("name", RISKS)
def test_intervals_of_solutions_cover_as_often_as_they_say(name):
    """Each of a policy of its own, fitted to few draws, and judged on fresh ones as its certificate says."""
    cloud, risk = Cloud(4), RISKS[name]
    solver, belief = pr.SampleAverage(samples=8, largest=8, starts=1, iterations=4), cloud.belief()
    answers, truths = [], []
    for seed in range(COVERED // 10):
        for row in pr.solve_many(cloud.family, [belief] * 10, [risk], solver=solver, seed=seed):
            answers.append(row[0].interval)
            truths.append(truth(risk, cloud.losses(np.asarray(row[0].policy.probabilities)[None])[0]))
    share = share_covered(answers, truths)
    print(f"{name}: {share:.1%} of solve")
    assert 0.93 <= share <= 0.97


def test_a_thin_tail_gets_more_draws_and_one_that_is_too_thin_says_so():
    cloud, table = Cloud(3), np.array([[0.7, 0.3], [0.2, 0.8]])
    result = pr.evaluate(table, cloud.family, cloud.belief(), risk=pr.CVaR(0.99))
    assert len(result.losses) == 10_000
    few = pr.evaluate(table, cloud.family, cloud.belief(), risk=pr.CVaR(0.999), samples=1000)
    assert np.isnan(few.interval).all() and "none can be had" in str(few)


def two_actions():
    """One state, two actions: the first costs 1, the second nothing."""
    return pr.Family(pr.Support.lists([[[0], [0]]]), np.ones((1, 2, 1)), [[1.0, 0.0]], start=0, discount=0.9)


SATURATED = np.array([[40.0, 0.0]])


@pytest.mark.parametrize(
    "options",
    [
        {"solver": pr.BRPG(iterations=5, tolerance=1e-3)},
        {"solver": pr.SampleAverage(starts=1, step=pr.LBFGS())},
        {"solver": pr.SampleAverage(starts=1, step=pr.LBFGS()), "policy": pr.Softmax(within=pr.Ball(100.0))},
        {"solver": pr.SampleAverage(starts=1, step=pr.LBFGS()), "policy": pr.Softmax(within=pr.Box(-50.0, 50.0))},
    ],
)
def test_a_saturated_policy_is_not_called_converged(options):
    solution = pr.solve(two_actions(), pr.Point([0.0]), start=SATURATED, **options)
    assert solution.risk > 9.0 and solution.status is not pr.Status.CONVERGED
    # What a change of the policy gains is said all the same.
    assert solution.certificate.stationarity == pytest.approx(10.0)


@pytest.mark.parametrize("within", [pr.Softmax().within, pr.Box(-50.0, 50.0)])
def test_steps_in_the_table_leave_a_saturated_policy(within):
    solution = pr.solve(two_actions(), pr.Point([0.0]), start=SATURATED, policy=pr.Softmax(within=within))
    assert solution.status is pr.Status.CONVERGED and solution.risk < 1e-9


def lottery():
    """One state: an action whose cost is theta, and one whose cost is 0.9."""
    cost = lambda theta: np.array([[1.0, 0.0]]) * theta[0] + np.array([[0.0, 0.9]])  # noqa: E731
    return pr.Family(pr.Support.lists([[[0], [0]]]), np.ones((1, 2, 1)), cost, start=0, discount=0.9)


@pytest.mark.parametrize("seed", range(3))
def test_a_start_that_nothing_beats_is_kept_and_said_to_be(seed):
    # A cost of 1000 in one case of twenty: the two draws that are fitted have none of it, the held-out ones do.
    belief = pr.Draws(np.repeat([[0.0], [1000.0]], [19_000, 1_000], axis=0))
    two = {"solver": pr.SampleAverage(samples=2, largest=2, starts=1), "risk": pr.CVaR(0.5), "seed": seed}
    careful, careless = np.array([[-5.0, 0.0]]), np.array([[0.0, -5.0]])
    kept = pr.solve(lottery(), belief, start=careful, **two)
    assert kept.status is pr.Status.START_KEPT and np.array_equal(kept.parameters, careful)
    # Where the first action always costs more, the fitted draws tell, and a start that takes it is left.
    dear = pr.Draws(np.repeat([[1.0], [2.0]], 10_000, axis=0))
    left = pr.solve(lottery(), dear, start=careless, **two)
    assert left.status is pr.Status.CONVERGED and left.policy.probabilities[0, 1] > 0.999


def test_a_certificate_on_few_draws_speaks_of_those_alone():
    lake = pr.envs.frozen_lake("SF\nHG")
    solver = pr.SampleAverage(samples=16, largest=16, starts=1, iterations=5)
    certificate = pr.solve(lake, lake.prior, loss=pr.NegativeEntropy(), risk=pr.CVaR(0.9), solver=solver).certificate
    assert certificate.draws == 16 and certificate.gap_limit is None
    assert "on these 16 draws" in dict(certificate.rows())["gap"]


@pytest.mark.parametrize(
    "other", [{"risk": pr.CVaR(0.5)}, {"solver": pr.SampleAverage(samples=32, largest=32, starts=3, iterations=2)}]
)
def test_resuming_under_another_risk_or_other_samples_is_refused(other):
    lake = pr.envs.frozen_lake("SF\nHG")
    options = {"risk": pr.CVaR(0.9), "solver": pr.SampleAverage(samples=16, largest=16, starts=3, iterations=2)}
    first = pr.solve(lake, lake.prior, **options)
    with pytest.raises(pr.InputError, match=r"resume needs the (risk|solver) of the first call"):
        pr.solve(lake, lake.prior, resume=first, **(options | other))
