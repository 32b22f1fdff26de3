"""Shared set-up: hypothesis is deterministic, so that a red build can be repeated; long files first; a solved run."""

import signal

import pytest
from hypothesis import HealthCheck, settings
from typer.testing import CliRunner

import prudent as pr
from prudent.cli import app

settings.register_profile(
    "prudent", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], database=None
)
settings.load_profile("prudent")

# A shell begins what runs in the background with Ctrl-C ignored, and so would all processes that the tests begin.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Whole files go to one worker, so that it compiles their functions once; the longest must not come last. xdist would
# put those of most tests first, which `--no-loadscope-reorder` forbids it.
LONGEST = ("test_pages", "test_docs", "test_matrix", "test_solvers", "test_linear_solve", "test_simulated")
LONGEST += ("test_limits", "test_proofs", "test_events", "test_linear_moments", "test_cases", "test_cli")


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


SMALL = {"solver.iterations": 26, "solver.samples": 20, "solver.evaluation": 100, "solver.tolerance": 0.0}


@pytest.fixture(scope="session")
def problem(tmp_path_factory):
    """A small problem of the example's, quickly solved."""
    path = pr.write_example(tmp_path_factory.mktemp("problem"))[0]
    # Two successors a pair: few unknowns, whose numbers can be foretold.
    text = path.read_text().replace('kind = "pooled"', 'kind = "dirichlet"')
    path.write_text(text.replace('"all"', '"listed"\nsuccessors = "successors.csv"'))
    # As many rows as the log needs to carry the policy.
    head, *rows = [row.split(",") for row in path.with_name("log.csv").read_text().split()]
    path.with_name("successors.csv").write_text("".join(",".join(row[:3]) + "\n" for row in [head, *rows]))
    more = [[*row[:3], str(2 + int(row[3]))] for row in rows]
    path.with_name("log.csv").write_text("".join(",".join(row) + "\n" for row in [head, *more]))
    own = ("iterations", "samples", "tolerance", "evaluation")
    lines = [line for line in path.read_text().splitlines() if not line.startswith(own)]
    settings = "\n".join(f"{key.removeprefix('solver.')} = {value}" for key, value in SMALL.items())
    path.write_text("\n".join(lines) + "\n" + settings + "\n")
    return path


@pytest.fixture(scope="session")
def run(problem):
    """It solved by the library, without the report."""
    return pr.solve_problem(problem, problem.parent / "in-process", report=False)


@pytest.fixture(scope="session")
def commanded(problem):
    """It solved by the command, with the report: the result and the folder."""
    folder = problem.parent / "by-command"
    return CliRunner().invoke(app, ["solve", str(problem), "--out", str(folder)]), folder
