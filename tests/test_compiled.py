"""Compiled code that the command line keeps: where, how much, switched off, repaired, and shared."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from prudent.cli import app, terminal

SETTINGS = (
    "JAX_COMPILATION_CACHE_DIR",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS",
    "JAX_COMPILATION_CACHE_MAX_SIZE",
    "PRUDENT_NO_CACHE",
)


@pytest.fixture
def settings(monkeypatch, tmp_path):
    """The environment as a user has it, with a cache folder of its own."""
    for name in SETTINGS:
        monkeypatch.setenv(name, "")  # so that whatever a test sets is taken back
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "prudent" / "compiled"


def run(*arguments):
    return CliRunner().invoke(app, [*arguments, "check", "nothing.toml"])


def test_a_command_tells_jax_where_to_keep_compiled_code_and_how_much(settings):
    assert run().exit_code == 2
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == str(settings)
    assert settings.is_dir()
    assert int(os.environ["JAX_COMPILATION_CACHE_MAX_SIZE"]) == terminal.MOST_BYTES


@pytest.mark.parametrize("how", ["option", "variable", "own folder"])
def test_it_is_switched_off(how, settings, monkeypatch):
    if how == "own folder":
        monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "elsewhere")
    if how == "variable":
        monkeypatch.setenv("PRUDENT_NO_CACHE", "1")
    assert run(*(["--no-cache"] if how == "option" else [])).exit_code == 2
    assert not settings.exists()
    assert os.environ.get("JAX_COMPILATION_CACHE_DIR") == ("elsewhere" if how == "own folder" else None)


def test_a_folder_that_cannot_be_made_is_done_without(settings, monkeypatch):
    settings.parent.write_text("a file where the folder should be")
    assert run().exit_code == 2
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ


@pytest.mark.parametrize("how", ["kept", "switched off", "nowhere"])
def test_loops_are_kept_where_that_can_be(how, monkeypatch):
    numba = pytest.importorskip("numba")
    from prudent import loops

    monkeypatch.setenv("PRUDENT_NO_CACHE", "1" if how == "switched off" else "")
    if how == "nowhere":
        monkeypatch.setattr(numba.core.caching.CacheImpl, "_locator_classes", [])
    found = loops.compiled(_twice)
    assert type(found._cache).__name__ == ("FunctionCache" if how == "kept" else "NullCache")
    assert how == "kept" or found(2.0) == 4.0


def _twice(x):
    return 2.0 * x


@pytest.mark.parametrize("how", ["kept", "damaged", "switched off"])
def test_templates_are_compiled_once_for_many_processes(how, settings, monkeypatch):
    from prudent.report import page

    def rendered():
        page._environment.cache_clear()
        return page.render("base.html")

    monkeypatch.setenv("PRUDENT_NO_CACHE", "1" if how == "switched off" else "")
    first, folder = rendered(), settings.with_name("templates")
    if how == "switched off":
        assert not folder.exists()
        return
    (entry,) = folder.iterdir()
    whole = entry.read_bytes()
    if how == "damaged":
        entry.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    else:
        monkeypatch.setattr("jinja2.Environment.compile", None)  # nothing is
    assert rendered() == first
    assert entry.read_bytes() == whole
    page._environment.cache_clear()


def test_half_an_entry_of_a_killed_command_is_removed(settings):
    settings.mkdir(parents=True)
    for name in ("whole-cache", "whole-atime", "half-cache"):
        (settings / name).write_bytes(b"12345678")
    run()
    assert {path.name for path in settings.iterdir()} - {".lockfile"} == {"whole-cache", "whole-atime"}


def test_what_is_being_written_is_left_alone(settings):
    from filelock import FileLock

    settings.mkdir(parents=True)
    (settings / "half-cache").write_bytes(b"1")
    with FileLock(settings / ".lockfile"):
        run()
    assert (settings / "half-cache").exists()


@pytest.mark.long
def test_the_second_command_compiles_nothing_and_two_at_once_are_safe(settings, tmp_path):
    """The numbers are the same with the cache, without it, and for two commands that begin it together."""
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    environment |= {"JAX_LOG_COMPILES": "1"}
    prudent = [str(Path(sys.executable).with_name("prudent"))]
    subprocess.run([*prudent, "init", str(tmp_path / "p")], check=True, env=environment, capture_output=True)
    # Nothing is compiled for the example; the paper's loop is.
    problem = tmp_path / "p" / "problem.toml"
    lines = problem.read_text().split("[solver]")[0].splitlines()
    problem.write_text("\n".join([*lines, "[solver]", 'kind = "brpg"', "iterations = 5", ""]))

    def begun(name, *options):
        command = [*prudent, *options, "solve", str(problem), "-q", "--no-report"]
        command += ["-o", str(tmp_path / name)]
        return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)

    errors = [process.communicate()[1] for process in [begun("one"), begun("two")]]
    errors += [begun("again").communicate()[1], begun("plain", "--no-cache").communicate()[1]]
    assert not any("Traceback" in error or "Error" in error for error in errors)
    policies = {(tmp_path / name / "policy.csv").read_text() for name in ("one", "two", "again", "plain")}
    assert len(policies) == 1
    hits = [error.count("Persistent compilation cache hit") for error in errors]
    assert hits[2] > 0 and hits[3] == 0


def test_loops_are_compiled_without_what_a_checker_of_types_wraps_them_in():
    """Numba keeps what a function holds on to, and a checker's wrapper holds on to what cannot be kept."""
    loops = pytest.importorskip("prudent.loops")

    def plain(number):
        return number + 1

    @functools.wraps(plain)
    def checked(*arguments):
        raise AssertionError

    assert loops.compiled(checked).py_func is plain
