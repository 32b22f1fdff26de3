"""Figures of numbers: losses over the posterior, the plans' risks, the course of the run, what drives the tail."""

from __future__ import annotations

from typing import Any

import numpy as np

from .drawing import Figure, bar, scatter
from .page import BOTTOM, LARGEST, NEUTRAL, TAIL, axis, blank, drawable, faded, named_places, plan_colour
from .parts import DriverRecord
from .record import PolicyRecord, SolutionRecord
from .words import figure_text, number, percent, with_error

BINS = 60

# Losses of a plan that reach farther than so many times the range of the first one are not drawn to scale with it.
FAR = 3.0
POINTS = 1500  # of a curve; more cannot be told apart on a screen


def loss_range(record: SolutionRecord) -> tuple[float, float] | None:
    """One range for all plans, from small losses to the far tail, marks included; None if none can be drawn.

    A plan whose losses lie far from those of the others would squash them: then it is the others' range, and the
    caption says how much lies outside. Nothing else of a posterior that is known whole is left out.
    """
    most, shares = 1.0 if record.exact else 0.995, record.draw_probabilities
    ranges = [found for plan in record.plans if (found := _range_of(plan, shares, most)) is not None]
    if not ranges:
        return None
    first, last = ranges[0]
    reach = FAR * max(last - first, 1e-9 * max(abs(first), abs(last)))
    near = [(low, high) for low, high in ranges if low >= first - reach and high <= last + reach]
    low, high = min(low for low, _ in near), max(high for _, high in near)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        margin = max(0.05 * abs(low), 0.5)
        return low - margin, high + margin
    return low, high + 0.02 * (high - low)


def _range_of(plan: PolicyRecord, shares: np.ndarray, most: float) -> tuple[float, float] | None:
    """The losses of one plan and its marks, without its farthest tail."""
    drawn = drawable(plan.losses)
    if not shares[drawn].sum() > 0:
        return None
    marks = [plan.value_at_risk, plan.tail_mean, plan.mean]
    marked = [mark for mark in marks if mark is not None and drawable(mark)]
    tail = np.quantile(plan.losses[drawn], most, method="inverted_cdf", weights=shares[drawn])
    return min([float(plan.losses[drawn].min()), *marked]), max([float(tail), *marked])


def loss_figure(record: SolutionRecord, position: int, limits: tuple[float, float]) -> Any:
    """The histogram of one plan's losses, its tail in full colour, with VaR and CVaR marked."""
    plan, shares, last = record.plans[position], record.draw_probabilities, position == len(record.plans) - 1
    losses = plan.losses
    edges = np.linspace(*limits, BINS + 1)
    drawn = drawable(losses)
    edge = plan.value_at_risk if plan.value_at_risk is not None and drawable(plan.value_at_risk) else np.inf
    colour = plan_colour(position)
    figure = blank(168 if last else 140, bottom=BOTTOM if last else 22)
    parts = [(drawn & (losses <= edge), faded(colour, 0.5)), (drawn & (losses > edge), faded(colour, 1.0))]
    top = add_bars(figure, losses, shares, edges, parts)
    for name, value, dash in (("VaR", plan.value_at_risk, "dot"), ("CVaR", plan.tail_mean, "solid")):
        if value is not None and limits[0] <= value <= limits[1]:
            add_mark(figure, value, top, name, dash)
    figure.update_layout(
        xaxis=axis(figure_text(record.loss_name, 40) if last else "", range=list(limits), showgrid=False),
        yaxis=axis("% of posterior", range=[0.0, top], nticks=4, rangemode="tozero"),
        bargap=0,
        barmode="overlay",
    )
    return figure


def add_bars(
    figure: Figure, losses: np.ndarray, shares: np.ndarray, edges: np.ndarray, parts: list[tuple[np.ndarray, str]]
) -> float:
    """Histograms of parts of the losses, each with its colour, one upon the other; how high the figure has to be."""
    below = np.zeros(len(edges) - 1)
    for part, colour in parts:
        heights = 100.0 * np.histogram(losses[part], edges, weights=shares[part])[0]
        figure.add_trace(
            bar(
                x=0.5 * (edges[1:] + edges[:-1]),
                y=heights,
                base=below,
                width=0.94 * (edges[1] - edges[0]),
                marker={"color": colour, "line": {"width": 0}},
                hovertext=[
                    f"{number(low)} to {number(high)}<br>{number(height, 3)} % of the posterior"
                    for low, high, height in zip(edges[:-1], edges[1:], heights, strict=True)
                ],
                hoverinfo="text",
            )
        )
        below = below + heights
    return 1.08 * max(float(below.max()), 1e-9)


def add_mark(figure: Figure, value: float, top: float, name: str, dash: str = "solid") -> None:
    """A line up from a number of the losses."""
    figure.add_trace(
        scatter(
            x=[value, value],
            y=[0.0, top],
            mode="lines",
            line={"color": TAIL, "width": 2, "dash": dash},
            hovertext=f"{name} {number(value)}",
            hoverinfo="text",
        )
    )


def losses_left_out(plan: PolicyRecord, shares: np.ndarray, limits: tuple[float, float] | None) -> str:
    """What a histogram does not show, in words."""
    if limits is None:
        return ""
    sides = (("left", plan.losses < limits[0]), ("right", plan.losses > limits[1]))
    beyond = [(side, min(1.0, float(shares[outside].sum()))) for side, outside in sides]
    return " · ".join(f"{percent(share)} of the posterior lies further {side}" for side, share in beyond if share > 0)


