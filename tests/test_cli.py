"""The command line, as a user meets it: what every command shares, and the commands of other packages."""

import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from prudent.cli import app, plugins
from prudent.cli.solve import _show_decision
from prudent.report import ChoiceRecord, DecisionRecord

COMMAND = Path(sys.executable).with_name("prudent")


def prudent(*arguments, folder=None):
    """The installed command, as a new user runs it."""
    return subprocess.run(
        [COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300, cwd=folder
    )


def invoke(*arguments):
    return CliRunner().invoke(app, arguments)


def test_help_names_the_commands_and_version_is_printed():
    help_text = prudent("--help")
    assert help_text.returncode == 0
    assert "demo" in help_text.stdout
    assert prudent("--version").stdout.strip() == "0.1.0"
    assert "Example" in prudent("demo", "--help").stdout


def test_demo_prints_its_table_and_maps_and_writes_the_figure(tmp_path):
    result = invoke("demo", "--out", str(tmp_path / "new" / "folder"))
    assert result.exit_code == 0, result.stderr
    for row in ("least CVaR 0 ", "least CVaR 0.5", "least CVaR 0.9", "plug-in plan", "reconstruction"):
        assert row in result.stdout
    assert result.stdout.count("→") > 10
    figure = tmp_path / "new" / "folder" / "loss-distributions.png"
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in figure.parent.iterdir()] == [figure.name], "nothing half-written is left behind"


def test_what_demo_and_case_cannot_do_alone_they_say(tmp_path, monkeypatch):
    for name, value in {"LEVELS": (0.0,), "SAMPLES": 50, "find_spec": lambda _: None}.items():
        monkeypatch.setattr(f"prudent.cli.demo.{name}", value)
    shown = invoke("demo", "--out", str(tmp_path))
    assert shown.exit_code == 0 and "no figure: it needs the extra report" in shown.stdout, shown.output
    for name, trust in (("bus", " --trust"), ("nile", "")):
        folder = tmp_path / name
        written = invoke("case", name, "--write-only", "--out", str(folder))
        said = f"next:  prudent solve {folder / 'problem.toml'} --out {folder / 'run'}{trust}\n"
        assert written.exit_code == 0 and written.stdout.endswith(said)


def test_the_states_that_are_left_out_are_said_to_be_and_where_they_are(capsys, monkeypatch):
    choices = tuple(
        ChoiceRecord(state=f"s{k}", number=k, act="go", time=0.01 * (k + 1), verdict="matters") for k in range(15)
    )
    record = SimpleNamespace(
        decision=DecisionRecord(choices=choices, left_out=2, starts=(0,)),
        state_names=tuple(f"s{k}" for k in range(20)),
        risk_name="CVaR 0.9",
        carried=True,
        evidence=None,
    )
    monkeypatch.setattr("prudent.report.warnings_of", lambda _: [])
    monkeypatch.setattr("prudent.report.promise_words", lambda _: "")
    _show_decision(record, Path("run"))
    said = capsys.readouterr().out
    assert "s0 " in said and "s1 " not in said, "where it begins is listed, however little time is spent there"
    assert "(12 of 20; all are in run/policy.csv)" in said


