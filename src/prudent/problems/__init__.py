"""Problem files: their keys, the tables they name, and the objects `solve` takes."""

from .case import Case, case_of, read_problem
from .describing import THIN, describe, log_coverage, loss_name, risk_name
from .example import write_example
from .facts import Counted, Facts
from .family import import_family
from .outcomes import Outcomes
from .suggesting import suggestion_of
from .toml_file import parse, risk_from_words

__all__ = [
    "THIN",
    "Case",
    "Counted",
    "Facts",
    "Outcomes",
    "case_of",
    "describe",
    "import_family",
    "log_coverage",
    "loss_name",
    "parse",
    "read_problem",
    "risk_from_words",
    "risk_name",
    "suggestion_of",
    "write_example",
]
