"""Figures as PNG: matplotlib without a display, files written whole, nothing computed that a record does not hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .advice import Frontier, FrontierPoint, LimitFrontier, risk_words
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


def limit_frontier_figure(curve: LimitFrontier, path: str | Path | None = None, *, title: str = "") -> Any:
    """What each level of a limit costs, with intervals; its price as the slope; what no policy keeps is shaded.

    Args:
        curve: from `limit_frontier(...)`.
        path: where to write a PNG; the figure is returned either way.
        title: above the figure; the limit's name when left out.
    """
    figure, panel = pyplot().subplots(figsize=(7.0, 4.5), layout="constrained")
    good = [point for point in curve.points if point.kept]
    levels, risks = [point.at_most for point in good], [point.solution.risk for point in good]
    ends = [np.nan_to_num(np.asarray(point.solution.interval), nan=point.solution.risk) for point in good]
    bars = [[max(risk - low, 0.0) for risk, (low, _) in zip(risks, ends, strict=True)]]
    bars.append([max(high - risk, 0.0) for risk, (_, high) in zip(risks, ends, strict=True)])
    panel.errorbar(levels, risks, yerr=bars, color="#2e5c8a", marker="o", markersize=5, elinewidth=0.7, zorder=2)
    reach = 0.3 * float(np.median(np.diff(levels))) if len(levels) > 1 else 0.0
    for point in good:
        for side, price in zip((reach, -reach), point.answer.prices, strict=True):
            if np.isfinite(price) and price > 0:
                to = [point.solution.risk, point.solution.risk - side * price]
                panel.plot([point.at_most, point.at_most + side], to, color="0.4", linestyle=":", zorder=3)
    bad = [point for point in curve.points if not point.kept]
    panel.plot([p.at_most for p in bad], [p.solution.risk for p in bad], "x", color="#b03a2e", zorder=2)
    left = min(point.at_most for point in curve.points)
    left -= 0.15 * (max(point.at_most for point in curve.points) - left or 1.0)
    if curve.least > left:
        panel.axvspan(left, curve.least, color="#b03a2e", alpha=0.12, linewidth=0)
    panel.set_xlim(left=left)
    panel.set_xlabel(f"{curve.limit.name or 'limit'}, at most" + (f" ({curve.limit.unit})" if curve.limit.unit else ""))
    panel.set_ylabel("risk")
    panel.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title or f"What a limit on {curve.limit.name or 'it'} costs", fontsize=11)
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
