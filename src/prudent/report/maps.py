"""Figures of states and actions: the policy, where it spends its time, where the log is thin."""

from __future__ import annotations

from typing import Any

import numpy as np

from .decision import DecisionRecord
from .page import BOTTOM, NEUTRAL, axis, blank, faded, named_places, plan_colour, shades
from .record import PolicyRecord, SolutionRecord
from .words import figure_text, number, several, short_names

ROWS = 40  # of a heat map with one row a state
COLUMN_LABELS = 8  # upright ones, beside names of states on a phone
WIDE = 8  # actions, or columns of a grid; with more, a figure takes the whole width
CELL = 56  # pixels of a grid's cell, at most
LARGEST_GRID = 40  # cells across; smaller arrows cannot be read
BARS = 15
# Across and down, as the rows of a grid are numbered.
STEPS = {"up": (0.0, -1.0), "right": (1.0, 0.0), "down": (0.0, 1.0), "left": (-1.0, 0.0)}
FAINTEST = 0.05  # probability below which an arrow is left out


def visits(plan: PolicyRecord) -> np.ndarray:
    """Discounted visits of each state."""
    assert plan.occupancy is not None
    return plan.occupancy.sum(axis=1)


def busiest(plan: PolicyRecord, most: int) -> np.ndarray:
    """The states a plan visits most, at most so many, in their own order."""
    chosen = np.argsort(-visits(plan), kind="stable")[:most]
    return np.sort(chosen)


def has_arrows(record: SolutionRecord) -> bool:
    """Whether the policy can be drawn as arrows on a map."""
    known = record.directions is not None and all(direction in STEPS for direction in record.directions)
    return known and record.grid is not None and max(record.grid) <= LARGEST_GRID


