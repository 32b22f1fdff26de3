"""A problem solved into a folder, and what can be done with the folder afterwards."""

from .comparing import Comparison, compare_runs, evaluate_problem
from .record import versions
from .reporting import report_run
from .solving import Run, continue_run, solve_problem
from .view import View

__all__ = [
    "Comparison",
    "Run",
    "View",
    "compare_runs",
    "continue_run",
    "evaluate_problem",
    "report_run",
    "solve_problem",
    "versions",
]
