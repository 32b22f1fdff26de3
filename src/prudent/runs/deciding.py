"""What to do and how much it matters: in every state that comes up another action is tried, on the reported draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from ..arrays import in_float64
from ..objectives import losses_on, slopes_on
from ..report import ChoiceRecord, DecisionRecord, Difference, PolicyRecord, act_words, rule_words, speaks_of_order
from .judging import Evaluator, risk_difference, slopes_of_risk

# From this share of discounted time on a state comes up; so many of them are listed, so many where a rule of thresholds
# says the rest, and there so many beside those where a plan changes.
LEAST_TIME, MOST_CHOICES, BESIDE_RULE, NEAREST = 1e-3, 40, 16, 4

# So many policies with one action changed are all judged; of more, in each state the one that is best to first order.
MOST_TRIED = 64

# Bytes of models that may be looked at, where they are factorised and where they are solved by iteration, and draws.
WORK = {True: 2**29, False: 2**27}
FEWEST_DRAWS, MOST_DRAWS = 100, 2000

# Draws at which the actions of a state are compared, and the share of their size by which rounding may set them apart.
ALIKE_DRAWS, ROUNDING = 16, 1e-9

# A cost below this share of the spread of losses over the posterior hardly matters.
SMALL = 0.01


@in_float64
def decision_of(
    evaluator: Evaluator,
    answer: PolicyRecord,
    plans: Sequence[PolicyRecord],
    states: Sequence[str],
    actions: Sequence[str],
    *,
    ordered: bool,
    ends: Any = None,
    walls: Any = None,
    starts: Any = None,
) -> DecisionRecord | None:
    """The decision that a policy makes; None where it is no table.

    Args:
        evaluator: with the draws that are reported on.
        answer: the policy.
        plans: what it is set beside; of these, one that is deterministic may be the first.
        states: names.
        actions: names.
        ordered: whether the order of the states means something.
        ends: `[S]` which states are never left, where nothing is to be decided.
        walls: `[S]` which states cannot be reached.
        starts: `[S]` distribution of the first state.
    """
    if answer.probabilities is None or answer.occupancy is None:
        return None
    table = np.asarray(answer.probabilities)
    none = np.zeros(len(table), bool)
    ends, walls = (none if mask is None else np.asarray(mask, bool) for mask in (ends, walls))
    others = [plan for plan in plans if plan.probabilities is not None and plan.occupancy is not None]
    times = _shares(answer)
    alike = _alike(evaluator, table) & ~ends
    undecided = ends | (none if np.all(alike[times >= LEAST_TIME]) else alike)
    met = (times >= LEAST_TIME) & ~undecided
    apart = none.copy()
    for plan in others:
        unlike = np.asarray(plan.probabilities).argmax(axis=1) != table.argmax(axis=1)
        apart |= unlike & (np.maximum(_shares(plan), times) >= LEAST_TIME) & ~undecided & ~walls
    known = np.flatnonzero(met | apart)
    by_order = ordered and speaks_of_order([states[int(s)] for s in known])
    begins = none if starts is None or np.count_nonzero(starts) > NEAREST else np.asarray(starts) > 0
    tables = [table, *(np.asarray(plan.probabilities) for plan in others)]
    shown = _shown(known, tables, apart, times, begins, by_order)
    costs, draws, screened = _costs(evaluator, answer, table, shown[met[shown]])
    share, losses = evaluator.draws.probabilities, np.asarray(answer.losses)
    spread = float(np.sqrt(share @ (losses - share @ losses) ** 2))

    def rule(plan: PolicyRecord) -> str:
        acts = [act_words(np.asarray(plan.probabilities)[s].tolist(), actions) for s in known]
        return rule_words(acts, [states[int(s)] for s in known], known.tolist(), ordered)

    choices = []
    for state in (int(number) for number in shown):
        other, cost = costs.get(state, (None, None))
        act = act_words(table[state].tolist(), actions)
        theirs = ((plan.name, act_words(np.asarray(plan.probabilities)[state].tolist(), actions)) for plan in others)
        choices.append(
            ChoiceRecord(
                state=states[state],
                number=state,
                act=act,
                time=float(times[state]),
                other=None if other is None else actions[other],
                cost=cost,
                verdict=_verdict(cost, spread) if met[state] else "rare",
                plans=tuple((name, done) for name, done in theirs if done != act),
            )
        )
    own = rule(answer)
    rules = [(plan.name, rule(plan)) for plan in others if plan.kind != "deterministic"]
    together: dict[str, list[str]] = {}
    for name, text in rules:
        if text and text != own:
            together.setdefault(text, []).append(name)
    mixed = bool(np.any(table[known].max(axis=1) < 0.995))
    certain = next((rule(plan) for plan in others if plan.kind == "deterministic"), "") if mixed else ""
    return DecisionRecord(
        rule=own,
        certain=certain,
        others=tuple((", ".join(names), text) for text, names in together.items()),
        choices=tuple(choices),
        left_out=len(known) - len(shown),
        alike=int(np.sum((times >= LEAST_TIME) & undecided & ~ends)),
        least_time=LEAST_TIME,
        draws=draws,
        screened=screened,
        starts=() if starts is None else tuple(np.flatnonzero(starts).tolist()),
        ends=tuple(np.flatnonzero(ends).tolist()),
        walls=tuple(np.flatnonzero(walls).tolist()),
    )


def _shown(
    known: np.ndarray,
    tables: list[np.ndarray],
    apart: np.ndarray,
    times: np.ndarray,
    begins: np.ndarray,
    ordered: bool,
) -> Any:
    """Of the states that are known those to be listed: where it begins before any other.

    Where they are in an order, those where a plan changes its action, and then those that are met, the nearest to a
    change of the first table's before others; else those where plans differ, and then those with the most time.
    """
    if not ordered:
        order = np.lexsort((-times[known], ~apart[known], ~begins[known]))
        return np.sort(known[order[:MOST_CHOICES]])
    changes = [np.flatnonzero(np.diff(table[known].argmax(axis=1))) for table in tables]
    edge = np.zeros(len(known), bool)
    for found in changes:
        edge[found] = edge[found + 1] = True
    own = changes[0] + 0.5
    away = np.abs(np.arange(len(known))[:, None] - own).min(axis=1) if len(own) else -times[known]
    order = np.lexsort((away, times[known] < LEAST_TIME, ~edge, ~begins[known]))
    return np.sort(known[order[: min(BESIDE_RULE, int((edge | begins[known]).sum()) + NEAREST)]])


def _shares(plan: PolicyRecord) -> Float[np.ndarray, " S"]:
    visits = np.asarray(plan.occupancy).sum(axis=1)
    return np.minimum(visits / max(float(visits.sum()), 1e-300), 1.0)


def _alike(evaluator: Evaluator, table: Float[np.ndarray, "S A"]) -> Bool[np.ndarray, " S"]:
    """Which of the states that are met have actions that all come to the same, whatever theta is."""
    if table.shape[1] < 2 or evaluator.objective.averages() is not None:
        return np.zeros(len(table), bool)
    rows = np.arange(min(ALIKE_DRAWS, len(evaluator.draws)))
    slopes = slopes_on(evaluator.objective, table[None], evaluator.draws.thetas, 0 * rows, rows).slopes
    size = np.abs(slopes).max(axis=2)
    return np.all((size > 0.0) & (np.ptp(slopes, axis=2) <= ROUNDING * size), axis=0)


def _verdict(cost: Difference | None, spread: float) -> Any:
    if cost is None or cost.value is None or cost.low is None:
        return "unknown"
    if cost.clear and cost.value < 0:
        return "better"
    if not cost.clear:
        return "toss-up"
    return "small" if cost.value < SMALL * spread else "matters"


def _costs(
    evaluator: Evaluator, answer: PolicyRecord, table: Float[np.ndarray, "S A"], states: Int[np.ndarray, " K"]
) -> tuple[dict[int, tuple[int, Difference]], int, bool]:
    """By state the best other action found and what it adds to the risk; on how many draws; whether it was screened."""
    count, objective = table.shape[1], evaluator.objective
    if count < 2 or len(states) == 0:
        return {}, 0, False
    size = objective.size()
    models = WORK[size.cached] // size.bytes
    screened = len(states) * (count - 1) > MOST_TRIED
    policies = len(states) * (1 if screened else count - 1)
    draws = evaluator.draws
    if not draws.exact:
        draws = draws.first(int(np.clip(models // policies, FEWEST_DRAWS, MOST_DRAWS)))
    elif len(draws) * policies > models:
        # Atoms are no sample of one another: fewer states are looked at, those where most time is spent.
        times, screened = np.asarray(answer.occupancy).sum(axis=1), True
        states = states[np.argsort(-times[states], kind="stable")[: max(1, models // len(draws))]]
    losses = np.asarray(answer.losses)[: len(draws)]
    taken = table.argmax(axis=1)
    if screened:
        slope = slopes_of_risk(evaluator, table, losses, draws)
        slope[np.arange(len(table)), taken] = np.inf
        tried = [(int(state), int(slope[state].argmin())) for state in states]
    else:
        tried = [(int(s), a) for s in states for a in range(count) if a != taken[s]]
    changed = np.repeat(table[None], len(tried), axis=0)
    for place, (state, action) in enumerate(tried):
        changed[place, state] = np.eye(count)[action]
    found: dict[int, tuple[int, Difference]] = {}
    for (state, action), theirs in zip(tried, losses_on(objective, changed, draws.thetas), strict=True):
        if not np.all(np.isfinite(theirs)):
            continue
        cost = risk_difference(evaluator.risk, theirs, losses, draws)
        if cost.value is not None and (state not in found or cost.value < (found[state][1].value or 0.0)):
            found[state] = action, cost
    return found, len(draws), screened
