"""The optimisers side by side on the twelve cells of the paper's lake: objective, cost, certificate, truth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prudent import Beta, CVaR, SampleAverage, Sobol, Solution, evaluate, loss_at, solve_many
from prudent.arrays import in_float64
from prudent.envs import FrozenLake
from prudent.records import Record
from prudent.seeds import child, generator

from .lake import LEVELS, PAPER, SETTINGS, DataSets, Setting, data_sets

# One start and no more gradients than the paper's 100 x 30.
FRUGAL = SampleAverage(samples=100, largest=100, starts=1, iterations=30)
DEFAULT = SampleAverage()
# The best known point is the best of long runs from this many random policies.
RANDOM_STARTS = 64
LONG = SampleAverage(samples=512, largest=512, starts=1, iterations=300, tolerance=1e-6)

# Draws of the sample on which all answers of a cell are compared.
COMMON = 8192


class OptimiserRow(Record):
    """One cell, a mean over data sets.

    Attributes:
        escape, n, beta: the true escape probability, trials a coordinate, CVaR level.
        paper, natural, default: objective on a large common sample of the paper's algorithm, of one natural-gradient
            run at no more gradients, and of the default.
        above_best: largest relative excess of the default over the best of `RANDOM_STARTS` long runs, over the data
            sets that have them; NaN if none has.
        gap: risk less lower bound of the default, on its fresh draws.
        natural_models, default_models: gradients of single models.
        truth: losses under the true theta, of paper, natural and default.
        worst_against_paper: largest relative excess of the natural-gradient run over the paper's algorithm.
    """

    escape: float
    n: int
    beta: float
    paper: float
    natural: float
    default: float
    above_best: float
    gap: float
    natural_models: float
    default_models: float
    truth: tuple[float, float, float]
    worst_against_paper: float


@in_float64
def compare_optimisers(
    replications: int = 1, references: int = 1, seed: int = 0, progress: bool | None = None
) -> list[OptimiserRow]:
    """The twelve cells; data set i of a setting is the same for all levels and optimisers.

    Args:
        replications: data sets a setting.
        references: how many of them get the long runs from random starts.
        seed: of data and draws.
        progress: show a bar.
    """
    return [
        row
        for setting in SETTINGS
        for row in _rows(setting, data_sets(setting, replications, seed), references, progress)
    ]


def _rows(setting: Setting, sets: DataSets, references: int, progress: bool | None) -> list[OptimiserRow]:
    lake, beliefs, seed = sets
    risks = [CVaR(level) for level in LEVELS]
    grids = [
        solve_many(lake, beliefs, risks, solver=solver, seed=seed, progress=progress, certify=solver is DEFAULT)
        for solver in (PAPER, FRUGAL, DEFAULT)
    ]
    rows = []
    for j, level in enumerate(LEVELS):
        columns = [[row[j] for row in grid] for grid in grids]
        objectives = np.array(
            [
                _objectives(lake, belief, level, answers)
                for belief, answers in zip(beliefs, zip(*columns, strict=True), strict=True)
            ]
        )
        best = np.array([_best_known(lake, belief, level, seed) for belief in beliefs[:references]])
        losses = [float(np.mean(loss_at([run.policy for run in column], lake, setting.truth))) for column in columns]
        paper, natural, default = objectives.mean(axis=0)
        rows.append(
            OptimiserRow(
                escape=setting.escape,
                n=setting.n,
                beta=level,
                paper=float(paper),
                natural=float(natural),
                default=float(default),
                above_best=float((objectives[: len(best), 2] / best).max() - 1.0) if len(best) else float("nan"),
                gap=float(np.mean([run.certificate.gap for run in columns[2]])),
                natural_models=float(np.mean([run.models for run in columns[1]])),
                default_models=float(np.mean([run.models for run in columns[2]])),
                truth=(losses[0], losses[1], losses[2]),
                worst_against_paper=float((objectives[:, 1] / objectives[:, 0]).max() - 1.0),
            )
        )
    return rows


def _objectives(lake: FrozenLake, belief: Beta, level: float, answers: Sequence[Solution]) -> np.ndarray:
    """The objective of each answer on one large sample that none of them has seen."""
    return np.array(
        [
            evaluate(answer.policy, lake, Sobol(belief), risk=CVaR(level), samples=COMMON, seed=2**40).risk
            for answer in answers
        ]
    )


def _best_known(lake: FrozenLake, belief: Beta, level: float, seed: int) -> float:
    """The least objective that long runs from random policies come to."""
    random = generator(child(seed, 2**20))
    states, actions = lake.support.shape[:2]
    starts = np.log(random.dirichlet(np.ones(actions), size=(RANDOM_STARTS, states)))
    grid = solve_many(
        lake,
        [belief] * RANDOM_STARTS,
        [CVaR(level)],
        solver=LONG,
        seed=seed,
        start=[[start] for start in starts],
        certify=False,
    )
    return float(_objectives(lake, belief, level, [row[0] for row in grid]).min())
