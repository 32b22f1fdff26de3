"""Logs and tables as people have them: other names and separators, steps without next states, rewards, packed files."""

import gzip
import itertools

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import prudent as pr
from prudent.cli import app

PLAIN = pd.DataFrame(
    {
        "state": ["a", "b", "a", "b", "c", "a"],
        "action": ["x", "y", "x", "y", "x", "y"],
        "next_state": ["b", "a", "b", "c", "a", "a"],
        "cost": [1.5, 2.0, 1.25, 0.5, 3.0, 0.25],
    }
)
NAMES = {"states": ["a", "b", "c"], "actions": ["x", "y"]}


def same(log, other):
    np.testing.assert_array_equal(log.transitions.count, other.transitions.count)
    for name in ("state", "action", "next_state"):
        np.testing.assert_array_equal(getattr(log.transitions, name), getattr(other.transitions, name))
    np.testing.assert_allclose(log.cost, other.cost)


def wards(rows):
    """A state of a ward and a level, in two columns; the product is met in no order."""
    return pd.DataFrame(rows, columns=["ward", "level", "action", "ward2", "level2", "cost"])


WARDS = [
    ("b", 10, "x", "a", 9, 1.0),
    ("a", 9, "y", "b", 9, 2.0),
    ("b", 9, "x", "b", 10, 0.0),
    ("a", 10, "x", "b", 9, 1.0),
]
MADE = {"state": ["ward", "level"], "next_state": ["ward2", "level2"]}


def test_a_state_may_be_made_of_several_columns(tmp_path):
    log = pr.read_log(wards(WARDS), columns=MADE)
    # Levels that are numbers come by size, others as they are met: ward b is in the first row.
    assert log.states == ("b, 9", "b, 10", "a, 9", "a, 10")
    by_hand = wards(WARDS)[["action", "cost"]].assign(
        state=["b, 10", "a, 9", "b, 9", "a, 10"], next_state=["a, 9", "b, 9", "b, 10", "b, 9"]
    )
    same(log, pr.read_log(by_hand, states=list(log.states)))
    wards(WARDS).to_csv(tmp_path / "log.csv", index=False)
    same(pr.read_log(tmp_path / "log.csv", columns=MADE), log)
    wards(WARDS).to_parquet(tmp_path / "log.parquet")
    same(pr.read_log(tmp_path / "log.parquet", columns=MADE), log)
    walk = wards(WARDS)[["ward", "level", "action"]]
    walked = pr.read_log(walk, columns={"state": ["ward", "level"]}, trajectories=True)
    assert walked.states == log.states and len(walked.transitions) == 3
    words = ["init", str(tmp_path / "log.csv")]
    for name, columns in MADE.items():
        for column in columns:
            words += ["--columns", f"{name}={column}"]
    assert CliRunner().invoke(app, words).exit_code == 0
    text = (tmp_path / "problem.toml").read_text().replace("# default_cost", "default_cost")
    assert 'state = ["ward", "level"]' in text and 'states = ["b, 9", "b, 10", "a, 9", "a, 10"]' in text
    (tmp_path / "problem.toml").write_text(text)
    assert pr.read_problem(tmp_path / "problem.toml").counts().sum() == 4


@pytest.mark.parametrize(
    ("columns", "rows", "words"),
    [
        ({"state": ["ward", "level"]}, WARDS, "made of 2 columns of the log and the next state of 1; name as many"),
        (MADE | {"action": ["action", "cost"]}, WARDS, "action is one column of the log, got action, cost"),
        (MADE | {"action": "ward"}, WARDS, "column 'ward' of the log is named twice"),
        (MADE | {"state": ["ward", "lvl"]}, WARDS, "column 'lvl', which is to be the state, is missing; is it 'level'"),
        (MADE, [*WARDS, ("a", None, "x", "a", 9, 0.0)], "row 5: state column 'level' is empty"),
        (MADE, [*WARDS, ("a", 1.5, "x", "a", 9, 0.0)], "row 5: state 1.5 is neither a name nor a whole number"),
    ],
)
def test_columns_that_make_no_state_are_refused(columns, rows, words):
    with pytest.raises(pr.InputError, match=words):
        pr.read_log(wards(rows), columns=columns)


def test_two_states_are_never_taken_for_one():
    rows = [("a, b", "c", "x", "a", "b, c", 0.0)]
    with pytest.raises(pr.InputError, match="two states would be called 'a, b, c'; use names without commas"):
        pr.read_log(wards(rows), columns=MADE)


