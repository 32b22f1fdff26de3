"""Folders that run code where a library obeys what is in them: caches that Numba unpickles, settings, modules."""

import ast
import hashlib
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import prudent as pr

pytest.importorskip("numba")

PACKAGE = Path(pr.__file__).parent
COMMAND = str(Path(sys.executable).with_name("prudent"))
NOBODY, ATTACKER = 65534, 65533


class Shell:
    """What unpickling it runs."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def forge(folder, marker, *sources):
    """Indices such as Numba keeps, of every function of some modules; to load one writes the number of the user."""
    for source in sources:
        inside = folder / f"{source.parent.name}_{hashlib.sha1(str(source.parent).encode()).hexdigest()}"
        inside.mkdir(parents=True, exist_ok=True)
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.FunctionDef):
                line = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                python = f"py{sys.version_info[0]}{sys.version_info[1]}{sys.abiflags}"
                index = inside / f"{source.stem}.{node.name}-{line}.{python}.nbi"
                index.write_bytes(pickle.dumps(Shell(f"id -u >> {marker}")))


def opened(folder, owner):
    """Give a folder and all in it to a user, where the tests run as root, and open it to everybody."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o777)
        if os.geteuid() == 0:
            os.chown(path, owner, owner)


@pytest.fixture
def common():
    """A folder of the temporary folder that all users can reach."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def environment(**changes):
    own = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "PRUDENT", "XDG"))}
    return own | {name: str(value) for name, value in changes.items()}


# Another library imports Numba first, and compiles; then the user may change, and a loop of ours is made and called.
LOOP = """
import os, sys
import numba
numba.njit(lambda x: x + 1.0)(1.0)
import numpy as np, platformdirs
import prudent.loops, prudent.planning
if len(sys.argv) > 1:
    os.setgroups([])
    os.setgid(int(sys.argv[1]))
    os.setuid(int(sys.argv[1]))
from prudent.engine.plan_loops import along
values = np.zeros(2)
along(np.array([[0], [0]]), np.ones((2, 1)), np.array([1.0, 2.0]), values, True)
print(values)
"""


def call_loop(folder, variables, user=None):
    """What a loop of the library finds in a process of its own."""
    words = [] if user is None or os.geteuid() else [str(user)]
    command = [sys.executable, "-P", "-c", LOOP, *words]
    ran = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran


LOOPS = PACKAGE / "engine" / "plan_loops.py"


@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "NUMBA_CACHE_DIR"])
@pytest.mark.parametrize("owner", [ATTACKER, NOBODY])
def test_a_cache_that_another_user_can_write_to_runs_nothing(variable, owner, common):
    """The folder is another user's, or the user's own but open to others; forged is what is in it."""
    place, marker = common / "cache", common / "marker"
    for inside in (place / "loops", place / "prudent" / "loops", place / "numba", place):
        forge(inside, marker, LOOPS)
    opened(place, ATTACKER)
    if os.geteuid() == 0:
        os.chown(place, owner, owner)
        os.chown(common, NOBODY, NOBODY)
    ran = call_loop(common, environment(HOME=common, **{variable: place}), user=NOBODY)
    assert not marker.exists()
    assert ran.stdout == "[1. 3.]\n" and f"{place}" in ran.stderr


def test_settings_of_the_working_directory_name_no_cache_for_our_loops(tmp_path):
    """Of a library's caller whose Numba has read them."""
    marker = tmp_path / "marker"
    forge(tmp_path / "c", marker, LOOPS)
    (tmp_path / ".numba_config.yaml").write_text("cache_dir: c\n")
    ran = call_loop(tmp_path, environment(XDG_CACHE_HOME=tmp_path / "cache"))
    assert not marker.exists() and ran.stdout == "[1. 3.]\n"
    assert list((tmp_path / "cache" / "prudent" / "loops").rglob("*.nbi"))


def hostile(folder):
    """A folder with everything that libraries were seen to ask a working directory for; the file that code writes."""
    folder.mkdir()
    marker = folder.parent / "marker"
    sources = [path for path in PACKAGE.rglob("*.py") if "loops import" in path.read_text()]
    forge(folder / "c", marker, *sources)
    trace = folder.parent / "trace.json"
    (folder / ".numba_config.yaml").write_text(f"cache_dir: c\nchrome_trace: {trace}\nno_such: [1]\n")
    (folder / "matplotlibrc").write_text(f"text.usetex: True\ntext.latex.preamble: {trace}\n")
    for name in ("sitecustomize", "usercustomize", "joblib", "numpy", "prudent"):
        (folder / f"{name}.py").write_text(f"import os\nos.system('echo {name} >> {marker}')\n")
    return marker


