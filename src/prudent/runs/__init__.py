"""A problem solved into a folder, and what can be done with the folder afterwards."""

from .comparing import Comparison, compare_runs, evaluate_problem, footing_before
from .folder import read_record
from .reporting import record_solution, report_run
from .solving import Run, continue_run, solve_problem

__all__ = [
    "Comparison",
    "Run",
    "compare_runs",
    "continue_run",
    "evaluate_problem",
    "footing_before",
    "read_record",
    "record_solution",
    "report_run",
    "solve_problem",
]
