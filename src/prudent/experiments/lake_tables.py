"""The BR-PG cells of the paper's three frozen-lake tables, on our reconstruction of its map."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..arrays import as_key
from ..envs import FrozenLake, frozen_lake
from ..evaluation import loss_at
from ..occupancies import Truncated
from ..risks import CVaR
from ..solvers import BRPG, solve_many

SLIP = 0.3
LEVELS = (0.0, 0.5, 0.9)
SETTINGS = (("table 1", 0.02, 5), ("table 1", 0.02, 50), ("table 2", 0.7, 5), ("table 3", 0.7, 50))
TRUNCATION = Truncated(horizon=130)
PAPER = BRPG(samples=30, iterations=100, step=1.0)


class Cell(eqx.Module):
    """One cell of a table: our mean over data sets beside the published one.

    Attributes:
        table: which table of the paper.
        escape, n, beta: the true escape probability, trials a coordinate, CVaR level.
        losses: `[I]` loss under the truth of each data set's policy.
        mean, standard_error, positive_variance: of `losses`.
        published, published_error: the paper's mean and standard error.
    """

    table: str
    escape: float
    n: int
    beta: float
    losses: np.ndarray
    mean: float
    standard_error: float
    positive_variance: float
    published: float
    published_error: float

    @property
    def deviation(self) -> float:
        """Relative difference of the means."""
        return self.mean / self.published - 1.0

    @property
    def z(self) -> float:
        """Difference in joint standard errors."""
        return (self.mean - self.published) / float(np.hypot(self.standard_error, self.published_error))


def published() -> dict[str, Any]:
    """The figures of the paper's tables, by table, data size and method."""
    text = resources.files("prudent.experiments").joinpath("published.json").read_text(encoding="utf-8")
    return json.loads(text)


def brpg_cells(replications: int = 50, seed: int | jax.Array = 0, progress: bool | None = None) -> list[Cell]:
    """The twelve BR-PG cells: every data set of a setting at all three levels in one compiled call.

    Data set i of a setting is the same for all levels, and so are its posterior draws.
    """
    lake = frozen_lake()
    key = as_key(seed)
    return [
        cell
        for number, setting in enumerate(SETTINGS)
        for cell in _setting_cells(lake, setting, replications, jax.random.fold_in(key, number), progress)
    ]


def _setting_cells(
    lake: FrozenLake, setting: tuple[str, float, int], replications: int, key: jax.Array, progress: bool | None
) -> list[Cell]:
    table, escape, n = setting
    truth = (SLIP, escape)
    data_key, solve_key = jax.random.split(key)
    logs = [lake.trials(n, truth, jax.random.fold_in(data_key, i)) for i in range(replications)]
    beliefs = [lake.prior.update(log) for log in logs]
    risks = [CVaR(level) for level in LEVELS]
    grid = solve_many(lake, beliefs, risks, solver=PAPER, seed=solve_key, progress=progress, certify=False)
    policies = [solution.policy for row in grid for solution in row]
    losses = loss_at(policies, lake, truth, occupancy=TRUNCATION).reshape(replications, len(LEVELS))
    figures = published()["tables"][f"{table.replace(' ', '')}_escape_{escape}"][f"N={n}"]
    return [
        _cell(table, escape, n, level, losses[:, j], figures[f"BR-PG beta={level:g}"]) for j, level in enumerate(LEVELS)
    ]


def _cell(table: str, escape: float, n: int, beta: float, losses: np.ndarray, figure: list[float]) -> Cell:
    mean = float(losses.mean())
    spread = float(losses.std(ddof=1)) if losses.size > 1 else float("nan")
    return Cell(
        table=table,
        escape=escape,
        n=n,
        beta=beta,
        losses=losses,
        mean=mean,
        standard_error=spread / float(np.sqrt(losses.size)),
        positive_variance=float((np.clip(losses - mean, 0.0, None) ** 2).mean()),
        published=figure[0],
        published_error=figure[1],
    )
