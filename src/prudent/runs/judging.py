"""How good policies are on one set of fresh draws: any policy, and the rivals."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from ..arrays import Array, as_key, in_float64, key_words
from ..baselines.rivals import plug_in, robust
from ..errors import InputError
from ..gradients import Problem, arrange, losses_on, model_bytes
from ..gradients.objective import occupancies_of
from ..losses import ExpectedCost
from ..occupancies import Exact
from ..policies import Softmax, action_probabilities
from ..posteriors import Dirichlet
from ..problems import Case
from ..problems.parts import pair_counts
from ..risks import CVaR, Expectation, Risk
from ..solvers.draws import fresh_draws
from .view import View

# Draws of a mean occupancy, and the working memory they may take.
OCCUPANCY_DRAWS, OCCUPANCY_BYTES = 512, 128 * 2**20

# The robust plan's balls hold each row of the kernel with this probability, by the chi-square limit.
ROBUST_COVERAGE = 0.9


class Court:
    """One problem with its fresh draws: those on which `solve` reports the risk under the same seed.

    Args:
        arguments: of `solve`.
        evaluation: how many draws.
        tail_level: where value at risk and tail mean are taken.
    """

    def __init__(self, arguments: dict[str, Any], evaluation: int, tail_level: float, thetas: Any = None):
        self.arguments, self.tail_level = arguments, tail_level
        self.model, self.belief, self.risk = arguments["model"], arguments["belief"], arguments["risk"]
        words = key_words(as_key(arguments["seed"]))
        self.thetas = fresh_draws(self.belief, words, evaluation).thetas if thetas is None else np.asarray(thetas)
        loss = ExpectedCost() if arguments["loss"] is None else arguments["loss"]
        alone = jax.tree.map(lambda leaf: np.asarray(leaf)[None], self.risk)
        self.problem = Problem(self.model, loss, alone, Softmax(), Exact().resolve(self.model.support))

    @in_float64
    def view(self, name: str, policy: Any, losses: Any = None, occupancy: bool = True) -> View:
        """A policy judged on the draws; its losses there may be known already."""
        probabilities = action_probabilities(policy, *self.model.support.shape[:2])
        if losses is None:
            losses = losses_on(self.problem, probabilities[None], self.thetas[None])[0]
        losses = np.asarray(losses)
        if not np.all(np.isfinite(losses)):
            raise InputError(f"the loss of {name} is not a finite number at every posterior draw; check costs and loss")
        assessed = self.risk(losses)
        return View(
            name=name,
            probabilities=probabilities,
            losses=losses,
            weights=np.asarray(assessed.weights),
            risk=float(assessed.value),
            risk_standard_error=float(self.risk.standard_error(losses)),
            mean=float(Expectation()(losses).value),
            mean_standard_error=float(Expectation().standard_error(losses)),
            value_at_risk=float(np.quantile(losses, self.tail_level, method="inverted_cdf")),
            tail_mean=float(CVaR(self.tail_level)(losses).value),
            occupancy=self.mean_occupancy(probabilities) if occupancy else None,
        )

    def mean_occupancy(self, probabilities: np.ndarray) -> np.ndarray:
        """`[S, A]` over the first draws, as many as fit in working memory."""
        size = model_bytes(self.problem.occupancy, self.model.support)
        draws = min(len(self.thetas), OCCUPANCY_DRAWS, max(1, OCCUPANCY_BYTES // size))
        arranged = arrange(self.thetas[None, :draws], self.problem)
        return np.asarray(_mean_occupancy(self.problem, probabilities[None], arranged))

    def rivals(self, case: Case) -> list[View]:
        """The plug-in plan and the robust plan; one that cannot be made for this problem is left out."""
        common = {name: self.arguments[name] for name in ("loss", "risk", "seed")}
        counts = pair_counts(case)
        views = []
        plans = (
            ("plug-in plan", lambda: plug_in(self.model, self.belief, _plugged(self.belief), evaluation=2, **common)),
            (
                "robust plan",
                lambda: robust(self.model, self.belief, self._radius(case, counts), evaluation=2, **common),
            ),
        )
        for name, plan in plans:
            try:
                views.append(self.view(name, plan().policy.probabilities))
            except InputError:
                continue
        return views

    def _radius(self, case: Case, counts: np.ndarray) -> Any:
        """The file's radius, or `quantile / (2 n)` of the chi-square law of each row's likelihood ratio."""
        given = case.facts.file.rivals.robust_radius
        if given is not None:
            return given
        choices = self.model.support.allowed().sum(axis=-1)
        prior = np.asarray(self.belief.prior).sum(axis=-1) if isinstance(self.belief, Dirichlet) else 1.0
        quantile = stats.chi2.ppf(ROBUST_COVERAGE, np.maximum(choices - 1, 1))
        return np.where(choices > 1, quantile / (2.0 * (counts + prior)), 0.0)


def tail_level_of(risk: Risk) -> float:
    """The level of a risk that has one, 0.9 for any other."""
    level = getattr(risk, "level", None)
    return 0.9 if level is None or not 0.0 < float(level) < 1.0 else float(level)


def _plugged(belief: Any) -> Any:
    """What a planner takes for known: observed frequencies where there are any, else the posterior mean."""
    return belief.maximum_likelihood(unseen=belief.mean()) if isinstance(belief, Dirichlet) else None


@eqx.filter_jit
def _mean_occupancy(problem: Problem, probabilities: Array, thetas: Array) -> Array:
    batch = occupancies_of(problem, probabilities, thetas)
    return jnp.mean(batch.occupancies, axis=batch.axis)
