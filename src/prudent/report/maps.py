"""Figures of states and actions: the policy, where it spends its time, where the log is thin."""

from __future__ import annotations

from typing import Any

import numpy as np

from .canvas import BOTTOM, INK, NEUTRAL, axis, blank, faded, label_room, plan_colour, shades
from .data import PlanView, ReportData
from .page import plotly_graphs
from .words import figure_text, number, several, shorten

ROWS = 40  # of a heat map with one row a state
COLUMN_LABELS = 24
LARGEST_GRID = 40  # cells across; smaller arrows cannot be read
BARS = 15
LABEL = 18
# Clockwise from up, as plotly turns its arrow.
ANGLES = {"up": 0, "right": 90, "down": 180, "left": 270}
STEPS = {"up": (0.0, -1.0), "right": (1.0, 0.0), "down": (0.0, 1.0), "left": (-1.0, 0.0)}


def visits(plan: PlanView) -> np.ndarray:
    """Discounted visits of each state, with what is no number counted as nothing."""
    return np.nan_to_num(np.asarray(plan.occupancy, float).sum(axis=1), nan=0.0, posinf=0.0, neginf=0.0)


def busiest(plan: PlanView, most: int) -> np.ndarray:
    """The states a plan visits most, at most so many, in their own order."""
    chosen = np.argsort(-visits(plan), kind="stable")[:most]
    return np.sort(chosen)


def has_arrows(data: ReportData) -> bool:
    """Whether the policy can be drawn as arrows on a map."""
    known = data.directions is not None and all(direction in ANGLES for direction in data.directions)
    return known and data.grid is not None and max(data.grid) <= LARGEST_GRID


