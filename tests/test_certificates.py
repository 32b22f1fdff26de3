"""Certificates: the bound against brute force, its reasons, stationarity, and what they cost in words."""

import itertools

import numpy as np
import pytest

import prudent as pr

from .problems import numpy_occupancy

STATES, ACTIONS = 3, 2
SUPPORT = pr.Support.dense(STATES, ACTIONS)
CHOICES = [np.eye(ACTIONS)[list(actions)] for actions in itertools.product(range(ACTIONS), repeat=STATES)]
LAKE = pr.envs.frozen_lake("SF\nHG")
BELIEF = LAKE.prior.update(LAKE.trials(n=5, truth=(0.3, 0.1), seed=0))


class Atoms(pr.Posterior):
    """A few equally likely thetas, drawn in turn: every sample of a multiple of them is the posterior itself."""

    atoms: np.ndarray

    def draw(self, generator, n):
        return np.resize(self.atoms, (n, *self.atoms.shape[1:]))


class NotMonotone(pr.Risk):
    """The mean plus twice the mean excess over it: a draw below the mean may count less than nothing."""

    @property
    def monotone(self):
        return False

    def density(self, losses, probabilities):
        above = losses > (probabilities * losses).sum()
        return 1.0 + 2.0 * (above - (probabilities * above).sum())


def random_problem(seed, risk):
    """A tabular family with a posterior of a few atoms, its solution, and every deterministic policy's losses."""
    random = np.random.default_rng(seed)
    cost = random.uniform(size=(STATES, ACTIONS))
    start, discount = random.dirichlet(np.ones(STATES)), random.uniform(0.3, 0.95)
    family = pr.TabularFamily(SUPPORT, cost, start, discount)
    atoms = random.dirichlet(np.full(STATES, 0.5), size=(6, STATES, ACTIONS))
    solver = pr.SampleAverage(samples=60, largest=60, starts=8, evaluation=60)
    solution = pr.solve(family, Atoms(atoms), risk=risk, solver=solver, seed=seed)
    which = [int(np.abs(atoms - theta).max(axis=(1, 2, 3)).argmin()) for theta in solution.thetas]
    losses = np.array(
        [[(numpy_occupancy(atom, choice, start, discount) * cost).sum() for atom in atoms] for choice in CHOICES]
    )
    return solution, losses[:, which]


RISKS = [pr.CVaR(0.0), pr.CVaR(0.5), pr.CVaR(0.9), pr.MeanSemideviation(1, 0.5), pr.EntropicVaR(0.5)]


def check_bound(seed, risk):
    solution, losses = random_problem(seed, risk)
    bound = float(risk(losses.min(axis=0)).value)
    certificate = solution.certificate
    assert certificate.lower_bound == pytest.approx(bound, rel=1e-8)
    best_choice = min(float(risk(row).value) for row in losses)
    assert certificate.lower_bound <= best_choice + 1e-9
    assert certificate.lower_bound <= solution.risk
    assert certificate.gap == pytest.approx(solution.risk - certificate.lower_bound)
    assert certificate.gap_limit >= certificate.gap
    # Nothing is left to chance, so the answer is at least as good as every deterministic policy.
    assert solution.risk <= best_choice * (1 + 1e-4)


@pytest.mark.parametrize("seed", range(6))
def test_the_bound_is_below_every_policy_on_random_problems(seed):
    check_bound(seed, RISKS[seed % 3])


@pytest.mark.long
@pytest.mark.parametrize("block", range(10))
def test_the_bound_is_below_every_policy_on_five_hundred_random_problems(block):
    for seed in range(50 * block, 50 * (block + 1)):
        check_bound(1000 + seed, RISKS[seed % len(RISKS)])


def test_the_gap_closes_when_theta_is_known():
    solution = pr.solve(LAKE, pr.Point([0.3, 0.1]), risk=pr.CVaR(0.9))
    best = float(LAKE.start @ pr.plan(LAKE.at((0.3, 0.1))).values)
    assert solution.certificate.lower_bound == pytest.approx(best, rel=1e-9)
    assert solution.certificate.gap <= 1e-4 * best


@pytest.mark.long
def test_a_truncated_occupancy_has_a_bound_of_its_own():
    solution = pr.solve(LAKE, BELIEF, occupancy=pr.Truncated(20), solver=pr.SampleAverage(samples=32, largest=32))
    certificate = solution.certificate
    assert 0.0 <= certificate.gap < solution.risk
    # Nothing beats it, the plans of single draws included, which know their theta.
    for theta in solution.thetas[:2]:
        known = pr.loss_at(pr.plan(LAKE.at(theta)).policy, LAKE, theta, occupancy=pr.Truncated(20))
        lows = pr.solve(
            LAKE,
            pr.Point(theta),
            occupancy=pr.Truncated(20),
            solver=pr.SampleAverage(samples=1, largest=1, starts=1, evaluation=1),
        ).certificate
        assert lows.lower_bound <= known + 1e-9


