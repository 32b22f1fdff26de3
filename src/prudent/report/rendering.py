"""One record as one page: the figures and the words of a report, put into its template."""

from __future__ import annotations

from numbers import Integral
from pathlib import Path
from typing import Any

from ..files import write_whole
from . import words
from .decision import VERDICTS, ChoiceRecord, cost_words
from .distributions import (
    POINTS,
    driver_figure,
    frontier_curve,
    history_figure,
    limit_figure,
    loss_figure,
    loss_range,
    losses_left_out,
    risk_figure,
    thinned,
)
from .fitting import QUESTIONS, fit_figures, fit_words
from .limits import frontier_notes, frontier_rows, limit_words, worth_notes, worth_rows
from .linear import gain_rows, linear_figures
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
)
from .page import NEUTRAL, TAIL, drawable, faded, figure_html, plan_colour, render
from .parts import PairRecord
from .record import PolicyRecord, SolutionRecord

DRIVERS = 15

# From this share of time in pairs never seen on it is said beside the answer.
UNSEEN = 0.01


def write_report(record: SolutionRecord, path: str | Path) -> Path:
    """Write a report as one HTML page that needs nothing beside itself.

    Args:
        record: what it shows.
        path: the file to write; it is replaced whole or not at all.

    >>> import tempfile, pathlib, prudent as pr
    >>> from prudent.report import write_report
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> solution = pr.solve(lake, lake.prior, solver=pr.BRPG(iterations=5))
    >>> record = pr.record_solution(solution, lake, lake.prior, title="Four states")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_report(record, pathlib.Path(folder) / "report.html").read_text(encoding="utf-8")
    >>> "Four states" in page
    True
    """
    return write_whole(path, report_html(record))


def report_html(record: SolutionRecord) -> str:
    """The page that `write_report` writes, as text."""
    limits, rivals = loss_range(record), [plan for plan in record.rivals if plan.difference and plan.risk is not None]
    tabular = record.probabilities is not None
    arrows = tabular and has_arrows(record)
    # Numbers go by the names they have in solution.json.
    certain = [] if record.deterministic is None else ["deterministic."]
    return render(
        "report.html",
        record=record,
        plans=record.plans,
        tabular=tabular,
        keys=["", *certain, *(f"rivals.{k}." for k in range(len(record.rivals)))],
        colours=[plan_colour(position) for position in range(len(record.plans))],
        beyond=[losses_left_out(plan, record.draw_probabilities, limits) for plan in record.plans],
        rivals=len(rivals),
        best=min(rivals, key=lambda plan: plan.risk or 0.0, default=None),
        figures=_figures(record, limits) | (_table_figures(record, arrows) if tabular else {}),
        notes=_notes(record, arrows),
        drivers=record.drivers[:DRIVERS],
        not_carried=not_carried_words(record),
        warnings=warnings_of(record),
        thin=_thin(record),
        neutral=next((plan for plan in record.rivals if plan.name.startswith("risk-neutral")), None),
        verdicts=VERDICTS,
        arrows=arrows,
        long=len(thinned(record.objective)[1]) >= 60,
        wide=tabular and (record.grid[1] if record.grid and arrows else len(record.action_names)) > WIDE,
        tail_colour=TAIL,
        neutral_colour=NEUTRAL,
        **{each.__name__: each for each in SAYING},
    )


def not_carried_words(record: PolicyRecord) -> str:
    """Say that the log does not carry the policy, and how much of its time falls to pairs with few rows.

    The sentence is empty where the log carries the policy.
    """
    evidence = record.evidence
    if record.carried or evidence is None:
        return ""
    seen = record.coverage if isinstance(record, SolutionRecord) else None
    never = "" if seen is None or seen.shared else f", {words.percent(seen.unseen_time)} in pairs never tried"
    return (
        f"The log does not carry this policy. Under the belief, it spends {words.percent(evidence.time or 0.0)} of its "
        f"discounted time in pairs tried fewer than {evidence.few} times{never}. No promise is made."
    )


def promise_words(record: SolutionRecord) -> str:
    """Risk, interval and bound in one sentence."""
    risk = words.with_error(record.risk, record.risk_standard_error)
    text = f"{record.risk_name} of the {record.loss_name} {risk}"
    text += " (exact)" if record.exact else f" ({words.between(*record.interval, record.confidence)})"
    certificate = record.certificate
    if certificate is not None and record.gap_limit is not None:
        sure = "" if certificate.exact else f" (95 % confidence{words.nominally(certificate.gap_confidence)})"
        most = f"{words.number(record.gap_limit, 3)}{sure}"
        text += f"; no {record.bounded.replace(' there', '')} is better by more than {most}"
    return text


def warnings_of(record: SolutionRecord) -> list[str]:
    """What the data leave to be minded, beside the answer that they touch."""
    found = []
    if record.evidence is not None and not record.carried:
        found.append(f"The evidence is {record.evidence.word}: {record.evidence.message}.")
    seen = record.coverage
    if seen is not None and not seen.shared and seen.unseen_time >= UNSEEN and record.carried:
        time = words.percent(seen.unseen_time)
        found.append(f"{time} of its discounted time passes through pairs that the log has never seen.")
    for test in () if record.fit is None else record.fit.tests:
        if test.fails:
            question, answer = QUESTIONS[test.name], test.answer
            said = f"{question[0].upper()}{question[1:]} {answer[0].upper()}{answer[1:]}"
            share = (
                "" if test.strength is None else f" This explains {words.percent(test.strength)} of what is left open."
            )
            found.append(f"The model does not fit the log. {said}.{share}")
    return found


