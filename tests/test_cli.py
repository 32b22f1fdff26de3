"""The command line, as a user meets it: the installed command in a subprocess."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from typer.testing import CliRunner

from prudent.cli import app, plugins

COMMAND = Path(sys.executable).with_name("prudent")


def prudent(*arguments):
    return subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300)


def test_help_names_the_commands_and_version_is_printed():
    help_text = prudent("--help")
    assert help_text.returncode == 0
    assert "demo" in help_text.stdout
    assert prudent("--version").stdout.strip() == "0.1.0"
    assert "Example" in prudent("demo", "--help").stdout


def test_demo_prints_its_table_and_maps_and_writes_the_figure(tmp_path):
    result = prudent("demo", "--out", tmp_path / "new" / "folder")
    assert result.returncode == 0, result.stderr
    for row in ("least CVaR 0 ", "least CVaR 0.5", "least CVaR 0.9", "plug-in plan", "reconstruction"):
        assert row in result.stdout
    assert result.stdout.count("→") > 10
    figure = tmp_path / "new" / "folder" / "loss-distributions.png"
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in figure.parent.iterdir()] == [figure.name], "nothing half-written is left behind"


def test_bad_input_exits_with_2_and_no_traceback(tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a folder")
    for arguments in (
        ("demo", "--out", in_the_way),
        ("demo", "--seed", "-1"),
    ):
        result = prudent(*arguments)
        assert result.returncode == 2, arguments
        assert "Traceback" not in result.stderr
        assert result.stderr.strip()
    assert in_the_way.read_text() == "not a folder"


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


def invoke(*arguments):
    return CliRunner().invoke(app, arguments)


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
            "error: `prudent reproduce` comes with prudent-studies; install it with: pip install prudent-studies\n"
        )
    assert "reproduce" not in invoke("--help").output
    unknown = invoke("reproduction")
    assert unknown.exit_code == 2 and "No such command" in unknown.stderr
