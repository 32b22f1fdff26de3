"""What a solution that was found in Python is asked for: its page, its picture, its frame."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..advice import risk_words
from ..errors import InputError
from ..plots import loss_distributions
from ..report import write_report
from ..solvers import Solution
from ..tables import frame_of
from .reporting import record_solution, require_report

MOST_UNKNOWNS = 200


def _asked(solution: Solution) -> Any:
    if solution.asked is None:
        raise InputError(
            "this solution does not know what was asked, because it was loaded from a file or made by hand; "
            "use pr.record_solution(solution, model, belief), and prudent.report.write_report"
        )
    return solution.asked


def report_solution(
    solution: Solution, path: str | Path, *, rivals: Mapping[str, Solution] | None = None, **shown: Any
) -> Path:
    """`solution.report`."""
    asked = _asked(solution)
    require_report()
    seed = jax.random.wrap_key_data(jax.numpy.asarray(asked.key, jax.numpy.uint32))
    record = record_solution(
        solution, asked.objective, asked.belief, risk=asked.risk, seed=seed, rivals=rivals, **shown
    )
    return write_report(record, path)


def plot_solution(solution: Solution, path: str | Path | None = None) -> Any:
    """`solution.plot`."""
    marks = {"mean": solution.evaluation.mean}
    marks["risk" if solution.asked is None else risk_words(solution.asked.risk)] = solution.risk
    losses = np.asarray(solution.losses)
    if not np.all(np.isfinite(losses)):
        raise InputError("some losses are infinite, and there is no picture of them; look at solution.losses")
    return loss_distributions({"policy": losses}, path, marks={"policy": marks}, label="loss")


def solution_frame(solution: Solution, backend: str | None = None) -> Any:
    """`solution.to_frame`."""
    columns: dict[str, Any] = {
        "probability": np.asarray(solution.probabilities),
        "weight": np.asarray(solution.weights),
        "loss": np.asarray(solution.losses),
    }
    thetas = np.asarray(solution.thetas)
    shape = thetas.shape[1:]
    if math.prod(shape) <= MOST_UNKNOWNS:
        for place in np.ndindex(*shape):
            name = f"theta{list(place)}" if solution.asked is None else solution.asked.objective.name_of(place, shape)
            columns[name] = thetas[(slice(None), *place)]
    return frame_of(columns, backend)
