"""The page of a run, or of a solution that was found in Python."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..advice import risk_words
from ..errors import InputError
from ..report import SolutionRecord, solution_record, write_report
from ..solvers import Solution
from .folder import REPORT, read_record
from .judging import Evaluator
from .naming import by_index, driver_records

NEEDED = ("plotly", "jinja2")


def can_report() -> bool:
    """Whether what the report is drawn with is installed."""
    return all(importlib.util.find_spec(name) is not None for name in NEEDED)


def write_page(record: SolutionRecord, path: Path) -> Path:
    """Write the page of a record."""
    if not can_report():
        raise InputError("reports need the extra report: pip install 'prudent[report]'")
    return write_report(record, path)


def report_run(folder: str | Path) -> Path:
    """Write `report.html` of a run again, from its record and without solving.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     problem = pr.write_example(folder)[0]
    ...     run = pr.solve_problem(problem, f"{folder}/run", report=False, changes={"solver.iterations": 3})
    ...     pr.report_run(run.folder).name
    'report.html'
    """
    if not can_report():
        raise InputError("reports need the extra report: pip install 'prudent[report]'")
    return write_page(read_record(Path(folder)), Path(folder) / REPORT)


def record_solution(
    solution: Solution,
    model: Any,
    belief: Any,
    *,
    risk: Any = None,
    loss: Any = None,
    seed: int = 0,
    rivals: Mapping[str, Any] | None = None,
    **shown: Any,
) -> SolutionRecord:
    """The record of a solution of `pr.solve`, for any kind of objective; of a run in a folder it is `Run.record`.

    Args:
        solution: what `solve` gave.
        model: the family, or any `Objective`, that was solved.
        belief: as in `solve`.
        risk: as in `solve`; `CVaR(0.9)` when left out.
        loss: as in `solve`.
        seed: as in `solve`.
        rivals: by name, solutions to set beside it, such as those of `pr.rivals`.
        shown: other fields of the record, such as `title`, `loss_name`, `states` and `actions`.

    >>> import prudent as pr
    >>> wide = pr.FunctionObjective(lambda alpha, theta: (alpha[0] - theta[0]) ** 2, start=[0.0])
    >>> belief, risk = pr.Draws([[-1.0], [3.0]]), pr.CVaR(0.5)
    >>> record = pr.record_solution(pr.solve(wide, belief, risk=risk), wide, belief, risk=risk, title="A parabola")
    >>> record.exact, round(record.risk, 4), record.probabilities
    (True, 4.0, None)
    """
    evaluator = Evaluator(model, belief, risk=risk, loss=loss, seed=seed, draws=solution.evaluation.draws)
    status = solution.status.name
    answer = evaluator.record("this policy", solution.policy, known=solution.evaluation, status=status)
    others = [
        evaluator.record(name, plan.policy, beside=answer, kind="rival", status=plan.status.name)
        for name, plan in (rivals or {}).items()
    ]
    pairs = (0, 0) if answer.probabilities is None else answer.probabilities.shape
    usual = {"title": "Solution", "risk_name": risk_words(evaluator.risk), "loss_name": "loss", "seed": seed}
    usual |= {"states": pairs[0], "actions": pairs[1], "message": solution.status.value}
    usual["drivers"] = driver_records(solution, by_index)
    return solution_record(solution, answer, rivals=tuple(others), **usual | shown)
