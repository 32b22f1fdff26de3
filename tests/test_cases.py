"""The real cases: the data as their sources have them, closed forms and replays against plain code, problem files."""

import numpy as np
import pytest
from typer.testing import CliRunner

import prudent as pr
from prudent.cases import bus, bus_held_out, hiv, nile, summary, table_rows
from prudent.cases.held_out import HeldOutOutcome, column, resampled, splits_of
from prudent.cli import app

from .marks import short
from .test_docs import fences, run_page

FLEET = bus.buses()
PATIENTS = hiv.patients()


def test_the_buses_are_those_of_the_paper():
    assert len(FLEET) == 162 and sum(int(each.replaced.sum()) for each in FLEET) == 124
    group_4 = [each for each in FLEET if each.model == "a530875"]
    assert len(group_4) == 37 and sum(len(each.miles) for each in group_4) == 4292
    for each in FLEET:
        # Miles run on, but for the months in which the engine is new.
        on = ~each.replaced
        assert np.array_equal((each.then - each.miles)[on], each.driven[on])
        assert np.all(each.then[each.replaced] <= each.driven[each.replaced])
        assert np.array_equal(each.miles[1:], each.then[:-1])


def thresholds_by_matrices(theta, step, discount=bus.DISCOUNT):
    """The loss of replacing from a step on, by a linear system of all states."""
    chain, paid = np.zeros((bus.STATES, bus.STATES)), np.zeros(bus.STATES)
    for state in range(bus.STATES):
        new = state >= step
        paid[state] = bus.REPLACEMENT if new else 0.001 * theta[4] * state
        for gain in range(bus.GAINS):
            chain[state, min((0 if new else state) + gain, bus.STATES - 1)] += theta[gain]
    return np.linalg.solve(np.eye(bus.STATES) - discount * chain, paid)[0]


# On the last two BiCGSTAB's own residual parts from the true one by many orders of magnitude.
LAWS = [
    [0.5, 0.45, 0.04, 0.01, 2.6],
    [0.473906845, 0.526093154, 5.37e-10, 4.7e-77, 2.93],
    [0.37, 0.63, 3e-15, 0.0, 3.4],
]


def test_thresholds_have_the_losses_of_the_whole_model():
    thetas = np.array(LAWS)
    thetas[:, :4] /= thetas[:, :4].sum(axis=1, keepdims=True)
    found = bus_held_out.threshold_losses(thetas)
    for step in (1, 40, 66):
        plain = [thresholds_by_matrices(theta, step) for theta in thetas]
        np.testing.assert_allclose(found[:, step - 1], plain, rtol=1e-10)
    model, _ = bus.fleet()
    policy = np.eye(2)[(np.arange(bus.STATES) >= 66).astype(int)]
    judged = pr.evaluate(pr.TabularPolicy(policy), model, pr.Draws(thetas))
    np.testing.assert_allclose(judged.losses, found[:, 65], rtol=1e-6)


