"""Rows that learn from one another."""

import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import gamma, kstest

import prudent as pr
from prudent.posteriors.learning import EVEN, EXPECTED, CountedRows, _chances, likely_grid
from prudent.posteriors.pooled import _gamma
from prudent.posteriors.pools import pools_of
from prudent_studies.known import known_environment

# Successor lists of several lengths, not in order, with a row that has no choice.
RAGGED = pr.Support.lists([[[2, 0, 1], [1]], [[0, 1], [2, 1]], [[2, 1], [0, 2, 1]]])
DENSE = pr.Support.dense(4, 2)
SUPPORTS = pytest.mark.parametrize("support", [RAGGED, DENSE], ids=["ragged", "dense"])


def records_of(support: pr.Support, n: int) -> np.ndarray:
    random = np.random.default_rng(3)
    state, action = random.integers(support.states, size=n), random.integers(support.actions, size=n)
    length = support.allowed().sum(axis=2)[state, action]
    return np.stack([state, action, support.index()[state, action, random.integers(length)]], axis=1)


def log_of(support: pr.Support, records: np.ndarray) -> pr.Transitions:
    return pr.Transitions.from_records(records, states=support.states, actions=support.actions)


def belief_of(support: pr.Support, n: int) -> pr.Pooled:
    return pr.Pooled(support).update(log_of(support, records_of(support, n)))


# ---------------------------------------------------------------- the belief


@SUPPORTS
@pytest.mark.parametrize("n", [0, 1, 30])
def test_draws_are_distributions_on_the_support(support, n):
    belief = pr.Pooled(support) if n == 0 else belief_of(support, n)
    for drawn in (belief.sample(0, 200), pr.Sobol(belief).sample(0, 64), belief.mean()[None]):
        assert drawn.dtype == np.float64 and np.all(drawn >= 0.0)
        np.testing.assert_allclose(drawn.sum(axis=-1), 1.0, rtol=0, atol=1e-12)
        assert np.all(drawn[:, ~support.allowed()] == 0.0)


@SUPPORTS
def test_updated_one_by_one_in_any_order_equals_one_batch_bit_for_bit(support):
    records = records_of(support, 60)
    batch = pr.Pooled(support).update(log_of(support, records))
    for order in (np.arange(60)[::-1], np.random.default_rng(1).permutation(60)):
        belief = pr.Pooled(support)
        for part in np.array_split(records[order], 5):
            belief = belief.update(log_of(support, part))
        assert belief.counts.tobytes() == batch.counts.tobytes()
        assert belief.mean().tobytes() == batch.mean().tobytes()
        assert belief.sample(1, 5).tobytes() == batch.sample(1, 5).tobytes()


