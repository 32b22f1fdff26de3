"""Loss under the truth of every iterate: mimicking an expert, and how one run goes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from prudent import BRPG, CVaR, Expectation, Imitation, Posterior, Risk, Solution, occupancy, plan
from prudent.envs import FrozenLake
from prudent.losses import Loss

from .lake import LEVELS, PAPER, SETTINGS, DataSets, Setting, at_one_theta, data_sets, truth_curves
from .work import RunFolder, Unit

# The paper's general step; its length 1 is named for the expected cost only.
MIMIC = BRPG(samples=30, iterations=100, step=0.5)

# Streams of their own beside those of the tables.
MIMIC_SETTINGS = (
    Setting(10, "mimic", 0.02, 5),
    Setting(11, "mimic", 0.02, 50),
    Setting(12, "mimic", 0.2, 5),
    Setting(13, "mimic", 0.8, 5),
)

NORMAL_95 = 1.959963984540054


def mimicry(lake: FrozenLake, setting: Setting) -> Imitation:
    """Of the states of the best policy under the truth: the paper does not name its expert."""
    truth = lake.at(setting.truth)
    visits = np.asarray(occupancy(truth, plan(truth).policy.probabilities)).sum(axis=1)
    return Imitation(visits / visits.sum())


def mimic_units(replications: int, seed: int) -> list[Unit]:
    """BR-PG at three levels and the plug-in, in every setting."""
    common = {"replications": replications, "seed": seed}
    return [
        Unit(f"mimic/{setting.name}/{name}", function, {"setting": setting, **common}, compiled=True, cost=cost)
        for setting in MIMIC_SETTINGS
        for name, function, cost in (
            ("brpg", mimic_brpg, 0.25 * replications + 5),
            ("plug-in-steps", mimic_plug_in, 0.1 * replications + 3),
        )
    ]


def mimic_brpg(setting: Setting, replications: int, seed: int) -> dict[str, Any]:
    """KL to the expert under the truth, `[level, replication, iteration]`."""
    sets = data_sets(setting, replications, seed)
    risks = [CVaR(level) for level in LEVELS]
    return {"curves": run_curves(setting, sets, sets.beliefs, risks, MIMIC, mimicry(sets.lake, setting)).tolist()}


def mimic_plug_in(setting: Setting, replications: int, seed: int) -> dict[str, Any]:
    """The same of gradient steps at the maximum-likelihood theta, `[replication, iteration]`."""
    sets, solver = data_sets(setting, replications, seed), at_one_theta(MIMIC)
    [curves] = run_curves(setting, sets, sets.points(), [Expectation()], solver, mimicry(sets.lake, setting))
    return {"curves": curves.tolist()}


def run_curves(
    setting: Setting,
    sets: DataSets,
    beliefs: Sequence[Posterior],
    risks: Sequence[Risk],
    solver: BRPG,
    loss: Loss | None = None,
) -> Float[np.ndarray, "J I T"]:
    """Loss under the truth before the first and after every step of belief i under risk j."""
    grid = sets.solved(beliefs, risks, dataclasses.replace(solver, keep_iterates=True, evaluation=2), loss)
    parameters = np.stack([iterates_of(solution) for row in grid for solution in row])
    curves = truth_curves(parameters, setting, loss)
    return curves.reshape(len(beliefs), len(risks), -1).transpose(1, 0, 2)


def iterates_of(solution: Solution) -> Float[np.ndarray, "T S A"]:
    """All iterates, the last included."""
    return np.concatenate([solution.iterates, np.asarray(solution.parameters)[None]])


def mimic_records(folder: RunFolder) -> list[dict[str, Any]]:
    """One row a setting, method and iteration."""
    rows = []
    for setting in MIMIC_SETTINGS:
        values = {name: folder.values(f"mimic/{setting.name}/{name}") for name in ("brpg", "plug-in-steps")}
        for about, curve in _named(setting, values["brpg"]["curves"], values["plug-in-steps"]["curves"]):
            rows += curve_rows(about, np.array(curve))
    return rows


def _named(setting: Setting, brpg: Sequence[Any], plug_in: Any) -> list[tuple[dict[str, Any], Any]]:
    """Each curve with what it is of."""
    methods = [("BR-PG", level, curve) for level, curve in zip(LEVELS, brpg, strict=True)]
    return [
        ({"escape": setting.escape, "n": setting.n, "method": method, "beta": level, "radius": None}, curve)
        for method, level, curve in (*methods, ("plug-in, 100 steps", None, plug_in))
    ]


def curve_rows(about: dict[str, Any], curves: Float[np.ndarray, "I T"]) -> list[dict[str, Any]]:
    """Mean over replications at each iteration, its standard error and a 95 % band."""
    means = curves.mean(axis=0)
    errors = curves.std(axis=0, ddof=1) / np.sqrt(len(curves)) if len(curves) > 1 else np.full(len(means), np.nan)
    return [
        {
            **about,
            "iteration": iteration,
            "mean": mean,
            "se": error if np.isfinite(error) else None,
            "low": mean - NORMAL_95 * error if np.isfinite(error) else None,
            "high": mean + NORMAL_95 * error if np.isfinite(error) else None,
            "published": None,
            "z": None,
        }
        for iteration, (mean, error) in enumerate(zip(means.tolist(), errors.tolist(), strict=True))
    ]


def convergence_units(seed: int) -> list[Unit]:
    """The first data set of the first table."""
    return [Unit("convergence/one-replication", convergence_curves, {"seed": seed}, compiled=True, cost=10.0)]


def convergence_curves(seed: int) -> dict[str, Any]:
    """Loss under the truth of each iterate at each level, and of the plug-in's steps."""
    setting = SETTINGS[0]
    sets = data_sets(setting, 1, seed)
    levels = run_curves(setting, sets, sets.beliefs, [CVaR(level) for level in LEVELS], PAPER)
    plug_in = run_curves(setting, sets, sets.points(), [Expectation()], at_one_theta(PAPER))
    return {"brpg": levels[:, 0].tolist(), "plug_in": plug_in[0, 0].tolist()}


def convergence_records(folder: RunFolder) -> list[dict[str, Any]]:
    """One row a method and iteration."""
    values = folder.values("convergence/one-replication")
    return [
        {**about, "iteration": iteration, "mean": loss, "published": None, "z": None}
        for about, curve in _named(SETTINGS[0], values["brpg"], values["plug_in"])
        for iteration, loss in enumerate(curve)
    ]
