"""Figures of numbers: losses over the posterior, the plans' risks, the course of the run, what drives the tail."""

from __future__ import annotations

from typing import Any

import numpy as np

from .canvas import BOTTOM, INK, NEUTRAL, TAIL, axis, blank, faded, label_room, plan_colour
from .data import Driver, PlanView, ReportData
from .page import plotly_graphs
from .words import figure_text, number, percent, shorten, with_error

BINS = 48
POINTS = 1500  # of a curve; more cannot be told apart on a screen
LABEL = 26


def loss_range(plans: tuple[PlanView, ...]) -> tuple[float, float] | None:
    """One range for all plans: from the smallest loss to the far tail, every mark included; None if none is finite."""
    finite = [losses[np.isfinite(losses)] for losses in (np.asarray(plan.losses, float) for plan in plans)]
    finite = [losses for losses in finite if losses.size]
    if not finite:
        return None
    marks = [mark for plan in plans for mark in (plan.value_at_risk, plan.tail_mean, plan.mean)]
    marked = [float(mark) for mark in marks if mark is not None and np.isfinite(mark)]
    low = min([float(losses.min()) for losses in finite] + marked)
    high = max([float(np.quantile(losses, 0.995)) for losses in finite] + marked)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        margin = max(0.05 * abs(low), 0.5)
        return low - margin, high + margin
    return low, high + 0.02 * (high - low)


def loss_figure(plan: PlanView, position: int, limits: tuple[float, float], label: str, last: bool) -> Any:
    """The histogram of one plan's losses, its tail in full colour, with VaR and CVaR marked."""
    graphs = plotly_graphs()
    losses = np.asarray(plan.losses, float)
    edges = np.linspace(*limits, BINS + 1)
    shares = 100.0 * np.histogram(losses[np.isfinite(losses)], edges)[0] / max(losses.size, 1)
    centres = 0.5 * (edges[1:] + edges[:-1])
    tail = np.isfinite(plan.value_at_risk or np.nan) & (edges[1:] > (plan.value_at_risk or 0.0))
    colour = plan_colour(position)
    figure = blank(168 if last else 140, bottom=BOTTOM if last else 22)
    figure.add_trace(
        graphs.Bar(
            x=centres,
            y=shares,
            width=0.94 * (edges[1] - edges[0]),
            marker={"color": [colour if beyond else faded(colour, 0.5) for beyond in tail], "line": {"width": 0}},
            hovertext=[
                f"{number(low)} to {number(high)}<br>{number(share, 3)} % of draws"
                for low, high, share in zip(edges[:-1], edges[1:], shares, strict=True)
            ],
            hoverinfo="text",
        )
    )
    top = 1.08 * max(float(shares.max()), 1e-9)
    for name, value, dash in (("VaR", plan.value_at_risk, "dot"), ("CVaR", plan.tail_mean, "solid")):
        if value is not None and np.isfinite(value):
            figure.add_trace(
                graphs.Scatter(
                    x=[value, value],
                    y=[0.0, top],
                    mode="lines",
                    line={"color": TAIL, "width": 2, "dash": dash},
                    hovertext=f"{name} {number(value)}",
                    hoverinfo="text",
                )
            )
    figure.update_layout(
        xaxis=axis(figure_text(label, 60) if last else "", range=list(limits), showgrid=False),
        yaxis=axis("% of draws", range=[0.0, top], nticks=4, rangemode="tozero"),
        bargap=0,
    )
    return figure


def losses_left_out(plan: PlanView, limits: tuple[float, float] | None) -> str:
    """What a histogram does not show, in words."""
    losses = np.asarray(plan.losses, float)
    strange = 1.0 - float(np.isfinite(losses).mean()) if losses.size else 0.0
    beyond = float((losses[np.isfinite(losses)] > limits[1]).sum()) / losses.size if limits and losses.size else 0.0
    parts = [f"{percent(beyond)} of draws lie further right"] if beyond else []
    parts += [f"{percent(strange)} of draws have an infinite or undefined loss"] if strange else []
    return "; ".join(parts)


