"""The model that keeps the risk and linearises the losses, against linear programs written out in full."""

import numpy as np
import pytest
from scipy.optimize import linprog

import prudent as pr
from prudent.parameter_sets import RowSet
from prudent.posteriors import WeightedDraws
from prudent.programs import CutProgram, solve_program
from prudent.solvers.linear_model import LinearModel, TrustRegion
from prudent.solvers.question import Question

STATES, ACTIONS = 3, 3
FAMILY = pr.TabularFamily(pr.Support.dense(STATES, ACTIONS), np.zeros((STATES, ACTIONS)), start=0, discount=0.9)


class Linearised:
    """The losses of a table, their slopes, and a risk over them."""

    def __init__(self, table, losses, slopes, shares, risk):
        self.table, self.losses, self.slopes = table, losses, slopes
        draws = WeightedDraws(np.zeros((len(losses), 1)), shares, True)
        self.question = Question.unlimited(FAMILY.objective(), risk, draws)

    @property
    def risk(self):
        return float(self.question.density(0, self.losses) @ self.losses)

    def minimise(self, table, rows, radius=1.0):
        flat = self.slopes.reshape(len(self.losses), -1)
        region = TrustRegion(table, rows, radius)
        return LinearModel(self.question, self.losses[None], (flat,), region).minimise(np.zeros(0))


def random_model(seed, draws, risk):
    random = np.random.default_rng(seed)
    table = random.dirichlet(np.ones(ACTIONS), size=STATES)
    slopes = random.normal(size=(draws, STATES, ACTIONS))
    losses = random.normal(size=draws).round(1)  # with ties
    shares = random.dirichlet(np.ones(draws))
    return Linearised(table, losses, slopes, shares, risk), shares


def least_tail(model, shares, level, radius, floor=0.0, ratio=np.inf):
    """`min CVaR(C + <g, d>)` over the tables within reach, by the program of Rockafellar and Uryasev."""
    draws, count = len(shares), model.table.size
    # Variables: entries of the new table, quantile, excesses, least entry of each row.
    size = count + 1 + draws + STATES
    costs = np.concatenate([np.zeros(count), [1.0], shares / (1.0 - level), np.zeros(STATES)])
    flat, rows, limits = model.slopes.reshape(draws, -1), [], []
    for k in range(draws):
        row = np.zeros(size)
        row[:count], row[count], row[count + 1 + k] = flat[k], -1.0, -1.0
        rows.append(row)
        limits.append(flat[k] @ model.table.ravel() - model.losses[k])
    if np.isfinite(ratio):
        for cell in range(count):
            least = count + 1 + draws + cell // ACTIONS
            below, above = np.zeros(size), np.zeros(size)
            below[cell], below[least] = -1.0, 1.0
            above[cell], above[least] = 1.0, -ratio
            rows += [below, above]
            limits += [0.0, 0.0]
    sums = np.zeros((STATES, size))
    for state in range(STATES):
        sums[state, state * ACTIONS : (state + 1) * ACTIONS] = 1.0
    low = np.maximum(model.table - radius, floor).ravel()
    high = np.minimum(model.table + radius, 1.0).ravel()
    bounds = [*zip(low, high, strict=True), (None, None), *[(0, None)] * draws, *[(0, 1)] * STATES]
    answer = linprog(costs, A_ub=np.array(rows), b_ub=limits, A_eq=sums, b_eq=np.ones(STATES), bounds=bounds)
    assert answer.status == 0
    return answer.fun


@pytest.mark.parametrize("little", [1.9e-22, 1e-300, 1e-16, 1e-13, 1e-9])
def test_slopes_that_a_program_cannot_bear_end_it(little):
    """Two draws can gain a little by the third action, of which the last draw loses much: HiGHS refuses its row."""
    table, shares = np.full((1, 3), 1.0 / 3.0), np.full(3, 1.0 / 3.0)
    slopes = np.array([[little, -little, -0.5 * little], [-little, little, -0.5 * little], [0.0, 0.0, 50.0]])
    model = Linearised(table, np.array([little, little, 0.0]), slopes[:, None], shares, pr.WorstCase())
    found = model.minimise(table, RowSet())
    # The least of the largest is where it is now, but for a share of the little in 50.
    assert 0.0 <= found.decrease <= found.most <= little


