"""Tables from files, frames and datasets: read in batches, checked by row, counted. Imports no JAX."""

from .counting import LARGEST_COST, LogCounts, LogForm, count_log
from .frames import frame_of
from .labels import Labels
from .minari_datasets import minari_walks
from .names import LONGEST_NAME, MOST_NAMES, Names, guarded, suggest
from .opening import require_text_name
from .reading import Batch, read_batches
from .rows import Keeper, Rows
from .small import SmallTable, entries_of, read_table

__all__ = [
    "LARGEST_COST",
    "LONGEST_NAME",
    "MOST_NAMES",
    "Batch",
    "Keeper",
    "Labels",
    "LogCounts",
    "LogForm",
    "Names",
    "Rows",
    "SmallTable",
    "count_log",
    "entries_of",
    "frame_of",
    "guarded",
    "minari_walks",
    "read_batches",
    "read_table",
    "require_text_name",
    "suggest",
]
