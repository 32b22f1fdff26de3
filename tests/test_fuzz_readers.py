"""The readers of problem files, logs and run folders on inputs that hypothesis steers to lines not met yet.

Whatever the bytes: they are read, or refused by `InputError`, soon. Cases that once did worse are kept in `corpus/`.
"""

import contextlib
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings, target
from hypothesis import strategies as st

import prudent as pr
import prudent_verifier
from prudent.problems import example
from prudent.problems.plain import read_content
from prudent.problems.schema import parse
from prudent.runs.checkpoint import checkpoint_from
from prudent.runs.folder import read_record
from prudent.tables import Names, count_log

from .run_folders import adopt
from .test_fuzz import MEGABYTES, WORDS, log_files, peak_megabytes

PROBLEM, LOG, COSTS = example("machine").values()

SECONDS = 10.0
MOST = 10_000
CORPUS = Path(__file__).parent / "corpus"
WATCHED = ("tables", "problems", "runs", "files", "report", "policies", "linear", "episodes")
WATCHED = ("/prudent_verifier/", *(f"/prudent/{name}/" for name in WATCHED))


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


def as_proof(path):
    with contextlib.suppress(prudent_verifier.Refused):
        prudent_verifier.verify(path)


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
    linear = pr.write_linear_example(folder / "linear")[0]
    found["linear.toml"] = linear, linear.read_bytes(), pr.read_problem
    proved = pr.write_proof(
        pr.prove(pr.envs.frozen_lake("SF\nHG"), pr.Draws([[0.1, 0.2], [0.4, 0.1]]), gap=0.1, seconds=5.0, workers=1),
        folder / "proof.safetensors",
    )
    found["proof"] = proved, proved.read_bytes(), as_proof
    table = pr.TabularPolicy([[0.5, 0.5], [0.25, 0.75]], states=["new", "worn"], actions=["run", "replace"])
    network = pr.NeuralPolicy(table, [[1.0], [2.0]], [([[1.0], [0.5]], [0.0, 0.1])])
    gain = pr.LinearGaussianPolicy([[1.0, 0.5]], [0.1], [[0.2]])
    for name, policy in (("table.json", table), ("network.json", network), ("gain.json", gain)):
        found[name] = folder / name, policy.save(folder / name).read_bytes(), pr.load_policy
    solution = run.solution.save(folder / "solution.safetensors")
    found["solution"] = solution, solution.read_bytes(), pr.Solution.load
    return found


READERS = ("problem.toml", "log.csv", "log.tsv", "log.jsonl", "log.parquet", "checkpoint", "manifest", "record")
READERS += ("linear.toml", "proof", "table.json", "network.json", "gain.json", "solution")

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
    """How many different lines of ours reading a file runs through, and seconds; all but a refusal gets out."""
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
    seconds = time.process_time() - clock
    assert seconds < SECONDS
    return len(seen), seconds


def fuzzed(readers, name, examples):
    """How many inputs there were, CPU seconds of the longest, lines met by the one that met most, megabytes more."""
    path, data, read = readers[name]
    count, longest, most, before = 0, 0.0, 0, peak_megabytes()

    @settings(max_examples=examples)
    @given(CHANGES)
    def search(changes):
        nonlocal count, longest, most
        path.write_bytes(changed(data, changes))
        lines, seconds = lines_of(read, path)
        count, longest, most = count + 1, max(longest, seconds), max(most, lines)
        target(float(lines), label="lines")

    try:
        search()
    finally:
        path.write_bytes(data)
    assert lines_of(read, path)[0] > 5, "and what was sound still is"
    return count, longest, most, peak_megabytes() - before


@pytest.mark.parametrize("name", READERS)
def test_a_few_inputs_of_every_reader(readers, name):
    fuzzed(readers, name, 10)


@pytest.mark.long
@pytest.mark.parametrize("name", READERS)
def test_ten_thousand_inputs_of_all_readers(readers, name):
    count, longest, lines, megabytes = fuzzed(readers, name, MOST // len(READERS) + 1)
    assert megabytes < MEGABYTES
    print(f"{name}: {count} inputs, longest {longest:.2f} s, up to {lines} lines met, {megabytes:.0f} MB more at most")


@pytest.mark.parametrize("kept", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_what_was_found_stays_repaired(kept, tmp_path):
    """Each of them is refused."""
    name = kept.name.split("--")[-1]
    (tmp_path / name).write_bytes(kept.read_bytes())
    with pytest.raises(pr.InputError):
        read_file(tmp_path / name) if name.endswith(".toml") else as_log(tmp_path / name)
