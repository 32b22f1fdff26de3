"""Folders from someone else, through every command that reads one: exit code 2, one message, nothing touched."""

import contextlib
import io
import os
import random
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest
import typer.main

import prudent as pr
from prudent.cli import app

from .hostile_folders import PARSES, READS, RUN, hostile
from .run_folders import adopt

COMMAND = typer.main.get_command(app)
SECONDS, MEGABYTES = 10.0, 300


def invoke(arguments):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            COMMAND.main([str(argument) for argument in arguments], prog_name="prudent")
        except SystemExit as ended:
            return ended.code or 0, said.getvalue()
    return 0, said.getvalue()


@pytest.fixture(scope="module")
def runs(run, problem, tmp_path_factory):
    """A sound run with a page and a proof, and another of other data."""
    root = tmp_path_factory.mktemp("hostile")
    more = root / "more.csv"
    more.write_text("state,action,next_state\nworn,run,broken\n")
    pr.continue_run(run.folder, data=more, iterations=0, out=root / "other", report=False)
    shutil.copytree(run.folder, root / "run")
    pr.prove_run(root / "run", samples=4, gap=0.5, seconds=5.0)
    for name in ("run", "other"):
        (root / name / "report.html").write_text(f"<p>{name}</p>")
        adopt(root / name)
    (root / "other" / "proof.safetensors").write_bytes((root / "run" / "proof.safetensors").read_bytes()[::-1])
    (root / "outside").mkdir()
    (root / "outside" / "kept.txt").write_text("kept")
    return root


def arguments_of(command, folder, root):
    more = {
        "compare": [root / "run", "--samples", 20],
        "continue": ["--iterations", 0, "--no-report"],
        "prove": ["--seconds", 0.1, "--samples", 2],
        "frontier": ["--points", 2],
        "worth": ["--pairs", 1, "--replications", 2],
    }
    return [command, folder, *more.get(command, [])]


def megabytes(name):
    """Of this process, as Linux counts them: VmRSS now, VmHWM at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1]) / 1024


def refused(root, folder, command, what):
    """One command on one folder: CPU seconds, and megabytes more than before it at its peak."""
    outside = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in (root / "outside").iterdir()}
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins again
    clock, before = time.process_time(), megabytes("VmRSS")
    code, said = invoke(arguments_of(command, folder, root))
    spent = time.process_time() - clock, megabytes("VmHWM") - before
    where = f"{command} on {what}: {code}, {said[:300]!r}"
    assert code == 2 and said.startswith("error: ") and said.count("\n") == 1 and len(said) < 2000, where
    assert said[:-1].isprintable(), where
    assert spent[0] < SECONDS and spent[1] < MEGABYTES, f"{where}: {spent}"
    now = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in (root / "outside").iterdir()}
    assert now == outside, where
    return spent


def through_every_command(runs, cases):
    count, folders, longest, most, failed = Counter(), 0, 0.0, 0.0, []
    for what, changed, change in cases:
        shutil.rmtree(runs / "copy", ignore_errors=True)
        folder = shutil.copytree(runs / "run", runs / "copy", symlinks=True)
        change(folder)
        folders += 1
        for command, reads in (PARSES if ", signed: " in what else READS).items():
            if changed in reads:
                try:
                    seconds, memory = refused(runs, folder, command, what)
                except AssertionError as error:
                    failed.append(str(error)[:300])
                    continue
                count[command] += 1
                longest, most = max(longest, seconds), max(most, memory)
    assert not failed, "\n".join(failed)
    return folders, count, longest, most


def all_cases(runs):
    return list(hostile(runs / "run", runs / "other", runs / "outside"))


def test_a_few_hostile_folders(runs):
    cases = all_cases(runs)
    assert len(cases) >= 200
    random.Random(0).shuffle(cases)
    folders, count, *_ = through_every_command(runs, cases[::48])
    assert count.total() > folders


@pytest.mark.long
def test_every_hostile_folder(runs):
    folders, count, longest, most = through_every_command(runs, all_cases(runs))
    print(
        f"{folders} folders, {count.total()} commands ({dict(count)}), longest {longest:.2f} s of CPU, most memory "
        f"{most:.0f} MB more than before"
    )
    assert folders >= 200


def test_what_stands_under_temporary_names_is_cleared_and_not_followed(runs):
    folder = shutil.copytree(runs / "run", runs / "planted")
    for name in RUN:
        (folder / f".{name}.0123456789abcdef.partial").symlink_to(runs / "outside" / "kept.txt")
    assert invoke(["report", folder])[0] == 0
    assert (runs / "outside" / "kept.txt").read_text() == "kept"
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_a_run_folder_may_be_a_link(runs):
    shutil.copytree(runs / "run", runs / "real")
    (runs / "linked").symlink_to(runs / "real")
    assert invoke(["report", runs / "linked"])[0] == 0
    assert "<p>" not in (runs / "real" / "report.html").read_text()[:20]


def test_a_folder_that_cannot_be_written_to_is_refused_before_anything_is_solved(problem, tmp_path, monkeypatch):
    from prudent.runs import solving

    monkeypatch.setattr(solving, "solve", lambda **_: pytest.fail("it was solved first"))
    if os.geteuid() == 0:
        real = os.open

        def refusing(path, flags, *more, **options):
            if str(path).startswith(str(tmp_path)) and flags & os.O_CREAT:
                raise PermissionError(13, "Permission denied", str(path))
            return real(path, flags, *more, **options)

        monkeypatch.setattr(os, "open", refusing)
    else:
        tmp_path.chmod(0o500)
    code, said = invoke(["solve", problem, "--out", tmp_path])
    assert code == 2 and "cannot be written to (Permission denied)" in said
