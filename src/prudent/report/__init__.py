"""Records to one self-contained HTML page; nothing is computed here that a record does not hold."""

from .data import Difference as Difference
from .data import Driver as Driver
from .data import PlanView as PlanView
from .data import ReportData as ReportData
from .writing import write_report as write_report
