"""Logs of every kind give the same counts; names become numbers and names again; memory stays bounded."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import prudent as pr
from prudent.tables import Names, counting, reading

STATES, ACTIONS = ["new", "worn", "broken"], ["run", "service"]


def random_log(rows=5000, seed=0):
    chance = np.random.default_rng(seed)
    return pa.table(
        {
            "state": np.array(STATES)[chance.integers(3, size=rows)],
            "action": np.array(ACTIONS)[chance.integers(2, size=rows)],
            "next_state": np.array(STATES)[chance.integers(3, size=rows)],
            "count": chance.integers(0, 4, size=rows),
            "cost": chance.normal(size=rows),
            "remark": np.full(rows, "left alone"),
        }
    )


def reference(table):
    """Counts and mean costs by a plain loop."""
    counts, cost, weight = np.zeros((3, 2, 3)), np.zeros((3, 2)), np.zeros((3, 2))
    for row in table.to_pylist():
        s, a, t = STATES.index(row["state"]), ACTIONS.index(row["action"]), STATES.index(row["next_state"])
        counts[s, a, t] += row["count"]
        cost[s, a] += row["count"] * row["cost"]
        weight[s, a] += row["count"]
    return counts, cost / weight


def table_of(log):
    counts = np.zeros((len(log.states), len(log.actions), len(log.states)))
    kept = log.transitions
    np.add.at(counts, (kept.state, kept.action, kept.next_state), kept.count)
    return counts


def written(table, folder):
    """The log in every format there is."""
    csv.write_csv(table, folder / "log.csv")
    csv.write_csv(table, folder / "log.tsv", csv.WriteOptions(delimiter="\t"))
    parquet.write_table(table, folder / "log.parquet", row_group_size=700)
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    return [folder / name for name in ("log.csv", "log.tsv", "log.parquet", "log.jsonl")]


def test_every_format_and_frame_gives_the_counts_of_a_plain_loop(tmp_path, monkeypatch):
    # Small blocks, so that names and rows cross their borders.
    monkeypatch.setattr(reading, "BLOCK_BYTES", 10_000)
    monkeypatch.setattr(reading, "BATCH_ROWS", 333)
    monkeypatch.setattr(counting, "MOST_PENDING", 40)
    table = random_log()
    counts, cost = reference(table)
    sources = [*written(table, tmp_path), table, table.to_pandas(), pl.from_arrow(table), pl.from_arrow(table).lazy()]
    for source in sources:
        log = pr.read_log(source, STATES, ACTIONS)
        assert np.array_equal(table_of(log), counts), source
        np.testing.assert_allclose(log.cost, cost, rtol=1e-12)
        assert (log.states, log.actions, log.rows) == (tuple(STATES), tuple(ACTIONS), 5000)


def test_several_logs_are_one(tmp_path):
    first, second = random_log(300, 1), random_log(200, 2)
    together = pr.read_log([first, second.to_pandas()], STATES, ACTIONS)
    assert np.array_equal(table_of(together), reference(first)[0] + reference(second)[0])
    assert together.rows == 500


def test_names_are_collected_in_the_order_of_their_first_row_and_numbers_in_their_own():
    named = pr.read_log(pd.DataFrame({"state": ["b", "a"], "action": ["y", "x"], "next_state": ["a", "c"]}))
    assert (named.states, named.actions) == (("b", "a", "c"), ("y", "x"))
    frame = pd.DataFrame({"state": [10, 9], "action": [1.0, 0.0], "next_state": [9, 2]})
    numbered = pr.read_log(frame)
    assert (numbered.states, numbered.actions) == (("2", "9", "10"), ("0", "1"))
    assert table_of(numbered)[2, 1, 1] == 1
    assert pr.read_log(frame, states=11, actions=2).transitions.state.tolist() == [9, 10]


def test_spaces_quotes_a_byte_order_mark_and_empty_lines_do_no_harm(tmp_path):
    path = tmp_path / "log.csv"
    path.write_bytes('\ufeffstate, action,next_state\r\n"a, b", go ,c\r\n\r\nc,go,"a, b"\r\n'.encode())
    log = pr.read_log(path)
    assert log.states == ("a, b", "c")
    assert table_of(log)[0, 0, 1] == 1


def test_the_row_of_an_error_is_its_row_in_any_batch(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "BLOCK_BYTES", 2_000)
    monkeypatch.setattr(reading, "BATCH_ROWS", 100)
    table = random_log(1000)
    wrong = table["state"].to_pylist()
    wrong[776] = "wron"
    table = table.set_column(0, "state", pa.array(wrong))
    for source in (*written(table, tmp_path), table):
        with pytest.raises(pr.InputError, match="row 777: state 'wron' is not declared; did you mean 'worn'"):
            pr.read_log(source, STATES, ACTIONS)


def test_what_is_not_a_frame_is_refused():
    with pytest.raises(pr.InputError, match=r"got dict; Transitions.from_records takes lists of rows"):
        pr.read_log({"state": [1]})
    with pytest.raises(pr.InputError, match="column 'next_state' is missing"):
        pr.read_log(pd.DataFrame({"state": [1], "action": [1]}))
    with pytest.raises(pr.InputError, match="the log has no row"):
        pr.read_log(pd.DataFrame({"state": [], "action": [], "next_state": []}))


def test_names_go_to_numbers_and_back():
    names = Names("state", STATES)
    assert [names[names.number(name)] for name in STATES] == STATES
    numbered = Names("state", 12)
    assert numbered.number("11") == 11
    for strange in ("12", "-1", "01", "1.0", "", "٣"):
        assert numbered.find(strange) is None


MEMORY = """
import re, sys
from pathlib import Path
from prudent.tables import Names, count_log
counts = count_log([sys.argv[1]], Names("state"), Names("action"))
assert "jax" not in sys.modules
print(counts.rows, int(counts.count.sum()), re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


def test_memory_does_not_grow_with_the_rows(tmp_path):
    peaks = []
    for rows in (100_000, 1_000_000):
        chance = np.random.default_rng(0)
        table = pa.table({name: chance.integers(50, size=rows) for name in ("state", "action", "next_state")})
        path = tmp_path / f"{rows}.csv"
        csv.write_csv(table, path)
        done = subprocess.run([sys.executable, "-c", MEMORY, path], capture_output=True, text=True, check=True)
        read, seen, peak = map(int, done.stdout.split())
        assert read == seen == rows
        peaks.append(peak)
    assert peaks[1] < peaks[0] + 100_000, "ten times the rows, and no more than 100 MB on top"
