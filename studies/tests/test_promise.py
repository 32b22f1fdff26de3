"""The study of whether the stated risk is kept."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import prudent as pr
from prudent.cli import app
from prudent_studies import promise as study
from prudent_studies import promise_tables


def record(**changes):
    plain = {"environment": "a", "steps": 500, "candidate": "pooled", "log": 0, "kept": True, "regret": 0.2}
    plain |= {"regret_likelihood": 0.3, "regret_mean": 0.1, "slack": 0.5, "warning": None}
    return plain | changes


def test_rows_are_means_with_their_standard_errors():
    row = promise_tables.summarised("a", "pooled", [record(), record(kept=False, regret=0.4, slack=-0.1)])
    assert (row.logs, row.kept, row.kept_error) == (2, 0.5, pytest.approx(0.5))
    assert row.regret == pytest.approx(0.3) and row.regret_error == pytest.approx(0.1)
    assert row.slack == pytest.approx(0.2) and np.isnan(row.warned) and row.broken_unwarned == 0.5
    words = [record(warning="sound"), record(kept=False, warning="thin"), record(kept=False, warning="sound")]
    row = promise_tables.summarised("a", "pooled", words)
    assert row.warned == 0.0 and row.broken_unwarned == pytest.approx(1 / 3)
    assert promise_tables.summarised("a", "pooled", [record(warning="thin"), record(warning="sound")]).warned == 0.5


def test_short_logs_are_not_in_the_table_of_long_ones():
    tables = promise_tables.tables([record(), record(steps=100, kept=False)])
    assert [row.kept for row in tables["logs of 500 steps or more"]] == [1.0, 1.0]
    assert [row.label for row in tables["all environments"]] == ["500 steps", "100 steps", "all logs"]


def test_every_candidate_holds_what_it_says():
    known = study.environment("river_swim")
    question = study.Question(known, known.walk(60, 1))
    table = np.asarray(known.table)
    for make in study.CANDIDATES.values():
        mean = np.asarray(make(question).mean())
        np.testing.assert_allclose(mean.sum(axis=2), 1.0, atol=1e-12)
    assert np.all((np.asarray(study.CANDIDATES["listed"](question).mean()) > 0) == (table > 0))
    known_rows = np.asarray(study.CANDIDATES["known"](question).mean())
    assert known_rows.shape == study.known_support("river_swim").shape
    seen = question.counts() > 0
    observed = np.asarray(study.CANDIDATES["observed"](question).mean()) > 0
    assert np.all(observed[seen.any(axis=2)] == seen[seen.any(axis=2)])
    assert study.open_support("lake_4x4").allowed()[5, 0].sum() == 1, "a hole is not left"


def test_probes_add_to_what_is_known_what_is_better_or_is_not():
    known, listed = study.environment("machines"), study.known_support("machines")
    values = pr.plan(known.mdp()).values
    both = [np.zeros((*known.shape, known.shape[0]), dtype=bool) for _ in range(3)]
    for possible, support in zip(
        both, (listed, *(study.lucky_support("machines", better) for better in (True, False))), strict=True
    ):
        for s, a, b in np.argwhere(support.allowed()):
            possible[s, a, support.index()[s, a, b]] = True
    least, better, worse = both
    assert np.array_equal(better & worse, least) and np.all(better | worse)
    for s, a, t in np.argwhere(better & ~least):
        assert values[t] < np.asarray(known.table)[s, a] @ values
    question = study.Question(known, known.walk(60, 1))
    for make in study.PROBES.values():
        np.testing.assert_allclose(np.asarray(make(question).mean()).sum(axis=2), 1.0, atol=1e-12)
    assert study.chosen(None, list(study.CANDIDATES), "candidate", list(study.PROBES)) == list(study.CANDIDATES)
    assert study.chosen(["pooled, known or worse"], list(study.CANDIDATES), "candidate", list(study.PROBES))


def test_candidates_are_compared_log_by_log():
    rows = [record(log=k, regret=0.1 * k) for k in range(3)]
    rows += [record(log=k, candidate="known", regret=0.1 * k + (0.1, 0.2, 0.3)[k]) for k in range(3)]
    rows += [record(log=7, candidate="known", regret=5.0), record(log=0, candidate="all", regret=0.0)]
    everywhere, here = promise_tables.differences(rows)
    assert (everywhere.label, here.label, here.candidate, here.first) == ("all logs", "a 500 steps", "known", "pooled")
    assert (here.logs, here.regret, here.error) == (3, pytest.approx(0.2), pytest.approx(0.1 / np.sqrt(3)))
    assert promise_tables.differences([]) == [] == promise_tables.differences(rows[:3])


def test_the_optimum_and_the_losses_are_those_of_the_environment():
    least, uniform = study.truth("river_swim")
    known = study.environment("river_swim")
    mdp = known.mdp()
    assert least == pytest.approx(float(np.asarray(mdp.start) @ pr.plan(mdp).values), rel=1e-9) and least < uniform


def test_a_stopped_study_goes_on_and_prints(tmp_path, monkeypatch):
    calls = []

    def quick(name, size, candidate, log, seed, full):
        calls.append((name, size, candidate, log))
        numbers = {"stated": 2.0 + full * (log + 1), "stated_error": 2.0, "full": full}
        return record(environment=name, steps=size, candidate=candidate, log=log, **numbers)

    monkeypatch.setattr(study, "promise", quick)
    folder = str(tmp_path / "study")
    arguments = ["promise", "--environments", "river_swim", "--candidates", "pooled", "--sizes", "500", "--out", folder]
    assert CliRunner().invoke(app, [*arguments, "--replications", "2"]).exit_code == 0
    result = CliRunner().invoke(app, [*arguments, "--replications", "3"])
    assert result.exit_code == 0 and "3 of 3 solved" in result.output and len(calls) == 3
    assert len(json.loads((tmp_path / "study" / "promise.json").read_text())) == 3
    assert "3 of 4 solved" in CliRunner().invoke(app, [*arguments, "--replications", "4", "--so-far"]).output
    result = CliRunner().invoke(app, [*arguments, "--replications", "2", "--full"])
    assert "4 of 4 solved" in result.output and len(calls) == 5, "the cheaper solves are kept"
    said = " ".join(result.output.split())
    assert (
        "2 logs solved with the default solver, too: it states +0.75 standard errors on average, at most 1.00" in said
    )
    refused = CliRunner().invoke(app, [*arguments, "--environments", "nowhere"])
    assert refused.exit_code == 2 and "there is no environment 'nowhere'" in refused.output


def test_solves_of_both_kinds_are_held_against_each_other():
    numbers = {"stated_error": 0.5, "warning": "sound"}
    cheap = [record(log=k, stated=1.0, **numbers) for k in range(3)]
    longer = [record(log=k, full=True, stated=1.5 - k, regret=0.2 + 0.1 * k, **numbers) for k in range(2)]
    longer[1] |= {"kept": False, "warning": "thin"}
    found = promise_tables.thrift(cheap + longer)
    assert found is not None and (found.logs, found.kept, found.warned) == (2, 1, 1)
    assert found.stated == pytest.approx(0.0) and found.stated_largest == pytest.approx(1.0)
    assert found.regret == pytest.approx(0.05) and found.regret_error == pytest.approx(0.05)
    assert promise_tables.thrift(cheap) is None
    assert [row.logs for row in promise_tables.tables(cheap + longer)["all environments"]] == [3, 3]


@pytest.mark.long
def test_one_log_through_the_solver():
    values = study.promise("river_swim", 100, "pooled", 0, 0)
    assert values["kept"] == (values["loss"] <= values["stated"]) and 0.0 <= values["regret"] <= 1.5
    assert values["slack"] == pytest.approx(
        (values["stated"] - values["loss"]) / (values["uniform"] - values["optimum"])
    )
