"""A problem solved into a folder, and what can be done with the folder afterwards."""

from .comparing import Comparison, compare_runs, evaluate_problem, footing_before
from .folder import read_record
from .proving import ProvedRun, prove_run, verify_run
from .reporting import record_solution, report_run
from .solving import Run, continue_run, solve_problem

__all__ = [
    "Comparison",
    "ProvedRun",
    "Run",
    "compare_runs",
    "continue_run",
    "evaluate_problem",
    "footing_before",
    "prove_run",
    "read_record",
    "record_solution",
    "report_run",
    "solve_problem",
    "verify_run",
]
