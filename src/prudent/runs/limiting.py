"""What a run's limits come to, under its policy and under the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays import in_float64
from ..evaluation import judged
from ..objectives import losses_on, objective_of
from ..problems import Case, limit_measure
from ..report import LimitRecord, PolicyRecord, limit_record
from ..solvers import Solution, limit_answer


@in_float64
def limit_records(
    case: Case, arguments: dict[str, Any], solution: Solution, plans: Sequence[PolicyRecord]
) -> tuple[LimitRecord, ...]:
    """Each limit with what the plans beside the answer make of it, on the same draws."""
    draws, records = solution.evaluation.draws, []
    for place, answer in enumerate(solution.limits):
        objective = objective_of(arguments["model"], answer.limit.loss)
        tables = np.array([np.asarray(plan.probabilities) for plan in plans])
        losses = losses_on(objective, tables, draws.thetas) if len(tables) else []
        others = [
            (plan.name, limit_answer(answer.limit, judged(answer.limit.risk, row, draws)))
            for plan, row in zip(plans, losses, strict=True)
        ]
        records.append(limit_record(answer, place, limit_measure(case.facts.file.limit[place]), others))
    return tuple(records)
