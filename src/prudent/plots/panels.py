"""A figure as plain data: panels of lines with bands, dots with error bars, or histograms with marks.

What is drawn is said once here; `pictures` draws it into a PNG, `report.interactive` into a page.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

# Distinct for readers who cannot tell red from green; black stays for what is published or known.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8c6d31", "#7f7f7f", "#5254a3", "#bcbd22")
PUBLISHED = "#222222"


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
