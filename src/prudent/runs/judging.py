"""How good policies are on one set of fresh draws: any policy, the rivals, and two risks draw by draw."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from ..arrays import as_key, in_float64, key_words
from ..baselines import rivals, row_radius
from ..errors import InputError
from ..evaluation import judge, judged, usual_draws
from ..objectives import Footing, TabularObjective
from ..posteriors import Dirichlet, WeightedDraws, WithCosts
from ..problems import Case
from ..report.data import Difference
from ..risks import CVaR, Expectation, Risk
from ..solvers import Job, JobDraws, fresh_draws
from .view import View

# Draws of a mean occupancy, unless the draws are the whole posterior.
OCCUPANCY_DRAWS = 512

# Exact risks closer than this, as a share of their size, differ by rounding.
ROUNDING = 1e-12


class Court:
    """One problem with its fresh draws: those on which `solve` reports the risk under the same seed.

    Args:
        arguments: of `solve`.
        evaluation: how many draws; as many as `solve` takes when None.
        tail_level: where value at risk and tail mean are taken.
        solution: its draws are taken; else they are drawn anew.
    """

    def __init__(self, arguments: dict[str, Any], evaluation: int | None, tail_level: float, solution: Any = None):
        self.arguments, self.tail_level = arguments, tail_level
        self.model, self.belief, self.risk = arguments["model"], arguments["belief"], arguments["risk"]
        self.words = key_words(as_key(arguments["seed"]))
        self.objective: TabularObjective = self.model.objective(loss=arguments["loss"])
        self.fresh = self._fresh(evaluation) if solution is None else solution.evaluation.draws

    @in_float64
    def _fresh(self, evaluation: int | None) -> WeightedDraws:
        return fresh_draws(self.belief, self.words, evaluation or usual_draws(self.objective, self.risk))

    def aside(self, number: int) -> WeightedDraws:
        """Draws to choose policies by: others than those reported on, unless the posterior is used whole."""
        return JobDraws([Job(self.belief, self.risk, self.words, None)]).held_out(number)[0]

    @in_float64
    def view(
        self,
        name: str,
        policy: Any,
        losses: Any = None,
        occupancy: bool = True,
        beside: View | None = None,
        kind: str = "policy",
        status: str = "",
    ) -> View:
        """A policy judged on the draws; its losses there may be known already."""
        probabilities, share = self.objective.point_from(policy), self.fresh.probabilities
        if losses is None:
            losses = judge(self.objective, self.risk, probabilities, self.fresh).losses
        losses, exact = np.asarray(losses), self.fresh.exact
        if not np.all(np.isfinite(losses)):
            raise InputError(f"the loss of {name} is not a finite number at every posterior draw; check costs and loss")
        assessed, mean = self.risk(losses, share), Expectation()
        return View(
            name=name,
            probabilities=probabilities,
            losses=losses,
            weights=np.asarray(assessed.weights),
            draw_probabilities=share,
            exact=exact,
            risk=float(assessed.value),
            risk_standard_error=0.0 if exact else float(self.risk.standard_error(losses, share)),
            mean=float(mean(losses, share).value),
            mean_standard_error=0.0 if exact else float(mean.standard_error(losses, share)),
            value_at_risk=float(np.quantile(losses, self.tail_level, method="inverted_cdf", weights=share)),
            tail_mean=float(CVaR(self.tail_level)(losses, share).value),
            occupancy=self.mean_occupancy(probabilities) if occupancy else None,
            kind=kind,
            status=status,
            difference=None if beside is None else self.difference(losses, beside.losses),
        )

    @in_float64
    def footing(self, view: View) -> Footing:
        """What the risk of a view stands on."""
        answer = judged(self.risk, view.losses, self.fresh)
        return self.objective.footing(self.belief, self.risk, view.probabilities, answer, self.words)

    def difference(self, losses: np.ndarray, others: np.ndarray, risk: Risk | None = None) -> Difference:
        """The risk of losses less that of others, draw by draw."""
        return risk_difference(self.risk if risk is None else risk, losses, others, self.fresh)

    def mean_occupancy(self, probabilities: np.ndarray) -> np.ndarray:
        """`[S, A]` over the first draws, or over the whole posterior."""
        thetas, share, exact, _ = self.fresh
        few = len(thetas) if exact else min(len(thetas), OCCUPANCY_DRAWS)
        weights = share[None, :few] / share[:few].sum()
        return self.objective.mean_occupancies(probabilities, thetas[:few], weights)[0]

    def rivals(self, case: Case, ours: View, iterations: int) -> list[View]:
        """The plans of `pr.rivals`, beside ours; one that cannot be made for this problem is left out."""
        common = {name: self.arguments[name] for name in ("loss", "risk", "seed", "solver")}
        # A run that goes on makes a few iterations more; the risk-neutral one begins anew and gets as many as all.
        most = max(iterations, common["solver"].iterations)
        common["solver"] = dataclasses.replace(common["solver"], iterations=most)
        made = rivals(self.model, self.belief, radius=self._radius(case), evaluation=2, **common)
        views = []
        for name, plan in made.items():
            words = plan.status.name
            known = name if words in ("PLANNED", "CONVERGED") else f"{name} ({words.lower().replace('_', ' ')})"
            try:
                views.append(self.view(known, plan.policy, beside=ours, kind="rival", status=words))
            except InputError:
                continue
        return views

    def _radius(self, case: Case) -> Any:
        """The file's radius; else that of `pr.rivals`, where the log's rows stand in for a Dirichlet's counts."""
        given = case.facts.file.rivals.robust_radius
        belief = self.belief.posterior if isinstance(self.belief, WithCosts) else self.belief
        if given is not None or isinstance(belief, Dirichlet):
            return given
        return row_radius(self.model.support, case.counts() + 1.0)


@in_float64
def risk_difference(risk: Risk, losses: np.ndarray, others: np.ndarray, draws: WeightedDraws) -> Difference:
    """The risk of losses less that of others on the same draws, with its standard error and 95 % interval.

    Both are NaN where they are not known, and nothing is left open where the draws are the whole posterior.
    """
    if losses is others:
        # A policy beside itself.
        return Difference(0.0, 0.0, 0.0, 0.0)
    ours, theirs = (judged(risk, each, draws) for each in (losses, others))
    value = ours.risk - theirs.risk
    if draws.exact:
        value = 0.0 if abs(value) <= ROUNDING * max(abs(ours.risk), abs(theirs.risk)) else value
        return Difference(value, 0.0, value, value)
    low, high = risk.difference_interval(losses, others, draws.probabilities)
    error = ours.error_of_difference(theirs) if np.isfinite(low) else math.nan
    return Difference(value, error, low, high)


def tail_level_of(risk: Any) -> float:
    """The level of a risk, or of a file's section on it, that has one; 0.9 for any other."""
    level = getattr(risk, "level", None)
    return 0.9 if level is None or not 0.0 < float(level) < 1.0 else float(level)
