"""Every operation of every command that changes a folder fails once, and is the last of its process once."""

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

import prudent as pr
from prudent.cli import app
from prudent.files import locked, read_manifest, settle
from prudent.runs import advising, checkpoint, reporting, solving
from prudent.runs.folder import FILES, UNFINISHED

from .disk_faults import ERRORS, FAULTS, KILLED, Disk, Killed

COMMAND = typer.main.get_command(app)
ROOT = Path(__file__).parents[1]


def invoke(*arguments):
    """Exit code and what was said; a traceback is an exception."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            COMMAND.main([str(argument) for argument in arguments], prog_name="prudent")
        except SystemExit as ended:
            return ended.code or 0, said.getvalue()
    return 0, said.getvalue()


@pytest.fixture(scope="module")
def computed():
    """Each answer is computed once, with what it was on the way; what is tested here is what becomes of it on disk."""
    known, patch, found = {}, pytest.MonkeyPatch(), solving._found

    def replayed(plan, report, progress, keeper):
        before = None if plan.resume is None else plan.resume.iterations
        key = plan.case.digest(), plan.episode, plan.arguments["solver"].iterations, before, plan.start is None
        if key not in known:
            way = []
            known[key] = (*found(plan, report, progress, lambda so_far: way.append(so_far())), way)
        solution, record, way = known[key]
        for each in way:
            keeper(lambda each=each: each)
        return solution, record

    def once(module, name):
        real = getattr(module, name)

        def answer(*arguments, **options):
            if name not in known:
                known[name] = real(*arguments, **options)
            return known[name]

        patch.setattr(module, name, answer)

    patch.setattr(solving, "_found", replayed)
    patch.setattr(pr.Case, "rivals", lambda *_: {})
    patch.setattr(solving, "fit_of", lambda case: None)
    for module in (solving, reporting, advising):
        patch.setattr(module, "page_file", lambda record: b"<p>page</p>")
    for module, name in ((advising, "prove"), (advising, "frontier"), (advising, "worth_of_data")):
        once(module, name)
    patch.setattr(checkpoint, "SECONDS", 0.0)
    patch.setattr(checkpoint, "SHARE", 1e9)
    yield
    patch.undo()


@pytest.fixture(scope="module")
def base(computed, problem, tmp_path_factory):
    """A finished run, and what it needs; made in a place beside it, where all others are made, for runs know theirs."""
    folder = tmp_path_factory.mktemp("faults") / "home"
    folder.mkdir()
    for name in ("problem.toml", "log.csv", "costs.csv", "successors.csv"):
        shutil.copy(problem.parent / name, folder / name)
    (folder / "more.csv").write_text("state,action,next_state\nworn,run,broken\nused,run,worn\n")
    pr.write_linear_example(folder / "linear")
    shutil.copy(folder / "log.csv", folder / "visits.csv")
    code, said = invoke("solve", folder / "problem.toml", "--out", folder / "run", "--iterations", 2, "--no-report")
    assert code == 1, said
    return folder.rename(folder.with_name("base"))


COMMANDS = {
    "solve": "solve {home}/problem.toml --out {home}/new --iterations 2 --no-report",
    "solve with a page": "solve {home}/problem.toml --out {home}/new --iterations 2",
    "solve --force": "solve {home}/problem.toml --out {home}/run --iterations 3 --no-report --force",
    "continue": "continue {home}/run --iterations 2 --no-report",
    "continue --data": "continue {home}/run --data {home}/more.csv --iterations 2 --no-report",
    "continue --out": "continue {home}/run --iterations 1 --no-report --out {home}/new",
    "report": "report {home}/run",
    "prove": "prove {home}/run --samples 4 --gap 0.5 --seconds 5",
    "frontier": "frontier {home}/run --caution",
    "worth": "worth {home}/run --pairs 1 --replications 2",
    "solve, linear": "solve {home}/linear/problem.toml --out {home}/new --iterations 2 --no-report",
    "init": "init {home}/new --force",
    "init --linear": "init {home}/new --linear --force",
    "case": "case nile --out {home}/new --write-only --force",
}

# What writes files for the user to change, which are no run.
PLAIN = ("init", "init --linear", "case")


def arguments_of(name, home):
    return COMMANDS[name].format(home=home).split()


def contents(folder):
    """What a reader finds in a folder by name, but for how long it took; of a run, as its manifest has it."""
    if not folder.exists():
        return {}
    manifest = read_manifest(folder)
    if manifest is None:
        return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}
    found = {}
    for name in manifest.files:
        data = pr.files.read_members(folder, {name: lambda file, size: None}, (), lambda name: name).contents[name]
        if name == "solution.json":
            said = json.loads(data)
            said.pop("seconds")
            data = json.dumps(said).encode()
        found[name] = b"" if name == "report.html" else data
    return found


def apart(ours, theirs):
    """Where two folders differ: names of files, and of a record what is in it."""
    names = [name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)]
    if "solution.json" in names:
        both = [json.loads(each["solution.json"]) for each in (ours, theirs)]
        said = [{key: json.dumps(value) for key, value in each.items()} for each in both]
        ours, theirs = said
        names += [f"{key}: {ours[key]} and {theirs.get(key)}" for key in ours if ours[key] != theirs.get(key)]
    return names


def target_of(name, home):
    return home / ("new" if "{home}/new" in COMMANDS[name] else "run")


def recovered(name, home, target):
    """Finish what was begun, as the user is told to: go on where a run is kept, or the same command again."""
    manifest = read_manifest(target) if target.is_dir() else None
    if manifest is not None and UNFINISHED in manifest.files and name not in ("report", "prove", "frontier", "worth"):
        pages = [] if "page" in name else ["--no-report"]
        code, said = invoke("continue", target, *pages)
        assert code in (0, 1), said
        return
    after = arguments_of(name, home)
    # What was finished is not solved again, and a log is not counted twice.
    code, said = invoke(*after)
    again = "holds another run" in said or "counted before" in said
    assert code in (0, 1) or again, said
    if again and "page" in name:
        assert invoke("report", target)[0] == 0


def fresh(base):
    """The same place as it was."""
    shutil.rmtree(base.with_name("home"), ignore_errors=True)
    return shutil.copytree(base, base.with_name("home"))


def expected(name, base):
    """What a command leaves where nothing fails, and how many operations that takes."""
    home = fresh(base)
    with Disk(target_of(name, home)) as disk:
        code, said = invoke(*arguments_of(name, home))
    assert code in (0, 1), said
    found = contents(target_of(name, home)), disk.count
    return found


def one_fault(name, base, at, fault, after):
    home = fresh(base)
    target = target_of(name, home)
    before = contents(target)
    try:
        with Disk(target, at, fault) as disk:
            code, said = invoke(*arguments_of(name, home))
            assert fault != KILLED or not disk.met, disk.met
            assert code in (0, 1, 2) and "Traceback" not in said
            assert code != 2 or (said.startswith("error: ") and said.count("\n") == 1), said
    except Killed:
        code = KILLED
    where = f"{name}, operation {at} ({disk.met}), {fault}"
    now = contents(target)
    kept = {each: data for each, data in now.items() if each != UNFINISHED}
    # Without a run before, a disk that is full gets the policy and what is needed to go on.
    least = {"policy.csv"} if code == 2 and not before and UNFINISHED in now else set()
    first = {each: after[each] for each in after if each != "report.html"}
    if name not in PLAIN:
        states = [before, after, first, {each: after[each] for each in least}]
        assert kept in states, f"{where}: neither as before nor as after, but {sorted(now)}"
    if code in (0, 1):
        assert now == after, f"{where}: said that all went well"
    # What is as it should be is not begun again: the same command could go on from it.
    if now != after:
        recovered(name, home, target)
    assert not apart(contents(target), after), f"{where}: goes on to other bits"
    if fault == KILLED:  # what is whole is not changed again by the same command; the next that does clears the rest
        with locked(target):
            settle(target, FILES)
    there = {path.name for path in target.iterdir()}
    assert there == set(after) | ({"manifest.json"} if name not in PLAIN else set()), f"{where}: leaves {sorted(there)}"


def every_fault(name, base, faults, step):
    after, count = expected(name, base)
    assert count > 5
    met = 0
    for fault in faults:
        for at in range(0, count, step):
            one_fault(name, base, at, fault, after)
            met += 1
    return met


@pytest.mark.parametrize(("name", "step"), [("solve with a page", 23), ("continue --data", 23), ("report", 11)])
def test_a_few_operations_fail_or_are_the_last(name, step, base):
    assert every_fault(name, base, (KILLED, "no space"), step) >= 4


@pytest.mark.long
@pytest.mark.parametrize("name", COMMANDS)
def test_every_operation_fails_once_and_is_the_last_once(name, base, record_property):
    met = every_fault(name, base, FAULTS, 1)
    record_property("faults", met)
    print(f"{name}: {met} faults")


def test_the_disk_is_seen_to_fail(tmp_path):
    """The harness itself: what it injects gets where it should, and is noticed if it is not withstood."""
    with Disk(tmp_path, 0, "no space"), pytest.raises(OSError, match="No space"):
        os.open(tmp_path / "a", os.O_WRONLY | os.O_CREAT)
    with Disk(tmp_path, 1, KILLED), contextlib.suppress(Killed):
        handle = os.open(tmp_path / "b", os.O_WRONLY | os.O_CREAT)
        os.write(handle, b"half")
    assert (tmp_path / "b").read_bytes() == b"ha"
    assert set(ERRORS) < set(FAULTS)


# Real signals


SIGNALLED = """
import os, sys, time
from pathlib import Path
from prudent import interrupts
from prudent.files import commit, locked, settle
folder, at, number = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
sys.argv = ["prudent", "solve", "problem.toml"]
known, count = ("unfinished.safetensors", "policy.csv", "report.html"), 0

