"""Files from someone else that once ended the process, hung it, filled the memory, or steered the terminal."""

import contextlib
import io
import json
import os
import shutil
import time
import tomllib
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest
import typer.main
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

import prudent as pr
from prudent.cli import app
from prudent.cli.terminal import shown
from prudent.problems import memory
from prudent.problems.plain import _TOKEN, MOST_PARTS, read_content
from prudent.problems.schema import parse
from prudent.tables import Names, count_log, guarded
from prudent.tables import names as tables_names

from .run_folders import adopt

ROW = '{"state": "a", "action": "b", "next_state": "c"}\n'


def read_file(path):
    """A problem file, its keys checked."""
    content, text = read_content(path)
    return parse(content, str(path), text)


def refused(call, *arguments, seconds=5.0):
    """The message of a refusal that comes soon."""
    clock = time.process_time()
    with pytest.raises(pr.InputError) as caught:
        call(*arguments)
    assert time.process_time() - clock < seconds
    return str(caught.value)


def counted(path):
    return count_log([path], Names("state"), Names("action"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ROW + '{"x": ' + "[" * 20_000 + "\n", "row 2: is nested more than 32 levels deep"),
        (ROW + '{"x": ' + '{"y": ' * 20_000 + "\n", "row 2: is nested more than 32 levels deep"),
        (ROW + '{"x": "\\"' + "[" * 20_000 + '", "y": ' + "[" * 20_000 + "\n", "row 2: is nested"),
        (ROW + '{"x": "\n' + '"' + "[" * 20_000 + "\n", "row 2: is not an object that ends on its line"),
        (ROW + "[\n" * 20_000, "row 2: is not an object that ends on its line"),
        (ROW + "x" * 2**21, "a line of more than 1,048,576 bytes"),
        (ROW + "".join(f'{{"k{k}": 1}}\n' for k in range(5000)), "more than 1,000 different keys"),
    ],
    ids=["brackets", "objects", "hidden by a quote", "hidden by a line", "over lines", "a long line", "many keys"],
)
def test_json_lines_are_looked_at_before_they_are_parsed(tmp_path, text, words):
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    assert words in refused(counted, path)