def test_convex_losses_are_bounded_on_fewer_draws():
    loss = pr.ExpectedCost() + 5.0 * pr.QuadraticDistance(np.full(4, 0.25))
    solver = pr.SampleAverage(samples=32, largest=32, starts=2, evaluation=60)
    solution = pr.solve(LAKE, BELIEF, loss=loss, solver=solver)
    certificate = solution.certificate
    assert certificate.draws == 16
    assert certificate.risk == pytest.approx(float(pr.CVaR(0.9)(solution.losses[:16]).value))
    for theta, loss_here in zip(solution.thetas[:4], solution.losses[:4], strict=True):
        assert pr.plan_convex(LAKE.at(theta), loss).value <= loss_here + 1e-6
    exact = [pr.plan_convex(LAKE.at(theta), loss).value for theta in solution.thetas[:16]]
    assert certificate.lower_bound <= float(pr.CVaR(0.9)(exact).value) + 1e-9
    assert certificate.lower_bound == pytest.approx(float(pr.CVaR(0.9)(exact).value), abs=2e-3)


def test_where_there_is_no_bound_the_reason_is_given():
    small = pr.SampleAverage(samples=16, largest=16, starts=1, iterations=5, evaluation=20)
    plain = pr.solve(LAKE, BELIEF, loss=lambda occupancy, mdp: (occupancy * mdp.cost).sum(), solver=small)
    assert plain.certificate.lower_bound is None
    assert "as_convex" in plain.certificate.reason
    assert "none: the loss is a plain function" in str(plain)
    # A bound needs monotonicity, not coherence, and a mixture that of its parts.
    quantile = 0.5 * pr.Expectation() + 0.5 * pr.SmoothedVaR(0.5)
    assert pr.solve(LAKE, BELIEF, risk=quantile, solver=small).certificate.gap >= 0.0
    odd = pr.solve(LAKE, BELIEF, risk=NotMonotone(), solver=small)
    assert "not monotone" in odd.certificate.reason
    squares = pr.QuadraticDistance(np.full(4, 0.25))
    cut = pr.solve(LAKE, BELIEF, loss=squares, occupancy=pr.Truncated(20), solver=small)
    assert "truncated" in cut.certificate.reason


def test_every_solver_and_estimator_brings_a_certificate_unless_told_not_to():
    paper = pr.BRPG(samples=8, iterations=5, evaluation=50)
    for gradient in (pr.Adjoint(), pr.ZerothOrder(directions=2)):
        solution = pr.solve(LAKE, BELIEF, solver=paper, gradient=gradient)
        certificate = solution.certificate
        assert certificate.lower_bound <= solution.risk
        low, high = solution.interval
        assert low < solution.risk < high
        assert np.isfinite(certificate.in_sample)
        by_values = isinstance(gradient, pr.ZerothOrder)
        assert np.isnan(certificate.stationarity) == by_values
        assert ("stationarity" in str(solution)) != by_values
        for label in ("interval", "in sample", "lower bound", "gap", "driven by"):
            assert label in str(solution)
    assert pr.solve(LAKE, BELIEF, solver=paper, certify=False).certificate is None


def test_stationarity_is_what_the_best_change_of_the_table_gains_to_first_order():
    nothing = pr.SampleAverage(samples=8, largest=8, starts=1, iterations=0, evaluation=60)
    start = pr.solve(LAKE, BELIEF, risk=pr.CVaR(0.0), solver=nothing)
    # Of the mean the model is linear, so the best table is the best deterministic change of each row.
    uniform, step = np.full((4, 4), 0.25), 1e-6
    tables = [uniform]
    for s, a in np.ndindex(4, 4):
        moved = uniform.copy()
        moved[s] += step * (np.eye(4)[a] - uniform[s])
        tables.append(moved)
    values = np.mean([pr.loss_at(tables, LAKE, theta) for theta in start.thetas], axis=0)
    gains = (values[0] - values[1:].reshape(4, 4)) / step
    assert start.certificate.stationarity == pytest.approx(gains.max(axis=1).sum(), rel=1e-4)
    best = pr.solve(LAKE, BELIEF, risk=pr.CVaR(0.9))
    assert best.certificate.stationarity <= 0.05 * np.ptp(best.losses)
