"""A policy as it is seen over the posterior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


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
        risk, risk_standard_error, mean, mean_standard_error: over the draws.
        value_at_risk, tail_mean: quantile of the losses at the tail level, and the mean of the worst beyond it.
        occupancy: `[S, A]` mean over draws, not normalised; None where it was not asked for.
    """

    name: str
    probabilities: np.ndarray
    losses: np.ndarray
    weights: np.ndarray
    risk: float
    risk_standard_error: float
    mean: float
    mean_standard_error: float
    value_at_risk: float
    tail_mean: float
    occupancy: np.ndarray | None