def arrow_figure(data: ReportData, position: int) -> Any:
    """The policy as arrows on the grid, longer for likelier actions, over the share of time spent in each cell."""
    assert data.grid is not None and data.directions is not None
    graphs = plotly_graphs()
    rows, columns = data.grid
    plan = data.plans[position]
    shares = visits(plan) / max(float(visits(plan).sum()), 1e-300)
    place = np.stack([np.arange(rows * columns) % columns, np.arange(rows * columns) // columns], axis=1).astype(float)
    # The figure is about 300 pixels wide at its narrowest, and its height follows the grid.
    cell = min(300.0 / columns, 60.0)
    figure = blank(round(min(max(300 * rows / columns, 90), 560)) + 16, left=4, top=8, bottom=8)
    probabilities = np.nan_to_num(np.asarray(plan.probabilities, float))
    figure.add_trace(
        graphs.Heatmap(
            z=shares.reshape(rows, columns),
            zmin=0.0,
            zmax=max(float(shares.max()), 1e-12),
            colorscale=shades(plan_colour(position)),
            showscale=False,
            xgap=1.5,
            ygap=1.5,
            hovertext=np.array(_cell_texts(data, plan, shares), dtype=object).reshape(rows, columns),
            hoverinfo="text",
        )
    )
    frame = [
        {"type": "rect", "x0": x - 0.5, "x1": x + 0.5, "y0": y - 0.5, "y1": y + 0.5, "layer": "below"}
        | {"line": {"color": faded(NEUTRAL, 0.45), "width": 1}}
        for x, y in place
    ]
    for action, direction in enumerate(data.directions):
        chosen = probabilities[:, action] >= 0.05
        across, down = STEPS[direction]
        spread = 0.27 * (1.0 - probabilities[chosen, action])
        figure.add_trace(
            graphs.Scatter(
                x=place[chosen, 0] + across * spread,
                y=place[chosen, 1] + down * spread,
                mode="markers",
                uid=f"{INK}{action}",
                marker={
                    "symbol": "arrow",
                    "angle": ANGLES[direction],
                    "size": 0.5 * cell * np.sqrt(probabilities[chosen, action]),
                    "color": NEUTRAL,
                    "line": {"width": 0},
                },
                hoverinfo="skip",
            )
        )
    if max(len(state) for state in data.states) <= 2 and columns <= 15:
        figure.add_trace(
            graphs.Scatter(
                x=place[:, 0] - 0.34,
                y=place[:, 1] - 0.34,
                mode="text",
                text=[figure_text(state) for state in data.states],
                textfont={"size": 9},
                hoverinfo="skip",
            )
        )
    hidden = {"visible": False, "fixedrange": True}
    figure.update_layout(
        shapes=frame,
        xaxis={**hidden, "range": [-0.55, columns - 0.45], "constrain": "domain"},
        yaxis={**hidden, "range": [rows - 0.45, -0.55], "scaleanchor": "x", "constrain": "domain"},
    )
    return figure


def _cell_texts(data: ReportData, plan: PlanView, shares: np.ndarray) -> list[str]:
    texts = []
    for state, name in enumerate(data.states):
        lines = [figure_text(name, 60), f"{number(100.0 * shares[state], 3)} % of discounted time"]
        row = np.asarray(plan.probabilities, float)[state]
        likeliest = np.argsort(-row, kind="stable")[:6]
        lines += [f"{figure_text(data.actions[a], 40)}: {number(row[a], 3)}" for a in likeliest if row[a] > 0]
        texts.append("<br>".join(lines))
    return texts


def table_figure(data: ReportData, values: np.ndarray, states: np.ndarray, colour: str, unit: str, top: float) -> Any:
    """A heat map with one row a state and one column an action, its numbers written in where there is room."""
    graphs = plotly_graphs()
    values = np.asarray(values, float)[states]
    labels = [shorten(data.states[state], LABEL) for state in states]
    columns = len(data.actions)
    crowded = columns > COLUMN_LABELS
    marked = np.unique(np.linspace(0, columns - 1, min(columns, COLUMN_LABELS)).round().astype(int))
    length = 8 if columns > 4 else 12
    heads = [shorten(data.actions[action], length) for action in marked]
    slanted = max(len(head) for head in heads) * 7 > 250 / len(heads)
    above = (14 + 6 * max(len(head) for head in heads)) if slanted else 30
    figure = blank(above + 12 + max(22 * len(states), 40), left=label_room(labels), top=above, bottom=8)
    figure.add_trace(
        graphs.Heatmap(
            z=values,
            zmin=0.0,
            zmax=top if top > 0 else 1.0,
            colorscale=shades(colour),
            showscale=False,
            xgap=2,
            ygap=2,
            text=[[_cell(value) for value in row] for row in values],
            texttemplate="%{text}" if columns <= 8 else None,
            textfont={"size": 11},
            hovertext=[
                [
                    f"{figure_text(data.states[state], 60)}<br>{figure_text(action, 60)}<br>{number(value, 4)} {unit}"
                    for action, value in zip(data.actions, row, strict=True)
                ]
                for state, row in zip(states, values, strict=True)
            ],
            hoverinfo="text",
        )
    )
    figure.update_layout(
        xaxis=axis(
            side="top",
            tickvals=marked.tolist(),
            ticktext=[figure_text(head) for head in heads],
            tickangle=-90 if crowded or slanted else 0,
            showgrid=False,
            range=[-0.5, columns - 0.5],
        ),
        yaxis=axis(
            tickvals=list(range(len(states))),
            ticktext=[figure_text(label) for label in labels],
            range=[len(states) - 0.5, -0.5],
            showgrid=False,
        ),
    )
    return figure


def _cell(value: float) -> str:
    if not np.isfinite(value):
        return "?"
    return f"{value:.0f}" if value >= 100 or value == round(value) else f"{value:.2f}".removeprefix("0")


def policy_figure(data: ReportData, position: int) -> Any:
    """The policy as a heat map of the states that the answer visits most."""
    plan = data.plans[position]
    return table_figure(
        data, plan.probabilities, busiest(data.plans[0], ROWS), plan_colour(position), "probability", 1.0
    )


def occupancy_figure(data: ReportData) -> Any:
    """Discounted visits of the busiest states, one bar for each plan."""
    graphs = plotly_graphs()
    every = np.stack([visits(plan) for plan in data.plans])
    states = np.argsort(-every.max(axis=0), kind="stable")[:BARS]
    labels = [shorten(data.states[state], LABEL) for state in states]
    figure = blank(BOTTOM + 14 + len(states) * (10 + 9 * len(data.plans)), left=label_room(labels))
    for position, (plan, seen) in enumerate(zip(data.plans, every, strict=True)):
        figure.add_trace(
            graphs.Bar(
                x=seen[states],
                y=list(range(len(states))),
                orientation="h",
                marker={"color": plan_colour(position), "line": {"width": 0}},
                hovertext=[
                    f"{figure_text(data.states[state], 60)}<br>"
                    f"{figure_text(plan.name, 60)}: {number(seen[state])} visits"
                    for state in states
                ],
                hoverinfo="text",
            )
        )
    figure.update_layout(
        barmode="group",
        bargap=0.3,
        xaxis=axis("discounted visits", nticks=6, rangemode="tozero"),
        yaxis=axis(
            tickvals=list(range(len(states))),
            ticktext=[figure_text(label) for label in labels],
            range=[len(states) - 0.5, -0.5],
            showgrid=False,
        ),
    )
    return figure


def left_out(data: ReportData, most: int, reason: str) -> str:
    """What a figure of the busiest states leaves out, in words."""
    total = len(data.states)
    if total <= most:
        return ""
    return f"{several(most, 'state')} of {total:,} shown: {reason}. The other {total - most:,} are left out here."


def counts_figure(data: ReportData) -> Any:
    """Rows of the log for each pair, on a scale of square roots, so that few can be told from none."""
    assert data.counts is not None
    counts = np.nan_to_num(np.asarray(data.counts, float))
    states = busiest(data.plans[0], ROWS)
    figure = table_figure(data, counts, states, NEUTRAL, "rows", float(counts[states].max()))
    figure.data[0].z = np.sqrt(counts[states])
    figure.data[0].zmax = max(float(np.sqrt(counts[states].max())), 1.0)
    return figure