def risk_figure(data: ReportData) -> Any | None:
    """Every plan's risk with two standard errors to each side; None if no risk is finite."""
    graphs = plotly_graphs()
    rows: list[tuple[str, float, float, str, str]] = []
    for position, plan in enumerate(data.plans):
        rows.append((plan.name, plan.risk, plan.risk_standard_error, plan_colour(position), "circle"))
    if data.known_theta_risk is not None:
        rows.append(
            ("if θ were known", data.known_theta_risk, data.known_theta_standard_error or 0.0, NEUTRAL, "diamond")
        )
    if data.lower_bound is not None:
        rows.append(("lower bound", data.lower_bound, 0.0, NEUTRAL, "line-ns"))
    rows = [row for row in rows if np.isfinite(row[1])]
    if not rows:
        return None
    labels = [shorten(name, LABEL) for name, *_ in rows]
    figure = blank(BOTTOM + 14 + 34 * len(rows), left=label_room(labels))
    for place, (name, value, error, colour, symbol) in enumerate(rows):
        error = error if np.isfinite(error) else 0.0
        figure.add_trace(
            graphs.Scatter(
                x=[value],
                y=[place],
                mode="markers",
                uid=f"{INK}{place}" if colour == NEUTRAL else f"plan{place}",
                marker={"color": colour, "size": 12, "symbol": symbol, "line": {"color": colour, "width": 2}},
                error_x={"type": "data", "array": [2.0 * error], "color": colour, "thickness": 2, "width": 5},
                hovertext=f"{figure_text(name)}<br>{with_error(value, error)}",
                hoverinfo="text",
            )
        )
    figure.update_layout(
        xaxis=axis(figure_text(f"{data.risk_name} of {data.loss_name}", 60), nticks=6),
        yaxis=axis(
            tickvals=list(range(len(rows))),
            ticktext=[figure_text(label) for label in labels],
            range=[len(rows) - 0.5, -0.5],
            showgrid=False,
        ),
    )
    return figure


def thinned(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """A curve of at most `POINTS` points: places, means over equal blocks, and the length of a block."""
    values = np.asarray(values, float)
    block = max(1, -(-values.size // POINTS))
    starts = np.arange(0, values.size, block)
    lengths = np.diff(np.append(starts, values.size))
    return starts + 1.0 + (lengths - 1) / 2.0, np.add.reduceat(values, starts) / lengths, block


def history_figure(values: np.ndarray, title: str, colour: str, *, logarithmic: bool = False, uid: str = "plan") -> Any:
    """One number an iteration, as it was and, where it is noisy and long, smoothed by a running mean."""
    graphs = plotly_graphs()
    places, means, _ = thinned(values)
    means = np.where(np.isfinite(means) & ((means > 0) | (not logarithmic)), means, np.nan)
    window = max(1, len(means) // 30)
    figure = blank(240)
    figure.add_trace(
        graphs.Scatter(
            x=places,
            y=means,
            mode="lines" if len(means) > 1 else "markers",
            uid=f"{uid}-raw",
            line={"color": colour if window == 1 else faded(colour, 0.4), "width": 2 if window == 1 else 1},
            marker={"color": colour, "size": 8},
            hovertext=[
                f"iteration {number(place, 6)}<br>{number(mean)}" for place, mean in zip(places, means, strict=True)
            ],
            hoverinfo="text",
        )
    )
    if window > 1 and np.isfinite(means).all():
        smooth = np.convolve(means, np.ones(window) / window, mode="valid")
        figure.add_trace(
            graphs.Scatter(
                x=places[window - 1 :],
                y=smooth,
                mode="lines",
                uid=f"{uid}-smooth",
                line={"color": colour, "width": 2},
                hoverinfo="skip",
            )
        )
    shown = means[np.isfinite(means)]
    # Decades have room for few labels; within less than one, plain numbers read better.
    powers = logarithmic and shown.size and shown.max() > 10.0 * shown.min()
    figure.update_layout(
        xaxis=axis("iteration", nticks=6, rangemode="tozero", showgrid=False),
        yaxis=axis(
            title,
            nticks=6,
            **({"type": "log", "dtick": 1, "exponentformat": "power"} if powers else {}),
        ),
    )
    return figure


def driver_figure(drivers: tuple[Driver, ...]) -> Any:
    """How far the tail's weights move each unknown, in posterior standard deviations."""
    graphs = plotly_graphs()
    labels = [shorten(driver.name, LABEL) for driver in drivers]
    shifts = [driver.shift if np.isfinite(driver.shift) else 0.0 for driver in drivers]
    figure = blank(BOTTOM + 14 + 24 * len(drivers), left=label_room(labels))
    figure.add_trace(
        graphs.Bar(
            x=shifts,
            y=list(range(len(drivers))),
            orientation="h",
            width=0.6,
            marker={"color": TAIL, "line": {"width": 0}},
            hovertext=[
                f"{figure_text(driver.name)}<br>posterior mean {number(driver.plain)}, "
                f"in the tail {number(driver.weighted)}<br>{number(driver.shift, 3)} s.d."
                for driver in drivers
            ],
            hoverinfo="text",
        )
    )
    reach = 1.08 * max([abs(shift) for shift in shifts] + [0.1])
    figure.update_layout(
        xaxis=axis(
            "shift in the tail, in posterior s.d.",
            range=[-reach if min(shifts) < 0 else 0.0, reach if max(shifts) > 0 or min(shifts) >= 0 else 0.0],
            nticks=6,
            zeroline=True,
            zerolinecolor=NEUTRAL,
        ),
        yaxis=axis(
            tickvals=list(range(len(drivers))),
            ticktext=[figure_text(label) for label in labels],
            range=[len(drivers) - 0.5, -0.5],
            showgrid=False,
        ),
    )
    return figure