def test_columns_may_be_called_anything_and_cells_be_apart_by_semicolons(tmp_path):
    path = tmp_path / "log.csv"
    renamed = PLAIN.rename(columns={"state": "s", "action": "a", "next_state": "s2", "cost": "r"}).assign(
        r=-PLAIN.cost, note="1,2;"
    )
    renamed.to_csv(path, sep=";", decimal=",", index=False)
    called = {"state": "s", "action": "a", "next_state": "s2", "reward": "r"}
    same(pr.read_log(path, **NAMES, columns=called), pr.read_log(PLAIN, **NAMES))
    renamed.to_csv(path, sep=";", index=False)
    same(pr.read_log(path, **NAMES, columns=called), pr.read_log(PLAIN, **NAMES))
    with pytest.raises(pr.InputError, match=r"column 'state' is missing.*data.columns says what a column is called"):
        pr.read_log(path)
    with pytest.raises(pr.InputError, match=r"column 'zz', which is to be the state, is missing"):
        pr.read_log(path, columns=called | {"state": "zz"})


def test_a_reward_is_a_negative_cost_and_a_cost_comes_first():
    rewarded = PLAIN.drop(columns="cost").assign(reward=-PLAIN.cost)
    same(pr.read_log(rewarded, **NAMES), pr.read_log(PLAIN, **NAMES))
    same(pr.read_log(rewarded.assign(cost=PLAIN.cost, reward=7.0), **NAMES), pr.read_log(PLAIN, **NAMES))
    assert pr.read_log(PLAIN, columns={"cost": ""}).cost is None


@pytest.mark.parametrize("suffix", ["csv.gz", "tsv.gz", "csv.bz2", "csv.zst", "jsonl.gz"])
def test_packed_text_is_unpacked(suffix, tmp_path):
    path = tmp_path / f"log.{suffix}"
    kind, packing = suffix.split(".")
    if kind == "jsonl":
        text = PLAIN.to_json(orient="records", lines=True)
    else:
        text = PLAIN.to_csv(index=False, sep="\t" if kind == "tsv" else ",")
    codec = {"gz": "gzip", "bz2": "bz2", "zst": "zstd"}[packing]
    with pa.output_stream(str(path), compression=codec) as file:
        file.write(text.encode())
    same(pr.read_log(path, **NAMES), pr.read_log(PLAIN, **NAMES))


