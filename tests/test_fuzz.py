"""Mutated problem files, logs and checkpoints: exit code 0, 1 or 2, never a traceback, never more than five seconds."""

import contextlib
import io
import json
import random
import resource
import time

import numpy as np
import pyarrow as pa
import pytest
import typer.main
from pyarrow import csv, parquet

import prudent as pr
from prudent.cli import app
from prudent.problems import example
from prudent.runs.tensors import packed, unpacked

from .run_folders import adopt

PROBLEM, LOG, COSTS = example("machine").values()

SECONDS, MEGABYTES = 5.0, 300

SAID = r"""
nan inf -inf -1 0 1 1e400 1e-400 0.5 "" [] {} [[]] true 99999999999999999999 9223372036854775807 1_0 0x10 = , " ' # [ ]
[[ ]] { } . \\ ../ /etc/passwd log.csv costs.csv "new" "worn" run service replace state action next_state count
cost listed all observed cvar level kind expectation worst-case mixture kl-ball radius imitation target family 3 null
"""
WORDS = [
    *SAID.split(),
    *("\t", "\n", "\r", "\x00", "\x1b", "\ufeff", "é", "状"),
    '"\\u0000"',
    "[data]",
    "[risk]",
    'family = "os:getcwd"',
    "states = 1000000\nactions = 1000",
    "a" * 300,
    "[" * 2000,
    "1979-05-27",
    "0.1" * 50,
]


def mutated(data, chance):
    """Some bytes of a text or a file changed, cut, repeated or replaced by what readers stumble over."""
    data = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 2, 3, 8])):
        at = chance.randrange(len(data) + 1)
        span = min(chance.choice([1, 1, 4, 16, 200]), len(data) - at)
        kind = chance.randrange(7)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del data[at : at + span]
        elif kind == 2:
            data[at:at] = data[at : at + span] * chance.choice([1, 2, 50])
        elif kind == 3:
            data[at:at] = chance.choice(WORDS).encode()
        elif kind == 4:
            data[at : at + span] = chance.choice(WORDS).encode()
        elif kind == 5:
            data[at : at + span] = chance.randbytes(span)
        else:
            del data[at:]
    return bytes(data)


def with_value(text, chance):
    """A value of a TOML text replaced, or a line dropped, repeated or moved."""
    lines = text.split("\n")
    at = chance.randrange(len(lines))
    kind = chance.randrange(4)
    if kind == 0 and "=" in lines[at]:
        lines[at] = lines[at].split("=")[0] + "= " + chance.choice(WORDS)
    elif kind == 1:
        del lines[at]
    elif kind == 2:
        lines.insert(chance.randrange(len(lines)), lines[at])
    else:
        lines.insert(at, chance.choice(["[solver]", "[loss]", "[layout]", "grid = [2, 2]", chance.choice(WORDS)]))
    return "\n".join(lines)


def log_files():
    """The log in every format there is."""
    table = csv.read_csv(pa.py_buffer(LOG.encode()))
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink)
    return {
        "log.csv": LOG.encode(),
        "log.tsv": LOG.replace(",", "\t").encode(),
        "log.jsonl": "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode(),
        "log.parquet": sink.getvalue().to_pybytes(),
    }


COMMAND = typer.main.get_command(app)


def invoke(*arguments):
    """Run a command as the shell does: its exit code (or the exception that got out), what it said, CPU seconds."""
    said = io.StringIO()
    clock = time.process_time()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            COMMAND.main([str(argument) for argument in arguments], prog_name="prudent")
            code = 0
        except SystemExit as exit_:
            code = exit_.code or 0
        except BaseException as error:
            code = repr(error)
    return code, said.getvalue(), time.process_time() - clock


def assert_all_well(cases):
    """Run the cases, and show the first that went wrong; the exit codes that came up."""
    codes, longest, before = {0: 0, 1: 0, 2: 0}, 0.0, peak_megabytes()
    for name, arguments in cases:
        code, said, seconds = invoke(*arguments)
        assert code in codes, (name, code, said[-300:])
        assert "Traceback" not in said, (name, said)
        assert seconds < SECONDS, (name, arguments, seconds)
        codes[code] += 1
        longest = max(longest, seconds)
    more = peak_megabytes() - before
    assert more < MEGABYTES
    print(f"{sum(codes.values())} files, by exit code {codes}, longest {longest:.2f} s, {more:.0f} MB more at most")
    return codes


