"""The records of the reproduction to pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .panels import COLOURS, PUBLISHED, Dots, Histogram, Line, Panel, Picture

Records = Sequence[dict[str, Any]]

RECONSTRUCTION = "reconstructed map"
COST = "expected discounted cost under the truth"
DIVERGENCE = "KL divergence from the expert, nats"

METHOD_ORDER = (
    "BR-PG, beta 0",
    "BR-PG, beta 0.5",
    "BR-PG, beta 0.9",
    "plug-in, 100 steps",
    "plug-in, exact",
    "KL-robust, exact, radius 0.05",
    "KL-robust, exact, radius 1",
    "KL-robust, exact, radius 20",
    "DRQL, radius 0.05",
    "DRQL, radius 1",
    "DRQL, radius 20",
)


def method_label(row: dict[str, Any]) -> str:
    """A method with its level or radius."""
    if row["beta"] is not None:
        return f"{row['method']}, beta {row['beta']:g}"
    return row["method"] if row["radius"] is None else f"{row['method']}, radius {row['radius']:g}"


def method_colour(label: str) -> str:
    """The same colour for a method in every picture."""
    return COLOURS[METHOD_ORDER.index(label) % len(COLOURS)] if label in METHOD_ORDER else COLOURS[-1]


def pictures_of(item: str, records: Records) -> list[Picture]:
    """The pictures of an item."""
    return _MAKERS[item](item, records)


def _grouped(records: Records, *names: str) -> dict[tuple, list[dict[str, Any]]]:
    groups: dict[tuple, list[dict[str, Any]]] = {}
    for row in records:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def _column(rows: Records, name: str) -> np.ndarray:
    return np.array([np.nan if row[name] is None else row[name] for row in rows], dtype=float)


def _table(item: str, records: Records) -> list[Picture]:
    panels = []
    for (escape, n), rows in _grouped(records, "escape", "n").items():
        shown = [row for row in rows if row["method"] != "optimum"]
        labels = tuple(method_label(row) + (f", {row['variant']}" if row.get("variant") else "") for row in shown)
        panels.append(
            Panel(
                f"escape {escape:g}, N = {n}",
                COST,
                "",
                dots=(
                    Dots("ours, ± 2 standard errors", COLOURS[0], _column(shown, "mean"), 2 * _column(shown, "se")),
                    Dots(
                        "published, ± 2 standard errors",
                        PUBLISHED,
                        _column(shown, "published"),
                        2 * _column(shown, "published_se"),
                    ),
                ),
                rows=labels,
            )
        )
    height = 1.2 + 0.28 * max(len(panel.rows) for panel in panels)
    return [Picture(item, f"Mean loss over data sets ({RECONSTRUCTION})", tuple(panels), height=height)]


def _curves(rows: Records, start: int = 0) -> tuple[Line, ...]:
    lines = []
    for _, curve in _grouped(rows, "method", "beta", "radius").items():
        shown = [row for row in curve if row["iteration"] >= start]
        label = method_label(shown[0])
        style = {"BR-PG": "solid", "plug-in, 100 steps": "dash"}.get(shown[0]["method"], "dot")
        with_band = "low" in shown[0] and shown[0]["low"] is not None
        lines.append(
            Line(
                label,
                method_colour(label),
                _column(shown, "iteration"),
                _column(shown, "mean"),
                _column(shown, "low") if with_band else None,
                _column(shown, "high") if with_band else None,
                style,
            )
        )
    return tuple(lines)


def _episodic(item: str, records: Records) -> list[Picture]:
    optimum = min(row["mean"] - row["above_optimum"] for row in records)
    panels = []
    for (episodes, iterations), rows in _grouped(records, "episodes", "iterations").items():
        lines = _curves(rows)
        known = Line("optimum", PUBLISHED, lines[0].x, np.full(len(lines[0].x), optimum), style="dot")
        late = max(float(np.nanmax(line.y[len(line.y) // 10 :])) for line in lines)
        panels.append(
            Panel(
                f"{episodes} episodes of {iterations} iterations",
                "iteration",
                COST,
                lines=(*lines, known),
                # From the tenth iteration on: the first ones would flatten all that follows.
                y_range=(optimum - 0.5, late + 0.5),
            )
        )
    title = f"Episodic BR-PG, mean over worlds and 95 % band ({RECONSTRUCTION})"
    return [Picture(item, title, tuple(panels), columns=3, height=4.4)]


def _mimic(item: str, records: Records) -> list[Picture]:
    panels = []
    for (escape, n), rows in _grouped(records, "escape", "n").items():
        start = 30 if escape in (0.2, 0.8) else 0
        shown = f", from iteration {start}" if start else ""
        panels.append(Panel(f"escape {escape:g}, N = {n}{shown}", "iteration", DIVERGENCE, lines=_curves(rows, start)))
    title = f"Mimicking an expert, mean over data sets and 95 % band ({RECONSTRUCTION})"
    return [Picture(item, title, tuple(panels), columns=2)]


def _convergence(item: str, records: Records) -> list[Picture]:
    first = records[0]
    panel = Panel(f"escape {first['escape']:g}, N = {first['n']}", "iteration", COST, lines=_curves(records))
    return [Picture(item, f"One data set ({RECONSTRUCTION})", (panel,), height=4.2)]


def _histograms(item: str, records: Records) -> list[Picture]:
    panels = []
    for _, rows in _grouped(records, "method", "beta", "radius").items():
        if rows[0]["method"] == "optimum":
            continue
        label = method_label(rows[0])
        marks = {"mean": rows[0]["mean"], f"CVaR {rows[0]['level']:g}": rows[0]["cvar"]}
        bars = Histogram(label, method_colour(label), _column(rows, "loss"), marks)
        panels.append(Panel(label, COST, "data sets", histograms=(bars,)))
    first = records[0]
    title = f"Loss over data sets, escape {first['escape']:g}, N = {first['n']} ({RECONSTRUCTION})"
    return [Picture(item, title, tuple(panels), height=1.5, share_x=True)]


def _theory(item: str, records: Records) -> list[Picture]:
    panels = []
    for title, rows in _theory_groups(records).items():
        lines = []
        for number, (statement, points) in enumerate(_grouped(rows, "statement").items()):
            first = points[0]
            unit = " a step" if first["slope_per"] != "power" else ""
            fitted = "" if first["slope"] is None else f": slope {first['slope']:.3g}{unit}"
            fitted += "" if first["slope"] is None else f" ({first['slope_low']:.3g}, {first['slope_high']:.3g})"
            means, errors = _column(points, "mean"), _column(points, "se")
            low = np.maximum(means - 1.96 * errors, means / 10)
            lines.append(
                Line(
                    f"{statement[0]}{fitted}",
                    COLOURS[number],
                    _column(points, "x"),
                    means,
                    low,
                    means + 1.96 * errors,
                    style="markers",
                )
            )
        first = rows[0]
        log_x = first["slope_per"] == "power"
        panels.append(Panel(title, first["setting"], first["quantity"], lines=tuple(lines), x_log=log_x, y_log=True))
    return [
        Picture(f"{item}-{number + 1}", f"The paper's statements, measured ({RECONSTRUCTION})", (panel,), height=4.4)
        for number, panel in enumerate(panels)
    ]


def _theory_groups(records: Records) -> dict[str, list[dict[str, Any]]]:
    """Series that belong on the same axes: the same quantity against the same setting."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in records:
        kind = row["statement"].split(",")[0]
        groups.setdefault(f"{kind} against {row['setting']}", []).append(row)
    return groups


_MAKERS: dict[str, Callable[[str, Records], list[Picture]]] = {
    "table1": _table,
    "table2": _table,
    "table3": _table,
    "variants": _table,
    "episodic": _episodic,
    "mimic": _mimic,
    "histograms": _histograms,
    "convergence": _convergence,
    "theory": _theory,
}
