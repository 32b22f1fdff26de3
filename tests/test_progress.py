"""A function told how a run gets on: every iteration once, as the history has it, whatever the solver."""

import sys
import types

import numpy as np
import pytest

import prudent as pr
from prudent import phases

from .marks import short
from .test_docs import fences

LAKE = pr.envs.frozen_lake("SF\nHG")
BELIEF = LAKE.prior.update(LAKE.trials(n=5, truth=(0.3, 0.1), seed=0))
QUICK = pr.SampleAverage(samples=16, largest=32, starts=2, iterations=12, evaluation=64)
HOLE = pr.Limit(pr.Visits([2], per=1), at_most=0.5, risk=pr.Expectation())

RUNS = {
    "default": {"solver": QUICK},
    "brpg": {"solver": pr.BRPG(iterations=12, evaluation=64)},
    "limits": {"solver": QUICK, "subject_to": [HOLE]},
}


def told(states, solution):
    assert [state.iteration for state in states] == list(range(1, solution.iterations + 1))
    for name in ("objective", "gradient_norm", "step"):
        np.testing.assert_array_equal([getattr(state, name) for state in states], getattr(solution.history, name))
    assert np.all(np.diff([state.seconds for state in states]) >= 0.0)


@pytest.mark.parametrize("name", short(["default", "brpg"], RUNS))
def test_a_function_is_told_of_every_iteration_and_changes_nothing(name):
    states = []
    solution = pr.solve(LAKE, BELIEF, **RUNS[name], progress=states.append, certify=False)
    told(states, solution)
    assert {state.iterations for state in states} == {12}
    quiet = pr.solve(LAKE, BELIEF, **RUNS[name], progress=False, certify=False)
    np.testing.assert_array_equal(quiet.policy.probabilities, solution.policy.probabilities)


@pytest.mark.parametrize("name", ["default", "brpg"])
def test_a_run_that_goes_on_counts_on(name):
    solver = (
        pr.BRPG(iterations=3, evaluation=64)
        if name == "brpg"
        else pr.SampleAverage(samples=16, largest=32, starts=2, iterations=3, evaluation=64)
    )
    first = pr.solve(LAKE, BELIEF, solver=solver, certify=False)
    states = []
    pr.solve(LAKE, BELIEF, solver=solver, resume=first, progress=states.append, certify=False)
    assert [state.iteration for state in states] == [4, 5, 6] and states[0].iterations == 6


def test_runs_side_by_side_are_told_by_their_mean():
    states = []
    (grid,) = pr.solve_many(
        LAKE,
        [BELIEF],
        [pr.CVaR(0.5), pr.CVaR(0.9)],
        solver=pr.BRPG(iterations=2, evaluation=64),
        progress=states.append,
    )
    mean = np.mean([solution.history.objective for solution in grid], axis=0)
    np.testing.assert_allclose([state.objective for state in states], mean)


def test_what_cannot_be_told_is_refused_and_what_a_function_raises_is_the_callers():
    with pytest.raises(pr.InputError, match="progress must be True, False, None or a function of a RunState, got 3"):
        pr.solve(LAKE, BELIEF, progress=3)
    with pytest.raises(pr.InputError, match=r"did you mean progress=\?"):
        pr.solve(LAKE, BELIEF, callback=print)

    def enough(state):
        raise ArithmeticError("enough")

    with pytest.raises(ArithmeticError, match="enough"):
        pr.solve(LAKE, BELIEF, solver=QUICK, progress=enough)


@pytest.fixture
def said(monkeypatch):
    """What the line of the terminal says: each phase once, and everything."""
    lines = []
    monkeypatch.setattr(phases.Line, "say", lambda line, *words: lines.append(words))
    return lines


def names(said):
    """Phases by their first word, in their order, each as often as it is begun."""
    first = [name.split()[0] for name, *_ in said]
    return [name for k, name in enumerate(first) if k == 0 or name != first[k - 1]]


def test_a_run_of_a_file_names_what_it_does(said, tmp_path):
    problem = pr.write_example(tmp_path)[0]
    changes = {"solver.samples": 8, "solver.largest": 32, "solver.evaluation": 64}
    pr.solve_problem(problem, tmp_path / "run", changes=changes, progress=True)
    assert names(said) == ["reading", "compiling", "searching", "growing", "certifying", "rivals", "page"]
    assert all(left is None for *_, left in said), "a search has no end that could be counted to"
    said.clear()
    pr.continue_run(tmp_path / "run", iterations=2, report=False, progress=True)
    assert names(said)[:2] == ["reading", "compiling"] and names(said)[-1] == "certifying"


def test_only_iterations_that_are_all_made_are_counted_to(said):
    pr.solve(LAKE, BELIEF, solver=pr.BRPG(iterations=12, evaluation=64), progress=True, certify=False)
    assert names(said) == ["compiling", "searching", "judging"]
    left = [left for name, _, left in said if name == "searching"]
    assert left[-1] == 0.0 and all(each >= 0.0 for each in left)


def test_nothing_is_said_where_nothing_is_shown(said):
    pr.solve(LAKE, BELIEF, **RUNS["default"], progress=False)
    pr.solve(LAKE, BELIEF, **RUNS["default"], progress=lambda state: None)
    assert not said
    with phases.status_line(True):
        phases.phase("rivals")
        pr.solve(LAKE, BELIEF, **RUNS["default"], progress=False)
    assert names(said) == ["rivals"]


def test_a_line_appears_counts_and_goes(capsys, monkeypatch):
    monkeypatch.setattr(phases, "QUIET_SECONDS", 0.0)
    with phases.status_line(True):
        phases.phase("searching", "iteration 3", left=90.0)
        line = phases._open.get()
        assert line.text() == "searching  iteration 3  0:00, about 1:30 left at most"
        line.timer.join()
    assert "searching  iteration 3" in capsys.readouterr().err and phases._open.get() is None
    with phases.status_line(True):
        last = phases._open.get()
        monkeypatch.setattr(phases, "QUIET_SECONDS", 60.0)
    with phases.status_line(True):
        quick = phases._open.get()
    last.timer.join()
    quick.timer.join()
    assert quick.live is None, "what is over soon shows nothing"


class Recorder:
    """A logger's module, as far as the page uses it: notes what it is called with."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)

        def called(*args, **kwargs):
            self.calls.append((name, args, kwargs))
            return self

        return called

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.calls.append(("exit", (), {}))


@pytest.mark.parametrize("logger", ["tensorboardX", "mlflow", "wandb"])
def test_the_loggers_of_the_page_are_told_of_every_iteration(logger, monkeypatch):
    """With a stand-in for the package, which is no dependency; that the calls are those of the packages was tried."""
    code = next(
        code for language, code in fences("docs/watching.md") if f"import {logger}" in code or f"from {logger}" in code
    )
    recorder, module = Recorder(), types.ModuleType(logger)
    module.__getattr__ = recorder.__getattr__
    monkeypatch.setitem(sys.modules, logger, module)
    names = {"pr": pr, "machine": LAKE, "belief": BELIEF}
    exec(compile(code, "<fence>", "exec"), names)
    lines = [call for call in recorder.calls if call[0] in ("add_scalar", "log_metric", "log")]
    assert len(lines) == names["solution"].iterations
