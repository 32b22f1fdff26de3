"""The rules of the house: stages import backwards only, importing is light, the flag is left alone."""

import ast
import functools
import hashlib
import importlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import prudent as pr

PACKAGE = Path(pr.__file__).parent
ROOT = Path(__file__).parents[1]

STAGES = [
    ("errors",),
    ("files",),
    ("interrupts",),
    ("phases",),
    ("workers",),
    ("tables",),
    ("records",),
    ("seeds",),
    ("arrays",),
    ("autodiff",),
    ("settings",),
    ("programs",),
    ("loops",),
    ("kernels",),
    ("engine",),
    ("models",),
    ("transitions",),
    ("vector_log",),
    ("posteriors",),
    ("fit",),
    ("parameter_sets",),
    ("policies",),
    ("occupancies",),
    ("conformance",),
    ("losses",),
    ("planning",),
    ("events",),
    ("risks",),
    ("objectives",),
    ("tabular",),
    ("linear",),
    ("simulated",),
    ("evaluation",),
    ("gradients",),
    ("solvers",),
    ("proofs",),
    ("episodes",),
    ("baselines",),
    ("envs",),
    ("advice",),
    ("problems",),
    ("plots",),
    ("report",),
    ("runs",),
    ("cases",),
    ("cli",),
    ("__main__",),
]
# Rooms that know what a state is, and those after the seam that may not.
TABLES = {
    "tables",
    "kernels",
    "engine",
    "models",
    "transitions",
    "occupancies",
    "losses",
    "planning",
    "linear",
    "simulated",
    "events",
    "tabular",
}
AFTER_THE_SEAM = {"evaluation", "gradients", "solvers", "proofs"}

# Imports forward, each made when a method is called and never before: a family makes its own objective, which is built
# of models; a solution is asked for its page, its picture and its file, which are made of solutions.
FORWARD = {("models.py", "tabular"), ("solvers/solution.py", "runs")}

STAGE = {module: number for number, modules in enumerate(STAGES) for module in modules}


@functools.cache
def modules():
    return [path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"]


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imports_of(path):
    """Every import of a file, lazy or not."""
    return [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Import | ast.ImportFrom)]


def imported_stages(path):
    """Names of the package's top-level modules that a file imports, lazily or not."""
    inside = path.relative_to(PACKAGE).parts
    for node in imports_of(path):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*inside[:-1]][: len(inside) - node.level]
            target = base + (node.module.split(".") if node.module else [])
            yield from ([target[0]] if target else [alias.name for alias in node.names])
        else:
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            yield from (name.split(".")[1] for name in names if name.startswith("prudent."))


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_every_module_has_a_stage():
    without = {room_of(path) for path in modules()} - STAGE.keys()
    assert not without, f"{without} have no stage; add them to STAGES and to the table in docs/design.md"


@pytest.mark.parametrize("room", STAGE)
def test_a_module_imports_only_from_earlier_stages(room):
    paths = [path for path in modules() if room_of(path) == room]
    assert paths
    for path in paths:
        name = str(path.relative_to(PACKAGE))
        others = {other for other in imported_stages(path) if other != room and (name, other) not in FORWARD}
        late = [other for other in others if STAGE[other] >= STAGE[room]]
        assert not late, f"{name} (stage {STAGE[room]}) imports {[(other, STAGE[other]) for other in late]}"


@pytest.mark.parametrize(("file", "later"), sorted(FORWARD))
def test_an_import_forward_is_made_inside_a_function(file, later):
    inside = {
        id(node)
        for function in ast.walk(tree_of(PACKAGE / file))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
    }
    found = [
        node
        for node in imports_of(PACKAGE / file)
        if isinstance(node, ast.ImportFrom) and later in (node.module or "").split(".")
    ]
    assert found and all(id(node) in inside for node in found)


def offered(room):
    """Names that a room's door imports, a function of the name of its file among them."""
    door = room / "__init__.pyi"  # of rooms whose names load on first use
    return {
        alias.name
        for node in imports_of(door if door.exists() else room / "__init__.py")
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def past_the_door(path):
    """Modules inside other rooms that a file imports from, as `room.module`."""
    inside = path.relative_to(PACKAGE).parts
    for node in imports_of(path):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*inside[:-1]][: len(inside) - node.level]
            target = base + (node.module.split(".") if node.module else [])
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            root, *target = (node.module or "").split(".")
            target, names = (target, [alias.name for alias in node.names]) if root == "prudent" else ([], [])
        else:
            continue
        if target and target[0] != inside[0].removesuffix(".py"):
            if len(target) > 1:
                yield ".".join(target)
            room = PACKAGE.joinpath(*target)
            for name in names:
                if (room / f"{name}.py").exists() and name not in offered(room):
                    yield ".".join([*target, name])


def test_rooms_are_entered_through_their_doors():
    found = {(str(path.relative_to(PACKAGE)), module) for path in modules() for module in past_the_door(path)}
    assert not found, f"import these from the room itself, and export them there: {sorted(found)}"


@pytest.mark.parametrize("room", sorted(AFTER_THE_SEAM))
def test_nothing_after_the_seam_knows_what_a_state_is(room):
    paths = [path for path in modules() if room_of(path) == room]
    assert paths
    for path in paths:
        assert not TABLES & set(imported_stages(path)), path
        assert not re.search(r"\bsupport\b|\bSupport\b", path.read_text(encoding="utf-8")), path