def _thin(record: SolutionRecord) -> tuple[PairRecord, ...]:
    """The pairs with few rows that the policy leans on most."""
    if record.evidence is not None and record.evidence.pairs:
        return record.evidence.pairs[:3]
    return () if record.coverage is None or record.coverage.shared else record.coverage.relied_on[:3]


def plans_words(choice: ChoiceRecord) -> str:
    """What other plans do in a state, those that agree together."""
    acts: dict[str, list[str]] = {}
    for name, act in choice.plans:
        acts.setdefault(act, []).append(name)
    return "; ".join(f"{act}: {', '.join(names)}" for act, names in acts.items())


def exact(value: Any) -> str:
    """A value as a machine reads it back, bit for bit; nothing known is null, as in JSON."""
    if value is None:
        return "null"
    return str(value) if isinstance(value, str | Integral) else repr(float(value))


def verdict(best: PolicyRecord) -> str:
    """What more is to be said of the best rival: that it is better, or that it cannot be told apart."""
    assert best.difference is not None
    if best.difference.clear:
        return "better" if (best.difference.value or 0.0) < 0 else ""
    return "" if best.difference.low is None else "alike"


def _figures(record: SolutionRecord, limits: tuple[float, float] | None) -> dict[str, Any]:
    """The figures of numbers as HTML, None or empty where there is nothing to draw."""
    risks, iterations = risk_figure(record), (record.objective, record.gradient_norm)
    objective, gradient = (values if drawable(values).any() else None for values in iterations)
    drivers, shares, places = record.drivers[:DRIVERS], record.draw_probabilities, range(len(record.plans))
    drawn: dict[str, Any] = {
        "risks": risks and figure_html(risks, f"{record.risk_name} of each plan"),
        "drivers": drivers and figure_html(driver_figure(drivers), "shift of each unknown under the risk's weights"),
        "losses": [],
        "objective": None,
        "gradient": None,
        "counts": None,
        "fit": fit_figures(record.fit),
        "linear": linear_figures(record.linear),
        "limits": [
            figure_html(limit_figure(each, shares), f"{each.name} over the posterior") for each in record.limits
        ],
    }
    if record.frontier is not None:
        drawn["frontier"] = figure_html(frontier_curve(record.frontier, record.risk_name), "frontier")
    if limits is not None:
        figures = [loss_figure(record, position, limits) for position in places]
        drawn["losses"] = [
            figure_html(each, f"losses of {plan.name}") for each, plan in zip(figures, record.plans, strict=True)
        ]
    if objective is not None:
        figure = history_figure(objective, record.risk_name, plan_colour(0))
        drawn["objective"] = figure_html(figure, "sampled risk in each iteration")
    if gradient is not None:
        figure = history_figure(gradient, "gradient norm", NEUTRAL, logarithmic=True)
        drawn["gradient"] = figure_html(figure, "gradient norm in each iteration")
    return drawn


def _table_figures(record: SolutionRecord, arrows: bool) -> dict[str, Any]:
    """The figures of states and actions as HTML."""
    size: dict[str, Any] = {}
    if arrows and record.grid is not None:
        rows, columns = record.grid
        size = {"aspect": columns / rows, "widest": CELL * columns}
    draw = arrow_figure if size else policy_figure
    policies = [
        figure_html(draw(record, position), f"policy of {plan.name}", **size)
        for position, plan in enumerate(record.plans)
    ]
    drawn = {
        "policies": policies,
        "occupancy": figure_html(occupancy_figure(record), "discounted visits of each state"),
    }
    if record.counts is not None:
        drawn["counts"] = figure_html(counts_figure(record), "how often each pair was seen")
    return drawn


def _notes(record: SolutionRecord, arrows: bool) -> dict[str, str]:
    """What figures and tables leave out."""
    block = thinned(record.objective)[2] if len(record.objective) > POINTS else 1
    unlisted = len(record.drivers) - DRIVERS
    most = f"those {record.name} visits most"
    return {
        "policy": "" if arrows else left_out(record, ROWS, most),
        "occupancy": left_out(record, BARS, "those any plan visits most"),
        "counts": left_out(record, ROWS, most),
        "history": f"Each point is the mean of {block} iterations. " if block > 1 else "",
        "drivers": f"Left out here: {words.several(unlisted, 'more unknown')} that moved less far."
        if unlisted > 0
        else "",
    }


# What a template may say numbers and texts with.
SAYING = (
    *(words.between, words.compared, words.nominally, words.number, words.percent, words.seconds, words.several),
    *(words.with_error, cost_words, exact, faded, fit_words, frontier_notes, frontier_rows, gain_rows, limit_words),
    *(plans_words, verdict, worth_notes, worth_rows),
)
