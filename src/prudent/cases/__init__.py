"""Real cases: data that come with the library, as problem files, and plans held against what they did not see."""

from . import bus as bus
from . import bus_held_out as bus_held_out
from . import hiv as hiv
from . import nile as nile
from .bus import fleet as bus_family
from .held_out import LEVEL, HeldOutOutcome, Row, csv_rows, summary, table_rows
from .running import CASES, CaseRun, run_case, write_case