def test_proving_in_a_folder_of_someone_else_runs_nothing(run, tmp_path):
    """Up to the first loop that is kept: before it was compiled, Numba had looked for one that was kept before."""
    solved, cache = shutil.copytree(run.folder, tmp_path / "run"), tmp_path / "cache"
    marker = hostile(tmp_path / "hostile")
    command = [COMMAND, "prove", str(solved), "--samples", "8", "--seconds", "1"]
    errors = tmp_path / "errors"
    with errors.open("w") as file:
        process = subprocess.Popen(
            command, cwd=tmp_path / "hostile", env=environment(XDG_CACHE_HOME=cache), stderr=file, stdout=file
        )
        try:
            while process.poll() is None and not (marker.exists() or list((cache / "prudent").rglob("*.nbi"))):
                time.sleep(0.05)
        finally:
            process.kill()
            process.wait()
    assert not marker.exists(), marker.read_text()
    assert list((cache / "prudent" / "loops").rglob("*.nbi")), errors.read_text()


@pytest.mark.long
def test_whole_commands_in_a_folder_of_someone_else_run_nothing_and_write_nothing_there(problem, tmp_path):
    marker = hostile(tmp_path / "hostile")
    asked = "\n[certificate]\nprove = true\nsamples = 8\ngap = 0.05\nseconds = 1.0\n"
    for path in problem.parent.glob("*.csv"):
        shutil.copy(path, tmp_path / "hostile")
    (tmp_path / "hostile" / "problem.toml").write_text(problem.read_text() + asked)
    before = sorted((tmp_path / "hostile").rglob("*"))
    cache = environment(XDG_CACHE_HOME=tmp_path / "cache")
    run = str(tmp_path / "run")
    for command in (
        ["check", "problem.toml"],
        ["solve", "problem.toml", "--out", run],
        ["evaluate", f"{run}/policy.csv", "problem.toml"],
        ["prove", run, "--samples", "8", "--seconds", "1"],
        ["verify", run],
        ["continue", run, "--iterations", "1"],
        ["frontier", run],
        ["worth", run],
        ["report", run],
        ["compare", run, run],
        ["demo", "--out", str(tmp_path / "demo")],
    ):
        ran = subprocess.run(
            [COMMAND, *command], cwd=tmp_path / "hostile", env=cache, capture_output=True, text=True, check=False
        )
        assert ran.returncode in (0, 1), (command, ran.stderr)
        assert "Traceback" not in ran.stderr
        assert not marker.exists(), (command, marker.read_text())
    assert not (tmp_path / "trace.json").exists()
    assert sorted((tmp_path / "hostile").rglob("*")) == before


SEEN = """
import os, sys
sys.argv = ["prudent", "--version"]
import prudent.__main__ as entry
try:
    entry.main()
except SystemExit:
    pass
import matplotlib
from numba.core import config
assert os.environ["PYTHONSAFEPATH"] == "1"
assert os.path.exists("other") and not os.path.exists("matplotlibrc")
assert matplotlib.rcParams["lines.linewidth"] == 3.25, "the user's own settings are"
assert config.OPT == 3
config.reload_config()
assert config.OPT == 3
"""


def test_a_command_reads_settings_of_the_user_but_not_of_the_working_directory(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "matplotlibrc").write_text("lines.linewidth: 3.25\n")
    (tmp_path / "matplotlibrc").write_text("lines.linewidth: 7.5\n")
    (tmp_path / ".numba_config.yaml").write_text("opt: '1'\n")
    (tmp_path / "other").write_text("")
    variables = environment(MPLCONFIGDIR=tmp_path / "own")
    ran = subprocess.run(
        [sys.executable, "-P", "-c", SEEN], cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


def test_joblibs_workers_of_a_command_import_nothing_from_the_working_directory(tmp_path):
    """Joblib begins them by `python -m`, which looks there first."""
    marker = hostile(tmp_path / "hostile")
    begun = SEEN.split("import matplotlib")[0] + (
        "import joblib, math\n"
        "with joblib.parallel_config('loky', n_jobs=2):\n"
        "    print(joblib.Parallel()(joblib.delayed(math.sqrt)(k) for k in (1, 4)))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-P", "-c", begun], cwd=tmp_path / "hostile", env=environment(), capture_output=True, text=True
    )
    assert ran.stdout.endswith("[1.0, 2.0]\n") and not marker.exists(), ran.stderr
