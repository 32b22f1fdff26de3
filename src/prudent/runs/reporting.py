"""The report of a run, from its record."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from . import folder as places
from .footing import standing_from
from .record import Record, read_record

if TYPE_CHECKING:
    from ..report import ReportData
else:
    ReportData = Any  # importing it would import what the extra report installs

NEEDED = ("plotly", "jinja2")


def can_report() -> bool:
    """Whether what the report is drawn with is installed."""
    return all(importlib.util.find_spec(name) is not None for name in NEEDED)


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
    places.require_run(Path(folder))
    path = Path(folder) / places.RECORD
    return write_report_of(read_record(path), Path(folder) / places.REPORT)


def write_report_of(record: Record, path: Path) -> Path:
    """Write the page."""
    from .. import report

    return report.write_report(report_data(record), path)


def report_data(record: Record) -> ReportData:
    """The record in the words of the report."""
    from .. import report

    summary = record.summary
    certificate = summary["certificate"] or {}
    plans = tuple(
        report.PlanView(
            name=view.name,
            risk=view.risk,
            risk_standard_error=view.risk_standard_error,
            mean=view.mean,
            mean_standard_error=view.mean_standard_error,
            losses=view.losses,
            value_at_risk=view.value_at_risk,
            tail_mean=view.tail_mean,
            probabilities=view.probabilities,
            occupancy=np.asarray(view.occupancy),
            kind=view.kind,
            difference=view.difference,
        )
        for view in record.views
    )
    return report.ReportData(
        title=summary["settings"]["title"] or Path(summary["problem"]["file"]).stem,
        asked=record.asked,
        status=summary["status"],
        status_message=summary["message"],
        ok=summary["usable"],
        risk_name=record.risk_name,
        loss_name=record.loss_name,
        tail_level=summary["tail_level"],
        states=record.states,
        actions=record.actions,
        grid=record.grid,
        directions=record.directions,
        plans=plans,
        known_theta_risk=summary["known_theta_risk"],
        known_theta_standard_error=summary["known_theta_risk_standard_error"],
        lower_bound=summary["lower_bound"],
        gap=summary["gap"],
        gap_limit=summary["gap_limit"],
        bound_draws=certificate.get("draws"),
        no_bound_because=certificate.get("no_bound_because") or "",
        draw_probabilities=record.views[0].draw_probabilities,
        exact=summary["exact"],
        weights=record.views[0].weights,
        drivers_considered=certificate.get("drivers_considered"),
        solver=summary["settings"]["solver"]["kind"],
        history_objective=record.objective,
        history_gradient_norm=record.gradient_norm,
        drivers=record.drivers,
        counts=record.counts,
        certain=record.certain,
        seed=summary["seed"],
        seconds=summary["seconds"],
        iterations=summary["iterations"],
        versions=tuple(summary["versions"].items()),
        standing=standing_from(summary["footing"]),
    )
