"""Figures as PNG: matplotlib without a display, files written whole, nothing computed that a record does not hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .advice import Frontier, FrontierPoint, risk_words
from .errors import InputError
from .files import write_whole


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


def loss_distributions(
    losses: Mapping[str, np.ndarray],
    path: str | Path | None = None,
    *,
    marks: Mapping[str, Mapping[str, float]] | None = None,
    title: str = "Loss over the posterior",
    label: str = "expected discounted cost",
) -> Any:
    """One panel a policy: the histogram of its loss over the same posterior draws.

    Args:
        losses: `[M]` losses by policy name.
        path: where to write a PNG; the figure is returned either way.
        marks: by policy name, values to mark by a line, such as its mean and CVaR.
        title: above the panels.
        label: what a loss is, with its unit.
    """
    values = np.concatenate([np.asarray(column) for column in losses.values()])
    marked = [value for lines in (marks or {}).values() for value in lines.values()]
    right = max(np.quantile(values, 0.995), *marked, values.min() + 1e-9)
    edges = np.linspace(values.min(), right, 60)
    figure, panels = pyplot().subplots(
        len(losses), 1, figsize=(8.0, 1.2 + 1.6 * len(losses)), sharex=True, squeeze=False, layout="constrained"
    )
    for panel, (name, column) in zip(panels[:, 0], losses.items(), strict=True):
        column = np.asarray(column)
        panel.hist(column, bins=edges.tolist(), weights=np.full(column.size, 100.0 / column.size), color="#7a9cc6")
        lines = (marks or {}).get(name, {})
        for style, (mark, value) in zip(("-", "--", ":"), lines.items(), strict=False):
            panel.axvline(value, color="#b03a2e", linestyle=style, linewidth=1.4, label=f"{mark} {value:.2f}")
        beyond = 100.0 * float((column > right).mean())
        panel.set_title(
            name + (f"  ({beyond:.1f} % of draws lie further right)" if beyond else ""), loc="left", fontsize=10
        )
        panel.set_ylabel("% of draws")
        panel.spines[["top", "right"]].set_visible(False)
        if lines:
            # Beside the panel, where no bar or line can run through it.
            panel.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    panels[-1, 0].set_xlabel(label)
    figure.suptitle(title, fontsize=11)
    return finish(figure, path)


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
    panel.set_ylabel(f"{risk_words(curve.tail)} of the loss")
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