def peak_megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def problem_cases(folder, count, seed):
    """Mutated problem files and logs, checked; one in a hundred is also solved, in few iterations."""
    chance = random.Random(seed)
    logs = log_files()
    path = folder / "problem.toml"
    small = PROBLEM.replace("samples = 128", "samples = 5").replace("evaluation = 1000", "evaluation = 20")
    for number in range(count):
        name = chance.choice(list(logs))
        texts = {"problem.toml": small.replace("log.csv", name).encode(), "costs.csv": COSTS.encode(), name: logs[name]}
        victim = chance.choice(["problem.toml", "problem.toml", "costs.csv", name, name])
        if victim == "problem.toml" and chance.random() < 0.7:
            texts[victim] = with_value(texts[victim].decode(), chance).encode()
        else:
            texts[victim] = mutated(texts[victim], chance)
        for file, content in texts.items():
            (folder / file).write_bytes(content)
        yield f"{number}: {victim}", ("check", path)
        if number % 100 == 99:
            yield (
                f"{number}: {victim}",
                ("solve", path, "--out", folder / "out", "--force", "--iterations", 1, "--no-report"),
            )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run to be damaged."""
    folder = tmp_path_factory.mktemp("run")
    problem = pr.write_example(folder)[0]
    changes = {"solver.iterations": 2, "solver.samples": 5, "solver.largest": 5, "solver.evaluation": 20}
    return pr.solve_problem(problem, folder / "run", report=False, changes=changes).folder


def tampered(said, chance):
    """One value of a JSON replaced."""
    values = [-1, 0, 1, 2**40, "", "x", None, [], {}, [[]], True, "CONVERGED", 0.5]
    while isinstance(said, dict | list) and said:
        key = chance.choice(sorted(said) if isinstance(said, dict) else range(len(said)))
        if not isinstance(said[key], dict | list) or not said[key] or chance.random() < 0.2:
            said[key] = chance.choice(values)
            return
        said = said[key]


def forged(run, chance, folder):
    """A `solution.json` with one value replaced, by someone who knows how to sign it."""
    said = json.loads((run / "solution.json").read_text())
    tampered(said, chance)
    (folder / "solution.json").write_bytes(json.dumps(said).encode())
    adopt(folder)


def signed(path, kind, chance, target):
    """A file whose content was changed by someone who knows how to sign it."""
    arrays, record = unpacked(path.read_bytes(), kind, str(path))
    arrays, record = {name: np.array(array) for name, array in arrays.items()}, json.loads(json.dumps(record))
    if chance.random() < 0.5:
        name = chance.choice(sorted(arrays))
        array = arrays[name]
        change = chance.randrange(4)
        if change == 0 and array.size:
            array.ravel()[chance.randrange(array.size)] = chance.choice([-1, 0, 7, 2**30])
        elif change == 1:
            arrays[name] = array.astype(np.float32)
        elif change == 2:
            del arrays[name]
        elif array.ndim:
            arrays[name] = array[:-1]
    else:
        tampered(record, chance)
    target.write_bytes(packed(arrays, record))
    adopt(target.parent)


def checkpoint_cases(folder, run, count, seed):
    """Mutated checkpoints and records, by someone who can sign them or not, for every command that reads one."""
    chance = random.Random(seed)
    names = checkpoint, *records = "checkpoint.safetensors", "report.safetensors", "solution.json"
    files = {name: (run / name).read_bytes() for name in names}
    going_on = ("continue", folder, "--iterations", 1, "--no-report", "--out", folder / "on", "--force")
    commands = {
        "compare": (names, ("compare", folder, run, "--samples", 20)),
        "continue": ([checkpoint], going_on),
        "report": (records, ("report", folder)),
    }
    for number in range(count):
        for name, content in files.items():
            (folder / name).write_bytes(content)
        adopt(folder)
        command = chance.choice(["compare", "compare", "continue", "report"])
        read, arguments = commands[command]
        name = chance.choice(read)
        if chance.random() < 0.4:
            if name == "solution.json":
                forged(run, chance, folder)
            else:
                signed(run / name, read_kind(run / name), chance, folder / name)
        else:
            (folder / name).write_bytes(mutated(files[name], chance))
            if chance.random() < 0.5:
                adopt(folder)
        yield f"{number}: {command}", arguments


def read_kind(path):
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        return json.loads(file.metadata()["record"])["kind"]


def test_a_few_mutated_files(tmp_path):
    codes = assert_all_well(problem_cases(tmp_path, 50, seed=1))
    assert min(codes[0], codes[2]) > 5, "mutations that nobody notices, or that all are refused, test nothing"


@pytest.mark.long
def test_ten_thousand_mutated_files(tmp_path, run):
    codes = assert_all_well(problem_cases(tmp_path, 8000, seed=3))
    assert min(codes[0], codes[2]) > 500
    (tmp_path / "damaged").mkdir()
    codes = assert_all_well(checkpoint_cases(tmp_path / "damaged", run, 2000, seed=4))
    assert codes[2] > 1000
