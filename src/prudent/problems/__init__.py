"""Problem files. Reads and checks without JAX; `Case.arguments` makes the objects `solve` takes."""

from .case import Case, case_of, read_problem
from .example import write_example
from .facts import Facts
from .toml_file import risk_from_words

__all__ = ["Case", "Facts", "case_of", "read_problem", "risk_from_words", "write_example"]