def counted(real):
    def operation(*arguments, **options):
        global count
        count += 1
        if count - 1 == at:
            os.kill(os.getpid(), number)
        return real(*arguments, **options)
    return operation

interrupts.install()
interrupts.working_on(folder)
for name in ("write", "fsync", "replace", "unlink", "pwrite"):
    setattr(os, name, counted(getattr(os, name)))
with locked(folder):
    settle(folder, known)
    for k in range(2):
        commit(folder, {known[0]: b"state %d" % k}, known, keep=known, note={"iterations": k + 1})
    commit(folder, {known[1]: b"policy", known[2]: b"page"}, known)
if number:
    time.sleep(5)
print(count)
"""


def signalled(folder, at, number):
    folder.mkdir()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(
        [sys.executable, "-c", SIGNALLED, folder, str(at), str(number)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


STATES = ({}, {UNFINISHED: b"state 0"}, {UNFINISHED: b"state 1"}, {"policy.csv": b"policy", "report.html": b""})


def every_signal(tmp_path, step, numbers):
    whole = signalled(tmp_path / "whole", -1, 0)
    assert whole.returncode == 0, whole.stderr
    met = 0
    for number in numbers:
        for at in range(0, int(whole.stdout), step):
            folder = tmp_path / f"{number}-{at}"
            done = signalled(folder, at, number)
            found = contents(folder)
            assert found in STATES, (number, at, found)
            met += 1
            if number == signal.SIGKILL:
                assert done.returncode == -number
                continue
            assert done.returncode == 130 and done.stderr.count("\n") == 1, (done.returncode, done.stderr)
            said = {0: "is as it was; start again with: prudent solve problem.toml", 3: "is whole"}
            kept = f"iteration {STATES.index(found)} is kept in {folder}; go on with: prudent continue {folder}"
            assert said.get(STATES.index(found), kept) in done.stderr, done.stderr
            names = {path.name for path in folder.iterdir()}
            assert names == set(found) | ({"manifest.json"} if found else set()), "nothing is left behind"
    return met


def test_signals_at_a_few_moments_of_writing(tmp_path):
    assert every_signal(tmp_path, 13, (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)) > 8


@pytest.mark.long
def test_signals_at_every_moment_of_writing(tmp_path):
    met = every_signal(tmp_path, 1, (signal.SIGINT, signal.SIGTERM, signal.SIGKILL))
    print(f"{met} signals")
    assert set(FILES) > {UNFINISHED}
