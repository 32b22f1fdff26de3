"""Real cases: data that come with the library, as problem files, and plans held against what they did not see."""

from . import bus, bus_held_out, hiv, nile
from .bus import fleet as bus_family
from .held_out import LEVEL, HeldOutOutcome, Row, csv_rows, summary, table_rows
from .running import CaseRun, run_case
from .writing import CASES, write_case

__all__ = [
    "CASES",
    "LEVEL",
    "CaseRun",
    "HeldOutOutcome",
    "Row",
    "bus",
    "bus_family",
    "bus_held_out",
    "csv_rows",
    "hiv",
    "nile",
    "run_case",
    "summary",
    "table_rows",
    "write_case",
]
