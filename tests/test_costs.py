"""Costs from a log: of pairs or of moves, and the error that noise leaves, against closed forms and integration."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

import prudent as pr
from prudent.problems import describe, memory
from prudent.tables import Names, count_log

HEAD = "states = 3\nactions = 2\ndiscount = 0.9\nstart = 0\n"
DATA = '[data]\ntransitions = "log.csv"\n'


def read(folder, rows, head=HEAD, tail="", columns="state,action,next_state,cost"):
    (folder / "log.csv").write_text("\n".join([columns, *(",".join(map(str, row)) for row in rows)]) + "\n")
    (folder / "problem.toml").write_text(head + DATA + tail)
    return pr.read_problem(folder / "problem.toml")


def noisy_rows(seed=0, rows=120, by_move=False, noise=0.5, shift=0.0):
    """A log of three states; costs 3 s + a, and 2 for a move to state 2 where they go by the move."""
    random = np.random.default_rng(seed)
    s, a, t = np.arange(rows) % 6 // 2, np.arange(rows) % 2, random.integers(3, size=rows)
    y = shift + 3.0 * s + a + (2.0 * (t == 2) if by_move else 0.0) + noise * random.normal(size=rows)
    return list(zip(s, a, t, y.tolist(), strict=True))


# ---------------------------------------------------------------- what a log says of costs


def test_costs_that_never_vary_are_known(tmp_path):
    case = read(tmp_path, noisy_rows(noise=0.0))
    assert np.allclose(case.cost, 3.0 * np.arange(3)[:, None] + np.arange(2), rtol=0, atol=1e-12)
    assert case.costs.spread is None
    assert isinstance(case.arguments()["belief"], pr.Pooled)
    assert "the same whenever a pair was seen again" in dict(describe(case))["costs"]


def test_costs_that_vary_by_the_successor_are_of_moves(tmp_path):
    case = read(tmp_path, noisy_rows(noise=0.0, by_move=True))
    expected = 3.0 * np.arange(3)[:, None, None] + np.arange(2)[:, None] + 2.0 * (np.arange(3) == 2)
    assert np.allclose(case.cost, expected, rtol=0, atol=1e-12)
    assert case.costs.spread is None
    model = case.arguments()["model"]
    table = np.full((3, 2, 3), 1 / 3)
    assert np.allclose(model.at(table).cost, expected.mean(axis=2))
    assert "the same whenever a move was seen again" in dict(describe(case))["costs"]


def test_no_row_seen_again_leaves_costs_as_they_are_and_says_so(tmp_path):
    case = read(tmp_path, [(0, 0, 1, 2.0), (1, 1, 0, 4.0)], tail="default_cost = 1.0\n")
    assert case.costs.spread is None
    assert "a pair that was seen twice would tell their error" in dict(describe(case))["costs"]


@pytest.mark.parametrize(("seed", "by_move"), [(0, True), (1, True), (0, False), (1, False), (2, False)])
def test_an_f_test_tells_noise_from_costs_of_moves(seed, by_move, tmp_path):
    rows = noisy_rows(seed, rows=400, by_move=by_move)
    case = read(tmp_path, rows)
    s, a, t, y = (np.array(column) for column in zip(*rows, strict=True))
    # The same test by its textbook form: pairs within the whole, moves within pairs.
    pairs = [y[(s == i) & (a == j)] for i in range(3) for j in range(2)]
    moves = [y[(s == i) & (a == j) & (t == k)] for i in range(3) for j in range(2) for k in range(3)]
    of_pairs, of_moves = (sum(((group - group.mean()) ** 2).sum() for group in groups) for groups in (pairs, moves))
    free = len(y) - 18
    statistic = (of_pairs - of_moves) / 12 / (of_moves / free)
    assert (case.cost.ndim == 3) == (stats.f.sf(statistic, 12, free) < 0.01) == by_move
    noise, freedom = (of_moves / free, free) if by_move else (of_pairs / (len(y) - 6), len(y) - 6)
    groups = moves if by_move else pairs
    assert np.allclose(case.cost.ravel(), [group.mean() for group in groups], rtol=1e-12)
    assert np.allclose(case.costs.spread.ravel(), [np.sqrt(noise / len(group)) for group in groups], rtol=1e-9)
    assert case.costs.degrees[0] == freedom + 3
    assert "the belief holds the error" in dict(describe(case))["costs"]


def test_far_from_zero_no_digit_of_the_noise_is_lost(tmp_path):
    near, far = (read(tmp_path, noisy_rows(noise=1e-3, shift=shift)).costs for shift in (0.0, 1e6))
    assert np.allclose(near.spread, far.spread, rtol=1e-6)
    assert np.allclose(near.mean + 1e6, far.mean, rtol=1e-13)


def test_counts_and_several_logs_add_up(tmp_path):
    rows = noisy_rows(rows=90)
    read(tmp_path, rows)
    names = Names("state", 3), Names("action", 2)
    for k, part in enumerate((rows[:30], rows[30:])):
        text = "state,action,next_state,cost\n" + "".join(f"{s},{a},{t},{y}\n" for s, a, t, y in part)
        (tmp_path / f"{k}.csv").write_text(text)
    logs = [count_log([tmp_path / f"{k}.csv"], *names) for k in range(2)]
    joined, once = logs[0].joined(logs[1]), count_log([tmp_path / "log.csv"], *names)
    for field in ("state", "next_state", "count", "cost_count", "cost_total", "cost_square"):
        assert np.allclose(getattr(joined, field), getattr(once, field), rtol=1e-12), field
    twice = read(tmp_path, rows + rows).costs
    doubled = read(tmp_path, [(*row, 2) for row in rows], columns="state,action,next_state,cost,count").costs
    assert np.allclose(doubled.mean, twice.mean, rtol=1e-12)
    assert np.allclose(doubled.spread, twice.spread, rtol=1e-9)
    assert doubled.degrees == twice.degrees


def test_a_move_never_seen_costs_what_moves_into_its_state_cost_elsewhere(tmp_path):
    into = np.array([0.0, 5.0, 9.0])
    rows = [(s, 0, t, into[t] + 0.01 * s) for s in range(3) for t in range(3) for _ in range(2) if (s, t) != (1, 2)]
    head = HEAD.replace("actions = 2", "actions = 1")
    case = read(tmp_path, rows, head=head, tail='[posterior]\nsupport = "all"\n')
    assert case.cost[1, 0, 2] == pytest.approx(np.mean([9.0, 9.02]))
    seen = {(s, t): into[t] + 0.01 * s for s in range(3) for t in range(3) if (s, t) != (1, 2)}
    missed = [
        value - np.mean([other for (i, k), other in seen.items() if k == t and i != s])
        for (s, t), value in seen.items()
    ]
    assert case.costs.spread[1, 0, 2] == pytest.approx(np.sqrt(np.mean(np.square(missed))))
    assert np.count_nonzero(case.costs.spread) == 1
    belief = case.arguments()["belief"]
    assert [name for name in case.unknowns(belief.sample(0, 1).shape[1:]) if "cost" in name] == ["cost(1, 0, 2)"]


# ---------------------------------------------------------------- the belief


def belief_of(tmp_path, **changes):
    return read(tmp_path, noisy_rows(rows=60, **changes)).arguments()


def test_costs_have_the_posterior_that_integration_finds(tmp_path):
    """Flat means and a scaled inverse chi-square variance of 3 degrees at the pooled variance, on a grid."""
    rows = [(0, 0, 1, y) for y in (1.0, 1.4)] + [(1, 0, 0, y) for y in (2.0, 2.6, 2.3)]
    case = read(tmp_path, rows, head="states = 2\nactions = 1\ndiscount = 0.5\nstart = 0\n")
    belief = case.arguments()["belief"]
    pooled = (0.08 + 0.18) / 3
    variance = np.exp(np.linspace(np.log(1e-4), np.log(1e4), 4001))
    weight = variance * variance ** -(1 + 1.5) * np.exp(-1.5 * pooled / variance)  # a grid in its logarithm
    # Each mean, given the variance, integrates to a normal: leave the rest to the grid.
    weight *= variance**-2.5 * np.exp(-0.26 / (2 * variance)) * variance**0.5 * variance**0.5
    weight /= weight.sum()
    first, second = (weight @ (variance / n) for n in (2, 3))
    together = weight @ (variance**2 / 6)
    draws = belief.sample(0, 100_000)[..., 0, -1]
    errors = (draws - np.array([1.2, 2.3])) ** 2
    assert np.allclose(errors.mean(axis=0), [first, second], rtol=0.05)
    assert np.isclose(np.mean(errors[:, 0] * errors[:, 1]), together, rtol=0.4)
    assert together > 1.5 * first * second


def test_draws_and_sobol_points_have_students_distribution(tmp_path):
    belief = belief_of(tmp_path)["belief"]
    spread, degrees = np.asarray(belief.spread)[1, 0, 0], float(belief.degrees[0])
    for posterior in (belief, pr.Sobol(belief)):
        drawn = posterior.sample(3, 4096)
        assert drawn.shape == (4096, 3, 2, belief.support.successors + 1)
        assert np.allclose(drawn[..., :-1].sum(axis=-1), 1.0)
        scaled = (drawn[:, 1, 0, -1] - np.asarray(belief.cost)[1, 0, 0]) / spread
        assert stats.kstest(scaled, stats.t(degrees).cdf).pvalue > 0.01
    same = belief.posterior.sample(3, 5)
    assert np.array_equal(belief.sample(3, 5)[..., :-1], same)


def test_the_true_cost_is_as_likely_anywhere_in_the_belief(tmp_path):
    """Ranks of the truth among draws are uniform; with noise left out they would all lie at an end."""
    ranks = []
    for seed in range(20):
        belief = read(tmp_path, noisy_rows(seed, rows=40)).arguments()["belief"]
        if not isinstance(belief, pr.WithCosts) or belief.cost.shape[2] > 1:
            continue
        drawn = belief.sample(seed, 99)[..., -1]
        ranks.append((drawn < 3.0 * np.arange(3)[:, None] + np.arange(2)).mean(axis=0).ravel())
    counts = np.histogram(np.concatenate(ranks), bins=10, range=(0, 1 + 1e-9))[0]
    assert len(ranks) > 17
    assert stats.chisquare(counts).pvalue > 0.001


def test_noise_is_part_of_the_risk_and_of_what_is_done(tmp_path):
    """Action 1 is cheaper by the mean of two rows and by far less certain; a cautious policy leaves it alone."""
    random = np.random.default_rng(0)
    rows = [(0, 0, 0, y) for y in 1.0 + 0.8 * random.normal(size=400)]
    rows += [(0, 1, 0, y) for y in (0.2, 1.4)]
    case = read(tmp_path, rows, head="states = 1\nactions = 2\ndiscount = 0.5\nstart = 0\n")
    asked = case.arguments() | {"solver": pr.SampleAverage(samples=64, largest=64, starts=2, evaluation=500)}
    cautious, neutral = pr.solve(**asked), pr.solve(**asked | {"risk": pr.Expectation()})
    assert cautious.policy.probabilities[0, 0] > 0.9
    assert neutral.policy.probabilities[0, 1] > 0.9
    spread = np.asarray(asked["belief"].spread)[0, 0, 0]
    tail = 2.0 * (np.asarray(case.cost)[0, 0] + spread * 1.755)  # the mean of a normal's worst tenth
    certain = pr.evaluate(np.array([[1.0, 0.0]]), asked["model"], asked["belief"], risk=pr.CVaR(0.9), samples=20000)
    assert certain.risk == pytest.approx(tail, rel=0.01)
    plans = pr.rivals(asked["model"], asked["belief"], solver=asked["solver"])
    assert plans["posterior-mean plan"].policy.probabilities[0, 1] == 1.0
    assert plans["maximum-likelihood plan"].policy.probabilities[0, 1] == 1.0


def test_noisy_costs_go_with_pooled_rows_and_with_the_worth_of_data(tmp_path):
    parts = belief_of(tmp_path, by_move=True, noise=0.2)
    model, belief = parts["model"], parts["belief"]
    assert isinstance(belief, pr.WithCosts) and belief.cost.shape[2] == 3
    pooled = dataclasses.replace(belief, posterior=pr.Pooled(belief.support, belief.counts))
    few = pr.SampleAverage(samples=32, largest=32, starts=2, evaluation=100)
    for posterior in (belief, pooled, pr.Sobol(pooled)):
        assert pr.solve(model, posterior, solver=few).status.ok
    asked = {"risk": pr.Expectation(), "observations": 3, "replications": 2, "places": [(0, 0)]}
    worth = pr.worth_of_data(model, belief, **asked, solver=few)
    assert np.isfinite(worth.risk)
    log = pr.Transitions.from_records([(0, 0, 1)], states=3, actions=2)
    after = belief.update(log)
    assert after.counts.sum() == belief.counts.sum() + 1 and np.array_equal(after.cost, belief.cost)


def test_a_run_with_noisy_costs_goes_on_with_the_same_bits(tmp_path):
    solver = "[solver]\nsamples = 16\nlargest = 16\nevaluation = 50\niterations = "
    whole, half = (tmp_path / name for name in ("whole", "half"))
    for folder, iterations in ((whole, 4), (half, 2)):
        folder.mkdir()
        read(folder, noisy_rows(rows=60), tail=solver + str(iterations))
        pr.solve_problem(folder / "problem.toml", folder / "run", report=False, progress=False)
    pr.continue_run(half / "run", iterations=2, report=False, progress=False)
    assert (half / "run" / "policy.csv").read_text() == (whole / "run" / "policy.csv").read_text()
    header = (half / "run" / "weights.csv").read_text().splitlines()[0]
    assert "cost(0, 0)" in header


def test_memory_is_estimated_with_the_draws_of_costs(tmp_path, monkeypatch):
    case = read(tmp_path, noisy_rows(by_move=True))
    solver = case.facts.file.solver
    known, noisy = memory.estimate(case.shape, solver), memory.estimate(case.shape, solver, case.drawn_costs)
    # A cost for each successor: theta is twice the kernel.
    assert case.drawn_costs == case.shape[2] and noisy == 2 * known
    monkeypatch.setattr(memory, "available_memory", lambda: noisy - 1)
    with pytest.raises(pr.InputError, match="successors a pair, with noisy costs, need about"):
        read(tmp_path, noisy_rows(by_move=True))


BELIEF = pr.Dirichlet.symmetric(pr.Support.dense(2, 1))


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        (
            lambda: pr.WithCosts(pr.Point([0.1]), [[1.0], [0.0]], [[1.0], [0.0]], [5]),
            "posterior must be a posterior of",
        ),
        (lambda: pr.WithCosts(BELIEF, [[1.0]], [[1.0]], [5]), "cost must have shape"),
        (lambda: pr.WithCosts(BELIEF, [[1.0], [0.0]], [[1.0]], [5]), "spread must have the cost's shape"),
        (lambda: pr.WithCosts(BELIEF, [[1.0], [0.0]], [[-1.0], [0.0]], [5]), "spread must be >= 0"),
        (
            lambda: pr.WithCosts(BELIEF, [[1.0], [0.0]], [[1.0], [0.0]], [2]),
            "degrees must be a list of numbers above 2",
        ),
        (lambda: pr.WithCosts(BELIEF, [[1.0], [np.nan]], [[1.0], [0.0]], [5]), "cost"),
        (
            lambda: pr.WithCosts(BELIEF, [[1.0], [0.0]], [[1.0], [0.0]], [5], [[0], [1]]),
            "group 1 has no degrees; there are 1",
        ),
        (
            lambda: pr.solve(pr.TabularFamily(pr.Support.dense(2, 1), None, 0, 0.9), BELIEF),
            "cost must have shape",
        ),
    ],
)
def test_costs_that_do_not_fit_are_refused(attempt, words):
    with pytest.raises(pr.InputError, match=words):
        attempt()


def test_a_cost_too_large_to_be_squared_is_refused(tmp_path):
    with pytest.raises(pr.InputError, match=r"row 1: cost 1e\+101 is too large; change the unit"):
        read(tmp_path, [(0, 0, 1, "1e101")])
