"""Figures of limits: the loss that is limited over the posterior, and what each level of a limit costs."""

from __future__ import annotations

from typing import Any

import numpy as np

from .advice import FrontierRecord
from .distributions import add_bars, add_mark
from .drawing import scatter
from .limits import LimitRecord
from .page import BOTTOM, NEUTRAL, TAIL, axis, blank, faded, plan_colour
from .words import figure_text, number

BINS = 60

# Characters of a label that fit under a figure on a telephone.
LABEL = 36


def limit_figure(limit: LimitRecord, shares: np.ndarray) -> Any:
    """The histogram of a limit's loss, what is beyond the limit in full colour, with the limit marked."""
    losses = limit.losses
    low, high = min(float(losses.min()), limit.at_most), max(float(losses.max()), limit.at_most)
    margin = 0.02 * (high - low) or 0.05 * abs(high) or 0.5
    width = (high - low + 2.0 * margin) / BINS
    # The limit is an edge, so that no bar is on both sides of it.
    first = limit.at_most - width * np.ceil((limit.at_most - low + margin) / width)
    edges = first + width * np.arange(BINS + 2)
    figure, beyond = blank(190, bottom=BOTTOM), losses > limit.at_most
    parts = [(~beyond, faded(plan_colour(0), 0.4)), (beyond, faded(TAIL, 1.0))]
    add_mark(figure, limit.at_most, add_bars(figure, losses, shares, edges, parts), "limit")
    figure.update_layout(xaxis=axis(figure_text(limit.unit or limit.name, LABEL)), yaxis=axis("% of the posterior"))
    figure.update_layout(barmode="overlay", showlegend=False)
    return figure


def frontier_curve(record: FrontierRecord, risk_name: str) -> Any:
    """The curve with its intervals, the part that is proved to be out of reach shaded, the price as its slope."""
    return _of_limit(record, risk_name) if record.limit else _of_caution(record)


def _of_limit(record: FrontierRecord, risk_name: str) -> Any:
    figure = blank(320, bottom=BOTTOM)
    good = [level for level in record.levels if level.kept and level.risk is not None]
    bad = [level for level in record.levels if not level.kept and level.risk is not None]
    x = [level.at_most for level in good]
    y = [level.risk for level in good]
    if good:
        figure.add_trace(
            scatter(
                x=x,
                y=y,
                mode="lines+markers",
                line={"color": plan_colour(0), "width": 2},
                error_y={
                    "type": "data",
                    "symmetric": False,
                    "array": [_apart(level.interval[1], level.risk) for level in good],
                    "arrayminus": [_apart(level.risk, level.interval[0]) for level in good],
                    "color": NEUTRAL,
                    "thickness": 1,
                },
                hovertext=[
                    f"at most {number(level.at_most)}<br>risk {number(level.risk)}<br>one more saves "
                    f"{number(level.prices[0], 3)}"
                    for level in good
                ],
                hoverinfo="text",
            )
        )
        widths = np.diff(x) if len(x) > 1 else np.ones(1)
        reach = 0.3 * float(np.median(widths))
        for level in good:
            saves, costs = level.prices
            if level.risk is not None and (saves or costs):
                # Prices are the slopes of the curve to both sides.
                sides = [
                    (sign * reach, price)
                    for sign, price in ((-1.0, costs), (0.0, 0.0), (1.0, saves))
                    if price is not None
                ]
                figure.add_trace(
                    scatter(
                        x=[level.at_most + side for side, _ in sides],
                        y=[level.risk - side * price for side, price in sides],
                        mode="lines",
                        line={"color": NEUTRAL, "width": 1, "dash": "dot"},
                        hoverinfo="skip",
                    )
                )
    if bad:
        figure.add_trace(
            scatter(
                x=[level.at_most for level in bad],
                y=[level.risk for level in bad],
                mode="markers",
                marker={"color": TAIL, "symbol": "x", "size": 9},
                hovertext=[f"at most {number(v.at_most)}<br>{v.status.lower().replace('_', ' ')}" for v in bad],
                hoverinfo="text",
            )
        )
    levels = [level.at_most for level in record.levels]
    left = min(levels) - 0.1 * (max(levels) - min(levels) or 1.0)
    if record.least is not None and record.least > left:
        figure.add_column(left, record.least, fillcolor=faded(TAIL, 0.15), line={"width": 0}, layer="below")
    words = f"at most, {figure_text(record.unit or record.limit, LABEL)}"
    figure.update_layout(xaxis=axis(words), yaxis=axis(figure_text(risk_name, 40)), showlegend=False)
    figure.update_layout(xaxis={"range": [left, max(levels) + 0.05 * (max(levels) - left)]})
    return figure


def _of_caution(record: FrontierRecord) -> Any:
    figure = blank(320, bottom=BOTTOM)
    points = [(k, each) for k, each in enumerate(record.caution, 1) if each.mean is not None and each.tail is not None]
    bars = {"type": "data", "color": NEUTRAL, "thickness": 1}
    figure.add_trace(
        scatter(
            x=[each.mean for _, each in points],
            y=[each.tail for _, each in points],
            mode="markers+text",
            marker={"color": plan_colour(0), "size": 9},
            # Names would lie on one another: the table has them by number.
            text=[str(place) for place, _ in points],
            textposition="top right",
            error_x=bars | {"array": [2.0 * (each.mean_standard_error or 0.0) for _, each in points]},
            error_y=bars | {"array": [2.0 * (each.tail_standard_error or 0.0) for _, each in points]},
            hoverinfo="text",
            hovertext=[
                f"{place}: {figure_text(each.name, 40)}<br>{number(each.mean)}, {number(each.tail)}"
                for place, each in points
            ],
        )
    )
    figure.update_layout(xaxis=axis("mean"), yaxis=axis(figure_text(record.tail_name, 40)), showlegend=False)
    return figure


def _apart(high: float | None, low: float | None) -> float:
    """The length of a bar; none where an end is not known."""
    return 0.0 if high is None or low is None else high - low
