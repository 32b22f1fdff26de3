"""Whole commands, in processes of their own, that are ended at moments of chance; and what the entry point promises."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import prudent as pr
from prudent.files import MANIFEST, locked, read_manifest, settle
from prudent.problems import example
from prudent.runs.folder import FILES, UNFINISHED

from .run_folders import read_checkpoint

PROBLEM = example("machine")["problem.toml"]

ROOT = Path(__file__).parents[1]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
PRUDENT = [sys.executable, "-m", "prudent"]


def prudent(*arguments, shell='exec "$@"', **options):
    """A command as a shell begins it; this process, which may have JAX in it, is not to be forked."""
    options = {"capture_output": True, "text": True, "check": False, "timeout": 300, "env": ENVIRONMENT} | options
    return subprocess.run(["bash", "-c", shell, "shell", *PRUDENT, *map(str, arguments)], **options)


class Zygote:
    """Begins commands in processes of their own."""

    def __init__(self, folder):
        self.folder = folder
        command = [sys.executable, str(ROOT / "tests" / "zygote.py")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, text=True, env=ENVIRONMENT, **pipes)
        assert self.process.stdout.readline() == "ready\n"

    def run(self, *arguments, after=None, number=signal.SIGINT):
        """Exit code, standard error and seconds of a command that is sent a signal after some seconds."""
        (child,), clock = self._begin([arguments]), time.monotonic()
        if after is not None:
            time.sleep(after)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)
        ((code, said),) = self._ended(1)
        return code, said, time.monotonic() - clock

    def together(self, commands):
        """Exit code and standard error of each of several commands that are begun at once."""
        self._begin(commands)
        return self._ended(len(commands))

    def _begin(self, commands):
        said = [
            {
                "out": str(self.folder / f"out{k}"),
                "err": str(self.folder / f"err{k}"),
                "arguments": list(map(str, each)),
            }
            for k, each in enumerate(commands)
        ]
        self.process.stdin.write(json.dumps(said) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def _ended(self, count):
        codes = json.loads(self.process.stdout.readline())
        return [(codes[k], (self.folder / f"err{k}").read_text()) for k in range(count)]

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def content(folder):
    """All files of a run but for how long it took."""
    found = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != MANIFEST}
    said = json.loads(found["solution.json"])
    said.pop("seconds")
    return found | {"solution.json": said}


def killed_at_random(problem, tmp_path, kills, seed=0):
    """Solve and continue, ended at random moments until they are done; then the bits of what was never ended."""
    chance, zygote = random.Random(seed), Zygote(tmp_path)
    home = tmp_path / "home"
    shutil.copytree(problem.parent, home, ignore=lambda _, names: [name for name in names if "." not in name])
    run, more = home / "run", home / "later.csv"
    more.write_text("state,action,next_state\nworn,run,broken\nused,run,worn\n")
    solve = ("solve", home / "problem.toml", "--out", run, "--no-report")
    episode = ("continue", run, "--data", more, "--no-report")
    whole, lasted, counts = {}, {}, dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGKILL), 0)
    try:
        for name, command in (("solve", solve), ("episode", episode)):
            code, said, lasted[name] = zygote.run(*command)
            assert code in (0, 1), said
            whole[name] = content(run)
        while sum(counts.values()) < kills:
            shutil.rmtree(run)
            for name, first in (("solve", solve), ("episode", episode)):
                command = first
                for _ in range(chance.choice([1, 1, 2, 3])):
                    number, after = chance.choice(list(counts)), chance.uniform(0.0, 1.05 * lasted[name])
                    code, said, _ = zygote.run(*command, after=after, number=number)
                    counts[number] += 1
                    assert code in (0, 1) or code == (-number if number == signal.SIGKILL else 130), (code, said)
                    assert code != 130 or (said.startswith("interrupted: ") and said.count("\n") == 1), said
                    command = what_next(run, first, name)
                    if command is None:
                        break
                if command is not None:
                    code, said, _ = zygote.run(*command)
                    assert code in (0, 1), said
                with locked(run):  # as the next command does that changes the folder
                    settle(run, FILES)
                assert content(run) == whole[name], f"{name} goes on to other bits"
                assert not [path.name for path in run.iterdir() if path.name.startswith(".")]
    finally:
        zygote.end()
    return counts


def what_next(run, first, name):
    """The command that goes on, None where all is done."""
    manifest = read_manifest(run) if run.is_dir() else None
    if manifest is None:
        return first
    if UNFINISHED in manifest.files:
        return ("continue", run, "--no-report") if name == "solve" else first
    return None if pr.read_record(run).episode == (name == "episode") else first


@pytest.mark.long
def test_a_hundred_kills_at_random_moments_and_the_same_bits(problem, tmp_path):
    kills = int(os.environ.get("PRUDENT_KILLS", "100"))
    counts = killed_at_random(problem, tmp_path, kills)
    print({signal.Signals(number).name: count for number, count in counts.items()})
    assert sum(counts.values()) >= kills


@pytest.mark.long
@pytest.mark.parametrize("count", [2, 4, 8])
def test_commands_on_one_folder_at_once_come_one_after_the_other(run, tmp_path, count):
    """Each counts its own log: with --wait all do; without it who comes too late is told, and nothing is lost."""
    before, zygote = float(run.case.counts().sum()), Zygote(tmp_path)
    logs = [tmp_path / f"log{k}.csv" for k in range(count)]
    for k, log in enumerate(logs):
        log.write_text("state,action,next_state\n" + "worn,run,broken\n" * (k + 1))
    try:
        for wait in (True, False):
            folder = shutil.copytree(run.folder, tmp_path / f"run-{wait}")
            more = ("--iterations", 1, "--no-report", "--quiet", *(["--wait"] if wait else []))
            ended = zygote.together([("continue", folder, "--data", log, *more) for log in logs])
            counted = [k + 1 for k, (code, _) in enumerate(ended) if code in (0, 1)]
            assert len(counted) == count if wait else counted, ended
            for code, said in ended:
                told = re.search(
                    r"^error: .* is being changed by process \d+ on .*; try later, or wait with --wait", said
                )
                assert code in (0, 1) or (code == 2 and told and said.count("\n") == 1), (code, said)
            saved = read_checkpoint(folder)
            assert saved.episode == len(counted) and saved.case.counts().sum() == before + sum(counted)
            assert {path.name for path in folder.iterdir()} == {path.name for path in run.folder.iterdir()}
            how = "with" if wait else "without"
            print(f"{count} commands {how} --wait: {len(counted)} done, {count - len(counted)} told")
    finally:
        zygote.end()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_is_ended_in_its_first_second(problem, tmp_path, number):
    """While it imports: exit code 130 and one line, nothing written."""
    command = [*PRUDENT, "solve", str(problem), "--out", str(tmp_path / "run")]
    process = subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    # Once the signals are the thread's own, which is before anything of ours is imported.
    status = Path(f"/proc/{process.pid}/status")
    while True:
        caught = next(line for line in status.read_text().splitlines() if line.startswith("SigCgt"))
        if int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1:
            break
        time.sleep(0.001)
    process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    kept = (f"{tmp_path / 'run'} is as it was", "no file is half-written")
    again = f"start again with: prudent {' '.join(command[3:])}"
    assert said in [f"interrupted: {what}; {again}\n" for what in kept]
    assert not (tmp_path / "run").exists()


def test_what_an_interrupted_case_says_to_start_again_with_is_not_refused(tmp_path):
    """Ended once its files are written, it names a command that writes them again."""
    arguments = ["case", "nile", "--out", str(tmp_path / "nile"), "--splits", "1"]
    code, said = ended_once_written(arguments, tmp_path / "nile")
    assert code == 130 and said.endswith(f"start again with: prudent {' '.join(arguments)} --force\n"), said
    assert ended_once_written([*arguments, "--force"], tmp_path / "nile") == (code, said)


def ended_once_written(arguments, folder):
    """Exit code and standard error of a command that is ended once it has written a problem file."""
    first = file.stat().st_mtime_ns if (file := folder / "problem.toml").exists() else None
    process = subprocess.Popen([*PRUDENT, *arguments], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and (not file.exists() or file.stat().st_mtime_ns == first):
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    return process.returncode, said


def test_closed_streams_and_pipes_that_nobody_reads(tmp_path, problem):
    closed = prudent("init", tmp_path / "a", shell='exec "$@" >&- 2>&-', capture_output=False)
    assert closed.returncode == 0
    assert (tmp_path / "a" / "problem.toml").read_text() == PROBLEM, "and no message of ours in it"
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"problem.toml", "log.csv", "costs.csv"}
    reading, writing = os.pipe()
    os.close(reading)
    for arguments in (("init", tmp_path / "b"), ("--help",)):
        done = prudent(*arguments, stdout=writing, stderr=subprocess.PIPE, capture_output=False)
        assert (done.returncode, done.stderr) == (141, ""), arguments
    os.close(writing)


def test_a_limit_of_the_shell_is_no_traceback(problem):
    done = prudent("check", problem, shell='ulimit -v 450000; exec "$@"')
    assert done.returncode == 2, done.stderr
    # A library of others' may have said its own before.
    assert "Traceback" not in done.stderr and done.stderr.splitlines()[-1].startswith("error: ")
    assert "memory" in done.stderr.splitlines()[-1]