def test_bad_input_exits_with_2_and_no_traceback(tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a folder")
    result = invoke("demo", "--out", str(in_the_way))
    assert result.exit_code == 2 and "Traceback" not in result.stderr and result.stderr.strip()
    assert in_the_way.read_text() == "not a folder"
    negative = invoke("demo", "--seed", "-1")
    assert negative.exit_code == 2 and negative.stderr.strip()


@pytest.mark.long
def test_names_from_files_are_text_in_the_report_and_on_the_terminal(problem, tmp_path):
    for path in (each for each in problem.parent.iterdir() if each.suffix in (".toml", ".csv")):
        text = path.read_text().replace("worn", "<script>alert(1)</script>").replace("used", "[red]used")
        (tmp_path / path.name).write_text(text)
    result = CliRunner().invoke(app, ["solve", str(tmp_path / "problem.toml"), "--out", str(tmp_path / "run")])
    assert result.exit_code == 1, result.output
    page = (tmp_path / "run" / "report.html").read_text()
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    checked = CliRunner().invoke(app, ["check", str(tmp_path / "problem.toml")])
    assert "[red]used, <script>alert(1)</script>" in checked.output


def test_json_quiet_and_completion(problem, run):
    arguments = ["solve", str(problem), "--no-report", "--out"]
    told = CliRunner().invoke(app, [*arguments, str(problem.parent / "json"), "--json"])
    assert told.exit_code == 1
    assert json.loads(told.stdout) == json.loads((problem.parent / "json" / "solution.json").read_text())
    assert json.loads(told.stdout)["risk"] == run.solution.risk
    quiet = CliRunner().invoke(app, [*arguments, str(problem.parent / "quiet"), "--quiet"])
    assert (quiet.exit_code, quiet.output) == (1, "")


def test_shell_completion_knows_the_commands(tmp_path):
    environment = os.environ | {"_PRUDENT_COMPLETE": "complete_bash", "COMP_WORDS": "prudent co", "COMP_CWORD": "1"}
    done = subprocess.run([COMMAND], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["compare", "continue"]


@pytest.mark.parametrize("command", ["init", "check", "solve", "evaluate", "compare", "continue", "report"])
def test_every_command_shows_an_example(command):
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert f"Example: prudent {command}" in result.output


WATCHED = """
import os, sys
from pathlib import Path
home = Path(sys.argv[1]).resolve()
seen = []
def watch(event, arguments):
    if event == "pickle.find_class":
        seen.append(f"unpickled {arguments}")
    if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        path, mode, flags = arguments
        writes = set(mode) & set("wax+") if isinstance(mode, str) else (flags or 0) & (os.O_WRONLY | os.O_RDWR)
        if writes and os.fsdecode(path) != os.devnull and not Path(os.fsdecode(path)).resolve().is_relative_to(home):
            seen.append(f"opened {path!r} to write")
    if event in ("os.rename", "os.remove", "os.mkdir", "os.symlink", "os.link", "shutil.rmtree"):
        for path in arguments[:2]:
            if isinstance(path, str | os.PathLike) and not Path(path).resolve().is_relative_to(home):
                seen.append(f"{event} {path!r}")
sys.addaudithook(watch)
# The watch sees what it is there to see.
import pickle
(home.parent / "outside").write_text("x")
pickle.loads(pickle.dumps(Path))
assert len(seen) == 2, seen
seen.clear()
from typer.testing import CliRunner
from prudent.cli import app
os.chdir(home)
Path("more.csv").write_text("state,action,next_state\\nworn,run,worn\\n")
for arguments in (
    "init .",
    "check problem.toml",
    "solve problem.toml --out run --iterations 3",
    "evaluate run/policy.csv problem.toml",
    "continue run --iterations 2",
    "continue run --data more.csv --out next --iterations 2",
    "compare run next",
    "report run",
):
    result = CliRunner().invoke(app, arguments.split())
    assert result.exit_code in (0, 1), (arguments, result.output, result.exception)
print(seen)
"""


@pytest.mark.long
def test_no_command_unpickles_or_writes_outside_its_folder(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")} | {"PYTHONDONTWRITEBYTECODE": "1"}
    # The user's cache folder, which the manual names, is in the same place.
    environment |= {"XDG_CACHE_HOME": str(home / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, home], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


@pytest.mark.long
def test_the_example_solves_as_it_is(tmp_path):
    assert prudent("init", folder=tmp_path).returncode == 0
    done = prudent("solve", "problem.toml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "run" / "solution.json").read_text())["status"] == "CONVERGED"


# Commands of other packages


@pytest.fixture
def offered(tmp_path, monkeypatch):
    """Two packages that bring commands: one in order, one that cannot be imported."""
    (tmp_path / "sound_package.py").write_text(
        "from typing import Annotated\nimport typer\n"
        "def greet(name: str, often: Annotated[int, typer.Option(min=1)] = 1) -> None:\n"
        '    """Greets."""\n    typer.echo(f\'hello {name} \' * often)\n'
    )
    (tmp_path / "broken_package.py").write_text("raise RuntimeError('its licence\\nhas run out')\n")
    monkeypatch.syspath_prepend(tmp_path)
    offers = {"greet": "sound_package:greet", "broken": "broken_package:run", "demo": "broken_package:run"}
    points = {name: EntryPoint(name, value, plugins.GROUP) for name, value in offers.items()}
    monkeypatch.setattr(plugins, "_offered", lambda: points)


@pytest.mark.usefixtures("offered")
def test_a_command_of_another_package_is_one_of_prudents():
    assert "Greets." in invoke("--help").output
    assert invoke("greet", "you", "--often", "2").output.strip() == "hello you hello you"
    assert "greet [OPTIONS]" in invoke("greet", "--help").output
    assert invoke("greet", "you", "--often", "0").exit_code == 2


@pytest.mark.usefixtures("offered")
def test_a_package_that_cannot_be_imported_breaks_its_own_command_alone():
    result = invoke("broken", "--any", "thing", "--help")
    assert result.exit_code == 2 and "Traceback" not in result.output
    assert (
        "`prudent broken` of the package broken_package cannot be loaded: RuntimeError: its licence has"
        in result.stderr
    )
    listed = invoke("--help")
    assert listed.exit_code == 0 and "Greets." in listed.output and "broken" in listed.output
    assert "five observations" in invoke("demo", "--help").output, "a command of the library is never another's"


def test_without_the_studies_their_commands_name_the_package(monkeypatch):
    monkeypatch.setattr(plugins, "_offered", dict)
    for arguments in (["table1", "--replications", "2"], ["--help"], []):
        result = invoke("reproduce", *arguments)
        assert result.exit_code == 2
        assert result.stderr == (
            "error: `prudent reproduce` comes with prudent-studies; install it from a clone of the repository: "
            "pip install ./studies\n"
        )
    assert "reproduce" not in invoke("--help").output
    unknown = invoke("reproduction")
    assert unknown.exit_code == 2 and "No such command" in unknown.stderr
