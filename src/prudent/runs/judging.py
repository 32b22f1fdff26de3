"""Policies judged on one set of fresh draws, as records: any policy, the rivals, and two risks draw by draw."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from ..arrays import as_key, in_float64, key_words
from ..baselines import rivals, row_radius
from ..errors import InputError
from ..evaluation import Evaluation, judge, judged, usual_draws
from ..objectives import objective_of
from ..posteriors import Dirichlet, OutcomeLaws, WeightedDraws, WithCosts
from ..problems import Case
from ..report import Difference, FootingRecord, PolicyRecord, footing_record, policy_record
from ..risks import CVaR, Risk, effective_draws
from ..solvers import Job, JobDraws, fresh_draws

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
        seed: Any = 0,
        evaluation: int | None = None,
        draws: WeightedDraws | None = None,
        **more: Any,
    ):
        del more
        self.objective: Any = objective_of(model, loss=loss)
        self.belief, self.risk, self.seed = belief, CVaR(0.9) if risk is None else risk, seed
        self.tail_level = tail_level_of(self.risk)
        self.words = key_words(as_key(seed))
        self.draws = self._fresh(evaluation) if draws is None else draws
        self.tabular = self.objective.table(self.draws.thetas[0]) is not None

    @in_float64
    def _fresh(self, evaluation: int | None) -> WeightedDraws:
        return fresh_draws(self.belief, self.words, evaluation or usual_draws(self.objective, self.risk))

    def aside(self, number: int) -> WeightedDraws:
        """Draws to choose policies by: others than those reported on, unless the posterior is used whole."""
        return JobDraws([Job(self.belief, self.risk, self.words, None)]).held_out(number)[0]

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
            more["footing"] = self.footing(point, found, *stands_on)
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
    def footing(self, point: np.ndarray, found: Evaluation, states: Any, actions: Any) -> FootingRecord:
        """What the risk of a policy stands on, by these names."""
        footing = self.objective.footing(self.belief, self.risk, point, found, self.words)
        return footing_record(footing, states, actions)


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
    evaluator: Evaluator, case: Case, arguments: dict[str, Any], beside: PolicyRecord, iterations: int
) -> list[PolicyRecord]:
    """The plans of `pr.rivals`; one that cannot be made for this problem is left out."""
    # A run that goes on makes a few iterations more; the risk-neutral one begins again and gets as many as all.
    solver = arguments["solver"]
    solver = dataclasses.replace(solver, iterations=max(iterations, solver.iterations))
    made = rivals(**arguments | {"solver": solver}, radius=_radius(case, arguments), evaluation=2)
    records = []
    for name, plan in made.items():
        status = plan.status.name
        known = name if status in ("PLANNED", "CONVERGED") else f"{name} ({status.lower().replace('_', ' ')})"
        try:
            records.append(evaluator.record(known, plan.policy, beside=beside, kind="rival", status=status))
        except InputError:
            continue
    return records


def _radius(case: Case, arguments: dict[str, Any]) -> Any:
    """The file's radius; else that of `pr.rivals`, where the log's rows stand in for a Dirichlet's counts."""
    given, belief = case.facts.file.rivals.robust_radius, arguments["belief"]
    belief = belief.posterior if isinstance(belief, WithCosts) else belief
    if given is not None or isinstance(belief, Dirichlet):
        return given
    counts = belief.rows() if isinstance(belief, OutcomeLaws) else case.counts()
    return row_radius(arguments["model"].support, counts + 1.0)
