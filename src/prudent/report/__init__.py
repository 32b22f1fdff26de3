"""Records to one self-contained HTML page; nothing is computed here that a record does not hold."""

from .canvas import NEUTRAL as NEUTRAL
from .canvas import TAIL as TAIL
from .canvas import axis as axis
from .canvas import blank as blank
from .canvas import faded as faded
from .canvas import named_places as named_places
from .data import Difference as Difference
from .data import Driver as Driver
from .data import PlanView as PlanView
from .data import ReportData as ReportData
from .page import figure_html as figure_html
from .page import plotly_graphs as plotly_graphs
from .page import render as render
from .words import figure_text as figure_text
from .words import number as number
from .writing import write_report as write_report
