"""Tables from files, frames and datasets: read in batches, checked by row, counted. Imports no JAX."""

from .counting import LogCounts, count_log
from .names import Names, suggest
from .reading import Batch, read_batches, require_text_name
from .small import entries_of, read_table

__all__ = [
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
