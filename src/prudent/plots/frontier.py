"""Mean loss against tail loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..advice import Frontier, FrontierPoint
from ..advice.frontier import describe
from .canvas import finish, pyplot


def frontier_figure(
    curve: Frontier, path: str | Path | None = None, *, title: str = "What caution costs and buys"
) -> Any:
    """The policies of a frontier joined in their order, the rivals beside them, with bars of one standard error.

    Args:
        curve: from `frontier(...)`.
        path: where to write a PNG; the figure is returned either way.
        title: above the figure.
    """
    figure, panel = pyplot().subplots(figsize=(7.0, 5.0), layout="constrained")
    panel.plot(
        [point.mean for point in curve.points], [point.tail for point in curve.points], color="#7a9cc6", zorder=1
    )
    for points, colour, marker in ((curve.points, "#2e5c8a", "o"), (curve.rivals, "#b03a2e", "s")):
        for point in points:
            _mark(panel, point, colour, marker)
    panel.set_xlabel("posterior mean of the loss")
    panel.set_ylabel(f"{describe(curve.tail)} of the loss")
    panel.spines[["top", "right"]].set_visible(False)
    panel.margins(0.15)
    figure.suptitle(title, fontsize=11)
    return finish(figure, path)


def _mark(panel: Any, point: FrontierPoint, colour: str, marker: str) -> None:
    panel.errorbar(
        point.mean,
        point.tail,
        xerr=point.mean_standard_error,
        yerr=point.tail_standard_error,
        color=colour,
        marker=marker,
        markersize=5,
        elinewidth=0.7,
        linestyle="none",
        zorder=2,
    )
    panel.annotate(point.name, (point.mean, point.tail), textcoords="offset points", xytext=(6, 5), fontsize=8)
