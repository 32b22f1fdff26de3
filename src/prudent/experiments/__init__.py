"""Stage 17: the paper's experiments as data and small functions."""

from .demo import DemoRow, run_demo
from .lake_tables import Cell, brpg_cells, published

__all__ = ["Cell", "DemoRow", "brpg_cells", "published", "run_demo"]