def test_brackets_quotes_and_escapes_in_names_are_no_nesting(tmp_path):
    rows = [
        {"state": "[" * 100, "action": '"{', "next_state": "\\"},
        {"state": "]\\\"'", "action": "}", "next_state": "c"},
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    log, states = None, Names("state")
    log = count_log([path], states, Names("action"))
    assert log.rows == 2 and set(states.all()) == {"[" * 100, "\\", "]\\\"'", "c"}


def test_a_page_that_unpacks_to_far_more_than_the_file_is_not_unpacked(tmp_path):
    table = pa.table({"state": ["a" * (2**26 + 2**20)], "action": ["b"], "next_state": ["c"]})
    parquet.write_table(table, tmp_path / "log.parquet", compression="zstd")
    del table
    assert (tmp_path / "log.parquet").stat().st_size < 40_000
    before = pa.default_memory_pool().max_memory()
    assert "has a page of 68,157," in refused(counted, tmp_path / "log.parquet")
    assert pa.default_memory_pool().max_memory() - before < 2**20
    # Binary cells cannot be names, however many there are.
    parquet.write_table(pa.table({"state": [b"a"], "action": ["b"], "next_state": ["c"]}), tmp_path / "log.parquet")
    assert "state holds binary values, not names or numbers" in refused(counted, tmp_path / "log.parquet")


@pytest.mark.parametrize(
    "options", [{}, {"data_page_version": "2.0"}, {"use_dictionary": False, "compression": "gzip"}]
)
def test_every_way_to_write_parquet_is_read(tmp_path, options):
    table = pa.table({"state": ["a", "b"] * 5000, "action": [1, 2] * 5000, "next_state": ["b", "a"] * 5000})
    parquet.write_table(table, tmp_path / "log.parquet", **options)
    assert counted(tmp_path / "log.parquet").count.tolist() == [5000.0, 5000.0]


@pytest.mark.parametrize(
    "text",
    [
        "a" + ".a" * 200_000 + " = 1\n",
        "[a" + ".a" * 200_000 + "]\n",
        'x = """\\"""\n"""\na' + ".a" * 200_000 + " = 1\n",
        'x = ["""a"""", {a' + ".a" * 200_000 + ' = "1"}]\n',
        "a" + ' . "b"' * 100_000 + " = 1\n",
    ],
    ids=["key", "table", "after an escaped quote", "after four quotes", "quoted parts"],
)
def test_a_key_of_very_many_parts_is_not_parsed(tmp_path, text):
    (tmp_path / "problem.toml").write_text(text)
    assert f"a key has more than {MOST_PARTS} parts" in refused(read_file, tmp_path / "problem.toml")


@pytest.mark.parametrize("text", ['"' * 2**21, "a" * 2**21, "x = [" + "[" * 10**6, "a='''" + "a.a." * 10**5 + "'''"])
def test_odd_problem_files_are_refused_soon(tmp_path, text):
    (tmp_path / "problem.toml").write_text(text)
    refused(read_file, tmp_path / "problem.toml")


@given(
    st.lists(
        st.sampled_from(['"', "'", '"""', "'''", "\\", "a", ".", "=", "\n", "#", " ", "[", "]", "{", "}", ","]),
        max_size=24,
    )
)
def test_no_text_hides_a_long_key_from_the_look(parts):
    """Whatever stands before it: if TOML takes the rest for a key, it is seen."""
    before, key = "".join(parts), "k" + ".k" * (MOST_PARTS + 3)
    try:
        content = tomllib.loads(f"{before}\n{key} = 1\n")
    except (tomllib.TOMLDecodeError, RecursionError):
        return
    if "k" in json.dumps(content, default=str).replace('"""', "") and _depth(content) > MOST_PARTS:
        assert any(found["long"] for found in _TOKEN.finditer(f"{before}\n{key} = 1\n"))


def _depth(content):
    return 1 + max((_depth(value) for value in content.values()), default=0) if isinstance(content, dict) else 0


# What is shown


@given(st.text())
def test_nothing_that_is_shown_can_steer_a_terminal(text):
    assert shown(text).isprintable()
    if text.isprintable():
        assert shown(text) == text


@given(st.text(alphabet="=+-@'\"a1. \t", min_size=1).map(str.strip).filter(bool))
def test_names_are_no_formulas_in_a_spreadsheet_and_are_read_back(name):
    cell = guarded(name)
    assert tables_names.unguarded(cell) == name
    if cell[0] in "=+-@":
        float(cell)


def test_a_policy_with_names_like_formulas_is_read_back(tmp_path, problem):
    names = {"worn": "=1+1", "used": "@cmd", "broken": "-x", "new": "'=2"}
    for file in ("problem.toml", "log.csv", "costs.csv", "successors.csv"):
        text = (problem.parent / file).read_text()
        for old, new in names.items():
            text = text.replace(old, guarded(new) if file.endswith("csv") else new)
        (tmp_path / file).write_text(text)
    case = pr.read_problem(tmp_path / "problem.toml")
    assert set(case.states) == set(names.values()), "those of the log and of the file are the same"
    from prudent.runs.folder import policy_text, read_policy

    table = pr.TabularPolicy([[0.25, 0.25, 0.5]] * 4).probabilities
    (tmp_path / "policy.csv").write_text(policy_text(table, case.states, case.actions))
    assert not any(line.startswith(("=", "@", "-", "+")) for line in (tmp_path / "policy.csv").read_text().splitlines())
    assert (read_policy(tmp_path / "policy.csv", case.facts.states, case.facts.actions) == table).all()


COMMAND = typer.main.get_command(app)


def invoke(*arguments):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            COMMAND.main([str(argument) for argument in arguments], prog_name="prudent")
        except SystemExit as ended:
            return ended.code or 0, said.getvalue()
    return 0, said.getvalue()


def test_a_status_of_escapes_and_markup_is_shown_as_text(run, tmp_path):
    said = json.loads((run.folder / "solution.json").read_text())
    nasty = "[/nope]\x1b]8;;http://x\x1b\\\u202eboo"
    folder = shutil.copytree(run.folder, tmp_path / "run")
    (folder / "solution.json").write_text(json.dumps(said | {"status": nasty, "risk_name": "[/nope]\x1b[2J"}))
    adopt(folder)
    code, text = invoke("compare", folder, "--samples", 20)
    assert code == 0 and "\x1b" not in text and "\u202e" not in text
    # As text, over as many lines of its column as it takes.
    cells = [line.split("│")[2].strip() for line in text.splitlines() if line.startswith("│")]
    assert shown(nasty) in "".join(cells)
    heads = [line.split("┃")[3].strip() for line in text.splitlines() if line.startswith("┃")]
    assert "[/nope]\\x1b[2J" in "".join(heads)


def test_a_loss_of_escapes_is_shown_as_text_beside_a_frontier(run, tmp_path, monkeypatch):
    from prudent.report import FrontierRecord
    from prudent.runs import advising

    said = json.loads((run.folder / "solution.json").read_text())
    folder = shutil.copytree(run.folder, tmp_path / "run")
    nasty = {"loss_name": "[/nope]\x1b[2J\u202eloss", "risk_name": "\x1b]8;;x"}
    (folder / "solution.json").write_text(json.dumps(said | nasty))
    adopt(folder)
    made = FrontierRecord(limit="\x1b[31m", unit="\u202e")
    monkeypatch.setattr(advising, "frontier", lambda *_, **__: None)
    monkeypatch.setattr(advising, "frontier_record", lambda *_: made)
    code, text = invoke("frontier", folder)
    assert code == 0 and "\\u202eloss" in text, text
    assert all(line.isprintable() for line in text.splitlines()), text


def test_what_is_wrong_with_a_file_is_said_in_few_words(tmp_path, problem):
    (tmp_path / "problem.toml").write_text(problem.read_text() + f'"{"x" * 10**6}" = 1\n')
    code, said = invoke("check", tmp_path / "problem.toml")
    assert code == 2 and said.startswith("error: ") and len(said) < 2000 and said.count("\n") == 1


# Policies and solutions


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 10**6, "is not JSON"),
        ("[" + "[]," * 5_000_000 + "[]]", "more parts than any policy"),
        ('{"format": "prudent policy 1", "kind": "\x1b"}', "is not JSON"),
        ('{"format": "prudent policy 1", "kind": "\\u001b' + "x" * 10**6 + '"}', "of the kind"),
        ('{"format": "prudent policy 1", "kind": ["table"]}', "of the kind"),
        ('{"format": "prudent policy 1", "kind": "table", "states": "' + "x" * 10**6 + '"}', "are a list, got str"),
        ('{"format": "prudent policy 1", "kind": "table", "states": ["a"], "actions": ["b"]}', "is damaged"),
        (
            '{"format": "prudent policy 1", "kind": "table", "states": ["a"], "actions": ["b"], '
            f'"probabilities": [[1{"0" * 400}]]}}',
            "policy.json: ",
        ),
        (
            '{"format": "prudent policy 1", "kind": "table", "states": ["a"], "actions": ["b"], '
            f'"probabilities": {"[" * 900}{"]" * 900}}}',
            "policy.json: ",
        ),
        (
            f'{{"format": "prudent policy 1", "kind": "linear", "gain": [{"[]," * 10**6}[]], "bias": null, '
            '"covariance": null}',
            "are lists",
        ),
    ],
    ids=range(10),
)
def test_policies_from_someone_else_are_refused_soon(tmp_path, text, words):
    (tmp_path / "policy.json").write_text(text)
    assert words in (said := refused(pr.load_policy, tmp_path / "policy.json")), said[:500]
    assert len(said) < 1000