def test_a_program_of_which_a_part_is_refused_has_no_optimum():
    program = CutProgram(np.array([1.0]), np.array([0.0]), np.array([np.inf]))
    program.add(np.array([[-1.0]]), np.array([-2.0]))
    optimum = program.solve()
    assert optimum is not None and optimum.value == 2.0
    program.add(np.array([[-1e20]]), np.array([-3e20]))
    assert program.solve() is None


def test_a_program_without_an_optimum_has_none():
    assert solve_program([-1.0], bounds=[(0.0, None)]) is None
    assert solve_program([1.0], A_ub=[[1.0]], b_ub=[-1.0], bounds=[(0.0, None)]) is None
    found = solve_program([1.0], bounds=[(3.0, None)])
    assert found is not None and found.fun == 3.0


@pytest.mark.parametrize("radius", [1.0, 0.3, 0.01])
@pytest.mark.parametrize("level", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(4))
def test_the_minimum_is_that_of_the_program_in_full(seed, level, radius):
    model, shares = random_model(seed, 6, pr.CVaR(level))
    here, found = model.risk, model.minimise(model.table, RowSet(), radius)
    most = here - least_tail(model, shares, level, radius)
    # Nothing gains more than is said, what was found is a tenth short at most, and it keeps to the region.
    assert 0.9 * most - 1e-9 <= found.decrease <= most + 1e-9 <= found.most + 1e-8
    assert found.most <= most / 0.9 + 1e-9
    moved = model.table + found.change.reshape(model.table.shape)
    assert np.abs(found.change).max() <= radius + 1e-9 and moved.min() >= -1e-12
    assert moved.sum(axis=1) == pytest.approx(1.0)


@pytest.mark.parametrize("rows", [RowSet(floor=0.1), RowSet(ratio=3.0)])
@pytest.mark.parametrize("radius", [1.0, 0.2])
def test_floors_and_ratios_are_kept(rows, radius):
    for seed in range(3):
        model, shares = random_model(seed, 5, pr.CVaR(0.7))
        # A table of the set to begin with.
        table = 0.5 * rows.vertex(model.slopes[0]) + 0.5 / ACTIONS
        model.table = table
        here, found = model.risk, model.minimise(table, rows, radius)
        most = here - least_tail(model, shares, 0.7, radius, rows.floor, rows.ratio)
        assert 0.9 * most - 1e-8 <= found.decrease <= most + 1e-8
        assert found.most >= most - 1e-7
        moved = table + found.change.reshape(table.shape)
        assert moved.min() >= rows.floor - 1e-9
        assert np.all(moved.max(axis=1) <= rows.ratio * moved.min(axis=1) + 1e-8)


@pytest.mark.parametrize("rows", [RowSet(), RowSet(floor=0.05), RowSet(ratio=4.0)])
def test_vertices_are_the_best_of_their_rows(rows):
    random = np.random.default_rng(0)
    slope = random.normal(size=(7, 4)).round(1)
    found = rows.vertex(slope)
    for row, best in zip(slope, found, strict=True):
        least = []
        for order in np.argsort(random.uniform(size=(200, 4)), axis=1):
            for high in range(1, 5):
                point = np.ones(4)
                if np.isfinite(rows.ratio):
                    point[order[:high]] = rows.ratio
                    point /= point.sum()
                else:
                    point = np.full(4, rows.floor)
                    point[order[0]] += 1 - 4 * rows.floor
                least.append(row @ point)
        assert row @ best == pytest.approx(min(least))
        assert best.sum() == pytest.approx(1.0)


def test_stationarity_is_seen_at_a_kink_and_not_by_a_gradient():
    """Two draws that pull against each other: the worst case is least where they are equal, and no slope vanishes."""
    table = np.array([[0.5, 0.5]])
    slopes = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    found = Linearised(table, np.array([1.0, 1.0 + 1e-9]), slopes, np.full(2, 0.5), pr.CVaR(0.9)).minimise(
        table, RowSet()
    )
    assert found.most <= 1e-8
    assert RowSet().gain(table, slopes[1]) == pytest.approx(0.5)
