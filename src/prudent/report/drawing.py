"""Figures as plain data: what the drawing library of the page is told, made without importing it for Python.

`scatter`, `bar` and `heatmap` take the settings of plotly's traces of these names; tests hold every figure against
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


def heatmap(**settings: Any) -> dict[str, Any]:
    """A table of colours."""
    return {"type": "heatmap", **settings}


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
