"""Logs that repeat rows that were counted before: longer exports, older ones, and new ones that begin alike."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import prudent as pr
from prudent.problems import read_problem
from prudent.tables import Names, RowOrder

STATES, ACTIONS = ["new", "worn", "broken"], ["run", "repair"]


def rows(number, seed=0):
    """Random transitions with random costs."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "state": rng.choice(STATES, number),
            "action": rng.choice(ACTIONS, number),
            "next_state": rng.choice(STATES, number),
            "cost": rng.uniform(0.0, 3.0, number).round(2),
        }
    )


def case_of(log, **data):
    content = {"discount": 0.9, "start": "new", "states": STATES, "actions": ACTIONS}
    return read_problem(content | {"data": {"transitions": log, "default_cost": 5.0} | data})


def same(one, other):
    """Whether two problems have counted the same."""
    logs = one.facts.log, other.facts.log
    exact, summed = ("state", "action", "next_state", "count"), ("cost_count", "cost_total", "cost_square")
    return all(np.array_equal(*(getattr(log, name) for log in logs)) for name in exact) and all(
        np.allclose(*(getattr(log, name) for log in logs), atol=1e-12) for name in summed
    )


def longer(log, number=1, seed=9):
    return pd.concat([log, rows(number, seed)], ignore_index=True)


def test_a_longer_export_counts_once():
    old = rows(40)
    case, export = case_of(old), longer(old)
    words = r"the first 40 of its 41 rows were counted before, in the frame; .*--only-new.*, or .*--again"
    with pytest.raises(pr.InputError, match=words):
        case.with_log(export)
    after = case.with_log(export, only_new=True)
    assert same(after, case_of(export)) and after.facts.log.rows == 41
    assert after.facts.counted[-1].new == 1
    assert case.with_log(export, again=True).counts().sum() == 81
    # The next export begins with the one before, whose rows behind the first 40 were counted alone.
    third = longer(export, 5, seed=10)
    with pytest.raises(pr.InputError, match="the first 41 of its 46 rows"):
        after.with_log(third)
    assert same(after.with_log(third, only_new=True), case_of(third))


def test_an_export_of_all_that_came_in_several_logs_counts_once():
    parts = [rows(20, seed) for seed in range(4)]
    case = case_of(parts[:2]).with_log(parts[2]).with_log(parts[3])
    every = pd.concat(parts, ignore_index=True)
    with pytest.raises(pr.InputError, match="its rows were counted before, in the frame; leave it out"):
        case.with_log(every)
    assert same(case.with_log(longer(every), only_new=True), case.with_log(rows(1, 9)))
    # Two sources by turns, of which one is exported as a whole.
    first = pd.concat([parts[0], parts[2]], ignore_index=True)
    with pytest.raises(pr.InputError, match="the first 40 of its 41 rows"):
        case.with_log(longer(first))
    assert case.with_log(longer(first), only_new=True).counts().sum() == 81


def test_rows_are_known_in_other_formats(tmp_path):
    old = rows(40)
    case, export = case_of(old), longer(old)
    other = export[["cost", "next_state", "action", "state"]].assign(note="x")
    other.to_csv(tmp_path / "log.csv", index=False, sep=";", decimal=",")
    other.assign(cost=other["cost"].astype(np.float32)).to_parquet(tmp_path / "log.parquet")
    export.assign(reward=-export["cost"]).drop(columns="cost").to_json(
        tmp_path / "log.jsonl", orient="records", lines=True
    )
    for name in ("log.csv", "log.parquet", "log.jsonl"):
        with pytest.raises(pr.InputError, match="the first 40 of its 41 rows"):
            case.with_log(tmp_path / name)
        assert case.with_log(tmp_path / name, only_new=True).counts().sum() == 41
    # Other costs are other rows.
    assert case.with_log(export.assign(cost=0.5)).counts().sum() == 81


def test_a_log_that_repeats_a_part_is_refused_where_chance_would_not_make_it():
    old = rows(40)
    case = case_of(old)
    corrected = longer(old)
    corrected.loc[36, "cost"] = 99.0
    for export in (old.iloc[:30], corrected):
        with pytest.raises(pr.InputError, match=r"begins with the first (16|32) rows of the frame, .*but not with all"):
            case.with_log(export)
        with pytest.raises(pr.InputError, match="but not with all of them"):
            case.with_log(export, only_new=True)
        assert case.with_log(export, again=True).counts().sum() == 40 + len(export)


