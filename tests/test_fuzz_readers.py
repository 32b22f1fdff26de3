"""The readers of problem files, logs and run folders on inputs that hypothesis steers to lines not met yet.

Whatever the bytes: they are read, or refused by `InputError`, soon. Cases that once did worse are kept in `corpus/`.
"""

import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings, target
from hypothesis import strategies as st

import prudent as pr
from prudent.problems.example import COSTS, LOG, PROBLEM
from prudent.problems.toml_file import parse, read_content
from prudent.runs.checkpoint import checkpoint_from
from prudent.runs.folder import read_record
from prudent.tables import Names, count_log

from .run_folders import adopt
from .test_fuzz import WORDS, log_files

SECONDS = 10.0
CORPUS = Path(__file__).parent / "corpus"
WATCHED = ("/prudent/tables/", "/prudent/problems/", "/prudent/runs/", "/prudent/files/", "/prudent/report/")


def read_file(path):
    """A problem file, its keys checked."""
    content, text = read_content(path)
    return parse(content, str(path), text)


def as_log(path):
    count_log([path], Names("state"), Names("action"))


def as_checkpoint(path):
    checkpoint_from(path.read_bytes(), path)


def as_manifest(path):
    pr.read_record(path.parent)


def as_record(path):
    read_record(adopt(path.parent))


@pytest.fixture(scope="module")
def readers(run, tmp_path_factory):
    """By name: where a file is put, what a sound one holds, and what reads it."""
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "run").mkdir()
    for name in ("solution.json", "report.safetensors", "manifest.json", "checkpoint.safetensors"):
        (folder / "run" / name).write_bytes((run.folder / name).read_bytes())
    adopt(folder / "run")
    for name, text in (("log.csv", LOG), ("costs.csv", COSTS)):
        (folder / name).write_text(text)
    found = {name: (folder / f"fuzzed-{name}", data, as_log) for name, data in log_files().items()}
    found["problem.toml"] = folder / "problem.toml", PROBLEM.encode(), read_file
    (folder / "loose").mkdir()
    checkpoint = (run.folder / "checkpoint.safetensors").read_bytes()
    found["checkpoint"] = folder / "loose" / "checkpoint.safetensors", checkpoint, as_checkpoint
    found["manifest"] = folder / "run" / "manifest.json", (folder / "run" / "manifest.json").read_bytes(), as_manifest
    found["record"] = folder / "run" / "solution.json", (run.folder / "solution.json").read_bytes(), as_record
    return found


READERS = ("problem.toml", "log.csv", "log.tsv", "log.jsonl", "log.parquet", "checkpoint", "manifest", "record")

CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["flip", "cut", "double", "insert", "replace", "end"]),
        st.floats(0.0, 1.0),
        st.sampled_from([1, 1, 2, 4, 16, 200]),
        st.one_of(st.sampled_from([word.encode() for word in WORDS]), st.binary(min_size=1, max_size=8)),
    ),
    min_size=1,
    max_size=6,
)


def changed(data, changes):
    """Bytes with some of them changed."""
    data = bytearray(data)
    for kind, share, span, word in changes:
        at = min(int(share * len(data)), max(0, len(data) - 1))
        if kind == "flip" and data:
            data[at] ^= word[0] or 1
        elif kind == "cut":
            del data[at : at + span]
        elif kind == "double":
            data[at:at] = data[at : at + span] * 20
        elif kind == "insert":
            data[at:at] = word
        elif kind == "replace":
            data[at : at + len(word)] = word
        elif kind == "end":
            del data[at:]
    return bytes(data)


def lines_of(read, path):
    """How many different lines of ours reading a file runs through; all but a refusal gets out."""
    seen = set()

    def lines(frame, event, argument):
        seen.add((frame.f_code, frame.f_lineno))
        return lines

    def calls(frame, event, argument):
        return lines if any(part in frame.f_code.co_filename for part in WATCHED) else None

    before, clock = sys.gettrace(), time.process_time()
    sys.settrace(calls)
    try:
        read(path)
    except pr.InputError:
        pass
    finally:
        sys.settrace(before)
    assert time.process_time() - clock < SECONDS
    return len(seen)


def fuzzed(readers, name, examples):
    path, data, read = readers[name]

    @settings(max_examples=examples)
    @given(CHANGES)
    def search(changes):
        path.write_bytes(changed(data, changes))
        target(float(lines_of(read, path)), label="lines")

    try:
        search()
    finally:
        path.write_bytes(data)
    assert lines_of(read, path) > 5, "and what was sound still is"


@pytest.mark.parametrize("name", READERS)
def test_a_few_inputs_of_every_reader(readers, name):
    fuzzed(readers, name, 40)


@pytest.mark.long
@pytest.mark.parametrize("name", READERS)
def test_ten_thousand_inputs_of_all_readers(readers, name):
    fuzzed(readers, name, 1250)


@pytest.mark.parametrize("kept", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_what_was_found_stays_repaired(kept, tmp_path):
    """Each of them is refused."""
    name = kept.name.split("--")[-1]
    (tmp_path / name).write_bytes(kept.read_bytes())
    with pytest.raises(pr.InputError):
        read_file(tmp_path / name) if name.endswith(".toml") else as_log(tmp_path / name)
