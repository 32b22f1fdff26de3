"""Policies judged on one set of fresh draws, as records: any policy, the rivals, limits, and two risks draw by draw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays import in_float64
from ..errors import InputError
from ..evaluation import Evaluation, judge, judged, usual_draws
from ..objectives import chunk_size, losses_on, objective_of, slopes_on
from ..posteriors import WeightedDraws
from ..problems import Case, limit_measure
from ..report import Difference, EvidenceRecord, LimitRecord, PolicyRecord, evidence_record, limit_record, policy_record
from ..risks import CVaR, Risk, effective_draws
from ..seeds import as_seed
from ..solvers import Job, JobDraws, Solution, fresh_draws, limit_answer

# Draws of a mean occupancy, unless the draws are the whole posterior.
OCCUPANCY_DRAWS = 512

# Exact risks closer than this, as a share of their size, differ by rounding.
ROUNDING = 1e-12


class Evaluator:
    """Judges policies of one question on one set of fresh draws.

    Args:
        model: a family, or any objective.
        belief: posterior of theta.
        risk: `CVaR(0.9)` when left out.
        loss: of a family; expected discounted cost when left out.
        occupancy: of a family; exact when left out.
        seed: of the draws; those on which `solve` reports the risk under the same seed.
        evaluation: how many draws; as many as `solve` takes when left out.
        draws: the draws themselves, where there are some.
        more: what else `solve` is given.
    """

    def __init__(
        self,
        model: Any,
        belief: Any,
        *,
        risk: Risk | None = None,
        loss: Any = None,
        occupancy: Any = None,
        seed: Any = 0,
        evaluation: int | None = None,
        draws: WeightedDraws | None = None,
        **more: Any,
    ):
        del more
        self.objective: Any = objective_of(model, loss=loss, occupancy=occupancy)
        self.belief, self.risk, self.seed = belief, CVaR(0.9) if risk is None else risk, seed
        self.tail_level = tail_level_of(self.risk)
        self.seed = as_seed(seed)
        self.draws = self._fresh(evaluation) if draws is None else draws
        self.tabular = self.objective.table(self.draws.thetas[0]) is not None

    @in_float64
    def _fresh(self, evaluation: int | None) -> WeightedDraws:
        return fresh_draws(self.belief, self.seed, evaluation or usual_draws(self.objective, self.risk))

    def aside(self, number: int) -> WeightedDraws:
        """Draws to choose policies by: others than those reported on, unless the posterior is used whole."""
        return JobDraws([Job(self.belief, self.risk, self.seed, None)]).held_out(number)[0]

    @in_float64
    def record(
        self,
        name: str,
        policy: Any,
        *,
        known: Evaluation | None = None,
        beside: PolicyRecord | None = None,
        occupancy: bool = True,
        stands_on: tuple[Any, Any] | None = None,
        **more: Any,
    ) -> PolicyRecord:
        """A policy judged on the draws.

        Args:
            name: what the reader calls it.
            policy: as `evaluate` takes it.
            known: what it is there, if it was judged before.
            beside: a policy whose risk is taken from its own.
            occupancy: whether the mean occupancy is asked for.
            stands_on: names of states and actions, where it is asked what the risk stands on.
            more: other fields of the record.
        """
        point = self.objective.point_from(policy)
        found = judge(self.objective, self.risk, point, self.draws) if known is None else known
        if not np.all(np.isfinite(found.losses)):
            raise InputError(f"the loss of {name} is not a finite number at every posterior draw; check costs and loss")
        if self.tabular:
            more["probabilities"] = point
            more["occupancy"] = self.mean_occupancy(point) if occupancy else None
        if beside is not None:
            same = self.tabular and same_where_met(beside, point)
            more["difference"] = self.difference(beside.losses if same else np.asarray(found.losses), beside.losses)
        if stands_on is not None:
            more["evidence"] = self.evidence(point, found, *stands_on)
        return policy_record(name, found, self.tail_level, **more)

    def difference(self, losses: np.ndarray, others: np.ndarray, risk: Risk | None = None) -> Difference:
        """The risk of losses less that of others, draw by draw."""
        return risk_difference(self.risk if risk is None else risk, losses, others, self.draws)

    def mean_occupancy(self, point: np.ndarray) -> np.ndarray:
        """`[S, A]` over the first draws, or over the whole posterior."""
        thetas, share, exact, _ = self.draws
        few = len(thetas) if exact else min(len(thetas), OCCUPANCY_DRAWS)
        weights = share[None, :few] / share[:few].sum()
        return self.objective.mean_occupancies(point, thetas[:few], weights)[0]

    @in_float64
    def evidence(self, point: np.ndarray, found: Evaluation, states: Any, actions: Any) -> EvidenceRecord:
        """What the risk of a policy stands on, by these names."""
        evidence = self.objective.evidence(self.belief, self.risk, point, found, self.seed)
        return evidence_record(evidence, states, actions)


def same_where_met(policy: PolicyRecord, table: np.ndarray) -> bool:
    """Whether a table does what a policy does, to rounding, wherever the policy comes: it then comes nowhere else."""
    if policy.probabilities is None or policy.occupancy is None:
        return False
    met = np.asarray(policy.occupancy).sum(axis=1) > 0.0
    return np.allclose(table[met], np.asarray(policy.probabilities)[met], rtol=0.0, atol=ROUNDING)


@in_float64
def risk_difference(risk: Risk, losses: np.ndarray, others: np.ndarray, draws: WeightedDraws) -> Difference:
    """The risk of losses less that of others on the same draws, with its standard error and 95 % interval.

    Both are unknown where they cannot be had, and nothing is left open where the draws are the whole posterior.
    """
    if losses is others:
        # A policy beside itself.
        return Difference(value=0.0, standard_error=0.0, low=0.0, high=0.0, confidence="exact")
    ours, theirs = (judged(risk, each, draws) for each in (losses, others))
    value = ours.risk - theirs.risk
    if draws.exact:
        value = 0.0 if abs(value) <= ROUNDING * max(abs(ours.risk), abs(theirs.risk)) else value
        return Difference(value=value, standard_error=0.0, low=value, high=value, confidence="exact")
    low, high = risk.difference_interval(losses, others, draws.probabilities)
    error = ours.error_of_difference(theirs) if np.isfinite(low) else math.nan
    # The tail with fewer draws is the one that tells least.
    fewest = min((ours, theirs), key=lambda each: effective_draws(each.weights, each.probabilities))
    return Difference(value=value, standard_error=error, low=low, high=high, confidence=fewest.confidence)


def tail_level_of(risk: Any) -> float:
    """The level of a risk that has one; 0.9 for any other."""
    level = getattr(risk, "level", None)
    return 0.9 if level is None or not 0.0 < float(level) < 1.0 else float(level)


def rival_records(
    evaluator: Evaluator, made: Mapping[str, tuple[Any, str]], beside: PolicyRecord
) -> tuple[list[PolicyRecord], list[str]]:
    """Other plans by name, judged; and the names of those whose loss is infinite at some draw, which are left out."""
    records, infinite = [], []
    for name, (policy, status) in made.items():
        known = name if status in ("PLANNED", "CONVERGED") else f"{name} ({status.lower().replace('_', ' ')})"
        try:
            records.append(evaluator.record(known, policy, beside=beside, kind="rival", status=status))
        except InputError:
            infinite.append(name)
    return records, infinite


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
        records.append(limit_record(answer, place, limit_measure(case.file.limit[place]), others))
    return tuple(records)


def slopes_of_risk(evaluator: Evaluator, table: np.ndarray, losses: np.ndarray, draws: Any) -> np.ndarray:
    """`[S, A]` the derivative of the risk by a table with these losses: to first order what an action costs."""
    thetas, share, *_ = draws
    weights = share * np.asarray(evaluator.risk(losses, share).weights)
    tail, slope, step = np.flatnonzero(weights), np.zeros(table.shape), chunk_size(evaluator.objective)
    for begin in range(0, len(tail), step):
        rows = tail[begin : begin + step]
        found = slopes_on(evaluator.objective, table[None], thetas, np.zeros(len(rows), int), rows)
        slope += np.tensordot(weights[rows], found.slopes, axes=1)
    return slope