def test_a_new_log_may_begin_as_another_did():
    quiet = pd.DataFrame({"state": ["new"] * 30, "action": "run", "next_state": "new", "cost": 1.0})
    case = case_of(longer(quiet, 30)).with_log(quiet.iloc[:2])
    # 30 quiet rows are how any log may begin, and two are a log by themselves.
    assert case.with_log(longer(quiet, 20, seed=3)).counts().sum() == 62 + 50
    with pytest.raises(pr.InputError, match="so few that chance explains it"):
        case.with_log(longer(quiet, 20, seed=3), only_new=True)
    # All that was counted is more than how a log begins, however few rows it has.
    few = case_of(quiet.iloc[:2])
    with pytest.raises(pr.InputError, match="the first 2 of its 4 rows were counted before"):
        few.with_log(longer(quiet.iloc[:2], 2))
    assert few.with_log(longer(quiet.iloc[:2], 2), again=True).counts().sum() == 6
    assert few.with_log(longer(quiet.iloc[:2], 2), only_new=True).counts().sum() == 4


def test_what_cannot_be_meant_is_refused():
    case = case_of(rows(20))
    with pytest.raises(pr.InputError, match="give one of them"):
        case.with_log(longer(rows(20)), again=True, only_new=True)
    with pytest.raises(pr.InputError, match="begins with no rows that were counted before, or with so few"):
        case.with_log(rows(20, seed=1), only_new=True)
    with pytest.raises(pr.InputError, match="its rows were counted before"):
        case.with_log(rows(20), only_new=True)


def test_a_problem_file_counts_a_longer_export_once(tmp_path):
    rows(20).to_csv(tmp_path / "january.csv", index=False)
    longer(rows(20)).to_csv(tmp_path / "february.csv", index=False)
    logs = [str(tmp_path / name) for name in ("january.csv", "february.csv")]
    words = (
        r"february.csv: the first 20 of its 21 rows were counted before, in .*january.csv; leave one of them out, or .*"
    )
    with pytest.raises(pr.InputError, match=words + "data.again = true"):
        case_of(logs)
    assert case_of(logs, again=True).counts().sum() == 41


def test_a_longer_walk_counts_once():
    """The last row of the shorter one had no next state; in the longer one it has."""
    walk = rows(60).drop(columns="next_state").assign(episode=np.repeat([0, 1], 30))
    case = case_of(walk.iloc[:50], trajectories=True)
    with pytest.raises(pr.InputError, match="the first 48 of its 58 rows"):
        case.with_log(walk)
    assert same(case.with_log(walk, only_new=True), case_of(walk, trajectories=True))


def test_a_longer_log_of_vectors_counts_once():
    rng = np.random.default_rng(0)
    log = pd.DataFrame(rng.normal(size=(30, 3)), columns=["x", "u", "y"])
    content = {
        "kind": "linear",
        "discount": 0.9,
        "data": {"log": log.iloc[:20], "states": ["x"], "actions": ["u"], "next_states": ["y"]},
        "cost": {"states": {"x": 1.0}, "actions": {"u": 1.0}},
        "noise": {"deviation": {"x": 1.0}},
    }
    case = read_problem(content)
    with pytest.raises(pr.InputError, match="the first 20 of its 30 rows"):
        case.with_log(log)
    assert np.array_equal(np.asarray(case.with_log(log, only_new=True).log.next_state).ravel(), log["y"])
    with pytest.raises(pr.InputError, match=r"the first 20 of its 30 rows .*; leave one of them out$"):
        read_problem(content | {"data": content["data"] | {"log": [log.iloc[:20], log]}})


def test_digests_do_not_depend_on_the_batches():
    names, rng = Names("state", 5), np.random.default_rng(0)
    states = rng.integers(0, 5, 1000)
    held = []
    for _ in range(20):
        cuts = np.sort(rng.integers(0, 1001, 3))
        order = RowOrder()
        for part in np.split(states, cuts):
            assert order.add({"state": (names, part)}, {}) == 0
        held.append(order.digests())
    assert len(set(held)) == 1 and held[0].rows == 1000 and len(held[0].first) == 10
    # Left out are the first rows, wherever a batch ends.
    order = RowOrder(skip=450)
    assert [order.add({"state": (names, part)}, {}) for part in np.split(states, [300, 600])] == [300, 150, 0]
