"""What a report shows, as plain records: NumPy arrays and Python values, no JAX."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import InputError


@dataclass(frozen=True)
class Difference:
    """The risk of one plan less that of another on the same draws.

    Attributes:
        value: the difference.
        standard_error: what chance leaves open, draw by draw; 0 where the draws are the whole posterior, NaN where it
            is not known.
        low, high: 95 % confidence interval; both the value where the draws are the whole posterior.
    """

    value: float
    standard_error: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class PlanView:
    """One plan, judged on the same fresh posterior draws as every other plan of the report.

    Attributes:
        name: what the reader calls it, such as "this policy" or "robust plan".
        risk, risk_standard_error: the risk that was asked for, and its Monte-Carlo error; 0 where the draws are the
            whole posterior.
        mean, mean_standard_error: the posterior mean of the loss, and its Monte-Carlo error.
        losses: `[M]` its loss at each draw.
        value_at_risk: the quantile of the losses at the report's `tail_level`, or None.
        tail_mean: the mean of the losses beyond it (CVaR), or None.
        probabilities: `[S, A]` chance of each action in each state.
        occupancy: `[S, A]` discounted visits, the mean over the draws, not normalised.
        kind: `policy` for the answer, `deterministic` for the best deterministic policy found, or `rival`.
        difference: its risk less the answer's; None for the answer, or where they were not compared.
    """

    name: str
    risk: float
    risk_standard_error: float
    mean: float
    mean_standard_error: float
    losses: np.ndarray
    value_at_risk: float | None
    tail_mean: float | None
    probabilities: np.ndarray
    occupancy: np.ndarray
    kind: str = "rival"
    difference: Difference | None = None


@dataclass(frozen=True)
class Driver:
    """One unknown number that the risk's weights pull away from its posterior mean, by more than chance.

    Attributes:
        name: such as "worn, run → broken" or "slip".
        plain: its posterior mean.
        weighted: its mean under the density xi* that attains the risk.
        shift: the difference, in posterior standard deviations.
        standard_error: of the shift by chance alone, if this unknown had nothing to do with the loss; 0 where the draws
            are the whole posterior.
    """

    name: str
    plain: float
    weighted: float
    shift: float
    standard_error: float


@dataclass(frozen=True)
class LeantOn:
    """A pair with few rows that the answer leans on: its rows, and the shares of discounted time spent there."""

    state: str
    action: str
    rows: float
    time: float
    tail_time: float


@dataclass(frozen=True)
class UnderPrior:
    """The answer under another prior for the same rows.

    Attributes:
        name: the prior, in words.
        risk: of the answer there.
        exceeded: share of draws in which its loss is above the risk that was stated.
        gain: how much less the best plan for the prior's mean loses there, or None.
    """

    name: str
    risk: float
    exceeded: float
    gain: float | None


@dataclass(frozen=True)
class Standing:
    """What the answer stands on.

    Attributes:
        word: `sound`, `thin` or `unsupported`; None where it cannot be said.
        message: what the word means, or why there is none.
        few: rows below which a pair is thin.
        time, tail_time: shares of discounted time in thin pairs, over the posterior and under the risk's weights; None
            without a word.
        exceeded: the mean over the priors of the chance that the loss is above the stated risk; None without a word.
        pairs: the thin pairs it leans on most.
        pairs_left_out: how many more there are.
        others: the answer under other priors.
    """

    word: str | None
    message: str
    few: int
    time: float | None
    tail_time: float | None
    exceeded: float | None
    pairs: tuple[LeantOn, ...]
    pairs_left_out: int
    others: tuple[UnderPrior, ...]


@dataclass(frozen=True, eq=False)
class ReportData:
    """All that a report shows.

    Attributes:
        title: heading of the page.
        asked: label and value of each line of "what was asked".
        status, status_message, ok: how the solver ended, in a word and in a sentence, and whether the policy is usable.
        risk_name, loss_name: such as "CVaR 0.9" and "expected discounted cost".
        tail_level: the level in [0, 1) at which the plans' `value_at_risk` and `tail_mean` were taken.
        states, actions: names, in the order of the arrays.
        grid: rows and columns where the states form a grid (row-major), else None.
        directions: for each action "left", "down", "right" or "up", else None: no arrows.
        plans: the first is the answer.
        known_theta_risk, known_theta_standard_error: the risk if theta were told before planning, or None.
        lower_bound: no policy has a smaller risk than this, or None.
        history_objective, history_gradient_norm: `[T]` one entry an iteration.
        drivers: the unknowns that move by more than chance, the farthest first.
        counts: `[S, A]` how often each pair was seen, or None.
        seed, seconds, iterations: of the run.
        versions: name and version of what computed it.
        gap: what the answer's risk is above the bound, draw by draw; None where that is not known.
        gap_limit: what the gap is at most, with 95 % confidence; None where that is not known.
        bound_draws: how many of the draws the bound and the gap were found on, the first ones; all when left out.
        no_bound_because: why there is no lower bound; empty where that is not known.
        draw_probabilities: `[M]` of the draws; equal when left out.
        exact: the draws are the whole posterior, so that nothing is sampled.
        weights: `[M]` the density xi* that attains the answer's risk, or None.
        drivers_considered: how many unknowns were looked at for the drivers, or None.
        certain: `[S, A]` which pairs have one possible outcome, so that there is nothing to see; none when left out.
        solver: `sample-average` or `brpg`; empty for another.
        standing: what the answer stands on, or None.
    """

    title: str
    asked: tuple[tuple[str, str], ...]
    status: str
    status_message: str
    ok: bool
    risk_name: str
    loss_name: str
    tail_level: float
    states: tuple[str, ...]
    actions: tuple[str, ...]
    grid: tuple[int, int] | None
    directions: tuple[str, ...] | None
    plans: tuple[PlanView, ...]
    known_theta_risk: float | None
    known_theta_standard_error: float | None
    lower_bound: float | None
    history_objective: np.ndarray
    history_gradient_norm: np.ndarray
    drivers: tuple[Driver, ...]
    counts: np.ndarray | None
    seed: int
    seconds: float
    iterations: int
    versions: tuple[tuple[str, str], ...]
    gap: float | None = None
    gap_limit: float | None = None
    bound_draws: int | None = None
    no_bound_because: str = ""
    draw_probabilities: np.ndarray | None = None
    exact: bool = False
    weights: np.ndarray | None = None
    drivers_considered: int | None = None
    certain: np.ndarray | None = None
    solver: str = ""
    standing: Standing | None = None

    def shares(self) -> np.ndarray:
        """`[M]` the probability of each draw of the answer."""
        draws = len(self.plans[0].losses)
        return np.full(draws, 1.0 / max(draws, 1)) if self.draw_probabilities is None else self.draw_probabilities

    def __post_init__(self) -> None:
        """Refuse records whose parts do not belong together, before anything is drawn."""
        pairs = (len(self.states), len(self.actions))
        if not self.plans or 0 in pairs:
            raise InputError(
                f"a report needs a plan, a state and an action; got {len(self.plans)} plans, pairs {pairs}"
            )
        tables = {"counts": self.counts, "certain": self.certain}
        for plan in self.plans:
            tables |= {
                f"probabilities of {plan.name!r}": plan.probabilities,
                f"occupancy of {plan.name!r}": plan.occupancy,
            }
        for name, table in tables.items():
            if table is not None and np.shape(table) != pairs:
                raise InputError(f"the report's {name} must be [S, A] = {pairs}, got {np.shape(table)}")
        if self.grid is not None and self.grid[0] * self.grid[1] != pairs[0]:
            raise InputError(f"a grid of {self.grid[0]} x {self.grid[1]} cannot hold {pairs[0]} states")
        if self.directions is not None and len(self.directions) != pairs[1]:
            raise InputError(f"the report needs a direction for each of {pairs[1]} actions, got {len(self.directions)}")
        draws = {len(plan.losses) for plan in self.plans}
        if self.draw_probabilities is not None and draws != {len(self.draw_probabilities)}:
            raise InputError(
                f"the report's {len(self.draw_probabilities)} probabilities of draws do not fit the plans, which have "
                f"{sorted(draws)} losses"
            )
        if len(self.history_objective) != len(self.history_gradient_norm):
            raise InputError(
                f"the report's histories differ in length: {len(self.history_objective)} objectives, "
                f"{len(self.history_gradient_norm)} gradient norms"
            )
