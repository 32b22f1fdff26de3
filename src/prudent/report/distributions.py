"""Figures of numbers: losses and limits over the posterior, risks, the course of the run, drivers, frontiers."""

from __future__ import annotations

from typing import Any

import numpy as np

from .drawing import Figure, scatter
from .limits import FrontierRecord, LimitRecord
from .page import BOTTOM, LARGEST, NEUTRAL, TAIL, axis, blank, drawable, faded, named_places, plan_colour
from .parts import DriverRecord
from .record import PolicyRecord, SolutionRecord
from .words import figure_text, number, percent, with_error

BINS = 60

# Characters of a label that fit under a figure on a telephone.
LABEL = 36

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
        hover = [
            f"{number(low)} to {number(high)}<br>{number(height, 3)} % of the posterior"
            for low, high, height in zip(edges[:-1], edges[1:], heights, strict=True)
        ]
        middle, width = 0.5 * (edges[1:] + edges[:-1]), 0.94 * (edges[1] - edges[0])
        figure.add_bars(middle, heights, colour, hover, base=below, width=width)
        below = below + heights
    return 1.08 * max(float(below.max()), 1e-9)


def add_mark(figure: Figure, value: float, top: float, name: str, dash: str = "solid") -> None:
    """A line up from a number of the losses."""
    figure.add_line([value, value], [0.0, top], TAIL, f"{name} {number(value)}", dash=dash)


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
        marker = {"color": colour, "size": 12, "symbol": symbol, "line": {"color": colour, "width": 2}}
        bars = {"type": "data", "array": [2.0 * error], "color": colour, "thickness": 2, "width": 5}
        hover = f"{figure_text(name)}<br>{with_error(value, error)}"
        figure.add_dots([value], [place], marker, hover, error_x=bars)
    figure.update_layout(xaxis=axis(figure_text(record.risk_name, 28), nticks=5), yaxis=places)
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
    line = {"color": colour if window == 1 else faded(colour, 0.4), "width": 2 if window == 1 else 1}
    hover = [f"iteration {number(place, 6)}<br>{number(mean)}" for place, mean in zip(places, means, strict=True)]
    how = "lines" if len(means) > 1 else "markers"
    figure.add_dots(places, means, {"color": colour, "size": 8}, hover, mode=how, line=line)
    if window > 1 and np.isfinite(means).all():
        sums = np.cumsum(np.append(0.0, means))
        first = np.maximum(np.arange(1, len(sums)) - window, 0)
        smooth = (sums[1:] - sums[first]) / (np.arange(1, len(sums)) - first)
        figure.add_line(places, smooth, colour)
    shown = means[np.isfinite(means)]
    powers = logarithmic and shown.size and shown.max() > 10.0 * shown.min()
    decades = np.log10(shown.max() / shown.min()) if powers else 1.0
    scale = {"type": "log", "dtick": max(1, round(decades / 4)), "tickformat": ".0e"} if powers else {}
    figure.update_layout(
        xaxis=axis("iteration", nticks=5, rangemode="tozero", showgrid=False),
        yaxis=axis(figure_text(title, 30), nticks=5, **scale),
    )
    return figure


def driver_figure(drivers: tuple[DriverRecord, ...]) -> Any:
    """How far the risk's weights move each unknown, in posterior standard deviations."""
    places, room = named_places([driver.name for driver in drivers])
    shifts = [driver.shift if driver.shift is not None and drawable(driver.shift) else 0.0 for driver in drivers]
    figure = blank(BOTTOM + 14 + 28 * len(drivers), left=room)
    hover = [
        f"{figure_text(driver.name)}<br>posterior mean {number(driver.plain)}, under ξ* {number(driver.weighted)}<br>"
        f"{number(driver.shift, 3)} s.d., by chance {number(driver.standard_error, 2)}"
        for driver in drivers
    ]
    figure.add_bars(shifts, list(range(len(drivers))), TAIL, hover, orientation="h", width=0.6)
    reach = 1.08 * max([abs(shift) for shift in shifts] + [0.1])
    ends = [-reach if min(shifts) < 0 else 0.0, reach if max(shifts) > 0 or min(shifts) >= 0 else 0.0]
    shown = axis("shift (posterior s.d.)", range=ends, nticks=4, zeroline=True, zerolinecolor=NEUTRAL)
    figure.update_layout(xaxis=shown, yaxis=places)
    return figure


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
        ends = [(_apart(each.interval[1], each.risk), _apart(each.risk, each.interval[0])) for each in good]
        above, below = zip(*ends, strict=True)
        bars = {"type": "data", "symmetric": False, "array": above, "arrayminus": below}
        hover = [
            f"at most {number(level.at_most)}<br>risk {number(level.risk)}<br>one more saves "
            f"{number(level.prices[0], 3)}"
            for level in good
        ]
        line = {"mode": "lines+markers", "line": {"color": plan_colour(0), "width": 2}, "hoverinfo": "text"}
        bars |= {"color": NEUTRAL, "thickness": 1}
        figure.add_trace(scatter(x=x, y=y, **line, error_y=bars, hovertext=hover))
        reach = 0.3 * float(np.median(np.diff(x) if len(x) > 1 else np.ones(1)))
        for level in good:
            saves, costs = level.prices
            if level.risk is not None and (saves or costs):
                # Prices are the slopes of the curve to both sides.
                both = ((-reach, costs), (0.0, 0.0), (reach, saves))
                sides = [(side, price) for side, price in both if price is not None]
                across = [level.at_most + side for side, _ in sides]
                down = [level.risk - side * price for side, price in sides]
                figure.add_line(across, down, NEUTRAL, width=1, dash="dot")
    if bad:
        hover = [f"at most {number(each.at_most)}<br>{each.status.lower().replace('_', ' ')}" for each in bad]
        marker = {"color": TAIL, "symbol": "x", "size": 9}
        figure.add_dots([level.at_most for level in bad], [level.risk for level in bad], marker, hover)
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
    # Names would lie on one another: the table has them by number.
    texts = {"mode": "markers+text", "text": [str(place) for place, _ in points], "textposition": "top right"}
    errors = [(2.0 * (each.mean_standard_error or 0.0), 2.0 * (each.tail_standard_error or 0.0)) for _, each in points]
    wide, high = ([each[k] for each in errors] for k in (0, 1))
    figure.add_dots(
        [each.mean for _, each in points],
        [each.tail for _, each in points],
        {"color": plan_colour(0), "size": 9},
        [f"{k}: {figure_text(each.name, 40)}<br>{number(each.mean)}, {number(each.tail)}" for k, each in points],
        **texts,
        error_x=bars | {"array": wide},
        error_y=bars | {"array": high},
    )
    figure.update_layout(xaxis=axis("mean"), yaxis=axis(figure_text(record.tail_name, 40)), showlegend=False)
    return figure


def _apart(high: float | None, low: float | None) -> float:
    """The length of a bar; none where an end is not known."""
    return 0.0 if high is None or low is None else high - low
