"""What every figure shares: colours with one meaning each, no ground of its own, axes the style sheet can colour."""

from __future__ import annotations

import colorsys
from typing import Any

from .page import plotly_graphs

# Readable on white and on near-black alike. A plan keeps its colour through the whole page.
PLANS = ("#3f7fc4", "#d9822b", "#2a9d7c", "#9a6fc0", "#a0785a", "#8c9440")
# The tail of the losses: where it begins, its mean, and what drives it.
TAIL = "#d1495b"
# Everything that belongs to no plan; traces whose uid begins with INK are coloured like text by the style sheet.
NEUTRAL = "#7d8794"
INK = "ink"

LEFT = 52  # every figure with short labels begins at the same place
BOTTOM = 44


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


def blank(height: int, left: int = LEFT, top: int = 10, bottom: int = BOTTOM) -> Any:
    """An empty figure; a finger that drags over it scrolls the page."""
    return plotly_graphs().Figure(
        layout={
            "template": "none",
            "height": height,
            "margin": {"l": left, "r": 12, "t": top, "b": bottom, "pad": 4},
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
        "automargin": False,
        **settings,
    }


def label_room(labels: list[str]) -> int:
    """Pixels to keep free on the left for labels of an axis; a phone is 360 wide, so labels are short by then."""
    return min(max((len(label) for label in labels), default=0) * 7 + 16, 170)
