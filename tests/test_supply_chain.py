"""What is installed: pinned by version and hash, one version of each, and what builds the packages among it."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
lock = pytest.importorskip("lock")
sys.path.pop(0)

ENTRY = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)


def pins(level):
    return dict(ENTRY.findall((ROOT / "constraints" / f"{level}.txt").read_text()))


def test_every_pin_has_hashes_and_one_version():
    versions = {}
    for level in lock.LEVELS:
        text = (ROOT / "constraints" / f"{level}.txt").read_text()
        for entry in re.split(r"\n(?=\S)", text.strip())[1:]:
            assert entry.count("--hash=sha256:") >= 1, entry[:80]
        for name, version in pins(level).items():
            assert versions.setdefault(name, version) == version, name


def test_every_requirement_is_pinned_in_its_level_or_one_below():
    for level, lines in lock.requirements().items():
        there, below = {}, level
        while below is not None:
            there, below = there | pins(below), lock.LEVELS[below][0]
        for line in lines:
            name = re.match(r"[\w.-]+", line)[0].lower().replace("_", "-").replace(".", "-")
            assert name in there, f"{level} needs {line}"


def test_make_installs_levels_as_they_were_pinned():
    makefile = (ROOT / "Makefile").read_text()
    for level, (below, *_) in lock.LEVELS.items():
        if below not in (None, "base"):
            assert re.search(rf"^(\S+ )*\.venv/{level}\b[^:]*: \.venv/{below}$", makefile, re.MULTILINE), level
    phony = re.search(r"^\.PHONY:((?:.*\\\n)*.*)$", makefile, re.MULTILINE)[1].replace("\\", " ").split()
    targets = re.findall(r"^([a-z-]+)(?: [a-z-]+)*:(?! export)", makefile, re.MULTILINE)
    assert set(targets) == set(phony)


@pytest.mark.parametrize("folder", [".", "studies"])
def test_what_builds_a_package_is_pinned_and_installed(folder):
    wanted = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["build-system"]["requires"]
    for line in wanted:
        name, version = line.split("==")
        assert pins("base")[name] == version


def stated(lines):
    """Requirements as `name -> bounds`, spaces and comments aside."""
    found = {}
    for line in lines:
        name, bounds = re.match(r"([\w.-]+)\s*(?:\[.*?\])?\s*([^#]*)", line).groups()
        found[name.removesuffix("-base")] = bounds.replace(" ", "")
    return found


def test_the_conda_recipe_asks_for_what_the_wheel_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = stated([*project["dependencies"], *project["optional-dependencies"]["report"]])
    recipe = (ROOT / "tools" / "recipe.yaml").read_text()
    run = re.search(r"^  run:\n((?:    .*\n)+)", recipe, re.MULTILINE)[1]
    given = stated(re.findall(r"^    - (.+)$", run, re.MULTILINE))
    assert given.pop("python") == project["requires-python"]
    assert given == wanted
    (command,) = re.findall(r"^      - (prudent = .+)$", recipe, re.MULTILINE)
    assert command == f"prudent = {project['scripts']['prudent']}"


def test_a_release_is_tried_by_every_python_that_it_is_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    said = [line.rsplit(" ")[-1] for line in project["classifiers"] if re.search(r":: 3\.\d+$", line)]
    for name in ("tests", "release"):
        workflow = (ROOT / ".github" / "workflows" / f"{name}.yml").read_text()
        (matrix,) = re.findall(r"^        python-version: \[(.*)\]$", workflow, re.MULTILINE)
        assert re.findall(r"[\d.]+", matrix) == said, name
    (pythons,) = re.findall(r"^PYTHONS \?= (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert pythons.split() == [f"python{version}" for version in said]


def test_a_benchmark_that_takes_longer_is_an_alert(tmp_path):
    before, after = tmp_path / "before.txt", tmp_path / "after.txt"
    before.write_text("one gradient   0.20 s\ngone   3 s\nratio 2.0\n")
    tool = [sys.executable, str(ROOT / "tools" / "compare_benchmarks.py"), str(before), str(after), "--worse", "1.2"]
    for seconds, code in ((0.23, 0), (0.30, 1)):
        after.write_text(f"one gradient   {seconds:.2f} s\nnew   9 s\nratio 5.0\n")
        said = subprocess.run(tool, capture_output=True, text=True)
        assert said.returncode == code and "in one of them only: gone # s" in said.stdout
    assert "one gradient # s: [0.2] -> [0.3]" in said.stdout


@pytest.mark.long
def test_a_release_is_built_installed_and_run(tmp_path):
    """By this Python; `make try-release` takes others."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)], cwd=ROOT, check=True)
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "try_release.py"), str(tmp_path)], text=True)
    assert done.returncode == 0
