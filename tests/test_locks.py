"""One process at a time changes a run; the others are told who, or wait, and nothing is lost."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import prudent as pr
from prudent.files import commit, locked, read_manifest, settle

from .marks import short

ROOT = Path(__file__).parents[1]

# Adds a line to a file of the folder: what was there when the lock was taken, and its own.
ADDING = """
import sys, time
from pathlib import Path
from prudent.errors import InputError
from prudent.files import commit, locked, read_members, settle
folder, name, wait = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "wait"
try:
    with locked(folder, wait):
        settle(folder, ("a.txt",))
        read = read_members(folder, {"a.txt": lambda file, size: None}, (), str)
        time.sleep(0.2)
        commit(folder, {"a.txt": read.contents["a.txt"] + name.encode() + b"\\n"}, ("a.txt",))
except InputError as error:
    print(error, file=sys.stderr)
    sys.exit(2)
"""


def processes(folder, count, wait):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", ADDING, str(folder)]
    begun = [
        subprocess.Popen([*command, f"p{k}", wait], env=environment, stderr=subprocess.PIPE, text=True)
        for k in range(count)
    ]
    return [(process.wait(), process.stderr.read(), process.stderr.close())[:2] for process in begun]


def begun(folder):
    with locked(folder):
        settle(folder, ("a.txt",))
        commit(folder, {"a.txt": b"first\n"}, ("a.txt",))


@pytest.mark.parametrize("count", short([4], [2, 4, 8]))
def test_who_waits_loses_nothing(tmp_path, count):
    begun(tmp_path)
    assert [code for code, _ in processes(tmp_path, count, "wait")] == [0] * count
    lines = (tmp_path / "a.txt").read_text().split()
    assert lines[0] == "first" and sorted(lines[1:]) == sorted(f"p{k}" for k in range(count))
    assert {path.name for path in tmp_path.iterdir()} == {"a.txt", "manifest.json"}


@pytest.mark.parametrize("count", short([4], [2, 4, 8]))
def test_who_does_not_wait_is_told_who_is_first_and_changes_nothing(tmp_path, count):
    begun(tmp_path)
    ended = processes(tmp_path, count, "now")
    done = sum(code == 0 for code, _ in ended)
    assert done >= 1 and {code for code, _ in ended} <= {0, 2}
    for code, said in ended:
        if code:
            assert re.search(r"is being changed by process \d+ on \S+ \(prudent.*, since .*\); try later", said), said
    assert len((tmp_path / "a.txt").read_text().split()) == 1 + done


def test_a_lock_of_a_process_that_is_gone_holds_nobody(tmp_path):
    (tmp_path / ".lock").write_text(json.dumps({"process": 1, "machine": "x", "command": "y", "since": "z"}))
    with locked(tmp_path):
        assert json.loads((tmp_path / ".lock").read_text())["process"] == os.getpid()
    assert not (tmp_path / ".lock").exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 4000, b'{"process": "\x1b[2J"}', b"\xff" * 100, b"7"])
def test_a_holder_says_only_what_can_be_read(tmp_path, content):
    inside = []

    def second():
        try:
            with locked(tmp_path):
                pass
        except pr.InputError as error:
            inside.append(str(error))

    with locked(tmp_path):
        (tmp_path / ".lock").write_bytes(content)
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert inside and "is being changed by another process" in inside[0]


def test_two_continuations_at_once_lose_no_data(run, tmp_path):
    """As threads: each counts its own log; the second waits and counts on top of the first."""
    folder = shutil.copytree(run.folder, tmp_path / "run")
    logs = []
    for k, row in enumerate(("worn,run,broken", "used,run,worn")):
        logs.append(tmp_path / f"log{k}.csv")
        logs[-1].write_text(f"state,action,next_state\n{row}\n")

    def go_on(log):
        pr.continue_run(folder, data=log, iterations=1, report=False, wait=True)

    threads = [threading.Thread(target=go_on, args=(log,)) for log in logs]
    for thread in threads:
        thread.start()
    while not (folder / ".lock").exists():
        assert any(thread.is_alive() for thread in threads)
    with pytest.raises(pr.InputError, match="is being changed by"):
        pr.report_run(folder)
    for thread in threads:
        thread.join()
    from .run_folders import read_checkpoint

    saved = read_checkpoint(folder)
    assert saved.episode == 2 and saved.case.counts().sum() == run.case.counts().sum() + 2
    manifest = read_manifest(folder)
    assert manifest is not None and "unfinished.safetensors" not in manifest.files