def test_the_fit_is_a_function_of_the_counts():
    first = belief_of(DENSE, 40)
    again = pr.Pooled(DENSE, first.counts)
    assert first.learned.weights.tobytes() == again.learned.weights.tobytes()
    for one, other in zip(first.learned.laws, again.learned.laws, strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("n", [1, 40])
def test_the_mean_is_that_of_draws_and_of_points_of_the_cube(n):
    belief = belief_of(DENSE, n)
    drawn = belief.sample(0, 20_000)
    error = drawn.std(axis=0) / np.sqrt(len(drawn))
    assert np.all(np.abs(drawn.mean(axis=0) - belief.mean()) < 4.5 * error + 1e-4)
    uniforms = np.random.default_rng(2).random((4000, belief.uniform_dimension))
    inverted = belief.from_uniform(uniforms)
    error = inverted.std(axis=0) / np.sqrt(len(inverted))
    assert np.all(np.abs(inverted.mean(axis=0) - belief.mean()) < 4.5 * error + 1e-4)
    for level in (0.01, 0.1, 0.5, 0.9):
        np.testing.assert_allclose((inverted > level).mean(axis=0), (drawn > level).mean(axis=0), rtol=0, atol=0.035)


def test_many_counts_leave_their_frequencies():
    frequency = np.random.default_rng(0).dirichlet(np.ones(4), size=(4, 2))
    belief = pr.Pooled(DENSE, 1e6 * frequency)
    np.testing.assert_allclose(belief.sample(0, 50), np.broadcast_to(frequency, (50, 4, 2, 4)), rtol=0, atol=5e-3)
    np.testing.assert_allclose(belief.maximum_likelihood(), frequency, rtol=0, atol=1e-12)


def test_a_pair_never_seen_does_what_the_others_do():
    log = pr.Transitions.from_records([(s, 0, s + 1) for s in (0, 1, 2, 4, 5)] * 4, states=7, actions=1)
    mean = pr.Pooled(pr.Support.dense(7, 1)).update(log).mean()
    assert mean[3, 0, 4] > 0.4 > 3 * np.delete(mean[3, 0], 4).max()
    # On a grid of one column more a step on is another state.
    rows = [(0, 0, 3), (1, 0, 4), (2, 0, 5)] * 4
    grid = pr.Pooled(pr.Support.dense(9, 1), grid=(3, 3)).update(pr.Transitions.from_records(rows, states=9, actions=1))
    assert grid.mean()[4, 0].argmax() == 7


# ---------------------------------------------------------------- the fit


def test_the_likelihood_of_a_row_is_that_of_drawing_one_observation_after_another():
    random = np.random.default_rng(5)
    counts = random.integers(0, 5, size=(6, 4)) * 1.0
    counts[2] = 0.0
    rows, base = CountedRows.of(counts), random.dirichlet(np.ones(4), size=6)
    for concentration in (0.5, 8.0):
        urn = np.zeros(6)
        for row, successors in enumerate(counts.astype(int)):
            balls = concentration * base[row]
            for successor in np.repeat(np.arange(4), successors):
                urn[row] += np.log(balls[successor] / balls.sum())
                balls[successor] += 1.0
        ours = rows.log_likelihood(concentration * base.ravel()[rows.place], concentration)
        np.testing.assert_allclose(ours, urn, rtol=1e-12, atol=1e-12)
        # The closed form over all entries, seen or not.
        shape = concentration * base
        whole = gammaln(concentration) - gammaln(concentration + counts.sum(axis=1))
        np.testing.assert_allclose(ours, whole + (gammaln(shape + counts) - gammaln(shape)).sum(axis=1), atol=1e-12)


@SUPPORTS
def test_a_row_is_foretold_by_the_others_only(support):
    counts = np.asarray(belief_of(support, 40).counts).reshape(-1, support.successors)
    rows = CountedRows.of(counts)
    for pool in pools_of(support, counts, (support.states,)):
        law = EXPECTED * pool.first + pool.happened(pool.first, rows.place, rows.count)
        predicted = rows.predicted_law(pool, law, rows.count)
        for row in np.flatnonzero(rows.seen):
            others = np.where(rows.row == row, 0.0, rows.count)
            base = pool.base(EXPECTED * pool.first + pool.happened(pool.first, rows.place, others))[row]
            wanted = (base / base.sum()).ravel()[rows.place[rows.row == row] % support.successors]
            np.testing.assert_allclose(predicted[rows.row == row], wanted, rtol=1e-6, atol=1e-6)


def test_a_row_without_counts_has_the_chances_of_all():
    counts = np.asarray(belief_of(DENSE, 40).counts).copy()
    counts[2, 1] = 0.0
    learned = pr.Pooled(DENSE, counts).learned
    np.testing.assert_allclose(learned.weights.sum(axis=(1, 2)), 1.0, rtol=1e-12)
    kept, average = learned.weights[5].ravel()[learned.kinds] > 0, learned.chances.mean(axis=0)
    wanted = np.where(kept, average, 0.0) / average[kept].sum()
    np.testing.assert_allclose(learned.weights[5].ravel()[learned.kinds], wanted, rtol=1e-5, atol=1e-6)


def test_chances_of_kinds_are_drawn_from_their_posterior():
    # Two kinds and three rows, by brute force: all kinds of the rows, each with its Dirichlet.
    scaled = np.array([[1.0, 0.2], [1.0, 0.5], [0.1, 1.0]])
    mean, square, whole = np.zeros(2), np.zeros(2), 0.0
    for kinds in np.ndindex(2, 2, 2):
        shape = EVEN + np.bincount(kinds, minlength=2)
        weight = np.prod(scaled[range(3), kinds]) * np.exp(gammaln(shape).sum() - gammaln(shape.sum()))
        share = shape / shape.sum()
        mean, whole = mean + weight * share, whole + weight
        square += weight * share * (shape + 1.0) / (shape.sum() + 1.0)
    drawn = np.concatenate([_chances(scaled, np.full(2, 0.5), seed) for seed in range(60)])
    deviation = np.sqrt(square / whole - (mean / whole) ** 2)
    np.testing.assert_allclose(drawn.mean(axis=0), mean / whole, rtol=0, atol=0.02)
    np.testing.assert_allclose(drawn.std(axis=0), deviation, rtol=0, atol=0.02)


def test_rows_of_one_draw_share_the_chances_of_their_kinds():
    # Nothing is known of any row: with chances at a point the kinds of two rows would be independent.
    learned = pr.Pooled(DENSE).learned
    random = np.random.default_rng(4)
    kinds = learned.drawn(random.random(4000), random.random((4000, 8), dtype=np.float32))
    alike = (kinds[:, 0] == kinds[:, 1]).mean()
    # Two rows of Dirichlet(EVEN, ..., EVEN) chances of 30 kinds: (EVEN + 1) / (30 EVEN + 1); of even ones: 1 / 30.
    assert alike == pytest.approx((EVEN + 1.0) / (30.0 * EVEN + 1.0), abs=0.03)


# ---------------------------------------------------------------- with the rest of the library

# Failing costs 100 and is mended at once; the shortcut was taken once, and went well.
SHORTCUT = pr.Transitions.from_records([(0, 0, 0), (0, 1, 0)], states=2, actions=2, count=[500, 1])
COSTS = [[2.0, 1.0], [100.0, 100.0]]
SOLVER = pr.SampleAverage(samples=64, largest=64, starts=2, evaluation=512)


POSSIBLE = pr.Support.lists([[[0, 1], [0, 1]], [[0], [0]]])


def solved(belief: pr.Posterior) -> pr.Solution:
    return pr.solve(pr.TabularFamily(POSSIBLE, COSTS, 0, 0.95), belief, solver=SOLVER)


def test_a_pair_seen_once_is_no_certainty():
    # Without weight on what was not seen, as a problem file has it by default.
    observed = np.zeros(POSSIBLE.shape)
    observed[..., 0] = 1.0
    certain = solved(pr.Dirichlet(POSSIBLE, observed, np.zeros(POSSIBLE.shape)).update(SHORTCUT))
    assert certain.policy.probabilities[0, 1] > 0.999
    assert certain.risk == pytest.approx(20.0, abs=1e-3) and certain.risk_standard_error < 1e-9
    belief = pr.Pooled(POSSIBLE).update(SHORTCUT)
    assert 0.01 < belief.mean()[0, 1, 1] < 0.5 and belief.mean()[0, 0, 1] < 1e-3
    careful = solved(belief)
    assert careful.policy.probabilities[0, 1] < 0.5
    assert careful.status.ok and careful.risk_standard_error > 0.0
    # By hand: V = cost + 0.95 (failing (100 + 0.95 V) + (1 - failing) V), with the safe action and with the shortcut.
    failing = careful.thetas[:, 0, :, 1]
    losses = (np.array(COSTS[0]) + 95.0 * failing) / (1.0 - 0.95 * (1.0 - failing) - 0.95**2 * failing)
    # The worst tenth of 512 draws: 51 of them, and a fifth of the next.
    worst = [np.sort(loss)[-52:] for loss in (losses[:, 0], losses.min(axis=1))]
    by_hand = [(part[1:].sum() + 0.2 * part[0]) / 51.2 for part in worst]
    assert careful.risk == pytest.approx(by_hand[0], rel=1e-6)
    assert careful.certificate.lower_bound == pytest.approx(by_hand[1], rel=1e-6)
    # Sobol points stand for the same belief.
    even = solved(pr.Sobol(belief))
    assert even.risk == pytest.approx(careful.risk, abs=8 * careful.risk_standard_error)


def test_a_run_under_pooled_rows_goes_on_as_if_it_had_not_stopped():
    belief = pr.Pooled(POSSIBLE).update(SHORTCUT)
    model = pr.TabularFamily(POSSIBLE, COSTS, 0, 0.95)
    short, long = (pr.BRPG(samples=8, iterations=n, evaluation=16) for n in (3, 6))
    parts = pr.solve(
        model, belief, solver=short, resume=pr.solve(model, belief, solver=short, certify=False), certify=False
    )
    whole = pr.solve(model, belief, solver=long, certify=False)
    assert parts.policy.probabilities.tobytes() == whole.policy.probabilities.tobytes()


@pytest.mark.long
def test_data_on_what_was_seen_once_are_worth_more_than_on_what_was_seen_often():
    belief = pr.Pooled(POSSIBLE).update(SHORTCUT)
    model = pr.TabularFamily(POSSIBLE, COSTS, 0, 0.95)
    worth = pr.worth_of_data(
        model,
        belief,
        risk=pr.Expectation(),
        observations=200,
        replications=6,
        places=[(0, 0), (0, 1)],
        solver=SOLVER,
    )
    # The shortcut may be safe, and then it is taken; of the safe action all is known.
    assert [row.place for row in worth.rows] == [(0, 1), (0, 0)]
    assert worth.rows[0].worth > 1.0 and worth.rows[1].worth == pytest.approx(0.0, abs=1e-9)


@pytest.mark.long
def test_a_run_under_pooled_rows_goes_on_from_its_folder(tmp_path):
    path = pr.write_example(tmp_path)[0]
    assert 'kind = "pooled"' in path.read_text()
    settings = {"solver.samples": 16, "solver.largest": 16, "solver.evaluation": 50, "solver.tolerance": 0.0}
    whole, half = (
        pr.solve_problem(path, tmp_path / name, report=False, changes=settings | {"solver.iterations": n})
        for name, n in (("whole", 4), ("half", 2))
    )
    on = pr.continue_run(half.folder, iterations=2, report=False)
    assert isinstance(pr.read_problem(path).arguments()["belief"], pr.Pooled)
    assert (on.folder / "policy.csv").read_bytes() == (whole.folder / "policy.csv").read_bytes()
    assert on.solution.risk == whole.solution.risk and on.solution.iterations == whole.solution.iterations


@pytest.mark.parametrize(("name", "grid"), [("lake_8x8", (8, 8)), ("cliff", (4, 12)), ("river_swim", (8,))])
def test_the_grid_is_learned_from_the_moves(name, grid):
    known = known_environment(name)
    ends = set(known.terminal)
    states, actions = known.shape
    lists = [[[s] if s in ends else list(range(states))] * actions for s in range(states)]
    support = pr.Support.lists(lists)
    log = known.walk(500, seed=3)
    counts = pr.Dirichlet.symmetric(support).update(log).counts
    assert likely_grid(support, np.asarray(counts)) == grid


def test_gamma_variates_have_their_law():
    for shape in (0.02, 0.3, 0.9, 1.0, 1.2, 4.0):
        drawn = _gamma(np.random.default_rng(0), np.full((200_000,), shape, np.float32)).astype(float)
        # Those that may vanish are all together.
        some, law = drawn[drawn > 1e-3], gamma(shape)
        below = law.cdf(1e-3)
        assert np.mean(drawn <= 1e-3) == pytest.approx(below, abs=4.5 * np.sqrt(below / len(drawn)) + 1e-4)
        assert kstest(some, lambda x, law=law, below=below: (law.cdf(x) - below) / (1.0 - below)).pvalue > 1e-3
        error = np.sqrt(shape / len(drawn))
        assert abs(drawn.mean() - shape) < 4.5 * error + 1e-3 * shape
        assert drawn.var() == pytest.approx(shape, rel=0.08)


def test_gamma_variates_are_never_negative():
    """One in a hundred thousand of those of shape 1 once was, and with it a probability."""
    assert _gamma(np.random.default_rng(0), np.ones(1_000_000, np.float32)).min() >= 0.0


def test_another_support_than_the_models_is_refused():
    model = pr.TabularFamily(pr.Support.lists([[[0], [0]], [[0], [0]]]), COSTS, 0, 0.95)
    for belief in (pr.Pooled(pr.Support.dense(2, 2)), pr.Sobol(pr.Pooled(pr.Support.dense(2, 2)))):
        with pytest.raises(pr.InputError, match="the model and the posterior have different supports"):
            pr.solve(model, belief, solver=SOLVER)


def test_a_box_leaves_padding_alone():
    boxed = pr.WithinBox(belief_of(RAGGED, 40), 1e-3, 1.0).sample(0, 5)
    assert np.all(boxed[:, RAGGED.allowed()] >= 1e-3) and np.all(boxed[:, ~RAGGED.allowed()] == 0.0)


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        (lambda: pr.Pooled([[0, 1]]), "support"),
        (lambda: pr.Pooled(DENSE, np.zeros((4, 2))), r"Pooled counts need the support's shape \(4, 2, 4\)"),
        (lambda: pr.Pooled(DENSE, -np.ones((4, 2, 4))), "Pooled counts must be >= 0"),
        (lambda: pr.Pooled(RAGGED, np.ones((3, 2, 3))), "padding of state 0, action 1"),
        (lambda: pr.Pooled(pr.Support.lists([[[0, 0]], [[0, 1]]])), "state 0, action 0 lists a successor twice"),
        (lambda: pr.Pooled(DENSE, grid=(3, 2)), r"grid \(3, 2\) does not hold the 4 states"),
        (lambda: pr.Pooled(DENSE, grid=(2.5, 2)), "a size of the grid must be a whole number"),
        (lambda: pr.Pooled(DENSE).update(SHORTCUT), "the log is for 2 states"),
        (lambda: pr.Pooled(DENSE).maximum_likelihood(), "8 state-action pairs have no data"),
    ],
)
def test_what_cannot_be_is_refused(attempt, words):
    with pytest.raises(pr.InputError, match=words):
        attempt()
