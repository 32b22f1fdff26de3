"""Tables from files, frames and datasets: read in batches, checked by row, counted. Imports no JAX."""

from .counting import LARGEST_COST, LogCounts, count_log
from .names import MOST_NAMES, Names, suggest
from .reading import Batch, read_batches, require_text_name
from .small import entries_of, read_table

__all__ = [
    "LARGEST_COST",
    "MOST_NAMES",
    "Batch",
    "LogCounts",
    "Names",
    "count_log",
    "entries_of",
    "read_batches",
    "read_table",
    "require_text_name",
    "suggest",
]
