"""One run as one page: the figures and the words of a report, put into its template."""

from __future__ import annotations

import math
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..files import write_whole
from .canvas import NEUTRAL, TAIL, amounts, drawable, faded, plan_colour
from .data import PlanView, ReportData
from .distributions import (
    POINTS,
    driver_figure,
    history_figure,
    loss_figure,
    loss_range,
    losses_left_out,
    risk_figure,
    thinned,
)
from .maps import (
    BARS,
    CELL,
    ROWS,
    WIDE,
    arrow_figure,
    counts_figure,
    has_arrows,
    left_out,
    occupancy_figure,
    policy_figure,
    visits,
)
from .page import figure_html, render
from .words import compared, is_clear, number, percent, seconds, several, with_error

DRIVERS = 15
THIN = 5  # sightings below which a pair is called thin
USED = 1e-4  # share of discounted time from which a pair is relied on
THIN_LISTED = 12


def write_report(data: ReportData, path: str | Path) -> Path:
    """Write a report as one HTML page that needs nothing beside itself.

    Args:
        data: what it shows.
        path: the file to write; it is replaced whole or not at all.

    >>> import tempfile, pathlib, numpy as np
    >>> from prudent.report import PlanView, ReportData, write_report
    >>> plan = PlanView("this policy", 2.0, 0.1, 1.5, 0.1, np.array([1.0, 2.0]), 2.0, 2.0, np.eye(2), np.eye(2))
    >>> data = ReportData(
    ...     title="Two states", asked=(("discount", "0.9"),), status="CONVERGED", status_message="done", ok=True,
    ...     risk_name="CVaR 0.5", loss_name="expected discounted cost", tail_level=0.5, states=("up", "down"),
    ...     actions=("stay", "go"), grid=None, directions=None, plans=(plan,), known_theta_risk=None,
    ...     known_theta_standard_error=None, lower_bound=None, history_objective=np.ones(3),
    ...     history_gradient_norm=np.ones(3), drivers=(), counts=None, seed=0, seconds=1.0, iterations=3, versions=(),
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_report(data, pathlib.Path(folder) / "report.html").read_text(encoding="utf-8")
    >>> "Two states" in page
    True
    """
    return write_whole(path, report_html(data))


def report_html(data: ReportData) -> str:
    """The page that `write_report` writes, as text."""
    return render(
        "report.html",
        data=data,
        plans=_plans(data),
        answer=_answer(data),
        figures=_figures(data),
        notes=_notes(data),
        drivers=data.drivers[:DRIVERS],
        thin=None if data.counts is None else _thin(data, amounts(data.counts)),
        marked=any(plan.value_at_risk is not None or plan.tail_mean is not None for plan in data.plans),
        arrows=has_arrows(data),
        long=len(thinned(data.history_objective)[1]) >= 60,
        wide=(data.grid[1] if data.grid and has_arrows(data) else len(data.actions)) > WIDE,
        tail_colour=TAIL,
        neutral_colour=NEUTRAL,
        clear=is_clear,
        compared=compared,
        exact=exact,
        number=number,
        with_error=with_error,
        percent=percent,
        several=several,
        seconds=seconds,
        faded=faded,
    )


def exact(value: Any) -> str:
    """A value as a machine reads it back, bit for bit; nothing known is null, as in JSON."""
    if value is None:
        return "null"
    return str(value) if isinstance(value, str | Integral) else repr(float(value))


class _PlanWords(NamedTuple):
    name: str
    colour: str
    key: str
    record: Any
    against: str
    strange: str
    kind: str


def _plans(data: ReportData) -> list[_PlanWords]:
    limits = _limits(data)
    words = []
    for position, plan in enumerate(data.plans):
        words.append(
            _PlanWords(
                name=plan.name,
                colour=plan_colour(position),
                # The answer's own numbers go by the names they have in solution.json.
                key=f"plans.{position}." if position else "",
                record=plan,
                against=compared(plan.difference) if position else "",
                strange=losses_left_out(plan, limits, data.draw_probabilities),
                kind=plan.kind if position else "policy",
            )
        )
    return words


def _limits(data: ReportData) -> tuple[float, float] | None:
    """The range of the histograms; nothing of a posterior that is known whole is left out."""
    return loss_range(data.plans, data.draw_probabilities, 1.0 if data.exact else 0.995)