def test_one_module_calls_highs_and_looks_at_its_status():
    every = [*modules(), *(ROOT / "studies" / "src").rglob("*.py")]
    calling = {
        path.stem for path in every if re.search(r"\bhighspy\b|\blinprog\b|\bmilp\b", path.read_text(encoding="utf-8"))
    }
    assert calling == {"programs"}


def test_the_library_does_not_know_its_studies():
    for path in modules():
        for node in imports_of(path):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.startswith("prudent_studies") for name in names), path


def test_no_two_public_classes_have_one_name():
    places = {}
    for path in modules():
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert not {name: found for name, found in places.items() if len(found) > 1}


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_importing_and_the_command_line_do_not_import_jax():
    heavy = "{'jax', 'pyarrow', 'pandas', 'polars', 'pydantic', 'narwhals', 'plotly', 'scipy'}"
    assert run(f"import sys, prudent, prudent.cli, prudent.errors; print({heavy} & set(sys.modules))") == "set()"
    # The help names the commands of other packages, too.
    shown = "from prudent.cli import app; app(['--help'], standalone_mode=False)"
    assert run(f"import sys; {shown}; print({heavy} & set(sys.modules))").splitlines()[-1] == "set()"


def test_reading_and_judging_a_problem_import_nothing_that_is_slow_and_not_needed(tmp_path):
    pr.write_example(tmp_path)
    slow = {"pandas", "plotly", "matplotlib", "cvxpy", "numba", "optax", "scipy.optimize", "scipy.stats"}
    slow |= {"prudent.linear", "prudent.proofs", "prudent.advice"}
    read = f"case = solving.read_problem({str(tmp_path / 'problem.toml')!r}); case.arguments()"
    assert run(f"import sys; from prudent.runs import solving; {read}; print({slow} & set(sys.modules))") == "set()"


@pytest.mark.parametrize("command", ["init {}/new", "check {}/none.toml", "solve {}/none.toml", "check {}/not.toml"])
def test_an_example_is_written_and_what_is_no_problem_file_is_refused_without_jax(tmp_path, command):
    (tmp_path / "not.toml").write_text("{}")
    called = f"from prudent.cli import app; code = app({command.format(tmp_path).split()}, standalone_mode=False)"
    said = run(f"import sys; {called}; print(code, {{'jax', 'scipy'}} & set(sys.modules))").splitlines()[-1]
    assert said == ("None set()" if command.startswith("init") else "2 set()")


def test_one_module_imports_jax_and_equinox():
    found = {}
    for path in modules():
        for node in imports_of(path):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            if {name.split(".")[0] for name in names} & {"jax", "jaxlib", "equinox"}:
                found.setdefault(path.name, []).append(ast.unparse(node))
    # The other is for type checkers.
    assert set(found) == {"autodiff.py", "arrays.py"} and found["arrays.py"] == ["import jax"]
    assert "if TYPE_CHECKING:\n    import jax\n" in (PACKAGE / "arrays.py").read_text(encoding="utf-8")


def test_numba_compiles_only_where_it_is_told_where_to_keep_code():
    words = re.compile(r"\b(njit|jit_module|cfunc|vectorize|guvectorize)\b|\bnumba\.jit\b|cache=True")
    found = {path.name for path in modules() if "numba" in (text := path.read_text()) and words.search(text)}
    assert found == {"loops.py"}


def test_every_benchmark_finds_what_it_measures(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    paths = [path for path in (ROOT / "benchmarks").glob("*.py") if path.stem != "__main__"]
    assert [importlib.import_module(f"benchmarks.{path.stem}").__file__ for path in paths] == [str(p) for p in paths]


SOLVE = """
import hashlib, jax
if {flag}:
    jax.config.update("jax_enable_x64", True)
import prudent as pr
pr.CVaR, pr.solve, pr.envs
assert jax.config.jax_enable_x64 is {flag}
lake = pr.envs.frozen_lake("SF\\nHG")
belief = lake.prior.update(lake.trials(n=5, truth=(0.3, 0.1), seed=3))
solution = pr.solve(lake, belief, risk=pr.CVaR(0.5), solver=pr.BRPG(iterations=12, evaluation=50), seed=7)
result = pr.evaluate(solution.policy, lake, belief, samples=50)
arrays = [solution.policy.probabilities, solution.losses, solution.weights, solution.history.objective, result.losses]
assert all(a.dtype == "float64" for a in arrays), [a.dtype for a in arrays]
assert jax.config.jax_enable_x64 is {flag}
print(hashlib.sha256(b"".join(a.tobytes() for a in arrays)).hexdigest())
"""


def test_same_seed_same_bits_in_two_processes_whatever_the_flag_which_is_left_as_it_was(capsys):
    exec(SOLVE.format(flag=False), {})
    here = capsys.readouterr().out.strip()
    assert run(SOLVE.format(flag=True)) == here
    assert len(here) == len(hashlib.sha256().hexdigest())


def test_public_calls_take_and_give_float64_numpy():
    kernel = pr.Kernel.dense(np.array([[[0.1, 0.9]], [[0.5, 0.5]]]))
    mdp = pr.MDP(kernel, [[1.0], [0.0]], 0, 0.9)
    for array in (
        pr.pull(kernel, np.ones(2)),
        pr.push(kernel, np.ones((2, 1))),
        pr.transition_matrix(kernel, np.ones((2, 1))),
        pr.identity_minus(kernel, np.ones((2, 1)), 0.9),
        pr.occupancy(mdp, np.ones((2, 1))),
        pr.CVaR(0.5)([1.0, 2.0]).weights,
    ):
        assert isinstance(array, np.ndarray)
        assert array.dtype == np.float64