def test_policies_and_solutions_that_are_no_files_or_huge_are_not_read(tmp_path):
    huge = tmp_path / "huge.json"
    huge.touch()
    os.truncate(huge, 6 * 2**30)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for read in (pr.load_policy, pr.Solution.load):
        for name in ("huge.json", "pipe", "zero", "."):
            tracemalloc.start()
            refused(read, tmp_path / name)
            assert tracemalloc.get_traced_memory()[1] < 2**26
            tracemalloc.stop()


def test_nothing_is_saved_through_a_link(run, tmp_path):
    kept, link = tmp_path / "kept.txt", tmp_path / "link"
    kept.write_text("kept")
    policy = pr.TabularPolicy([[0.5, 0.5]])
    network = pr.NeuralPolicy(policy, [[1.0]], [([[1.0], [0.5]], [0.0, 0.1])])
    for save in (policy.save, network.save, run.solution.save):
        link.unlink(missing_ok=True)
        link.symlink_to(kept)
        save(link)
        assert kept.read_text() == "kept" and not link.is_symlink()


# Linear systems


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('states = ["position"', 'states = ["\\u001b[2J"', "is no name"),
        ('states = ["position"', f'states = ["{"x" * 10**6}"', "is no name"),
        ('states = ["position", "speed"]', 'states = ["speed", "speed"]', "is named twice"),
        ('force = "N"', "y" * 10**6 + ' = "m"', "units names"),
        ("[noise]", "[noise]\nx = " + "[" * 50 + "]" * 50, "unknown key"),
        ('log = "log.csv"', 'log = "/dev/zero"', "/dev/zero"),
        ('log = "log.csv"', "log = [" + '"log.csv",' * 3 + "]", "log.csv"),
        ("discount = ", "horizon = 999999999999\ndiscount = ", "horizon"),
    ],
    ids=range(8),
)
def test_problem_files_of_linear_systems_from_someone_else(tmp_path, old, new, words):
    path = pr.write_linear_example(tmp_path)[0]
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    for command in ("check", "solve"):
        code, said = invoke(command, path, *(["--out", tmp_path / "run"] if command == "solve" else []))
        assert code == 2 and said.startswith("error: ") and words in said and said.count("\n") == 1, said[:500]
        assert len(said) < 2000 and said[:-1].isprintable()


