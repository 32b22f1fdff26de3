"""Figures as plain data: what the drawing library of the page is told, made without importing it for Python.

`scatter` and `bar` take the settings of plotly's traces of these names; tests hold every figure against
plotly's own validation.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np


class Figure:
    """Traces and a layout.

    Attributes:
        data: the traces, in the order they are drawn.
        layout: axes, sizes and shapes.
    """

    def __init__(self, **layout: Any) -> None:
        self.data: list[dict[str, Any]] = []
        self.layout: dict[str, Any] = dict(layout)

    def add_trace(self, trace: dict[str, Any]) -> None:
        """Draw one thing more."""
        self.data.append(trace)

    def add_line(self, x: Any, y: Any, colour: str, hover: Any = None, width: float = 2, dash: Any = None) -> None:
        """Points joined, with what a pointer on them shows."""
        line = {"color": colour, "width": width, "dash": dash}
        self.add_trace(scatter(x=x, y=y, mode="lines", line=line, **_hover(hover)))

    def add_dots(
        self, x: Any, y: Any, marker: dict[str, Any], hover: Any = None, mode: str = "markers", **settings: Any
    ) -> None:
        """Points, with what a pointer on them shows."""
        self.add_trace(scatter(x=x, y=y, mode=mode, marker=marker, **settings, **_hover(hover)))

    def add_bars(self, x: Any, y: Any, colour: str, hover: Any = None, **settings: Any) -> None:
        """Bars, with what a pointer on them shows."""
        self.add_trace(bar(x=x, y=y, **settings, marker={"color": colour, "line": {"width": 0}}, **_hover(hover)))

    def add_texts(self, x: Any, y: Any, texts: Any, size: int, **settings: Any) -> None:
        """Words at places."""
        self.add_trace(scatter(x=x, y=y, mode="text", text=texts, **settings, textfont={"size": size}, **_hover(None)))

    def add_cells(self, z: Any, top: float, shades: Any, hover: Any, **settings: Any) -> None:
        """A table of colours, from 0 to a number at the top of the shades."""
        scale = {"zmin": 0.0, "zmax": top, "colorscale": shades, "showscale": False}
        self.add_trace({"type": "heatmap", "z": z, **scale, **settings, **_hover(hover)})

    def update_layout(self, **settings: Any) -> None:
        """Other settings, those of an axis beside the ones it has."""
        for name, value in settings.items():
            known = self.layout.get(name)
            self.layout[name] = {**known, **value} if isinstance(known, dict) and isinstance(value, dict) else value

    def add_column(self, left: float, right: float, **settings: Any) -> None:
        """A rectangle, or where both are one a line, as high as the figure.

        Args:
            left: where it begins.
            right: where it ends.
            settings: of plotly's shape.
        """
        kind = "line" if left == right else "rect"
        place = {"xref": "x", "yref": "y domain", "x0": left, "x1": right, "y0": 0, "y1": 1}
        self.layout.setdefault("shapes", []).append({"type": kind, **place, **settings})

    def to_json(self) -> str:
        """As JSON, which knows no NaN: such a number is left out."""
        return json.dumps(_plain({"data": self.data, "layout": self.layout}), separators=(",", ":"), allow_nan=False)


def scatter(**settings: Any) -> dict[str, Any]:
    """Points, lines or texts."""
    return {"type": "scatter", **settings}


def bar(**settings: Any) -> dict[str, Any]:
    """Bars."""
    return {"type": "bar", **settings}


def _hover(text: Any) -> dict[str, Any]:
    return {"hoverinfo": "skip"} if text is None else {"hovertext": text, "hoverinfo": "text"}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items() if part is not None}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
