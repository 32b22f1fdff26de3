"""Tests of the log: against tables of scipy, all permutations of a small log, and logs whose model is known."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import prudent as pr
from prudent.fit import along_scale, log_tests, outcomes_of, replays, surprise
from prudent.fit.permutations import Cells, by_group, by_run, by_slopes, by_table, by_trend, chance, telling
from prudent.fit.testing import LogTest, _adjusted
from prudent.problems import fit_of
from prudent.tables import Keeper, Names, Rows, count_log

from .report_examples import Page, drawn

ROWS = np.random.default_rng(0)
WHICH = ROWS.integers(0, 3, 60)
LABEL, GROUP, SCALE = ROWS.integers(0, 3, 60), ROWS.integers(0, 4, 60), ROWS.normal(size=60)
CELLS, AS_IS = Cells(WHICH, LABEL, LABEL.astype(float)), np.arange(60)


def pearson(labels, groups):
    return stats.chi2_contingency(pd.crosstab(labels, groups), correction=False).statistic


def test_the_statistic_of_tables_is_pearsons_plus_the_rows():
    whole = sum(pearson(LABEL[np.equal(WHICH, c)], GROUP[np.equal(WHICH, c)]) for c in range(3))
    assert by_table(CELLS, GROUP)(AS_IS) == pytest.approx(whole + 60)
    order = AS_IS[::-1]
    # Exchanged rows are in other cells' places here, so only within one cell can it be compared.
    one = Cells(np.zeros(60, int), LABEL, None)
    assert by_table(one, GROUP)(order) == pytest.approx(pearson(LABEL[order], GROUP) + 60)


def test_the_other_statistics_are_what_they_say():
    cells = Cells(np.zeros(60, int), LABEL, LABEL.astype(float))
    value = LABEL - LABEL.mean()
    assert by_trend(cells, SCALE)(AS_IS) == pytest.approx(abs(np.cov(LABEL, SCALE)[0, 1] * 59))
    slopes = [np.corrcoef(np.equal(LABEL, y), SCALE)[0, 1] ** 2 * (1 - (np.equal(LABEL, y)).mean()) for y in range(3)]
    assert by_slopes(cells, SCALE)(AS_IS) == pytest.approx(sum(slopes))
    between = sum(value[np.equal(GROUP, g)].sum() ** 2 / (np.equal(GROUP, g)).sum() for g in range(4))
    assert by_group(cells, GROUP)(AS_IS) == pytest.approx(between)
    assert by_run(cells, np.arange(-1, 59))(AS_IS) == pytest.approx(abs(value[1:] @ value[:-1]))


def test_the_p_value_is_that_of_all_exchanges():
    label, scale = np.array([0.0, 1.0, 1.0, 2.0, 0.0, 5.0]), np.array([0.1, 0.2, 0.4, 0.5, 0.9, 1.0])
    cells = Cells(np.array([0, 0, 0, 0, 1, 1]), label.astype(int), label)
    statistic = by_trend(cells, scale)
    every = [
        statistic(np.array([*first, *last]))
        for first in itertools.permutations(range(4))
        for last in itertools.permutations((4, 5))
    ]
    larger, same = (
        np.mean(np.array(every) > statistic(np.arange(6)) + 1e-9),
        np.mean(np.abs(np.array(every) - statistic(np.arange(6))) <= 1e-9),
    )
    found = np.mean([chance(cells.cell, [statistic], 399, np.random.default_rng(k)) for k in range(20)])
    # A tie is broken at random, so that on average half of those as large count.
    assert found == pytest.approx(larger + same / 2, abs=0.02)


def test_rows_that_cannot_tell_are_left_out():
    cells = Cells(np.array([0, 0, 1, 1, 2]), np.array([0, 1, 0, 0, 0]), None)
    assert telling(cells, np.arange(5)).tolist() == [True, True, False, False, False]
    assert telling(cells, np.zeros(5, int)).tolist() == [False] * 5


def test_holm_has_all_questions_in_mind():
    tests = [LogTest(name, p, None, 50) for name, p in zip("abcd", (0.04, 0.01, None, 0.03), strict=True)]
    adjusted = [test.adjusted for test in _adjusted(tests)]
    assert adjusted[2] is None
    np.testing.assert_allclose([adjusted[0], adjusted[1], adjusted[3]], [0.06, 0.03, 0.06])


def walk(seed, steps=400, order=0.0, drift=0.0, units=1, unit=0.0, hidden=0.0):
    """A log of four states and two actions; 0 everywhere is a log that the model is right of."""
    generator = np.random.default_rng(seed)
    plain, after, late = generator.dirichlet(np.full(4, 0.5), size=(3, 4, 2))
    own = generator.dirichlet(np.full(4, 0.5), size=(units, 4, 2))
    rows, each = [], steps // units
    for u in range(units):
        state, came, mood = 0, 0, 0.0
        for t in range(each):
            action = int(generator.integers(2))
            row = (1 - order) * plain[state, action] + order * (after if came < 2 else late)[state, action]
            row = (1 - drift * t / each) * row + drift * t / each * late[state, action]
            row = (1 - unit) * row + unit * own[u, state, action]
            then = int(generator.choice(4, p=row / row.sum()))
            mood = 0.9 * mood + generator.normal()
            rows.append((state, action, then, state + generator.normal() + hidden * mood, u, t))
            came, state = state, then
    names = ("state", "action", "next_state", "cost", "unit", "time")
    return pd.DataFrame(rows, columns=names)


def kept(frame):
    keeper = Keeper()
    count_log([frame], Names("state", 4), Names("action", 2), keep=keeper)
    return keeper.rows()


@pytest.mark.parametrize(
    ("wrong", "name"),
    [({"order": 0.8}, "order"), ({"drift": 1.0}, "time"), ({"unit": 0.7}, "unit"), ({"hidden": 1.0}, "cost")],
)
def test_what_is_wrong_with_a_log_is_found(wrong, name):
    rows = kept(walk(1, units=8, **wrong))
    found = {test.name: test for test in log_tests(rows, outcomes_of(rows, True), exchanges=199)}
    assert found[name].fails, found[name]
    assert found[name].strength > 0.0


def test_a_log_of_the_model_passes_and_the_same_seed_gives_the_same_bits():
    rows = kept(walk(2, units=8))
    tests = log_tests(rows, outcomes_of(rows, True), seed=3, exchanges=99)
    assert not any(test.fails for test in tests)
    assert tests == log_tests(rows, outcomes_of(rows, True), seed=3, exchanges=99)


def test_a_log_that_is_too_thin_or_has_no_order_says_so():
    thin = kept(walk(0, steps=20))
    assert "too few" in log_tests(thin, outcomes_of(thin, True))[0].reason
    shuffled = kept(walk(0).sample(frac=1.0, random_state=0).drop(columns=["unit", "time"]))
    assert "do not follow" in log_tests(shuffled, outcomes_of(shuffled, True))[0].reason
    counted = kept(walk(0).assign(count=2))
    assert all("no order" in test.reason for test in log_tests(counted, outcomes_of(counted, True)))
    alike = kept(walk(0).assign(cost=1.0).drop(columns="unit"))
    reasons = {test.name: test.reason for test in log_tests(alike, outcomes_of(alike, True), exchanges=9)}
    assert "no column unit" in reasons["unit"] and "the same whenever" in reasons["cost"]


def test_units_and_times_put_rows_in_order_and_dates_are_times():
    frame = walk(0, steps=40, units=4)
    dates = pd.Timestamp("2020-01-01") + pd.to_timedelta(frame.time, unit="D")
    for column in (frame.time, frame.time.astype(float), dates, dates.dt.strftime("%Y-%m-%d")):
        mixed = frame.assign(time=column, unit="u" + frame.unit.astype(str)).sample(frac=1.0, random_state=1)
        rows = kept(mixed)
        assert rows.units[rows.unit[0]] == mixed.unit.iloc[0]
        assert (rows.previous() >= 0).sum() == 36
    odd = kept(frame.assign(time="soon"))
    assert odd.time is None and len(odd) == 40
    assert kept(frame.assign(unit=[None, *frame.unit[1:]])).unit is None


def test_the_belief_foretells_what_it_has_learned_and_not_what_it_has_not():
    log = walk(4, steps=600)
    read = pr.read_log(log, states=4, actions=2)
    support = pr.Support.dense(4, 2)
    belief = pr.Dirichlet.symmetric(support).update(read.transitions)
    model = pr.TabularFamily(support, np.zeros((4, 2)), 0, 0.9)
    scale = along_scale(np.broadcast_to(np.arange(4.0), (4, 2, 4)))
    for measure in (scale, surprise):
        drawn = replays(model, belief, *(log[c].to_numpy() for c in ("state", "action", "next_state")), measure)
        band = drawn.band(np.arange(600) // 30, {k: str(k) for k in range(20)})
        assert band.outside <= 6
        # Under a belief without data the same steps lie outside.
        far = replays(
            model,
            pr.Point(np.tile([0.0, 0.0, 0.0, 1.0], (4, 2, 1))),
            *(log[c].to_numpy() for c in ("state", "action", "next_state")),
            measure,
        ).band(np.arange(600) // 30, {k: str(k) for k in range(20)})
        assert far.outside == 20


PROBLEM = 'discount = 0.9\nstart = "0"\nstates = 4\nactions = 2\n[data]\ntransitions = "log.csv"\n'


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit")
    walk(1, units=8, order=0.8).to_csv(folder / "log.csv", index=False)
    (folder / "problem.toml").write_text(PROBLEM, encoding="utf-8")
    return folder / "problem.toml"


def test_check_says_it_in_words_and_in_json(problem):
    from typer.testing import CliRunner

    from prudent.cli import app

    said = CliRunner().invoke(app, ["check", str(problem)])
    assert said.exit_code == 0, said.output
    assert "is the state enough?" in said.output and "Time is the column time." in said.output
    found = json.loads(CliRunner().invoke(app, ["check", str(problem), "--json"]).stdout)["fit"]
    assert [test["name"] for test in found["tests"]] == ["order", "time", "unit", "cost"]
    assert found["tests"][0]["fails"] and found["tests"][0]["p"] <= 0.01
    assert "depends on the step before" in found["tests"][0]["answer"]


QUICK = {
    "solver.iterations": 1,
    "solver.samples": 16,
    "solver.evaluation": 50,
    "solver.starts": 1,
    "solver.largest": 16,
}


def test_the_page_shows_questions_and_bands_and_a_run_goes_on_with_them(problem):
    run = pr.solve_problem(problem, problem.parent / "run", changes=QUICK, progress=False)
    fit = run.record.fit
    assert fit.tests[0].fails and {band.name for band in fit.bands} == {"time", "unit", "order"}
    page = (run.folder / "report.html").read_text(encoding="utf-8")
    assert all(drawn(figure).data for figure in Page(page).figures)
    assert 'id="fit"' in page and "Steps by what came before" in page
    assert pr.continue_run(run.folder, iterations=1, report=False).record.fit == fit


def test_rows_that_share_a_law_are_tested_as_one(tmp_path):
    generator = np.random.default_rng(0)
    inflow = np.where(np.arange(90) < 45, generator.integers(0, 2, 90), generator.integers(1, 3, 90))
    rows, stock = [], 0
    for t, water in enumerate(inflow):
        use = min(stock, 1)
        rows.append((stock, use, min(stock - use, 3) + water, t))
        stock = rows[-1][2]
    pd.DataFrame(rows, columns=["state", "action", "next_state", "time"]).to_csv(tmp_path / "log.csv", index=False)
    moves = [(s, a, w, min(max(s - a, 0), 3) + w) for s in range(6) for a in range(2) for w in range(3)]
    pd.DataFrame(moves, columns=["state", "action", "outcome", "next_state"]).to_csv(
        tmp_path / "outcomes.csv", index=False
    )
    (tmp_path / "problem.toml").write_text(
        'discount = 0.9\nstart = "0"\nstates = 6\nactions = 2\n[data]\ntransitions = "log.csv"\ndefault_cost = 1.0\n'
        '[posterior]\nkind = "outcomes"\noutcomes = "outcomes.csv"\n',
        encoding="utf-8",
    )
    fit = fit_of(pr.read_problem(tmp_path / "problem.toml"))
    found = {test.name: test for test in fit.tests}
    assert found["time"].fails and found["time"].rows == 90
    assert fit.bands["order"].labels == ("0", "1", "2")


def test_rows_keep_their_record():
    rows = Rows(*np.zeros((3, 2), int), None, None, None)
    assert len(rows) == 2 and rows.sorted() is rows
