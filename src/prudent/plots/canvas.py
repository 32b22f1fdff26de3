"""What every figure shares: matplotlib without a display, and files written whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import InputError
from ..files import write_whole


def pyplot() -> Any:
    """Matplotlib's pyplot, which draws into files."""
    try:
        import matplotlib
    except ImportError:
        raise InputError("plots need matplotlib; install it with: pip install 'prudent[report]'") from None
    matplotlib.use("agg", force=False)
    from matplotlib import pyplot

    return pyplot


def finish(figure: Any, path: str | Path | None) -> Any:
    """Write the figure as a PNG and close it, if a path is given; the figure either way."""
    if path is not None:
        write_whole(path, lambda file: figure.savefig(file, dpi=150, format="png"))
        pyplot().close(figure)
    return figure