def test_names_that_are_no_unicode_and_grids_of_negative_sides(tmp_path, problem):
    text = problem.read_text()
    (tmp_path / "log.jsonl").write_text('{"state": "\\ud800", "action": "run", "next_state": "new"}\n')
    for name in ("costs.csv", "successors.csv"):
        (tmp_path / name).write_text((problem.parent / name).read_text())
    (tmp_path / "problem.toml").write_text(text.replace("log.csv", "log.jsonl"))
    code, said = invoke("check", tmp_path / "problem.toml")
    assert code == 2 and said.startswith("error: ") and "log.jsonl" in said
    grid = '\n[layout]\ngrid = [-2, -2]\ndirections = ["left", "up", "right"]\n'
    (tmp_path / "problem.toml").write_text(text + grid)
    code, said = invoke("check", tmp_path / "problem.toml")
    assert code == 2 and "layout.grid.0" in said
    code, said = invoke("solve", problem, "--out", tmp_path / "\udcff")
    assert code == 2 and "has bytes in its name that are not UTF-8" in said


def test_a_sparse_checkpoint_is_not_read(run, tmp_path):
    folder = shutil.copytree(run.folder, tmp_path / "run")
    with (folder / "checkpoint.safetensors").open("r+b") as file:
        file.truncate(6 * 2**30)
    said = json.loads((folder / "manifest.json").read_text())
    said["files"]["checkpoint.safetensors"]["bytes"] = 6 * 2**30
    (folder / "manifest.json").write_text(json.dumps(said))
    tracemalloc.start()
    refused(pr.continue_run, folder)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


# Memory


def test_the_estimate_knows_the_limit_of_the_shell(monkeypatch):
    import resource

    free = memory._address_space()
    assert free is None or free > 0
    pages = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    monkeypatch.setattr(resource, "getrlimit", lambda which: (pages + 2**30, pages + 2**30))
    assert abs(memory.available_memory() - 2**30) < 2**27


@pytest.mark.parametrize(
    ("line", "files", "free"),
    [
        ("0::/a/b", {"memory.max": "max", "a/memory.max": "900", "a/memory.current": "100"}, 800),
        (
            "0::/a/b",
            {"a/memory.max": "900", "a/memory.current": "100", "a/b/memory.max": "500", "a/b/memory.current": "1"},
            499,
        ),
        ("0::/elsewhere", {"memory.max": "700", "memory.current": "50"}, 650),
        ("5:memory:/a", {"memory/a/memory.limit_in_bytes": "300", "memory/a/memory.usage_in_bytes": "40"}, 260),
        ("0::/", {"memory.max": "max", "memory.current": "50"}, None),
    ],
)
def test_the_estimate_knows_every_control_group_above_the_process(tmp_path, line, files, free):
    (tmp_path / "own").write_text(line + "\n")
    for name, text in files.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert memory._control_groups(tmp_path / "root", tmp_path / "own") == free
