"""A policy as it is seen over the posterior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..report.data import Difference, Standing


@dataclass(frozen=True)
class View:
    """A policy over the draws.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     view = pr.evaluate_problem([[1, 0, 0]] * 4, pr.write_example(folder)[0], samples=200)
    >>> bool(view.value_at_risk <= view.tail_mean)
    True

    Attributes:
        name: who planned it.
        probabilities: `[S, A]`.
        losses: `[M]` at each draw.
        weights: `[M]` the density that attains the risk.
        draw_probabilities: `[M]` of the draws; equal unless the draws are the whole posterior.
        exact: whether the draws are the whole posterior, so that nothing is sampled and standard errors are 0.
        risk, risk_standard_error, mean, mean_standard_error: over the draws.
        value_at_risk, tail_mean: quantile of the losses at the tail level, and the mean of the worst beyond it.
        occupancy: `[S, A]` mean over draws, not normalised; None where it was not asked for.
        kind: `policy`, `deterministic` or `rival`.
        status: how its planner ended, such as `PLANNED`.
        difference: its risk less that of the policy it is set beside, draw by draw; None without one.
        standing: what its risk stands on; None where it was not asked for.
    """

    name: str
    probabilities: np.ndarray
    losses: np.ndarray
    weights: np.ndarray
    draw_probabilities: np.ndarray
    exact: bool
    risk: float
    risk_standard_error: float
    mean: float
    mean_standard_error: float
    value_at_risk: float
    tail_mean: float
    occupancy: np.ndarray | None
    kind: str = "policy"
    status: str = ""
    difference: Difference | None = None
    standing: Standing | None = None
