"""Compiled code that the command line keeps: where, how much, switched off, repaired, and shared."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from prudent.cli import app, terminal
from prudent.files import cache_folder

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
def test_it_is_switched_off(how, settings, monkeypatch, tmp_path):
    own = str(tmp_path / "elsewhere")
    if how == "own folder":
        monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", own)
    if how == "variable":
        monkeypatch.setenv("PRUDENT_NO_CACHE", "1")
    assert run(*(["--no-cache"] if how == "option" else [])).exit_code == 2
    assert not settings.exists()
    assert os.environ.get("JAX_COMPILATION_CACHE_DIR") == (own if how == "own folder" else None)


@pytest.mark.parametrize("options", [[], ["--no-cache"]])
@pytest.mark.parametrize("chosen", ["elsewhere", "/open"])
def test_a_folder_of_the_users_own_that_others_can_fill_is_not_used(chosen, options, settings, monkeypatch, tmp_path):
    if chosen == "/open":
        chosen = str(tmp_path / "open")
        os.mkdir(chosen)
        os.chmod(chosen, 0o777)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", chosen)
    assert run(*options).exit_code == 2
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ


def made(path, mode=0o700):
    path.mkdir(parents=True)
    path.chmod(mode)
    return path


def of_another_user(path, link=False):
    if os.geteuid():
        pytest.skip("only root can give a folder away")
    os.chown(path, 65534, 65534, follow_symlinks=not link)


def linked(home, target):
    (home / "prudent").symlink_to(target)


# What is done to the user's cache folder, and what is said of it; nothing where it is used.
PLACES = {
    "private": (lambda home: None, ""),
    "its own folder was open to readers": (lambda home: made(home / "prudent/kind", 0o755), ""),
    "its own folder is open to the group": (lambda home: made(home / "prudent/kind", 0o770), "to {}/prudent/kind"),
    "its own folder is sticky": (lambda home: made(home / "prudent/kind", 0o1777), "can write to {}/prudent/kind"),
    "the folder above is open": (lambda home: made(home / "prudent", 0o777), "can write to {}/prudent."),
    "the folder above is sticky": (lambda home: made(home / "prudent", 0o1777), ""),
    "the root is open": (lambda home: home.chmod(0o777), "can write to {}."),
    "the root is of the group": (lambda home: home.chmod(0o775), "can write to {}."),
    "its own folder belongs to another": (lambda home: of_another_user(made(home / "prudent/kind")), "another user"),
    "the root belongs to another": (lambda home: of_another_user(home), "{} belongs to another user"),
    "a link leads to a private folder": (lambda home: linked(home, made(home.with_name("own"))), ""),
    "a link leads below an open folder": (
        lambda home: linked(home, made(made(home.with_name("open"), 0o777) / "own")), "can write to {}/../open.",
    ),
    "a link leads through one that others can exchange": (
        lambda home: linked(home, chained(home)), "can write to {}/../open.",
    ),
    "a link is another user's": (
        lambda home: (linked(home, made(home.with_name("own"))), of_another_user(home / "prudent", link=True)),
        "{}/prudent belongs to another user",
    ),
    "links lead in a circle": (lambda home: linked(home, home / "prudent"), None),
}  # fmt: skip


def chained(home):
    """A link in an open folder, to a private one."""
    link = made(home.with_name("open"), 0o777) / "link"
    link.symlink_to(made(home.with_name("own")))
    return link


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="folders of users")
@pytest.mark.parametrize("place", PLACES)
def test_only_folders_that_nobody_else_can_fill_or_exchange_are_used(place, tmp_path, monkeypatch, caplog):
    change, said = PLACES[place]
    home = made(tmp_path / "cache")
    change(home)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    monkeypatch.delenv("PRUDENT_NO_CACHE", raising=False)
    before = sorted(tmp_path.rglob("*"))
    found = cache_folder("kind")
    if said == "":
        assert found == home / "prudent" / "kind" and not found.stat().st_mode & 0o077
        assert not caplog.records
    else:
        assert found is None and sorted(tmp_path.rglob("*")) == before
        words = [] if said is None else [record.getMessage() for record in caplog.records]
        assert said is None or said.format(home).replace("cache/../", "") in words[0]


@pytest.mark.parametrize("root", ["XDG_CACHE_HOME", "OWN_CACHE"])
def test_no_folder_below_the_working_directory_is_used(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/dev/null")  # what platformdirs takes where it passes over a relative XDG_CACHE_HOME
    monkeypatch.setenv(root, "cache")
    assert cache_folder("kind", "OWN_CACHE") is None
    assert not any(tmp_path.iterdir())


def test_the_user_names_another_place(tmp_path, monkeypatch):
    monkeypatch.setenv("OWN_CACHE", str(tmp_path / "own"))
    assert cache_folder("kind", "OWN_CACHE") == tmp_path / "own" / "kind"


def test_a_folder_that_cannot_be_made_is_done_without(settings, monkeypatch):
    settings.parent.write_text("a file where the folder should be")
    assert run().exit_code == 2
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ


@pytest.mark.parametrize("how", ["kept", "own folder", "forged settings", "switched off", "nowhere"])
def test_loops_are_kept_in_a_private_folder_whatever_the_settings_are(how, settings, monkeypatch, tmp_path):
    numba = pytest.importorskip("numba")
    from prudent import loops

    folder = settings.with_name("loops")
    if how == "own folder":
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "own"))
        folder = tmp_path / "own" / "loops"
    if how == "forged settings":  # as a file of the working directory sets them
        monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "forged"))
        monkeypatch.setattr(numba.config, "CACHE_LOCATOR_CLASSES", "InTreeCacheLocator", raising=False)
    if how == "switched off":
        monkeypatch.setenv("PRUDENT_NO_CACHE", "1")
    if how == "nowhere":
        folder.parent.mkdir(parents=True)
        folder.write_text("a file where the folder should be")
    before = numba.config.CACHE_DIR, getattr(numba.config, "CACHE_LOCATOR_CLASSES", "")
    found = loops.compiled(_twice)
    kept = None if how in ("switched off", "nowhere") else folder
    path = found.stats.cache_path
    assert (None if path is None else Path(path).parent) == kept
    assert (numba.config.CACHE_DIR, getattr(numba.config, "CACHE_LOCATOR_CLASSES", "")) == before
    assert kept is not None or found(2.0) == 4.0


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
    subprocess.run(
        [*prudent, "init", "--linear", str(tmp_path / "p")], check=True, env=environment, capture_output=True
    )
    # Nothing is compiled for tables; moments and plans of linear systems are.
    problem = tmp_path / "p" / "problem.toml"
    lines = problem.read_text().split("[solver]")[0].splitlines()
    problem.write_text("\n".join([*lines, "[solver]", "samples = 32", "largest = 32", "starts = 1", ""]))

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
