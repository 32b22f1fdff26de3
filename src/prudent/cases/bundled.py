"""The tables that come with the cases."""

from __future__ import annotations

from importlib import resources

import numpy as np


def lines(name: str) -> tuple[list[str], list[list[str]]]:
    """Header and cells of a table in `data`; none of their cells has a comma in it."""
    text = (resources.files("prudent.cases") / "data" / name).read_text(encoding="utf-8")
    header, *rows = [line.split(",") for line in text.splitlines()]
    return header, rows


def column(name: str, which: str) -> np.ndarray:
    """A column of numbers, NaN where a cell is empty."""
    header, rows = lines(name)
    place = header.index(which)
    return np.array([float(row[place]) if row[place] else np.nan for row in rows])