def _answer(data: ReportData) -> dict[str, Any]:
    """What the plans' comparison comes to, and how far the lower bound is."""
    draws = len(data.plans[0].losses)
    rivals = [plan for plan in data.plans[1:] if plan.kind == "rival" and plan.difference and math.isfinite(plan.risk)]
    best = min(rivals, key=lambda plan: plan.risk, default=None)
    few = data.bound_draws if data.bound_draws is not None and data.bound_draws < draws else None
    bound = data.lower_bound is not None and math.isfinite(data.lower_bound)
    return {
        "best": best,
        "rivals": len(rivals),
        "verdict": "" if best is None else _verdict(best),
        "gap": data.gap if bound and data.gap is not None and math.isfinite(data.gap) else None,
        "limit": data.gap_limit if bound and data.gap_limit is not None and math.isfinite(data.gap_limit) else None,
        "few": few,
        "draws": draws,
        "alike": data.weights is not None and float(np.ptp(data.weights)) <= 1e-9,
    }


def _verdict(best: PlanView) -> str:
    """What more is to be said of the best rival: that it is better, or that it cannot be told apart."""
    assert best.difference is not None
    if is_clear(best.difference):
        return "better" if best.difference.value < 0 else ""
    return "alike" if math.isfinite(best.difference.low) else ""


def _figures(data: ReportData) -> dict[str, Any]:
    """Every figure of the page as HTML, None or empty where there is nothing to draw."""
    limits = _limits(data)
    last = len(data.plans) - 1
    risks = risk_figure(data)
    drawn = {
        "risks": figure_html(risks, f"{data.risk_name} of each plan") if risks is not None else None,
        "losses": [
            figure_html(
                loss_figure(plan, position, limits, data.loss_name, position == last, data.draw_probabilities),
                f"losses of {plan.name}",
            )
            for position, plan in enumerate(data.plans)
            if limits is not None
        ],
        "policies": [_policy(data, position) for position in range(len(data.plans))],
        "occupancy": figure_html(occupancy_figure(data), "discounted visits of each state"),
        "objective": None,
        "gradient": None,
        "drivers": None,
        "counts": figure_html(counts_figure(data), "how often each pair was seen") if data.counts is not None else None,
    }
    if drawable(data.history_objective).any():
        drawn["objective"] = figure_html(
            history_figure(data.history_objective, data.risk_name, plan_colour(0)), "sampled risk in each iteration"
        )
    if drawable(data.history_gradient_norm).any():
        drawn["gradient"] = figure_html(
            history_figure(data.history_gradient_norm, "gradient norm", NEUTRAL, logarithmic=True),
            "gradient norm in each iteration",
        )
    if data.drivers:
        drawn["drivers"] = figure_html(
            driver_figure(data.drivers[:DRIVERS]), "shift of each unknown under the risk's weights"
        )
    return drawn


def _policy(data: ReportData, position: int) -> str:
    label = f"policy of {data.plans[position].name}"
    if data.grid is None or not has_arrows(data):
        return figure_html(policy_figure(data, position), label)
    rows, columns = data.grid
    return figure_html(arrow_figure(data, position), label, aspect=columns / rows, widest=CELL * columns)


def _notes(data: ReportData) -> dict[str, str]:
    """What figures and tables leave out."""
    block = thinned(data.history_objective)[2] if len(data.history_objective) > POINTS else 1
    unlisted = len(data.drivers) - DRIVERS
    plan = data.plans[0].name
    return {
        "policy": "" if has_arrows(data) else left_out(data, ROWS, f"those {plan} visits most"),
        "occupancy": left_out(data, BARS, "those any plan visits most"),
        "counts": left_out(data, ROWS, f"those {plan} visits most"),
        "history": f"Each point is the mean of {block} iterations. " if block > 1 else "",
        "drivers": f"Left out here: {several(unlisted, 'more unknown')} that moved less far." if unlisted > 0 else "",
    }


def _thin(data: ReportData, counts: np.ndarray) -> dict[str, Any]:
    """How much of the answer's time is spent where the log says little, and in which pairs most."""
    plan = data.plans[0]
    time = amounts(plan.occupancy)
    total = float(visits(plan).sum())
    shares = time / total if total > 0 else np.zeros_like(time)
    open_pairs = np.ones(counts.shape, bool) if data.certain is None else np.asarray(data.certain) <= 0
    unseen, scarce = open_pairs & (counts <= 0), open_pairs & (counts < THIN)
    # Most time for each sighting first.
    order = sorted(
        np.argwhere(scarce & (shares >= USED)).tolist(), key=lambda pair: -shares[*pair] / (counts[*pair] + 1.0)
    )
    return {
        "limit": THIN,
        "pairs": int(open_pairs.sum()),
        "certain": not open_pairs.all(),
        "seen": float(counts.sum()),
        "unseen": int(unseen.sum()),
        "unseen_share": percent(float(shares[unseen].sum())),
        "thin_share": percent(float(shares[scarce].sum())),
        "listed": [
            (data.states[state], data.actions[action], counts[state, action], percent(shares[state, action]))
            for state, action in order[:THIN_LISTED]
        ],
        "more": max(len(order) - THIN_LISTED, 0),
    }
