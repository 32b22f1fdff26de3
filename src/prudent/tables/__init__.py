"""Tables from files, frames and datasets: read in batches, checked by row, counted. Imports no JAX."""

from .counting import LARGEST_COST, LogCounts, LogForm, count_log
from .names import KINDS, LONGEST_NAME, MOST_NAMES, Labels, Names, guarded, suggest, suggest_file
from .reading import read_batches
from .repeats import RowDigests, RowOrder
from .rows import Keeper, Rows
from .small import SmallTable, entries_of, frame_of, read_table