def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path):
    path = tmp_path / "log.csv.gz"
    path.write_text(PLAIN.to_csv(index=False))
    with pytest.raises(pr.InputError, match="cannot be unpacked as its name says"):
        pr.read_log(path)
    plain = tmp_path / "log.csv"
    plain.write_bytes(gzip.compress(b"state"))
    with pytest.raises(pr.InputError, match="compressed by gzip"):
        pr.read_log(plain)
    for name, content in (("log.xlsx", b"PK\x03\x04"), ("log.ods", b""), ("log.csv", b"PK\x03\x04")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(pr.InputError, match="in Excel: File, Save As, CSV UTF-8"):
            pr.read_log(tmp_path / name)


def walks(sizes, seed=0):
    """Episodes of random steps, as trajectories and as transitions."""
    random = np.random.default_rng(seed)
    rows, moves = [], []
    for episode, size in enumerate(sizes):
        states, actions = random.choice(list("abc"), size), random.choice(list("xy"), size)
        costs = random.integers(0, 9, size)
        rows += [(f"e{episode}", *each) for each in zip(states, actions, costs, strict=True)]
        steps = zip(states[:-1], actions[:-1], states[1:], costs[:-1], strict=True)
        moves += list(steps)
    columns = ["state", "action", "next_state", "cost"]
    return pd.DataFrame(rows, columns=["episode", "state", "action", "cost"]), pd.DataFrame(moves, columns=columns)


def test_consecutive_steps_are_transitions_whatever_the_batches(monkeypatch):
    from prudent.tables import reading

    rows, moves = walks([5, 1, 7, 2, 30, 1])
    for size in (1, 2, 3, 2**18):
        monkeypatch.setattr(reading, "BATCH_ROWS", size)
        same(pr.read_log(rows, **NAMES, trajectories=True), pr.read_log(moves, **NAMES))
    one = pr.read_log(rows.drop(columns="episode"), **NAMES, trajectories=True)
    assert len(one.transitions) == len(rows) - 1
    same(
        pr.read_log(rows.rename(columns={"episode": "bus"}), **NAMES, trajectories=True, columns={"episode": "bus"}),
        pr.read_log(moves, **NAMES),
    )


def test_the_last_row_of_an_episode_may_be_empty_and_no_other(tmp_path):
    path = tmp_path / "walk.csv"
    path.write_text("episode,state,action,cost\n1,a,x,1\n1,b,,\n2,b,y,2\n2,c,,\n")
    log = pr.read_log(path, **NAMES, trajectories=True)
    assert log.transitions.count.tolist() == [1.0, 1.0] and log.cost[0, 0] == 1.0 and log.cost[1, 1] == 2.0
    path.write_text("episode,state,action,cost\n1,a,,1\n1,b,x,2\n1,a,x,3\n")
    with pytest.raises(pr.InputError, match="row 1: action is empty, and the episode goes on"):
        pr.read_log(path, trajectories=True)
    path.write_text("episode,state,action,cost\n1,a,x,\n1,b,x,2\n")
    with pytest.raises(pr.InputError, match="row 1: cost is empty"):
        pr.read_log(path, trajectories=True)
    path.write_text("episode,state,action\n1,a,x\n2,b,x\n1,a,x\n")
    with pytest.raises(pr.InputError, match="row 3: episode '1' goes on after another began"):
        pr.read_log(path, trajectories=True)
    path.write_text("state,action\na,x\nb,x\n")
    with pytest.raises(pr.InputError, match=r"data\.trajectories = true if the rows are consecutive steps"):
        pr.read_log(path)


def problem(**more):
    data = {"transitions": PLAIN} | more.pop("data", {})
    return {"discount": 0.9, "start": "a", "data": data, "posterior": {"kind": "dirichlet"}, **NAMES} | more


def test_a_problem_is_a_dictionary_with_frames_as_it_is_a_file(tmp_path):
    PLAIN.to_csv(tmp_path / "log.csv", index=False)
    (tmp_path / "problem.toml").write_text(
        'discount = 0.9\nstart = "a"\nstates = ["a", "b", "c"]\nactions = ["x", "y"]\n'
        '[data]\ntransitions = "log.csv"\ndefault_cost = 1.0\n[posterior]\nkind = "dirichlet"\n'
    )
    filed = pr.read_problem(tmp_path / "problem.toml")
    case = pr.read_problem(problem(data={"default_cost": 1.0}))
    assert case.digest() == filed.digest()
    np.testing.assert_array_equal(case.belief.sample(0, 3), filed.belief.sample(0, 3))
    assert case.model.support.labels.states == ("a", "b", "c")
    with pytest.raises(pr.InputError, match=r"the problem: unknown key 'discont'.*did you mean 'discount'"):
        pr.read_problem({"discont": 1})
    with pytest.raises(pr.InputError, match="a log is a path or a frame"):
        pr.read_problem(problem(data={"transitions": object()}))


def test_a_partial_table_of_costs_stands_beside_the_log():
    given = {"a": {"x": 10.0}, "c": {"x": 20.0, "y": 30.0}}
    seen = pr.read_log(PLAIN, **NAMES).cost
    expected = np.array([[10.0, seen[0, 1]], [0.0, seen[1, 1]], [20.0, 30.0]])
    case = pr.read_problem(problem(data={"costs": given | {"b": {"x": 0.0}}}))
    np.testing.assert_allclose(case.cost if case.cost.ndim == 2 else case.cost.mean(axis=2), expected)
    with pytest.raises(pr.InputError, match=r"nor the log's column cost\) has no cost for state b, action x"):
        pr.read_problem(problem(data={"costs": given}))
    frame = pd.DataFrame(
        [("a", "x", 10.0), ("b", "x", 0.0), ("c", "x", 20.0), ("c", "y", 30.0)], columns=["state", "action", "cost"]
    )
    assert pr.read_problem(problem(data={"costs": frame})).digest() == case.digest()


def test_names_for_numbers_and_other_codes(tmp_path):
    coded = PLAIN.assign(action=PLAIN.action.map({"x": 1, "y": 2}))
    case = pr.read_problem(problem(data={"transitions": coded, "default_cost": 0.0}, actions={1: "keep", 2: "replace"}))
    assert case.actions == ("keep", "replace")
    plain = pr.read_problem(problem(data={"default_cost": 0.0}))
    np.testing.assert_array_equal(case.counts(), plain.counts())
    with pytest.raises(pr.InputError, match="action '3' is not declared"):
        pr.read_problem(problem(data={"transitions": coded.assign(action=3)}, actions={1: "keep", 2: "replace"}))
    for wrong, words in (
        ({1: "keep", 2: "keep"}, "declared twice"),
        ({"keep": "run", "b": "keep"}, "is the name of one"),
    ):
        with pytest.raises(pr.InputError, match=words):
            pr.read_problem(problem(actions=wrong))
    # A run goes on with logs that have the codes.
    run = pr.solve_problem(case, tmp_path / "run", report=False, changes=None)
    more = pr.continue_run(run.folder, data=coded.assign(state="c"), report=False)
    assert more.case.actions == ("keep", "replace") and more.case.counts()[2].sum() == 7.0


def test_every_spelling_of_a_table_reads_the_same(tmp_path):
    expected = pr.read_log(PLAIN, **NAMES)
    for sep, packed in itertools.product((",", ";"), (False, True)):
        path = tmp_path / f"log{ord(sep)}.csv{'.gz' if packed else ''}"
        PLAIN.to_csv(path, sep=sep, index=False, compression="gzip" if packed else None)
        same(pr.read_log(path, **NAMES), expected)
