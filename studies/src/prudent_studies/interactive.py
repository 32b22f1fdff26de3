"""Pictures drawn into a page: a figure a panel, and one key for all of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prudent.report import (
    NEUTRAL,
    TAIL,
    Figure,
    axis,
    bar,
    blank,
    faded,
    figure_html,
    figure_text,
    named_places,
    number,
    scatter,
)

from .panels import PUBLISHED, Dots, Histogram, Line, Panel, Picture, histogram_edges

DASHES = {"solid": "solid", "markers": "solid", "dash": "dash", "dot": "dot"}


class DrawnPanel(NamedTuple):
    """A panel as HTML."""

    title: str
    html: str


class Key(NamedTuple):
    """What a colour means."""

    label: str
    colour: str
    dash: str


class DrawnPicture(NamedTuple):
    """A picture as HTML: its panels and the key they share."""

    name: str
    title: str
    panels: list[DrawnPanel]
    keys: list[Key]


def drawn(picture: Picture) -> DrawnPicture:
    """Draw every panel with plotly."""
    keys: dict[str, Key] = {}
    for panel in picture.panels:
        for entry in (*panel.lines, *panel.dots):
            keys.setdefault(entry.label, Key(entry.label, _ink(entry.colour), getattr(entry, "style", "solid")))
    values = [np.asarray(bars.values) for panel in picture.panels for bars in panel.histograms]
    shown = (float(min(map(np.min, values))), float(max(map(np.max, values)))) if values else (0.0, 1.0)
    return DrawnPicture(
        picture.name,
        picture.title,
        [
            DrawnPanel(
                panel.title + _marks(panel), figure_html(_figure(panel, shown), f"{picture.title}: {panel.title}")
            )
            for panel in picture.panels
        ],
        list(keys.values()),
    )


def _ink(colour: str) -> str:
    """Near-black cannot be seen on a dark ground."""
    return NEUTRAL if colour == PUBLISHED else colour


def _figure(panel: Panel, shown: tuple[float, float]) -> Any:
    if panel.rows:
        return _dots(panel)
    figure = blank(170 if panel.histograms else 340, left=64)
    for line in panel.lines:
        _line(figure, line)
    figure.update_layout(
        xaxis=axis(figure_text(panel.x_label), type="log" if panel.x_log else "linear", exponentformat="power"),
        yaxis=axis(figure_text(panel.y_label), type="log" if panel.y_log else "linear", exponentformat="power"),
    )
    for histogram in panel.histograms:
        _histogram(figure, histogram, shown)
    if panel.y_range is not None:
        figure.update_layout(yaxis={"range": list(panel.y_range)})
    return figure


def _line(figure: Figure, line: Line) -> None:
    colour = _ink(line.colour)
    if line.low is not None and line.high is not None:
        figure.add_trace(
            scatter(
                x=np.concatenate([line.x, line.x[::-1]]).tolist(),
                y=np.concatenate([line.high, line.low[::-1]]).tolist(),
                mode="lines",
                fill="toself",
                fillcolor=faded(colour, 0.16),
                line={"width": 0},
                hoverinfo="skip",
            )
        )
    figure.add_trace(
        scatter(
            x=line.x.tolist(),
            y=line.y.tolist(),
            name=figure_text(line.label),
            mode="lines+markers" if line.style == "markers" else "lines",
            line={"color": colour, "width": 2, "dash": DASHES[line.style]},
            marker={"size": 6, "color": colour},
            hovertemplate="%{x}: %{y:.5g}",
        )
    )


def _dots(panel: Panel) -> Any:
    places, left = named_places(panel.rows, 38)
    figure = blank(70 + 26 * len(panel.rows), left=left)
    for position, dots in enumerate(panel.dots):
        _row_of_dots(figure, panel, dots, 0.3 * (position - (len(panel.dots) - 1) / 2), position)
    figure.update_layout(xaxis=axis(figure_text(panel.x_label)), yaxis=places)
    return figure


def _row_of_dots(figure: Figure, panel: Panel, dots: Dots, shift: float, position: int) -> None:
    errors = np.where(np.isfinite(dots.errors), dots.errors, 0.0)
    shown = np.flatnonzero(np.isfinite(dots.values))
    texts = [
        f"{panel.rows[k]}<br>{dots.label}<br>{number(float(dots.values[k]), 6)} ± {number(float(errors[k]), 3)}"
        for k in shown
    ]
    figure.add_trace(
        scatter(
            x=dots.values[shown].tolist(),
            y=(shown + shift).tolist(),
            mode="markers",
            marker={"color": _ink(dots.colour), "size": 8, "symbol": "circle" if position == 0 else "square"},
            error_x={"type": "data", "array": errors[shown].tolist(), "color": _ink(dots.colour), "thickness": 1.5},
            text=texts,
            hovertemplate="%{text}<extra></extra>",
        )
    )


def _histogram(figure: Figure, histogram: Histogram, shown: tuple[float, float]) -> None:
    edges = np.array(histogram_edges(np.asarray(shown)))
    counts, _ = np.histogram(np.asarray(histogram.values), bins=edges)
    figure.add_trace(
        bar(
            x=((edges[1:] + edges[:-1]) / 2).tolist(),
            y=counts.tolist(),
            width=float(edges[1] - edges[0]),
            marker={"color": histogram.colour, "line": {"width": 0}},
            opacity=0.8,
            hovertemplate="%{x:.4g}: %{y}<extra></extra>",
        )
    )
    for dash, value in zip(("solid", "dash"), histogram.marks.values(), strict=False):
        figure.add_column(value, value, line={"color": TAIL, "dash": dash, "width": 2})
    margin = edges[1] - edges[0]
    figure.update_layout(xaxis={"range": [float(edges[0] - margin), float(edges[-1] + margin)]})


def _marks(panel: Panel) -> str:
    """What the lines of a histogram mark, in words: no text in the figure could run into a bar."""
    marks = [f"{name} {value:.2f}" for histogram in panel.histograms for name, value in histogram.marks.items()]
    return f": {', '.join(marks)} (lines: solid, dashed)" if marks else ""
