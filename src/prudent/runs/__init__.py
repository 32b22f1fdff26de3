"""A problem solved into a folder, and what can be done with the folder afterwards."""

from .advising import frontier_run, worth_run
from .comparing import Comparison, RuleChange, changed_by_rule, compare_runs, evaluate_problem, footing_before
from .exporting import plot_solution, report_solution, solution_frame
from .folder import read_record
from .proving import ProvedRun, prove_run, verify_run
from .reporting import add_to_run, record_solution, report_run
from .saving import load_solution, save_solution
from .solving import Run, continue_run, solve_problem

__all__ = [
    "Comparison",
    "ProvedRun",
    "RuleChange",
    "Run",
    "changed_by_rule",
    "compare_runs",
    "continue_run",
    "evaluate_problem",
    "footing_before",
    "frontier_run",
    "load_solution",
    "plot_solution",
    "prove_run",
    "read_record",
    "record_solution",
    "report_run",
    "report_solution",
    "save_solution",
    "solution_frame",
    "solve_problem",
    "verify_run",
    "worth_run",
]