def arrow_figure(record: SolutionRecord, position: int) -> Any:
    """The policy as arrows on the grid, longer for likelier actions, over the share of time spent in each cell."""
    assert record.grid is not None and record.directions is not None
    rows, columns = record.grid
    plan = record.plans[position]
    shares = visits(plan) / max(float(visits(plan).sum()), 1e-100)
    figure = blank(None, left=2, right=2, top=2, bottom=2)
    hover = np.array(_cell_texts(record, plan, shares), dtype=object).reshape(rows, columns)
    top, colours = max(float(shares.max()), 1e-12), shades(plan_colour(position))
    figure.add_cells(shares.reshape(rows, columns), top, colours, hover)
    if max(len(state) for state in record.state_names) <= 36 // columns + 1:
        cells = np.arange(rows * columns)
        names = [figure_text(state) for state in record.state_names]
        figure.add_texts(cells % columns - 0.5, cells // columns - 0.44, names, 9, textposition="bottom right")
    for states, mark in () if record.decision is None else _marks(record.decision):
        places = np.array(states)
        figure.add_texts(places % columns + 0.32, places // columns + 0.32, [mark] * len(places), 12)
    hidden = {"visible": False, "fixedrange": True, "constrain": "domain"}
    # Two paths, however large the grid; the style sheet colours what lies above like text.
    frame = {"type": "path", "path": _frame(rows, columns), "line": {"color": faded(NEUTRAL, 0.4), "width": 1}}
    arrows = {"type": "path", "path": _arrows(record, plan), "fillcolor": NEUTRAL, "line": {"width": 0}}
    figure.update_layout(
        shapes=[frame, arrows | {"layer": "above"}],
        xaxis={**hidden, "range": [-0.52, columns - 0.48], "constraintoward": "left"},
        yaxis={**hidden, "range": [rows - 0.48, -0.52], "scaleanchor": "x", "constraintoward": "top"},
    )
    return figure


def _marks(decision: DecisionRecord) -> list[tuple[tuple[int, ...], str]]:
    """Where it begins, where it ends, and what cannot be reached."""
    marks = [(decision.starts, "S"), (decision.ends, "G"), (decision.walls, "×")]
    return [(places, mark) for places, mark in marks if places]


def _frame(rows: int, columns: int) -> str:
    across = [f"M -0.5 {row - 0.5} L {columns - 0.5} {row - 0.5}" for row in range(rows + 1)]
    down = [f"M {column - 0.5} -0.5 L {column - 0.5} {rows - 0.5}" for column in range(columns + 1)]
    return " ".join(across + down)


def _arrows(record: SolutionRecord, plan: PolicyRecord) -> str:
    """One path of all arrows: a sure action's arrow fills its cell, others begin at the centre and point outwards."""
    assert record.grid is not None and record.directions is not None
    columns, probabilities = record.grid[1], np.asarray(plan.probabilities)
    still = set() if record.decision is None else {*record.decision.ends, *record.decision.walls}
    parts = ["M 0 0 Z"]  # a path may not be empty
    for state, row in enumerate(probabilities):
        if state in still:
            continue
        for direction, chance in zip(record.directions, row, strict=True):
            if chance < FAINTEST:
                continue
            length, middle = 0.18 + 0.47 * chance, min(0.25, 0.5 * (1.0 - chance))
            shaft, head = 0.02 + 0.03 * chance, 0.07 + 0.09 * chance
            tail, neck, tip = middle - length / 2.0, middle + length / 2.0 - 1.5 * head, middle + length / 2.0
            half = ((tail, shaft), (neck, shaft), (neck, head))
            outline = (*half, (tip, 0.0), *((along, -aside) for along, aside in reversed(half)))
            across, down = STEPS[direction]
            x, y = state % columns, state // columns
            points = [
                f"{x + along * across - aside * down:.3f} {y + along * down + aside * across:.3f}"
                for along, aside in outline
            ]
            parts.append(f"M {' L '.join(points)} Z")
    return " ".join(parts)


def _cell_texts(record: SolutionRecord, plan: PolicyRecord, shares: np.ndarray) -> list[str]:
    texts = []
    for state, name in enumerate(record.state_names):
        lines = [figure_text(name, 60), f"{number(100.0 * shares[state], 3)} % of discounted time"]
        row = np.asarray(plan.probabilities)[state]
        likeliest = np.argsort(-row, kind="stable")[:6]
        lines += [f"{figure_text(record.action_names[a], 40)}: {number(row[a], 3)}" for a in likeliest if row[a] > 0]
        texts.append("<br>".join(lines))
    return texts


def table_figure(
    record: SolutionRecord, values: np.ndarray, states: np.ndarray, colour: str, unit: str, top: float
) -> Any:
    """A heat map with one row a state and one column an action, its numbers written in where there is room."""
    values = values[states]
    names = record.state_names
    places, room = named_places([names[state] for state in states])
    columns = len(record.action_names)
    marked = np.unique(np.linspace(0, columns - 1, min(columns, COLUMN_LABELS)).round().astype(int))
    heads = short_names([record.action_names[action] for action in marked], 18)
    longest = max(len(head) for head in heads)
    slanted = longest * len(heads) > 24
    above = 14 + 7 * longest if slanted else 30
    figure = blank(above + 12 + max(22 * len(states), 40), left=room, top=above, bottom=8)
    hover = [
        [
            f"{figure_text(names[state], 60)}<br>{figure_text(action, 60)}<br>{number(value, 4)} {unit}"
            for action, value in zip(record.action_names, row, strict=True)
        ]
        for state, row in zip(states, values, strict=True)
    ]
    figure.add_cells(
        values,
        top if top > 0 else 1.0,
        shades(colour),
        hover,
        xgap=2 if columns <= WIDE else 0.5,
        ygap=2,
        text=[[_cell(value) for value in row] for row in values],
        texttemplate="%{text}" if columns <= WIDE else None,
        textfont={"size": 11},
    )
    figure.update_layout(
        xaxis=axis(
            side="top",
            tickvals=marked.tolist(),
            ticktext=[figure_text(head) for head in heads],
            tickangle=-90 if slanted else 0,
            showgrid=False,
            range=[-0.5, columns - 0.5],
        ),
        yaxis=places,
    )
    return figure


def _cell(value: float) -> str:
    # Two decimals have room; the exact number is in the hover text.
    text = f"{value:.0f}" if value >= 100 else f"{value:.2f}".removesuffix(".00")
    return text.removeprefix("0") if text.startswith("0.") else text


def policy_figure(record: SolutionRecord, position: int) -> Any:
    """The policy as a heat map of the states that the answer visits most."""
    plan = record.plans[position]
    table, shown = np.asarray(plan.probabilities), busiest(record.plans[0], ROWS)
    return table_figure(record, table, shown, plan_colour(position), "probability", 1.0)


def occupancy_figure(record: SolutionRecord) -> Any:
    """Discounted visits of the busiest states, one bar for each plan."""
    every = np.stack([visits(plan) for plan in record.plans])
    states = np.sort(np.argsort(-every.max(axis=0), kind="stable")[:BARS])
    names = record.state_names
    places, room = named_places([names[state] for state in states])
    figure = blank(BOTTOM + 14 + len(states) * (10 + 9 * len(record.plans)), left=room)
    for position, (plan, seen) in enumerate(zip(record.plans, every, strict=True)):
        hover = [
            f"{figure_text(names[state], 60)}<br>{figure_text(plan.name, 60)}: {number(seen[state])} visits"
            for state in states
        ]
        figure.add_bars(seen[states], list(range(len(states))), plan_colour(position), hover, orientation="h")
    across = axis("discounted visits", nticks=5, rangemode="tozero")
    figure.update_layout(barmode="group", bargap=0.3, xaxis=across, yaxis=places)
    return figure


def left_out(record: SolutionRecord, most: int, reason: str) -> str:
    """What a figure of the busiest states leaves out, in words."""
    total = len(record.state_names)
    if total <= most:
        return ""
    return f"{several(most, 'state')} of {total:,} shown: {reason}. The other {total - most:,} are left out here."


def counts_figure(record: SolutionRecord) -> Any:
    """Rows of the log for each pair, on a scale of square roots, so that few can be told from none."""
    assert record.counts is not None
    counts = record.counts
    states = busiest(record.plans[0], ROWS)
    figure = table_figure(record, counts, states, NEUTRAL, "times seen", float(counts[states].max()))
    figure.data[0]["z"] = np.sqrt(counts[states])
    figure.data[0]["zmax"] = max(float(np.sqrt(counts[states].max())), 1.0)
    return figure