def test_a_bus_is_replayed_month_by_month():
    steps, paid = bus_held_out.bus_replays(FLEET[:2])
    miles, ran, new = 0.0, 0.0, 0.0
    for month in range(int(np.ceil(np.log(1e-4) / np.log(bus.DISCOUNT)))):
        if miles >= 50 * bus.STEP:
            new, miles = new + bus.DISCOUNT**month, 0.0
        else:
            ran += bus.DISCOUNT**month * (miles // bus.STEP)
        miles += FLEET[1].driven[month % len(FLEET[1].driven)]
    np.testing.assert_allclose([steps[1, 49], paid[1, 49]], [ran, new], rtol=1e-10)


def test_buses_that_are_more_alike_have_a_larger_concentration():
    generator = np.random.default_rng(0)
    alike, unlike = (
        np.array([generator.multinomial(100, generator.dirichlet(weight * np.full(4, 0.25))) for _ in range(60)], float)
        for weight in (200.0, 8.0)
    )
    assert bus.concentration(unlike) == pytest.approx(8.0, rel=0.4) and bus.concentration(alike) > 80.0


def test_the_belief_of_buses_is_that_of_their_counts():
    _, prior = bus.fleet()
    log = pr.read_log(
        __import__("pandas").DataFrame(
            bus.log_of(FLEET[:20]), columns=["unit", "time", "action", "state", "next_state"]
        ),
        states=bus.STATES,
        actions=["keep", "replace"],
    )
    after = prior.update(log.transitions)
    gains = np.concatenate(
        [each.then // bus.STEP - np.where(each.replaced, 0, each.miles // bus.STEP) for each in FLEET[:20]]
    )
    assert np.array_equal(after.counts, np.bincount(gains, minlength=4))
    draws = after.draw(np.random.default_rng(0), 20_000)
    np.testing.assert_allclose(draws.mean(axis=0), after.mean(), rtol=0.02, atol=1e-4)
    assert draws[:, 4].std() == pytest.approx(bus.GROWTH_ERROR, rel=0.05)
    own = bus.believed(FLEET, prior, True)
    np.testing.assert_allclose(own.draw(np.random.default_rng(0), 4000).mean(axis=0), own.mean(), rtol=0.05, atol=0.01)
    with pytest.raises(pr.InputError, match="tell buses apart"):
        own.update(log.transitions)


def test_the_nile_broke_in_1899():
    years, inflow = nile.inflows()
    volume = column("nile.csv", "volume")
    assert len(years) == 100 and years[nile.BEFORE_THE_BREAK] == 1899
    assert volume[: nile.BEFORE_THE_BREAK].mean() == pytest.approx(1097.75) and volume[28:].mean() < 850.0
    rows = nile.log_of(years, inflow)
    # The log of letting the demand through tells every inflow.
    left = [then - nile.kept(state, nile.RELEASES.index(release)) for _, state, release, then in rows]
    assert np.array_equal(left, inflow)


def test_costs_and_replays_of_the_reservoir_by_hand():
    cost = nile.costs()
    # Of 6 asked for there are 5, 4 below the demand.
    assert cost[5, 0] == 16.01 and cost[15, nile.RELEASES.index(9)] == 0.0
    # 27 at hand and 6 let through: 12 stay, 9 more run, 15 in all are 3 above the banks.
    assert cost[27, 0] == 9.0 + 2.0 * 9.0
    inflow = np.array([8, 11, 6, 14, 9])
    table = np.eye(len(nile.RELEASES))[np.clip(np.arange(nile.STATES) // 3, 0, 6)]
    found = nile.replayed(table, inflow)
    for first in range(5):
        state, total = nile.START, 0.0
        for step in range(200):
            action = int(np.argmax(table[state]))
            total += nile.DISCOUNT**step * cost[state, action]
            state = nile.kept(state, action) + inflow[(first + step) % 5]
        assert found[first] == pytest.approx(total, rel=2e-3)


def test_the_patients_are_those_of_the_trial():
    assert len(PATIENTS) == 2139 and np.isnan(column("hiv.csv", "week96")).sum() == 797
    assert np.bincount(PATIENTS.arm).tolist() == [532, 522, 524, 561]
    assert (PATIENTS.outcome == -1).sum() == 665 and (PATIENTS.outcome == hiv.EVENT).sum() == 322


def test_means_by_arm_are_those_of_the_patients_and_bounds_hold_them():
    plain, low, high = (hiv.means_by_arm(PATIENTS, lost) for lost in (None, 0.0, 1.0))
    assert np.all((low < plain) & (plain < high))
    mine = (PATIENTS.before == 1) & (PATIENTS.arm == 2)
    cost = [1.0 if outcome < 0 else hiv.COSTS[outcome] for outcome in PATIENTS.outcome[mine]]
    assert high[1, 2] == pytest.approx(hiv.DISCOUNT * np.mean(cost))
    # Without any loss, weights are 1 and the three agree.
    told = PATIENTS.only(PATIENTS.outcome >= 0)
    np.testing.assert_allclose(hiv.means_by_arm(told), hiv.means_by_arm(told, 0.7))
    always = np.eye(hiv.ARMS)[np.full(hiv.STATES, 1)]
    share = np.bincount(told.before) / len(told)
    assert hiv.value(always, told) == pytest.approx(float(share @ hiv.means_by_arm(told)[:, 1]))


@pytest.mark.parametrize("name", ["bus", "nile", "hiv"])
def test_a_case_is_a_problem_file_with_the_belief_that_it_has_in_python(name, tmp_path):
    written = pr.write_case(name, tmp_path)
    assert "icence" in written[-1].read_text(encoding="utf-8") or "ublic domain" in written[-1].read_text(
        encoding="utf-8"
    )
    case = pr.read_problem(written[0], trust=True)
    belief = case.arguments()["belief"]
    # What pairs share is one unknown, called by its law.
    names = list(case.unknowns(np.shape(belief.mean())))
    assert (
        names[:2]
        == {
            "bus": ["0 miles a month", "5,000 miles a month"],
            "nile": ["P(outcome 4)", "P(outcome 5)"],
            "hiv": ["P(start: below 250, zdv → below 250)", "P(start: below 250, zdv → 250 to 349)"],
        }[name]
    )
    assert len(names) == {"bus": 5, "nile": 12, "hiv": 16 * 4 + 16 * 5}[name]
    if name == "bus":
        assert belief.counts.sum() == sum(len(each.miles) for each in FLEET)
        assert case.facts.rows.unit.max() == 161
    if name == "nile":
        _, python = nile.reservoir(nile.inflows()[1])
        np.testing.assert_allclose(belief.mean(), python.mean())
        np.testing.assert_allclose(case.cost, nile.costs())
    if name == "hiv":
        model, prior = hiv.model_of(PATIENTS.before)
        python = hiv.believed(prior, PATIENTS).mean()
        expected = (python * np.asarray(model.costs)).sum(axis=2)[: hiv.LAST]
        np.testing.assert_allclose((belief.mean() * case.cost).sum(axis=2)[: hiv.LAST], expected, atol=1e-12)
        np.testing.assert_allclose(case.start, model.start, atol=1e-6)
    with pytest.raises(pr.InputError, match="is there already"):
        pr.write_case(name, tmp_path)


def test_tables_of_what_became_of_plans():
    outcomes = [
        HeldOutOutcome("p", split, plan, 1.0, risk, loss, loss - 1, loss + 1, np.nan, "r")
        for split, (plan, risk, loss) in enumerate([("cautious", 3.0, 2.0), ("mean", 2.0, 2.5)] * 2)
        for split in [split // 2]
    ]
    rows = summary(outcomes)
    assert [row.splits for row in rows] == [2, 2] and rows[1].apart == 0.5 and rows[1].kept == 0.0
    heads, cells = table_rows(rows, tails=False)
    assert len(heads) == len(cells[0]) and cells[1][-1] == "0 of 2"
    low, high = resampled(np.zeros(200), lambda picked: float((picked % 2).mean()), 0)
    assert 0.40 < low < 0.5 < high < 0.60
    for part, rest in splits_of(20, 5, 3, 0):
        assert sorted([*part, *rest]) == list(range(20)) and len(part) == 5


def test_the_command_refuses_what_it_does_not_know_and_writes_without_solving(tmp_path):
    said = CliRunner().invoke(app, ["case", "tram", "--out", str(tmp_path)])
    assert said.exit_code == 2 and "there are bus, nile, hiv" in said.output
    said = CliRunner().invoke(app, ["case", "nile", "--out", str(tmp_path), "--write-only"])
    assert said.exit_code == 0 and (tmp_path / "outcomes.csv").exists()


@pytest.mark.long
@pytest.mark.parametrize("name", ["bus", "nile", "hiv"])
def test_a_case_ends_in_a_report_and_a_table(name, tmp_path):
    said = CliRunner().invoke(app, ["case", name, "--out", str(tmp_path / name), "--splits", "1"])
    assert said.exit_code == 0, said.output
    assert (tmp_path / name / "run" / "report.html").exists() and "risk-neutral" in said.output
    assert len((tmp_path / name / "held-out.csv").read_text(encoding="utf-8").splitlines()) > 10


@pytest.mark.parametrize("name", short(["nile"], ["bus", "nile", "hiv"]))
def test_the_page_of_a_case_runs(name):
    assert run_page(fences(f"docs/case-{name}.md"))