def risk_figure(record: SolutionRecord) -> Any | None:
    """Every plan's risk with two standard errors to each side; None if no risk can be drawn."""
    rows: list[tuple[str, float | None, float | None, str, str]] = [
        (plan.name, plan.risk, plan.risk_standard_error, plan_colour(position), "circle")
        for position, plan in enumerate(record.plans)
    ]
    known, bound = record.known_theta_risk, record.lower_bound
    rows.append(("if θ were known", known, record.known_theta_risk_standard_error, NEUTRAL, "diamond"))
    # A bound that is the risk if theta were known is drawn once, and one on fewer draws does not compare.
    if bound != known and not record.on_few:
        rows.append(("lower bound", bound, 0.0, NEUTRAL, "line-ns"))
    rows = [row for row in rows if drawable(row[1])]
    if not rows:
        return None
    places, room = named_places([name for name, *_ in rows])
    figure = blank(BOTTOM + 14 + 34 * len(rows), left=room)
    for place, (name, value, error, colour, symbol) in enumerate(rows):
        error = error if error is not None and drawable(error) else 0.0
        figure.add_trace(
            scatter(
                x=[value],
                y=[place],
                mode="markers",
                marker={"color": colour, "size": 12, "symbol": symbol, "line": {"color": colour, "width": 2}},
                error_x={"type": "data", "array": [2.0 * error], "color": colour, "thickness": 2, "width": 5},
                hovertext=f"{figure_text(name)}<br>{with_error(value, error)}",
                hoverinfo="text",
            )
        )
    figure.update_layout(
        xaxis=axis(figure_text(record.risk_name, 28), nticks=5),
        yaxis=places,
    )
    return figure


def thinned(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """A curve of at most `POINTS` points: places, means over equal blocks, and the length of a block."""
    block = max(1, -(-values.size // POINTS))
    starts = np.arange(0, values.size, block)
    lengths = np.diff(np.append(starts, values.size))
    values = np.where(drawable(values), values, np.nan)
    return starts + 1.0 + (lengths - 1) / 2.0, np.add.reduceat(values, starts) / lengths, block


def history_figure(values: np.ndarray, title: str, colour: str, *, logarithmic: bool = False) -> Any:
    """One number an iteration, as it was and, where it is noisy and long, smoothed by a running mean."""
    places, means, _ = thinned(values)
    means = np.where(drawable(means) & ((means > 1.0 / LARGEST) | (not logarithmic)), means, np.nan)
    window = max(1, len(means) // 30)
    figure = blank(240, left=64)
    figure.add_trace(
        scatter(
            x=places,
            y=means,
            mode="lines" if len(means) > 1 else "markers",
            line={"color": colour if window == 1 else faded(colour, 0.4), "width": 2 if window == 1 else 1},
            marker={"color": colour, "size": 8},
            hovertext=[
                f"iteration {number(place, 6)}<br>{number(mean)}" for place, mean in zip(places, means, strict=True)
            ],
            hoverinfo="text",
        )
    )
    if window > 1 and np.isfinite(means).all():
        sums = np.cumsum(np.append(0.0, means))
        first = np.maximum(np.arange(1, len(sums)) - window, 0)
        smooth = (sums[1:] - sums[first]) / (np.arange(1, len(sums)) - first)
        figure.add_trace(
            scatter(
                x=places,
                y=smooth,
                mode="lines",
                line={"color": colour, "width": 2},
                hoverinfo="skip",
            )
        )
    shown = means[np.isfinite(means)]
    powers = logarithmic and shown.size and shown.max() > 10.0 * shown.min()
    decades = np.log10(shown.max() / shown.min()) if powers else 1.0
    figure.update_layout(
        xaxis=axis("iteration", nticks=5, rangemode="tozero", showgrid=False),
        yaxis=axis(
            figure_text(title, 30),
            nticks=5,
            **({"type": "log", "dtick": max(1, round(decades / 4)), "tickformat": ".0e"} if powers else {}),
        ),
    )
    return figure


def driver_figure(drivers: tuple[DriverRecord, ...]) -> Any:
    """How far the risk's weights move each unknown, in posterior standard deviations."""
    places, room = named_places([driver.name for driver in drivers])
    shifts = [driver.shift if driver.shift is not None and drawable(driver.shift) else 0.0 for driver in drivers]
    figure = blank(BOTTOM + 14 + 28 * len(drivers), left=room)
    figure.add_trace(
        bar(
            x=shifts,
            y=list(range(len(drivers))),
            orientation="h",
            width=0.6,
            marker={"color": TAIL, "line": {"width": 0}},
            hovertext=[
                f"{figure_text(driver.name)}<br>posterior mean {number(driver.plain)}, "
                f"under ξ* {number(driver.weighted)}<br>{number(driver.shift, 3)} s.d., "
                f"by chance {number(driver.standard_error, 2)}"
                for driver in drivers
            ],
            hoverinfo="text",
        )
    )
    reach = 1.08 * max([abs(shift) for shift in shifts] + [0.1])
    figure.update_layout(
        xaxis=axis(
            "shift (posterior s.d.)",
            range=[-reach if min(shifts) < 0 else 0.0, reach if max(shifts) > 0 or min(shifts) >= 0 else 0.0],
            nticks=4,
            zeroline=True,
            zerolinecolor=NEUTRAL,
        ),
        yaxis=places,
    )
    return figure
