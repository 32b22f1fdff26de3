"""A figure as plain data: panels of lines with bands, dots with error bars, or histograms with marks.

What is drawn is said once here; `draw_picture` draws it into a PNG, `interactive` into a page.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from prudent.plots import finish, pyplot

# Distinct for readers who cannot tell red from green; black stays for what is published or known.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8c6d31", "#7f7f7f", "#5254a3", "#bcbd22")
PUBLISHED = "#222222"

STYLES = {"solid": "-", "dash": "--", "dot": ":", "markers": "o-"}


class Line(NamedTuple):
    """A curve, with a band where `low` and `high` are given; `style` is solid, dash, dot or markers."""

    label: str
    colour: str
    x: Float[np.ndarray, " T"]
    y: Float[np.ndarray, " T"]
    low: Float[np.ndarray, " T"] | None = None
    high: Float[np.ndarray, " T"] | None = None
    style: str = "solid"


class Dots(NamedTuple):
    """A value with an error bar in each of the panel's rows; NaN where there is none."""

    label: str
    colour: str
    values: Float[np.ndarray, " K"]
    errors: Float[np.ndarray, " K"]


class Histogram(NamedTuple):
    """The distribution of values, with named values marked by vertical lines."""

    label: str
    colour: str
    values: Float[np.ndarray, " I"]
    marks: dict[str, float]


class Panel(NamedTuple):
    """One set of axes.

    Attributes:
        title: above it.
        x_label, y_label: with units.
        lines, dots, histograms: what is drawn.
        rows: names of the rows that dots stand in, from the top.
        x_log, y_log: logarithmic axes.
        y_range: what of the y axis is shown; all of it when left out.
    """

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...] = ()
    dots: tuple[Dots, ...] = ()
    histograms: tuple[Histogram, ...] = ()
    rows: tuple[str, ...] = ()
    x_log: bool = False
    y_log: bool = False
    y_range: tuple[float, float] | None = None


class Picture(NamedTuple):
    """Panels in rows of `columns`, each `height` inches high; `share_x` gives them one x axis."""

    name: str
    title: str
    panels: tuple[Panel, ...]
    columns: int = 1
    height: float = 3.6
    share_x: bool = False


def draw_picture(picture: Picture, path: str | Path | None = None) -> Any:
    """Draw with matplotlib; one legend below all panels, which share their labels and colours.

    Args:
        picture: what to draw.
        path: where to write a PNG; the figure is returned either way.
    """
    count, columns = len(picture.panels), picture.columns
    rows = -(-count // columns)
    figure, axes = pyplot().subplots(
        rows,
        columns,
        figsize=(7.2 if columns == 1 else 4.7 * columns, picture.height * rows + 0.8),
        squeeze=False,
        sharex=picture.share_x,
        layout="constrained",
    )
    handles: dict[str, Any] = {}
    values = [np.asarray(bars.values) for panel in picture.panels for bars in panel.histograms]
    edges = histogram_edges(np.concatenate(values)) if values else []
    for number, place in enumerate(axes.ravel()):
        if number < count:
            _draw_panel(picture.panels[number], place, handles, edges)
            if picture.share_x and number < count - columns:
                place.set_xlabel("")
        else:
            place.set_visible(False)
    if handles:
        # As many beside each other as fit: a character of this size is a fourteenth of an inch wide at most.
        widest = 6 + max(len(label) for label in handles)
        fitting = int(14 * figure.get_size_inches()[0] / widest)
        columns = max(1, min(len(handles), fitting, 4))
        place = "outside lower center"
        figure.legend(handles.values(), handles.keys(), loc=place, ncols=columns, frameon=False, fontsize=9)
    figure.suptitle(picture.title, fontsize=11)
    return finish(figure, path)


def _draw_panel(panel: Panel, axes: Any, handles: dict[str, Any], edges: list[float]) -> None:
    for line in panel.lines:
        [drawn] = axes.plot(
            line.x, line.y, STYLES[line.style], color=line.colour, linewidth=1.5, markersize=4, label=line.label
        )
        handles.setdefault(line.label, drawn)
        if line.low is not None and line.high is not None:
            axes.fill_between(line.x, line.low, line.high, color=line.colour, alpha=0.18, linewidth=0)
    for number, dots in enumerate(panel.dots):
        # Side by side in a row, so that neither hides the other.
        height = np.arange(len(panel.rows)) + 0.3 * (number - (len(panel.dots) - 1) / 2)
        shown = np.isfinite(dots.values)
        errors = np.where(np.isfinite(dots.errors), dots.errors, 0.0)[shown]
        drawn = axes.errorbar(
            dots.values[shown], height[shown], xerr=errors, fmt="o" if number == 0 else "s", color=dots.colour,
            markersize=4.5, capsize=2, linewidth=1.2,
        )  # fmt: skip
        handles.setdefault(dots.label, drawn)
    if panel.rows:
        axes.set_yticks(range(len(panel.rows)), panel.rows, fontsize=9)
        axes.set_ylim(len(panel.rows) - 0.5, -0.5)
        axes.grid(axis="x", alpha=0.25)
    for histogram in panel.histograms:
        _draw_histogram(histogram, axes, edges)
    axes.set_title(panel.title, loc="left", fontsize=10)
    axes.set_xlabel(panel.x_label, fontsize=9)
    axes.set_ylabel(panel.y_label, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    if panel.x_log:
        axes.set_xscale("log")
    if panel.y_log:
        axes.set_yscale("log")
    if panel.y_range is not None:
        axes.set_ylim(*panel.y_range)


def _draw_histogram(histogram: Histogram, axes: Any, edges: list[float]) -> None:
    axes.hist(np.asarray(histogram.values), bins=edges, color=histogram.colour, alpha=0.75)
    for style, (name, value) in zip(("-", "--", ":"), histogram.marks.items(), strict=False):
        axes.axvline(value, color="#b03a2e", linestyle=style, linewidth=1.4, label=f"{name} {value:.2f}")
    # Beside the panel, where no bar or line can run through it.
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))


def histogram_edges(values: Any) -> list[float]:
    """Forty bins over the values; a little around them if all are one."""
    low, high = float(np.min(values)), float(np.max(values))
    margin = 0.5 if high - low < 1e-9 else 0.0
    return np.linspace(low - margin, high + margin, 41).tolist()
