"""What is searched: one sample, how tables are judged and polished on it, and what cannot be searched."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from ..arrays import in_float64
from ..errors import InputError
from ..objectives import Boxes, Objective, losses_on, objective_of
from ..posteriors import Draws, Posterior, WeightedDraws
from ..risks import Risk
from ..solvers import SampleAverage, solve
from .search import ProofQuestion


def check_measure(risk: Risk) -> None:
    """Refuse a risk of which nothing can be proved."""
    if not risk.monotone:
        raise InputError("prove needs a monotone risk: smaller losses must not be riskier; CVaR and the mean are")
    if risk.is_program:
        raise InputError("prove bounds thousands of boxes, each a convex program under an Envelope; use CVaR or a mean")


@in_float64
def check_provable(model: Any, belief: Posterior, risk: Risk, loss: Any = None) -> None:
    """Refuse what `prove` would, before the work that comes before it."""
    check_measure(risk)
    boxes_of(objective_of(model, loss, None, None), np.asarray(belief.sample(0, 1)))


class SearchedSample:
    """One sample to be searched: the objective in units of its own, and how tables are judged and polished on it."""

    def __init__(self, objective: Objective, risk: Risk, draws: WeightedDraws, deterministic: bool, start: Any):
        self.risk, self.draws, self.deterministic = risk, draws, deterministic
        self.own = objective
        self.objective, self.unit = objective.in_units(draws.thetas)
        self.boxes = boxes_of(self.objective, draws.thetas)
        self.belief = Draws(draws.thetas, draws.probabilities)
        self.start = self._first(start)

    def question(self) -> ProofQuestion:
        """What the search is asked."""
        return ProofQuestion(
            self.boxes, self.risk, self.draws.probabilities, self.deterministic, self.judge, self.polish
        )

    def judge(self, tables: Float[np.ndarray, "K S A"]) -> Float[np.ndarray, " K"]:
        """Risks of tables on the draws, in units."""
        losses = losses_on(self.objective, tables, self.draws.thetas)
        return np.array([float(self.risk(row, self.draws.probabilities).value) for row in losses])

    def polish(self, table: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S A"]:
        """A table near this one that is at least as good."""
        if self.deterministic:
            return self._exchanged(table)
        start = self.own.from_point(table)
        solver = SampleAverage(starts=1)
        better = solve(self.own, self.belief, risk=self.risk, solver=solver, start=start, progress=False, certify=False)
        return self.own.point_from(better.policy)

    def _first(self, start: Any) -> Float[np.ndarray, "S A"]:
        if start is None:
            solution = solve(self.own, self.belief, risk=self.risk, progress=False, certify=False)
            table = self.own.point_from(solution.policy)
        else:
            table = self.own.point_from(getattr(start, "policy", start))
        return self._exchanged(np.eye(table.shape[1])[table.argmax(axis=1)]) if self.deterministic else table

    def _exchanged(self, table: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S A"]:
        """The best deterministic table that exchanging one action at a time leads to."""
        value, (states, actions) = self.judge(table[None])[0], table.shape
        while True:
            near = np.broadcast_to(table, (states * actions, states, actions)).copy()
            where = np.arange(states * actions)
            near[where, where // actions] = np.eye(actions)[where % actions]
            risks = self.judge(near)
            best = int(risks.argmin())
            if not risks[best] < value:
                return table
            table, value = near[best], risks[best]


def boxes_of(objective: Objective, thetas: Float[np.ndarray, "R ..."]) -> Boxes:
    """The relaxations at these draws; refused where the objective has none."""
    boxes = objective.boxes(thetas)
    if boxes is None:
        raise InputError(
            "prove needs tables of at most 48 states with an exact occupancy and a loss that is known to be convex; "
            + (objective.no_bound() or "this model is larger, or its occupancy is truncated")
        )
    return boxes
