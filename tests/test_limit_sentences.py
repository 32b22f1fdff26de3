"""What is said of limits where it is easiest to be wrong: one state, one action, ties, limits met to the last digit."""

import numpy as np
import pytest
from scipy.optimize import linprog

import prudent as pr

from .atom_problems import family, tail_mean
from .marks import short

DISCOUNT = 0.9
MASS = 1.0 / (1.0 - DISCOUNT)


class OneState:
    """One state: a policy is a mixture p of actions, every loss is linear in it, and a linear program tells all.

    Costs are `[R, A]`, tables of the limits `[L, A]`, with the levels of their CVaR.
    """

    def __init__(self, costs, tables, at_most, levels=None, level=0.0, shares=None):
        self.costs = np.atleast_2d(np.asarray(costs, float))
        self.tables = np.atleast_2d(np.asarray(tables, float))
        self.at_most = np.atleast_1d(np.asarray(at_most, float))
        self.levels = [0.0] * len(self.tables) if levels is None else levels
        self.level = level
        atoms = len(self.costs)
        self.shares = np.full(atoms, 1.0 / atoms) if shares is None else np.asarray(shares)

    def limits(self, **options):
        return [
            pr.Limit(pr.CostTable(table[None]), most, pr.CVaR(level), **options)
            for table, most, level in zip(self.tables, self.at_most, self.levels, strict=True)
        ]

    def solved(self, limits=None):
        atoms, actions = self.costs.shape
        thetas = np.concatenate([np.ones((atoms, actions)), self.costs], axis=1)
        return pr.solve(
            family(1, actions, DISCOUNT),
            pr.Draws(thetas, weights=self.shares),
            risk=pr.CVaR(self.level),
            subject_to=self.limits() if limits is None else limits,
        )

    def least(self, moved=0.0):
        """The least risk with the limits moved, or None where no mixture keeps them."""
        atoms, actions = self.costs.shape
        # Variables: p, a threshold, the excess of each atom; a limit's loss is the same at all atoms.
        cost = np.concatenate([np.zeros(actions), [1.0], self.shares / (1.0 - self.level)])
        above = np.concatenate([MASS * self.costs, -np.ones((atoms, 1)), -np.eye(atoms)], axis=1)
        kept = np.concatenate([MASS * self.tables, np.zeros((len(self.tables), 1 + atoms))], axis=1)
        answer = linprog(
            cost,
            A_ub=np.concatenate([above, kept]),
            b_ub=np.concatenate([np.zeros(atoms), self.at_most + moved]),
            A_eq=np.concatenate([np.ones((1, actions)), np.zeros((1, 1 + atoms))], axis=1),
            b_eq=[1.0],
            bounds=[(0.0, None)] * actions + [(None, None)] + [(0.0, None)] * atoms,
        )
        return answer.fun if answer.status == 0 else None


def slopes(problem, share=1e-3):
    """What one unit more saves and one unit less costs of each limit; inf where no policy keeps a tighter one."""
    here, found = problem.least(), []
    for j, table in enumerate(problem.tables):
        step = share * MASS * float(np.ptp(table)) * np.eye(len(problem.tables))[j]
        more, less = problem.least(step), problem.least(-step)
        found.append(((here - more) / step[j], np.inf if less is None else (less - here) / step[j]))
    return np.array(found)


CASES = {
    "half and half": OneState([0.0, 1.0], [1.0, 0.0], 5.0),
    "met by the best policy": OneState([0.0, 1.0], [1.0, 0.0], 10.0 - 1e-13),
    "never binds": OneState([0.0, 1.0], [0.7, 0.2], 8.0),
    "the tightest that can be kept": OneState([0.0, 1.0], [0.9, 0.3], 3.0),
    "ties": OneState([1.0, 1.0], [1.0, 0.0], 5.0),
    "twice the same": OneState([0.0, 1.0], [[1.0, 0.0], [1.0, 0.0]], [5.0, 5.0], levels=[0.0, 0.5]),
    "a corner between actions": OneState([0.0, 1.0, 4.0], [1.0, 0.5, 0.0], 5.0),
    "two that bind": OneState([0.0, 1.0, 4.0], [[1.0, 0.5, 0.0], [0.0, 1.0, 0.2]], [5.0, 6.0]),
    "dear and small": OneState([0.0, 1e6], [1e-6, 0.0], 5e-6),
    "cheap and large": OneState([1e-6, 2e-6], [1e7, 1e6], 5e7),
    "a high level": OneState([1000.0, 1001.0], [501.0, 500.0], 5005.0),
    "atoms": OneState([[0.0, 1.0], [0.5, 0.6], [0.2, 2.0]], [1.0, 0.2], 6.0, level=0.5),
    "a kink of the risk": OneState([[0.0, 1.0], [1.0, 0.0]], [1.0, 0.0], 5.0, level=0.9),
    "losses below 0": OneState([-1.0, -0.5], [-1.0, -2.0], -15.0),
}


# One of each kind: what binds, what is met, what can be no tighter, ties, atoms, a kink, extreme units, below 0.
FEW = ["half and half", "met by the best policy", "the tightest that can be kept", "twice the same", "atoms"]
FEW += ["a kink of the risk", "dear and small", "losses below 0"]


