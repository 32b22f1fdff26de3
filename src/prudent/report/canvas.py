"""What every figure shares: colours with one meaning each, no ground of its own, axes the style sheet can colour."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from typing import Any

import numpy as np

from .page import plotly_graphs
from .words import figure_text, short_names

# Readable on white and on near-black alike. A plan keeps its colour through the whole page.
PLANS = ("#3f7fc4", "#d9822b", "#2a9d7c", "#9a6fc0", "#a0785a", "#8c9440")
# The tail of the losses: where it begins, its mean, and what drives it.
TAIL = "#d1495b"
# Everything that belongs to no plan.
NEUTRAL = "#7d8794"

LEFT = 52  # every figure with short labels begins at the same place
BOTTOM = 44


LARGEST = 1e100  # beyond it differences overflow, and so do axes


def drawable(values: Any) -> np.ndarray:
    """Which numbers can be drawn: those that are finite, and not so large that an axis cannot hold them."""
    return np.asarray(np.abs(np.nan_to_num(np.asarray(values, float), nan=np.inf)) < LARGEST)


def amounts(values: Any) -> np.ndarray:
    """Amounts to draw, with what cannot be drawn, or is below zero, as nothing."""
    values = np.asarray(values, float)
    return np.where(drawable(values) & (values > 0.0), values, 0.0)


def plan_colour(position: int) -> str:
    """The colour of a plan by its place in the report."""
    if position < len(PLANS):
        return PLANS[position]
    red, green, blue = colorsys.hls_to_rgb((0.618034 * position) % 1.0, 0.52, 0.45)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def faded(colour: str, strength: float) -> str:
    """A colour let through by the ground behind it, so that it is pale on white and dim on black."""
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},{strength:.3f})"


def shades(colour: str, strongest: float = 0.75) -> list[list[Any]]:
    """A colour scale from nothing to a colour that text can still be read on."""
    return [[0.0, faded(colour, 0.0)], [1.0, faded(colour, strongest)]]


def blank(height: int | None, left: int = LEFT, right: int = 12, top: int = 10, bottom: int = BOTTOM) -> Any:
    """An empty figure, as high as its place in the page if no height is given; a finger on it scrolls the page."""
    return plotly_graphs().Figure(
        layout={
            "template": "none",
            "height": height,
            "margin": {"l": left, "r": right, "t": top, "b": bottom, "pad": 4 if left > 8 else 0},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "dragmode": False,
            "showlegend": False,
            "hovermode": "closest",
            "font": {"size": 12},
            "hoverlabel": {"align": "left", "namelength": -1},
            "xaxis": axis(),
            "yaxis": axis(),
        }
    )


def axis(title: str = "", **settings: Any) -> dict[str, Any]:
    """An axis with a quiet grid; its title carries the unit."""
    return {
        "title": {"text": title, "standoff": 8, "font": {"size": 12}},
        "fixedrange": True,
        "showline": False,
        "zeroline": False,
        "gridcolor": faded(NEUTRAL, 0.25),
        "ticks": "",
        "tickangle": 0,
        "automargin": False,
        **settings,
    }


def named_places(names: Sequence[str], length: int = 23) -> tuple[dict[str, Any], int]:
    """An axis with a name at each whole number from the top down, and the pixels its names need on the left.

    A phone has 300 pixels for names and figure together, so long names are cut; hover texts have them whole.
    """
    labels = short_names(names, length)
    settings = axis(
        tickvals=list(range(len(names))),
        ticktext=[figure_text(label) for label in labels],
        range=[len(names) - 0.5, -0.5],
        showgrid=False,
    )
    return settings, max(len(label) for label in labels) * 7 + 18
