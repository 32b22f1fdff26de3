"""The pages of a reproduction: one an item, with its table and pictures, and an index of the folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prudent.files import write_whole
from prudent.report import number, render

from .interactive import drawn
from .panels import draw_picture
from .pictures import method_label, pictures_of

MET = 2.0  # joint standard errors within which a published figure counts as met
WORDS = ("method", "statement", "against", "claimed")  # columns that are not of numbers


def write_item(folder: Path, item: str, title: str, records: Sequence[dict[str, Any]]) -> list[Path]:
    """The pictures of an item as PNG, and a page with them and the table."""
    pictures = pictures_of(item, records)
    written = [folder / "figures" / f"{picture.name}.png" for picture in pictures]
    for picture, path in zip(pictures, written, strict=True):
        draw_picture(picture, path)
    columns, rows = item_table(item, records)
    page = render(
        "reproduction.html",
        "prudent_studies",
        item=item,
        title=title,
        pictures=[drawn(picture) for picture in pictures],
        columns=columns,
        words=WORDS,
        rows=rows,
        files=[f"{item}.json", f"{item}.parquet", *(f"figures/{path.name}" for path in written)],
    )
    return [*written, write_whole(folder / f"{item}.html", page)]


def write_index(folder: Path, items: Sequence[tuple[str, str]]) -> Path:
    """The index of the folder: what was run, with what, and where each item is.

    Args:
        folder: of the run.
        items: name and title of every item whose page is there.
    """
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return write_whole(
        folder / "index.html", render("reproduction-index.html", "prudent_studies", items=items, manifest=manifest)
    )


def item_table(item: str, records: Sequence[dict[str, Any]]) -> tuple[list[str], list[dict[str, Any]]]:
    """The rows of an item's table as texts: a summary where the records are curves.

    Returns:
        The columns; and for each row its `cells`, whether a published figure is `met` (None without one), and
        whether a new `section` begins.
    """
    if item.startswith("table") or item == "variants":
        return _means_table(records)
    if item == "theory":
        return _theory_table(records)
    if item == "histograms":
        return _histogram_table(records)
    return _curve_table(records)


def _means_table(records: Sequence[dict[str, Any]]) -> tuple[list[str], list[dict[str, Any]]]:
    columns = ["escape", "N", "method", "mean", "s.e.", "+variance", "published", "s.e.", "off by", "z"]
    rows, before = [], None
    for row in records:
        place = (row["escape"], row["n"])
        label = method_label(row) + (f", {row['variant']}" if row.get("variant") else "")
        rows.append(
            {
                "cells": [
                    f"{row['escape']:g}",
                    str(row["n"]),
                    label,
                    f"{row['mean']:.3f}",
                    _or_blank(row["se"], 3),
                    _or_blank(row["psv"], 3),
                    "" if row["published"] is None else f"{row['published']:.3f}",
                    _or_blank(row["published_se"], 3),
                    "" if row["deviation"] is None else f"{row['deviation']:+.2%}",
                    "" if row["z"] is None else f"{row['z']:+.1f}",
                ],
                "met": None if row["z"] is None else abs(row["z"]) <= MET,
                "section": before is not None and place != before,
            }
        )
        before = place
    return columns, rows


def _curve_table(records: Sequence[dict[str, Any]]) -> tuple[list[str], list[dict[str, Any]]]:
    """What each curve begins and ends with."""
    names = [
        name for name in ("episodes", "iterations", "escape", "n", "method", "beta", "radius") if name in records[0]
    ]
    curves: dict[tuple, list[dict[str, Any]]] = {}
    for row in records:
        curves.setdefault(tuple(row[name] for name in names), []).append(row)
    episodic = "above_optimum" in records[0]
    columns = ["episodes"] if episodic else ["escape", "N"]
    columns += ["method", "at first", "half-way", "at last", "s.e."]
    columns += ["above optimum", "trials", "D", "E"] if episodic else []
    rows, before = [], None
    for curve in curves.values():
        first, middle, last = curve[0], curve[len(curve) // 2], curve[-1]
        place = (
            (f"{first['episodes']} x {first['iterations']}",) if episodic else (f"{first['escape']:g}", str(first["n"]))
        )
        cells = [*place, method_label(first)]
        cells += [number(row["mean"], 5) for row in (first, middle, last)]
        cells.append(_or_blank(last.get("se"), 2))
        if episodic:
            cells.append(number(last["above_optimum"], 3))
            cells += [_or_blank(last[name], 3) for name in ("trials", "loss_gap", "gradient_gap")]
        rows.append({"cells": cells, "met": None, "section": before is not None and place != before})
        before = place
    return columns, rows


def _or_blank(value: float | None, digits: int) -> str:
    return "" if value is None else number(value, digits)


def _histogram_table(records: Sequence[dict[str, Any]]) -> tuple[list[str], list[dict[str, Any]]]:
    seen: dict[str, dict[str, Any]] = {}
    for row in records:
        seen.setdefault(method_label(row), row)
    level = records[0]["level"]
    return ["method", "mean", f"CVaR {level:g}"], [
        {"cells": [label, f"{row['mean']:.3f}", f"{row['cvar']:.3f}"], "met": None, "section": False}
        for label, row in seen.items()
    ]


def _theory_table(records: Sequence[dict[str, Any]]) -> tuple[list[str], list[dict[str, Any]]]:
    series: dict[str, list[dict[str, Any]]] = {}
    for row in records:
        series.setdefault(row["statement"], []).append(row)
    columns = ["statement", "against", "from", "to", "slope", "95 % interval", "claimed"]
    rows = []
    for statement, points in series.items():
        first, last = points[0], points[-1]
        unit = "" if first["slope_per"] == "power" else f" {first['slope_per']}"
        slope = "" if first["slope"] is None else f"{first['slope']:.3f}{unit}"
        interval = "" if first["slope"] is None else f"{first['slope_low']:.3f} to {first['slope_high']:.3f}"
        cells = [statement, first["setting"], number(first["mean"], 3), number(last["mean"], 3), slope, interval]
        rows.append({"cells": [*cells, first["claimed"]], "met": None, "section": False})
    return columns, rows
