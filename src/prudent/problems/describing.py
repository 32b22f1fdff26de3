"""What was understood of a problem, in words and numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from .facts import Facts
from .memory import estimate, in_words
from .sections import MixtureSection
from .tabular_case import Case

MOST_NAMED = 6

# Abbreviations in the names of kinds.
SPOKEN = {"cvar": "CVaR", "var": "VaR", "kl": "Kullback-Leibler", "tv": "total-variation", "brpg": "BR-PG"}
THIN = 5


def log_coverage(case: Case) -> dict[str, Any]:
    """How much of the problem the log has seen, as plain numbers."""
    states, actions, _ = case.shape
    reachable = np.broadcast_to((case.reachable & ~case.terminal)[:, None], (states, actions))
    counts = case.counts()
    unseen = np.argwhere((counts == 0) & reachable)
    log = case.facts.log
    return {
        "rows": 0 if log is None else log.rows,
        "observations": float(counts.sum()),
        "pairs": int(reachable.sum()),
        "pairs_seen": int(((counts > 0) & reachable).sum()),
        "pairs_thin": int(((counts > 0) & (counts < THIN) & reachable).sum()),
        "unseen": [[case.facts.states[s], case.facts.actions[a]] for s, a in unseen[:1000]],
    }


def describe(case: Case) -> list[tuple[str, str]]:
    """Lines of (label, text): what a problem asks, and what its log shows."""
    facts, file = case.facts, case.facts.file
    states, actions, width = case.shape
    seen = log_coverage(case)
    lines = [
        ("states", f"{states:,}: {_some(facts.states)}"),
        ("actions", f"{actions:,}: {_some(facts.actions)}"),
    ]
    if file.terminal:
        lines.append(("terminal", ", ".join(map(str, file.terminal[:MOST_NAMED]))))
    if case.family is None:
        lines += [("discount", f"{file.discount:g}"), ("start", _start(case)), ("costs", _costs(case))]
        by = "by outcome" if facts.outcomes is not None else file.posterior.support
        lines.append(("successors", f"{by}, at most {width:,} a pair"))
        lines.append(("posterior", _posterior(facts)))
    else:
        lines.append(("family", case.family.name))
    lines.append(("risk", risk_name(file.risk)))
    lines.append(("loss", loss_name(file.loss)))
    lines += [("limit", described_limit(limit, number)) for number, limit in enumerate(file.limit)]
    log = facts.log
    told = [] if log is None else [f"{log.rows:,} rows, {seen['observations']:,.0f} transitions"]
    if facts.outcomes is not None and facts.outcomes.seen is not None:
        told.append(f"{facts.outcomes.seen[:, 2].sum():,.0f} outcomes seen as such")
    lines.append(("log", "; ".join(told) or "none: the prior alone"))
    lines += _seen_of_pairs(seen) if case.layout is None else _seen_of_laws(case)
    if not case.reachable.all():
        away = np.flatnonzero(~case.reachable)
        names = ", ".join(facts.states[s] for s in away[:MOST_NAMED])
        lines.append(("out of reach", f"{len(away):,}: {names}{', ...' if len(away) > MOST_NAMED else ''}"))
    lines.append(("solver", solver_name(file.solver)))
    lines.append(("memory", f"about {in_words(estimate(case.shape, file.solver, case.drawn_costs))} to solve"))
    return lines


def _seen_of_pairs(seen: dict[str, Any]) -> list[tuple[str, str]]:
    lost = seen["pairs"] - seen["pairs_seen"]
    named = ", ".join(f"{state}/{action}" for state, action in seen["unseen"][:MOST_NAMED])
    more = ", ..." if lost > MOST_NAMED else ""
    covered = f"{seen['pairs_seen']:,} of {seen['pairs']:,} pairs within reach seen, {seen['pairs_thin']:,} of them"
    return [
        ("coverage", f"{covered} fewer than {THIN} times"),
        ("unseen pairs", f"{lost:,}: {named}{more}" if lost else "none"),
    ]


def _seen_of_laws(case: Case) -> list[tuple[str, str]]:
    """Every row tells of all pairs of its law, so that laws are seen, and pairs need not be."""
    known, laid = case.facts.outcomes, case.layout
    assert known is not None and laid is not None
    rows = np.bincount(laid.law.ravel(), case.counts().ravel(), minlength=len(known.laws) + 1)[:-1]
    if known.seen is not None:
        np.add.at(rows, known.seen[:, 0].astype(int), known.seen[:, 2])
    lost = [known.laws[int(law)] for law in np.flatnonzero(rows == 0)]
    named = ", ".join(lost[:MOST_NAMED]) + (", ..." if len(lost) > MOST_NAMED else "")
    covered = f"{(rows > 0).sum():,} of {len(rows):,} laws seen, {((rows > 0) & (rows < THIN)).sum():,} of them"
    return [("coverage", f"{covered} fewer than {THIN} times"), ("unseen laws", named or "none")]


def _posterior(facts: Facts) -> str:
    section, shared = facts.file.posterior, facts.outcomes
    weight = f"prior weight {1.0 if section.prior is None else section.prior:g}"
    if shared is not None:
        laws = "one law" if len(shared.laws) == 1 else f"{len(shared.laws):,} laws"
        return f"{laws} of {len(shared.outcomes):,} outcomes, {weight}"
    return "rows that learn from one another" if section.pooled else f"Dirichlet rows, {weight}"


def risk_name(section: Any) -> str:
    """A risk in words, such as `CVaR 0.9`."""
    if isinstance(section, MixtureSection):
        return " + ".join(f"{part.share:g} {risk_name(part.risk)}" for part in section.parts)
    kind = _spoken(section.kind)
    numbers = section.model_dump(exclude={"kind"})
    if len(numbers) == 1:
        return f"{kind} {next(iter(numbers.values())):g}"
    return kind + "".join(f", {name} {value:g}" for name, value in numbers.items())


def _spoken(kind: str) -> str:
    """A kind in words: `entropic-var` as `entropic VaR`."""
    return " ".join(SPOKEN.get(word, word) for word in kind.split("-"))


def described_limit(section: Any, number: int) -> str:
    """A limit in words."""
    name, unit = section.name or f"limit {number + 1}", f" {section.unit}" if section.unit else ""
    how = f"with a chance of {section.chance:g}" if section.chance is not None else f"in {limit_measure(section)}"
    what = "visits" if section.visits is not None else "costs"
    over = "discounted" if section.per is None else f"in {section.per:g} periods"
    return f"{name}: {what} {over} at most {section.at_most:g}{unit}, {how}"


def limit_measure(section: Any) -> str:
    """What a limit is kept in: its risk, or the quantile of its chance."""
    if section.chance is not None:
        return f"VaR {section.chance:g}"
    return "CVaR 0.9" if section.risk is None else risk_name(section.risk)


def loss_name(section: Any) -> str:
    """A loss in words."""
    return "expected discounted cost" if section.kind == "expected-cost" else _spoken(section.kind)


def solver_name(section: Any) -> str:
    """A solver in words, with the settings that the file names."""
    given = section.model_dump(exclude={"kind"}, exclude_unset=True)
    return _spoken(section.kind) + "".join(f", {name} {value:g}" for name, value in given.items())


def _some(names: Any) -> str:
    if names.numbered:
        return f"numbered 0 to {len(names) - 1}"
    shown = ", ".join(names[k] for k in range(min(len(names), MOST_NAMED)))
    return shown + (", ..." if len(names) > MOST_NAMED else "")


def _start(case: Case) -> str:
    first = np.flatnonzero(case.start)
    if len(first) == 1:
        return case.facts.states[first[0]]
    return ", ".join(f"{case.facts.states[s]} {case.start[s]:.3g}" for s in first[:MOST_NAMED]) + (
        ", ..." if len(first) > MOST_NAMED else ""
    )


def _costs(case: Case) -> str:
    assert case.cost is not None and case.costs is not None
    what = "of each transition" if case.cost.ndim == 3 else "of each pair"
    note = f"{what}, given" if case.costs.note == "given" else case.costs.note
    priced, pairs = case.costs.priced, case.shape[0] * case.shape[1]
    default = f"; default_cost prices {priced:,} of {pairs:,} pairs" if priced else ""
    return f"{note}{default}; {case.cost.min():g} to {case.cost.max():g}"