@pytest.mark.parametrize("name", short(FEW, CASES))
def test_kept_value_and_prices_are_those_of_the_linear_program(name):
    problem = CASES[name]
    solution, prices = problem.solved(), slopes(problem)
    size = MASS * float(np.abs(problem.costs).max())
    assert solution.status is pr.Status.CONVERGED_WITHIN_LIMITS, solution
    assert solution.risk == pytest.approx(problem.least(), abs=1e-7 * size)
    table = np.asarray(solution.policy.probabilities)[0]
    for answer, tables, most, (saves, costs) in zip(
        solution.limits, problem.tables, problem.at_most, prices, strict=True
    ):
        unit = size / (MASS * float(np.ptp(tables)))
        assert answer.verdict is pr.Verdict.KEPT and answer.kept == answer.kept_interval[0] == 1.0
        assert answer.value == pytest.approx(MASS * tables @ table, rel=1e-12)
        assert answer.value <= most + 1e-12 * MASS * float(np.abs(tables).max())
        assert answer.slack == pytest.approx(most - answer.value, rel=1e-9, abs=1e-12 * MASS * np.abs(tables).max())
        assert answer.prices[0] == pytest.approx(saves, rel=0.02, abs=1e-4 * unit)
        assert np.isinf(answer.prices[1]) == np.isinf(costs)
        if np.isfinite(costs):
            assert answer.prices[1] == pytest.approx(costs, rel=0.02, abs=1e-4 * unit)
        assert 0.98 * answer.prices[0] <= answer.multiplier <= 1.02 * answer.prices[1]
        said = answer.rows(0)[1][1]
        assert ("saves nothing" in said) == (saves <= 1e-3 * min(costs, unit))
        assert ("keeps a tighter" in said) == np.isinf(costs)
        assert ("one unit less costs" in said) == (np.isfinite(costs) and costs - saves > 0.05 * costs + 1e-6 * unit)


ONE_ACTION = (np.zeros((1, 1)) + 1.0, [[1.0]])


def test_what_one_action_makes_of_a_limit_it_is_not_blamed_for():
    # 1 / (1 - 0.9) is 10.000000000000002: the limit is met to the last digits, and nothing else can be done.
    met = OneState(*ONE_ACTION, 10.0).solved()
    assert met.limits[0].verdict is pr.Verdict.KEPT and met.limits[0].kept == 1.0
    assert met.status is pr.Status.CONVERGED_WITHIN_LIMITS
    assert "keeps a tighter limit" in str(met)
    broken = OneState(*ONE_ACTION, 9.999).solved()
    assert broken.status is pr.Status.INFEASIBLE and broken.limits[0].proved
    assert broken.limits[0].verdict is pr.Verdict.BROKEN
    assert "saves" not in str(broken)


@pytest.mark.parametrize(
    "problem",
    [
        OneState([0.0, 1.0], [[1.0, 0.0], [0.0, 1.0]], [4.0, 5.0]),
        OneState([0.0, 1.0], [[1e6, 0.0], [0.0, 1e-6]], [4e6, 5e-6]),
        OneState([[0.0, 1.0], [1.0, 0.0]], [[2.0, 1.0], [0.0, 1.0]], [14.0, 5.0], levels=[0.5, 0.9]),
    ],
)
def test_limits_that_contradict_one_another(problem):
    assert problem.least() is None
    solution = problem.solved()
    assert solution.status is pr.Status.INFEASIBLE
    assert not any(answer.proved for answer in solution.limits)
    assert any(answer.verdict is pr.Verdict.BROKEN for answer in solution.limits)
    assert "saves" not in str(solution) and "is better by more" not in str(solution)
    assert all(np.isnan(answer.multiplier) for answer in solution.limits)
    # Together they are just possible where the second is as loose as the first leaves it.
    problem = OneState(problem.costs, problem.tables, problem.at_most, problem.levels)
    problem.at_most[1] += MASS * problem.tables[1, 1] * 0.11
    assert problem.solved().status.ok


@pytest.mark.parametrize(("share", "kept"), [(0.8, True), (0.81, False)])
def test_a_chance_counts_the_atoms_that_keep_the_limit(share, kept):
    """Action 0 costs 0 at four of five atoms and 1 at the fifth; action 1 costs 1 at all."""
    costs = [[0.0, 1.0]] * 4 + [[1.0, 1.0]]
    problem = OneState(costs, [0.0, 1.0], 5.0)
    solution = problem.solved([pr.Limit(pr.ExpectedCost(), 5.0, chance=share)])
    answer = solution.limits[0]
    losses = MASS * problem.costs @ np.asarray(solution.policy.probabilities)[0]
    assert answer.kept == pytest.approx(np.mean(losses <= 5.0), abs=1e-12)
    assert (answer.verdict is pr.Verdict.KEPT) == (answer.slack >= 0) == kept
    assert (solution.status is pr.Status.INFEASIBLE) != kept
    assert answer.least == pytest.approx(0.8)


def test_costs_that_differ_at_a_later_atom_have_no_range():
    """A limit is idle only where no atom could break it."""
    costs = [[0.0, 0.5]] * 5 + [[3.0, 0.5]]
    limit = pr.Limit(pr.ExpectedCost(), at_most=8.0, risk=pr.CVaR(0.9))
    solution = OneState(costs, [0.0, 1.0], 8.0).solved([limit])
    assert solution.limits[0].verdict is pr.Verdict.KEPT
    losses = MASS * np.asarray(costs) @ np.asarray(solution.policy.probabilities)[0]
    assert tail_mean(losses, np.full(6, 1 / 6), 0.9) <= 8.0 + 1e-9
    with pytest.raises(pr.InputError, match="never above 5, so at_most = 5 limits nothing"):
        OneState(costs[:5], [0.0, 1.0], 8.0).solved([pr.Limit(pr.ExpectedCost(), 5.0, pr.CVaR(0.9))])
