"""Problem files: their keys, the tables they name, and the objects `solve` takes."""

from .assembling import Case, case_of, read_problem
from .describing import THIN, describe, limit_measure, log_coverage, loss_name, risk_name
from .example import write_example
from .facts import Counted, Facts
from .fitting import Fit, fit_of
from .linear_example import write_linear_example
from .linear_file import LinearCase, parse_linear
from .memory import available as available_memory
from .outcomes import Outcomes
from .starting import Begun, begin_problem
from .suggesting import suggestion_of
from .toml_file import parse, risk_from_words
from .trusted import import_family

__all__ = [
    "THIN",
    "Begun",
    "Case",
    "Counted",
    "Facts",
    "Fit",
    "LinearCase",
    "Outcomes",
    "available_memory",
    "begin_problem",
    "case_of",
    "describe",
    "fit_of",
    "import_family",
    "limit_measure",
    "log_coverage",
    "loss_name",
    "parse",
    "parse_linear",
    "read_problem",
    "risk_from_words",
    "risk_name",
    "suggestion_of",
    "write_example",
    "write_linear_example",
]
