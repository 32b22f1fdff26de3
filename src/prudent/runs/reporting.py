"""The page of a run, or of a solution that was found in Python."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..files import commit, locked, read_manifest, settle
from ..models import TriedFamily
from ..report import SolutionRecord, report_html, solution_record
from ..seeds import as_seed
from ..solvers import Solution
from .deciding import decision_of
from .folder import FILES, REPORT, read_record, require_run
from .judging import Evaluator

NEEDED = ("plotly", "jinja2")


def can_report() -> bool:
    """Whether what the report is drawn with is installed."""
    return all(importlib.util.find_spec(name) is not None for name in NEEDED)


def require_report() -> None:
    """Refuse to report where that is not installed."""
    if not can_report():
        raise InputError("reports need the extra report: pip install 'prudent[report]'")


def page_file(record: SolutionRecord) -> bytes:
    """The page of a record."""
    require_report()
    return report_html(record).encode()


def report_run(folder: str | Path, *, wait: bool = False) -> Path:
    """Write `report.html` of a run again, from its record and without solving.

    Args:
        folder: of the run.
        wait: until no other process changes it; refused otherwise if one does.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     problem = pr.write_example(folder)[0]
    ...     run = pr.solve_problem(problem, f"{folder}/run", report=False, changes={"solver.iterations": 3})
    ...     pr.report_run(run.folder).name
    'report.html'
    """
    folder = Path(folder)
    require_run(folder)
    with locked(folder, wait):
        settle(folder, FILES)
        add_to_run(folder, {REPORT: page_file(read_record(folder))})
    return folder / REPORT


def add_to_run(folder: Path, contents: dict[str, bytes]) -> None:
    """Add files to a run, or replace them; the caller holds the lock."""
    manifest = read_manifest(folder)
    commit(folder, contents, FILES, keep=FILES, note=None if manifest is None else manifest.note)


def record_solution(
    solution: Solution,
    model: Any,
    belief: Any,
    *,
    risk: Any = None,
    loss: Any = None,
    seed: Any = 0,
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
    if isinstance(getattr(evaluator.objective, "family", None), TriedFamily):
        raise InputError(
            "the page speaks of beliefs in which to know theta is all there is to learn; a TriedFamily leaves open "
            "what its log has not shown, too; print the solution, or use solution.plot()"
        )
    from ..advice import risk_words  # slow to import, and a run of a problem file has its own words

    status = solution.status.name
    answer = evaluator.record("this policy", solution.policy, known=solution.evaluation, status=status)
    others = [
        evaluator.record(name, plan.policy, beside=answer, kind="rival", status=plan.status.name)
        for name, plan in (rivals or {}).items()
    ]
    pairs = (0, 0) if answer.probabilities is None else answer.probabilities.shape
    labels = getattr(solution.policy, "labels", None)
    named = pairs if labels is None else (labels.states, labels.actions)
    usual: dict[str, Any] = {"title": "Solution", "risk_name": risk_words(evaluator.risk), "loss_name": "loss"}
    usual["seed"] = as_seed(seed)
    usual |= {"states": named[0], "actions": named[1], "message": solution.status.value}
    if labels is not None:
        both = labels.all("state"), labels.all("action")
        # Numbers have an order; whether names do is not known here.
        usual["decision"] = decision_of(evaluator, answer, others, *both, ordered=isinstance(labels.states, int))
    return solution_record(solution, answer, rivals=tuple(others), **usual | shown)
