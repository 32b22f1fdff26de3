"""The paper's experiments as data and small functions."""

from .demo import DemoRow, run_demo
from .lake_settings import published
from .tables import brpg_cells

__all__ = ["DemoRow", "brpg_cells", "published", "run_demo"]
